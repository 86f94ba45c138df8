"""The order in which jobs that wait start: what is handed over, and what is reckoned with."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from planner_world import make_case
from problem_world import problem_of
from site_world import inputs_of, job

from site_selector.catalogs.fields import given_priority, own_priority
from site_selector.catalogs.sources import Sources
from site_selector.estimates.estimating import estimate_world
from site_selector.inputs import read_inputs
from site_selector.mapping.estimator import MOST_PRIORITY, Estimator, start_priorities
from site_selector.mapping.mapper import map_workflow
from site_selector.problem import Problem, build_problem


def three_jobs(**changed: object) -> Problem:
    """100, 100 and 200 s on two slots."""
    problem = problem_of([([], [])] * 3, {}, {}, [[100.0], [100.0], [200.0]], [[0.0]], workers=[2])
    return replace(problem, **changed)  # type: ignore[arg-type]


def test_the_long_one_starts_first_where_its_priority_is_handed_over() -> None:
    by_rank = Estimator(three_jobs())
    assert by_rank.makespan([0, 0, 0]) == 200
    assert by_rank.priority.argmax() == 2
    as_pegasus = Estimator(three_jobs(by_level=True))
    assert as_pegasus.makespan([0, 0, 0]) == 300
    assert as_pegasus.priority.tolist() == [20, 20, 20]


def test_the_users_own_priority_is_reckoned_with() -> None:
    run = Estimator(three_jobs(own_priority=(None, None, -5)))
    assert run([0, 0, 0]).start_s == [0, 0, 100]
    # Of equals, those that came first.
    assert Estimator(three_jobs(own_priority=(7, 7, 7)))([0, 0, 0]).start_s == [0, 0, 100]


def test_of_equals_those_start_first_that_came_first() -> None:
    # The first of both waits for a short job of the other site.
    jobs: list[tuple[list[str], list[str]]] = [([], ["x"]), (["x"], []), ([], []), ([], [])]
    problem = problem_of(jobs, {"x": 0.0}, {}, [[1.0, 1.0], [50.0] * 2, [9.0] * 2, [9.0] * 2],
                         np.zeros((2, 2)).tolist(), workers=[1, 1])  # fmt: skip
    same = replace(problem, own_priority=(0, 0, 0, 0))
    assert Estimator(same)([1, 0, 0, 0]).start_s == [0, 18, 0, 9]


@pytest.mark.parametrize("jobs", [1, 2, 9, 1000, 5000])
def test_priorities_follow_the_rank_about_pegasus_own_and_below_stage_jobs(jobs: int) -> None:
    problem = problem_of([([], [])] * jobs, {}, {}, [[1.0]] * jobs, [[0.0]])
    rank = np.random.default_rng(jobs).permutation(jobs).astype(float)
    priorities = start_priorities(problem, rank)
    in_order = priorities[np.argsort(-rank)]
    assert (np.diff(in_order) <= (0 if jobs > 1200 else -1)).all()
    assert priorities.max() <= MOST_PRIORITY < 700 and abs(float(priorities.mean()) - 20) <= 10


@pytest.mark.parametrize(
    ("profiles", "given", "own"),
    [
        ({}, None, None),
        ({"condor": {"priority": "-3"}}, "-3", -3),
        ({"condor": {"priority": " 3 "}}, " 3 ", 0),
        ({"condor": {"Priority": "4"}, "dagman": {"PRIORITY": "9"}}, "4", 4),
        ({"dagman": {"PRIORITY": "9"}}, "9", 9),
        ({"condor": {"priority": "1.5"}}, "1.5", 0),
        ({"condor": {"priority": "2147483648"}}, "2147483648", 0),
        ({"condor": {"priority": "9" * 5000}}, "9" * 5000, 0),
        ({"condor": {"priority": "10 * 2"}}, "10 * 2", 0),
    ],
)
def test_a_users_priority(
    profiles: dict[str, dict[str, str]], given: str | None, own: int | None
) -> None:
    assert (given_priority(profiles), own_priority(profiles)) == (given, own)


def test_a_mapping_hands_over_what_it_reckoned_with_the_users_as_it_is() -> None:
    jobs = [job("a", "short"), job("b", "short", condor={"priority": "5"}), job("c", "long")]
    where: dict[str, list[str]] = {"short": ["mu"], "long": ["mu"]}
    inputs = inputs_of(jobs, {"mu": {"adon.workers": 1}}, {}, where, {"short": 10, "long": 20})
    priorities = map_workflow(inputs, estimate_world(inputs, now=0.0)).priorities
    assert priorities["b"] == 5 and priorities["c"] > priorities["a"]
    started = {
        p.job: p.start_s for p in map_workflow(inputs, estimate_world(inputs, now=0.0)).placements
    }
    assert started == {"c": 0, "a": 20, "b": 30}
    as_pegasus = replace(inputs, by_level=True)
    assert map_workflow(as_pegasus, estimate_world(inputs, now=0.0)).priorities == {}


def test_a_priority_in_a_catalog_is_the_users_too() -> None:
    jobs = [job("a", "short"), job("b", "own"), job("c", "long")]
    where: dict[str, list[str]] = {"short": ["mu"], "own": ["mu"], "long": ["mu"]}
    inputs = inputs_of(jobs, {"mu": {"adon.workers": 1}}, {}, where, dict.fromkeys(where, 10.0))
    programs, mu = inputs.transformations, inputs.sites["mu"]
    first = {"dagman": {"PRIORITY": "500"}}
    changed_inputs = replace(
        inputs,
        transformations={**programs, "t::own:1.0": replace(programs["t::own:1.0"], profiles=first)},
    )
    mapping = map_workflow(changed_inputs, estimate_world(changed_inputs, now=0.0))
    assert mapping.priorities["b"] == 500 > mapping.priorities["c"]
    assert next(p for p in mapping.placements if p.job == "b").start_s == 0
    changed_inputs = replace(
        inputs, sites={**inputs.sites, "mu": replace(mu, profiles={**mu.profiles, **first})}
    )
    assert set(
        map_workflow(changed_inputs, estimate_world(changed_inputs, now=0.0)).priorities.values()
    ) == {500}


@pytest.mark.parametrize(
    ("program", "site", "job_says", "properties", "expected"),
    [
        ("condor 80", "condor 70", "condor 11", "condor 50", 80),
        ("", "condor 70", "condor 11", "condor 50", 70),
        ("", "", "condor 11", "condor 50", 11),
        ("", "", "", "condor 50", 50),
        # HTCondor looks at DAGMan's only where there is none in the submit file.
        ("dagman 81", "", "", "condor 50", 50),
        ("dagman 81", "", "dagman 12", "dagman 60", 81),
        ("", "", "", "dagman 60", 60),
        ("", "", "condor 1.5", "condor 50", 0),
    ],
)
def test_of_several_priorities_pegasus_takes_the_programs_first(
    program: str, site: str, job_says: str, properties: str, expected: int
) -> None:
    def profiles(text: str) -> dict[str, dict[str, str]]:
        return {text.split(maxsplit=1)[0]: {"priority": text.split()[1]}} if text else {}

    inputs = inputs_of([job("a", "own", **profiles(job_says))], {"mu": {}}, {}, {"own": ["mu"]})
    mu, own = inputs.sites["mu"], inputs.transformations["t::own:1.0"]
    inputs = replace(
        inputs,
        sites={**inputs.sites, "mu": replace(mu, profiles={**mu.profiles, **profiles(site)})},
        transformations={"t::own:1.0": replace(own, profiles=profiles(program))},
        for_all_jobs=profiles(properties),
    )
    assert map_workflow(inputs, estimate_world(inputs, now=0.0)).priorities == {"a": expected}


def test_dagmans_priority_alone_counts_where_it_can_be_handed_over_to_htcondor() -> None:
    jobs = [job("a", "x", dagman={"PRIORITY": "9"}), job("b", "x", condor={"priority": "8"})]
    inputs = inputs_of(jobs, {"mu": {}}, {}, {"x": ["mu"]})
    world = estimate_world(inputs, now=0.0)
    assert build_problem(inputs, world).own_priority == (9, 8)
    assert build_problem(replace(inputs, by_level=True), world).own_priority == (None, 8)


def test_properties_give_all_jobs_a_priority(tmp_path: Path) -> None:
    case = make_case(tmp_path)
    conf = tmp_path / "pegasus.properties"
    conf.write_text("condor.PRIORITY = 50\ndagman.retry = 2\ndagman.priority = 60\n")
    profiles = read_inputs(Sources(case.sources.workflow, conf=conf)).for_all_jobs
    assert profiles == {"condor": {"priority": "50"}, "dagman": {"priority": "60"}}


def test_what_is_expected_is_the_median_of_worlds_with_its_range() -> None:
    inputs = inputs_of(
        [job(f"j{i}", "a") for i in range(4)], {"mu": {"adon.workers": 2}}, {}, {"a": ["mu"]},
        {"a": 100.0},
    )  # fmt: skip
    mapping = map_workflow(inputs, estimate_world(inputs, now=0.0))
    assert mapping.forecast is not None
    assert mapping.forecast.low_s < mapping.expected_s < mapping.forecast.high_s
    assert mapping.makespan_s == 200 and mapping.expected_s == mapping.forecast.median_s
    assert mapping == map_workflow(inputs, estimate_world(inputs, now=0.0))
