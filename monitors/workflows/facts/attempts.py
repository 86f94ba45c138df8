"""Turns the events of a workflow's jobs into attempts: submitted, started, ended, with what result;
and these into what they teach about sites: runtime, compute rate and queue wait.

An attempt is one submission of one job. Logs of the same workflow overlap (DAGMan's ``nodes.log``
and the workflow's own log tell the same events), so the same event may come twice and counts once.

The cost model of the thesis (Table 3) needs Γ_c, the bytes per second that a worker computes, and
T_q, the time a job waits for one. Only the workflow's own compute jobs tell of them: transfers,
clean-up and other jobs that the planner added run elsewhere and by other rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from monitors.archive.measurement import Measurement
from monitors.workflows.logs.events import JobEvent, Kind
from monitors.workflows.logs.kickstart import JobRecord
from monitors.workflows.planned.submit_dir import JobKind, PlannedJob


class Outcome(StrEnum):
    """Where an attempt stands. ``REMOVED`` is what ``condor_rm`` does."""

    QUEUED = "queued"
    RUNNING = "running"
    HELD = "held"
    DONE = "done"
    FAILED = "failed"
    REMOVED = "removed"


@dataclass(frozen=True, slots=True)
class Hold:
    """A job was put on hold ``since`` then (Unix seconds), with HTCondor's reason and codes."""

    since: float
    reason: str
    code: int
    subcode: int


_ON_HOLD = ("submitted on hold at user's request", 15, 0)
"""HTCondor's reason and codes (``SubmittedOnHold``) for a job with ``hold = True``."""


@dataclass(slots=True)
class Attempt:
    """One submission of a job. Times in Unix seconds, 0 where it did not happen (yet).

    ``start`` is of the last execution; ``starts`` counts them. ``waited_for_own`` tells that a job
    of the same workflow ended at the same site while this one waited: it may have waited for that
    one and not for the site. ``retry`` is how often the same DAGMan had tried before. ``hold`` is
    the hold that it is on, or was on when it was removed; ``reason`` why it was removed.
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
    workflow: str = ""
    retry: int = 0
    hold: Hold | None = None
    reason: str = ""

    @property
    def key(self) -> str:
        """Tells this attempt from all others of the workflow, also after the pool was made anew."""
        return f"{self.job.name}:{self.cluster}.{self.proc}:{self.submit:.3f}"

    def posted(self, status: int) -> None:
        """Its POST script, which has the last word on the job, ended with this exit status, minus
        the signal where one ended it."""
        self.outcome = Outcome.FAILED if status else Outcome.DONE
        if status and self.returned == 0:
            how = f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"
            self.reason = f"its POST script {how}"


@dataclass(slots=True)
class Attempts:
    """All attempts of one workflow, fed event by event.

    ``job`` gives the planned job of a name, ``workflow`` is the UUID, ``names`` are the jobs' by
    HTCondor's numbers as DAGMan tells them. Events of jobs whose submission nobody told of are
    passed over: what they belong to is not known.
    """

    job: Callable[[str], PlannedJob]
    workflow: str = ""
    names: dict[int, str] = field(default_factory=dict)
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
        if attempt is None and event.kind in (Kind.EXECUTE, Kind.TERMINATED):
            # The log has lost its submission, and DAGMan may have told of it.
            self._submitted(replace(event, node=self.names.get(event.cluster, "")))
            attempt = self.of(event)
        if attempt is None:
            return None
        if event.kind is Kind.POST_SCRIPT_TERMINATED:
            attempt.posted(event.returned or 0)
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
        attempt.workflow = self.workflow
        if job.on_hold:  # of which HTCondor writes no event of its own
            attempt.outcome = Outcome.HELD
            attempt.hold = Hold(event.at, *_ON_HOLD)
        before.append(attempt)
        self._live[event.cluster, event.proc] = attempt
        self.all.append(attempt)

    def _changed(self, attempt: Attempt, event: JobEvent) -> bool:
        """Applies an event that is not a submission; whether the attempt started or ended."""
        if attempt.end:
            return False
        if event.kind is Kind.EXECUTE:
            attempt.start, attempt.slot, attempt.hold = event.at, event.slot, None
            attempt.starts += 1
            attempt.outcome = Outcome.RUNNING
            attempt.waited_for_own = self._own_end.get(attempt.job.site, 0.0) > attempt.submit
            return True
        if event.kind in (Kind.TERMINATED, Kind.ABORTED):
            attempt.end, attempt.returned = event.at, event.returned
            removed = event.kind is Kind.ABORTED
            if removed:
                attempt.reason = event.reason
            else:
                attempt.hold = None
            failed = Outcome.REMOVED if removed else Outcome.FAILED
            attempt.outcome = Outcome.DONE if event.returned == 0 else failed
            if attempt.job.kind is JobKind.COMPUTE:
                self._own_end[attempt.job.site] = event.at
            return True
        if event.kind is Kind.HELD:
            attempt.outcome = Outcome.HELD
            attempt.hold = Hold(event.at, event.reason, event.code, event.subcode)
        elif event.kind is Kind.RELEASED:
            attempt.outcome, attempt.hold = Outcome.QUEUED, None
        elif event.kind in (Kind.EVICTED, Kind.SHADOW_EXCEPTION) and attempt.hold is None:
            attempt.outcome = Outcome.QUEUED
        return False


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
    slot_s = attempt.end - attempt.start
    own_s = slot_s if work_s is None else min(slot_s, max(0.0, work_s))
    return max(0.0, attempt.start - ready) + slot_s - own_s


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
        good = [(n, one) for n, one in enumerate(records) if one.exitcode == 0]
        return [
            fact
            for n, one in good
            if one.transformation
            for fact in _run(attempt, one, f":{n}", one.transformation, one.task)
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
        "queued_s": max(0.0, attempt.start - attempt.submit) if attempt.start else None,
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

    there = runtime_subject(transformation, attempt.job.site)
    facts = [fact("runtime", runtime_s, "s", there)]
    if bytes_in > 0 and runtime_s > 0:
        facts.append(fact("compute_rate", bytes_in / runtime_s, "byte/s", there))
    if record is not None and bytes_in > 0 and record.outputs:
        # How much data comes out does not depend on where: the subject has no site.
        facts.append(fact("output_ratio", record.bytes_out / bytes_in, "1", transformation))
    return facts
