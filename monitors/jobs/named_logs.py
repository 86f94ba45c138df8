"""The events of jobs for where DAGMan's own log of them is not there: in the event logs that the
jobs' submit files name, and in what DAGMan says of them.

    log = align.log          one for each job, one for all (diamond.log), or one for each
    log = align.$(Cluster)   submission

HTCondor before 7.9 kept no other. Those logs outlive a run, and jobs of others may be in them: here
they tell of jobs that are in this DAG, submitted since its DAGMan first started. Of jobs that are
in none, DAGMan's words are left, with ``DAGMAN_VERBOSITY`` 3, the default:

    11/21/26 10:06:20 Event: ULOG_EXECUTE for HTCondor Node align (4.0.0) {11/21/26 10:06:14}
    11/21/26 10:06:25 Event: ULOG_JOB_HELD for HTCondor Node align (4.0.0) {11/21/26 10:06:21}
    11/21/26 10:06:25   Hold reason: Error from slot1@mu: …
    11/21/26 10:06:30 Node align job proc (4.0.0) failed with status 3.
    11/21/26 10:06:41 POST Script of node align failed with status 1

HTCondor before 8.5 does not write when the event happened: then the line's own time counts, a few
seconds later. Slots and the reasons of removals are not there.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import replace
from glob import glob
from pathlib import Path

from monitors.jobs.executions import Execution, LastExecutions
from monitors.workflows.logs.dagman import DAGMAN_STARTS, message_of
from monitors.workflows.logs.events import JOB_KINDS, EventTail, JobEvent, Kind, is_of_job
from monitors.workflows.logs.stamps import HERE, STAMP, LocalClock, LogTimes, read_stamp
from monitors.workflows.logs.tail import Lines, Tail
from monitors.workflows.planned.submit_dir import SubmitDir
from network_provisioner.base.errors import InputError

KINDS = JOB_KINDS | {Kind.FILE_TRANSFER}

_KINDS = {kind.name.encode(): kind for kind in JOB_KINDS}
_EVENT = re.compile(
    rb"Event: ULOG_(?:JOB_)?(\w+) for (?:HT)?Condor (?:[Nn]ode|[Jj]ob) (\S+)"
    rb" \((\d{1,10})\.(\d{1,10})(?:\.\d{1,10})?\)(?: \{" + STAMP + rb"[^}]*\})?"
)
_REASON = re.compile(rb"\s*Hold reason: (.*)")
_ENDED = re.compile(
    rb"(?:(?:Node|Job) (\S+) job proc \S+ |POST [Ss]cript of (?:[Nn]ode|[Jj]ob) (\S+) )"
    rb"(?:(completed)|failed with status (-?\d{1,10})|(?:failed with|died on) signal (\d{1,3}))"
)
_WORDS = (b"Event: ULOG_", b"Hold reason", b" job proc ", b"POST ", b"STARTING UP")
_TOLD_IN_PARTS = frozenset({Kind.HELD, Kind.TERMINATED, Kind.POST_SCRIPT_TERMINATED})


class NamedLogs:
    """The events of a workflow without a log of its own: as the logs of its jobs tell them, and of
    jobs that are in none, as DAGMan does."""

    def __init__(self, plan: SubmitDir, times: LogTimes | None) -> None:
        self._plan, self._times = plan, times
        self._dagman = DagmanEventTail(plan.dagman_out, times or HERE)
        self._patterns: list[str] | None = None
        self._logs: dict[str, EventTail] = {}
        self._executions = LastExecutions()
        self._names: dict[int, str] = {}  # nodes by cluster, as DAGMan says
        self._submitted: dict[tuple[int, int], float] = {}  # when, of jobs that the logs tell of
        self._scripts: set[tuple[int, int]] = set()  # whose POST script's end is in the logs
        self._dagmans: set[tuple[int, int]] = set()  # jobs that DAGMan alone tells of
        self._reported: list[JobEvent] = []  # by DAGMan, not told yet
        self._logged: list[JobEvent] = []  # in the logs, not told yet
        self.is_lost = False
        """Whether of any job there is nothing but DAGMan's words."""

    def read(self) -> list[JobEvent]:
        """Those that are new. Raises InputError where a file is there and cannot be read: then all
        that was read waits until it can be."""
        # DAGMan has read in the logs what it tells of: what is in them is there now.
        for event in self._dagman.read():
            self._reported.append(event)
            if event.node:
                self._names[event.cluster] = event.node
        if self._dagman.began:
            self._read_logs(self._nodes())
        reported, logged = self._reported, self._logged
        self._reported, self._logged = [], []
        rest = [event for event in reported if not self._is_logged(event)]
        alone = [event for event in rest if event.kind is not Kind.POST_SCRIPT_TERMINATED]
        self._dagmans |= {(event.cluster, event.proc) for event in alone}
        self.is_lost |= bool(alone)
        return sorted([*logged, *rest], key=lambda event: event.at)

    @property
    def is_read(self) -> bool:
        """Whether any log was read."""
        return any(log.tail.begun for log in self._logs.values())

    def execution(self, cluster: int, proc: int) -> Execution | None:
        """The last execution of a process, once, where a log tells of it."""
        return self._executions.take(cluster, proc)

    def _is_logged(self, event: JobEvent) -> bool:
        jobs = self._scripts if event.kind is Kind.POST_SCRIPT_TERMINATED else self._submitted
        return (event.cluster, event.proc) in jobs

    def _nodes(self) -> Collection[str]:
        """Those of the DAG, and what DAGMan calls them."""
        nodes = set(self._names.values())
        with suppress(InputError):
            nodes.update(self._plan.nodes)
        return nodes

    def _read_logs(self, nodes: Collection[str]) -> None:
        began = math.floor(self._dagman.began)
        for log in self._logs_now():
            for event in log.read():
                job = (event.cluster, event.proc)
                name = event.node
                if event.kind is Kind.SUBMIT:
                    self._submitted.pop(job, None)
                    name = name or self._names.get(event.cluster, "")
                    if name in nodes and event.at >= began and job not in self._dagmans:
                        self._submitted[job] = event.at
                if event.at < self._submitted.get(job, math.inf):
                    continue
                self._executions.feed(event)
                if event.kind is Kind.POST_SCRIPT_TERMINATED:
                    self._scripts.add(job)
                if event.kind in JOB_KINDS:
                    self._logged.append(replace(event, node=name))

    def _logs_now(self) -> list[EventTail]:
        if self._patterns is None:
            self._patterns = self._plan.job_logs()
        for pattern in self._patterns:
            for path in glob(pattern) if "*" in pattern else [pattern]:  # noqa: PTH207
                if path not in self._logs:
                    self._logs[path] = EventTail(Path(path), KINDS, self._times)
        return list(self._logs.values())


