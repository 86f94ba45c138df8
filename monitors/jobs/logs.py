"""The logs of one workflow, each followed once for everybody who wants to know of its jobs.

    <dag>.nodes.log, <condor_log of braindump.yml>   what HTCondor did with its jobs
    <dag>.dagman.out                                 DAGMan's life and its PRE scripts
    <dag>.dagman.log                                 what HTCondor did with DAGMan
    the jobs' own logs                               where the first two are not there

The logs of the jobs are read before DAGMan's, which tells of the same later.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import merge
from pathlib import Path

from monitors.jobs.executions import Execution, LastExecutions
from monitors.jobs.jobs import AnyEvent, DagEvent, DagmanState
from monitors.jobs.named_logs import KINDS, NamedLogs
from monitors.workflows.logs.dagman import DagmanParser, DagmanStep, StatusChange, StepKind
from monitors.workflows.logs.events import JOB_KINDS, EventTail, JobEvent, Kind
from monitors.workflows.logs.stamps import HERE, LogTimes
from monitors.workflows.logs.tail import FileState, Tail, state_of
from monitors.workflows.planned.foreign_files import exists
from monitors.workflows.planned.submit_dir import SubmitDir
from network_provisioner.base.errors import InputError

_DAGMAN_STATES = {
    Kind.EXECUTE: DagmanState.STARTED,
    Kind.EVICTED: DagmanState.GONE,
    Kind.SHADOW_EXCEPTION: DagmanState.GONE,
    Kind.HELD: DagmanState.GONE,
    Kind.TERMINATED: DagmanState.ENDED,
    Kind.ABORTED: DagmanState.ENDED,
}

Job = tuple[int, int]  # HTCondor's numbers of it: cluster and process
Moment = tuple[float, int, int]  # of an event of a job: when, which kind, and which of the same

_PORTION = 10_000  # events that wait at once: memory stays flat
_EMPTY = (-1, 0)  # sizes of a file that is not there or has nothing in it


class JobEvents:
    """The events in ``<dag>.nodes.log``, each once, and before them what that has lost.

    DAGMan empties it at every start. The workflow's own log has earlier runs too, and the last
    words of a run whose end nobody read before the next began. Where neither is there, ``named``
    tells what is left.
    """

    def __init__(
        self,
        nodes_log: Path,
        log: Path | None,
        named: NamedLogs | None = None,
        times: LogTimes | None = None,
    ) -> None:
        self.path, self._nodes = nodes_log, EventTail(nodes_log, times=times)
        self._log = None if log is None else EventTail(log, KINDS, times)
        self._executions = LastExecutions()
        self._named, self._is_instead = named, False
        self._lacks = True  # whether what stands in the other log alone is to be read
        self._begun = 0  # how many files nodes.log was until then
        self._has_any = False  # whether the one that it is told of anything
        self._before: list[JobEvent] = []  # of files that it was, not told yet
        self._waiting: list[JobEvent] = []  # of the one that it is
        self._other: list[JobEvent] = []  # of the other log, not told
        self._unfiltered = 0  # events that were told since it was last without those
        self._last: dict[Job, Moment] = {}  # each job's last, of those that are in both logs
        self.seen: FileState = (None, -1, -1)
        """How that file was when all was last read."""

    @property
    def paths(self) -> list[Path]:
        """The files in which they stand."""
        return [self.path] if self._log is None else [self.path, self._log.path]

    @property
    def changed_at(self) -> float:
        """See :attr:`~monitors.workflows.logs.tail.Tail.changed_at`."""
        return self._nodes.tail.changed_at

    def read(self) -> Iterator[JobEvent]:
        """Those that are new. Raises InputError where a file is there and cannot be read: what
        comes later in time waits until it can be."""
        if self._named is None or (self._is_there() and not self._is_instead):
            yield from self._read_logs()
            return
        seen = state_of(self.path)
        events = self._named.read()
        if not self._is_instead and self._is_there():  # it came meanwhile
            yield from self._read_logs()
            return
        self._is_instead |= bool(events)
        yield from events
        self.seen = seen

    def _read_logs(self) -> Iterator[JobEvent]:
        # Before reading: what comes meanwhile makes the next look read again.
        seen = state_of(self.path)
        self._lacks |= not self._has_any or seen[1] in _EMPTY
        for _ in self._wait():
            self._read_lost()
            yield from self._in_order()
        if self._read_lost():
            for _ in self._wait():  # whose events they are that were written since
                pass
        yield from self._in_order()
        self._other = _after(self._other, self._last)
        self.seen = seen

    def _read_lost(self) -> bool:
        """Reads in the other log what this one may have lost; whether it may have lost anything."""
        if self._log is None or not self._lacks:
            return False
        self._read_other(self._log)
        return True

    def _in_order(self) -> Iterator[JobEvent]:
        """Those that wait, and before them those that were lost."""
        if self._lacks:
            self._lacks = False
            yield from self._earlier()
        waiting, self._waiting = self._waiting, []
        if self._log is not None and self._log.tail.begun:  # else no event is in both
            self._last.update(_last_of(waiting))
            self._unfiltered += len(waiting)
            if 2 * self._unfiltered > len(self._other):  # not at each portion: it may be long
                self._other, self._unfiltered = _after(self._other, self._last), 0
        yield from waiting

    def _read_other(self, log: EventTail) -> None:
        for event in log.read():
            self._executions.feed(event)
            if event.kind in JOB_KINDS:
                self._other.append(event)

    def execution(self, cluster: int, proc: int) -> Execution | None:
        """The last execution of a process, once, where the workflow's own log tells of it:
        nodes.log has no transfers. Raises InputError where that is there and cannot be read."""
        if self._named is not None and self._is_instead:
            return self._named.execution(cluster, proc)
        if self._log is None or not self._log.path.exists():
            return None
        self._read_other(self._log)
        return self._executions.take(cluster, proc)

    @property
    def is_lost(self) -> bool:
        """Whether of some jobs nothing but DAGMan's words is left."""
        return self._named is not None and self._named.is_lost

    @property
    def has_named(self) -> bool:
        """Whether logs of the jobs' own tell of others."""
        return self._named is not None and self._named.is_read

    @property
    def is_read(self) -> bool:
        """Whether anything was read."""
        logs = (self._nodes, self._log)
        return self._is_instead or any(log is not None and log.tail.begun > 0 for log in logs)

    def _is_there(self) -> bool:
        """Whether a log was read, or can be looked into."""
        return self.is_read or any(map(exists, self.paths))

    def _wait(self) -> Iterator[None]:
        """Has new events wait; stops where many do: a log may have millions."""
        for event in self._nodes.read():
            self._notice_rotation()
            self._waiting.append(event)
            self._has_any = True
            if len(self._waiting) >= _PORTION:
                yield
        self._notice_rotation()

    def _notice_rotation(self) -> None:
        """Where it is another file than before, what was written last into that may be lost."""
        if self._nodes.tail.begun != self._begun:
            self._begun, self._lacks, self._has_any = self._nodes.tail.begun, True, False
            self._before += self._waiting
            self._waiting = []

    def _earlier(self) -> Iterator[JobEvent]:
        """Of the run that is in nodes.log, that alone says in what order things happened, and how
        POST scripts ended; of those before, what it said comes with the rest."""
        before, self._before = self._before, []
        other, self._other = self._other, []
        reported, self._last = self._last | _last_of(before), {}
        # Numbers tell what was first in one second.
        submissions = ((e.at, e.cluster) for e in self._waiting if e.kind is Kind.SUBMIT)
        first = min(submissions, default=None)
        later: set[Job] = set()
        lost: list[JobEvent] = []
        for event in _after(other, reported):
            job = (event.cluster, event.proc)
            if event.kind is Kind.SUBMIT:
                later.discard(job)
                if first is not None and (event.at, event.cluster) >= first:
                    later.add(job)
            if job in later:
                self._other.append(event)  # nodes.log may be emptied before it is read there
            else:
                lost.append(event)
        return merge(before, lost, key=lambda event: event.at)


