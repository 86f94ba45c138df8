"""What the attempts of a workflow's jobs (:mod:`monitors.jobs.jobs`) teach about sites: runtime,
compute rate and queue wait.

The cost model of the thesis (Table 3) needs Γ_c, the bytes per second that a worker computes, and
T_q, the time a job waits for one. Only the workflow's own compute jobs tell of them: transfers,
clean-up and other jobs that the planner added run elsewhere and by other rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from monitors.base.measurement import Measurement
from monitors.jobs.jobs import Attempt, Outcome
from monitors.workflows.logs.kickstart import JobRecord
from monitors.workflows.planned.submit_dir import JobKind


def runtime_subject(transformation: str, site: str) -> str:
    """The subject of ``runtime`` and ``compute_rate``: ``soykb::bwa_mem:1.0@mu``."""
    return f"{transformation}@{site}"


def _teaches(attempt: Attempt) -> bool:
    return attempt.job.kind is JobKind.COMPUTE and bool(attempt.job.site)


def waited_s(attempt: Attempt, ready: float, work_s: float | None) -> float:
    """Seconds that a job took beside its own work, from ``ready`` on (Unix seconds): DAGMan's
    cycle, scripts, submission, matchmaking, and start and end on the worker.

    By HTCondor's clock alone: only how long the work took is the worker's word.
    """
    slot_s = attempt.ran_s
    own_s = slot_s if work_s is None else min(slot_s, max(0.0, work_s))
    return max(0.0, attempt.start - ready - attempt.held_s) + slot_s - own_s


def queue_wait(attempt: Attempt, ready: float, work_s: float | None) -> Measurement | None:
    """T_q of a site, from an attempt that has ended; ``ready`` is when the last of its parents had.

    Of jobs that waited for others only. A job that waited until another of its own workflow had
    ended says how many workers the workflow has, not how long the site lets it wait, and the
    mapping that reads T_q already counts that wait.
    """
    if not _teaches(attempt) or attempt.starts != 1 or attempt.waited_for_own or not attempt.end:
        return None
    return Measurement(
        id=f"queue_wait:{attempt.workflow}:{attempt.key}",
        metric="queue_wait",
        subject=attempt.job.site,
        value=waited_s(attempt, ready, work_s),
        unit="s",
        at=attempt.end,
        source="event log",
        workflow=attempt.workflow,
        details={
            "job": attempt.job.name,
            "slot": attempt.slot,
            "width": attempt.width,
            "submitted_s": max(0.0, attempt.submit - ready),
            "started_s": max(0.0, attempt.start - attempt.submit),
        },
    )


def by_kind(wait: Measurement, transformations: Iterable[str]) -> list[Measurement]:
    """The same wait of each kind of job: one that asks for much memory waits longer."""
    names = sorted({name for name in transformations if name})
    ids = [f"{wait.id}:kind"] + [f"{wait.id}:kind:{name}" for name in names[1:]]
    return [
        replace(wait, id=key, subject=runtime_subject(name, wait.subject))
        for key, name in zip(ids, names, strict=False)
    ]


def run_facts(attempt: Attempt, records: Sequence[JobRecord]) -> list[Measurement]:
    """Runtime, compute rate and output ratio of an attempt that ended well; nothing of any other.

    The record's times are preferred: they are exact and do not hold the time that HTCondor needs
    to start a job. In a clustered job each task is a run of its own transformation, and those teach
    that ended well. Γ_c is the size of all inputs over the runtime, where the sizes are known; the
    output ratio, bytes out over bytes in, tells how much will have to be moved afterwards.
    """
    job = attempt.job
    if not _teaches(attempt):
        return []
    if not records and (not attempt.start or attempt.returned is None):
        return []
    if job.is_clustered:
        good = [(n, job_record) for n, job_record in enumerate(records) if job_record.exitcode == 0]
        return [
            fact
            for n, job_record in good
            if job_record.transformation
            for fact in _run(
                attempt, job_record, f":{n}", job_record.transformation, job_record.task
            )
        ]
    if attempt.outcome is not Outcome.DONE or not job.transformation:
        return []
    record = records[-1] if records else None
    if record is not None and record.exitcode != 0:
        return []
    return _run(attempt, record, "", job.transformation, job.task)


def _run(
    attempt: Attempt, record: JobRecord | None, part: str, transformation: str, task: str
) -> list[Measurement]:
    runtime_s = attempt.end - attempt.start if record is None else record.runtime_s
    if runtime_s < 0:
        return []
    bytes_in = 0 if record is None else record.bytes_in
    details: dict[str, object] = {
        "job": attempt.job.name,
        "task": task,
        "attempt": attempt.number,
        "queued_s": attempt.queued_s if attempt.start else None,
        "bytes_in": bytes_in,
    }
    if record is not None:
        details |= {
            "host": record.host,
            "cpu_s": record.cpu_s,
            "bytes_out": record.bytes_out,
        }

    def fact(metric: str, value: float, unit: str, subject: str) -> Measurement:
        return Measurement(
            id=f"{metric}:{attempt.workflow}:{attempt.key}{part}",
            metric=metric,
            subject=subject,
            value=value,
            unit=unit,
            at=attempt.end,
            source="event log" if record is None else record.source,
            workflow=attempt.workflow,
            details=details,
        )

    at_site = runtime_subject(transformation, attempt.job.site)
    facts = [fact("runtime", runtime_s, "s", at_site)]
    if bytes_in > 0 and runtime_s > 0:
        facts.append(fact("compute_rate", bytes_in / runtime_s, "byte/s", at_site))
    if record is not None and bytes_in > 0 and record.outputs:
        # How much data comes out does not depend on where: the subject has no site.
        facts.append(fact("output_ratio", record.bytes_out / bytes_in, "1", transformation))
    return facts
