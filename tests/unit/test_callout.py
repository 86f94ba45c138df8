"""The callout: what it answers, whatever it is asked."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from callout_world import CALLOUT, callout_text
from hypothesis import given
from hypothesis import strategies as st

from pegasus_hooks import callout_first
from pegasus_hooks.callout import HEAD, Job, choose


def test_the_planners_own_timeout_bounds_the_mapping() -> None:
    limit = callout_first._limit
    assert limit(None, None) == 30  # the planner gives up after 60
    assert limit("90", None) == 90
    assert limit("90", "60") == 30
    assert limit("x", "0") == 1
    assert limit("-1", "x") == 0.1


def test_without_a_home_a_cache_or_a_planner_it_still_answers(tmp_path: Path) -> None:
    file = tmp_path / "asked"
    file.write_text(callout_text("ID1", "t::split:1.0"))
    command = [sys.executable, "-I", "-S", str(CALLOUT), str(file)]
    env = {"TMP": str(tmp_path / "absent")}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert done.stdout in ("SOLUTION:mu\n", "SOLUTION:tacc\n")
    assert "expected a planner" in done.stderr


@pytest.mark.parametrize("argument", [[], ["/absent"], ["/"], ["\udc80"]])
def test_one_line_even_without_a_file(argument: list[str], tmp_path: Path) -> None:
    command = [sys.executable, "-I", "-S", str(CALLOUT), *argument]
    done = subprocess.run(command, env={"TMP": str(tmp_path)}, capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (0, b"SOLUTION:NONE\n")


site_names = st.binary(min_size=1, max_size=8).filter(lambda b: not set(b) & set(b"\n\r\t :"))


@given(st.binary(max_size=300), st.binary(max_size=300))
def test_whatever_the_files_hold_the_answer_is_an_offered_site(text: bytes, table: bytes) -> None:
    job = Job(text)
    site, reason = choose(job, HEAD + table + b"\n")
    assert site in job.offered or (site == b"NONE" and not job.offered and reason)


@given(st.lists(site_names, min_size=1, max_size=5, unique=True), st.data())
def test_the_first_listed_site_that_is_offered_answers(
    sites: list[bytes], data: st.DataObject
) -> None:
    offered = [site for site in sites if site.upper() != b"NONE"]
    ranked = data.draw(st.permutations([*sites, b"other"]))
    job = Job(b"job.id=J\n" + b"".join(b"resource.id=%s x://y\n" % s for s in sites))
    site, reason = choose(job, HEAD + b"jJ\t" + b"\t".join(ranked) + b"\n")
    if offered:
        assert (site, reason) == (next(s for s in ranked if s in offered), "")
    else:
        assert site == b"NONE"


def test_sites_are_read_as_the_planner_writes_them() -> None:
    assert Job(callout_text("a b", "x").encode()).offered == [b"mu", b"tacc"]
    assert Job(b"resource.id=NONE NONE\nresource.id=alone\nresource.id= x://y").offered == []


def test_the_hot_path_imports_nothing_of_ours() -> None:
    """Asked with answers at hand: neither the rest of the package nor what it needs is loaded."""
    code = (
        f"import sys; sys.path.insert(0, {str(CALLOUT.parent)!r}); import callout; "
        "job = callout.Job(b'job.id=J\\nresource.id=mu x'); callout.Planner(job); "
        "callout.choose(job, b'adon callout 1\\njJ\\tmu\\n'); "
        "print({'os', 're', 'subprocess', 'json', 'pathlib'} & set(sys.modules))"
    )
    command = [sys.executable, "-I", "-S", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
