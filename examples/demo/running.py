"""A planned workflow in the pool: start it, follow it into the archive, say how it ended."""

from __future__ import annotations

import contextlib
import json
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Self, TypeVar

from adon.service.poolsize import PoolSize
from condor_plugins.pool.sitepool import SitePool
from condor_plugins.waiting import StuckJob
from examples.demo.demo_run import Ended
from examples.demo.steps import ROOT, Say, asked_pool
from examples.testbed import dagman
from examples.testbed.dagman import DagEnd
from examples.testbed.pool import Pool
from monitors.archive.archive import Archive
from monitors.archive.outbox import Outbox
from monitors.jobs.jobs import Attempt, Outcome
from monitors.workflows.follower import Follower
from monitors.workflows.logs.status import Status, WorkflowState, status_text
from monitors.workflows.planned.submit_dir import SubmitDir
from network_provisioner.base.errors import AdonError
from pegasus_hooks import pegasus_plan
from pegasus_hooks.planner.model import PlannedWorkflow

STOPPED = "stopped"
"""State of a workflow that took longer than it was given."""
PATIENCE_S = 20.0
_LOOK_EVERY_S = 15.0
_SAY_AGAIN_S = 60.0
_MOST_NAMES = 3
_ANSWER_S = 10.0
_LOOK_S = 0.1
_LAST_LINES_S = 10.0
_SHOW_EVERY_S = 2.0
_CHECK_EVERY_S = 2.0
_ROOM_BYTES = 1 << 16  # of one write of HTCondor's logs, generously
_SCARCE_BYTES = 1 << 24  # what jobs release of a full disk when HTCondor ends, generously
_Error = TypeVar("_Error", bound=BaseException)


def check_room(folder: Path, room_bytes: int = _ROOM_BYTES) -> None:
    """Raise OSError if ``room_bytes`` cannot be written any more: HTCondor waits for room for
    ever.

    Tried and not asked, since quotas and the part that is kept for root make the answer wrong.
    """
    probe = folder / "adon-room"
    try:
        probe.write_bytes(bytes(room_bytes))
    finally:
        probe.unlink(missing_ok=True)


def behind(error: _Error, folder: Path) -> _Error | AdonError:
    """An error of the run in ``folder``, with the full disk before it where the disk is full:
    daemons then end in any order, and tell why in logs that have no room for it."""
    if isinstance(error, AdonError):
        try:
            check_room(folder, _SCARCE_BYTES)
        except OSError as full:
            return AdonError(f"{folder}: {full.strerror}; {error}")
    return error


def start(planned: PlannedWorkflow, pool: Pool) -> int:
    """Start it as the user who planned it is used to; the cluster of its DAGMan. Raises
    AdonError."""
    if planned.planner == pegasus_plan.PLANNER_NAME:
        return pegasus_plan.start(planned.submit_dir, pegasus_runner(pool))
    return dagman.submit_dag(planned.dag, pool.run)


def pegasus_runner(pool: Pool) -> pegasus_plan.PlannerRunner:
    """Runs Pegasus's tools as clients of the pool: they look for HTCondor's on PATH."""
    return pegasus_plan.runner(pool.env(), pool.command)


def end_state(end: DagEnd, last: Status | None) -> str:
    """``success``, ``failed``, ``removed`` or ``held``, from HTCondor's word and DAGMan's own log.

    Pegasus puts a program of its own around DAGMan, which leaves with 0 when its monitor did,
    whatever the workflow's result: a success must be in DAGMan's log as well.
    """
    if end.state != "success" or (last is not None and last.state is WorkflowState.DONE):
        return end.state
    return "removed" if last is not None and last.state is WorkflowState.REMOVED else "failed"


class _Following:
    """The follower in a thread of its own. A context manager that ends with the thread's end.

    ``ended_at`` is when the workflow's end was seen (Unix seconds), 0 before.
    """

    def __init__(self, submit_dir: Path, archive: Archive, say: Say) -> None:
        self.ended_at = 0.0
        self.last: Status | None = None
        self._say = say
        self._shown = 0.0
        self._unshown: Status | None = None
        self._follower = Follower(submit_dir, archive, on_status=self._show)
        self._stop = threading.Event()
        self._trouble: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="follower")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._stop.set()
        self._thread.join()

    @property
    def attempts(self) -> list[Attempt]:
        """The jobs' attempts until now."""
        return list(self._follower.workflows[0].attempts.all)

    def wait(self, timeout_s: float) -> None:
        """Wait until it has seen the end by itself, but no longer than ``timeout_s``."""
        self._thread.join(timeout_s)

    def show_rest(self) -> None:
        """Say the last change, where it came too soon after the one before to be said at once."""
        status = self._unshown
        if status is not None and time.monotonic() - self._shown >= _SHOW_EVERY_S:
            self._show_now(status)

    def check(self) -> None:
        """Raise what kept it from its end."""
        if self._trouble is not None:
            raise self._trouble

    def _run(self) -> None:
        try:
            (self.last,) = self._follower.run(self._stop).values()
        except Exception as error:  # raised by check, where it is seen
            self._trouble = error

    def _show(self, _where: SubmitDir, status: Status) -> None:
        if status.ended:
            self.ended_at = time.time()
        if status.ended or time.monotonic() - self._shown >= _SHOW_EVERY_S:
            self._show_now(status)
        else:
            self._unshown = status

    def _show_now(self, status: Status) -> None:
        self._shown, self._unshown = time.monotonic(), None
        self._say(status_text(status))


