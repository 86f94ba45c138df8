"""How a demo's run goes, is cut short, and ends, by HTCondor's word and DAGMan's log."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from monitor_files import Submitted

from condor_plugins.waiting import StuckJob
from examples.demo.demo_run import DemoRun, Ended, Interrupted, interruptible
from examples.demo.expected_gain import best_effort_only
from examples.demo.gather import ending
from examples.demo.running import (
    PATIENCE_S,
    StuckJobs,
    _Following,
    behind,
    end_state,
    stuck_words,
    waits,
)
from examples.montage.scenario import SCENARIO as MONTAGE
from examples.scenario import Scenario
from examples.soykb.scenario import SCENARIO as SOYKB
from examples.testbed.dagman import DagEnd
from examples.testbed.pool import Pool
from monitors.archive.archive import Archive
from monitors.jobs.jobs import Attempt, Outcome
from monitors.workflows.logs.status import NOT_STARTED, Status, WorkflowState
from monitors.workflows.planned.submit_dir import JobKind, PlannedJob
from network_provisioner.base.errors import AdonError
from network_provisioner.topology.data import topology_from_dict


@pytest.mark.parametrize(
    ("trouble", "state", "words"),
    [
        (None, "success", ""),
        (AdonError("the broker ended"), "broken off", "the broker ended, while sites were chosen"),
        (
            OSError(28, "No space left on device", "/d/x"),
            "broken off",
            "/d/x: No space left on device, while sites were chosen",
        ),
        (
            Interrupted(signal.SIGTERM),
            "interrupted",
            "interrupted by SIGTERM, while sites were chosen",
        ),
    ],
)
def test_what_stopped_a_run(trouble: AdonError | None, state: str, words: str) -> None:
    run = DemoRun(step="sites were chosen", end=Ended("success", 1.0, 2.0), trouble=trouble)
    assert (ending(run), run.stopped) == (state, words)


Handler = Callable[[signal.Signals], object]


@pytest.fixture
def handled() -> Iterator[Handler]:
    """Has a signal end the process, as it does where nohup or a shell in the background did not
    have it ignored, until the test is over; the function returns its handler."""
    before: dict[signal.Signals, Any] = {}

    def handle(number: signal.Signals) -> object:
        before[number] = signal.signal(number, signal.SIG_DFL)
        return signal.getsignal(number)

    yield handle
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_can_be_told_of(number: signal.Signals, handled: Handler) -> None:
    before = handled(number)
    with pytest.raises(Interrupted, match=number.name) as caught, interruptible():
        os.kill(os.getpid(), number)
        signal.pause()
    assert caught.value.number == number
    assert signal.getsignal(number) == before


STOPPED_TWICE = """
import os, signal
from examples.demo.demo_run import Interrupted, interruptible
signal.signal(signal.SIGINT, signal.SIG_DFL)
signal.signal(signal.SIGTERM, signal.SIG_DFL)
with interruptible():
    try:
        os.kill(os.getpid(), signal.SIGINT)
        signal.pause()
    except Interrupted:
        os.kill(os.getpid(), signal.SIGTERM)
        signal.pause()
"""
IGNORED = """
import os, signal
from examples.demo.demo_run import interruptible
signal.signal(signal.SIGHUP, signal.SIG_IGN)
with interruptible():
    os.kill(os.getpid(), signal.SIGHUP)
    print("goes on")
"""


def run(code: str) -> subprocess.CompletedProcess[str]:
    root = Path(__file__).parents[2]
    words = [sys.executable, "-c", code]
    return subprocess.run(words, cwd=root, capture_output=True, text=True, check=False)


def test_the_second_signal_ends_the_process() -> None:
    assert run(STOPPED_TWICE).returncode == -signal.SIGTERM


def test_a_signal_that_was_ignored_stays_so() -> None:
    done = run(IGNORED)
    assert (done.returncode, done.stdout) == (0, "goes on\n")


@pytest.mark.parametrize("scenario", [SOYKB, MONTAGE], ids=["soykb", "montage"])
def test_the_network_makespan_without_adon_has_the_links_of_best_effort(scenario: Scenario) -> None:
    whole = topology_from_dict(scenario.layout.topology())
    left = best_effort_only(whole)
    assert left.sites == whole.sites
    assert {link.label for link in left.links} <= {link.label for link in whole.links}
    for a in left.sites:
        assert all(left.candidate_paths(a, b) for b in left.sites if b != a)


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
