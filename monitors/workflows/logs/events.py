"""Reads HTCondor's job event logs: ``<dag>.nodes.log``, a workflow's own log, ``<dag>.dagman.log``.

    001 (002.000.000) 2026-11-21 08:25:51.733 Job executing on host: <127.0.0.1:19777?…>
    ...

HTCondor's own reader (``htcondor2.JobEventLog``) is not used: of a log with a few bytes of garbage
in front it gives no event at all, after a truncation it never gives one again (DAGMan truncates
``nodes.log`` at every start), and its time stamps are whole seconds although the log has
milliseconds (with ``DEFAULT_USERLOG_FORMAT_OPTIONS = SUB_SECOND``). Tried with 25.14.1.
"""

from __future__ import annotations

import calendar
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from heapq import merge
from pathlib import Path
from typing import Any

from monitors.workflows.logs.tail import Lines, LocalClock, Tail, state_of


class Kind(IntEnum):
    """The events that matter anywhere in ADON, with HTCondor's numbers (``condor_event.h``)."""

    SUBMIT = 0
    EXECUTE = 1
    EVICTED = 4
    TERMINATED = 5
    SHADOW_EXCEPTION = 7
    ABORTED = 9
    HELD = 12
    RELEASED = 13
    POST_SCRIPT_TERMINATED = 16
    DISCONNECTED = 22
    RECONNECT_FAILED = 24
    JOB_AD = 28
    FILE_TRANSFER = 40
    COMMON_FILES = 47


class TransferStep(IntEnum):
    """``Type`` of a file transfer event."""

    IN_QUEUED = 1
    IN_STARTED = 2
    IN_FINISHED = 3
    OUT_QUEUED = 4
    OUT_STARTED = 5
    OUT_FINISHED = 6


JOB_KINDS = frozenset(
    {
        Kind.SUBMIT,
        Kind.EXECUTE,
        Kind.EVICTED,
        Kind.TERMINATED,
        Kind.SHADOW_EXCEPTION,
        Kind.ABORTED,
        Kind.HELD,
        Kind.RELEASED,
        Kind.POST_SCRIPT_TERMINATED,
    }
)
"""What tells how far a job is."""


@dataclass(frozen=True, slots=True)
class JobEvent:
    """One event of one job.

    ``at`` is in Unix seconds. ``node`` is the job's name in the DAG, where the event tells it
    (submit and post script). ``returned`` is the exit status of a job or script that ended by
    itself, minus the signal where a signal ended it, None where the event tells of no end.
    ``schedd`` is where a job was submitted (:func:`schedd_of`), where the event tells it. ``step``
    is of a file transfer. ``nth`` tells events from each other that are the same, time and all:
    held, released and held again within a second, where the log has whole ones.

    Two logs may tell of one event with more or less beside it, by which it is no other: ``reason``
    of a removal or a hold, the bytes that a job's last execution sent and received (None where not
    told), and the ``ad``, one attribute a line, of a :attr:`Kind.JOB_AD`.
    """

    kind: Kind
    cluster: int
    proc: int
    at: float
    node: str = ""
    slot: str = ""
    returned: int | None = None
    schedd: str = ""
    step: TransferStep | None = None
    nth: int = 0
    reason: str = field(default="", compare=False)
    sent_bytes: int | None = field(default=None, compare=False)
    received_bytes: int | None = field(default=None, compare=False)
    ad: Sequence[str] = field(default=(), compare=False)


_HEADER = re.compile(
    rb"(\d{3}) \((-?\d{1,10})\.(-?\d{1,10})\.-?\d{1,10}\) "
    rb"(?:(\d{4})-(\d\d)-(\d\d)|(\d\d)/(\d\d))[ T]"
    rb"(\d\d):(\d\d):(\d\d)(\.\d{1,6})?(Z|[+-]\d\d:?\d\d)? "
)
_NODE = re.compile(rb'\bDAGNodeName = "((?:[^"\\]|\\.)*)"|^\s+DAG Node: (\S+)')
_RETURN = re.compile(
    rb"\(1\) Normal termination \(return value (-?\d{1,10})\)"
    rb"|\(0\) Abnormal termination \(signal (\d{1,3})\)"
)
_BYTES = re.compile(rb"^\s*(\d{1,18})\s+-\s+Run Bytes (Sent|Received) By Job")
_SLOT = re.compile(rb"^\s+SlotName: (\S+)")
_SCHEDD = re.compile(rb"Job submitted from host: (<[^>]{1,1000}>)")
_STEP = re.compile(
    rb"(Entered queue to transfer|Started transferring|Finished transferring) (input|output) files"
)
_STEPS = {
    (b"Entered", b"input"): TransferStep.IN_QUEUED,
    (b"Started", b"input"): TransferStep.IN_STARTED,
    (b"Finished", b"input"): TransferStep.IN_FINISHED,
    (b"Entered", b"output"): TransferStep.OUT_QUEUED,
    (b"Started", b"output"): TransferStep.OUT_STARTED,
    (b"Finished", b"output"): TransferStep.OUT_FINISHED,
}
_ALIAS = re.compile(r"[?&]alias=([^&>]+)")
_NUMBERS = frozenset(int(kind) for kind in Kind)
_LAST = frozenset({Kind.TERMINATED, Kind.ABORTED, Kind.POST_SCRIPT_TERMINATED})
_MOST_LINES = 500  # of one event


