"""A planned workflow in the pool: start it, follow it into the archive, say how it ended."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from adon.demo.gather import Ended
from adon.demo.steps import Say
from adon.testbed.pool import Pool
from condor_plugins import dagman
from condor_plugins.dagman import DagEnd
from monitors.archive import Archive
from monitors.follow import Follower
from monitors.status import State, Status, status_text
from monitors.submit_dir import SubmitDir
from network_provisioner.errors import AdonError
from pegasus_hooks import pegasus_plan
from pegasus_hooks.planner.model import PlannedWorkflow

_LOOK_S = 0.1
_LAST_LINES_S = 10.0
_SHOW_EVERY_S = 2.0
_CHECK_EVERY_S = 2.0
_ROOM_BYTES = 1 << 16  # of one write of HTCondor's logs, generously


def check_room(folder: Path) -> None:
    """Raise OSError where nothing can be written any more: HTCondor waits for room for ever.

    Tried and not asked, since quotas and the part that is kept for root make the answer wrong.
    """
    probe = folder / "adon-room"
    try:
        probe.write_bytes(bytes(_ROOM_BYTES))
    finally:
        probe.unlink(missing_ok=True)


def start(planned: PlannedWorkflow, pool: Pool) -> int:
    """Start it as whoever planned it is used to; the cluster of its DAGMan. Raises AdonError."""
    if planned.planner == pegasus_plan.PLANNER_NAME:
        return pegasus_plan.start(planned.submit_dir, pegasus_runner(pool))
    return dagman.submit_dag(planned.dag, pool.run)


def pegasus_runner(pool: Pool) -> pegasus_plan.Runner:
    """Runs Pegasus's tools as clients of the pool: they look for HTCondor's on PATH."""
    return pegasus_plan.runner(pool.env(), pool.command)


def end_state(end: DagEnd, last: Status | None) -> str:
    """``success``, ``failed``, ``removed`` or ``held``, from HTCondor's word and DAGMan's own log.

    Pegasus puts a program of its own around DAGMan, which leaves with 0 when its monitor did,
    whatever became of the workflow: a success has to stand in DAGMan's log as well.
    """
    if end.state != "success" or (last is not None and last.state is State.DONE):
        return end.state
    return "removed" if last is not None and last.state is State.REMOVED else "failed"


def follow(planned: PlannedWorkflow, pool: Pool, archive: Archive, say: Say) -> Ended:
    """Start the workflow and follow it into the archive until it has left the queue.

    An interrupt removes it. Raises AdonError, and OSError where the disk has become full.
    """
    shown, ended_at = [0.0], [0.0]

    def show(_where: SubmitDir, status: Status) -> None:
        now = time.monotonic()
        if now - shown[0] >= _SHOW_EVERY_S or status.ended:
            shown[0] = now
            say(status_text(status))
        if status.ended:
            ended_at[0] = time.time()

    follower = Follower(planned.submit_dir, archive, on_status=show)
    stop = threading.Event()
    troubles: list[Exception] = []
    last: list[Status | None] = []

    def follow_on() -> None:
        try:
            last.extend(follower.run(stop).values())
        except Exception as error:  # raised below, where it is seen
            troubles.append(error)

    thread = threading.Thread(target=follow_on, name="follower")
    started = time.time()
    cluster = start(planned, pool)
    thread.start()
    log = dagman.DagLog(planned.dag, cluster)
    checked = started
    try:
        while (end := log.poll()) is None:
            if time.time() - checked >= _CHECK_EVERY_S:
                pool.check()
                check_room(planned.submit_dir)
                checked = time.time()
            time.sleep(_LOOK_S)
        # DAGMan's last lines are on disk by now; the follower sees them by itself.
        thread.join(_LAST_LINES_S)
    except (AdonError, OSError):
        raise  # the pool could not remove it, and ends with the demo
    except BaseException:
        dagman.remove(cluster, pool.run)
        raise
    finally:
        stop.set()
        thread.join()
    if troubles:
        raise troubles[0]
    state = end_state(end, last[0])
    if state != "success":
        say(f"the workflow ended: {state} {end.reason}".rstrip())
    return Ended(state, started, ended_at[0] or time.time())
