"""kill -9 of the broker's process before and after every write: whatever the moment, the next one
goes on so that in the end the same was measured, once."""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Callable, Iterable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from broker_rig import Clock
from coordinator_rig import ANYBODY, ECHO, HOST, TCP, CoordinatorRig, check

from monitors.archive.archive import Archive
from monitors.measurements.run_store import MeasuringStore
from monitors.measurements.runs import RunState
from network_provisioner.base.errors import BrokerError

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