def follow(
    planned: PlannedWorkflow,
    pool: Pool,
    archive: Archive,
    say: Say,
    on_stuck: Callable[[Sequence[StuckJob]], None],
    most_s: float = 0.0,
) -> Ended:
    """Start the workflow and follow it into the archive until it has left the queue, or for
    ``most_s`` (0: as long as it takes), when it is removed and has ended as :data:`STOPPED`.

    ``on_stuck`` is told which jobs wait without a match, again and again. An interrupt removes the
    workflow. Raises AdonError, and OSError if the disk has become full.
    """
    following = _Following(planned.submit_dir, archive, say)
    started = time.time()
    cluster = start(planned, pool)
    log = dagman.DagLog(planned.dag, cluster)
    stuck = StuckJobs(pool, cluster, say)
    checked = started
    with following:
        try:
            while (end := log.poll()) is None:
                if most_s and time.time() - started > most_s:
                    dagman.remove(cluster, pool.run)
                    return Ended(STOPPED, started, started + most_s)
                if time.time() - checked >= _CHECK_EVERY_S:
                    pool.check()
                    check_room(planned.submit_dir)
                    stuck.observe(following.attempts, time.time())
                    on_stuck(stuck.found)
                    checked = time.time()
                following.show_rest()
                time.sleep(_LOOK_S)
            # DAGMan's last lines are on disk by now; the follower sees them by itself.
            following.wait(_LAST_LINES_S)
        except (AdonError, OSError):
            raise  # the pool could not remove it, and ends with the demo
        except BaseException:
            with contextlib.suppress(AdonError):  # else it ends with the pool
                dagman.remove(cluster, pool.run)
            raise
    following.check()
    state = end_state(end, following.last)
    if state != "success":
        say(f"the workflow ended: {state} {end.reason}".rstrip())
    return Ended(state, started, following.ended_at or time.time(), end.reason)


class StuckJobs:
    """Asks the pool when jobs have waited for long, and says what they wait for.

    ``found`` is what the pool said last.
    """

    def __init__(self, pool: Pool, cluster: int, say: Say) -> None:
        self.found: list[StuckJob] = []
        self._pool = pool
        self._cluster = cluster
        self._say = say
        self._looked = 0.0
        self._said: dict[str, float] = {}

    def observe(self, attempts: Iterable[Attempt], now: float) -> None:
        """Ask, at ``now`` (Unix seconds), if any of ``attempts`` makes it worth it and the last
        time was not just now. Raises AdonError if the pool does not answer."""
        if now - self._looked < _LOOK_EVERY_S:
            return
        if not any(waits(attempt, now) for attempt in attempts):
            self.found = []
            return
        self._looked = now
        command = [sys.executable, "-m", "adon", "pool", "waiting", "--dag", str(self._cluster)]
        text = self._pool.run([*command, "--patience", f"{PATIENCE_S} s", "--json"], cwd=ROOT)
        self.found = [StuckJob(**row) for row in json.loads(text)]
        for line in stuck_words(self.found):
            if now - self._said.get(line, -_SAY_AGAIN_S) >= _SAY_AGAIN_S:
                self._said[line] = now
                self._say(line)


def waits(attempt: Attempt, now: float) -> bool:
    """Whether a job is on hold, or has been in the queue for long."""
    if attempt.outcome is Outcome.HELD:
        return True
    return attempt.outcome is Outcome.QUEUED and now - attempt.submit >= PATIENCE_S


def stuck_words(stuck_jobs: Sequence[StuckJob]) -> list[str]:
    """A line for each reason, with the first of the jobs that wait for it."""
    jobs: dict[str, list[str]] = {}
    for stuck in stuck_jobs:
        jobs.setdefault(stuck.why, []).append(stuck.job)
    lines = []
    for why, names in jobs.items():
        if len(names) == 1:
            lines.append(f"job {names[0]} {why}")
            continue
        more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
        lines.append(f"{len(names)} jobs wait, {', '.join(names[:_MOST_NAMES])}{more}: each {why}")
    return lines


class _PoolOf:
    """The pool as one of its clients sees it: a broker need not be among them."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    def ask(self) -> Mapping[str, SitePool]:
        """Every site now. Raises AdonError."""
        return asked_pool(self._pool, _ANSWER_S)

    def close(self) -> None:
        """Nothing stays between two questions."""


@contextlib.contextmanager
def recorded_size(pool: Pool, archive: Archive) -> Iterator[None]:
    """Meanwhile the archive learns how large the pool is, and how large it would have to be."""
    size = PoolSize(_PoolOf(pool), Outbox(archive), time.time)
    size.start()
    try:
        yield
    finally:
        size.stop()
