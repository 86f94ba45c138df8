"""The progress of a run: how far each job has come and since when. Pure.

HTCondor's events of a job arrive before DAGMan's lines about the same: a submission some seconds
before it, and all of a job where a watcher begins late. So DAGMan's words say only whether a PRE
has asked and its job is not submitted yet; all else is HTCondor's to say.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import IntEnum

from monitors.jobs.jobs import Attempt, Job, Outcome

_FAILED = (Outcome.FAILED, Outcome.REMOVED)


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
    """A job's phase, since which Unix second, and how often it has failed."""

    phase: JobPhase = JobPhase.WAITING
    since: float = 0.0
    failures: int = 0


Progress = Mapping[str, JobProgress]
NOT_BEGUN = JobProgress()

_PHASES = {
    Outcome.QUEUED: JobPhase.SUBMITTED,
    Outcome.HELD: JobPhase.SUBMITTED,
    Outcome.RUNNING: JobPhase.RUNNING,
    Outcome.DONE: JobPhase.DONE,
}


def progress_of(
    job: Job | None, retries: int, began: float = 0.0, started: float = 0.0
) -> JobProgress:
    """The progress of a job.

    One that fails, or whose PRE does, waits to be run again, as long as DAGMan does so: ``retries``
    times. ``began`` is when the DAGMan started whose attempts count, ``started`` when the one did
    that runs (Unix seconds): one that continues where another was killed knows of what that did,
    and runs its PRE again; any other runs again what is not done.
    """
    if job is None:
        return NOT_BEGUN
    since = math.floor(began)
    failed = {
        attempt.cluster
        for attempt in job.attempts
        if attempt.outcome in _FAILED and attempt.submit >= since
    }
    failures = len(failed) + sum(at >= since for at in job.pre_failures)
    newest = job.current
    if newest is not None and (newest.outcome is Outcome.DONE or newest.submit >= since):
        stand = _stand(newest, failures, retries)
    elif failures:
        stand = JobProgress(_after_failure(failures, retries), since, failures)
    else:
        stand = NOT_BEGUN
    script = job.pre
    if script is None or script.at < math.floor(started):
        return stand
    if not script.status:
        return replace(stand, phase=JobPhase.ASKED, since=script.start)
    return stand


def _stand(attempt: Attempt, failures: int, retries: int) -> JobProgress:
    if attempt.outcome in _PHASES:
        return JobProgress(_PHASES[attempt.outcome], _since(attempt), failures)
    phase = _after_failure(failures, retries)
    if attempt.returned is None:  # it was removed
        phase = JobPhase.NEVER
    return JobProgress(phase, _since(attempt), failures)


def _after_failure(failures: int, retries: int) -> JobPhase:
    return JobPhase.NEVER if failures > retries else JobPhase.WAITING


def _since(attempt: Attempt) -> float:
    """POST has the last word on what ended, and is no news where it says the same."""
    says_the_same = (attempt.returned == 0) == (attempt.outcome is Outcome.DONE)
    return attempt.end if attempt.end and says_the_same else attempt.at
