"""What a submit directory tells of a workflow that ran: when each job ran (a Gantt chart), and why
it failed: its failed jobs, with what each of them said last.

DAGMan lists the jobs that failed (:mod:`monitors.workflows.logs.dagman`). Where it did not
come to that (it was killed), the event logs tell of the jobs that ran and failed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from monitors.jobs.jobs import Attempt, Outcome
from monitors.workflows.followed import FollowedWorkflow
from monitors.workflows.logs import kickstart
from monitors.workflows.logs.records import read_output, versions
from monitors.workflows.planned.foreign_files import end_of, is_file
from monitors.workflows.planned.job_files import OUR_RECORD
from monitors.workflows.planned.submit_dir import PlannedJob

_TAIL_BYTES = 1 << 16
_MOST_LINES = 20
_MOST_COLUMNS = 400


def timeline(run: str | Path | FollowedWorkflow) -> list[Attempt]:
    """All attempts of all jobs that were submitted so far, in the order of submission, of a submit
    directory or of a workflow whose files are read.

    Start and end come from the job's own records where it has written some, else from HTCondor's
    event log. Raises InputError where the directory cannot be read.
    """
    workflow = _followed(run)
    attempts = sorted(workflow.attempts.all, key=lambda attempt: (attempt.submit, attempt.key))
    with workflow.dir.as_owner():
        return [_by_record(workflow.dir.job(attempt.job.name), attempt) for attempt in attempts]


def _followed(run: str | Path | FollowedWorkflow) -> FollowedWorkflow:
    if isinstance(run, FollowedWorkflow):
        return run
    workflow = FollowedWorkflow(run)
    workflow.step()
    return workflow


def _by_record(job: PlannedJob, attempt: Attempt) -> Attempt:
    start, end = attempt.start, attempt.end
    if start and end:
        left = read_output(job, start, end, complained=False, number=attempt.number)
        start, end = left.span or (start, end)
    return replace(attempt, job=job, start=start, end=end)


@dataclass(frozen=True, slots=True)
class Failure:
    """A job that failed for good.

    ``exit_code`` is of its last attempt, minus the signal where one ended it, None where it did not
    run to an end. ``reason`` is DAGMan's, ``tail`` the last lines of what the job wrote to its
    standard error, or else to its output. ``files`` are those of the job that are there.
    """

    job: str
    site: str
    exit_code: int | None
    attempts: int
    reason: str
    tail: Sequence[str]
    files: Sequence[Path]


def failures(run: str | Path | FollowedWorkflow) -> list[Failure]:
    """The failed jobs of a workflow, as for :func:`timeline`, those first that failed first.

    Raises InputError where the directory cannot be read.
    """
    workflow = _followed(run)
    jobs, reasons = workflow.attempts, workflow.failed_jobs
    last = {job.name: job.attempts[-1] for job in jobs if job.attempts}
    ran = [name for name, attempt in last.items() if attempt.outcome is Outcome.FAILED]
    ends = {name: attempt.end for name, attempt in last.items()}
    with workflow.dir.as_owner():
        return [
            _failure(workflow.dir.job(name), jobs.of_job(name), reasons.get(name, ""))
            for name in sorted(reasons or ran, key=lambda name: (ends.get(name, 0.0), name))
        ]


def tail_of(text: str) -> list[str]:
    """The last lines with anything in them, each of a length that can be shown."""
    kept = [line.rstrip() for line in text.splitlines() if line.strip()]
    return ["".join(c if c.isprintable() else " " for c in k)[:_MOST_COLUMNS] for k in kept][
        -_MOST_LINES:
    ]


def _failure(job: PlannedJob, tries: Sequence[Attempt], reason: str) -> Failure:
    outputs = _versions(job.output)
    errors = _versions(job.error)
    return Failure(
        job=job.name,
        site=job.site,
        exit_code=tries[-1].returned if tries else None,
        attempts=len(tries),
        reason=reason,
        tail=_last_words(errors, outputs) if tries else [],
        files=[*errors[:1], *outputs[:1]],
    )


def _last_words(errors: Iterable[Path], outputs: Iterable[Path]) -> list[str]:
    for path in errors:
        if lines := tail_of(end_of(path, _TAIL_BYTES)):
            return lines
    for path in outputs:
        text = end_of(path, _TAIL_BYTES)
        # kickstart puts the program's standard error into its own document.
        if kickstart.is_recorded(text):
            return tail_of(kickstart.standard_error(text))
        lines = [line for line in text.splitlines() if not line.startswith(OUR_RECORD)]
        if lines := tail_of("\n".join(lines)):
            return lines
    return []


def _versions(path: Path | None) -> list[Path]:
    """A job's file and those that it was renamed to, newest first, as far as they are there."""
    return [] if path is None else [file for file in versions(path) if is_file(file)]
