"""Where a workflow stands: the eight fields of the thesis's Figure 16, how it ended, and whether it
goes on.

The thesis's loop stops at 100 % only and so never ends when a workflow fails. Here a status also
has a ``state``, and three of the four states are ends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Any

from monitors.base.measurement import Measurement
from network_provisioner.base.errors import printable

FIELDS = ("unready", "ready", "pre", "in_queue", "post", "done", "fail", "percent_done")
HELD_S = 60.0  # held jobs are often released again by themselves
_MINUTE_S, _HOUR_S, _DAY_S = 60.0, 3600.0, 86400.0
_FEW = 10  # units beside which the next smaller one is told too


class WorkflowState(StrEnum):
    """``removed`` means that someone took the workflow out of the queue."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    REMOVED = "removed"


ENDED = frozenset({WorkflowState.DONE, WorkflowState.FAILED, WorkflowState.REMOVED})


@dataclass(frozen=True, slots=True)
class Status:
    """How many of a workflow's ``total`` jobs are where, at a time (Unix seconds).

    ``unready`` wait for their parents, ``ready`` could be submitted, ``pre`` and ``post`` run their
    scripts, ``in_queue`` are HTCondor's (waiting or running). ``futile`` jobs can never run as a
    parent failed; pegasus-status and Figure 16 do not show them. ``reason`` says how it is known to
    have ended where DAGMan did not say so.
    """

    unready: int
    ready: int
    pre: int
    in_queue: int
    post: int
    done: int
    fail: int
    percent_done: float
    total: int
    state: WorkflowState
    at: float
    futile: int = 0
    reason: str = ""

    @property
    def ended(self) -> bool:
        """Whether nothing more will come, unless someone runs the workflow again."""
        return self.state in ENDED

    def fields(self) -> dict[str, float]:
        """The eight fields of Figure 16, by name, in its order."""
        return {name: getattr(self, name) for name in FIELDS}

    def measurement(
        self, workflow: str, key: str, root: str = "", source: str = "dagman"
    ) -> Measurement:
        """For the archive; ``key`` tells this change from all others of the workflow, which is a
        part of ``root`` (of itself where that is empty)."""
        details = asdict(self) | {"state": str(self.state), "root": root or workflow}
        details.pop("at")
        if not self.reason:
            del details["reason"]
        return Measurement(
            id=f"status:{workflow}:{key}",
            metric="status",
            subject=workflow,
            value=self.percent_done,
            unit="%",
            at=self.at,
            source=source,
            workflow=workflow,
            details=details,
        )

    @classmethod
    def from_measurement(cls, measurement: Measurement) -> Status:
        """The inverse of :meth:`measurement`."""
        details: Mapping[str, Any] = measurement.details
        known = {name: details[name] for name in cls.__dataclass_fields__ if name in details}
        return cls(**(known | {"state": WorkflowState(details["state"]), "at": measurement.at}))


NOT_STARTED = Status(0, 0, 0, 0, 0, 0, 0, 0.0, 0, WorkflowState.RUNNING, 0.0)


def percent(done: int, total: int) -> float:
    """Share of jobs done, in percent, two decimals as pegasus-status prints it.

    100 means all of them, however many there are.
    """
    share = round(100.0 * done / total, 2) if total else 0.0
    return share if done >= total else min(share, 99.99)


def total(statuses: Sequence[Status]) -> Status:
    """A workflow together with its sub-workflows, as pegasus-status counts them: every job of each.

    The first is the workflow's own; how it stands is how all stands, for its DAGMan ends last.
    Sub-workflows that are not planned yet have no jobs. Without any: nothing has started.
    """
    if not statuses:
        return NOT_STARTED
    counts = {
        name: sum(getattr(status, name) for status in statuses)
        for name in (*FIELDS[:-1], "total", "futile")
    }
    return Status(
        **counts,
        percent_done=percent(counts["done"], counts["total"]),
        state=statuses[0].state,
        at=max(status.at for status in statuses),
        reason=statuses[0].reason,
    )


def status_text(status: Status | None, name: str = "", width: int = 24) -> str:
    """One line for people: a bar of ``width`` characters, the counts that are not zero, the state.

    ``None`` is a workflow that has not written anything yet.
    """
    label = f"{printable(name)}  " if name else ""
    if status is None or (status.total == 0 and not status.ended):
        return f"{label}[{'.' * width}]   0.0 %  not started"
    filled = int(width * min(status.percent_done, 100.0) / 100)
    counts = [
        ("in queue", status.in_queue),
        ("pre", status.pre),
        ("post", status.post),
        ("ready", status.ready),
        ("unready", status.unready),
        ("failed", status.fail),
        ("futile", status.futile),
    ]
    shown = "".join(f", {count} {word}" for word, count in counts if count)
    return (
        f"{label}[{'#' * filled}{'.' * (width - filled)}] {status.percent_done:5.1f} %"
        f"  {status.done} of {status.total} done{shown}  {status.state}"
        f"{f': {printable(status.reason)}' if status.reason else ''}"
    )


def stuck(
    status: Status, now: float, after_s: float, held: int = 0, held_since: float = 0.0
) -> str:
    """Why a workflow is stuck at ``now`` (Unix seconds), "" where it is not.

    It is where nothing changed for ``after_s`` seconds, or where all that it has in the queue is
    held, and no script runs, for a minute or ``after_s``, whichever is less.
    """
    if status.state is not WorkflowState.RUNNING or not status.total:
        return ""
    busy = status.pre or status.post or status.ready
    if status.in_queue and held >= status.in_queue and not busy:
        since = max(held_since, status.at)
        if now - since >= min(HELD_S, after_s):
            jobs = "the only job" if status.in_queue == 1 else f"all {status.in_queue} jobs"
            return f"{jobs} in the queue held for {for_people(now - since)}"
    quiet = now - max(status.at, held_since)
    return f"nothing changed for {for_people(quiet)}" if quiet >= after_s else ""


def for_people(seconds: float) -> str:
    """``40 s``, ``2 min 28 s``, ``12 min``, ``3 h``, ``2 d``: rounded, with a second unit where the
    first alone says too little."""
    units = ((_DAY_S, "d"), (_HOUR_S, "h"), (_MINUTE_S, "min"), (1.0, "s"))
    for (unit_s, name), (next_s, below) in pairwise(units):
        whole = round(seconds / next_s) * next_s
        if whole >= 2 * unit_s and whole < _FEW * unit_s:
            left = round(whole % unit_s / next_s)
            return f"{whole // unit_s:.0f} {name}{f' {left} {below}' if left else ''}"
        if whole >= _FEW * unit_s:
            return f"{round(seconds / unit_s)} {name}"
    return f"{round(seconds)} s"
