"""When the pool is asked what jobs wait for, and what is said of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from condor_plugins.waiting import StuckJob
from examples.demo.stuck import PATIENCE_S, StuckJobs, stuck_words, waits
from examples.testbed.pool import Pool
from monitors.workflows.facts.attempts import Attempt, Outcome
from monitors.workflows.planned.submit_dir import JobKind, PlannedJob

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
        self.asked.append(command[3:5])
        return json.dumps([{"job": s.job, "why": s.why, "since": s.since} for s in self.stuck])


def world(*stuck: StuckJob) -> tuple[Answers, StuckJobs, list[str]]:
    pool, said = Answers(*stuck), list[str]()
    return pool, StuckJobs(cast(Pool, cast(Any, pool)), 7, said.append), said


@pytest.mark.parametrize(
    ("outcome", "since", "told"),
    [
        (Outcome.QUEUED, PATIENCE_S, True),
        (Outcome.QUEUED, PATIENCE_S - 1, False),
        (Outcome.HELD, 0.0, True),
        (Outcome.RUNNING, 999.0, False),
        (Outcome.DONE, 999.0, False),
    ],
)
def test_who_makes_it_worth_asking(outcome: Outcome, since: float, told: bool) -> None:
    assert waits(attempt(outcome, since), NOW) is told


def test_the_pool_is_not_asked_while_nothing_waits_and_not_again_at_once() -> None:
    pool, stuck, said = world(StuckJob("a", WHY, 1.0))
    stuck.look([attempt(Outcome.RUNNING)], NOW)
    assert pool.asked == []
    for later in (0.0, 1.0, 14.0):
        stuck.look([attempt()], NOW + later)
    assert pool.asked == [["--dag", "7"]]
    assert said == [f"job a {WHY}"]


def test_it_is_said_again_after_a_minute_and_forgotten_when_it_is_over() -> None:
    pool, stuck, said = world(StuckJob("a", WHY, 1.0))
    for later in range(0, 100, 10):
        stuck.look([attempt()], NOW + later)
    assert len(said) == 2 and len(stuck.found) == 1
    stuck.look([], NOW + 200)
    assert stuck.found == [] and len(pool.asked) == 5


def test_jobs_that_wait_for_the_same_are_told_together() -> None:
    found = [StuckJob(f"j{n}", WHY, 1.0) for n in range(5)] + [StuckJob("x", "is on hold: y", 2.0)]
    assert stuck_words(found) == [
        f"5 jobs wait, j0, j1, j2 and 2 more: each {WHY}",
        "job x is on hold: y",
    ]
    assert stuck_words(found[:2]) == [f"2 jobs wait, j0, j1: each {WHY}"]
