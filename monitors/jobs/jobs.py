"""The jobs of one workflow with their attempts, as a function of the events in its logs.

    PRE ─► submitted ─► running ─► ended ─► POST
              ▲ ▲          │
              │ └─ evicted ┤
              └ released ─ held

An attempt is one submission of one process of a job. Logs overlap, are read in portions, and lose
lines, so the events come in any number and order:

- an event that comes again changes nothing, nor does one that comes after the end of its attempt;
- an event belongs to the attempt with its cluster and process, submitted before it; where nobody
  told of that submission, DAGMan's log may have named the job, and else the event is passed over;
- logs of jobs are read before DAGMan's: a PRE that is told of may be older than a submission, until
  DAGMan tells of that, too.

Nothing here reads a clock or a file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple

from monitors.workflows.logs.dagman import DagmanStep, StepKind
from monitors.workflows.logs.events import JobEvent, Kind
from monitors.workflows.planned.submit_dir import JobKind, PlannedJob

_CLOCKS_S = 2.0  # two logs may write the time of one event differently
_ON_HOLD = ("submitted on hold at user's request", 15, 0)
"""HTCondor's reason and codes (``SubmittedOnHold``) for a job with ``hold = True``."""


class Reading(NamedTuple):
    """When an event was read: in which look at the logs, and by a clock of the reader's own."""

    look: int = 0
    at: float = 0.0


UNREAD = Reading()
Run = tuple[float, int]
"""A run of DAGMan: when its own job was submitted (Unix seconds), and under which number."""
UNKNOWN_RUN: Run = (0.0, 0)


class Outcome(StrEnum):
    """The state of an attempt. ``REMOVED`` is what ``condor_rm`` does."""

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


@dataclass(slots=True)
class Attempt:
    """One submission of a job. Times in Unix seconds, 0 where it did not happen (yet).

    ``start`` is of the last execution, ``left`` when that lost its machine before the end of the
    attempt; ``starts`` counts them; ``first`` is of the first, before which it was on hold for
    ``held_s``. ``run`` is the run of DAGMan that submitted it. ``waited_for_own`` tells that a job
    of the same run ended at the same site while this one waited: it may have waited for that one
    and not for the site. ``width`` is how many jobs of the run asked for slots there when this one
    got its own. ``retry`` is how often the same DAGMan had tried before. ``hold`` is the hold that
    it is on, or was on when it was removed; ``reason`` why it was removed. ``last`` is its newest
    event, ``at`` that event's time, ``read`` when that was read. ``had`` are its events, until it
    is over.
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
    run: Run = UNKNOWN_RUN
    waited_for_own: bool = False
    width: int = 0
    workflow: str = ""
    retry: int = 0
    hold: Hold | None = None
    reason: str = ""
    last: Kind = Kind.SUBMIT
    at: float = 0.0
    read: Reading = UNREAD
    left: float = 0.0
    first: float = 0.0
    held_s: float = 0.0
    had: set[tuple[Kind, float, int]] | None = field(default=None, compare=False, repr=False)

    @property
    def key(self) -> str:
        """Tells this attempt from all others of the workflow, also after the pool was made anew."""
        return f"{self.job.name}:{self.cluster}.{self.proc}:{self.submit:.3f}"

    @property
    def is_over(self) -> bool:
        """Whether it has ended, as its job's log or its POST script says."""
        return bool(self.end) or self.last is Kind.POST_SCRIPT_TERMINATED

    @property
    def ran_s(self) -> float:
        """How long its last execution had a machine (s), 0 where it had none."""
        return max(0.0, (self.left or self.end) - self.start) if self.start else 0.0

    @property
    def queued_s(self) -> float:
        """How long it waited for its first machine (s), without time on hold."""
        until = self.first or self.start or (self.end if self.hold is None else self.hold.since)
        return max(0.0, until - self.submit - self.held_s)

    def has_had(self, event: JobEvent) -> bool:
        """Whether an event of it comes again. Once it is over none changes it but the end of its
        POST script, so that 100,000 jobs need not remember theirs."""
        if self.is_over:
            is_post = self.last is event.kind is Kind.POST_SCRIPT_TERMINATED
            return is_post and event.at <= self.at
        mark = event.kind, event.at, event.nth
        self.had = self.had or set()
        is_again = mark in self.had
        self.had.add(mark)
        return is_again

    def posted(self, status: int) -> None:
        """Its POST script, which has the last word on the job, ended with this exit status, minus
        the signal where one ended it."""
        self.outcome = Outcome.FAILED if status else Outcome.DONE
        if status and self.returned == 0:
            how = f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"
            self.reason = f"its POST script {how}"


