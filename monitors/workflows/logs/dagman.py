"""Reads what DAGMan writes into ``<dag>.dagman.out``: how many jobs are where, its PRE and POST
scripts, which jobs failed, and how it ended.

DAGMan writes a table whenever something changed, older versions without the last column:

    11/21/26 08:24:36 Of 4 nodes total:
    11/21/26 08:24:36  Done     Pre   Queued    Post   Ready   Un-Ready   Failed   Futile
    11/21/26 08:24:36   ===     ===      ===     ===     ===        ===      ===      ===
    11/21/26 08:24:36     3       0        0       1       0          0        0        0

A later run of the same workflow (a rescue DAG, recovery after a crash) is appended to the same
file. At the end stand the jobs that failed, also those whose PRE script or submission failed and
which no event log knows:

    11/21/26 11:26:46 ERROR: the following job(s) failed:
    11/21/26 11:26:46 ---------------------- Node ----------------------
    11/21/26 11:26:46       Node Name: align_ID1
    11/21/26 11:26:46           Error: Job proc (5.0.0) failed with status 3 (after 1 node retries)

Of DAGMan's own life and its scripts (no job log tells of PRE):

    ** condor_dagman (CONDOR_DAGMAN) STARTING UP
    ** PID = 357 RealUID = 1000
    Running PRE script of Node stage_in_0...
    PRE Script of node stage_in_0 completed successfully.
    PRE Script of node stage_in_0 failed with status 1
    PRE Script of node stage_in_0 died on signal 9 (Killed)
    Event: ULOG_SUBMIT for HTCondor Node stage_in_0 (4.0.0) {11/21/26 10:06:14}
    **** condor_dagman (condor_DAGMAN) pid 357 EXITING WITH STATUS 0

The times are local times of the submit host without a zone: they are read in the zone of this
process, or as ``times`` say. Seen with 25.14.1; the lines of single jobs need
``DAGMAN_VERBOSITY`` 3 (the default) or more. A PRE that asks to be run again later (``SCRIPT
DEFER``) has not ended.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import count
from pathlib import Path

from monitors.workflows.logs.stamps import GROUPS, HERE, STAMP, LocalClock, LogTimes, read_stamp
from monitors.workflows.logs.status import NOT_STARTED, Status, WorkflowState, percent
from monitors.workflows.logs.tail import Lines
from monitors.workflows.planned.foreign_files import end_of

# `11/21/26 08:24:36`, with a fraction where DAGMAN_DEBUG has D_SUB_SECOND, as ISO date where
# DEBUG_TIME_FORMAT says so, or the seconds since 1970 in brackets where it has D_TIMESTAMP; then
# perhaps (pid:…) (D_…) and the message.
_LINE = re.compile(
    rb"(?:" + STAMP + rb"|\((\d{9,11}(?:\.\d{1,6})?)\))"
    rb"(?: \((?:pid|tid|cid|fd|D_)[^)]*\))*(?: (.*)|)\Z",
    re.DOTALL,
)
_TOTAL = re.compile(rb"Of (\d{1,9}) nodes total:\s*\Z")
_NUMBERS = re.compile(rb"\s*\d{1,9}(?:\s+\d{1,9})*\s*\Z")
_RULES = re.compile(rb"\s*===(?:\s+===)*\s*\Z")
_EXIT = re.compile(rb"\*\*\*\* .*EXITING WITH STATUS (-?\d{1,9})\s*\Z")
DAGMAN_STARTS = re.compile(rb"\*\* .*\(CONDOR_DAGMAN\) STARTING UP\s*\Z")
_ASIDE = re.compile(rb"(?:Saving|Now in new) log file\b")
_REMOVED = re.compile(rb"Received SIGUSR1\b|DAG status: \d+ \(DAG_STATUS_RM\)")

_FAILED = re.compile(rb"ERROR: the following (?:job|[Nn]ode)\(s\) failed:")

# Why DAGMan left although no job failed: its last such lines, perhaps without a time.
#     ERROR: "align.dag" (line 3): Unknown keyword …
#     Unrecognized argument: -Insert_env_var
_TROUBLE = re.compile(
    rb"\b(?:ERROR|Error|Unrecognized|Aborting|Assertion|EXCEPT|[Ff]ailed|[Ff]ailure|FATAL|Fatal"
    rb"|[Ii]nvalid|[Ii]llegal|[Uu]nable|[Cc]annot|Can't|[Pp]ermission denied|No such file|REJECT"
    rb"|must be|not permitted|older than|on NFS|cycle exists|too many|No .{1,60} specified"
    rb"|[Mm]issing|[Uu]nknown|[Uu]ndefined|not found|mismatch)\b"
)
_NO_TROUBLE = re.compile(
    rb"setting:|Daemon Log is|passwords\.d|TOKEN|DAG status|job proc|Node Name:|^\s*\[|^[Ww]arning"
    rb"|the following|(?:PRE|POST|HOLD) [Ss]cript|metrics|^argv\[|^\*\* |^Running: |^\s*Done\s"
)
_MOST_WORDS = 3  # lines of them
_REFUSED = re.compile(
    rb"Event: ULOG_SUBMIT_FAILURE for \S+ \S+ (?P<node>\S+) \([^)]*\) \{[^}]*\} (?P<why>.+)"
)
# Older versions tell of no event:
#     Submitting HTCondor Node align_ID1 job(s)...
#     From submit: ERROR: Failed to parse command file (line 4).
#     Submitting node align_ID1 from file align.sub using direct job submission
#     could not open submit file : align.sub - can't open file
_SUBMITTING = re.compile(
    rb"Submitting (?:(?:HT)?Condor )?(?:[Nn]ode|[Jj]ob) (?P<node>\S+) (?:job\(s\)|from )"
    rb"|From submit: (?:Submitting job\(s\)\.*)?ERROR:? *(?P<why>.+)"
    rb"|(?:ERROR: )?(?P<where>(?:on Line \d+ of|could not open) submit file ?: .+)"
    rb"|Failed to submit job \S+: (?P<refused>.+)"
)
_NODE = re.compile(rb" *Node Name: (\S+)\s*\Z")
_ERROR = re.compile(rb" *Error: (.+?)\s*\Z")

# How a job's POST script ended, which of the event logs only nodes.log has, until it is emptied:
#     Event: ULOG_POST_SCRIPT_TERMINATED for HTCondor Node align_ID1 (5.0.0) {11/21/26 08:24:35}
#     POST Script of node align_ID1 failed with status 1
_SCRIPT = re.compile(
    rb"Event: ULOG_POST_SCRIPT_TERMINATED for (?:HT)?Condor (?:[Nn]ode|[Jj]ob) (\S+)"
    rb" \((\d{1,10})\.(\d{1,10})\."
)
_SCRIPT_ENDED = (
    rb"[Ss]cript of (?:[Nn]ode|[Jj]ob) (\S+) "
    rb"(?:(completed successfully)|failed with status (-?\d{1,10})|died on signal (\d{1,3}))"
)
_POST_ENDED = re.compile(rb"POST " + _SCRIPT_ENDED)
_PID = re.compile(rb"\*\* PID = (\d{1,10})\b")
_PRE_STARTED = re.compile(rb"Running PRE script of (?:[Nn]ode|[Jj]ob) (\S+?)\.\.\.\s*\Z")
_PRE_ENDED = re.compile(rb"PRE " + _SCRIPT_ENDED)
_SUBMITTED = re.compile(
    rb"Event: ULOG_SUBMIT for (?:HT)?Condor (?:[Nn]ode|[Jj]ob) (\S+) \((\d{1,10})\."
)

# What a line must hold to be looked at: one word of each of the patterns above.
_WORDS = (
    b"nodes total:", b"STARTING UP", b"EXITING WITH", b"SIGUSR1", b"(DAG_STATUS_RM)",
    b"(s) failed:", b"ULOG_POST_SCRIPT", b"ULOG_SUBMIT", b"Script of", b"script of",
    b"** PID =", b"Submitting ", b"From submit: ", b" submit file", b"Failed to submit job",
)  # fmt: skip

_COLUMNS = {
    b"Done": "done",
    b"Pre": "pre",
    b"Queued": "in_queue",
    b"Post": "post",
    b"Ready": "ready",
    b"Un-Ready": "unready",
    b"Failed": "fail",
    b"Futile": "futile",
}
_NEEDED = frozenset(_COLUMNS.values()) - {"futile"}

# DAGMan leaves with this to be started again by the schedd: the workflow goes on.
_EXIT_RESTART = 3
_END_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class StatusChange:
    """A status that differs from the one before.

    ``key`` is a function of what DAGMan wrote alone: whoever reads it, from whenever, in whatever
    portions and in whatever file it stands by now, gets the same keys.
    """

    key: str
    status: Status


class StepKind(StrEnum):
    """What DAGMan says of itself and of single jobs."""

    STARTED = "started"
    PID = "pid"
    EXITED = "exited"
    PRE_STARTED = "pre_started"
    PRE_ENDED = "pre_ended"
    SUBMITTED = "submitted"
    POST_ENDED = "post_ended"


@dataclass(frozen=True, slots=True)
class DagmanStep:
    """One step. ``at`` in Unix seconds. ``number`` is the process id, or the exit status, minus the
    signal where one ended it; ``cluster`` and ``proc`` are HTCondor's of the job. ``again`` is a
    start after DAGMan had said that it ended, or an end after which the schedd is to start it
    again."""

    step: StepKind
    at: float
    node: str = ""
    number: int = 0
    cluster: int = 0
    proc: int = 0
    again: bool = False


class DagmanParser:
    """Takes a ``dagman.out`` in portions and gives what it tells.

    Never fails: what is not understood is passed over, and a torn table counts for nothing. One
    parser reads one file from its beginning; a file that replaces it needs a new parser, which goes
    on where the one ``before`` ended: a log is put aside between any two lines.
    """

    def __init__(self, before: DagmanParser | None = None, times: LogTimes = HERE) -> None:
        self.current: Status | None = None
        self.started_at = 0.0  # of the last DAGMan (Unix seconds)
        self.understood = False  # whether any line was one of DAGMan's that matter
        self.failed: dict[str, str] = {}
        """The jobs that this DAGMan says failed, with the reasons."""
        self.last_messages: list[str] = []
        """What this DAGMan said last that tells of trouble."""
        self._total = 0
        self._columns: list[str] = []
        self._expected = ""  # which line of a table comes next
        self._removed = False
        self._refused: dict[str, str] = {}  # jobs that could not be submitted, and why
        self._submitting = ""  # the job that is being submitted
        self._listing = ""  # the job of that list of which the reason comes next
        self._lists = False
        self._script: re.Match[bytes] | None = None  # of which job one ended
        self._second = b""
        self._keys: set[str] = set()  # keys of that second
        self._clock = LocalClock(times)
        if before is not None:
            self.__dict__.update(before.__dict__)
        self._lines = Lines()

    def feed(self, data: bytes) -> Iterator[StatusChange | DagmanStep]:
        """What the next portion of the file tells. A start or an end comes before the change that
        it makes; :attr:`failed` is as it was when each was told."""
        for line in self._lines.feed(data):
            if _TROUBLE.search(line):
                self._hear(line)
            # Most lines are of no interest, and looking for a word is cheap.
            if self._expected or self._lists or any(word in line for word in _WORDS):
                yield from self._line(line)

    def _hear(self, line: bytes) -> None:
        message = message_of(line, self._clock)
        text = line if message is None else message[1]
        heard = " ".join(_text(text).split())
        if not _NO_TROUBLE.search(text) and heard not in self.last_messages:
            self.last_messages = [*self.last_messages, heard][-_MOST_WORDS:]

    def _line(self, line: bytes) -> Iterator[StatusChange | DagmanStep]:
        message = message_of(line, self._clock)
        if message is not None and _ASIDE.match(message[1]):
            return  # may stand in the middle of a table
        expected, self._expected = self._expected, ""
        if message is None:
            return
        at, text = message
        stamp = line[: len(line) - len(text)]
        if expected == "header" and set(names := _columns(text)) >= _NEEDED:
            self._columns = names
            self._expected = "rules"
        elif expected == "rules" and _RULES.match(text):
            self._expected = "numbers"
        elif expected == "numbers" and _NUMBERS.match(text):
            numbers = [int(word) for word in text.split()]
            if len(numbers) == len(self._columns):
                counts = dict(zip(self._columns, numbers, strict=True))
                self.understood = True
                yield from self._changed(stamp, self._status(counts, at))
        else:
            yield from self._message(stamp, at, text)

    def _message(self, stamp: bytes, at: float, text: bytes) -> Iterator[StatusChange | DagmanStep]:
        status = self.current or NOT_STARTED
        if self._lists:
            self._list(text)
        if total := _TOTAL.match(text):
            self._total = int(total[1])
            self._expected = "header"
        elif (step := _step_of(at, text)) is not None:
            yield step
        elif submitted := _SUBMITTING.match(text) or _REFUSED.match(text):
            self._submit(submitted)
        elif script := _SCRIPT.match(text):
            self._script = script
        elif ended := _POST_ENDED.match(text):
            script, self._script = self._script, None
            if script is not None and script[1] == ended[1]:
                job = (int(script[2]), int(script[3]))
                yield DagmanStep(StepKind.POST_ENDED, at, _text(ended[1]), _status_of(ended), *job)
        elif DAGMAN_STARTS.match(text):
            self._removed, self.started_at, self.understood = False, at, True
            self._lists, self.failed, self.last_messages, self._refused = False, {}, [], {}
            yield DagmanStep(StepKind.STARTED, at, again=status.ended)
            if status.ended:
                again = replace(status, state=WorkflowState.RUNNING, at=at, reason="")
                yield from self._changed(stamp, again)
        elif _REMOVED.match(text):
            self._removed = True
        elif _FAILED.match(text):
            self._lists, self._listing, self.failed = True, "", {}
        elif exited := _EXIT.match(text):
            self._lists = False
            number = int(exited[1])
            yield DagmanStep(StepKind.EXITED, at, number=number, again=number == _EXIT_RESTART)
            state = self._end_state(number)
            end = replace(status, state=state, at=at, reason=self._reason(state, number))
            yield from self._changed(stamp, end)

    def _submit(self, match: re.Match[bytes]) -> None:
        """A job is submitted, or why that failed."""
        words = match.groupdict()
        if words["node"]:
            self._submitting = _text(words["node"])
        if why := words["why"] or words.get("where") or words.get("refused"):
            self._refused[self._submitting] = _text(why).strip()

    def _list(self, text: bytes) -> None:
        if node := _NODE.match(text):
            self._listing = _text(node[1])
            self.failed[self._listing] = ""
        elif self._listing and (error := _ERROR.match(text)):
            why = self._refused.get(self._listing, "")
            self.failed[self._listing] = f"{_text(error[1])}{f': {why}' if why else ''}"
            self._listing = ""

    def _status(self, counts: Mapping[str, int], at: float) -> Status:
        share, running = percent(counts["done"], self._total), WorkflowState.RUNNING
        known = {name: counts.get(name, 0) for name in _COLUMNS.values()}
        return Status(
            **known, percent_done=share, total=self._total, state=running, at=at, reason=""
        )

    def _end_state(self, exit_status: int) -> WorkflowState:
        if exit_status == _EXIT_RESTART:
            return WorkflowState.RUNNING
        if self._removed:
            return WorkflowState.REMOVED
        return WorkflowState.FAILED if exit_status else WorkflowState.DONE

    def _reason(self, state: WorkflowState, exit_status: int) -> str:
        """Why it failed where no job did."""
        if state is not WorkflowState.FAILED or self.failed or (self.current or NOT_STARTED).fail:
            return ""
        words = "; ".join(self.last_messages) or "it does not say why"
        return f"DAGMan ended with status {exit_status}: {words}"

    def _changed(self, stamp: bytes, status: Status) -> Iterator[StatusChange]:
        if self.current is not None and replace(self.current, at=status.at) == status:
            return
        if self.current is not None and status.at < self.current.at:
            # The clock was set back, as every autumn: what came later must not look older.
            status = replace(status, at=self.current.at)
        self.current = status
        # The time as it stands in the file: what this process makes of it depends on its zone.
        if stamp != self._second:
            self._second, self._keys = stamp, set()
        content = repr((stamp, replace(status, at=0.0, reason=""))).encode()
        key = hashlib.sha256(content).hexdigest()[:20]
        for again in count(2):  # there and back within a second
            if key not in self._keys:
                break
            key = f"{key[:20]}.{again}"
        self._keys.add(key)
        yield StatusChange(key, status)


def message_of(line: bytes, clock: LocalClock) -> tuple[float, bytes] | None:
    """The time (Unix seconds) and the message of a line; None where it is no line of DAGMan's."""
    match = _LINE.match(line)
    if match is None:
        return None
    seconds = match[GROUPS + 1]
    at = float(seconds) if seconds else read_stamp(match, 1, clock)
    return None if at is None else (at, match[GROUPS + 2] or b"")


