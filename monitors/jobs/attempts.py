"""Turns the events of a workflow's jobs into attempts: submitted, started, ended, with what result.

An attempt is one submission of one job. Logs of the same workflow overlap (DAGMan's ``nodes.log``
and the workflow's own log tell the same events), so the same event may come twice and counts once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from monitors.logs.event_log import JobEvent, Kind
from monitors.logs.submit_dir import JobKind, PlannedJob


class Outcome(StrEnum):
    """Where an attempt stands. ``REMOVED`` is what ``condor_rm`` does."""

    QUEUED = "queued"
    RUNNING = "running"
    HELD = "held"
    DONE = "done"
    FAILED = "failed"
    REMOVED = "removed"


@dataclass(slots=True)
class Attempt:
    """One submission of a job. Times in Unix seconds, 0 where it did not happen (yet).

    ``start`` is of the last execution; ``starts`` counts them. ``waited_for_own`` tells that a job
    of the same workflow ended at the same site while this one waited: it may have waited for that
    one and not for the site.
    """

    job: PlannedJob
    cluster: int
    proc: int
    number: int
    submit: float
    start: float = 0.0
    end: float = 0.0
    starts: int = 0
    returned: int | None = None
    outcome: Outcome = Outcome.QUEUED
    slot: str = ""
    waited_for_own: bool = False

    @property
    def key(self) -> str:
        """Tells this attempt from all others of the workflow, also after the pool was made anew."""
        return f"{self.job.name}:{self.cluster}.{self.proc}:{self.submit:.3f}"


@dataclass(slots=True)
class Attempts:
    """All attempts of one workflow, fed event by event.

    ``job`` gives the planned job of a name. Events of jobs whose submission was not seen are
    passed over: what they belong to is not known.
    """

    job: Callable[[str], PlannedJob]
    all: list[Attempt] = field(default_factory=list)
    _live: dict[tuple[int, int], Attempt] = field(default_factory=dict)
    _by_job: dict[str, list[Attempt]] = field(default_factory=dict)
    _own_end: dict[str, float] = field(default_factory=dict)
    _seen: set[JobEvent] = field(default_factory=set)

    def feed(self, event: JobEvent) -> Attempt | None:
        """Takes the next event; returns the attempt where this event started or ended it."""
        if event in self._seen:
            return None
        self._seen.add(event)
        if event.kind is Kind.SUBMIT:
            self._submitted(event)
            return None
        attempt = self.of(event)
        if attempt is None:
            return None
        if event.kind is Kind.POST_SCRIPT_TERMINATED:
            # The post script has the last word on its job.
            attempt.outcome = Outcome.FAILED if event.returned else Outcome.DONE
            return None
        return attempt if self._changed(attempt, event) else None

    def of(self, event: JobEvent) -> Attempt | None:
        """The attempt that an event is of, None where its submission was not seen."""
        attempt = self._live.get((event.cluster, event.proc))
        return None if attempt is None or event.at < attempt.submit else attempt

    def of_job(self, name: str) -> Sequence[Attempt]:
        """All attempts of one job so far, in the order of their submission events."""
        return self._by_job.get(name, ())

    def _submitted(self, event: JobEvent) -> None:
        if not event.node:
            return
        before = self._by_job.setdefault(event.node, [])
        job = self.job(event.node)
        attempt = Attempt(job, event.cluster, event.proc, len(before), event.at)
        before.append(attempt)
        self._live[event.cluster, event.proc] = attempt
        self.all.append(attempt)

    def _changed(self, attempt: Attempt, event: JobEvent) -> bool:
        """Applies an event that is not a submission; whether the attempt started or ended."""
        if attempt.end:
            return False
        if event.kind is Kind.EXECUTE:
            attempt.start, attempt.slot = event.at, event.slot
            attempt.starts += 1
            attempt.outcome = Outcome.RUNNING
            attempt.waited_for_own = self._own_end.get(attempt.job.site, 0.0) > attempt.submit
            return True
        if event.kind in (Kind.TERMINATED, Kind.ABORTED):
            attempt.end, attempt.returned = event.at, event.returned
            removed = event.kind is Kind.ABORTED
            failed = Outcome.REMOVED if removed else Outcome.FAILED
            attempt.outcome = Outcome.DONE if event.returned == 0 else failed
            if attempt.job.kind is JobKind.COMPUTE:
                self._own_end[attempt.job.site] = event.at
            return True
        if event.kind is Kind.HELD:
            attempt.outcome = Outcome.HELD
        elif event.kind in (Kind.EVICTED, Kind.SHADOW_EXCEPTION, Kind.RELEASED):
            attempt.outcome = Outcome.QUEUED
        return False
