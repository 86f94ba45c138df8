"""Hedging: what is chosen where beliefs may be wrong."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from random import Random

import numpy as np
import pytest
from problem_world import problem_of
from site_world import inputs_from, resequencing

from site_selector.estimates.estimating import estimate_world
from site_selector.mapping.estimator import Estimator
from site_selector.mapping.mapper import NEARLY, SIMPLE, map_problem
from site_selector.mapping.robust import Worlds
from site_selector.mapping.search import (
    Moves,
    PointJudge,
    anneal,
    movable_groups,
    sharing_groups,
)
from site_selector.mapping.uncertainty import Uncertainty, scenarios
from site_selector.problem import Problem, build_problem

DOUBT = Uncertainty.everywhere(0.5, random_waits=True)


def workflow() -> tuple[Problem, list[str]]:
    sites: dict[str, dict[str, object]] = {
        "mu": {"adon.workers": 2, "adon.rate": "5 MB/s", "adon.bandwidth.tacc": "200 Mb/s"},
        "tacc": {"adon.workers": 3, "adon.rate": "8 MB/s", "adon.queue_wait": 20},
        "isi": {"adon.workers": 4, "adon.rate": "6 MB/s", "adon.bandwidth.mu": "50 Mb/s"},
    }
    inputs = inputs_from(*resequencing(5, 4, sites, "mu"))
    problem = build_problem(inputs, estimate_world(inputs, now=0.0), "mu")
    return problem, [inputs.workflow.jobs[job].transformation for job in problem.jobs]


def test_a_hedge_says_what_it_gained_and_against_what() -> None:
    problem, kinds = workflow()
    choice = map_problem(problem, kinds, 3, DOUBT, evaluations=4000)
    assert choice.hedge is not None
    assert choice.hedge.makespan_s <= min(choice.portfolio.values())
    assert choice.hedge.better + choice.hedge.worse <= choice.hedge.drawn == choice.drawn
    limit = min(choice.portfolio[name] for name in SIMPLE)
    assert choice.schedule.makespan_s <= limit * (1 + NEARLY)
    assert choice.hedge.gain >= -0.05


def test_the_choice_is_better_in_worlds_it_has_not_seen() -> None:
    problem, kinds = workflow()
    trusting = map_problem(problem, kinds, 3, evaluations=4000)
    hedging = map_problem(problem, kinds, 3, DOUBT, evaluations=4000)
    fresh = scenarios(problem, kinds, DOUBT, 200, np.random.default_rng(77))
    worlds = Worlds(Estimator(problem), fresh)
    ours, theirs = worlds.logs(hedging.assignment), worlds.logs(trusting.assignment)
    assert ours.mean() <= theirs.mean() + 0.01


def test_the_same_seed_gives_the_same_choice_and_no_doubt_gives_no_hedge() -> None:
    problem, kinds = workflow()
    first, second = (map_problem(problem, kinds, 5, DOUBT, evaluations=2000) for _ in "ab")
    assert first == second
    sure = map_problem(problem, kinds, 5, Uncertainty.everywhere(0.0), evaluations=500)
    assert sure.hedge is None
    assert sure == map_problem(problem, kinds, 5, evaluations=500)


@pytest.mark.parametrize("doubt", [None, replace(Uncertainty.everywhere(0.1), wait=np.array(0.0))])
@pytest.mark.parametrize(("second_s", "sites"), [(99.0, [0, 0]), (60.0, [0, 1])])
def test_of_what_ends_at_nearly_the_same_time_the_one_that_moves_less_is_taken(
    second_s: float, sites: list[int], doubt: Uncertainty | None
) -> None:
    # The second job is faster at the other site, whose file takes half a second to get there.
    problem = problem_of(
        [([], ["f"]), (["f"], [])],
        {"f": 1e6},
        {},
        [[100.0, 300.0], [100.0, second_s]],
        [[0.0, 5e-7], [5e-7, 0.0]],
    )
    choice = map_problem(problem, ["a", "b"], 0, doubt)
    assert list(choice.assignment) == sites
    assert choice.schedule.makespan_s <= min(choice.portfolio.values()) * (1 + NEARLY)


def test_jobs_left_where_the_estimates_say_otherwise_have_a_count_of_worlds() -> None:
    problem, kinds = workflow()
    choice = map_problem(problem, kinds, 2, DOUBT, evaluations=6000)
    for job, makespan in choice.tried.items():
        if makespan < choice.schedule.makespan_s:
            assert job in choice.later


def test_worlds_refuse_what_is_above_the_limit_under_the_estimates() -> None:
    problem, kinds = workflow()
    run = Estimator(problem)
    drawn = scenarios(problem, kinds, DOUBT, 4, np.random.default_rng(1))
    sites = [allowed[0] for allowed in problem.allowed]
    at = run.makespan(sites)
    assert Worlds(run, drawn, at * 0.99).below(sites, 1e9) is None
    worlds = Worlds(run, drawn, at)
    assert worlds.below(sites, 1e9) == worlds.value(sites)
    assert worlds.below(sites, worlds.value(sites) - 1) is None


def test_annealing_is_never_worse_than_its_start_and_repeats_itself() -> None:
    problem, kinds = workflow()
    run = Estimator(problem)
    judge, moves = PointJudge(run), Moves(problem, kinds)
    start = [Random(4).choice(allowed) for allowed in problem.allowed]
    best, value = anneal(judge, moves, start, 400, Random(1), run)
    assert value == judge.value(best) < judge.value(start)
    assert all(site in allowed for site, allowed in zip(best, problem.allowed, strict=True))
    assert anneal(judge, moves, start, 400, Random(1), run) == (best, value)
    pinned = replace(problem, allowed=tuple(sites[:1] for sites in problem.allowed))
    first = [sites[0] for sites in pinned.allowed]
    assert anneal(judge, Moves(pinned, kinds), first, 50, Random(1))[0] == first


def test_groups_are_chains_and_jobs_of_a_kind_on_a_level() -> None:
    problem, kinds = workflow()
    for group in movable_groups(problem, kinds):
        chain = all(b in problem.children[a] for a, b in pairwise(group))
        alike = len({(kinds[j], problem.level[j]) for j in group}) == 1
        assert chain or alike
        assert len(group) > 1


def test_where_there_are_fewer_mappings_than_tries_the_best_of_all_is_found() -> None:
    # Two pairs that share much data; one slot at each site: moved one by one, each job loses.
    pairs = [(["big"], ["x"]), (["big", "x"], ["y"]), (["y"], []), (["far"], ["z"]), (["z"], [])]
    size = {"big": 60e6, "x": 40e6, "y": 1e6, "far": 50e6, "z": 30e6}
    problem = problem_of(
        pairs, size, {"big": [0], "far": [1]}, [[9.0, 7.0, 2.0]] * 5,
        [[0.0, 1e-7, 2e-7], [1e-7, 0.0, 2e-7], [2e-7, 2e-7, 0.0]],
    )  # fmt: skip
    moves, run = Moves(problem, list("abcde")), Estimator(problem)
    judge = PointJudge(run)
    assert moves.mappings == 3**5
    best, value = anneal(judge, moves, [0] * 5, 3**5, Random(0), run)
    assert value == min(judge.value(sites) for sites in moves.all()) == judge.value(best)


def test_jobs_that_share_much_data_move_together_most_first() -> None:
    jobs = [(["a"], []), (["a", "b"], []), (["b", "c"], []), (["c"], [])]
    size = {"a": 1.0, "b": 9.0, "c": 5.0}
    problem = problem_of(jobs, size, {name: [0] for name in size}, [[1.0]] * 4, [[0.0]])
    assert sharing_groups(problem) == [(1, 2), (1, 2, 3), (0, 1, 2, 3)]
