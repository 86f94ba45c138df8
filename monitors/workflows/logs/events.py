"""Reads HTCondor's job event logs: ``<dag>.nodes.log``, a workflow's own log, ``<dag>.dagman.log``.

    001 (002.000.000) 2026-11-21 08:25:51.733 Job executing on host: <127.0.0.1:19777?…>
    ...

HTCondor's own reader (``htcondor2.JobEventLog``) is not used: of a log with a few bytes of garbage
in front it gives no event at all, after a truncation it never gives one again (DAGMan truncates
``nodes.log`` at every start), and its time stamps are whole seconds although the log has
milliseconds (with ``DEFAULT_USERLOG_FORMAT_OPTIONS = SUB_SECOND``). Tried with 25.14.1.

HTCondor writes events as ClassAds instead of text, in XML or JSON, where ``log_xml = True``,
``EVENT_LOG_USE_XML`` or ``DEFAULT_USERLOG_FORMAT_OPTIONS`` asks for them:

    <c>                                             {
      <a n="EventTypeNumber"><i>12</i></a>            "EventTypeNumber": 12,
      <a n="EventTime"><s>2026-05-11T08:00:42</s></a>   "EventTime": "2026-05-11T08:00:42",
      <a n="HoldReason"><s>…</s></a>                  "HoldReason": "…"
    </c>                                            }
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from itertools import takewhile
from pathlib import Path
from typing import Any

from monitors.workflows.logs.stamps import HERE, STAMP, LocalClock, LogTimes, read_stamp
from monitors.workflows.logs.tail import Lines, Tail

_MOST_AD_LINES = 2000  # of one ad
_HEADER = re.compile(rb"(\d{3}) \((-?\d{1,10})\.(-?\d{1,10})\.-?\d{1,10}\) " + STAMP + rb" ")
_TIME = re.compile(STAMP)
_NODE = re.compile(rb'\bDAGNodeName = "((?:[^"\\]|\\.)*)"|^\s+DAG Node: (\S+)')
_RETURN = re.compile(
    rb"\(1\) Normal termination \(return value (-?\d{1,10})\)"
    rb"|\(0\) Abnormal termination \(signal (\d{1,3})\)"
)
_CODE = re.compile(rb"^\s*Code (-?\d{1,9}) Subcode (-?\d{1,9})")
_BYTES = re.compile(rb"^\s*(\d{1,18})\s+-\s+Run Bytes (Sent|Received) By Job")
_SLOT = re.compile(rb"^\s+SlotName: (\S+)")
_SCHEDD = re.compile(rb"Job submitted from host: (<[^>]{1,1000}>)")
_STEP = re.compile(
    rb"(Entered queue to transfer|Started transferring|Finished transferring) (input|output) files"
)
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML has not; HTCondor writes them as they are in what it was given."""
_ALIAS = re.compile(r"[?&]alias=([^&>]+)")
_MOST_LINES = 500  # of one event
_LARGEST = 1e18
_NO_REASON = "Reason unspecified"
_NOOP_PROC = 2**31 - 1  # DAGMan's number of a node that it passes over (NOOP)
_FIRST_TRANSFER_PROC = -1000  # and below: HTCondor's shadows that send files for several jobs


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
        Kind.RECONNECT_FAILED,
    }
)
"""What tells how far a job is."""

_STEPS = {
    (b"Entered", b"input"): TransferStep.IN_QUEUED,
    (b"Started", b"input"): TransferStep.IN_STARTED,
    (b"Finished", b"input"): TransferStep.IN_FINISHED,
    (b"Entered", b"output"): TransferStep.OUT_QUEUED,
    (b"Started", b"output"): TransferStep.OUT_STARTED,
    (b"Finished", b"output"): TransferStep.OUT_FINISHED,
}
_STEP_NUMBERS = frozenset(int(step) for step in TransferStep)
_ENDS = frozenset({Kind.TERMINATED, Kind.POST_SCRIPT_TERMINATED})
_LAST = frozenset({Kind.TERMINATED, Kind.ABORTED, Kind.POST_SCRIPT_TERMINATED})


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
    of a removal or a hold, HTCondor's ``code`` and ``subcode`` of a hold, the bytes that a job's
    last execution sent and received (None where not told), and the ``ad``, one attribute a line, of
    a :attr:`Kind.JOB_AD`.
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
    code: int = field(default=0, compare=False)
    subcode: int = field(default=0, compare=False)
    sent_bytes: int | None = field(default=None, compare=False)
    received_bytes: int | None = field(default=None, compare=False)
    ad: Sequence[str] = field(default=(), compare=False)