class PreScript(NamedTuple):
    """A PRE script that began at ``start``; ``at`` is the time of its newest event, ``status`` how
    it ended, minus the signal where one ended it, None as long as it runs. Unix seconds. ``read``
    is when that event was read."""

    start: float
    at: float
    status: int | None
    read: Reading


@dataclass(slots=True)
class Job:
    """One job of the DAG.

    ``attempts`` in the order of their submission events. ``current`` is the process of the newest
    submission that tells how the job stands: the one with the newest event, of those that have not
    ended where some have not. ``pre`` is its PRE script, until the job is submitted;
    ``pre_failures`` are the times at which one failed.
    """

    name: str
    attempts: tuple[Attempt, ...] = ()
    current: Attempt | None = None
    pre: PreScript | None = None
    pre_failures: tuple[float, ...] = ()
    _left: int = 0  # processes of the newest submission that have not ended

    def submitted(self, attempt: Attempt, lost: bool) -> None:
        """A process of it was submitted; ``lost``: as a later event of it shows."""
        self.attempts = (*self.attempts, attempt)  # mostly one: no list with room for more
        newest = self.current.cluster if self.current is not None else attempt.cluster
        if lost and attempt.cluster < newest:
            return
        # A pool made anew may give the same number to another submission: each begins with 0.
        more = self.current is not None and attempt.cluster == newest
        self._left = self._left + 1 if more and attempt.proc else 1
        self.current, self.pre = attempt, None

    def changed(self, attempt: Attempt, ended: bool) -> None:
        """Something happened to a process of it."""
        if self.current is None or self.current.cluster != attempt.cluster:
            return  # a late event of an earlier submission
        self._left = 0 if attempt.last is Kind.POST_SCRIPT_TERMINATED else self._left - ended
        if ended and self._left:
            others = (other for other in reversed(self.attempts) if not other.is_over)
            attempt = next((other for other in others if other.cluster == attempt.cluster), attempt)
        self.current = attempt


class DagmanState(StrEnum):
    """What DAGMan does. ``GONE`` is killed or held: the schedd may start it again, and its jobs run
    on; ``ENDED`` is for good: done, failed, or removed."""

    STARTED = "started"
    GONE = "gone"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class DagEvent:
    """DAGMan started, ended or is gone. ``at`` in Unix seconds; ``code`` is its exit status, minus
    the signal where one ended it, None where nobody says."""

    state: DagmanState
    at: float
    code: int | None = None


AnyEvent = JobEvent | DagmanStep | DagEvent
"""What a workflow's logs tell: of a job, by HTCondor or by DAGMan, or of DAGMan itself."""


def unplanned_job(name: str) -> PlannedJob:
    """A job of which nothing but its name is of interest."""
    return PlannedJob(name, JobKind.OTHER)


def number_of(cluster: int, proc: int) -> int | tuple[int, int]:
    """HTCondor's number of a job, in as little memory as most need."""
    return (cluster, proc) if proc else cluster


