"""Which jobs a DAG will have ready when."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitors.workflows.planned.dag import Node, PlannedDag
from monitors.workflows.planned.forecast import (
    DagState,
    RunningJob,
    estimated_run_s,
    expected_ends,
    forecast,
)
from monitors.workflows.planned.submit_dir import JobKind

NOW = 1_000_000.0


def dag(**parents: str) -> PlannedDag:
    nodes = {name: Node(name, parents=tuple(above.split())) for name, above in parents.items()}
    return PlannedDag("w", Path(), nodes)


def ready(state: DagState, free: list[float], boot_s: float = 300.0) -> dict[str, float]:
    jobs = forecast([state], free, boot_s, NOW, NOW + 1e5)
    return {job.name: round(job.ready_at - NOW, 3) for job in jobs}


CHAIN = dag(a="", b="a", c="b")
RUN_S = {"a": 100.0, "b": 50.0, "c": 10.0}


def test_a_chain_on_a_free_core() -> None:
    state = DagState(CHAIN, RUN_S, queued={"a": NOW - 7})
    assert ready(state, [NOW]) == {"a": -7, "b": 103, "c": 156}


def test_where_there_is_no_core_one_comes_after_a_boot() -> None:
    state = DagState(CHAIN, RUN_S, queued={"a": NOW})
    assert ready(state, []) == {"a": 0, "b": 403, "c": 456}


def test_a_job_that_runs_and_one_that_is_done() -> None:
    state = DagState(CHAIN, RUN_S, running={"b": NOW + 20}, done={"a"})
    assert ready(state, []) == {"c": 23}


def test_what_never_will_be_takes_its_children_along() -> None:
    assert ready(DagState(CHAIN, RUN_S, never={"a"}), [NOW]) == {}


def test_what_the_planner_added_takes_no_worker() -> None:
    stage = Node("s", JobKind.STAGE_IN)
    nodes = {"s": stage, "a": Node("a", parents=("s",))}
    state = DagState(PlannedDag("w", Path(), nodes), {"s": 40.0, "a": 1.0}, queued={"s": NOW})
    assert ready(state, []) == {"a": 43}


def test_the_last_of_many_ends_later_than_each_is_expected_to() -> None:
    many = {f"p{i}": "" for i in range(64)}
    state = DagState(
        dag(**many, end=" ".join(many)),
        dict.fromkeys(many, 100.0) | {"end": 1.0},
        queued=dict.fromkeys(many, NOW),
    )
    (end,) = (j for j in forecast([state], [NOW] * 64, 300, NOW, NOW + 1e4) if j.name == "end")
    assert NOW + 150 < end.ready_at < NOW + 180
    assert end.spread_s < 30


def test_the_forecast_ends_where_it_is_to_end() -> None:
    state = DagState(CHAIN, RUN_S, queued={"a": NOW})
    assert [j.name for j in forecast([state], [NOW], 300, NOW, NOW + 110)] == ["a", "b"]


def test_a_single_job_takes_the_median_and_many_are_spread() -> None:
    end_by_job = expected_ends({"a": RunningJob("x", 100.0, NOW)}, NOW)
    assert end_by_job["a"] - NOW == pytest.approx(96, abs=1)
    ends = expected_ends({i: RunningJob("x", 100.0, NOW) for i in range(200)}, NOW).values()
    assert sum(end - NOW for end in ends) / 200 == pytest.approx(100, rel=0.02)
    assert min(ends) - NOW < 60
    assert max(ends) - NOW > 180


@given(st.floats(0.1, 1e5), st.floats(0, 1e6))
def test_no_job_ends_in_the_past(run_s: float, ran_s: float) -> None:
    assert expected_ends({0: RunningJob("x", run_s, NOW - ran_s)}, NOW)[0] >= NOW


def test_what_is_believed_follows_what_is_seen() -> None:
    assert estimated_run_s(10, 3, 0, 0.0, []) == 10
    assert estimated_run_s(10, 3, 7, 700.0, []) == 73
    # Jobs that have run longer than is believed tell before they end.
    assert estimated_run_s(10, 3, 0, 0.0, [100.0] * 7) > 80
    assert estimated_run_s(10, 3, 0, 0.0, [5.0] * 7) == 10
