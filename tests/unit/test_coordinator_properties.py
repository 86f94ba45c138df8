"""Whatever people, agents, clocks and kill -9 do: no two measurements disturb each other, none is
made twice, and nothing is recorded that was not asked for."""

from __future__ import annotations

import os
import signal
import tempfile
import traceback
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from broker_rig import Clock
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

from monitors.archive.archive import Archive
from monitors.measurements.run_store import MeasuringStore
from monitors.measurements.runs import RunState
from network_provisioner.base.errors import AdonError, BrokerError

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


T0 = 1_000_000.0
ALL = ("mu", "tacc", "iplant", "local")
STRIDE = 5  # of the steps that are tried; odd, for before and after a write take turns
Deed = tuple[float, Callable[[CoordinatorRig], Any]]


def put(name: str, body: dict[str, Any]) -> Callable[[CoordinatorRig], Any]:
    return lambda rig: rig.coordinator.put_task(name, body, ANYBODY)


def delete(rig: CoordinatorRig) -> None:
    try:
        rig.coordinator.delete_task("mine", ANYBODY)
    except BrokerError as error:
        assert error.code == "unknown_task"  # it was, before the process died


def work(rig: CoordinatorRig) -> None:
    rig.coordinator.sweep()
    rig.work(*ALL)


DAY: tuple[Deed, ...] = (  # seconds that pass, and what happens then
    (0, work),
    (20, work),
    (1, put("mine", {**HOST, "from": "local", "every": "20 s"})),
    (15, work),
    (1, put("big", {**TCP, "from": "iplant", "to": "local", "every": "120 s", "for": "30 s"})),
    (40, work),
    (1, put("mine", {**ECHO, "from": "local", "to": "iplant", "every": "40 s"})),
    (60, work),
    (70, work),
    (1, delete),
    (120, work),
    (100, work),
)


def live(folder: Path, done: int = 0) -> dict[str, Any]:
    """The day from its deed number ``done`` on, and what there is at its end."""
    clock = Clock(T0 + sum(after for after, _ in DAY[: done + 1]))
    rig = CoordinatorRig(folder, {"tcp": TCP, "host": HOST}, clock=clock)
    for number, (after, deed) in enumerate(DAY[done:], done):
        if number > done:
            clock.now += after
        (folder / "done").write_text(str(number))
        deed(rig)
    check(rig)
    metrics = ("tcp_throughput", "rtt", "loss", "cpu_use")
    ids_by_metric = {metric: rig.measured(metric) for metric in metrics}
    for run in rig.runs():
        for metric in metrics:
            expected = run.state is RunState.DONE and metric in run.measured
            assert (f"{metric}:{run.id}" in ids_by_metric[metric]) == expected
    rig.close()
    return ids_by_metric


def die_at(number: int, folder: Path) -> int | None:
    """A day in a process of its own, killed at one of its steps; the deed that it died in, None
    where the day has no such step."""
    left = [number]

    def step() -> None:
        left[0] -= 1
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)

    def around(work: Callable[..., Any]) -> Callable[..., Any]:
        def dangerous(*args: Any, **named: Any) -> Any:
            step()
            result = work(*args, **named)
            step()
            return result

        return dangerous

    child = os.fork()
    if child == 0:
        code = 1
        try:
            setattr(MeasuringStore, "write", around(MeasuringStore.write))  # noqa: B010
            setattr(Archive, "record_many", around(Archive.record_many))  # noqa: B010
            live(folder)
            code = 0
        except BaseException:
            traceback.print_exc()
        os._exit(code)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return int((folder / "done").read_text()) if (folder / "done").exists() else 0
    assert os.WEXITSTATUS(status) == 0
    return None


def same_after_death_at(tmp_path: Path, steps: Iterable[int]) -> int:
    """The last step that the day has, of those that the process is killed at."""
    whole = live(_new(tmp_path / "whole"))
    assert len(whole["cpu_use"]) > 20 and whole["tcp_throughput"] and whole["rtt"]
    last = 0
    for number in steps:
        folder = _new(tmp_path / str(number))
        deed = die_at(number, folder)
        if deed is None:
            break
        last = number
        again = live(folder, deed)
        # A run that no agent knew when the process died may be left out, and one that was
        # to move may stay where it was; nothing is measured twice.
        for metric, ids in again.items():
            assert len(ids) == len(set(ids))
            assert abs(len(ids) - len(whole[metric])) <= 2, (number, deed, metric, ids)
    return last


def test_a_day_is_the_same_when_the_broker_dies(tmp_path: Path) -> None:
    assert same_after_death_at(tmp_path, (8, 25)) == 25


@pytest.mark.long
def test_a_day_is_the_same_whenever_the_broker_dies(tmp_path: Path) -> None:
    assert same_after_death_at(tmp_path, count(STRIDE, STRIDE)) > 40


def _new(folder: Path) -> Path:
    folder.mkdir()
    return folder


@pytest.mark.long
def test_a_broker_that_dies_again_and_again(tmp_path: Path) -> None:
    folder = _new(tmp_path / "often")
    whole = live(_new(tmp_path / "whole"))
    for number in range(3):
        die_at(7 + 9 * number, folder)
    ids_by_metric = live(folder)
    assert all(len(ids) == len(set(ids)) for ids in ids_by_metric.values())
    assert len(ids_by_metric["cpu_use"]) >= len(whole["cpu_use"]) - 5
