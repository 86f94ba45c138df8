"""The hinted copy says what the workflow said, and where each job goes."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from network_provisioner.base.errors import InputError
from site_selector.catalogs.documents import read_document
from site_selector.mapping.hinted import hinted_copy
from site_selector.mapping.placement import Mapping, Placement

FEW = settings(max_examples=50)

TEXT = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Zl", "Zp"]), max_size=6)
WORD = st.sampled_from(
    ["a", "b.c", "1.0", "-x", "a b", "#", "x: y", "é", "'", '"', "", "long " * 30]
)
SITES = st.sampled_from(
    ["mu", "site-1.x", "12", "no", "null", "~", "a b", "x: y", "é", "'", "#x", ""]
)
PROFILES = st.dictionaries(
    st.sampled_from(["pegasus", "env", "selector", "metadata", "condor"]),
    st.none()
    | st.dictionaries(
        st.sampled_from(["runtime", "A", "execution.site", "priority", "é"]),
        WORD | st.integers(),
        max_size=3,
    ),
    max_size=3,
)
JOB = st.fixed_dictionaries(
    {"type": st.just("job"), "name": WORD},
    optional={
        "arguments": st.lists(WORD | TEXT, max_size=3),
        "uses": st.lists(st.fixed_dictionaries({"lfn": TEXT, "type": WORD}), max_size=3),
        "profiles": st.none() | PROFILES,
        "selector": WORD,
        "more": st.lists(
            st.fixed_dictionaries({"profiles": PROFILES, "selector": WORD}), max_size=1
        ),
    },
)  # fmt: skip


@st.composite
def workflows(draw: st.DrawFn) -> dict[str, Any]:
    jobs = draw(st.lists(JOB, min_size=1, max_size=4))
    order = draw(st.permutations(["id", *sorted({key for job in jobs for key in job})]))
    numbered = [{**job, "id": f"j{i}"} for i, job in enumerate(jobs)]
    root: dict[str, Any] = {"pegasus": "5.0", "name": draw(WORD)}
    root["jobs"] = [{key: job[key] for key in order if key in job} for job in numbered]
    if draw(st.booleans()):
        root["jobDependencies"] = [{"id": "j0", "children": ["j1"]}]
    return root


class Deeper(yaml.SafeDumper):
    """Lists two columns deeper than their keys, as most people write them."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def priority_of(job: str) -> int | None:
    """Of every other job, as though the user had given the others theirs."""
    return None if ord(job[-1]) % 2 else -7


def mapped(sites: dict[str, str]) -> Mapping:
    placements = tuple(
        Placement(job, "t", site, priority=priority_of(job)) for job, site in sites.items()
    )
    return Mapping("w", "p", 0.0, {}, placements, {})


def copied(text: str, sites: dict[str, str]) -> tuple[str, dict[str, Any], dict[str, Any], int]:
    """The text of the copy, what both say, and the number of hints."""
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "w.yml", Path(folder) / "h.yml"
        source.write_text(text, encoding="utf-8")
        added = hinted_copy(source, mapped(sites), target)
        # Read by PyYAML too: what we take for YAML must be YAML to others.
        assert yaml.safe_load(target.read_text(encoding="utf-8"))
        before, after = read_document(source, "w").root, read_document(target, "w").root
        return target.read_text(encoding="utf-8"), before, after, added


def expected(root: dict[str, Any], sites: dict[str, str]) -> tuple[dict[str, Any], int]:
    wanted, added = json.loads(json.dumps(root)), 0  # a copy that shares nothing
    for job in wanted["jobs"]:
        if job["id"] not in sites:
            continue
        before, profiles = json.dumps(job), job.get("profiles") or {}
        wishes = {("selector", "execution.site"): sites[job["id"]]}
        if priority_of(job["id"]) is not None:
            wishes["condor", "priority"] = str(priority_of(job["id"]))
        for (space, key), value in wishes.items():
            if key not in (profiles.get(space) or {}):
                profiles[space] = {**(profiles.get(space) or {}), key: value}
                job["profiles"] = profiles
        added += json.dumps(job) != before
    return wanted, added


@FEW
@given(
    workflows(),
    st.lists(SITES, min_size=4, max_size=4),
    st.sets(st.integers(0, 3)),
    st.sampled_from([None, True, False]),
    st.sampled_from([yaml.SafeDumper, Deeper]),
    st.sampled_from(["\n", "\r\n"]),
)
def test_a_copy_differs_in_its_hints_alone(
    root: dict[str, Any],
    sites: list[str],
    left_out: set[int],
    flow: bool | None,
    dumper: type[yaml.SafeDumper],
    end: str,
) -> None:
    text = yaml.dump(
        root, Dumper=dumper, sort_keys=False, allow_unicode=True, default_flow_style=flow
    )
    placed = {
        job["id"]: site
        for i, (job, site) in enumerate(zip(root["jobs"], sites, strict=False))
        if i not in left_out
    }
    _, before, after, added = copied(text.replace("\n", end), placed)
    assert (after, added) == expected(before, placed)


