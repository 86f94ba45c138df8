"""One workflow, followed through the files that DAGMan and HTCondor write into its directory.

Everything here is a function of what stands in the files: a new follower that reads them again from
the beginning finds the same measurements with the same ids, and the archive keeps each once. That
is why no position has to be stored anywhere, and why being killed loses nothing.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from heapq import merge
from itertools import count
from pathlib import Path

from monitors.measurement import Measurement
from monitors.workflows.condor import Dagman, Gone
from monitors.workflows.facts.jobs import JobFacts
from monitors.workflows.facts.plan import workflow_facts
from monitors.workflows.logs.dagman import Begun, Change, Posted, StatusParser
from monitors.workflows.logs.events import EventTail, JobEvent, Kind
from monitors.workflows.logs.submit_dir import JobKind, SubmitDir
from monitors.workflows.logs.tail import Tail, state_of
from monitors.workflows.status import NOT_STARTED, State, Status
from network_provisioner.errors import InputError

ENDS = (Kind.TERMINATED, Kind.ABORTED)


class Runs:
    """``current`` is the submission that is in the queue, as far as its events were taken."""

    def __init__(self) -> None:
        self.current: JobEvent | None = None
        self.taken = 0
        """How many events do not wait any more."""
        self._known: set[JobEvent] = set()
        self._waiting: deque[JobEvent] = deque()
        self._ran = False  # whether HTCondor says that it was executed
        self._said_begun = False
        self._said_ended = False
        self._left = -math.inf  # when another had begun although it was not seen to end

    @property
    def is_over(self) -> bool:
        """Whether there is none, or its end is known."""
        return self.current is None or self._said_ended

    @property
    def waiting(self) -> int:
        """How many events wait."""
        return len(self._waiting)

    def is_new(self, event: JobEvent) -> bool:
        """Whether it was not heard of before: two logs may tell of it."""
        return event not in self._known

    def add(self, event: JobEvent) -> None:
        """It waits from now on."""
        self._known.add(event)
        self._waiting.append(event)

    def said(self, ended: bool) -> None:
        """Somebody tells of the run: that it ended, or that it goes on."""
        self._said_ended = ended and self.current is not None

    def waits_before(self, until: float) -> bool:
        """Whether the next event is of before a time (Unix seconds)."""
        return bool(self._waiting) and self._waiting[0].at < until

    def before_begin(self, at: float) -> int:
        """How many events came before a DAGMan began, which says so in that second."""
        if self.current is not None and not self._said_begun and not self._never_ran():
            return 0
        kinds = [event.kind for event in self._waiting if math.floor(event.at) <= at]
        return kinds.index(Kind.SUBMIT) + 1 if Kind.SUBMIT in kinds else 0

    def begin(self, at: float) -> bool:
        """The DAGMan says that it began (Unix seconds); whether it is known of which run it is."""
        if self._said_ended:  # where HTCondor's log of the next one cannot be read
            self._left = at
        self._said_begun = self.current is not None
        return self._said_begun

    def take(self, status: Status | None) -> JobEvent | None:
        """The next event waits no longer; it is given where it is an end that nobody told of.
        ``status`` is the newest."""
        event = self._waiting.popleft()
        self.taken += 1
        if event.kind is Kind.SUBMIT:
            self.current, self._left = event, -math.inf
            self._ran = self._said_begun = self._said_ended = False
            return None
        if self.current is None or event.at < self.current.at:
            return None
        self._ran |= event.kind is Kind.EXECUTE
        if event.kind not in ENDS:
            return None
        never_ran = event.kind is Kind.ABORTED and not self._ran
        told = self._is_told(status, never_ran) or math.floor(event.at) <= self._left
        self.current = None
        if told or (status is not None and status.at > event.at):
            return None  # in the second case DAGMan itself told of what came after it
        return event

    def gone(self, status: Status | None) -> bool:
        """The run is not in the queue any more; whether its end was known before."""
        told = self._is_told(status, never_ran=not self._ran)
        self.current = None
        return told

    def _never_ran(self) -> bool:
        """Whether the one in the queue was taken out of it before it began."""
        for event in self._waiting if not self._ran else ():
            if event.kind in (Kind.EXECUTE, *ENDS):
                return event.kind is Kind.ABORTED
        return False

    def _is_told(self, status: Status | None, never_ran: bool) -> bool:
        """Where it was not heard to begin, the times are all there is."""
        if self.current is None or self._said_ended or self._said_begun or never_ran:
            return self._said_ended
        submitted = math.floor(self.current.at)
        return status is not None and status.ended and status.at >= submitted


Job = tuple[int, int]  # HTCondor's numbers of it: cluster and process
Moment = tuple[float, int, int]  # of an event of a job: when, which kind, and which of the same

_EMPTY = (-1, 0)  # sizes of a file that is not there or has nothing in it


class JobEvents:
    """The events in ``<dag>.nodes.log``, each once, and before them what that has lost.

    DAGMan empties it at every start. The workflow's own log has earlier runs too, and the last
    words of a run whose end nobody read before the next began.
    """

    def __init__(self, submit_dir: SubmitDir) -> None:
        self._dir = submit_dir
        self._nodes = EventTail(submit_dir.nodes_log)
        log = submit_dir.workflow_log
        self._log = None if log is None else EventTail(log)
        self._lacks = True  # whether what stands in the other log alone is to be read
        self._begun = 0  # how many files nodes.log was until then
        self._has_any = False  # whether the one that it is told of anything
        self._before: list[JobEvent] = []  # of files that it was, not told yet
        self._waiting: list[JobEvent] = []  # of the one that it is
        self._other: list[JobEvent] = []  # of the other log, not told
        self._told: dict[Job, Moment] = {}  # each job's last, of those that are in both logs
        self.seen: tuple[object, ...] = ()
        """How that file was when all was last read, as :func:`state_of`."""

    @property
    def changed_at(self) -> float:
        """See :attr:`~monitors.workflows.logs.tail.Tail.changed_at`."""
        return self._nodes.changed_at

    def read(self) -> Iterator[JobEvent]:
        """Those that are new. Raises InputError where a file is there and cannot be read: what
        comes later in time waits until it can be."""
        # Before reading: what comes meanwhile makes the next look read again.
        seen = state_of(self._dir.nodes_log)
        self._lacks |= not self._has_any or seen[1] in _EMPTY
        self._wait()
        if self._log is not None and self._lacks:
            for event in self._log.read():
                self._other.append(event)
            self._wait()  # whose events they are that were written since
            self._lacks = False
            yield from self._earlier()
        waiting, self._waiting = self._waiting, []
        if self._log is not None:
            self._told.update(_last_of(waiting))
            self._other = _after(self._other, self._told)
        yield from waiting
        self.seen = seen

    def _wait(self) -> None:
        for event in self._nodes.read():
            self._turn()
            self._waiting.append(event)
            self._has_any = True
        self._turn()

    def _turn(self) -> None:
        """Where it is another file than before, what was written last into that may be lost."""
        if self._nodes.begun != self._begun:
            self._begun, self._lacks, self._has_any = self._nodes.begun, True, False
            self._before += self._waiting
            self._waiting = []

    def _earlier(self) -> Iterator[JobEvent]:
        """Of the run that is in nodes.log, that alone says in what order things happened, and how
        POST scripts ended; of those before, what it said comes with the rest."""
        before, self._before = self._before, []
        other, self._other = self._other, []
        told, self._told = self._told | _last_of(before), {}
        first = min(_submissions(self._waiting), default=None)
        later: set[Job] = set()
        lost: list[JobEvent] = []
        for event in _after(other, told):
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


def _after(events: Sequence[JobEvent], told: Mapping[Job, Moment]) -> list[JobEvent]:
    """Those that came after what was told of their jobs: both logs have a job's events in the same
    order. Of a job whose told ones are not among them, all."""
    found: set[Job] = set()
    rest: list[JobEvent] = []
    for event in reversed(events):
        job = (event.cluster, event.proc)
        if job not in found:
            if told.get(job) == _moment(event):
                found.add(job)
            else:
                rest.append(event)
    return rest[::-1]


def _moment(event: JobEvent) -> Moment:
    return event.at, int(event.kind), event.nth


def _submissions(events: Iterable[JobEvent]) -> Iterator[tuple[float, int]]:
    """When jobs were submitted, and their numbers, which tell what was first in one second."""
    for event in events:
        if event.kind is Kind.SUBMIT:
            yield event.at, event.cluster


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
    as :class:`~monitors.workflows.logs.submit_dir.SubmitDir`.
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
