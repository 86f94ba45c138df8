"""What every run of a job does now, from what happened: nothing here asks or changes anything.

    coming ─► input ─► sent ─► running ─► output ─► moved ─► over
                                  ▲          │
                                  └──────────┘ (disconnected; a checkpoint was sent)

A run goes forward only, whatever order or number its events come in, and once over it stays so.
HTCondor also says of transfers that broke off that they finished: whether input arrived shows when
the job runs, and whether output did when the run ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum

from condor_plugins.transfers.events import Happening, Kind, Moving
from condor_plugins.transfers.ids import Run
from condor_plugins.transfers.jobad import JobAd, number


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
_PHASES = {
    Moving.IN_QUEUED: Phase.INPUT,
    Moving.IN_STARTED: Phase.INPUT,
    Moving.IN_FINISHED: Phase.SENT,
    Moving.OUT_QUEUED: Phase.OUTPUT,
    Moving.OUT_STARTED: Phase.OUTPUT,
    Moving.OUT_FINISHED: Phase.MOVED,
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
class Course:
    """One run. ``ad`` has the newest of what its events said; ``how`` says how it ended; ``ran``
    that its input had arrived; ``sent_bytes`` is what the job sent back in all, None until HTCondor
    says so; ``at`` is the Unix second of its last event."""

    run: Run
    phase: Phase = Phase.COMING
    ad: JobAd = field(default_factory=dict)
    at: float = 0.0
    input: Span = field(default_factory=Span)
    output: Span = field(default_factory=Span)
    how: str = ""
    ran: bool = False
    sent_bytes: int | None = None


class Courses:
    """All runs that were heard of lately."""

    def __init__(self) -> None:
        self._jobs: dict[str, dict[int, Course]] = {}

    def __iter__(self) -> Iterator[Course]:
        return (course for runs in self._jobs.values() for course in runs.values())

    def get(self, run: Run) -> Course | None:
        """The course of a run; None where nothing was heard of it."""
        return self._jobs.get(run.job, {}).get(run.starts)

    def feed(self, happenings: Iterable[Happening]) -> None:
        """Take what happened into account."""
        for one in happenings:
            runs = self._jobs.setdefault(one.job, {})
            if one.starts == 0:  # of the job as a whole, such as the removal of one that waits
                if one.kind in _ENDS:
                    for course in runs.values():
                        _end(course, _ENDS[one.kind], one.at)
                continue
            course = runs.setdefault(one.starts, Course(Run(one.job, one.starts)))
            newest = max(runs)
            for starts, earlier in runs.items():
                if starts < newest:
                    _end(earlier, SUPERSEDED, one.at)
            _follow(course, one)

    def forget(self, now: float, kept_s: float) -> None:
        """Drop jobs of which all runs are over and nothing was heard for ``kept_s`` seconds."""
        for job, runs in list(self._jobs.items()):
            last = max((course.at for course in runs.values()), default=0.0)
            done = all(course.phase is Phase.OVER for course in runs.values())
            if done and now - last > kept_s:
                del self._jobs[job]


def _end(course: Course, how: str, at: float) -> None:
    if course.phase is not Phase.OVER:
        course.phase, course.how, course.at = Phase.OVER, how, at


def _follow(course: Course, one: Happening) -> None:
    if course.phase is Phase.OVER:
        return
    # What the hook said is known to the shadow alone: events that the schedd writes lack it.
    course.ad, course.at = {**course.ad, **one.ad}, one.at
    if one.kind in (Kind.TERMINATED, Kind.EVICTED):
        sent = number(one.ad, "SentBytes")
        course.sent_bytes = None if sent is None or sent < 0 else int(sent)
    if one.kind in _ENDS:
        _end(course, _ENDS[one.kind], one.at)
    elif one.kind is Kind.EXECUTE:
        course.ran = True
        course.phase = max(course.phase, Phase.RUNNING)
    elif one.kind is Kind.DISCONNECTED:
        # What was being sent broke off; output is sent anew after a reconnection.
        course.phase, course.output = Phase.RUNNING, Span()
    elif one.moving is not None:
        _move(course, one.moving, one.at)


def _move(course: Course, moving: Moving, at: float) -> None:
    phase = _PHASES[moving]
    if phase is Phase.INPUT and course.phase > Phase.INPUT:
        return
    # A job that sends checkpoints has output more than once.
    course.phase = phase if phase is Phase.OUTPUT else max(course.phase, phase)
    span = course.input if moving <= Moving.IN_FINISHED else course.output
    if moving in (Moving.IN_STARTED, Moving.OUT_STARTED):
        span.start, span.end = at, 0.0
    elif moving in (Moving.IN_FINISHED, Moving.OUT_FINISHED):
        span.end = at
