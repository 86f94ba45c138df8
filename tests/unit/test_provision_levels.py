"""Where a workflow is wide, what it needs there, and what becomes of provisioning in a plan."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planner_world import FIXED, Case, by_file, job, make_case, uses
from provision_world import ancestors, graphs, workflow

from network_provisioner.base.errors import InputError
from pegasus_hooks.planner.plan import plan
from pegasus_hooks.provisioning.insertion import ProvisioningOptions, provisioned_workflow
from pegasus_hooks.provisioning.step import PathNeed
from pegasus_hooks.provisioning.wide_levels import (
    FileLocations,
    latest_common_ancestors,
    needs_of,
    wide_levels,
)
from site_selector.catalogs.documents import read_document
from site_selector.catalogs.workflow import WHAT
from site_selector.inputs import load_inputs

WIDE = [f"w{n}" for n in range(4)]
FAN = {"split": [], **{w: ["split"] for w in WIDE}, "join": WIDE}


def test_a_fan_is_provisioned_between_split_and_join() -> None:
    (stretch,) = wide_levels(workflow(FAN), 3)
    assert (stretch.first, stretch.last, stretch.width) == (1, 1, 4)
    assert stretch.jobs == stretch.first_jobs == stretch.last_jobs == tuple(WIDE)
    assert stretch.after == ("split",)


def test_a_narrow_workflow_has_no_wide_level() -> None:
    assert wide_levels(workflow(FAN), 5) == []


def test_wide_levels_that_follow_each_other_are_one_stretch() -> None:
    second = {f"x{n}": [f"w{n}"] for n in range(4)}
    (stretch,) = wide_levels(workflow({**FAN, "join": list(second), **second}), 4)
    assert (stretch.first, stretch.last, stretch.width, len(stretch.jobs)) == (1, 2, 4, 8)
    assert stretch.first_jobs == tuple(WIDE)
    assert stretch.last_jobs == tuple(second)


def test_chains_side_by_side_are_provisioned_at_the_start() -> None:
    chains = {f"{step}{n}": [f"a{n}"] if step == "b" else [] for n in range(4) for step in "ab"}
    (stretch,) = wide_levels(workflow(chains), 4)
    assert (stretch.first, stretch.last, stretch.after) == (0, 1, ())


def test_what_runs_at_the_submit_host_makes_no_level_wide() -> None:
    at_home = {w: {"profiles": {"selector": {"execution.site": "local"}}} for w in WIDE[:2]}
    assert wide_levels(workflow(FAN, more=at_home), 3) == []


@settings(max_examples=20)
@given(graphs(), st.integers(1, 4))
def test_a_stretch_lies_between_its_two_jobs(parents: dict[str, list[str]], min_width: int) -> None:
    flow, above = workflow(parents), ancestors(parents)
    for stretch in wide_levels(flow, min_width):
        firsts, lasts = set(stretch.first_jobs), set(stretch.last_jobs)
        for name in stretch.jobs:
            assert name in firsts or above[name] & firsts
            assert name in lasts or any(name in above[last] for last in lasts)
            assert stretch.first <= flow.level[name] <= stretch.last


@settings(max_examples=20)
@given(graphs(), st.integers(1, 4))
def test_every_wide_level_is_in_one_stretch(parents: dict[str, list[str]], min_width: int) -> None:
    flow = workflow(parents)
    counts: dict[int, int] = {}
    for level in flow.level.values():
        counts[level] = counts.get(level, 0) + 1
    wide = {level for level, count in counts.items() if count >= min_width}
    stretches = wide_levels(flow, min_width)
    covered = [level for stretch in stretches for level in range(stretch.first, stretch.last + 1)]
    assert sorted(covered) == sorted(wide)
    assert all(
        stretch.width == max(counts[level] for level in range(stretch.first, stretch.last + 1))
        for stretch in stretches
    )


@settings(max_examples=25)
@given(graphs(), st.data())
def test_the_latest_common_ancestors(parents: dict[str, list[str]], data: st.DataObject) -> None:
    jobs = data.draw(st.lists(st.sampled_from(sorted(parents)), min_size=1, unique=True))
    above = ancestors(parents)
    common = set.intersection(*(above[job] for job in jobs))
    latest = {a for a in common if not any(a in above[b] for b in common)}
    assert set(latest_common_ancestors(workflow(parents), jobs)) == latest


def test_needs_are_slots_and_bytes_by_pair_of_sites() -> None:
    sizes = {"split.in": 900, "split.out": 1000, **{f"{w}.out": 10 for w in WIDE}}
    big = {WIDE[0]: {"profiles": {"pegasus": {"cores": "2", "memory": "4096"}}}}
    flow = workflow(FAN, sizes=sizes, more=big)
    (stretch,) = wide_levels(flow, 3)
    needs = needs_of(flow, stretch, FileLocations(("mu", "tacc")))
    assert (needs.slots, needs.cores, needs.memory_mb, needs.bytes) == (4, 2, 4096, 1000)
    # The one file goes to both sites once, what each job writes leaves from one of them.
    assert needs.paths == (
        PathNeed("local", "mu", 1000), PathNeed("local", "tacc", 1000),
        PathNeed("mu", "local", 20), PathNeed("tacc", "local", 20),
    )  # fmt: skip


def test_a_size_that_nobody_knows_is_not_made_up() -> None:
    flow = workflow(FAN, sizes={"split.out": 1000})
    (stretch,) = wide_levels(flow, 3)
    needs = needs_of(flow, stretch, FileLocations(("mu",)))
    assert needs.paths == (PathNeed("local", "mu", 1000), PathNeed("mu", "local", None))


def test_nobody_knows_where_jobs_go_so_no_path_is_wanted() -> None:
    flow = workflow(FAN)
    (stretch,) = wide_levels(flow, 3)
    assert needs_of(flow, stretch, FileLocations()).paths == ()


def test_a_jobs_own_site_is_believed() -> None:
    hint = {w: {"profiles": {"selector": {"execution.site": "mu"}}} for w in WIDE}
    flow = workflow(FAN, sizes={"split.out": 7}, more=hint)
    (stretch,) = wide_levels(flow, 3)
    needs = needs_of(flow, stretch, FileLocations(("tacc",)))
    assert needs.paths == (PathNeed("local", "mu", 7), PathNeed("mu", "local", None))


@settings(max_examples=20)
@given(graphs(), st.lists(st.sampled_from(["mu", "tacc", "iplant"]), unique=True))
def test_no_path_begins_where_it_ends_and_none_stands_twice(
    parents: dict[str, list[str]], sites: list[str]
) -> None:
    flow = workflow(parents, sizes={f"{job}.out": 3 for job in parents})
    for stretch in wide_levels(flow, 1):
        paths = needs_of(flow, stretch, FileLocations(tuple(sites))).paths
        pairs = [(need.src, need.dst) for need in paths]
        assert len(pairs) == len(set(pairs))
        assert all(src != dst for src, dst in pairs)


PROGRAM = ["/usr/bin/python3", "-I", "-S", "/x/job.py"]


@pytest.fixture
def case(tmp_path: Path) -> Case:
    """Four jobs side by side, then one; provisioned."""
    case = make_case(tmp_path, by_file)

    def jobs(document: Any) -> None:
        wide = [
            job(n, "shout", ["raw.txt"], uses({"raw.txt": 5}, {f"w{n}.txt": False}))
            for n in range(4)
        ]
        last = job(9, "join", [], uses({f"w{n}.txt": None for n in range(4)}, {"r.txt": True}))
        document["jobs"] = [*wide, last]

    case.change("workflow", jobs)
    case.change("replicas", lambda document: document["replicas"][0].pop("metadata"))
    path = case.sources.workflow
    provisioning = provisioned_workflow(
        read_document(path, WHAT), None, ProvisioningOptions(4, pool="/adon.yml"), PROGRAM
    )
    path.write_text(provisioning.text)
    return case


def planned(case: Case) -> Path:
    inputs = case.inputs()
    sites = {name: job.site_hint or "mu" for name, job in inputs.workflow.jobs.items()}
    return plan(inputs, case.sources, sites, case.root / "submit", "local", None, FIXED).dag


def test_they_stand_around_the_level_in_the_dag(case: Case) -> None:
    lines = planned(case).read_text().splitlines()
    for n in range(4):
        assert f"PARENT provision_before_level_0 CHILD shout_ID{n}" in lines
        assert f"PARENT shout_ID{n} CHILD release_after_level_0" in lines
    assert "PARENT release_after_level_0 CHILD join_ID9" not in lines


def test_they_run_on_the_submit_host_and_always_succeed(case: Case) -> None:
    dag = planned(case)
    for name in ("provision_before_level_0", "release_after_level_0"):
        (post,) = re.findall(rf"SCRIPT POST {name} (.*)", dag.read_text())
        assert post.endswith(f"/pegasus_hooks/provisioning/succeed.py 00/00/{name}.out")
        text = next(dag.parent.rglob(f"{name}.sub")).read_text()
        assert "\nuniverse = local\n" in text
        assert '+pegasus_site = "local"' in text


def test_programs_are_taken_from_the_file_and_from_the_workflow(case: Case) -> None:
    inputs = case.inputs()
    assert inputs.candidates["before_level_0"] == ("local",)
    assert "t::shout:1.0" in inputs.transformations


def test_a_jobs_own_site_need_not_be_an_execution_site(case: Case) -> None:
    inputs = load_inputs(case.sources.workflow, execution_sites=["mu"])
    assert inputs.candidates["before_level_0"] == ("local",)
    assert inputs.candidates["ID0"] == ("mu",)


def test_of_a_program_in_both_the_workflows_own_counts(case: Case) -> None:
    def inline(document: Any) -> None:
        site = {"name": "mu", "pfn": "/mine", "type": "installed"}
        entry = {"namespace": "t", "name": "shout", "version": "1.0", "sites": [site]}
        document["transformationCatalog"]["transformations"].append(entry)

    case.change("workflow", inline)
    assert case.inputs().candidates["ID0"] == ("mu",)
    (text, *_) = (p.read_text() for p in planned(case).parent.rglob("shout_ID0.task"))
    assert '"executable": "/mine"' in text


def test_a_workflow_with_all_of_its_programs_needs_no_file(case: Case) -> None:
    def inline(document: Any) -> None:
        theirs = document["transformationCatalog"]["transformations"]
        for name in ("shout", "join"):
            site = {"name": "mu", "pfn": f"/{name}", "type": "installed"}
            theirs.append({"namespace": "t", "name": name, "version": "1.0", "sites": [site]})

    case.change("workflow", inline)
    (case.root / "transformations.yml").unlink()
    assert case.inputs().candidates["ID9"] == ("mu",)
    assert planned(case).exists()


def test_other_kinds_of_post_are_refused_by_name(case: Case) -> None:
    def none(document: Any) -> None:
        document["jobs"][-1]["profiles"] = {"dagman": {"POST": "none"}}

    case.change("workflow", none)
    with pytest.raises(InputError, match=r"profile dagman: POST: 'none' \(only user\)"):
        planned(case)
