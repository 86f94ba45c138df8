"""What the jobs of a workflow teach about its sites: runtime, compute rate and queue wait.

The cost model of the thesis (Table 3) needs Γ_c, the bytes per second that a worker computes, and
T_q, the time a job waits for one. Only the workflow's own compute jobs tell of them: transfers,
clean-up and other jobs that the planner added run elsewhere and by other rules.
"""

from __future__ import annotations

from monitors.jobs.attempts import Attempt, Outcome
from monitors.logs.records import JobRecord
from monitors.logs.submit_dir import JobKind
from monitors.measurement import Measurement


def runtime_subject(transformation: str, site: str) -> str:
    """The subject of ``runtime`` and ``compute_rate``: ``soykb::bwa_mem:1.0@mu``."""
    return f"{transformation}@{site}"


def _teaches(attempt: Attempt) -> bool:
    return attempt.job.kind is JobKind.COMPUTE and bool(attempt.job.site)


def queue_wait(attempt: Attempt, workflow: str) -> Measurement | None:
    """T_q of a site, from an attempt that has just started.

    Submission to first execution, of jobs that waited for others only. A job that waited until
    another of its own workflow had ended says how many workers the workflow has, not how long the
    site lets it wait, and the mapping that reads T_q already counts that wait.
    """
    if not _teaches(attempt) or attempt.starts != 1 or attempt.waited_for_own:
        return None
    return Measurement(
        id=f"queue_wait:{workflow}:{attempt.key}",
        metric="queue_wait",
        subject=attempt.job.site,
        value=max(0.0, attempt.start - attempt.submit),
        unit="s",
        at=attempt.start,
        source="event log",
        workflow=workflow,
        details={"job": attempt.job.name, "slot": attempt.slot},
    )


def run_facts(attempt: Attempt, record: JobRecord | None, workflow: str) -> list[Measurement]:
    """Runtime, compute rate and output ratio of an attempt that ended well; nothing of any other.

    The record's times are preferred: they are exact and do not hold the time that HTCondor needs
    to start a job. Γ_c is the size of all inputs over the runtime, where the sizes are known; the
    output ratio, bytes out over bytes in, tells how much will have to be moved afterwards.
    """
    if not _teaches(attempt) or attempt.outcome is not Outcome.DONE or not attempt.start:
        return []
    if record is not None and record.exitcode != 0:
        return []
    runtime_s = attempt.end - attempt.start if record is None else record.runtime_s
    if runtime_s < 0 or not attempt.job.transformation:
        return []
    bytes_in = 0 if record is None else record.bytes_in
    details: dict[str, object] = {
        "job": attempt.job.name,
        "task": attempt.job.task,
        "attempt": attempt.number,
        "queued_s": max(0.0, attempt.start - attempt.submit),
        "bytes_in": bytes_in,
    }
    if record is not None:
        details |= {
            "host": record.host,
            "cpu_s": record.cpu_s,
            "bytes_out": record.bytes_out,
        }

    transformation = attempt.job.transformation

    def fact(metric: str, value: float, unit: str, subject: str) -> Measurement:
        return Measurement(
            id=f"{metric}:{workflow}:{attempt.key}",
            metric=metric,
            subject=subject,
            value=value,
            unit=unit,
            at=attempt.end,
            source="event log" if record is None else record.source,
            workflow=workflow,
            details=details,
        )

    there = runtime_subject(transformation, attempt.job.site)
    facts = [fact("runtime", runtime_s, "s", there)]
    if bytes_in > 0 and runtime_s > 0:
        facts.append(fact("compute_rate", bytes_in / runtime_s, "byte/s", there))
    if record is not None and bytes_in > 0 and record.outputs:
        # How much data comes out does not depend on where: the subject has no site.
        facts.append(fact("output_ratio", record.bytes_out / bytes_in, "1", transformation))
    return facts
