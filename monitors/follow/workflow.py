"""One workflow, followed through the files that DAGMan and HTCondor write into its directory.

Everything here is a function of what stands in the files: a new follower that reads them again from
the beginning finds the same measurements with the same ids, and the archive keeps each once. That
is why no position has to be stored anywhere, and why being killed loses nothing.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from monitors.follow.identity import workflow_facts
from monitors.jobs.facts import JobFacts
from monitors.logs.dagman_log import StatusParser
from monitors.logs.event_log import EventParser, JobEvent, Kind
from monitors.logs.submit_dir import JobKind, SubmitDir
from monitors.logs.tail import Tail, state_of
from monitors.measurement import Measurement
from monitors.status import NOT_STARTED, State, Status
from network_provisioner.errors import InputError

_DAGMAN = "dagman"
_ENDS = (Kind.TERMINATED, Kind.ABORTED)
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
        self._begin()

    def _begin(self) -> None:
        """From the beginning of all files."""
        self._jobs = JobFacts(self.dir)
        self.attempts = self._jobs.attempts
        self._out, self._out_parser = Tail(self.dir.dagman_out), StatusParser()
        self._nodes = _EventTail(self.dir.nodes_log)
        self._nodes_seen: tuple[object, ...] = ()  # how that file was when it was last read
        self._dagman = _EventTail(self.dir.dagman_log)
        self._run: JobEvent | None = None  # DAGMan's own job while it is in the queue
        self._runs: set[JobEvent] = set()  # events of DAGMan's own job
        self._subs: dict[tuple[int, int], str] = {}  # jobs that are sub-workflows
        self._sub_events: list[SubEvent] = []
        self._backfilled = False

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
        return self._run is None or self._run.at <= self.status.at

    @property
    def puzzling(self) -> bool:
        """Whether DAGMan is at work, or has written, and what it says is not understood."""
        if self._run is not None:
            return self._own_at < math.floor(self._run.at)
        return not self._own_at and not self._out_parser.understood and self._has_written()

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
        # DAGMan tells of its end after the last job's events are written: reading its own words
        # first, no job's events are missed when it has ended.
        self._read_out()
        for event in self._dagman.read():
            self.dagman_event(event)
        for event in self._job_events():
            self._measurements += self._jobs.feed(event)
            self._sub_event(event)
        if said is not None:
            self.status, self._known = said, ""
        if self.ended and self.status is not None:
            failed = self.status.state is State.FAILED
            self._measurements += self._jobs.workflow_ended(self.status.at, failed)
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
            seen = (self._out.seen, self._dagman.seen, self._nodes_seen)
            self._begin()
            self.dir.forget()
            self._rest = seen

    def _wake(self) -> None:
        self._rest, self._known = None, self._last

    def note(self, status: Status, key: str, source: str) -> None:
        """Takes a status that somebody else tells of, where it differs from the newest one."""
        if self.status is None or replace(self.status, at=status.at) != status:
            self._change(key, status, source)

    def _read_out(self) -> None:
        for piece in self._out.read():
            if piece.first:
                self._out_parser = StatusParser(self._out_parser)
            for change in self._out_parser.feed(piece.data):
                self._change(change.key, change.status)
        status, started = self.status, self._out_parser.started_at
        if status is not None and status.ended and started > status.at:
            # Others told of that end: DAGMan never did, and to itself it just goes on.
            again = replace(status, state=State.RUNNING, at=started)
            self._change(f"started:{started:.3f}", again)

    def _change(self, key: str, status: Status, source: str = _DAGMAN) -> None:
        known, self.known = self.known and self.known(status.at), None
        if known is not None and status.at > known.at and replace(known, at=status.at) == status:
            self.status = status  # of a log that was emptied since: no change of what is known
            return
        self.status, self._last = status, key
        if source == _DAGMAN:
            self._own_at = status.at
        self._measurements.append(status.measurement(self.dir.workflow, key, self.root, source))
        if not self._known:
            self._statuses.append(status)
        elif key == self._known:  # all that comes now is new
            self._known = ""

    def _job_events(self) -> Iterator[JobEvent]:
        # Before reading: what comes meanwhile makes the next look read again.
        self._nodes_seen = state_of(self.dir.nodes_log)
        if self._backfilled or self.dir.workflow_log is None:
            yield from self._nodes.read()
            return
        # DAGMan empties nodes.log at every start; the workflow's own log has earlier runs too. Of
        # jobs that are in both, nodes.log alone says how their POST scripts ended, and when.
        self._backfilled = True
        now = list(self._nodes.read())
        began: dict[tuple[int, int], float] = {}
        for event in now:
            began.setdefault((event.cluster, event.proc), event.at)
        problem: InputError | None = None
        try:
            for event in _EventTail(self.dir.workflow_log).read():
                if event.at < began.get((event.cluster, event.proc), math.inf):
                    yield event
        except InputError as error:
            problem = error
        yield from now
        if problem is not None:
            raise problem

    def _sub_event(self, event: JobEvent) -> None:
        job = (event.cluster, event.proc)
        if event.kind is Kind.SUBMIT:
            self._subs.pop(job, None)
            if event.node and self.dir.job(event.node).kind is JobKind.SUBWORKFLOW:
                self._subs[job] = event.node
        if job in self._subs and event.kind in (Kind.SUBMIT, *_ENDS):
            self._sub_events.append(SubEvent(self._subs[job], event))

    def dagman_event(self, event: JobEvent) -> None:
        """DAGMan's own job: tells of reruns, and of ends that DAGMan could not tell of itself."""
        if event in self._runs:
            return
        if self._rest is not None:
            self._wake()
        self._runs.add(event)
        if event.kind is Kind.SUBMIT:
            self._run = event
            self._jobs.run_submitted(event.at)
            return
        if event.kind not in _ENDS or self._run is None or event.at < self._run.at:
            return
        submitted, self._run = math.floor(self._run.at), None
        self._read_out()  # DAGMan's last words stand there before this event does
        status = self.status or NOT_STARTED
        if status.at > event.at or (status.ended and status.at >= submitted):
            return  # DAGMan itself told of that end, or of what came after it
        state = State.DONE if event.returned == 0 else State.FAILED
        if event.kind is Kind.ABORTED:
            state = State.REMOVED
        key = f"dagman:{event.cluster}:{event.at:.3f}"
        self._change(key, replace(status, state=state, at=event.at))


class _EventTail:
    """An event log that is followed."""

    def __init__(self, path: Path) -> None:
        self._tail = Tail(path)
        self._parser = EventParser()

    @property
    def seen(self) -> tuple[object, ...]:
        """See :attr:`Tail.seen`."""
        return self._tail.seen

    def read(self) -> Iterator[JobEvent]:
        for piece in self._tail.read():
            if piece.first:
                self._parser = EventParser()
            yield from self._parser.feed(piece.data)
