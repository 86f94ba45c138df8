"""Reads HTCondor's event log (``EVENT_LOG``), of which every event is followed by an ad about it:

    028 (001.000.000) 11/21 17:52:22 Job ad information event triggered.
    EventTime = "2026-11-21T17:52:22.190"
    GlobalJobId = "ap@ap.example.org#1.0#1795283502"
    TriggerEventTypeNumber = 40
    Type = 2
    ...

with the attributes that ``EVENT_LOG_JOB_AD_INFORMATION_ATTRS`` names. These ads alone are read.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import IntEnum

from condor_plugins.transfers import jobad
from condor_plugins.transfers.ids import job_name
from condor_plugins.transfers.jobad import JobAd
from monitors.workflows.logs.tail import Lines

_MOST_LINES = 500  # of one ad


class Kind(IntEnum):
    """The events that matter here, with HTCondor's numbers (``condor_event.h``)."""

    EXECUTE = 1
    EVICTED = 4
    TERMINATED = 5
    SHADOW_EXCEPTION = 7
    ABORTED = 9
    HELD = 12
    DISCONNECTED = 22
    RECONNECT_FAILED = 24
    FILE_TRANSFER = 40


class TransferStep(IntEnum):
    """``Type`` of a file transfer event."""

    IN_QUEUED = 1
    IN_STARTED = 2
    IN_FINISHED = 3
    OUT_QUEUED = 4
    OUT_STARTED = 5
    OUT_FINISHED = 6


_KINDS = frozenset(int(kind) for kind in Kind)
_MOVINGS = frozenset(int(moving) for moving in TransferStep)


@dataclass(frozen=True, slots=True)
class JobEvent:
    """One event of one job. ``at`` is in Unix seconds; ``starts`` is 0 where the event does not say
    which run it is of; ``moving`` belongs to a file transfer alone."""

    kind: Kind
    job: str
    starts: int
    at: float
    moving: TransferStep | None = None
    ad: JobAd = field(default_factory=dict)


class Reader:
    """Takes an event log in portions and gives what happened; passes over what it does not know.
    One reader reads one file from its beginning."""

    def __init__(self) -> None:
        self._lines = Lines()
        self._open: list[str] | None = None

    def feed(self, data: bytes) -> list[JobEvent]:
        """What became whole with the next portion."""
        found: list[JobEvent] = []
        for _, line in self._lines.feed(data):
            if line.rstrip() == b"...":
                event = None if self._open is None else job_event(jobad.parse(self._open))
                found += [event] if event else []
                self._open = None
            elif line.startswith(b"028 ("):
                self._open = []
            elif self._open is not None and len(self._open) < _MOST_LINES:
                self._open.append(line.decode(errors="replace"))
        return found


def job_event(ad: JobAd) -> JobEvent | None:
    """The event that an ad tells of; None where it is of no interest or does not say its job."""
    kind, job, starts = ad.get("TriggerEventTypeNumber"), ad.get("GlobalJobId"), ad.get(_STARTS)
    at = _time(ad.get("EventTime"))
    if kind not in _KINDS or not isinstance(job, str) or at is None:
        return None
    moving = None
    if kind == Kind.FILE_TRANSFER:
        if ad.get("Type") not in _MOVINGS:
            return None
        moving = TransferStep(int(ad["Type"]))
    number = starts if isinstance(starts, int) and starts > 0 else 0
    return JobEvent(Kind(int(kind)), job_name(job), number, at, moving, ad)


_STARTS = "NumShadowStarts"


def _time(value: object) -> float | None:
    if not isinstance(value, str):
        return None
    try:
        return datetime.fromisoformat(value).timestamp()
    except (ValueError, OverflowError, OSError):
        return None
