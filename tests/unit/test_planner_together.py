"""Jobs that share a site: clusters become one job, groups stay together, nothing gets lost."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pegasus_hooks.plugin.inputs import inputs_of
from pegasus_hooks.plugin.request import parse_request
from pegasus_hooks.plugin.together import MOST_TRIALS, bind, connected_jobs, merge, settle
from site_selector.estimates.estimating import estimate_world
from site_selector.estimates.world import NoMeasurements
from site_selector.mapping.estimator import Estimator
from site_selector.mapping.policies import greedy
from site_selector.problem import Problem, build_problem

SITES = ["a", "b", "c"]


def problem_of(jobs: Sequence[dict[str, Any]], files: Sequence[dict[str, Any]]) -> Problem:
    request = {
        "adon": 1,
        "sites": [{"name": site} for site in SITES],
        "transformations": [{"name": "t", "sites": SITES}],
        "files": files,
        "jobs": [{"transformation": 0, **job} for job in jobs],
    }
    inputs = inputs_of(parse_request(json.dumps(request)), lambda _: {}, lambda _: None)
    world = estimate_world(inputs, NoMeasurements(), now=0.0, output_site="a")
    return build_problem(inputs, world, "a")


@st.composite
def problems(draw: st.DrawFn) -> tuple[Problem, dict[str, tuple[str | None, str | None]]]:
    """Any DAG of up to eight jobs that each write one file and read some of those before."""
    count = draw(st.integers(1, 8))
    files = [{"lfn": f"f{i}", "size": draw(st.integers(0, 10**9))} for i in range(count + 1)]
    jobs, names = [], {}
    for i in range(count):
        reads = draw(st.lists(st.integers(0, i), unique=True, max_size=3))
        few = draw(st.lists(st.sampled_from(SITES), unique=True, min_size=1))
        jobs.append({
            "id": f"j{i}", "sites": few, "reads": reads, "writes": [i + 1],
            "runtime": str(draw(st.integers(1, 1000))),
        })  # fmt: skip
        some = st.none() | st.sampled_from("xyz")
        names[f"j{i}"] = (draw(some), draw(some))
    return problem_of(jobs, files), names


@settings(max_examples=50)
@given(problems())
def test_merging_loses_no_work_no_file_and_no_order(
    case: tuple[Problem, dict[str, tuple[str | None, str | None]]],
) -> None:
    problem, names = case
    clusters = {job: cluster for job, (_, cluster) in names.items() if cluster is not None}
    merged = merge(problem, clusters)
    if merged is None:
        return
    small = merged.problem
    assert len(merged.part) == len(problem.jobs)
    for job, name in enumerate(problem.jobs):
        for other, label in clusters.items():
            if clusters.get(name) == label:
                assert merged.part[job] == merged.part[problem.jobs.index(other)]
        assert set(small.allowed[merged.part[job]]) <= set(problem.allowed[job])
        for parent in problem.parents[job]:
            above, below = merged.part[parent], merged.part[job]
            assert above == below or above in small.parents[below]
    assert all(parent < job for job, parents in enumerate(small.parents) for parent in parents)
    assert abs(small.compute_s.sum() - problem.compute_s.sum()) < 1e-6
    assert sorted(f for files in small.writes for f in files) == sorted(
        f for files in problem.writes for f in files
    )
    for file, readers in enumerate(small.readers):
        assert all(file in small.reads[reader] for reader in readers)
        assert small.producer[file] not in readers
    assignment = greedy(small)
    assert Estimator(small).makespan(assignment) > 0
    assert len(merged.expand(assignment)) == len(problem.jobs)


@settings(max_examples=40)
@given(problems())
def test_who_is_bound_shares_a_site_wherever_one_can_run_all(
    case: tuple[Problem, dict[str, tuple[str | None, str | None]]],
) -> None:
    problem, names = case
    bound = bind(problem, names)
    whole = bound.merged.problem
    estimator = Estimator(whole)
    groups = connected_jobs([names[job] for job in problem.jobs])
    for trials in (MOST_TRIALS, 0):
        judged = estimator.evaluations
        best, policy = settle(
            whole, bound.groups, lambda p: (greedy(p), "greedy"), estimator.score, trials
        )
        sites = bound.merged.expand(best)
        assert policy == "greedy"
        assert all(site in problem.allowed[job] for job, site in enumerate(sites))
        for jobs in groups:
            if set.intersection(*(set(problem.allowed[job]) for job in jobs)):
                assert len({sites[job] for job in jobs}) == 1
    assert estimator.evaluations - judged <= 2


def test_a_cluster_waits_once_and_computes_its_sum() -> None:
    files = [{"lfn": "f", "size": 1}, {"lfn": "g", "size": 1}]
    jobs = [
        {"id": "p", "reads": [2], "writes": [0], "runtime": "10"},
        {"id": "q", "reads": [0], "writes": [1], "runtime": "20"},
        {"id": "r", "reads": [1], "runtime": "30"},
    ]
    problem = problem_of(jobs, [*files, {"lfn": "raw", "size": 1}])
    raw = problem.files.index("raw")
    problem = replace(problem, bypassed=((raw,), (), ()))
    kinds = np.array([[1.0] * 3, [7.0] * 3, [2.0] * 3])  # each job waits as its kind does
    merged = merge(replace(problem, queue_s=kinds), {"p": "x", "q": "x"})
    assert merged is not None
    assert merged.problem.queue_s.tolist() == [[7.0] * 3, [2.0] * 3]
    assert merged.problem.jobs == ("p", "r")
    assert merged.part == (0, 0, 1)
    assert list(merged.problem.compute_s[0]) == [30.0] * 3
    assert (merged.problem.reads[0], merged.problem.parents) == ((raw,), ((), (0,)))
    assert merged.problem.bypassed == ((raw,), ())


def test_a_cluster_starts_by_the_last_priority_that_the_user_gave() -> None:
    """As Pegasus merges the profiles of its jobs."""
    problem = problem_of([{"id": name} for name in "pqrs"], [])
    problem = replace(problem, own_priority=(5, 9, None, None))
    merged = merge(problem, dict.fromkeys("pqr", "x"))
    assert merged is not None
    assert merged.problem.own_priority == (9, None)


def test_clusters_that_wait_for_each_other_are_kept_together_instead() -> None:
    jobs = [
        {"id": "p"},
        {"id": "q", "after": [0]},
        {"id": "r", "after": [1]},
    ]
    problem = problem_of(jobs, [])
    names = {"p": (None, "x"), "q": (None, None), "r": (None, "x")}
    bound = bind(problem, names)
    assert (bound.loose, bound.groups) == (True, ((0, 2),))


def test_chains_of_groups_and_clusters_are_one_company() -> None:
    groups = connected_jobs([("g", None), ("g", "c"), (None, "c"), (None, None), ("h", None)])
    assert groups == [[0, 1, 2]]
