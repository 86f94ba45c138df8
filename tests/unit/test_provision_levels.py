"""Where a workflow is wide, what it needs there, and what waits for what then."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from provision_world import ancestors, graphs, workflow

from pegasus_hooks.provisioning.step import PathNeed
from pegasus_hooks.provisioning.wide_levels import (
    FileLocations,
    latest_common_ancestors,
    needs_of,
    wide_levels,
)

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
        for job in stretch.jobs:
            assert job in firsts or above[job] & firsts
            assert job in lasts or any(job in above[last] for last in lasts)
            assert stretch.first <= flow.level[job] <= stretch.last


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