PLAIN = """\
# made by hand
pegasus: "5.0"
jobs:
  # the first
  - id: a   # an id
    name: x

  - profiles:
      env: {A: 1}
    id: b
    name: x

  - id: c
    name: x
    profiles:
      pegasus:
        runtime: 3
      selector:
        other: 1
    # the end of c

  - id: d
    name: x
# the end
name: w
"""


def test_comments_stay() -> None:
    text, before, after, added = copied(PLAIN, dict.fromkeys("abcd", "mu"))
    assert (after, added) == expected(before, dict.fromkeys("abcd", "mu"))
    assert text.startswith('# made by hand\npegasus: "5.0"\njobs:\n  # the first\n')
    assert text.endswith("# the end\nname: w\n")


SHARED = """\
jobs:
- &one
  id: a
  name: x
  profiles: &p {pegasus: &q {runtime: 3}}
- {id: b, name: x, profiles: *p}
- <<: *one
  id: c
- id: d
  name: x
  profiles: {<<: *p, env: {A: 1}}
- id: e
  name: x
  profiles: {pegasus: *q, selector: &s {k: v}}
- {id: f, name: x, profiles: {selector: *s}}
- id: g
"""


@pytest.mark.parametrize("job", "abcdf")
def test_what_jobs_share_is_not_changed_for_one_of_them(job: str) -> None:
    with pytest.raises(InputError, match=r"w\.yml:\d+: found what jobs share by an anchor"):
        copied(SHARED, {job: "mu"})


def test_what_others_share_stays_as_it_is() -> None:
    text, before, after, added = copied(SHARED, {"g": "mu"})
    assert (after, added) == expected(before, {"g": "mu"})
    assert text.startswith(SHARED.partition("- id: g")[0])


def test_json_stays_readable() -> None:
    _, before, after, _ = copied('{"jobs": [{"id": "a", "size": 1.10, "x": true}]}', {"a": "mu"})
    assert (after, 1) == expected(before, {"a": "mu"})


def test_the_form_is_the_one_that_pegasus_writes(tmp_path: Path) -> None:
    api = pytest.importorskip("Pegasus.api")
    flow = api.Workflow("w")
    flow.add_jobs(api.Job("a", _id="y").add_selector_profile(execution_site="mu"))
    flow.write(str(tmp_path / "pegasus.yml"))
    written = yaml.safe_load((tmp_path / "pegasus.yml").read_text())["jobs"][0]["profiles"]
    _, _, after, _ = copied("jobs:\n- id: y\n  name: a\n", {"y": "mu"})
    assert after["jobs"][0]["profiles"] == written


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("jobs:\n- id: b\n", "the mapping places job 'a', which the workflow does not have"),
        ("jobs: {a: b}\n", "no list of jobs"),
        ("x: &x {jobs: [{id: a}]}\n<<: *x\n", "no list of jobs"),
        ("jobs: [[x], x, {id: [a]}, {id: b}]\n", "the mapping places job 'a'"),
        ("jobs: [{id: a}]\njobs: [{id: a}]\n", "w.yml:2: key 'jobs' is given twice"),
    ],
)
def test_what_cannot_be_copied(text: str, said: str, tmp_path: Path) -> None:
    source = tmp_path / "w.yml"
    source.write_text(text)
    with pytest.raises(InputError, match=said):
        hinted_copy(source, mapped({"a": "mu"}), tmp_path / "h.yml")
    assert not (tmp_path / "h.yml").exists()


def test_of_profiles_given_twice_the_last_gets_the_hint_as_pegasus_reads_those(
    tmp_path: Path,
) -> None:
    source, target = tmp_path / "w.yml", tmp_path / "h.yml"
    source.write_text("jobs: [{id: a, profiles: {env: {A: 1}}, profiles: {env: {B: 2}}}]\n")
    hinted_copy(source, mapped({"a": "mu"}), target)
    (entry,) = read_document(target, "w", {}).root["jobs"]
    profiles = {"selector": {"execution.site": "mu"}, "env": {"B": "2"}}
    assert entry == {"id": "a", "profiles": profiles}


def test_variables_are_put_in(tmp_path: Path) -> None:
    source, target = tmp_path / "w.yml", tmp_path / "h.yml"
    source.write_text('jobs: [{id: ${JOB}, arguments: [${IN}, "\\${KEPT}"]}]\n')
    hinted_copy(source, mapped({"a": "mu"}), target, {"JOB": "a", "IN": "x"})
    job = read_document(target, "w", {}).root["jobs"][0]
    assert (job["id"], job["arguments"]) == ("a", ["x", "${KEPT}"])
    assert job["profiles"]["selector"] == {"execution.site": "mu"}