class DagmanEventTail:
    """The events in a ``dagman.out`` that is followed."""

    def __init__(self, path: Path, times: LogTimes = HERE) -> None:
        self._tail, self._lines = Tail(path), Lines()
        self._clock, self._events = LocalClock(times), LocalClock(times)
        self._open: JobEvent | None = None  # of which the next lines may say more
        self.began = 0.0
        """When the first DAGMan there started (Unix seconds), 0 where none did."""

    def read(self) -> Iterator[JobEvent]:
        """The events that are new. Raises InputError where the file cannot be read."""
        for piece in self._tail.read():
            if piece.first:
                self._lines, self._open = Lines(), None
            for line in self._lines.feed(piece.data):
                if any(word in line for word in _WORDS):
                    yield from self._line(line)

    def _line(self, line: bytes) -> Iterator[JobEvent]:
        message = message_of(line, self._clock)
        if message is None:
            return
        at, text = message
        event, self._open = self._open, None
        if match := _EVENT.match(text):
            if event is not None:
                yield event
            self._open = self._event(match, at)
            if self._open is not None and self._open.kind not in _TOLD_IN_PARTS:
                yield self._open
                self._open = None
        elif DAGMAN_STARTS.match(text):
            self.began = self.began or at
        elif event is None:
            return
        elif event.kind is Kind.HELD and (reason := _REASON.match(text)):
            yield replace(event, reason=_text(reason[1]).strip())
        elif (ended := _ENDED.match(text)) and event.node == _text(ended[1] or ended[2]):
            returned = -int(ended[5]) if ended[5] else int(ended[4] or 0)
            yield replace(event, returned=returned)
        else:
            self._open = event

    def _event(self, match: re.Match[bytes], at: float) -> JobEvent | None:
        kind = _KINDS.get(match[1])
        if kind is None:
            return None
        happened = read_stamp(match, 5, self._events) if match[11] else at
        node = _text(match[2])
        job = (int(match[3]), int(match[4]))
        if happened is None or not is_of_job(kind, job[1]):
            return None
        return JobEvent(kind, *job, happened, node=node)


def _text(data: bytes) -> str:
    return data.decode(errors="replace")
