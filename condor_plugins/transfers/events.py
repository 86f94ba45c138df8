"""Reads HTCondor's event log (``EVENT_LOG``), of which every event is followed by an ad about it:

    028 (001.000.000) 11/21 17:52:22 Job ad information event triggered.
    EventTime = "2026-11-21T17:52:22.190"
    GlobalJobId = "ap@ap.example.org#1.0#1795283502"
    TriggerEventTypeNumber = 40
    Type = 2
    ...

with the attributes that ``EVENT_LOG_JOB_AD_INFORMATION_ATTRS`` names. These ads alone are read.
HTCondor 25 moves what several jobs of a machine share once, by a shadow of its own, which tells of
it in event 047 with ``Type = "TransferStarted"``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from condor_plugins.jobs import jobad
from condor_plugins.jobs.jobad import JobAd
from condor_plugins.jobs.request_builder import run_name
from monitors.workflows.logs.events import JobEvent, Kind, TransferStep

ADS = frozenset({Kind.JOB_AD})
_STARTS = "NumShadowStarts"
_KINDS = frozenset(
    {
        Kind.EXECUTE,
        Kind.EVICTED,
        Kind.TERMINATED,
        Kind.SHADOW_EXCEPTION,
        Kind.ABORTED,
        Kind.HELD,
        Kind.DISCONNECTED,
        Kind.RECONNECT_FAILED,
        Kind.FILE_TRANSFER,
        Kind.COMMON_FILES,
    }
)
_STEPS: Mapping[object, TransferStep] = {
    **{int(step): step for step in TransferStep},
    "TransferQueued": TransferStep.IN_QUEUED,
    "TransferStarted": TransferStep.IN_STARTED,
    "TransferFinished": TransferStep.IN_FINISHED,
}


@dataclass(frozen=True, slots=True)
class RunEvent:
    """One event of one job. ``at`` is in Unix seconds; ``starts`` is 0 where the event does not say
    which run it is of; ``step`` belongs to a file transfer alone."""

    kind: Kind
    job: str
    starts: int
    at: float
    step: TransferStep | None = None
    ad: JobAd = field(default_factory=dict)


def run_events(events: Iterable[JobEvent]) -> Iterator[RunEvent]:
    """What the ads among these tell; what is of no interest is passed over."""
    for event in events:
        found = run_event(jobad.parse(event.ad))
        if found is not None:
            yield found


def run_event(ad: JobAd) -> RunEvent | None:
    """The event that an ad tells of; None where it is of no interest or does not say its job."""
    kind, job, starts = ad.get("TriggerEventTypeNumber"), ad.get("GlobalJobId"), ad.get(_STARTS)
    at = _time(ad.get("EventTime"))
    if kind not in _KINDS or not isinstance(job, str) or at is None:
        return None
    step = None
    if kind in (Kind.FILE_TRANSFER, Kind.COMMON_FILES):
        step = _STEPS.get(ad.get("Type"))
        if step is None:  # such as waiting for common files that another job has sent
            return None
    number = starts if isinstance(starts, int) and starts > 0 else 0
    return RunEvent(Kind(int(kind)), run_name(job, ad.get("ProcId")), number, at, step, ad)


def _time(value: object) -> float | None:
    if not isinstance(value, str):
        return None
    try:
        return datetime.fromisoformat(value).timestamp()
    except (ValueError, OverflowError, OSError):
        return None
