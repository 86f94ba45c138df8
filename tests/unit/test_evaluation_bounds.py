"""The lower bound is below every mapping, and the best known is the best of what is known."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from random import Random

import pytest
from evaluation_rig import MBIT, platform, random_platform, random_trace, task
from hypothesis import given, settings
from hypothesis import strategies as st

from site_selector.evaluation.bounds import best_known, lower_bound, steps_for
from site_selector.evaluation.traces import build_trace
from site_selector.evaluation.worlds import simulator, true_problem

SEEDS = st.integers(0, 10**9)


@settings(max_examples=60)
@given(SEEDS, st.sampled_from(["per-site", "per-job"]))
def test_no_mapping_is_below_the_bound(seed: int, staging: str) -> None:
    rng = Random(seed)
    truth = true_problem(random_trace(rng), random_platform(rng), staging)  # type: ignore[arg-type]
    run = simulator(truth)
    bound = lower_bound(truth)
    for _ in range(10):
        mapping = [rng.choice(allowed) for allowed in truth.allowed]
        assert bound <= run.makespan(mapping) * (1 + 1e-9)


@settings(max_examples=15)
@given(SEEDS)
def test_nor_is_the_best_of_all_mappings(seed: int) -> None:
    rng = Random(seed)
    trace = random_trace(rng)
    while len(trace.tasks) > 6:
        trace = random_trace(rng)
    truth = true_problem(trace, random_platform(rng))
    run = simulator(truth)
    best = min(run.makespan(list(m)) for m in product(*truth.allowed))
    assert lower_bound(truth) <= best * (1 + 1e-9)


def test_a_chain_is_bounded_by_its_best_site_the_queues_and_the_moves() -> None:
    tasks = [task("a", 10, ["x"], ["y"]), task("b", 10, ["y"], ["z"])]
    trace = build_trace("t", tasks, {"x": 4 * MBIT, "y": 2 * MBIT, "z": 6 * MBIT})
    truth = true_problem(trace, platform([1, 1], speed=[1, 5], queue_s=[0, 3]))
    # At site 1: 4 s for x, twice 3 s of queue and 2 s of work, 6 s for z: 20 s. At the store: 20 s.
    assert lower_bound(truth) == pytest.approx(20)
    assert simulator(truth).makespan([0, 0]) == simulator(truth).makespan([1, 1]) == 20


def test_a_bag_of_tasks_is_bounded_by_its_work() -> None:
    truth = true_problem(build_trace("t", [task(f"a{i}", 10) for i in range(12)], {}),
                         platform([2, 1], speed=[1, 2]))  # fmt: skip
    # 120 s of work for 2 workers at speed 1 and one at speed 2.
    assert lower_bound(truth) == pytest.approx(30, rel=0.01)


def test_a_queue_is_no_worker() -> None:
    truth = true_problem(build_trace("t", [task(f"a{i}", 10) for i in range(12)], {}),
                         platform([2, 4], queue_s=[0, 25]))  # fmt: skip
    # Without the second site 60 s; it gives 4 workers from 25 s on: 2·T + 4·(T - 25) = 120.
    assert lower_bound(truth) == pytest.approx(220 / 6, rel=0.01)


@settings(max_examples=20)
@given(SEEDS)
def test_the_best_known_is_none_of_the_candidates_worse(seed: int) -> None:
    rng = Random(seed)
    trace = random_trace(rng)
    truth = true_problem(trace, random_platform(rng))
    run = simulator(truth)
    names = [(f"c{i}", [rng.choice(a) for a in truth.allowed]) for i in range(3)]
    best = best_known(run, trace.kinds, names, str(seed), effort=0.02)
    assert best.makespan_s == run.makespan(best.assignment)
    assert best.makespan_s <= min(run.makespan(mapping) for _, mapping in names)
    assert best.makespan_s >= lower_bound(truth) * (1 - 1e-9)
    again = best_known(run, trace.kinds, names, str(seed), effort=0.02)
    assert again == best


def test_the_search_finds_what_a_policy_did_not() -> None:
    trace = build_trace("t", [task(f"a{i}", 10) for i in range(8)], {})
    truth = true_problem(trace, platform([1, 1, 1, 1]))
    best = best_known(simulator(truth), trace.kinds, [("all at one", [0] * 8)], "s")
    assert (best.makespan_s, best.source) == (20, "all at one+search")


def test_jobs_that_cannot_go_elsewhere_stay() -> None:
    trace = build_trace("t", [task("a", 10), task("b", 5)], {})
    truth = replace(true_problem(trace, platform([1, 1])), allowed=((0,), (0,)))
    assert best_known(simulator(truth), trace.kinds, [("there", [0, 0])], "s").source == "there"
    assert steps_for(truth) == 200
