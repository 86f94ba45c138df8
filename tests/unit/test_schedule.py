"""List schedules and simple policies by hand."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from problem_world import problem_of, random_problem

from site_selector.mapping.estimator import Estimator, upward_rank
from site_selector.mapping.policies import (
    VARIANTS,
    baselines,
    by_level,
    downward_rank,
    greedy,
    list_schedule,
    one_site,
    optimistic_costs,
)
from site_selector.problem import Problem

MB = 1e6
BETWEEN = [[0.0, 1e-6], [1e-6, 0.0]]  # 1 MB takes 1 s


def diamond() -> Problem:
    """split -> short, long -> join; 2 MB on each edge; site 1 is twice as fast."""
    return problem_of(
        [
            (["raw"], ["a", "b"]),
            (["a"], ["c"]),
            (["b"], ["d"]),
            (["c", "d"], ["out"]),
        ],
        {"raw": 30 * MB, "a": 2 * MB, "b": 2 * MB, "c": 2 * MB, "d": 2 * MB, "out": 8 * MB},
        {"raw": [0]},
        [[4.0, 2.0], [2.0, 1.0], [8.0, 4.0], [4.0, 2.0]],
        BETWEEN,
        wanted=["out"],
        output=0,
    )


def test_ranks_by_hand() -> None:
    problem = diamond()
    # Means 3, 1.5, 6, 3; a move between two sites of two takes 2 s half of the time.
    assert upward_rank(problem).tolist() == pytest.approx([3 + 1 + 6 + 1 + 3, 5.5, 10, 3])
    assert downward_rank(problem, 0.4).tolist() == pytest.approx([0, 3.4, 3.4, 9.8])


def test_what_follows_at_best_by_hand() -> None:
    costs = optimistic_costs(diamond())
    # out is 8 MB and wanted at site 0.
    assert costs[3].tolist() == [0.0, 8.0]
    # After c at site 0: join there 4 s, or 2 s to move, 2 s and 8 s back.
    assert costs[1].tolist() == [4.0, 2.0 + 4.0]
    # After d likewise; after split: long here and join here, or long there and join back here.
    assert costs[0].tolist() == [min(8 + 4, 2 + 4 + 6), min(4 + 6, 2 + 8 + 4)]


def test_heft_sees_no_inputs_and_no_way_back() -> None:
    # split 0-2 s and long 2-6 s at the fast site, wherever the 30 MB lie. short would wait there
    # until 6 s and end at 7 s; at the other site it has its 2 MB at 4 s and ends at 6 s.
    run = Estimator(diamond())
    assert list_schedule(run.problem, run.rank, VARIANTS["heft"]) == [1, 0, 1, 1]
    assert list_schedule(run.problem, run.rank, VARIANTS["lookahead"]) == [0, 1, 0, 0]


def test_pegasus_heft_goes_by_distance_from_the_start() -> None:
    # Upward, the chain goes first: its root takes the fast site, its end the other (a tie), and the
    # job beside it waits for the fast one. Downward both roots are at the start, and the first in
    # the workflow takes the fast site.
    problem = problem_of(
        [([], []), ([], ["x"]), (["x"], [])],
        {"x": 0.0},
        {},
        [[9.0, 5.0], [9.0, 5.0], [50.0, 50.0]],
        BETWEEN,
    )
    rank = upward_rank(problem)
    assert list_schedule(problem, rank, VARIANTS["heft"]) == [1, 1, 0]
    assert list_schedule(problem, rank, VARIANTS["pegasus-heft"])[:2] == [1, 0]


def test_pegasus_heft_takes_the_same_for_every_edge() -> None:
    # 100 MB between two jobs count 0.4 s, as nothing at all does.
    problem = problem_of(
        [([], ["x"]), (["x"], []), ([], [])],
        {"x": 100 * MB},
        {},
        [[1.0, 9.0], [3.0, 2.5], [3.0, 2.5]],
        BETWEEN,
        after=[(0, 2)],
    )
    sites = list_schedule(problem, upward_rank(problem), VARIANTS["pegasus-heft"])
    assert sites == [0, 1, 0]
    assert list_schedule(problem, upward_rank(problem), VARIANTS["heft"])[1] == 0


def test_greedy_charges_a_shared_file_once_and_per_job_each_time() -> None:
    # 4 MB to move; 5 s here, 2 s there. The first pays for the move, the others do not.
    def made(staging: str) -> Problem:
        return problem_of(
            [(["ref"], []) for _ in range(3)],
            {"ref": 4 * MB},
            {"ref": [0]},
            [[7.0, 2.0], [5.0, 2.0], [5.0, 2.0]],
            BETWEEN,
            workers=[9, 9],
            staging=staging,
        )

    assert greedy(made("per-site")) == [1, 1, 1]
    assert greedy(made("per-job")) == [1, 0, 0]


def test_inputs_that_come_over_one_link_come_one_after_the_other() -> None:
    # 4 MB each from places 2 and 3: over one link to site 0 in 8 s, over two to site 1 in 6 s.
    per_byte = np.full((4, 4), 1.5e-6)
    per_byte[2:, 0] = 1e-6
    np.fill_diagonal(per_byte, 0.0)
    link = np.full((4, 4), -1)
    alone = problem_of(
        [(["a", "b"], [])],
        {"a": 4 * MB, "b": 4 * MB},
        {"a": [2], "b": [3]},
        [[1.0, 1.0]],
        per_byte.tolist(),
    )
    shared = replace(alone, bottleneck=link)
    link[2:, 0] = 0
    rank = upward_rank(alone)
    assert list_schedule(alone, rank, VARIANTS["lookahead"]) == [0]
    assert list_schedule(shared, rank, VARIANTS["lookahead"]) == [1]


def test_policies_honour_where_jobs_may_run() -> None:
    problem = problem_of(
        [([], []), ([], [])], {}, {}, [[1.0, 9.0]] * 2, BETWEEN, allowed=[(0, 1), (1,)]
    )
    assert by_level(problem) == [0, 1]
    assert one_site(problem, 0) == [0, 1]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(["per-site", "per-job", "staged", "bypassed"]))
def test_every_policy_places_every_job_where_it_may_run(seed: int, staging: str) -> None:
    problem = random_problem(seed, staging)
    rank = upward_rank(problem)
    mappings = [policy(problem, Random(seed)) for _, policy in baselines(problem)]
    mappings += [list_schedule(problem, rank, knows) for knows in VARIANTS.values()]
    for sites in mappings:
        assert len(sites) == len(problem.jobs)
        assert all(s in allowed for s, allowed in zip(sites, problem.allowed, strict=True))


def test_a_job_is_put_in_while_a_worker_waits() -> None:
    # The join waits at site 0 from 6 s to 11 s for what the other site sends; the last job has room
    # there until 10 s. Behind the join it would end at 24 s, at the other site at 21 s.
    problem = problem_of(
        [([], ["a"]), ([], ["b"]), (["a", "b"], []), ([], [])],
        {"a": 5 * MB, "b": 5 * MB},
        {},
        [[6.0, 99.0], [99.0, 6.0], [9.0, 99.0], [4.0, 15.0]],
        BETWEEN,
    )
    rank = upward_rank(problem)
    assert list_schedule(problem, rank, VARIANTS["heft"]) == [0, 1, 0, 1]
    assert list_schedule(problem, rank, VARIANTS["insertion"]) == [0, 1, 0, 0]


@given(st.integers(0, 10**6))
def test_parents_come_before_children_in_any_order_of_urgency(seed: int) -> None:
    problem = random_problem(seed)
    sites = list_schedule(problem, upward_rank(problem), VARIANTS["peft"])
    assert all(site in allowed for site, allowed in zip(sites, problem.allowed, strict=True))
