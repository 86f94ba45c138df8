"""One workflow, followed through the files that DAGMan and HTCondor write into its directory.

Everything here is a function of what stands in the files: a new follower that reads them again from
the beginning finds the same measurements with the same ids, and the archive keeps each once. That
is why no position has to be stored anywhere, and why being killed loses nothing.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import count
from pathlib import Path

from monitors.base.measurement import Measurement
from monitors.jobs.condor import Dagman, Gone
from monitors.jobs.jobs import Jobs
from monitors.jobs.logs import WorkflowLogs
from monitors.workflows.facts.jobs import JobFacts
from monitors.workflows.facts.plan import forecast_facts, workflow_facts
from monitors.workflows.facts.runs import DAGMAN, ENDS, Runs, Statuses, is_same
from monitors.workflows.logs.dagman import DagmanStep, StatusChange, StepKind, last_moment
from monitors.workflows.logs.events import JobEvent, Kind
from monitors.workflows.logs.stamps import LogTimes
from monitors.workflows.logs.status import NOT_STARTED, Status, WorkflowState
from monitors.workflows.logs.tail import FileState, state_of
from monitors.workflows.planned.foreign_files import end_of
from monitors.workflows.planned.submit_dir import JobKind, SubmitDir
from network_provisioner.base.errors import InputError

_YEAR_S = 363 * 86400.0  # less than one, with the grace that clocks have
_LATE_S = 10.0  # how often events after the end are read: all is read again for them


class _Reading:
    """What was read of a workflow's files since their beginning."""

    def __init__(self, submit_dir: SubmitDir) -> None:
        self._dir = submit_dir
        self._last: tuple[object, float] | None = None  # how DAGMan's log was, its last time
        self._times = LogTimes(submit_dir.offset_s, self._latest)
        self.logs = WorkflowLogs(submit_dir, self._times)
        self.jobs = JobFacts(submit_dir, self.logs.execution)
        self.runs = Runs()
        self.beginnings: set[str] = set()  # keys of the statuses that others' ends made necessary
        # Jobs that DAGMan says failed, its run, and when it said so; not told yet.
        self.failed: list[tuple[dict[str, str], tuple[float, int], float]] = []
        self.newest_failed: dict[str, str] | None = None  # the last ones that were taken
        self.done: tuple[float, float] | None = None  # when a run began and did well; not told yet
        self.subs: dict[tuple[int, int], str] = {}  # jobs that are sub-workflows
        self.events: Iterator[JobEvent] | None = None  # those that a step left for the next one
        self.held: Status | None = None  # what holds when that step is complete

    def _latest(self) -> float:
        """When DAGMan wrote last: its log has years. Where it has none, less than a year after the
        workflow was planned."""
        path = self._dir.dagman_out
        state = state_of(path)
        if self._last is None or self._last[0] != state:
            newest = min(time.time(), (self._dir.planned_at or math.inf) + _YEAR_S)
            times = LogTimes(self._dir.offset_s, lambda: newest)
            self._last = (state, last_moment(path, times) or newest)
        return self._last[1]