def _step_of(at: float, text: bytes) -> DagmanStep | None:
    """The step that a message tells for itself."""
    if submitted := _SUBMITTED.match(text):
        return DagmanStep(StepKind.SUBMITTED, at, _text(submitted[1]), cluster=int(submitted[2]))
    if started := _PRE_STARTED.match(text):
        return DagmanStep(StepKind.PRE_STARTED, at, _text(started[1]))
    if ended := _PRE_ENDED.match(text):
        return DagmanStep(StepKind.PRE_ENDED, at, _text(ended[1]), _status_of(ended))
    if pid := _PID.match(text):
        return DagmanStep(StepKind.PID, at, number=int(pid[1]))
    return None


def _status_of(ended: re.Match[bytes]) -> int:
    """The exit status that a message of ``_SCRIPT_ENDED`` tells, minus the signal where one ended
    the script."""
    return -int(ended[4]) if ended[4] else int(ended[3] or 0)


def _text(name: bytes) -> str:
    return name.decode(errors="replace")


def _columns(text: bytes) -> list[str]:
    return [_COLUMNS.get(word, "") for word in text.split()]


def last_moment(path: Path, times: LogTimes = HERE) -> float | None:
    """When DAGMan wrote its last line (Unix seconds); None where it wrote none that can be read."""
    clock, lines = LocalClock(times), end_of(path, _END_BYTES).encode().splitlines()
    messages = (message_of(line, clock) for line in reversed(lines))
    return next((message[0] for message in messages if message is not None), None)
