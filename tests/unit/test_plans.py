"""Plans of workflows: what they take, until when, and that the next workflow goes round it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from problem_world import problem_of, random_problem

from site_selector.estimates.plans import Plan, plan_from, with_plans
from site_selector.estimates.world import EstimatedValue, PathEstimate, SiteEstimate, World
from site_selector.mapping.estimator import Estimator, Schedule
from site_selector.mapping.mapper import map_problem
from site_selector.mapping.policies import round_robin
from site_selector.mapping.takes import MOST_STEPS, plan_of
from site_selector.problem import Problem

NOW = 1000.0


def world_of(workers: float = 8.0, gamma_bps: float = 100.0) -> World:
    sites = {
        name: SiteEstimate(EstimatedValue(workers, "catalog"), EstimatedValue(0.0, "catalog"))
        for name in ("a", "b")
    }
    rate = EstimatedValue(gamma_bps, "catalog")
    path = PathEstimate(rate, EstimatedValue(1e9, "catalog"), 1e9, 0.0, 1, 1, 0.0)
    return World(NOW, sites, {("a", "b"): path}, {})


def wide(name: str = "other", at: float = NOW, cores: int = 3) -> Plan:
    return Plan(
        name, at, {"a": ((0.0, cores), (60.0, 1), (90.0, 0))}, {"a>b": ((0.0, 90.0, 45.0),)}
    )


def seen(world: World, *plans: Plan) -> World:
    return with_plans(world, plans, None, {}, reserved=False)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6))
def test_a_plan_is_bounded_ends_and_survives_its_details(seed: int) -> None:
    problem = random_problem(seed)
    site = round_robin(problem)
    run = Estimator(problem)(site)
    plan = plan_of("w", problem, site, run, NOW)
    assert plan_from("w", NOW, plan.as_details()) == plan
    assert all(len(steps) <= MOST_STEPS + 1 and steps[-1][1] == 0 for steps in plan.cores.values())
    for here, steps in ((problem.places.index(name), row) for name, row in plan.cores.items()):
        assert max(n for _, n in steps) <= problem.workers[here]
    assert plan.until <= NOW + run.makespan_s + 0.1
    total = sum(problem.size[move.file] for move in run.transfers)
    assert sum(row[2] for rows in plan.flows.values() for row in rows) == pytest.approx(total)


def test_a_plan_without_an_end_is_none() -> None:
    with pytest.raises(ValueError, match="without an end"):
        plan_from("w", NOW, {"cores": {"a": [[0.0, 3]]}, "flows": {}, "tenths": []})


def test_what_is_planned_is_taken_off_until_it_ends() -> None:
    world = seen(world_of(), wide(), wide("third", NOW - 60))
    assert world.planned == {"a": ((0.0, 4), (30.0, 3), (60.0, 1), (90.0, 0))}
    assert "up to 4 planned" in world.sites["a"].workers.note
    assert seen(world_of(), wide(at=NOW - 90)) == world_of()


def test_what_is_planned_for_one_path_is_taken_off_all_that_share_its_link() -> None:
    world = world_of()
    shared = replace(world.paths["a", "b"], bottleneck=("a", "switch"))
    paths = {("a", "b"): shared, ("a", "c"): shared, ("b", "a"): world.paths["a", "b"]}
    known = seen(replace(world, paths=paths), wide()).paths
    assert known["a", "b"] == known["a", "c"] != shared
    assert known["b", "a"] == paths["b", "a"]


def test_others_take_three_quarters_of_workers_at_most_and_half_of_a_path() -> None:
    world = seen(world_of(8, gamma_bps=4.0), wide(cores=100))
    assert max(n for _, n in world.planned["a"]) == 6
    assert world.paths["a", "b"].gamma_a.value == 2.0  # of 4 b/s, all of which is planned
    assert seen(world_of(1), wide()).planned == {}


@pytest.mark.parametrize(
    ("share", "at", "moved"),
    [(0.0, 5.0, 0.0), (0.0, 25.0, 15.0), (0.5, 55.0, 0.0), (0.5, 90.0, 30.0), (0.5, 30.0, -20.0),
     (1.0, 40.0, -60.0)],
)  # fmt: skip
def test_a_plan_moves_with_its_jobs(share: float, at: float, moved: float) -> None:
    plan = Plan("w", NOW, {"a": ((0.0, 1), (100.0, 0))}, {}, tuple(10.0 * n for n in range(1, 11)))
    assert plan.corrected(share, NOW + at).at == NOW + moved


def fan(planned: tuple[tuple[float, int, int], ...] = ()) -> Problem:
    """Eight jobs of a minute, and two sites of eight workers, the first a little faster."""
    problem = problem_of(
        [(["f"], [f"r{i}"]) for i in range(8)],
        {"f": 1.0, **{f"r{i}": 1.0 for i in range(8)}},
        {"f": [0, 1]},
        [[60.0, 66.0]] * 8,
        [[0.0, 1e-9], [1e-9, 0.0]],
        workers=[8, 8],
    )
    return replace(problem, planned=planned)


def together(first: list[int], second: list[int], problem: Problem) -> Schedule:
    """Both workflows as one, on the same workers."""
    double = problem_of(
        [([f"{w}f"], [f"{w}r{i}"]) for w in "xy" for i in range(8)],
        {f"{w}{n}": 1.0 for w in "xy" for n in ("f", *(f"r{i}" for i in range(8)))},
        {"xf": [0, 1], "yf": [0, 1]},
        [[60.0, 66.0]] * 16,
        [[0.0, 1e-9], [1e-9, 0.0]],
        workers=list(problem.workers),
    )
    return Estimator(double)([*first, *second])


def test_two_workflows_end_sooner_when_the_second_knows_the_plan_of_the_first() -> None:
    alone = map_problem(fan(), ["t"] * 8).assignment
    run = Estimator(fan())(alone)
    plan = plan_of("first", fan(), alone, run, NOW)
    sites = {
        f"place{s}": SiteEstimate(EstimatedValue(8.0, "x"), EstimatedValue(0.0, "x"))
        for s in (0, 1)
    }
    known = seen(World(NOW, sites, {}, {}), plan).planned
    assert known == {"place0": ((0.0, 6), (60.0, 0))}
    second = map_problem(fan(((0.0, 0, -6), (60.0, 0, 6))), ["t"] * 8).assignment
    assert together(alone, alone, fan()).makespan_s == 120.0
    assert together(alone, second, fan()).makespan_s <= 120.0
    assert sum(together(alone, second, fan()).end_s) < sum(together(alone, alone, fan()).end_s)


def test_workers_come_back_when_a_plan_ends() -> None:
    run = Estimator(fan(((0.0, 0, -6), (30.0, 0, 4), (200.0, 0, 2))))
    schedule = run([0] * 8)
    assert sorted(schedule.start_s) == [0.0, 0.0, 30.0, 30.0, 30.0, 30.0, 60.0, 60.0]
    assert schedule.makespan_s == 120.0  # and not when the last workers are given back
    later = Estimator(fan(((30.0, 0, -8), (90.0, 0, 8))))
    assert later([0] * 8).makespan_s == 60.0  # what runs goes on