class FollowedWorkflow:
    """Reads what is new in a submit directory, as often as asked.

    ``root`` and ``parent`` are the UUIDs of the workflow that it is a part of and of the one whose
    job runs it. Raises InputError as :class:`~monitors.workflows.planned.submit_dir.SubmitDir`.
    """

    def __init__(self, path: str | Path | SubmitDir, root: str = "", parent: str = "") -> None:
        self.dir = path if isinstance(path, SubmitDir) else SubmitDir(path)
        self.root = root or self.dir.braindump.get("root_wf_uuid", "") or self.dir.workflow
        self.parent = parent
        self.statuses = Statuses()
        self._reading = _Reading(self.dir)
        self._measurements: list[Measurement] = []
        self._sub_events: list[tuple[str, JobEvent]] = []
        self._rest: tuple[FileState, ...] | None = None  # how the files were when it began to rest
        self._reported_loss = ""
        self._late_at = -math.inf  # when events of jobs were read that came after its end

    @property
    def status(self) -> Status | None:
        """The newest, None before DAGMan's first."""
        return self.statuses.newest

    @property
    def failed_jobs(self) -> Mapping[str, str]:
        """The jobs that the last DAGMan says failed, with its reasons."""
        return self._reading.logs.parser.failed

    @property
    def last_messages(self) -> Sequence[str]:
        """What DAGMan said last that tells of trouble."""
        return self._reading.logs.parser.last_messages

    @property
    def attempts(self) -> Jobs:
        """What its jobs did, as far as it is not resting."""
        return self._reading.jobs.attempts

    def facts(self) -> Measurement:
        """Who the workflow is."""
        with self.dir.as_owner():
            return workflow_facts(self.dir, self.root, self.parent)

    @property
    def files(self) -> tuple[Path, list[str]]:
        """The folder and the names of the files whose growth matters."""
        paths = (self.dir.dagman_out, self.dir.nodes_log, self.dir.dagman_log)
        return self.dir.dag.parent, [path.name for path in paths]

    @property
    def ended(self) -> bool:
        """Whether DAGMan has ended and is not in the queue again (a rescue or a rerun)."""
        if self.status is None or not self.status.ended or self._reading.events is not None:
            return False
        run = self._reading.runs.current
        return run is None or run.ended or run.submitted.at < self.status.at

    @property
    def unclear(self) -> bool:
        """Whether DAGMan is at work, or has written, and what it says is not understood."""
        run, own_at = self._reading.runs.current, self.statuses.own_at
        if run is not None:
            return own_at < math.floor(run.submitted.at)
        has_written = state_of(self.dir.dagman_out)[1] > 0
        return not own_at and not self._reading.logs.parser.understood and has_written

    @property
    def written_at(self) -> float:
        """When anything was written last (Unix seconds), as far as it was read: before DAGMan's
        first word by whoever planned it."""
        at = self._reading.logs.changed_at
        if not at:
            with suppress(OSError, ValueError):
                at = self.dir.dag.stat().st_mtime
        return at

    @property
    def dagman(self) -> Dagman | None:
        """Its DAGMan's job, where that is said to be in the queue."""
        run = self._reading.runs.current
        if run is None:
            return None
        return Dagman(run.submitted.cluster, run.submitted.at, run.submitted.schedd)

    def gone(self, dagman: Dagman, how: Gone) -> None:
        """Takes from HTCondor that its DAGMan is not there any more, which no file tells."""
        if dagman != self.dagman:
            return  # it is another run meanwhile
        status = self.status or NOT_STARTED
        if self._reading.runs.gone(self.status):
            return
        at = max(how.at or self.written_at, dagman.submitted, status.at)
        ended = replace(status, state=how.state, at=at, reason=how.why)
        self._change(f"gone:{dagman.cluster}:{dagman.submitted:.3f}", ended, "condor")

    def _complaint(self) -> list[str]:
        """What DAGMan said where it could not write its log."""
        text = end_of(self.dir.dag.with_name(self.dir.dag.name + ".lib.err"))
        return [line.strip() for line in text.splitlines() if line.strip()][-3:]

    def step(self, most: float = math.inf) -> bool:
        """Reads what is new; :meth:`take` gives it. With ``most``, no more than about so many
        measurements: False where the next step continues with the rest of the events.

        Raises InputError where a file is there and cannot be read; what was read until then stands.
        """
        with self.dir.as_owner():
            return self._step(most)

    def lost_log(self) -> str:
        """That the log of its jobs' events is not found where there should be one; "" where it is,
        or that was said before."""
        lost = self._lost_log() if self._rest is None else ""
        if lost in ("", self._reported_loss):
            return ""
        self._reported_loss = lost
        return lost

    def _lost_log(self) -> str:
        events, status = self._reading.logs.jobs, self.status or NOT_STARTED
        if events.is_lost:
            jobs = "of some jobs " if events.has_named else ""
            instead = f"the events {jobs}are taken from {self.dir.dagman_out.name}"
        elif not events.is_read and status.ended and status.done:
            instead = f"and {self.dir.dagman_out.name} has no events"
        else:
            return ""
        return f"{events.path}: found no event log of its jobs that can be read, {instead}"

    def _step(self, most: float) -> bool:
        reading = self._reading
        if reading.events is None:
            reading.held = None
            if self._rests():
                return True
            self._read_words()
            reading = self._reading
            reading.events = reading.logs.jobs.read()
        try:
            for event in reading.events:
                self._measurements += reading.jobs.feed(event)
                self._sub_event(event)
                if len(self._measurements) >= most:
                    return False
        except BaseException:
            reading.events = None
            raise
        reading.events = None
        self._end_step()
        return True

    def _rests(self) -> bool:
        """Whether it rests, and nothing is new."""
        if self._rest is None:
            return False
        paths = (self.dir.dagman_out, self.dir.dagman_log, self._reading.logs.jobs.path)
        now = tuple(map(state_of, paths))
        if now == self._rest:
            return True
        if now[:2] == self._rest[:2]:
            if time.monotonic() - self._late_at < _LATE_S:
                return True
            self._late_at = time.monotonic()
            # DAGMan has written nothing new: what is known of it still holds.
            self._reading.held = self.status
        self._wake()
        return False

    def _read_words(self) -> None:
        """What DAGMan says. Its job's events first: what DAGMan said before them stands there then.
        DAGMan tells of its end after the last job's events are written: reading its own words
        before those, none is missed when it has ended."""
        problem = self._read_dagman()
        self._read_out()
        if problem is not None:
            raise problem
        logs = self._reading.logs
        if not logs.jobs.is_read and self.dir.nodes_log != logs.jobs.path:
            logs.find_job_events()

    def _end_step(self) -> None:
        """What is known when all events are read."""
        jobs = self._reading.jobs
        held, self._reading.held = self._reading.held, None
        if held is not None:
            self.statuses.hold(held)
        failed, self._reading.failed = self._reading.failed, []
        for names, run, at in failed:
            self._measurements += jobs.failed_unseen(names, run, at)
        if self.ended and self.status is not None:
            removed = self.status.state is WorkflowState.REMOVED
            began = self._reading.logs.parser.started_at
            self._measurements += jobs.workflow_ended(began, self.status.at, removed)
        if self._reading.done is not None:
            began, done = self._reading.done
            self._reading.done = None
            if not jobs.is_rerun(began):
                self._measurements += forecast_facts(self.dir, began, done)
                self._measurements += jobs.overhead(began, done)
        self.statuses.all_read()

    def take(self) -> tuple[list[Measurement], list[Status]]:
        """The measurements to record and the changes of status since it was last called; the latter
        when a step is complete."""
        taken, self._measurements = self._measurements, []
        return taken, self.statuses.take() if self._reading.events is None else []

    def once_more(self, key: str) -> Measurement:
        """The status that holds now, to be recorded with ``key`` although nothing changed. It is as
        old as it was, so that it never looks newer than a change that is yet to be read."""
        status = self.status or replace(NOT_STARTED, at=self.facts().at)
        return status.measurement(self.dir.workflow, key, self.root, "refresh")

    def take_sub_events(self) -> list[tuple[str, JobEvent]]:
        """What happened to the DAGMans that the jobs of these names are, those of sub-workflows,
        since it was last called."""
        taken, self._sub_events = self._sub_events, []
        return taken

    def rest(self) -> None:
        """Lets go of all that was read. Where the files change after all, they are read again."""
        if self._rest is None:
            # What HTCondor writes of jobs that were removed comes after DAGMan's end.
            self._rest = self._reading.logs.seen
            self._reading = _Reading(self.dir)
            self._sub_events = []
            self.dir.forget()

    def _wake(self) -> None:
        self._rest = None
        self.statuses.read_again()

    def note(self, status: Status, key: str, source: str) -> None:
        """Takes a status that somebody else tells of, where it differs from the newest one."""
        if self.status is None or not is_same(self.status, status):
            self._change(key, status, source)

    def _read_dagman(self) -> InputError | None:
        try:
            for event in self._reading.logs.dagman.read():
                self._wait(event)
        except InputError as error:
            return error
        return None

    def _read_out(self) -> None:
        """What DAGMan says, and the events that wait, in the order in which it happened. Where
        DAGMan's words cannot be read, InputError is raised and the events go on waiting."""
        self._read_out_once()
        while self._reading.runs.waiting:  # what came meanwhile: DAGMan may have said more before
            self._read_out_once()
        self._begun(self._reading.logs.parser.started_at)

    def _read_out_once(self) -> None:
        reading = self._reading
        known = reading.runs.taken + reading.runs.waiting
        for step in reading.logs.dagman_records():
            if isinstance(step, StatusChange):
                self._take_events(step.status.at)
                self._change(step.key, step.status)
            elif step.step is StepKind.STARTED:
                self._take_events(step.at)
                self._next_run(step)
            elif step.step is StepKind.SUBMITTED:
                reading.jobs.attempts.names[step.cluster] = step.node
            elif step.step is StepKind.POST_ENDED:
                reading.jobs.post_script_ended(step)
        while reading.runs.taken < known:
            self._take_event()

    def _next_run(self, begun: DagmanStep) -> None:
        """A DAGMan says that it began. What HTCondor told of it, and of the one before, is in its
        log by then; within a second, times do not say what was first."""
        runs = self._reading.runs
        self._read_dagman()
        self._take_events(begun.at)
        while count_before := runs.before_begin(begun.at):
            for _ in range(count_before):
                self._take_event()
        known = runs.begin(begun.at)
        self._reading.jobs.attempts.names.clear()  # numbers may begin anew
        if not begun.again:
            self._begun(begun.at, surely=known and not self.statuses.is_old)

    def _begun(self, at: float, surely: bool = False) -> None:
        """A DAGMan began: where others told of the end before, to itself it just goes on.
        ``surely`` where it is known to have begun after that."""
        if self.status is None or not self.status.ended or not (surely or at > self.status.at):
            return
        known = self._reading.beginnings
        key = first = f"started:{at:.3f}"
        for number in count(2):
            if key not in known:
                break
            key = f"{first}.{number}"
        known.add(key)
        self._change(key, replace(self.status, state=WorkflowState.RUNNING, at=at, reason=""))

    def _change(self, key: str, status: Status, source: str = DAGMAN) -> None:
        self._reading.runs.tell(status.ended)
        was_over = self.status is not None and self.status.ended and not self.statuses.is_old
        if was_over and not status.ended:
            self._measurements.append(self._reading.jobs.run_again(key, status.at))
        new = self.statuses.add(key, status, source)
        if new is None:
            return
        if new.state is WorkflowState.FAILED:
            self._take_failed(new.at)
        if new.state is WorkflowState.DONE:
            self._reading.done = (self._reading.logs.parser.started_at, new.at)
        self._measurements.append(new.measurement(self.dir.workflow, key, self.root, source))

    def _take_failed(self, at: float) -> None:
        """What DAGMan said of jobs that failed, to be told when all events before are read."""
        parser, run = self._reading.logs.parser, self._reading.runs.current
        if parser.failed and parser.failed is not self._reading.newest_failed:
            began = (parser.started_at, 0)
            if run is not None:
                began = (run.submitted.at, run.submitted.cluster)
            self._reading.failed.append((parser.failed, began, at))
            self._reading.newest_failed = parser.failed

    def _sub_event(self, event: JobEvent) -> None:
        job, subs = (event.cluster, event.proc), self._reading.subs
        if event.kind is Kind.SUBMIT:
            subs.pop(job, None)
            if event.node and self.dir.job(event.node).kind is JobKind.SUBWORKFLOW:
                subs[job] = event.node
        if job in subs and event.kind in (Kind.SUBMIT, Kind.EXECUTE, *ENDS):
            self._sub_events.append((subs[job], event))

    def dagman_event(self, event: JobEvent) -> None:
        """DAGMan's own job: tells of reruns, and of ends that DAGMan could not tell of itself."""
        self._wait(event)
        with suppress(InputError), self.dir.as_owner():  # to be said at the next step
            self._read_out()

    def _wait(self, event: JobEvent) -> None:
        """The event waits until DAGMan's words before it are read."""
        if not self._reading.runs.is_new(event):
            return
        if self._rest is not None:
            self._wake()
        self._reading.runs.add(event)
        self._measurements += self._reading.jobs.dagman_held(event)
        if event.kind is Kind.SUBMIT:
            self._reading.jobs.run_submitted(event)

    def _take_events(self, until: float) -> None:
        while self._reading.runs.waits_before(until):
            self._take_event()

    def _take_event(self) -> None:
        event = self._reading.runs.take(self.status)
        if event is None:
            return
        state = WorkflowState.DONE if event.returned == 0 else WorkflowState.FAILED
        if event.kind is Kind.ABORTED:
            state = WorkflowState.REMOVED
        key = f"dagman:{event.cluster}:{event.at:.3f}"
        status = self.status or NOT_STARTED
        reason = event.reason
        if hold := self._reading.jobs.dagman_removed.get(event.cluster):
            why = hold.reason or "HTCondor gives no reason"
            reason = f"{reason}; DAGMan was on hold before: {why} (code {hold.code}.{hold.subcode})"
        if state is WorkflowState.FAILED and not status.fail and event.returned is not None:
            code = event.returned
            how = f"was ended by signal {-code}" if code < 0 else f"ended with status {code}"
            words = self._reading.logs.parser.last_messages or self._complaint()
            reason = f"DAGMan {how}: {'; '.join(words) or 'it does not say why'}"
        status = replace(status, state=state, at=event.at, reason=reason)
        self._change(key, status)