def _last_of(events: Iterable[JobEvent]) -> dict[Job, Moment]:
    """Each job's last event. Ends of POST scripts stand in nodes.log alone."""
    return {
        (event.cluster, event.proc): _moment(event)
        for event in events
        if event.kind is not Kind.POST_SCRIPT_TERMINATED
    }


def _after(events: Sequence[JobEvent], reported: Mapping[Job, Moment]) -> list[JobEvent]:
    """Those that came after what was told of their jobs: both logs have a job's events in the same
    order. Of a job whose told ones are not among them, all."""
    jobs: set[Job] = set()
    rest: list[JobEvent] = []
    for event in reversed(events):
        job = (event.cluster, event.proc)
        if job not in jobs:
            if reported.get(job) == _moment(event):
                jobs.add(job)
            else:
                rest.append(event)
    return rest[::-1]


def _moment(event: JobEvent) -> Moment:
    return event.at, int(event.kind), event.nth


class WorkflowLogs:
    """Of the workflow in ``plan``. ``times`` say what the logs' own times do not.

    ``jobs`` has the events of its jobs, ``dagman`` those of DAGMan's own job, ``out`` is what
    DAGMan writes, ``parser`` what it made of that; ``pid`` is the process of the DAGMan that runs,
    0 for none. Everything here raises InputError where a log is there and cannot be read.
    """

    def __init__(self, plan: SubmitDir, times: LogTimes | None = None) -> None:
        self._plan, self._times = plan, times
        self.find_job_events()
        self.dagman = EventTail(plan.dagman_log, times=times)
        self.out, self.parser = Tail(plan.dagman_out), DagmanParser(times=times or HERE)
        self.pid = 0

    def find_job_events(self) -> None:
        """Look for the log of the jobs' events, where none was read so far."""
        plan, named = self._plan, NamedLogs(self._plan, self._times)
        self.jobs = JobEvents(plan.nodes_log, plan.workflow_log, named, self._times)

    @property
    def paths(self) -> list[Path]:
        """The files whose growth tells that something happened."""
        return [*self.jobs.paths, self.out.path, self.dagman.path]

    @property
    def seen(self) -> tuple[FileState, ...]:
        """How the files were when they were read."""
        return self.out.seen, self.dagman.tail.seen, self.jobs.seen

    @property
    def changed_at(self) -> float:
        """See :attr:`~monitors.workflows.logs.tail.Tail.changed_at`."""
        return max(tail.changed_at for tail in (self.out, self.jobs, self.dagman.tail))

    def execution(self, cluster: int, proc: int) -> Execution | None:
        """See :meth:`JobEvents.execution`."""
        return self.jobs.execution(cluster, proc)

    def dagman_records(self) -> Iterator[StatusChange | DagmanStep]:
        """What DAGMan wrote since this was last asked."""
        for piece in self.out.read():
            if piece.first:
                self.parser = DagmanParser(self.parser)
            for step in self.parser.feed(piece.data):
                if isinstance(step, DagmanStep):
                    self._note_pid(step)
                yield step

    def events(self) -> Iterator[AnyEvent]:
        """What happened since this was last asked. Where a log cannot be read, what the others tell
        comes first."""
        problems: list[InputError] = []
        for tell in (self.jobs.read, self._of_dag):
            try:
                yield from tell()
            except InputError as error:
                problems.append(error)
        if problems:
            raise problems[0]

    def _of_dag(self) -> Iterator[DagmanStep | DagEvent]:
        # Neither log tells all of it, and which came first is known to the second.
        of_schedd, problem = list(self._of_schedd()), None
        of_dagman: list[DagmanStep | DagEvent] = []
        try:
            of_dagman += self._of_dagman()
        except InputError as error:
            problem = error
        yield from merge(of_schedd, of_dagman, key=lambda event: int(event.at))
        if problem is not None:
            raise problem

    def _note_pid(self, step: DagmanStep) -> None:
        if step.step is StepKind.PID:
            self.pid = step.number
        elif step.step in (StepKind.STARTED, StepKind.EXITED):
            self.pid = 0  # that of the one before; its own comes next

    def _of_schedd(self) -> Iterator[DagEvent]:
        for event in self.dagman.read():
            if event.kind in _DAGMAN_STATES:
                yield DagEvent(_DAGMAN_STATES[event.kind], event.at, event.returned)

    def _of_dagman(self) -> Iterator[DagmanStep | DagEvent]:
        for step in self.dagman_records():
            if isinstance(step, StatusChange):
                continue
            if step.step is StepKind.STARTED:
                yield DagEvent(DagmanState.STARTED, step.at)
            elif step.step is StepKind.EXITED:
                state = DagmanState.GONE if step.again else DagmanState.ENDED
                yield DagEvent(state, step.at, step.number)
            else:
                yield step
