"""One workflow, followed through the files that DAGMan and HTCondor write into its directory.

Everything here is a function of what stands in the files: a new follower that reads them again from
the beginning finds the same measurements with the same ids, and the archive keeps each once. That
is why no position has to be stored anywhere, and why being killed loses nothing.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

from monitors.follow.condor import Dagman, Gone
from monitors.follow.identity import workflow_facts
from monitors.follow.job_events import JobEvents
from monitors.follow.runs import ENDS, Runs
from monitors.jobs.facts import JobFacts
from monitors.logs.dagman_log import Begun, Change, Posted, StatusParser
from monitors.logs.event_log import EventTail, JobEvent, Kind
from monitors.logs.submit_dir import JobKind, SubmitDir
from monitors.logs.tail import Tail, state_of
from monitors.measurement import Measurement
from monitors.status import NOT_STARTED, State, Status
from network_provisioner.errors import InputError

_DAGMAN = "dagman"
_LATE_S = 10.0  # how often events after the end are read: all is read again for them


@dataclass(frozen=True, slots=True)
class SubEvent:
    """An event of the DAGMan that a sub-workflow's job is."""

    job: str
    event: JobEvent


class FollowedWorkflow:
    """Reads what is new in a submit directory, as often as asked.

    ``status`` is the newest status, None before DAGMan's first. ``root`` and ``parent`` are the
    UUIDs of the workflow that it is a part of and of the one whose job runs it. Raises InputError
    as :class:`~monitors.logs.submit_dir.SubmitDir`.
    """

    def __init__(self, path: str | Path | SubmitDir, root: str = "", parent: str = "") -> None:
        self.dir = path if isinstance(path, SubmitDir) else SubmitDir(path)
        self.root = root or self.dir.braindump.get("root_wf_uuid", "") or self.dir.workflow
        self.parent = parent
        self.status: Status | None = None
        # Tells the newest status until a time (Unix seconds) that was recorded before this began.
        self.known: Callable[[float], Status | None] | None = None
        self._measurements: list[Measurement] = []
        self._statuses: list[Status] = []
        self._rest: tuple[object, ...] | None = None
        self._known = ""  # key of the last change, where all are being read again
        self._last = ""
        self._own_at = 0.0  # of the newest status that DAGMan told itself
        self._late_at = -math.inf  # when events of jobs were read that came after its end
        self._is_old = False  # whether the newest status is of what is being read again
        self._begin()

    def _begin(self) -> None:
        """From the beginning of all files."""
        self._jobs = JobFacts(self.dir)
        self.attempts = self._jobs.attempts
        self._out, self._out_parser = Tail(self.dir.dagman_out), StatusParser()
        self._events = JobEvents(self.dir)
        self._dagman = EventTail(self.dir.dagman_log)
        self._runs = Runs()
        self._begun_at: set[str] = set()  # keys of beginnings
        self._failed: list[tuple[dict[str, str], tuple[float, int], float]] = []  # not told yet
        self._subs: dict[tuple[int, int], str] = {}  # jobs that are sub-workflows
        self._sub_events: list[SubEvent] = []

    def facts(self) -> Measurement:
        """Who the workflow is."""
        return workflow_facts(self.dir, self.root, self.parent)

    @property
    def files(self) -> tuple[Path, list[str]]:
        """The folder and the names of the files whose growth matters."""
        paths = (self.dir.dagman_out, self.dir.nodes_log, self.dir.dagman_log)
        return self.dir.dag.parent, [path.name for path in paths]

    @property
    def ended(self) -> bool:
        """Whether DAGMan has ended and is not in the queue again (a rescue or a rerun)."""
        if self.status is None or not self.status.ended:
            return False
        run = self._runs.current
        return run is None or self._runs.is_over or run.at < self.status.at

    @property
    def puzzling(self) -> bool:
        """Whether DAGMan is at work, or has written, and what it says is not understood."""
        if self._runs.current is not None:
            return self._own_at < math.floor(self._runs.current.at)
        return not self._own_at and not self._out_parser.understood and self._has_written()

    @property
    def written_at(self) -> float:
        """When anything was written last (Unix seconds), as far as it was read: before DAGMan's
        first word by whoever planned it."""
        at = max(tail.changed_at for tail in (self._out, self._events, self._dagman))
        if not at:
            with suppress(OSError, ValueError):
                at = self.dir.dag.stat().st_mtime
        return at

    @property
    def dagman(self) -> Dagman | None:
        """Its DAGMan's job, where that is said to be in the queue."""
        run = self._runs.current
        return None if run is None else Dagman(run.cluster, run.at, run.schedd)

    def gone(self, dagman: Dagman, how: Gone) -> None:
        """Takes from HTCondor that its DAGMan is not there any more, which no file tells."""
        if dagman != self.dagman:
            return  # it is another run meanwhile
        status = self.status or NOT_STARTED
        if self._runs.gone(self.status):
            return
        at = max(how.at or self.written_at, dagman.submitted, status.at)
        ended = replace(status, state=how.state, at=at, reason=how.why)
        self._change(f"gone:{dagman.cluster}:{dagman.submitted:.3f}", ended, "condor")

    def _has_written(self) -> bool:
        try:
            return self.dir.dagman_out.stat().st_size > 0
        except (OSError, ValueError):  # ValueError: a name with a zero byte in it
            return False

    def step(self) -> None:
        """Reads what is new; :meth:`take` gives it.

        Raises InputError where a file is there and cannot be read; what was read until then stands.
        """
        said: Status | None = None
        if self._rest is not None:
            paths = (self.dir.dagman_out, self.dir.dagman_log, self.dir.nodes_log)
            now = tuple(map(state_of, paths))
            if now == self._rest:
                return
            if now[:2] == self._rest[:2]:
                if time.monotonic() - self._late_at < _LATE_S:
                    return
                self._late_at = time.monotonic()
                # With nothing new of DAGMan all holds that was said of it, whoever said so.
                said = self.status
            self._wake()
        # Its job's events first: what DAGMan said before them stands there then. DAGMan tells of
        # its end after the last job's events are written: reading its own words before those, none
        # is missed when it has ended.
        problem = self._read_dagman()
        self._read_out()
        if problem is not None:
            raise problem
        for event in self._events.read():
            self._measurements += self._jobs.feed(event)
            self._sub_event(event)
        if said is not None:
            self.status, self._known, self._is_old = said, "", False
        failed, self._failed = self._failed, []
        for names, run, at in failed:
            self._measurements += self._jobs.never_submitted(names, run, at)
        if self.ended:
            self._measurements += self._jobs.workflow_ended()
        if self._known:  # what was said last does not stand there any more: this is another file
            self._known = ""
            self._statuses += [self.status] if self.status is not None else []

    def take(self) -> tuple[list[Measurement], list[Status]]:
        """The measurements to record and the changes of status since it was last called."""
        taken = self._measurements, self._statuses
        self._measurements, self._statuses = [], []
        return taken

    def once_more(self, key: str) -> Measurement:
        """The status that holds now, to be recorded with ``key`` although nothing changed. It is as
        old as it was, so that it never looks newer than a change that is yet to be read."""
        status = self.status or replace(NOT_STARTED, at=self.facts().at)
        return status.measurement(self.dir.workflow, key, self.root, "refresh")

    def take_sub_events(self) -> list[SubEvent]:
        """What happened to the DAGMans of sub-workflows since it was last called."""
        taken, self._sub_events = self._sub_events, []
        return taken

    def rest(self) -> None:
        """Lets go of all that was read. Where the files change after all, they are read again."""
        if self._rest is None:
            # What HTCondor writes of jobs that were removed comes after DAGMan's end.
            seen = (self._out.seen, self._dagman.seen, self._events.seen)
            self._begin()
            self.dir.forget()
            self._rest = seen

    def _wake(self) -> None:
        self._rest, self._known, self._is_old = None, self._last, True

    def note(self, status: Status, key: str, source: str) -> None:
        """Takes a status that somebody else tells of, where it differs from the newest one."""
        if self.status is None or replace(self.status, at=status.at) != status:
            self._change(key, status, source)

    def _read_dagman(self) -> InputError | None:
        try:
            for event in self._dagman.read():
                self._wait(event)
        except InputError as error:
            return error
        return None

    def _read_out(self) -> None:
        """What DAGMan says, and the events that wait, in the order in which it happened. Where
        DAGMan's words cannot be read, InputError is raised and the events go on waiting."""
        self._read_out_once()
        while self._runs.waiting:  # what came meanwhile: DAGMan may have said more before it
            self._read_out_once()
        self._begun(self._out_parser.started_at)

    def _read_out_once(self) -> None:
        known = self._runs.taken + self._runs.waiting
        for piece in self._out.read():
            if piece.first:
                self._out_parser = StatusParser(self._out_parser)
            for step in self._out_parser.steps(piece.data):
                if isinstance(step, Posted):
                    self._jobs.script_said(step)
                    continue
                self._take_events(step.at if isinstance(step, Begun) else step.status.at)
                if isinstance(step, Change):
                    self._change(step.key, step.status)
                else:
                    self._next_run(step)
        while self._runs.taken < known:
            self._take_event()

    def _next_run(self, begun: Begun) -> None:
        """A DAGMan says that it began. What HTCondor told of it, and of the one before, is in its
        log by then; within a second, times do not say what was first."""
        self._read_dagman()
        self._take_events(begun.at)
        while count_before := self._runs.before_begin(begun.at):
            for _ in range(count_before):
                self._take_event()
        known = self._runs.begin(begun.at)
        if not begun.again:
            self._begun(begun.at, surely=known and not self._is_old)

    def _begun(self, at: float, surely: bool = False) -> None:
        """A DAGMan began: where others told of the end before, to itself it just goes on.
        ``surely`` where it is known to have begun after that."""
        if self.status is None or not self.status.ended or not (surely or at > self.status.at):
            return
        key = first = f"started:{at:.3f}"
        for number in count(2):
            if key not in self._begun_at:
                break
            key = f"{first}.{number}"
        self._begun_at.add(key)
        self._change(key, replace(self.status, state=State.RUNNING, at=at, reason=""))

    def _change(self, key: str, status: Status, source: str = _DAGMAN) -> None:
        self._runs.said(status.ended)
        known, self.known = self.known and self.known(status.at), None
        if known is not None and status.at > known.at and replace(known, at=status.at) == status:
            # Of a log that was emptied since: no change of what is known.
            self.status, self._is_old = status, False
            return
        before = None if self._is_old else self.status
        if before is not None and math.floor(before.at) <= status.at < before.at:
            # DAGMan has whole seconds: what it says next is not older than what HTCondor said.
            status = replace(status, at=before.at)
        self.status, self._last, self._is_old = status, key, False
        if status.state is State.FAILED:
            self._take_failed(status.at)
        if source == _DAGMAN:
            self._own_at = status.at
        self._measurements.append(status.measurement(self.dir.workflow, key, self.root, source))
        if not self._known:
            self._statuses.append(status)
        elif key == self._known:  # all that comes now is new
            self._known = ""

    def _take_failed(self, at: float) -> None:
        """What DAGMan said of jobs that failed, to be told when all events before are read."""
        parser, run = self._out_parser, self._runs.current
        if parser.failed:
            began = (parser.started_at, 0) if run is None else (run.at, run.cluster)
            self._failed.append((parser.failed, began, at))
            parser.failed = {}

    def _sub_event(self, event: JobEvent) -> None:
        job = (event.cluster, event.proc)
        if event.kind is Kind.SUBMIT:
            self._subs.pop(job, None)
            if event.node and self.dir.job(event.node).kind is JobKind.SUBWORKFLOW:
                self._subs[job] = event.node
        if job in self._subs and event.kind in (Kind.SUBMIT, Kind.EXECUTE, *ENDS):
            self._sub_events.append(SubEvent(self._subs[job], event))

    def dagman_event(self, event: JobEvent) -> None:
        """DAGMan's own job: tells of reruns, and of ends that DAGMan could not tell of itself."""
        self._wait(event)
        with suppress(InputError):  # to be said at the next step
            self._read_out()

    def _wait(self, event: JobEvent) -> None:
        """The event waits until DAGMan's words before it are read."""
        if not self._runs.is_new(event):
            return
        if self._rest is not None:
            self._wake()
        self._runs.add(event)
        if event.kind is Kind.SUBMIT:
            self._jobs.run_submitted(event)

    def _take_events(self, until: float) -> None:
        while self._runs.waits_before(until):
            self._take_event()

    def _take_event(self) -> None:
        event = self._runs.take(self.status)
        if event is None:
            return
        state = State.DONE if event.returned == 0 else State.FAILED
        if event.kind is Kind.ABORTED:
            state = State.REMOVED
        key = f"dagman:{event.cluster}:{event.at:.3f}"
        status = replace(self.status or NOT_STARTED, state=state, at=event.at, reason="")
        self._change(key, status)
