"""What every run of a job does now, from what happened: nothing here asks or changes anything.

A run is an :class:`~monitors.jobs.executions.Execution` that HTCondor numbers. Of a run that sends
common files nothing is heard after they are sent: it is over then.

HTCondor follows every event of its event log (``EVENT_LOG``) with an ad about it:

    028 (001.000.000) 11/21 17:52:22 Job ad information event triggered.
    EventTime = "2026-11-21T17:52:22.190"
    GlobalJobId = "ap@ap.example.org#1.0#1795283502"
    TriggerEventTypeNumber = 40
    Type = 2
    ...

with the attributes that ``EVENT_LOG_JOB_AD_INFORMATION_ATTRS`` names. These ads alone are read.
HTCondor 25 moves what several jobs of a machine share once, by a shadow of its own, which reports
it in event 047 with ``Type = "TransferStarted"``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from condor_plugins.jobs import jobad
from condor_plugins.jobs.jobad import JobAd, number
from condor_plugins.jobs.request_builder import Run, run_name
from monitors.jobs.executions import ENDS, Execution
from monitors.workflows.logs.events import JobEvent, Kind, TransferStep

SUPERSEDED = "started again"
_UNHEARD_S = 86_400.0

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


@dataclass(slots=True)
class RunState(Execution):
    """One run. ``ad`` has the newest of what its events said; ``handled`` tells those events from
    others: one that comes again is no news."""

    run: Run
    ad: JobAd = field(default_factory=dict)
    handled: set[tuple[Kind, TransferStep | None, float]] = field(default_factory=set)


class RunStates:
    """All runs that were heard of lately."""

    def __init__(self) -> None:
        self._jobs: dict[str, dict[int, RunState]] = {}

    def __iter__(self) -> Iterator[RunState]:
        return (state for runs in self._jobs.values() for state in runs.values())

    def get(self, run: Run) -> RunState | None:
        """The state of a run; None if nothing was heard of it."""
        return self._jobs.get(run.job, {}).get(run.starts)

    def feed(self, job_events: Iterable[RunEvent]) -> None:
        """Take what happened into account."""
        for event in job_events:
            runs = self._jobs.setdefault(event.job, {})
            if event.starts == 0:  # of the job as a whole, such as the removal of one that waits
                if event.kind in ENDS:
                    for state in runs.values():
                        # A log that is read again reports ends from before a run began, too.
                        if event.at >= min((at for _, _, at in state.handled), default=event.at):
                            state.end(ENDS[event.kind], event.at)
                continue
            state = runs.setdefault(event.starts, RunState(Run(event.job, event.starts)))
            newest = max(runs)
            for starts, earlier in runs.items():
                if starts < newest:
                    earlier.end(SUPERSEDED, event.at)
            _follow(state, event)

    def forget(self, now: float, kept_s: float) -> None:
        """Drop jobs of which all runs are over and nothing was heard for ``kept_s`` seconds; where
        common files broke off, they may stay unknown."""
        for job, runs in list(self._jobs.items()):
            last = max((state.at for state in runs.values()), default=0.0)
            done = all(state.is_over for state in runs.values())
            unheard = any(state.run.common for state in runs.values()) and now - last > _UNHEARD_S
            if (done and now - last > kept_s) or unheard:
                del self._jobs[job]


def _follow(state: RunState, event: RunEvent) -> None:
    mark = (event.kind, event.step, event.at)
    if state.is_over or mark in state.handled:
        return
    state.handled.add(mark)
    # What the hook said is known to the shadow alone: events that the schedd writes lack it.
    state.ad = {**state.ad, **event.ad}
    if event.kind in (Kind.TERMINATED, Kind.EVICTED):
        sent = number(event.ad, "SentBytes")
        state.sent_bytes = None if sent is None or sent < 0 else int(sent)
    state.apply(event.kind, event.at, event.step)
    if state.run.common and event.step in (TransferStep.IN_FINISHED, TransferStep.OUT_FINISHED):
        state.ran = True
        state.end(ENDS[Kind.TERMINATED], event.at)


@dataclass(frozen=True, slots=True)
class RunEvent:
    """One event of one job. ``at`` is in Unix seconds; ``starts`` is 0 if the event does not say
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
        run_event_ = run_event(jobad.parse(event.ad))
        if run_event_ is not None:
            yield run_event_


def run_event(ad: JobAd) -> RunEvent | None:
    """The event that an ad reports; None if it is of no interest or does not say its job."""
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
