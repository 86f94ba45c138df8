"""What the jobs of one workflow did: every attempt that ended becomes a ``job`` measurement, with
its transfers, and those of compute jobs also what the cost model reads
(:mod:`monitors.workflows.facts.attempts`).

Where the DAG has a POST script for a job, that script has the last word on how the job ended
(pegasus-exitcode fails jobs that returned 0), and the hooks' journal is written by it. Such an
attempt is therefore told when its script has ended, or, where that never comes, with the job's next
attempt or the workflow's end.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from monitors.base.measurement import Measurement
from monitors.jobs.executions import Execution
from monitors.jobs.jobs import Attempt, Hold, Jobs, Outcome, number_of
from monitors.workflows.facts.attempts import by_kind, queue_wait, run_facts, runtime_subject
from monitors.workflows.facts.condor_transfers import (
    ACCESS_POINT,
    CondorHistory,
    condor_transfer_facts,
    own_protocol_transfers,
    plugin_facts,
)
from monitors.workflows.facts.plan import (
    Estimated,
    estimate_errors,
    estimates_in,
    placement_facts,
    plan_of,
    planned_at,
    read_plan,
)
from monitors.workflows.facts.transfers import Journal, setup_facts, transfer_facts, transfer_list
from monitors.workflows.logs.dagman import DagmanStep
from monitors.workflows.logs.events import JobEvent, Kind
from monitors.workflows.logs.kickstart import JobRecord
from monitors.workflows.logs.records import JobOutput, planner_error, read_output
from monitors.workflows.planned.levels import DagShape, dag_fact, levels_of
from monitors.workflows.planned.submit_dir import TRANSFERS, JobKind, PlannedJob, SubmitDir
from monitors.workflows.planned.transferlist import RELAY
from network_provisioner.base.errors import InputError

_CLOCK_S = 2.0
_MOST_TASKS = 10  # of a clustered job that are named
_ASKED_TOGETHER = 50  # jobs in one question to HTCondor
DAGMAN_JOB = "condor_dagman"  # what DAGMan's own job is called among those that are held
_MOST_HELD = 100  # of which is told why


ExecutionOf = Callable[[int, int], Execution | None]
"""The last execution of a process, by its numbers, as far as a log tells. Raises InputError."""


class JobFacts:
    """Of the workflow in ``submit_dir``, fed event by event, in the order of its logs.
    ``executions`` tells of what HTCondor moved."""

    def __init__(self, submit_dir: SubmitDir, executions: ExecutionOf) -> None:
        self.dir, self._execution = submit_dir, executions
        self.attempts = Jobs(submit_dir.job, submit_dir.workflow)
        # By the job's name: their POST has not ended. A job may have several processes.
        self._pending: dict[str, list[Attempt]] = {}
        # When POST scripts ended (Unix seconds), and how, of jobs that are not told yet.
        self._scripts: dict[int | tuple[int, int], tuple[float, int]] = {}
        self._lost: Counter[tuple[str, float]] = Counter()  # jobs that were never submitted
        self._looked_for: set[str] = set()  # jobs that no log knows of
        self._held: dict[str, Attempt] = {}
        self._dagman_hold: Hold | None = None
        self.dagman_removed: dict[int, Hold] = {}
        """The hold that DAGMan's own job was on when it was removed, by its number."""
        self._run_again = 0.0  # when it was run anew after an end (Unix seconds)
        self._placed = False  # whether the placements were recorded
        self._estimated: Estimated = {}
        self._levels: dict[str, int] | None = None  # of the DAG, by job
        self._journal = Journal(submit_dir.path)
        self._history = CondorHistory()
        self._asking: list[tuple[Attempt, list[Measurement]]] = []

    def run_submitted(self, event: JobEvent) -> None:
        """DAGMan's own job was put into the queue: retries count from 0 again."""
        self.attempts.runs.append((event.at, event.cluster))

    def post_script_ended(self, posted: DagmanStep) -> None:
        """DAGMan says how a POST script ended: the event is lost where it emptied its log since."""
        self._scripts[number_of(posted.cluster, posted.proc)] = posted.at, posted.number

    def feed(self, event: JobEvent) -> list[Measurement]:
        """What the next event tells."""
        facts: list[Measurement] = []
        if not self._placed:
            self._placed = True
            # A sub-DAG without a directory of its own has no mapping of its own.
            plan = read_plan(self.dir.path) if self.dir.braindump else {}
            facts += placement_facts(plan, self.dir.workflow)
            self._estimated = estimates_in(facts)
            facts += self._dag_facts(plan)
        if event.kind is Kind.SUBMIT and self._is_next(event):
            for waiting in self._pending.pop(event.node):
                facts += self._facts_without_post(waiting)
        attempt = self.attempts.feed(event)
        facts += self._held_facts(event)
        if event.kind is Kind.POST_SCRIPT_TERMINATED:
            ended = self.attempts.of(event)
            name = "" if ended is None else ended.job.name
            if ended is not None and not ended.end:  # the log has lost its end
                ended.end = event.at
                self._end_by_record(ended, event.at)
                ended.posted(event.returned or 0)
                return facts + self._attempt_facts(ended, event.at)
            if any(waiting is ended for waiting in self._pending.get(name, ())):
                for waiting in self._pending.pop(name):
                    facts += self._attempt_facts(waiting, event.at)
            return facts
        if attempt is None or event.kind not in (Kind.TERMINATED, Kind.ABORTED):
            return facts
        if attempt.outcome is not Outcome.REMOVED and self._has_post(attempt.job.name):
            self._pending.setdefault(attempt.job.name, []).append(attempt)
            return facts
        return facts + self._attempt_facts(attempt)

    def _dag_facts(self, plan: Mapping[str, Any]) -> list[Measurement]:
        """The shape of the DAG, where that can be read."""
        try:
            parents, levels = self._read_dag()
        except InputError:
            return []
        shape = DagShape.of(parents, levels)
        return [dag_fact(self.dir.workflow, planned_at(self.dir), shape, plan_of(plan))]

    def _read_dag(self) -> tuple[dict[str, tuple[str, ...]], dict[str, int]]:
        """The parents and the level of each job. Raises InputError."""
        parents = {name: node.parents for name, node in self.dir.nodes.items()}
        self._levels = levels_of(parents)
        return parents, self._levels

    def _level(self, job: str) -> int | None:
        """The level of a job in the DAG, where that can be read."""
        if self._levels is None:
            with suppress(InputError):
                self._read_dag()
        return None if self._levels is None else self._levels.get(job)

    def _is_next(self, event: JobEvent) -> bool:
        """Whether a job is submitted anew that still waits for its POST; not the same submission
        from another log, nor another process of it."""
        return any(
            (waiting.cluster, waiting.submit) != (event.cluster, event.at)
            and waiting.end <= event.at
            for waiting in self._pending.get(event.node, ())
        )

    def workflow_ended(self, began: float, at: float, removed: bool) -> list[Measurement]:
        """What is left to tell when DAGMan has ended ``at`` a time (Unix seconds): attempts whose
        POST never came, or whose end is in their own records alone. Where it was ``removed``,
        HTCondor may yet tell how its jobs ended."""
        facts: list[Measurement] = []
        for attempt in [] if removed else [*self.attempts.all, *self._unseen(began)]:
            if not attempt.end and self._end_by_record(attempt, at):
                facts += self._attempt_facts(attempt)
        for attempt in [pending for waiting in self._pending.values() for pending in waiting]:
            facts += self._facts_without_post(attempt)
        self._pending.clear()
        facts += self._ask() if self._asking else []
        return facts

    def _unseen(self, began: float) -> list[Attempt]:
        """For each job of which the log has lost everything, an attempt of the DAGMan that began
        then (Unix seconds)."""
        try:
            names = [name for name in self.dir.nodes if not self.attempts.of_job(name)]
        except InputError:
            return []
        new = [name for name in names if name not in self._looked_for] if began else []
        self._looked_for.update(new)
        return [self._lost_attempt(name, 0, began) for name in new]

    def _lost_attempt(self, name: str, number: int, submit: float) -> Attempt:
        return Attempt(self.dir.job(name), 0, number, 0, submit, workflow=self.dir.workflow)

    def _end_by_record(self, attempt: Attempt, until: float) -> bool:
        """Takes from an attempt's own record how it ended before then (Unix seconds), where there
        is one: the log has lost it."""
        later = (other.submit for other in self.attempts.of_job(attempt.job.name))
        until = min([until, *(at for at in later if at > attempt.submit)])
        began = attempt.start or attempt.submit
        records = read_output(
            attempt.job, began, until, complained=False, number=attempt.number
        ).records
        if records:
            if not attempt.cluster:  # nor is it known when it was submitted
                attempt.submit = min(record.start for record in records)
            attempt.end = max(record.end for record in records)
            attempt.returned = next((record.exitcode for record in records if record.exitcode), 0)
            attempt.outcome = Outcome.FAILED if attempt.returned else Outcome.DONE
        return bool(records)

    def overhead(self, began: float, ended: float) -> list[Measurement]:
        """What the run of a workflow took beside its jobs (Unix seconds): DAGMan's start and end,
        folders made before them and cleaned up after them. Metric ``dag_overhead`` of the submit
        host, s."""
        kinds = (JobKind.COMPUTE, *TRANSFERS)
        done = [attempt for attempt in self.attempts.all if attempt.returned is not None]
        own = [attempt for attempt in done if attempt.job.kind in kinds]
        if not own or not began:
            return []
        first, last = min(attempt.submit for attempt in own), max(attempt.end for attempt in own)
        seconds = max(0.0, first - began) + max(0.0, ended - last)
        workflow = self.dir.workflow
        return [
            Measurement(
                f"dag_overhead:{workflow}", "dag_overhead", RELAY, seconds, "s", ended,
                "event log", workflow,
            )
        ]  # fmt: skip

    def _facts_without_post(self, attempt: Attempt) -> list[Measurement]:
        """An attempt whose POST is in no event log."""
        posted = self._scripts.get(number_of(attempt.cluster, attempt.proc))
        # Numbers of jobs begin anew with each pool.
        at, status = posted or (0.0, 0)
        if posted is None or at < math.floor(attempt.end):
            return self._attempt_facts(attempt)
        attempt.posted(status)
        return self._attempt_facts(attempt, at)

    def failed_unseen(
        self, failed: Mapping[str, str], run: tuple[float, int], at: float
    ) -> list[Measurement]:
        """Of the jobs that DAGMan says ``failed``, with its reasons, those whose end no event log
        knows of: it was lost, or their PRE scripts failed, or their submission. ``run`` is that
        DAGMan, submitted then (Unix seconds) under that number, which ended ``at``."""
        later = [other for other in self.attempts.runs if other > run]
        if later and self.dir.workflow_log is None:
            return []  # the next run emptied the only log that tells which of them ran
        after = min(later, default=(math.inf, 0))
        facts = []
        for name, reason in failed.items():
            tries = self.attempts.of_job(name)
            own = [attempt for attempt in tries if run <= (attempt.submit, attempt.cluster) < after]
            if any(attempt.end for attempt in own):
                for attempt in self._pending.get(name, ()):  # how its POST ended is lost
                    if (
                        attempt.outcome is Outcome.DONE
                        and number_of(attempt.cluster, attempt.proc) not in self._scripts
                    ):
                        attempt.outcome, attempt.reason = Outcome.FAILED, reason
                continue
            if own:
                last = own[-1]
                if not self._end_by_record(last, at):
                    last.end, last.reason = at, reason
                last.outcome = Outcome.FAILED
                facts += self._attempt_facts(last)
                continue
            # Of those that are told at one time, each has a number.
            number = self._lost[name, at]
            self._lost[name, at] += 1
            self._looked_for.add(name)
            lost = self._lost_attempt(name, number, run[0])
            if run[0] and self._end_by_record(lost, at):
                lost.outcome = Outcome.FAILED
                facts += self._attempt_facts(lost)
                continue
            lost.submit, lost.end, lost.outcome, lost.reason = at, at, Outcome.FAILED, reason
            planner = planner_error(self.dir.path / f"{name}.pre.log")
            facts.append(_job_fact(lost, JobOutput(stderr=planner), self._level(name)))
        return facts

    def _held_facts(self, event: JobEvent) -> list[Measurement]:
        """Which jobs are held, and why, where this event changed that: with all of them held,
        nothing goes on until somebody looks."""
        attempt = self.attempts.of(event)
        if attempt is None or (attempt.outcome is Outcome.HELD) == (attempt.key in self._held):
            return []
        if attempt.outcome is Outcome.HELD:
            self._held[attempt.key] = attempt
        else:
            del self._held[attempt.key]
        return [self._held_fact(event, attempt.key, attempt.job.name)]

    def run_again(self, key: str, at: float) -> Measurement:
        """DAGMan began anew ``at`` a time (Unix seconds), as its change of status with this ``key``
        says: what was held before is none of its jobs."""
        self._run_again = at
        return self._held_as(f"run:{key}", at, DAGMAN_JOB)

    def dagman_held(self, event: JobEvent) -> list[Measurement]:
        """The same where DAGMan's own job is put on hold, or is no longer."""
        if (event.kind is Kind.HELD) == (self._dagman_hold is not None):
            return []
        if event.kind is Kind.ABORTED and self._dagman_hold is not None:
            self.dagman_removed[event.cluster] = self._dagman_hold
        self._dagman_hold = None
        if event.kind is Kind.HELD:
            self._dagman_hold = Hold(event.at, event.reason, event.code, event.subcode)
        return [self._held_fact(event, f"{event.cluster}.{event.proc}", DAGMAN_JOB)]

    def _held_fact(self, event: JobEvent, key: str, job: str) -> Measurement:
        again = f":{event.nth + 1}" if event.nth else ""
        return self._held_as(f"{key}:{int(event.kind)}:{event.at:.3f}{again}", event.at, job)

    def _held_as(self, key: str, at: float, job: str) -> Measurement:
        workflow = self.dir.workflow
        began = self._run_again if at >= self._run_again else 0.0
        held = [attempt for attempt in self._held.values() if attempt.submit >= began]
        holds = [(attempt.job.name, attempt.job.site, attempt.hold) for attempt in held]
        if self._dagman_hold is not None:
            holds.insert(0, (DAGMAN_JOB, RELAY, self._dagman_hold))
        shown = [{"job": name, "site": site} | asdict(hold) for name, site, hold in holds if hold]
        return Measurement(
            id=f"held:{workflow}:{key}",
            metric="held",
            subject=workflow,
            value=float(len(held)),
            unit="1",
            at=at,
            source="event log",
            workflow=workflow,
            details={"job": job, "held": shown[:_MOST_HELD]},
        )

    def _has_post(self, job: str) -> bool:
        """Whether the DAG has a POST script for a job; it may where the DAG cannot be read."""
        try:
            node = self.dir.nodes.get(job)
        except InputError:
            return True
        return node is not None and node.has_post

    def _retry(self, attempt: Attempt) -> int:
        """How often DAGMan tried before, in this run of it."""
        # Numbers of jobs tell what was first in one second.
        this, began = (attempt.submit, attempt.cluster), self.attempts.run_of(attempt)
        before = {
            other.cluster
            for other in self.attempts.of_job(attempt.job.name)
            if other.cluster != attempt.cluster and began <= (other.submit, other.cluster) <= this
        }
        return len(before)

    def _attempt_facts(self, attempt: Attempt, post_at: float | None = None) -> list[Measurement]:
        attempt.retry = self._retry(attempt)
        complained = attempt.outcome is not Outcome.DONE
        # A job that ended by itself has run, also where no event says when it began.
        started = attempt.start or (0.0 if attempt.returned is None else attempt.submit)
        left = read_output(
            attempt.job, started, attempt.end, complained=complained, number=attempt.number
        )
        ready = self._ready(attempt)
        wait = queue_wait(attempt, ready, left.work_s)
        facts = run_facts(attempt, left.records) + ([] if wait is None else [wait])
        job = _job_fact(attempt, left, self._level(attempt.job.name))
        facts += [job, *_task_facts(attempt, left.records)]
        until = (attempt.end if post_at is None else post_at) + _CLOCK_S
        lines = self._journal.transfers(attempt.job.name, attempt.start or attempt.submit, until)
        if left.moved or left.logged or lines:
            moved = transfer_facts(attempt, left, lines, transfer_list(attempt.job.output))
            facts += moved + setup_facts(attempt, ready, moved)
        task = attempt.job.task or next(iter(job.details["task_ids"]), "")
        facts += estimate_errors(task, attempt.job.site, facts, self._estimated)
        facts += [] if wait is None else by_kind(wait, _transformations(attempt.job, left.records))
        facts += self._moved_by_condor(attempt)
        self._scripts.pop(number_of(attempt.cluster, attempt.proc), None)
        self.dir.forget_job(attempt.job.name)
        attempt.job = attempt.job.ended
        return facts

    def _ready(self, attempt: Attempt) -> float:
        """When DAGMan could have submitted it (Unix seconds): when the last of its parents had
        ended, or the try before; as it was submitted where no log tells."""
        own = self._ended(attempt.job.name, attempt)
        if own is not None:
            return own
        try:
            node = self.dir.nodes.get(attempt.job.name)
        except InputError:
            node = None
        parents = node.parents if node is not None else ()
        ends = [self._ended(parent, attempt) for parent in parents]
        known = [end for end in ends if end is not None]
        return max(known) if known and len(known) == len(ends) else attempt.submit

    def _ended(self, job: str, before: Attempt) -> float | None:
        """When a job had ended last before an attempt was submitted, in the same run of DAGMan. By
        nothing that a later reader knows and an earlier one did not: of removed jobs HTCondor
        writes the end when it likes."""
        began = self.attempts.run_of(before)
        ends = [
            attempt.end
            for attempt in self.attempts.of_job(job)
            if attempt.returned is not None
            and began <= (attempt.submit, attempt.cluster) < (before.submit, before.cluster)
            and attempt.end <= before.submit
        ]
        return max(ends, default=None)

    def is_rerun(self, began: float) -> bool:
        """Whether jobs were submitted before DAGMan began (Unix seconds): by an earlier one."""
        return any(attempt.submit < math.floor(began) for attempt in self.attempts.all)

    def _moved_by_condor(self, attempt: Attempt) -> list[Measurement]:
        facts: list[Measurement] = []
        with suppress(InputError):  # not to be read: then nobody tells
            execution = self._execution(attempt.cluster, attempt.proc)
            if attempt.start and attempt.job.site not in ("", ACCESS_POINT):
                facts = condor_transfer_facts(attempt, execution)
        if facts and attempt.job.moves_urls:
            self._asking.append((attempt, facts))
            return self._ask() if len(self._asking) >= _ASKED_TOGETHER else []
        return facts

    def _ask(self) -> list[Measurement]:
        """What plug-ins moved for the attempts that wait to be asked for, and HTCondor besides."""
        asking, self._asking = self._asking, []
        ads = self._history.ads([attempt.cluster for attempt, _ in asking])
        facts: list[Measurement] = []
        for attempt, moved in asking:
            plugins = plugin_facts(attempt, ads)
            facts += [*plugins, *own_protocol_transfers(moved, plugins)]
        return facts


