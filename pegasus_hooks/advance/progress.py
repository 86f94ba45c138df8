"""Where a run stands: of each job, how far it has come and since when. Pure.

What HTCondor tells of jobs is heard before what DAGMan tells of the same: a submission some seconds
before it, and all of a job where a watcher begins late. So DAGMan's words say only whether a PRE
has asked and its job is not submitted yet; all else is HTCondor's to say.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import IntEnum

from monitors.watcher.events import Event, EventKind


class JobPhase(IntEnum):
    """How far a job has come. One that is not spoken of is WAITING."""

    WAITING = 0
    ASKED = 1  # its PRE has begun, so that its paths are its own business
    SUBMITTED = 2
    RUNNING = 3
    DONE = 4
    NEVER = 5  # it failed for good, or its workflow has ended


@dataclass(frozen=True, slots=True)
class JobProgress:
    """A job's phase, since which Unix second, and how often it has failed. Where it is ASKED,
    ``before`` is where it stood otherwise."""

    phase: JobPhase = JobPhase.WAITING
    since: float = 0.0
    failures: int = 0
    before: JobProgress | None = None

    @property
    def submitted(self) -> JobProgress:
        """Where it stands by what HTCondor tells."""
        return self.before or self


Progress = Mapping[str, JobProgress]
NOT_BEGUN = JobProgress()

_BECOMES = {
    EventKind.RUNNING: JobPhase.RUNNING,
    EventKind.HELD: JobPhase.SUBMITTED,
    EventKind.EVICTED: JobPhase.SUBMITTED,
    EventKind.UNHELD: JobPhase.SUBMITTED,
    EventKind.REMOVED: JobPhase.NEVER,
}


def after(stand: JobProgress, event: Event, retries: int) -> JobProgress:
    """Where a job stands after one more event of its own.

    One that fails, or whose PRE does, waits to be run again, as long as DAGMan does so: ``retries``
    times. POST has the last word on what ended.
    """
    told = stand.submitted
    if event.what is EventKind.PRE_STARTED:
        return replace(told, phase=JobPhase.ASKED, since=event.at, before=told)
    if event.what is EventKind.PRE_ENDED:
        return _pre_failed(told, event.at, retries) if event.code else stand
    if event.what is EventKind.SUBMITTED:
        return _submitted(told, event)
    if event.what in _BECOMES:
        return replace(told, phase=_BECOMES[event.what], since=event.at)
    return _ended(told, event, retries)


def after_start(stand: JobProgress, at: float, goes_on: bool) -> JobProgress:
    """Where a job stands when a DAGMan starts at Unix second ``at``. One that ``goes_on`` where
    another was killed knows of what that did; any other runs again what is not done."""
    told = stand.submitted
    if goes_on or told.phase is JobPhase.DONE or told.since >= int(at):
        return told
    return NOT_BEGUN


def _pre_failed(told: JobProgress, at: float, retries: int) -> JobProgress:
    if told.phase is JobPhase.WAITING:
        return _failed(told, max(told.since, at), retries)
    return replace(told, failures=told.failures + 1)  # it was tried again since


def _submitted(told: JobProgress, event: Event) -> JobProgress:
    if not event.cluster and told != NOT_BEGUN:
        return told
    failures = 0 if told.phase is JobPhase.NEVER else told.failures  # another DAGMan runs it
    return JobProgress(JobPhase.SUBMITTED, event.at, failures)


def _ended(told: JobProgress, event: Event, retries: int) -> JobProgress:
    if event.code == 0:
        return (
            told
            if told.phase is JobPhase.DONE
            else replace(told, phase=JobPhase.DONE, since=event.at)
        )
    if told.phase in (JobPhase.WAITING, JobPhase.NEVER):  # POST says again what the job's end said
        return told
    return _failed(told, event.at, retries)


def _failed(stand: JobProgress, at: float, retries: int) -> JobProgress:
    failures = stand.failures + 1
    phase = JobPhase.NEVER if failures > retries else JobPhase.WAITING
    return JobProgress(phase, at, failures)
