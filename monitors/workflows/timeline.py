"""When each job of a workflow ran: what a Gantt chart shows."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from monitors.follow.workflow import FollowedWorkflow
from monitors.jobs.attempts import Attempt, Outcome
from monitors.logs.records import read_record
from monitors.logs.submit_dir import JobKind


@dataclass(frozen=True, slots=True)
class JobTimes:
    """One attempt of one job. Times in Unix seconds, 0 where it did not happen (yet).

    ``attempt`` counts from 0. ``status`` is an :class:`~monitors.jobs.attempts.Outcome`.
    """

    job: str
    kind: JobKind
    site: str
    transformation: str
    submit: float
    start: float
    end: float
    status: Outcome
    attempt: int = 0


def timeline(submit_dir: str | Path) -> list[JobTimes]:
    """All attempts of all jobs that were submitted so far, in the order of submission.

    Start and end come from the job's own record where it has written one, else from HTCondor's
    event log. Raises InputError where the directory cannot be read.
    """
    workflow = FollowedWorkflow(submit_dir)
    workflow.step()
    attempts = sorted(workflow.attempts.all, key=lambda attempt: (attempt.submit, attempt.key))
    return [_times(attempt) for attempt in attempts]


def _times(attempt: Attempt) -> JobTimes:
    job, start, end = attempt.job, attempt.start, attempt.end
    if job.output is not None and start and end:
        record = read_record(job.output, start, end)
        if record is not None:
            start, end = record.start, record.end
    return JobTimes(
        job=job.name,
        kind=job.kind,
        site=job.site,
        transformation=job.transformation,
        submit=attempt.submit,
        start=start,
        end=end,
        status=attempt.outcome,
        attempt=attempt.number,
    )