def job_subject(job: PlannedJob) -> str:
    """``soykb::bwa_mem:1.0@mu``; of a job without transformation, its kind."""
    return runtime_subject(job.transformation or str(job.kind), job.site)


def _transformations(job: PlannedJob, records: Sequence[JobRecord]) -> list[str]:
    if not job.is_clustered:
        return [job.transformation]
    return [task.transformation for task in job.tasks] + [task.transformation for task in records]


def _task_facts(attempt: Attempt, records: Sequence[JobRecord]) -> list[Measurement]:
    """Metric ``task``: each task of a clustered job that ran, as a run of its transformation."""
    job, workflow = attempt.job, attempt.workflow
    if not job.is_clustered:
        return []
    return [
        Measurement(
            id=f"task:{workflow}:{attempt.key}:{number}",
            metric="task",
            subject=runtime_subject(record.transformation or job.transformation, job.site),
            value=record.runtime_s,
            unit="s",
            at=record.end,
            source=record.source,
            workflow=workflow,
            details={
                "of": f"job:{workflow}:{attempt.key}",
                "job": job.name,
                "task": record.task,
                "kind": str(job.kind),
                "outcome": str(Outcome.FAILED if record.exitcode else Outcome.DONE),
                "exitcode": record.exitcode,
                "host": record.host or attempt.slot or None,
                "cpu_s": record.cpu_s,
            },
        )
        for number, record in enumerate(records)
    ]