class EventParser:
    """Takes an event log in portions and gives its events of these ``kinds``.

    Never fails: what is not understood is passed over. ``now`` (Unix seconds) only serves the old
    time format that has no year. One parser reads one file from its beginning.
    """

    def __init__(self, now: float | None = None, kinds: frozenset[Kind] = JOB_KINDS) -> None:
        self._lines = Lines()
        self._now = time.time() if now is None else now
        self._kinds = kinds
        self._clock = LocalClock()
        self._open: JobEvent | None = None
        self._details: list[bytes] = []  # the lines of the one that is open, the first one's text
        self._moment: dict[tuple[int, int], list[JobEvent]] = {}  # each job's at its newest time

    def feed(self, data: bytes) -> list[JobEvent]:
        """The events that became whole with the next portion of the file."""
        events: list[JobEvent] = []
        for _, line in self._lines.feed(data):
            events += self._line(line)
        return events

    def _line(self, line: bytes) -> Iterator[JobEvent]:
        if line.rstrip() == b"...":
            yield from self._close()
        elif line[:3].isdigit() and (header := _HEADER.match(line)):
            # An event that was never finished: its writer was killed. What it says still holds.
            yield from self._close()
            number, at = int(header[1]), _time(header, self._now, self._clock)
            if number in _NUMBERS and Kind(number) in self._kinds and at is not None:
                self._open = JobEvent(Kind(number), int(header[2]), int(header[3]), at)
                self._details = [line[header.end() :]]
        elif self._open is not None and len(self._details) < _MOST_LINES:
            self._details.append(line)

    def _close(self) -> Iterator[JobEvent]:
        if self._open is not None:
            yield self._numbered(_with_details(self._open, *self._details))
            self._open = None

    def _numbered(self, event: JobEvent) -> JobEvent:
        job = (event.cluster, event.proc)
        if event.kind is Kind.JOB_AD:  # is about another event, and not one of its own
            return event
        if event.kind in _LAST:
            self._moment.pop(job, None)
            return event
        known = self._moment.get(job)
        if known is None or known[-1].at != event.at:
            self._moment[job] = [event]
            return event
        same = sum(replace(one, nth=0) == event for one in known)
        if same and replace(known[-1], nth=0) == event:
            return known[-1]  # with nothing between, one was written twice
        known.append(replace(event, nth=same))
        return known[-1]


def schedd_of(address: str) -> str:
    """``host:port`` and the machine's name, where it is there, of an address as HTCondor writes it,
    ``<127.0.0.1:9618?alias=hub&sock=schedd_7_0>``: what stays the same when a schedd is started
    again, and two machines that listen on loopback do not share."""
    alias = _ALIAS.search(address)
    place = address.strip().lstrip("<").partition("?")[0].rstrip(">")
    return f"{place} {alias[1]}" if alias else place


class EventTail:
    """An event log that is followed: its events of these ``kinds``."""

    def __init__(self, path: Path, kinds: frozenset[Kind] = JOB_KINDS) -> None:
        self._tail, self._kinds = Tail(path), kinds
        self._parser = EventParser(kinds=kinds)

    @property
    def begun(self) -> int:
        """See :attr:`Tail.begun`."""
        return self._tail.begun

    @property
    def seen(self) -> tuple[object, ...]:
        """See :attr:`Tail.seen`."""
        return self._tail.seen

    @property
    def changed_at(self) -> float:
        """See :attr:`Tail.changed_at`."""
        return self._tail.changed_at

    def read(self) -> Iterator[JobEvent]:
        """The events that are new. Raises InputError where the file cannot be read."""
        for piece in self._tail.read():
            if piece.first:
                self._parser = EventParser(kinds=self._kinds)
            yield from self._parser.feed(piece.data)