class EventParser:
    """Takes an event log in portions and gives its events of these ``kinds``.

    Never fails: what is not understood is passed over. One parser reads one file from its
    beginning.
    """

    def __init__(self, times: LogTimes = HERE, kinds: frozenset[Kind] = JOB_KINDS) -> None:
        self._lines = Lines()
        self._kinds: dict[object, Kind] = {int(kind): kind for kind in kinds}
        self._clock = LocalClock(times)
        self._ads = AdLines()
        self._open: tuple[Kind, int, int, float] | None = None  # kind, cluster, process, time
        self._details: list[bytes] = []  # the lines of the one that is open, the first one's text
        self._moment: dict[tuple[int, int], list[JobEvent]] = {}  # each job's at its newest time

    def feed(self, data: bytes) -> list[JobEvent]:
        """The events that became whole with the next portion of the file."""
        return [event for line in self._lines.feed(data) for event in self._line(line)]

    def _line(self, line: bytes) -> Iterator[JobEvent]:
        if line.rstrip() == b"...":
            yield from self._close()
        elif header := _HEADER.search(line):
            # An event that was never finished: its writer was killed. What it says still holds.
            yield from self._close()
            at, proc = read_stamp(header, 4, self._clock), int(header[3])
            kind = self._kind(int(header[1]))
            if kind is not None and at is not None and is_of_job(kind, proc):
                self._open = kind, int(header[2]), proc, at
                self._details = [line[header.end() :]]
        elif self._open is not None:
            if len(self._details) < _MOST_LINES:
                self._details.append(line)
        else:
            ad = self._ads.feed(line)
            if ad is not None and (event := self._of_ad(ad)) is not None:
                yield self._numbered(event)

    def _kind(self, number: object) -> Kind | None:
        return self._kinds.get(number) if isinstance(number, int) else None

    def _of_ad(self, ad: Mapping[str, Any]) -> JobEvent | None:
        """The event that an ad is, with the same details as its text."""
        kind, stamp = self._kind(ad.get("EventTypeNumber")), str(ad.get("EventTime", ""))
        written = _TIME.match(stamp.encode())
        at = written and read_stamp(written, 1, self._clock)
        cluster, proc = ad.get("Cluster"), ad.get("Proc", 0)
        if kind is None or at is None or not isinstance(cluster, int) or not isinstance(proc, int):
            return None
        if not is_of_job(kind, proc):
            return None
        returned = ad.get("ReturnValue") if kind in _ENDS else None
        if kind in _ENDS and ad.get("TerminatedNormally") is False:
            returned = -_whole(ad.get("TerminatedBySignal"))
        node = _NODE.search(f"    {ad.get('LogNotes', '')}".encode())
        step, schedd = ad.get("Type"), str(ad.get("SubmitHost", ""))
        return JobEvent(
            kind,
            cluster,
            proc,
            at,
            node=str(ad.get("DAGNodeName") or (_text(node[1] or node[2] or b"") if node else "")),
            slot=str(ad.get("SlotName", "")) if kind is Kind.EXECUTE else "",
            returned=returned if isinstance(returned, int) else None,
            schedd=schedd_of(schedd) if schedd else "",
            step=TransferStep(step)
            if kind is Kind.FILE_TRANSFER and isinstance(step, int) and step in _STEP_NUMBERS
            else None,
            reason=str(ad.get("HoldReason") or ad.get("Reason") or ""),
            code=_whole(ad.get("HoldReasonCode")),
            subcode=_whole(ad.get("HoldReasonSubCode")),
            sent_bytes=_whole(ad.get("SentBytes")) if "SentBytes" in ad else None,
            received_bytes=_whole(ad.get("ReceivedBytes")) if "ReceivedBytes" in ad else None,
            ad=tuple(f"{name} = {json.dumps(value)}" for name, value in ad.items())
            if kind is Kind.JOB_AD
            else (),
        )

    def _close(self) -> Iterator[JobEvent]:
        if self._open is not None:
            yield self._numbered(_event(*self._open, *self._details))
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
        same = sum(replace(earlier, nth=0) == event for earlier in known)
        if same and replace(known[-1], nth=0) == event:
            return known[-1]  # with nothing between, one was written twice
        known.append(replace(event, nth=same))
        return known[-1]


def is_of_job(kind: Kind, proc: int) -> bool:
    """Whether an event of one of the ``JOB_KINDS`` is of a job that runs: those of a NOOP node are
    made up by DAGMan, and shadows that send common files have some of their own."""
    return kind not in JOB_KINDS or _FIRST_TRANSFER_PROC < proc < _NOOP_PROC


def schedd_of(address: str) -> str:
    """``host:port`` and the machine's name, where it is there, of an address as HTCondor writes it,
    ``<127.0.0.1:9618?alias=hub&sock=schedd_7_0>``: what stays the same when a schedd is started
    again, and two machines that listen on loopback do not share."""
    alias = _ALIAS.search(address)
    place = address.strip().lstrip("<").partition("?")[0].rstrip(">")
    return f"{place} {alias[1]}" if alias else place


