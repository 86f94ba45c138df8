"""The logs of one workflow, each followed once for everybody who wants to know of its jobs.

    <dag>.nodes.log, <condor_log of braindump.yml>   what HTCondor did with its jobs
    <dag>.dagman.out                                 DAGMan's life and its PRE scripts
    <dag>.dagman.log                                 what HTCondor did with DAGMan

The logs of the jobs are read before DAGMan's, which tells of the same later.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import merge
from pathlib import Path

from monitors.jobs.jobs import AnyEvent, DagEvent, DagState
from monitors.workflows.logs.dagman import DagmanParser, DagmanStep, StatusChange, StepKind
from monitors.workflows.logs.events import EventTail, Kind
from monitors.workflows.logs.job_events import JobEvents
from monitors.workflows.logs.stamps import HERE, LogTimes
from monitors.workflows.logs.tail import Tail
from monitors.workflows.planned.submit_dir import SubmitDir

_DAGMAN_STATES = {
    Kind.EXECUTE: DagState.STARTED,
    Kind.EVICTED: DagState.GONE,
    Kind.SHADOW_EXCEPTION: DagState.GONE,
    Kind.HELD: DagState.GONE,
    Kind.TERMINATED: DagState.ENDED,
    Kind.ABORTED: DagState.ENDED,
}


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
        plan = self._plan
        self.jobs = JobEvents(plan.nodes_log, plan.workflow_log, plan.dagman_out, self._times)

    @property
    def paths(self) -> list[Path]:
        """The files whose growth tells that something happened."""
        return [*self.jobs.paths, self.out.path, self.dagman.path]

    @property
    def seen(self) -> tuple[object, ...]:
        """How the files were when they were read, as :func:`~.tail.state_of`."""
        return self.out.seen, self.dagman.seen, self.jobs.seen

    @property
    def changed_at(self) -> float:
        """See :attr:`~monitors.workflows.logs.tail.Tail.changed_at`."""
        return max(tail.changed_at for tail in (self.out, self.jobs, self.dagman))

    def steps(self) -> Iterator[StatusChange | DagmanStep]:
        """What DAGMan wrote since this was last asked."""
        for piece in self.out.read():
            if piece.first:
                self.parser = DagmanParser(self.parser)
            for step in self.parser.feed(piece.data):
                if isinstance(step, DagmanStep):
                    self._note_pid(step)
                yield step

    def events(self) -> Iterator[AnyEvent]:
        """What happened since this was last asked."""
        yield from self.jobs.read()
        # Neither tells all of it, and which came first is known to the second.
        yield from merge(self._of_schedd(), self._of_dagman(), key=lambda event: int(event.at))

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
        for step in self.steps():
            if isinstance(step, StatusChange):
                continue
            if step.step is StepKind.STARTED:
                yield DagEvent(DagState.STARTED, step.at)
            elif step.step is StepKind.EXITED:
                state = DagState.GONE if step.again else DagState.ENDED
                yield DagEvent(state, step.at, step.number)
            else:
                yield step
