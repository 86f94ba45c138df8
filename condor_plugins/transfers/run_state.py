"""What every run of a job does now, from what happened: nothing here asks or changes anything.

    coming ─► input ─► sent ─► running ─► output ─► moved ─► over
                                  ▲          │
                                  └──────────┘ (disconnected; a checkpoint was sent)

A run goes forward only, whatever order or number its events come in, and once over it stays so.
HTCondor also says of transfers that broke off that they finished: whether input arrived shows when
the job runs, and whether output did when the run ends. Of a run that sends common files nothing is
heard after that: it is over then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum

from condor_plugins.transfers.events import RunEvent
from condor_plugins.transfers.jobad import JobAd, number
from condor_plugins.transfers.request_builder import Run
from monitors.workflows.logs.events import Kind, TransferStep


class Phase(IntEnum):
    """Where a run stands."""

    COMING = 0
    INPUT = 1
    SENT = 2
    RUNNING = 3
    OUTPUT = 4
    MOVED = 5
    OVER = 6


_ENDS = {
    Kind.TERMINATED: "success",
    Kind.EVICTED: "evicted",
    Kind.SHADOW_EXCEPTION: "shadow exception",
    Kind.ABORTED: "removed",
    Kind.HELD: "held",
    Kind.RECONNECT_FAILED: "lost",
}
SUPERSEDED = "started again"
_UNHEARD_S = 86_400.0
_PHASES = {
    TransferStep.IN_QUEUED: Phase.INPUT,
    TransferStep.IN_STARTED: Phase.INPUT,
    TransferStep.IN_FINISHED: Phase.SENT,
    TransferStep.OUT_QUEUED: Phase.OUTPUT,
    TransferStep.OUT_STARTED: Phase.OUTPUT,
    TransferStep.OUT_FINISHED: Phase.MOVED,
}


@dataclass(slots=True)
class Span:
    """When a transfer began and ended, in Unix seconds, 0 where it did not."""

    start: float = 0.0
    end: float = 0.0

    @property
    def seconds(self) -> float:
        """How long it took, 0 where it has not ended."""
        return max(0.0, self.end - self.start) if self.start and self.end else 0.0


@dataclass(slots=True)
class RunState:
    """One run. ``ad`` has the newest of what its events said; ``how`` says how it ended; ``ran``
    that its input had arrived; ``sent_bytes`` is what the job sent back in all, None until HTCondor
    says so; ``began`` is the Unix second from which it ran, ``at`` that of its last event;
    ``breaks`` counts how often output was over, or the connection lost, before it was at its end.
    """

    run: Run
    phase: Phase = Phase.COMING
    ad: JobAd = field(default_factory=dict)
    at: float = 0.0
    input: Span = field(default_factory=Span)
    output: Span = field(default_factory=Span)
    how: str = ""
    ran: bool = False
    began: float = 0.0
    breaks: int = 0
    sent_bytes: int | None = None


class RunStates:
    """All runs that were heard of lately."""

    def __init__(self) -> None:
        self._jobs: dict[str, dict[int, RunState]] = {}

    def __iter__(self) -> Iterator[RunState]:
        return (state for runs in self._jobs.values() for state in runs.values())

    def get(self, run: Run) -> RunState | None:
        """The state of a run; None where nothing was heard of it."""
        return self._jobs.get(run.job, {}).get(run.starts)

    def feed(self, job_events: Iterable[RunEvent]) -> None:
        """Take what happened into account."""
        for one in job_events:
            runs = self._jobs.setdefault(one.job, {})
            if one.starts == 0:  # of the job as a whole, such as the removal of one that waits
                if one.kind in _ENDS:
                    for state in runs.values():
                        _end(state, _ENDS[one.kind], one.at)
                continue
            state = runs.setdefault(one.starts, RunState(Run(one.job, one.starts)))
            newest = max(runs)
            for starts, earlier in runs.items():
                if starts < newest:
                    _end(earlier, SUPERSEDED, one.at)
            _follow(state, one)

    def forget(self, now: float, kept_s: float) -> None:
        """Drop jobs of which all runs are over and nothing was heard for ``kept_s`` seconds; where
        common files broke off, it may be that nobody tells."""
        for job, runs in list(self._jobs.items()):
            last = max((state.at for state in runs.values()), default=0.0)
            done = all(state.phase is Phase.OVER for state in runs.values())
            unheard = any(state.run.common for state in runs.values()) and now - last > _UNHEARD_S
            if (done and now - last > kept_s) or unheard:
                del self._jobs[job]


def _end(state: RunState, how: str, at: float) -> None:
    if state.phase is not Phase.OVER:
        state.phase, state.how, state.at = Phase.OVER, how, at


def _follow(state: RunState, one: RunEvent) -> None:
    if state.phase is Phase.OVER:
        return
    # What the hook said is known to the shadow alone: events that the schedd writes lack it.
    state.ad, state.at = {**state.ad, **one.ad}, one.at
    if one.kind in (Kind.TERMINATED, Kind.EVICTED):
        sent = number(one.ad, "SentBytes")
        state.sent_bytes = None if sent is None or sent < 0 else int(sent)
    if one.kind in _ENDS:
        _end(state, _ENDS[one.kind], one.at)
    elif one.kind is Kind.EXECUTE:
        state.ran, state.began = True, one.at
        state.phase = max(state.phase, Phase.RUNNING)
    elif one.kind is Kind.DISCONNECTED:
        # What was being sent broke off; output is sent anew after a reconnection.
        state.phase, state.output = Phase.RUNNING, Span()
        state.breaks += 1
    elif one.step is not None:
        _move(state, one.step, one.at)


def _move(state: RunState, moving: TransferStep, at: float) -> None:
    phase = _PHASES[moving]
    if phase is Phase.INPUT and state.phase > Phase.INPUT:
        return
    # A job that sends checkpoints has output more than once.
    state.phase = phase if phase is Phase.OUTPUT else max(state.phase, phase)
    span = state.input if moving <= TransferStep.IN_FINISHED else state.output
    if moving in (TransferStep.IN_STARTED, TransferStep.OUT_STARTED):
        state.breaks += int(span is state.output and span.end > 0)
        span.start, span.end = at, 0.0
    elif moving in (TransferStep.IN_FINISHED, TransferStep.OUT_FINISHED):
        span.end = at
        if state.run.common:
            state.ran = True
            _end(state, _ENDS[Kind.TERMINATED], at)