def _job_fact(attempt: Attempt, left: JobOutput, level: int | None) -> Measurement:
    job, records, workflow = attempt.job, left.records, attempt.workflow
    seconds = attempt.ran_s if left.work_s is None else left.work_s
    # pegasus-mpi-cluster tries tasks again: the last run of each says how it ended.
    last = {(job.is_clustered and record.task) or n: record for n, record in enumerate(records)}
    failed = [record for record in last.values() if record.exitcode]
    known = [task.id for task in job.tasks] or [record.task for record in last.values()]
    # As pegasus-analyzer: what ran around the tool returns another code where that failed.
    returned = failed[0].exitcode if failed else attempt.returned
    return Measurement(
        id=f"job:{workflow}:{attempt.key}",
        metric="job",
        subject=job_subject(job),
        value=round(max(0.0, seconds), 6),
        unit="s",
        at=attempt.end,
        source=records[-1].source if records else "event log",
        workflow=workflow,
        details={
            "job": job.name,
            "level": level,
            "cluster": attempt.cluster,
            "task": job.task,
            "kind": str(job.kind),
            "attempt": attempt.number,
            "retry": attempt.retry,
            "outcome": str(attempt.outcome),
            "reason": attempt.reason,
            "hold": None if attempt.hold is None else asdict(attempt.hold),
            "exitcode": returned,
            "host": next((record.host for record in records if record.host), None)
            or attempt.slot
            or None,
            "submitted_at": attempt.submit,
            "started_at": attempt.start or None,
            "slot_s": round(attempt.ran_s, 6),
            "queued_s": round(attempt.queued_s, 6),
            "starts": attempt.starts,
            "tasks": len(records),
            "task_ids": known[:_MOST_TASKS] if job.is_clustered else [],
            "failed_tasks": [
                {
                    "task": record.task,
                    "transformation": record.transformation,
                    "exitcode": record.exitcode,
                }
                for record in (failed[:_MOST_TASKS] if job.is_clustered else ())
            ],
            "cpu_s": _sum([record.cpu_s for record in records]),
            "bytes_in": sum(record.bytes_in for record in records) if records else None,
            "bytes_out": sum(record.bytes_out for record in records) if records else None,
            "stderr": left.stderr,
            "output": "" if left.output is None else str(left.output.absolute()),
            "not_found": _not_found(attempt, left),
        },
    )


def _not_found(attempt: Attempt, left: JobOutput) -> str:
    """The name of the output that a job should have left, where it failed and that is not there."""
    output = attempt.job.output
    is_lost = attempt.starts and attempt.outcome is not Outcome.DONE and left.output is None
    return output.name if is_lost and output is not None else ""


def _sum(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(sum(known), 6) if known else None
