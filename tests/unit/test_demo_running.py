"""How a run ended, by HTCondor's word and DAGMan's log, and what is shown and asked until then."""

from __future__ import annotations

import errno
import json
import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from monitor_files import Submitted

from condor_plugins.waiting import StuckJob
from examples.demo.demo_run import Interrupted
from examples.demo.running import (
    PATIENCE_S,
    StuckJobs,
    _Following,
    behind,
    end_state,
    stuck_words,
    waits,
)
from examples.testbed.dagman import DagEnd
from examples.testbed.pool import Pool
from monitors.archive.archive import Archive
from monitors.jobs.jobs import Attempt, Outcome
from monitors.workflows.logs.status import NOT_STARTED, Status, WorkflowState
from monitors.workflows.planned.submit_dir import JobKind, PlannedJob
from network_provisioner.base.errors import AdonError


@pytest.mark.parametrize(
    ("end", "last", "state"),
    [
        ("success", WorkflowState.DONE, "success"),
        ("success", WorkflowState.FAILED, "failed"),  # pegasus-dagman exits with 0
        ("success", WorkflowState.REMOVED, "removed"),
        ("success", WorkflowState.RUNNING, "failed"),  # DAGMan never wrote its end
        ("success", None, "failed"),
        ("failed", WorkflowState.FAILED, "failed"),
        ("held", WorkflowState.RUNNING, "held"),
        ("removed", WorkflowState.REMOVED, "removed"),
    ],
)
def test_a_success_stands_in_both(end: str, last: WorkflowState | None, state: str) -> None:
    status = None if last is None else replace(NOT_STARTED, state=last)
    assert end_state(DagEnd(end), status) == state


def test_the_last_change_is_shown_although_it_came_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing may come after it for as long as a job waits in vain."""
    said: list[str] = []
    planned = Submitted(tmp_path / "run")
    with Archive(":memory:") as archive:
        following = _Following(planned.path, archive, said.append)
        for done in (0, 1):
            following._show(following._follower.workflows[0].dir, status(done))
        following.show_rest()
        assert len(said) == 1 and "0 of 2 done" in said[0]
        monkeypatch.setattr("examples.demo.running._SHOW_EVERY_S", 0.0)
        following.show_rest()
        following.show_rest()
    assert len(said) == 2 and "1 of 2 done" in said[1]


def status(done: int) -> Status:
    return replace(NOT_STARTED, total=2, done=done, unready=2 - done)


def test_behind_what_ended_may_be_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended, stopped = AdonError("HTCondor at hub ended"), Interrupted(signal.SIGTERM)
    assert behind(ended, tmp_path) is ended

    def full(_path: Path, _data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    said = f"{tmp_path}: No space left on device; HTCondor at hub ended"
    assert str(behind(ended, tmp_path)) == said
    assert behind(stopped, tmp_path) is stopped
    assert list(tmp_path.iterdir()) == []


NOW = 1_700_000_000.0
WHY = "matches no slot: the pool has none"


def attempt(outcome: Outcome = Outcome.QUEUED, since: float = PATIENCE_S) -> Attempt:
    job = PlannedJob("a", JobKind.COMPUTE)
    return Attempt(job, 1, 0, 0, submit=NOW - since, outcome=outcome)


class Answers:
    """A pool that tells of ``stuck`` jobs."""

    def __init__(self, *stuck: StuckJob) -> None:
        self.stuck = stuck
        self.asked: list[Sequence[str]] = []

    def run(self, command: Sequence[str], *, cwd: Path) -> str:
        self.asked.append(command[3:7])
        return json.dumps([{"job": s.job, "why": s.why, "since": s.since} for s in self.stuck])


def world(*stuck: StuckJob) -> tuple[Answers, StuckJobs, list[str]]:
    pool, said = Answers(*stuck), list[str]()
    return pool, StuckJobs(cast(Pool, cast(Any, pool)), 7, said.append), said


@pytest.mark.parametrize(
    ("outcome", "since", "expected"),
    [
        (Outcome.QUEUED, PATIENCE_S, True),
        (Outcome.QUEUED, PATIENCE_S - 1, False),
        (Outcome.HELD, 0.0, True),
        (Outcome.RUNNING, 999.0, False),
        (Outcome.DONE, 999.0, False),
    ],
)
def test_who_makes_it_worth_asking(outcome: Outcome, since: float, expected: bool) -> None:
    assert waits(attempt(outcome, since), NOW) is expected


def test_the_pool_is_not_asked_while_nothing_waits_and_not_again_at_once() -> None:
    pool, stuck, said = world(StuckJob("a", WHY, 1.0))
    stuck.observe([attempt(Outcome.RUNNING)], NOW)
    assert pool.asked == []
    for later in (0.0, 1.0, 14.0):
        stuck.observe([attempt()], NOW + later)
    assert pool.asked == [["pool", "waiting", "--dag", "7"]]
    assert said == [f"job a {WHY}"]


def test_it_is_said_again_after_a_minute_and_forgotten_when_it_is_over() -> None:
    pool, stuck, said = world(StuckJob("a", WHY, 1.0))
    for later in range(0, 100, 10):
        stuck.observe([attempt()], NOW + later)
    assert len(said) == 2 and len(stuck.found) == 1
    stuck.observe([], NOW + 200)
    assert stuck.found == [] and len(pool.asked) == 5


def test_jobs_that_wait_for_the_same_are_told_together() -> None:
    jobs = [StuckJob(f"j{n}", WHY, 1.0) for n in range(5)] + [StuckJob("x", "is on hold: y", 2.0)]
    assert stuck_words(jobs) == [
        f"5 jobs wait, j0, j1, j2 and 2 more: each {WHY}",
        "job x is on hold: y",
    ]
    assert stuck_words(jobs[:2]) == [f"2 jobs wait, j0, j1: each {WHY}"]
