"""Reads the events of jobs out of what DAGMan says of them, for where the event log is lost.

    11/21/26 10:06:20 Event: ULOG_EXECUTE for HTCondor Node align (4.0.0) {11/21/26 10:06:14}
    11/21/26 10:06:25 Event: ULOG_JOB_HELD for HTCondor Node align (4.0.0) {11/21/26 10:06:21}
    11/21/26 10:06:25   Hold reason: Error from slot1@mu: …
    11/21/26 10:06:30 Node align job proc (4.0.0) failed with status 3.
    11/21/26 10:06:41 POST Script of node align failed with status 1

It needs ``DAGMAN_VERBOSITY`` 3, the default. HTCondor before 8.5 does not write when the event
happened: then the line's own time counts, a few seconds later. Slots and the reasons of removals
are not there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from monitors.workflows.logs.dagman import message_of
from monitors.workflows.logs.events import JobEvent, Kind, is_of_job
from monitors.workflows.logs.stamps import HERE, STAMP, LocalClock, LogTimes, read_stamp
from monitors.workflows.logs.tail import Lines, Tail, without_holes

_KINDS = {
    b"SUBMIT": Kind.SUBMIT,
    b"EXECUTE": Kind.EXECUTE,
    b"JOB_EVICTED": Kind.EVICTED,
    b"JOB_TERMINATED": Kind.TERMINATED,
    b"SHADOW_EXCEPTION": Kind.SHADOW_EXCEPTION,
    b"JOB_ABORTED": Kind.ABORTED,
    b"JOB_HELD": Kind.HELD,
    b"JOB_RELEASED": Kind.RELEASED,
    b"POST_SCRIPT_TERMINATED": Kind.POST_SCRIPT_TERMINATED,
    b"JOB_RECONNECT_FAILED": Kind.RECONNECT_FAILED,
}
_EVENT = re.compile(
    rb"Event: ULOG_(\w+) for (?:HT)?Condor (?:[Nn]ode|[Jj]ob) (\S+)"
    rb" \((\d{1,10})\.(\d{1,10})(?:\.\d{1,10})?\)(?: \{" + STAMP + rb"[^}]*\})?"
)
_REASON = re.compile(rb"\s*Hold reason: (.*)")
_ENDED = re.compile(
    rb"(?:(?:Node|Job) (\S+) job proc \S+ |POST [Ss]cript of (?:[Nn]ode|[Jj]ob) (\S+) )"
    rb"(?:(completed)|failed with status (-?\d{1,10})|(?:failed with|died on) signal (\d{1,3}))"
)
_START = re.compile(rb"\*\* .*\(CONDOR_DAGMAN\) STARTING UP\s*\Z")
_WORDS = (b"Event: ULOG_", b"Hold reason", b" job proc ", b"POST ", b"STARTING UP")
_SAID_LATER = frozenset({Kind.HELD, Kind.TERMINATED, Kind.POST_SCRIPT_TERMINATED})


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
            for _, line in self._lines.feed(without_holes(piece.data)):
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
            if self._open is not None and self._open.kind not in _SAID_LATER:
                yield self._open
                self._open = None
        elif _START.match(text):
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
