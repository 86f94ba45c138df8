"""A planned workflow in the pool: start it, follow it into the archive, say how it ended."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self, TypeVar

from condor_plugins import dagman
from condor_plugins.dagman import DagEnd
from condor_plugins.waiting import StuckJob
from examples.demo.course import Ended
from examples.demo.steps import Say
from examples.demo.stuck import StuckJobs
from examples.testbed.pool import Pool
from monitors.archive.archive import Archive
from monitors.workflows.facts.attempts import Attempt
from monitors.workflows.follower import Follower
from monitors.workflows.planned.submit_dir import SubmitDir
from monitors.workflows.status import Status, WorkflowState, status_text
from network_provisioner.base.errors import AdonError
from pegasus_hooks import pegasus_plan
from pegasus_hooks.planner.model import PlannedWorkflow

_LOOK_S = 0.1
_LAST_LINES_S = 10.0
_SHOW_EVERY_S = 2.0
_CHECK_EVERY_S = 2.0
_ROOM_BYTES = 1 << 16  # of one write of HTCondor's logs, generously
_SCARCE_BYTES = 1 << 24  # what jobs give back of a full disk when HTCondor ends, generously
_Error = TypeVar("_Error", bound=BaseException)


def check_room(folder: Path, room_bytes: int = _ROOM_BYTES) -> None:
    """Raise OSError where ``room_bytes`` cannot be written any more: HTCondor waits for room for
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
    """Start it as whoever planned it is used to; the cluster of its DAGMan. Raises AdonError."""
    if planned.planner == pegasus_plan.PLANNER_NAME:
        return pegasus_plan.start(planned.submit_dir, pegasus_runner(pool))
    return dagman.submit_dag(planned.dag, pool.run)


def pegasus_runner(pool: Pool) -> pegasus_plan.PlannerRunner:
    """Runs Pegasus's tools as clients of the pool: they look for HTCondor's on PATH."""
    return pegasus_plan.runner(pool.env(), pool.command)


def end_state(end: DagEnd, last: Status | None) -> str:
    """``success``, ``failed``, ``removed`` or ``held``, from HTCondor's word and DAGMan's own log.

    Pegasus puts a program of its own around DAGMan, which leaves with 0 when its monitor did,
    whatever became of the workflow: a success has to stand in DAGMan's log as well.
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
) -> Ended:
    """Start the workflow and follow it into the archive until it has left the queue.

    ``on_stuck`` is told which jobs wait in vain, again and again. An interrupt removes the
    workflow. Raises AdonError, and OSError where the disk has become full.
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
                if time.time() - checked >= _CHECK_EVERY_S:
                    pool.check()
                    check_room(planned.submit_dir)
                    stuck.look(following.attempts, time.time())
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