Job = tuple[int, int]  # HTCondor's numbers of it: cluster and process
Moment = tuple[float, int, int]  # of an event of a job: when, which kind, and which of the same

_EMPTY = (-1, 0)  # sizes of a file that is not there or has nothing in it


class JobEvents:
    """The events in ``<dag>.nodes.log``, each once, and before them what that has lost.

    DAGMan empties it at every start. The workflow's own log has earlier runs too, and the last
    words of a run whose end nobody read before the next began.
    """

    def __init__(self, nodes_log: Path, log: Path | None) -> None:
        self._path, self._nodes = nodes_log, EventTail(nodes_log)
        self._log = None if log is None else EventTail(log)
        self._lacks = True  # whether what stands in the other log alone is to be read
        self._begun = 0  # how many files nodes.log was until then
        self._has_any = False  # whether the one that it is told of anything
        self._before: list[JobEvent] = []  # of files that it was, not told yet
        self._waiting: list[JobEvent] = []  # of the one that it is
        self._other: list[JobEvent] = []  # of the other log, not told
        self._last: dict[Job, Moment] = {}  # each job's last, of those that are in both logs
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
        seen = state_of(self._path)
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
            self._last.update(_last_of(waiting))
            self._other = _after(self._other, self._last)
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
        told, self._last = self._last | _last_of(before), {}
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


def _with_details(event: JobEvent, text: bytes, *lines: bytes) -> JobEvent:
    """An event with what the rest of its first line and the lines below that say."""
    kind = event.kind
    if kind is Kind.JOB_AD:
        return replace(event, ad=tuple(_text(line) for line in lines))
    told: dict[str, Any] = {}
    if kind is Kind.FILE_TRANSFER and (step := _STEP.match(text)):
        told["step"] = _STEPS[step[1].split()[0], step[2]]
    elif kind is Kind.SUBMIT and (schedd := _SCHEDD.match(text)):
        told["schedd"] = schedd_of(_text(schedd[1]))
    elif kind in (Kind.ABORTED, Kind.HELD) and lines:
        told["reason"] = _text(lines[0]).strip()
    for line in lines:
        if "node" not in told and (node := _NODE.search(line)):
            told["node"] = _text(node[1] or node[2] or b"")
        elif kind is Kind.EXECUTE and (slot := _SLOT.match(line)):
            told["slot"] = _text(slot[1])
        elif kind in (Kind.TERMINATED, Kind.POST_SCRIPT_TERMINATED):
            if "returned" not in told and (ended := _RETURN.search(line)):
                told["returned"] = -int(ended[2]) if ended[2] else int(ended[1])
            elif moved := _BYTES.match(line):
                told[f"{moved[2].decode().lower()}_bytes"] = int(moved[1])
    return replace(event, **told) if told else event


def _text(data: bytes) -> str:
    return data.decode(errors="replace")


def _time(header: re.Match[bytes], now: float, local: LocalClock) -> float | None:
    clock = (int(header[9]), int(header[10]), int(header[11]))
    fraction = float(header[12] or 0)
    zone = header[13]
    if header[4]:
        date = (int(header[4]), int(header[5]), int(header[6]))
        if zone is None:
            return local.unix(*date, *clock[:2], clock[2] + fraction)
        try:
            return calendar.timegm((*date, *clock, 0, 0, 0)) - _offset_s(zone) + fraction
        except (OverflowError, ValueError):
            return None
    # No year: the latest that does not lie in the future (a day's grace for skewed clocks).
    year = time.localtime(now).tm_year
    date = (year, int(header[7]), int(header[8]))
    at = LocalClock().unix(*date, *clock[:2], clock[2] + fraction)
    if at is None or at > now + 86400:
        date = (year - 1, *date[1:])
    return local.unix(*date, *clock[:2], clock[2] + fraction)


def _offset_s(zone: bytes) -> int:
    """Seconds east of Greenwich of ``Z``, ``+01:00`` or ``-0600``."""
    if zone == b"Z":
        return 0
    digits = zone[1:].replace(b":", b"")
    seconds = int(digits[:2]) * 3600 + int(digits[2:]) * 60
    return -seconds if zone.startswith(b"-") else seconds
