"""What a submit directory tells of a workflow that ran: when each job ran (a Gantt chart), and why
it failed: its failed jobs, with what each of them said last.

DAGMan lists the jobs that failed (:mod:`monitors.workflows.logs.dagman`). Where it did not
come to that (it was killed), the event logs tell of the jobs that ran and failed.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from monitors.jobs.jobs import Attempt, Outcome
from monitors.workflows.followed import FollowedWorkflow
from monitors.workflows.logs import kickstart
from monitors.workflows.logs.dagman import DagmanParser
from monitors.workflows.logs.records import OUR_RECORD, end_of, read_record, versions
from monitors.workflows.planned.submit_dir import JobKind, PlannedJob, SubmitDir

_TAIL_BYTES = 1 << 16
_MOST_LINES = 20
_MOST_COLUMNS = 400
_COMPLAINT = re.compile(
    r"^[\d/:. -]{14,40}(?: \([^)]*\))* (ERROR[: ].+?|.*\bfatal\b.*?)\s*$", re.MULTILINE
)


@dataclass(frozen=True, slots=True)
class JobTimes:
    """One attempt of one job. Times in Unix seconds, 0 where it did not happen (yet).

    ``attempt`` counts from 0. ``status`` is an :class:`~monitors.workflows.facts.attempts.Outcome`.
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


def timeline(run: str | Path | FollowedWorkflow) -> list[JobTimes]:
    """All attempts of all jobs that were submitted so far, in the order of submission, of a submit
    directory or of a workflow whose files are read.

    Start and end come from the job's own record where it has written one, else from HTCondor's
    event log. Raises InputError where the directory cannot be read.
    """
    workflow = _followed(run)
    attempts = sorted(workflow.attempts.all, key=lambda attempt: (attempt.submit, attempt.key))
    with workflow.dir.as_owner():
        return [_times(workflow.dir.job(attempt.job.name), attempt) for attempt in attempts]


def _followed(run: str | Path | FollowedWorkflow) -> FollowedWorkflow:
    if isinstance(run, FollowedWorkflow):
        return run
    workflow = FollowedWorkflow(run)
    workflow.step()
    return workflow


def _times(job: PlannedJob, attempt: Attempt) -> JobTimes:
    start, end = attempt.start, attempt.end
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
    attempts: dict[str, list[Attempt]] = {}
    for attempt in workflow.attempts.all:
        attempts.setdefault(attempt.job.name, []).append(attempt)
    dagman = DagmanParser()
    with workflow.dir.as_owner():
        log_end = end_of(workflow.dir.dagman_out, 1 << 22)
    deque(dagman.feed(log_end.encode()), maxlen=0)
    reasons = dagman.failed
    ran = [n for n, tries in attempts.items() if tries[-1].outcome is Outcome.FAILED]
    names = list(reasons) or ran
    ends = {name: attempts[name][-1].end for name in names if name in attempts}
    with workflow.dir.as_owner():
        return [
            _failure(workflow.dir.job(name), attempts.get(name, []), reasons.get(name, ""))
            for name in sorted(names, key=lambda n: (ends.get(n, 0.0), n))
        ]


def last_complaint(submit_dir: str | Path | SubmitDir) -> str:
    """DAGMan's last error line, for workflows that failed without a failed job; else empty.

    Raises InputError where the directory cannot be read.
    """
    folder = FollowedWorkflow(submit_dir).dir
    with folder.as_owner():
        text = end_of(folder.dagman_out, _TAIL_BYTES)
    complaints = _COMPLAINT.findall(text)
    return complaints[-1] if complaints else ""


def tail_of(text: str) -> list[str]:
    """The last lines with anything in them, each of a length that can be shown."""
    kept = [line.rstrip() for line in text.splitlines() if line.strip()]
    return ["".join(c if c.isprintable() else " " for c in k)[:_MOST_COLUMNS] for k in kept][
        -_MOST_LINES:
    ]


def _failure(job: PlannedJob, tries: Sequence[Attempt], reason: str) -> Failure:
    outputs = _versions(job.output)
    errors = _versions(job.error or (job.output.with_suffix(".err") if job.output else None))
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
    return [] if path is None else [file for file in versions(path) if file.is_file()]
