"""Whatever people, agents, clocks and kill -9 do: no two measurements disturb each other, none is
made twice, and nothing is recorded that was not asked for."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from coordinator_rig import (
    ANYBODY,
    ECHO,
    HOST,
    TCP,
    CoordinatorRig,
    check,
    result_of,
    within_agreement,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from monitors.measurements.runs import RunState
from network_provisioner.base.errors import AdonError

NAMES = ("mu", "tacc", "iplant", "local")
BODIES: tuple[dict[str, Any], ...] = (
    {**TCP, "every": "60 s", "for": "7 s"},
    {**TCP, "from": "iplant", "to": "local", "every": "120 s", "within": "30 s"},
    {**TCP, "to": "iplant", "every": "90 s", "for": "20 s"},
    {**ECHO, "every": "20 s", "for": "2 s"},
    {**HOST, "every": "15 s"},
)
AGREEMENT = {"domains": {"wide": {"links": ["s1-r1"], "at_once": 1, "most": "25 Mb/s"}}}
step = st.one_of(
    st.tuples(st.just("pass"), st.integers(1, 200)),
    st.tuples(st.just("jump"), st.sampled_from([-4000, -100, 100, 1000, 9000])),
    st.tuples(st.just("put"), st.sampled_from("abcd"), st.sampled_from(BODIES)),
    st.tuples(st.just("delete"), st.sampled_from("abcd")),
    st.tuples(st.just("run"), st.sampled_from("abcd"), st.integers(10, 3000)),
    st.tuples(st.just("once"), st.sampled_from(BODIES), st.integers(10, 3000)),
    st.tuples(st.just("work"), st.sets(st.sampled_from(NAMES))),
    st.tuples(st.just("kill")),
)


@settings(max_examples=12)
@given(st.lists(step, max_size=12))
def test_whatever_happens(steps: list[tuple[Any, ...]]) -> None:
    _live(steps)


@pytest.mark.long
@settings(max_examples=200)
@given(st.lists(step, max_size=25))
def test_whatever_happens_for_long(steps: list[tuple[Any, ...]]) -> None:
    _live(steps)


def _live(steps: list[tuple[Any, ...]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        rig = CoordinatorRig(Path(folder), {"fixed": BODIES[1]}, agreement=AGREEMENT)
        try:
            for what, *given in steps:
                rig = _done(rig, what, given)
                check(rig)
            _only_what_was_asked_for(rig)
        finally:
            rig.close()


def _done(rig: CoordinatorRig, what: str, given: list[Any]) -> CoordinatorRig:
    if what == "pass":
        rig.let_pass(given[0], 7.0)
    elif what == "jump":
        if given[0] < 0:  # what was measured then is of another time
            rig.before = {run.id for run in rig.runs() if run.state is not RunState.PLANNED}
        rig.clock.now += given[0]
        rig.coordinator.sweep()
    elif what == "work":
        rig.work(*sorted(given[0]))
    elif what == "kill":
        later = rig.restarted(agreement=AGREEMENT)
        later.before = rig.before
        return later
    else:
        try:
            if what == "put":
                rig.coordinator.put_task(given[0], given[1], ANYBODY)
            elif what == "delete":
                rig.coordinator.delete_task(given[0], ANYBODY)
            elif what == "run":
                rig.coordinator.run_task(given[0], ANYBODY, given[1] * 1000)
            else:
                body = {k: v for k, v in given[0].items() if k not in ("every", "within")}
                rig.coordinator.run_once(body, ANYBODY, given[1] * 1000)
        except AdonError:
            pass  # there is no room, or no such task, or an agent is away
    return rig


FULL: dict[str, Any] = {
    "tcp": {**TCP, "every": "10 min", "for": "5 min"},
    "far": {**TCP, "from": "iplant", "to": "local", "every": "5 min", "for": "50 s"},
    "echo": {**ECHO, "every": "10 min", "for": "100 s", "within": "9 min"},
    "host": {**HOST, "every": "5 min"},
}
actions = st.one_of(
    st.tuples(st.just("pass"), st.integers(1, 900)),
    st.tuples(st.just("run"), st.sampled_from(sorted(FULL)), st.integers(60, 3600)),
    st.tuples(st.just("once"), st.sampled_from(BODIES), st.integers(60, 3600)),
    st.tuples(st.just("work"), st.sets(st.sampled_from(NAMES))),
    st.tuples(st.just("kill")),
)


@settings(max_examples=8)
@given(st.lists(actions, max_size=14))
def test_no_run_of_others_is_lost_or_late_for_a_run_on_demand(steps: list[tuple[Any, ...]]) -> None:
    _nobody_is_lost_or_late(steps)


@pytest.mark.long
@settings(max_examples=200)
@given(st.lists(actions, max_size=14))
def test_no_run_of_others_is_ever_lost_or_late(steps: list[tuple[Any, ...]]) -> None:
    _nobody_is_lost_or_late(steps)


def _nobody_is_lost_or_late(steps: list[tuple[Any, ...]]) -> None:
    """More than 80 % of the time of two hosts is taken; every release has its run, in its window,
    and what an agent was told stays."""
    with tempfile.TemporaryDirectory() as folder:
        rig = CoordinatorRig(Path(folder), FULL, agreement=AGREEMENT)
        try:
            begun, assigned_ms = rig.clock.now, dict[str, int]()
            for what, *given in steps:
                rig.all_present()
                rig = _done(rig, what, given)
                known = {r.id: r for r in rig.runs()}
                assert all(known[key].at_ms == at for key, at in assigned_ms.items())
                assert all(known[key].state is not RunState.DROPPED for key in assigned_ms)
                assigned_ms |= {
                    r.id: r.at_ms for r in known.values() if any(p.told for p in r.parts)
                }
                check(rig)
                within_agreement(
                    rig, [r for r in known.values() if r.state is not RunState.DROPPED]
                )
            rig.let_pass(1800, 20)
            check(rig)
            runs = [r for r in rig.runs() if not r.demanded and r.state is not RunState.DROPPED]
            for task in rig.registry.tasks():
                made = {run.release_ms: run for run in runs if run.task == task.name}
                first = -(-int(begun * 1000) // task.period_ms) * task.period_ms
                for release in range(first, int(rig.clock.now * 1000), task.period_ms):
                    run = made[release]
                    assert release <= run.at_ms <= run.end_ms <= release + task.deadline_ms
        finally:
            rig.close()


def _only_what_was_asked_for(rig: CoordinatorRig) -> None:
    runs = {run.id: run for run in rig.runs()}
    for metric in ("tcp_throughput", "rtt", "loss", "cpu_use"):
        for measurement in rig.archive.query(metric):
            run = runs[measurement.id.partition(":")[2]]
            assert run.state is RunState.DONE and metric in run.measured
    for run in runs.values():
        for metric in run.measured:
            assert f"{metric}:{run.id}" in rig.measured(metric)


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CoordinatorRig]:
    """Eight minutes in which agents were told what to do, and nothing came back yet."""
    rig = CoordinatorRig(tmp_path_factory.mktemp("coordinator"), {"tcp": {**TCP, "every": "11 s"}})
    for _ in range(2):
        rig.all_present()
        rig.let_pass(240, 60)
    yield rig
    rig.close()


@given(
    st.sampled_from(["mu", "tacc", "iplant"]),
    st.dictionaries(
        st.sampled_from(["assignment", "task", "started", "ended", "measurements", "error", "x"]),
        st.one_of(st.none(), st.integers(), st.floats(), st.text(max_size=20), st.lists(st.none())),
    ),
    st.dictionaries(
        st.sampled_from(
            ["id", "metric", "subject", "value", "unit", "at", "source", "workflow", "details"]
        ),
        st.one_of(
            st.none(), st.integers(), st.floats(), st.text(max_size=9),
            st.dictionaries(st.text(max_size=3), st.floats(), max_size=2),
        ),
        max_size=3,
    ),
)  # fmt: skip
@settings(max_examples=60)
def test_results_of_any_shape_record_nothing_else(
    measured: CoordinatorRig, agent: str, spoilt: dict[str, Any], changed: dict[str, Any]
) -> None:
    rig = measured
    now_ms = rig.clock.now * 1000
    run = next(r for r in rig.runs() if r.state is not RunState.DONE and r.end_ms < now_ms)
    result = result_of(run, "mu")
    result["measurements"] = [{**result["measurements"][0], **changed}]
    before = rig.measured("tcp_throughput")
    accepted, refused = rig.coordinator.results(agent, [{**result, **spoilt}])
    assert len(accepted) + len(refused) == 1
    assert all(words.isprintable() and "\n" not in words for words in refused.values())
    after = [key for key in rig.measured("tcp_throughput") if key not in before]
    assert after in ([], [f"tcp_throughput:{run.id}"])
    if after:
        assert agent == "mu"
        (measurement,) = [m for m in rig.archive.query("tcp_throughput") if m.id == after[0]]
        assert (measurement.subject, measurement.source, measurement.workflow) == (
            "mu>tacc",
            "agent:mu",
            "",
        )
