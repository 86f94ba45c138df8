"""Why jobs are where they are, from the mapping to the archive."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from planner_world import MAPPING as SITES
from planner_world import make_case
from waiting import until

from adon.planner_request import leave_reasons, placement_reasons
from adon.planning import planner as planning
from monitors.workflows.facts.plan import FILE, placement_facts, plan_of, read_plan
from network_provisioner.base.errors import InputError
from site_selector.estimates.estimating import estimate_world
from site_selector.mapping.estimator import Estimator
from site_selector.mapping.placement import (
    Alternative,
    Mapping,
    Move,
    Placement,
    write_placements,
)
from site_selector.mapping.policies import random_sites
from site_selector.problem import build_problem

MAPPING = Mapping(
    "w", "chains", math.inf, {}, (
        Placement("ID1", "t::a:1", "mu", "least of two", (
            Alternative("mu", 1.0, 30.0, 11.0, 42.0), Alternative("tacc", 0.0, math.inf, 1.0,
                                                                  math.inf))),
        Placement("ID2", "t::b:1", "tacc", start_s=10.0, end_s=25.0),
    ), {},
)  # fmt: skip


def test_what_is_written_is_what_is_read(tmp_path: Path) -> None:
    write_placements(tmp_path, MAPPING, 1000.0)
    first, second = placement_facts(read_plan(tmp_path), "u")
    assert (first.id, first.subject, first.value, first.at) == ("placement:u:ID1", "mu", 42.0, 1e3)
    assert first.details["reason"] == "least of two"
    assert first.details["policy"] == "chains"
    assert first.details["alternatives"][1] == {
        "site": "tacc", "seconds": None, "wait_s": 0.0, "compute_s": None, "transfer_s": 1.0
    }  # fmt: skip
    assert (second.subject, second.value) == ("tacc", 15.0)
    json.loads((tmp_path / FILE).read_text())  # no infinities
    assert plan_of(read_plan(tmp_path)) == {}  # it would never end
    write_placements(tmp_path, replace(MAPPING, makespan_s=9.0, portfolio={"random": 12.0}), 1.0)
    plan = {"policy": "chains", "expected_s": 9.0, "portfolio": {"random": 12.0}}
    assert plan_of(read_plan(tmp_path)) == plan


def test_what_was_believed_of_a_job_stands_with_its_source(tmp_path: Path) -> None:
    inputs = {
        "t_q": {"value": 1.0, "source": "schedd"},
        "gamma_c": {"value": 2e6, "source": "archive", "note": "measured at tacc"},
    }
    moves = (Move("a>mu", 1e9, 2e8, 1e9), Move("b>mu", 1.0, 1e8, 1e8))
    chosen = Alternative("mu", 1.0, 30.0, 11.0, 42.0, s_c_bytes=60e6, inputs=inputs, moves=moves)
    beliefs = {
        "paths": {
            "a>mu": {
                "gamma_a": {"value": 2e8, "source": "topology"},
                "first": {"value": 1.5},
                "further": {"value": 0.5},
            }
        }
    }
    placed = (Placement("ID1", "t::a:1", "mu", "", (chosen,)),)
    write_placements(tmp_path, Mapping("w", "chains", 9.0, {}, placed, beliefs), 1000.0)
    (fact,) = placement_facts(read_plan(tmp_path), "u")
    assert fact.details["believed"] == {
        "queue_wait": (1.0, "schedd", 0.0, 0.0),
        "runtime": (30.0, "elsewhere", 0.0, 0.0),
        "a>mu": (2e8, "topology", 1.5, 0.5),
    }


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot write placements"):
        write_placements(tmp_path / "nowhere", MAPPING, 1000.0)


@pytest.mark.parametrize("writable", [True, False])
def test_planning_leaves_it_in_the_submit_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writable: bool
) -> None:
    monkeypatch.setattr(planning.pegasus_plan, "find_planner", lambda: None)
    case = make_case(tmp_path / "case")
    placed = tuple(Placement(job, "t", site, "because") for job, site in SITES.items())
    if not writable:

        def full(*_: object) -> None:
            raise InputError("disk full")

        monkeypatch.setattr(planning, "write_placements", full)
    planned = planning.plan_workflow(
        case.inputs(), case.sources, Mapping("mini", "x", 1.0, {}, placed, {}),
        tmp_path / "submit", "local",
    )  # fmt: skip
    assert planned.dag.exists()
    facts = placement_facts(read_plan(planned.submit_dir), planned.wf_uuid)
    assert {fact.details["job"]: fact.subject for fact in facts} == (SITES if writable else {})


def test_a_process_of_its_own_writes_it(tmp_path: Path) -> None:
    leave_reasons(tmp_path / "nowhere", lambda: MAPPING)
    leave_reasons(tmp_path, lambda: MAPPING)
    until((tmp_path / FILE).exists, "the placements")
    assert len(placement_facts(read_plan(tmp_path), "u")) == 2


def test_pegasus_own_choice_is_weighed_by_the_same_estimates(tmp_path: Path) -> None:
    inputs = make_case(tmp_path / "case").inputs()
    world = estimate_world(inputs, now=1000.0)
    problem = build_problem(inputs, world)
    sites = [allowed[0] for allowed in problem.allowed]
    mapping = placement_reasons(inputs, world, problem, sites, "x")
    estimator = Estimator(problem)
    drawn = [estimator.makespan(random_sites(problem, Random(n))) for n in range(5)]
    assert mapping.portfolio == {"random": sorted(drawn)[2]}
    assert mapping.makespan_s == estimator.makespan(sites)