class EventTail:
    """An event log that is followed: its events of these ``kinds``. ``times`` say what its own do
    not; by default they are of this machine, and of before the file was changed last."""

    def __init__(
        self, path: Path, kinds: frozenset[Kind] = JOB_KINDS, times: LogTimes | None = None
    ) -> None:
        self.path = path
        self.tail, self._kinds = Tail(path), kinds
        self._times = times or LogTimes(latest=self._last_changed)
        self._parser = EventParser(self._times, kinds)

    def _last_changed(self) -> float:
        try:
            return min(self.path.stat().st_mtime, time.time())
        except (OSError, ValueError):
            return time.time()

    def read(self) -> Iterator[JobEvent]:
        """The events that are new. Raises InputError where the file cannot be read."""
        for piece in self.tail.read():
            if piece.first:
                self._parser = EventParser(self._times, self._kinds)
            yield from self._parser.feed(piece.data)


def _event(kind: Kind, cluster: int, proc: int, at: float, text: bytes, *lines: bytes) -> JobEvent:
    """An event with what the rest of its first line and the lines below that say."""
    if kind is Kind.JOB_AD:
        return JobEvent(kind, cluster, proc, at, ad=tuple(_text(line) for line in lines))
    fields: dict[str, Any] = {}
    if kind is Kind.FILE_TRANSFER and (step := _STEP.match(text)):
        fields["step"] = _STEPS[step[1].split()[0], step[2]]
    elif kind is Kind.SUBMIT and (schedd := _SCHEDD.match(text)):
        fields["schedd"] = schedd_of(_text(schedd[1]))
    elif kind in (Kind.ABORTED, Kind.HELD):
        # Below the reason of a removal may stand who ended the job.
        most = 1 if kind is Kind.ABORTED else None
        about = takewhile(lambda line: not _CODE.match(line), lines[:most])
        reason = " ".join(_text(line).strip() for line in about).strip()
        fields["reason"] = "" if reason == _NO_REASON else reason
    for line in lines:
        if "node" not in fields and (node := _NODE.search(line)):
            fields["node"] = _text(node[1] or node[2] or b"")
        elif kind is Kind.EXECUTE and (slot := _SLOT.match(line)):
            fields["slot"] = sys.intern(_text(slot[1]))  # many jobs share one
        elif kind is Kind.HELD and (code := _CODE.match(line)):
            fields |= {"code": int(code[1]), "subcode": int(code[2])}
        elif kind in _ENDS:
            if "returned" not in fields and (ended := _RETURN.search(line)):
                fields["returned"] = -int(ended[2]) if ended[2] else int(ended[1])
            elif moved := _BYTES.match(line):
                fields[f"{moved[2].decode().lower()}_bytes"] = int(moved[1])
    return JobEvent(kind, cluster, proc, at, **fields)


def _text(data: bytes) -> str:
    return data.decode(errors="replace")


def _whole(value: object) -> int:
    return int(value) if isinstance(value, int | float) and abs(value) < _LARGEST else 0


class AdLines:
    """Puts the lines of a log together to ads."""

    def __init__(self) -> None:
        self._lines: list[bytes] = []
        self._depth = 0

    def feed(self, line: bytes) -> dict[str, Any] | None:
        """The ad where the line is the last of one."""
        text = line.strip()
        if line.startswith((b"<c>", b"{")):  # what is inside an ad is indented
            self._lines, self._depth = [], 0
        elif not self._lines:
            return None
        self._lines.append(text)
        is_xml = self._lines[0].startswith(b"<")
        self._depth += text.count(b"<c>") - text.count(b"</c>")
        if self._depth > 0 or not text.endswith((b"</c>", b"}")):
            if len(self._lines) > _MOST_AD_LINES:
                self._lines = []
            return None
        data = b"\n".join(self._lines)
        ad = _xml(data) if is_xml else _json(data)
        if is_xml or ad is not None:
            self._lines = []
        return ad


def _json(data: bytes) -> dict[str, Any] | None:
    try:
        parsed = json.loads(data)
        if b"\\ud" in data.lower():  # may be half a character, which no text or database holds
            halves = json.dumps(parsed, ensure_ascii=False).encode(errors="surrogatepass")
            parsed = json.loads(_text(halves))
    except (ValueError, RecursionError):
        return None
    return parsed if isinstance(parsed, dict) else None


def _xml(data: bytes) -> dict[str, Any] | None:
    from xml.etree import ElementTree  # noqa: PLC0415  # few logs are XML

    try:
        return {
            attribute.get("n", ""): _value(value)
            for attribute in ElementTree.fromstring(_NO_XML.sub("\ufffd", _text(data)))
            for value in attribute
        }
    except (ElementTree.ParseError, ValueError):
        return None


def _value(element: Any) -> Any:
    text = element.text or ""
    if element.tag == "i":
        return int(text)
    if element.tag == "r":
        return float(text)
    return element.get("v") == "t" if element.tag == "b" else text
