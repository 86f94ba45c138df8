"""The callout: what it answers, and how it reads what the planner was asked."""

from __future__ import annotations

from pathlib import Path

import pytest
from callout_world import CLASS, callout_text

from pegasus_hooks.callout import HEAD, CalloutJob, choose
from pegasus_hooks.callout_first import planner_arguments

JAVA = ["/usr/bin/java", "-Dpegasus.home.sysconfdir=/none", CLASS]


def test_sites_are_read_as_the_planner_writes_them() -> None:
    assert CalloutJob(callout_text("a b", "x").encode()).offered == [b"mu", b"tacc"]
    assert CalloutJob(b"resource.id=NONE NONE\nresource.id=alone\nresource.id= x://y").offered == []


@pytest.mark.parametrize(
    ("table", "site"),
    [
        (HEAD + b"\nID2\tmu\nID1\ttacc\n", b"tacc"),
        (HEAD + b"\nID1\telsewhere\n", b"mu"),  # not offered
        (HEAD + b"\nID11\ttacc\n", b"mu"),
        (b"", b"mu"),
    ],
)
def test_the_mapping_answers_where_it_can_and_an_offered_site_always(
    table: bytes, site: bytes
) -> None:
    assert choose(CalloutJob(b"job.id=ID1\nresource.id=mu x\nresource.id=tacc y\n"), table) == site
    assert choose(CalloutJob(b"job.id=ID1\n"), table) == b"NONE"


@pytest.mark.parametrize(
    ("words", "workflow", "options"),
    [
        (["--conf", "c", "--dir", "d", "--output-sites", "local,store", "-vvv", "wf.yml"],
         "wf.yml", ["--output-site=local,store"]),
        (["-s", "mu,tacc", "-olocal", "--cluster", "label", "wf.yml"],
         "wf.yml", ["--output-site=local"]),
        (["--dax=wf.yml", "--output-site", "x", "--cleanup", "none"],
         "wf.yml", ["--output-site=x"]),
        (["--dir", "d"], "workflow.yml", []),
        (["-D", "pegasus.catalog.site.file=s", "-Dpegasus.catalog.replica.file=r",
          "-Dpegasus.data.configuration=sharedfs", "--", "wf.yml"],
         "wf.yml", ["--sites={here}/s", "--replicas={here}/r", "--data-configuration=sharedfs"]),
    ],
)  # fmt: skip
def test_command_lines_of_a_planner(
    words: list[str], workflow: str, options: list[str],
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    (tmp_path / "wf.yml").touch()
    monkeypatch.chdir(tmp_path)
    result = planner_arguments([*JAVA, *words], {})
    assert result[:2] == (workflow, [option.format(here=tmp_path) for option in options])


def test_another_program_is_no_planner() -> None:
    with pytest.raises(ValueError, match=r"'bash -c x', expected a planner"):
        planner_arguments(["bash", "-c", "x"], {})


def test_later_places_of_properties_win(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, here = tmp_path / "home", tmp_path / "here"
    home.mkdir()
    here.mkdir()
    for number, path in enumerate([home / ".pegasusrc", here / "pegasus.properties", here / "c"]):
        settings = "".join(f"k{i} = {number}\n" for i in range(number, 4))
        path.write_text(f"{settings}mixed{number} = ${{k{number}}}-${{user.home}}\n")
    monkeypatch.chdir(here)
    env = {"HOME": str(home), "_PEGASUS__A__B": "env"}
    known = planner_arguments([*JAVA, "--conf", "c", "-Dk3=system"], env)[2]
    assert [known[f"k{i}"] for i in range(4)] == ["0", "1", "2", "system"]
    assert (known["mixed1"], known["pegasus.a.b"]) == (f"0-{home}", "env")
