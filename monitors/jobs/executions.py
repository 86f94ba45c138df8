"""One execution of a job: how far it has come, and what HTCondor moves for it. Pure.

    coming ─► input ─► sent ─► running ─► output ─► moved ─► over
                                  ▲          │
                                  └──────────┘ (disconnected; a checkpoint was sent)

An execution goes forward only, whatever order or number its events come in, and once over it stays
so. HTCondor also says of transfers that broke off that they finished: whether input arrived shows
when the job runs, and whether output did when the execution ends.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

from monitors.workflows.logs.events import JobEvent, Kind, TransferStep

ENDS = {
    Kind.TERMINATED: "success",
    Kind.EVICTED: "evicted",
    Kind.SHADOW_EXCEPTION: "shadow exception",
    Kind.ABORTED: "removed",
    Kind.HELD: "held",
    Kind.RECONNECT_FAILED: "lost",
}


class Phase(IntEnum):
    """How far an execution has come."""

    COMING = 0
    INPUT = 1
    SENT = 2
    RUNNING = 3
    OUTPUT = 4
    MOVED = 5
    OVER = 6


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


@dataclass(slots=True, kw_only=True)
class Execution:
    """One execution. ``how`` says how it ended; ``ran`` that its input had arrived; ``began`` is
    the Unix second from which it ran, ``at`` that of its last event; ``breaks`` counts how often
    output was over, or the connection lost, before it was at its end. ``sent_bytes`` is what the
    job sent back in all, ``received_bytes`` what it got, None until HTCondor says so.
    """

    phase: Phase = Phase.COMING
    at: float = 0.0
    input: Span = field(default_factory=Span)
    output: Span = field(default_factory=Span)
    how: str = ""
    ran: bool = False
    began: float = 0.0
    breaks: int = 0
    sent_bytes: int | None = None
    received_bytes: int | None = None

    @property
    def is_over(self) -> bool:
        """Whether it has ended, however."""
        return self.phase is Phase.OVER

    def apply(self, kind: Kind, at: float, step: TransferStep | None = None) -> None:
        """Its next event, at a Unix second; ``step`` is of a file transfer."""
        if self.is_over:
            return
        self.at = at
        if kind in ENDS:
            self.end(ENDS[kind], at)
        elif kind is Kind.EXECUTE:
            self.ran, self.began = True, at
            self.phase = max(self.phase, Phase.RUNNING)
        elif kind is Kind.DISCONNECTED:
            # What was being sent broke off; output is sent anew after a reconnection.
            self.phase, self.output = Phase.RUNNING, Span()
            self.breaks += 1
        elif step is not None:
            self._move(step, at)

    def end(self, how: str, at: float) -> None:
        """It is over, unless it was before."""
        if not self.is_over:
            self.phase, self.how, self.at = Phase.OVER, how, at

    def _move(self, step: TransferStep, at: float) -> None:
        phase = _PHASES[step]
        if phase is Phase.INPUT and self.phase > Phase.INPUT:
            return
        # A job that sends checkpoints has output more than once.
        self.phase = phase if phase is Phase.OUTPUT else max(self.phase, phase)
        span = self.input if step <= TransferStep.IN_FINISHED else self.output
        if step in (TransferStep.IN_STARTED, TransferStep.OUT_STARTED):
            self.breaks += int(span is self.output and span.end > 0)
            span.start, span.end = at, 0.0
        elif step in (TransferStep.IN_FINISHED, TransferStep.OUT_FINISHED):
            span.end = at


class LastExecutions:
    """Each process's last execution, by the events of a log in which nobody numbers them."""

    def __init__(self) -> None:
        self._last: dict[tuple[int, int], Execution] = {}

    def take(self, cluster: int, proc: int) -> Execution | None:
        """The last one of a process, which is kept no longer; None where nothing was heard of
        it."""
        return self._last.pop((cluster, proc), None)

    def feed(self, event: JobEvent) -> None:
        """Take the next event."""
        job = (event.cluster, event.proc)
        execution = self._last.get(job)
        if event.kind is Kind.SUBMIT or execution is None or _is_next(execution, event):
            execution = self._last[job] = Execution()
        if event.kind is Kind.TERMINATED:
            execution.sent_bytes, execution.received_bytes = event.sent_bytes, event.received_bytes
        execution.apply(event.kind, event.at, event.step)


def _is_next(execution: Execution, event: JobEvent) -> bool:
    begins = event.step in (TransferStep.IN_QUEUED, TransferStep.IN_STARTED)
    return execution.is_over or (begins and execution.phase > Phase.INPUT)