class Jobs:
    """All jobs of one workflow, and its DAG.

    ``job`` gives the planned job of a name, ``workflow`` is the UUID. ``names`` are the jobs' by
    HTCondor's numbers as DAGMan tells them, of those whose submission was not read. ``runs`` are
    DAGMan's; each run is added before the events of its jobs. ``dag`` is
    DAGMan's newest event, None before the first, ``dag_read`` when that was read. ``began`` is when
    the DAGMan started whose jobs count (Unix seconds, 0 where nobody says): one that goes on where
    another was killed counts the jobs of that, too. ``reading`` is noted with each event; whoever
    feeds them sets it.
    """

    def __init__(
        self, job: Callable[[str], PlannedJob] = unplanned_job, workflow: str = ""
    ) -> None:
        self._job, self._workflow = job, workflow
        self.names: dict[int, str] = {}
        self.runs: list[Run] = []
        self.all: list[Attempt] = []
        self.dag: DagEvent | None = None
        self.began = 0.0
        self.reading = self.dag_read = UNREAD
        self._jobs: dict[str, Job] = {}
        self._live: dict[int | tuple[int, int], Attempt] = {}
        # By site and run of DAGMan. HTCondor may write the ends of removed jobs long after the next
        # run has begun: whether they were read yet must not change what is known of that run.
        self._own_end: dict[tuple[str, Run], float] = {}
        self._asking: Counter[tuple[str, Run]] = Counter()  # compute jobs that wait or run

    def __iter__(self) -> Iterator[Job]:
        return iter(self._jobs.values())

    def get(self, name: str) -> Job | None:
        """A job; None where nothing was heard of it."""
        return self._jobs.get(name)

    def of_job(self, name: str) -> Sequence[Attempt]:
        """All attempts of one job so far, in the order of their submission events."""
        job = self._jobs.get(name)
        return () if job is None else job.attempts

    def of(self, event: JobEvent) -> Attempt | None:
        """The attempt that an event is of, None where its submission was not seen."""
        attempt = self._live.get(number_of(event.cluster, event.proc))
        return None if attempt is None or event.at < attempt.submit else attempt

    def run_of(self, attempt: Attempt) -> Run:
        """The run of DAGMan that an attempt was of, by the ``runs`` that are known now."""
        this = (attempt.submit, attempt.cluster)  # numbers tell what was first in one second
        return max((run for run in self.runs if run <= this), default=UNKNOWN_RUN)

    def take(self, event: AnyEvent) -> str | None:
        """Take the next event; the name of the job whose state it changed, "" for the DAG's, None
        for none."""
        if isinstance(event, DagEvent):
            return "" if self.feed_dag(event) else None
        if isinstance(event, DagmanStep):
            job = self.feed_step(event)
            return None if job is None else job.name
        attempt = self.feed(event)
        if attempt is None or self._jobs[attempt.job.name].current is not attempt:
            return None
        return attempt.job.name

    def feed(self, event: JobEvent) -> Attempt | None:
        """Take the next event of a job; the attempt that it changed, None for none."""
        kind = event.kind
        if kind is Kind.SUBMIT:
            return self._submitted(event)
        attempt = self.of(event)
        if attempt is None and kind in (Kind.EXECUTE, Kind.TERMINATED):
            # The log has lost its submission, and DAGMan may have told of it.
            name = self.names.get(event.cluster, "")
            first = self._live.get(event.cluster)  # of the same submission
            if not name and event.proc and first is not None and first.submit <= event.at:
                name = first.job.name
            self._submitted(replace(event, node=name))
            attempt = self.of(event)
        if attempt is None or attempt.has_had(event) or not self._change(attempt, event):
            return None
        ended = kind in (Kind.TERMINATED, Kind.ABORTED)
        self._jobs[attempt.job.name].changed(attempt, ended)
        return attempt

    def feed_step(self, step: DagmanStep) -> Job | None:
        """Take what DAGMan says of a job; the job that it changed, None for none."""
        if step.step is StepKind.SUBMITTED:
            self.names[step.cluster] = step.node
            job = self._jobs.get(step.node)
            if job is None or job.pre is None:
                return None
            job.pre = None  # it is older than the submission that the job's log told of
        elif step.step is StepKind.PRE_STARTED:
            job = self._named(step.node)
            job.pre = PreScript(step.at, step.at, None, self.reading)
        elif step.step is StepKind.PRE_ENDED:
            job = self._named(step.node)
            start = job.pre.start if job.pre is not None else step.at
            job.pre = PreScript(start, step.at, step.number, self.reading)
            if step.number:
                job.pre_failures = (*job.pre_failures, step.at)
        else:
            return None
        return job

    def feed_dag(self, event: DagEvent) -> bool:
        """Take what happened to DAGMan; whether it is news. Two logs tell of it: the first one
        counts."""
        state = self.dag.state if self.dag is not None else None
        if event.state is state or (state, event.state) == (DagmanState.ENDED, DagmanState.GONE):
            return False
        if event.state is DagmanState.STARTED and state is not DagmanState.GONE:
            self.began = event.at
        self.dag, self.dag_read = event, self.reading
        return True

    def _named(self, name: str) -> Job:
        if name not in self._jobs:
            self._jobs[name] = Job(name)
        return self._jobs[name]

    def _submitted(self, event: JobEvent) -> Attempt | None:
        if not event.node:
            return None
        number = (event.cluster, event.proc)
        job, known = self._named(event.node), self._live.get(number_of(*number))
        same = known is not None and known.job.name == event.node
        if same and known is not None and event.at <= known.at + _CLOCKS_S:
            return None  # another log tells of it
        if any((a.cluster, a.proc, a.submit) == (*number, event.at) for a in job.attempts):
            return None  # it comes again, and the number is another one's by now
        # A known number, but later: in a pool made anew the numbers begin again.
        attempt = Attempt(
            self._job(event.node), *number, len(job.attempts), event.at,
            workflow=self._workflow, at=event.at, read=self.reading,
        )  # fmt: skip
        if attempt.job.on_hold:  # of which HTCondor writes no event of its own
            attempt.outcome = Outcome.HELD
            attempt.hold = Hold(event.at, *_ON_HOLD)
        attempt.run = self.run_of(attempt)
        self._live[number_of(*number)] = attempt
        self._asking[attempt.job.site, attempt.run] += attempt.job.kind is JobKind.COMPUTE
        self.names.pop(event.cluster, None)  # the attempt has it from now on
        self.all.append(attempt)
        job.submitted(attempt, lost=event.kind is not Kind.SUBMIT)
        return attempt

    def _change(self, attempt: Attempt, event: JobEvent) -> bool:
        """Apply an event that is no submission; whether it changed the attempt."""
        kind = event.kind
        if kind is Kind.POST_SCRIPT_TERMINATED:
            attempt.posted(event.returned or 0)
        elif attempt.is_over:
            return False
        elif kind is Kind.EXECUTE:
            attempt.start, attempt.slot, attempt.hold = event.at, event.slot, None
            attempt.left, attempt.first = 0.0, attempt.first or event.at
            attempt.starts += 1
            attempt.outcome = Outcome.RUNNING
            site_run = (attempt.job.site, attempt.run)
            attempt.waited_for_own = self._own_end.get(site_run, 0.0) > attempt.submit
            attempt.width = self._asking[site_run]
        elif kind in (Kind.TERMINATED, Kind.ABORTED):
            self._end(attempt, event)
        elif kind is Kind.HELD:
            attempt.left = attempt.left or event.at
            attempt.outcome = Outcome.HELD
            attempt.hold = Hold(event.at, event.reason, event.code, event.subcode)
        elif kind is Kind.RELEASED:
            if attempt.hold is not None and not attempt.first:
                attempt.held_s += max(0.0, event.at - attempt.hold.since)
            attempt.outcome, attempt.hold = Outcome.QUEUED, None
        elif kind in (Kind.EVICTED, Kind.SHADOW_EXCEPTION, Kind.RECONNECT_FAILED):
            attempt.left = attempt.left or event.at
            if attempt.hold is None:
                attempt.outcome = Outcome.QUEUED
        else:
            return False
        attempt.last, attempt.at, attempt.read = kind, event.at, self.reading
        if attempt.is_over:
            attempt.had = None
        return True

    def _end(self, attempt: Attempt, event: JobEvent) -> None:
        attempt.end, attempt.returned = event.at, event.returned
        removed = event.kind is Kind.ABORTED
        if removed:
            attempt.reason = event.reason
        else:
            attempt.hold = None
        failed = Outcome.REMOVED if removed else Outcome.FAILED
        attempt.outcome = Outcome.DONE if event.returned == 0 else failed
        if attempt.job.kind is JobKind.COMPUTE:
            site_run = (attempt.job.site, attempt.run)
            self._own_end[site_run] = event.at
            self._asking[site_run] -= 1
