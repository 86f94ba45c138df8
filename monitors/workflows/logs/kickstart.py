"""The records that pegasus-kickstart and pegasus-cluster write into a job's output.

kickstart writes one document for each program that it ran, in YAML (Pegasus 5) or XML (Pegasus 4).
Only a few lines of it are of use here, and they stand in one fixed form, so they are read as they
are: the hooks do without a YAML library.

    - invocation: True
      start: 2026-11-21T09:49:17.718+00:00        (kickstart's own times: checksums included)
      duration: 0.499
      transformation: "bwa_index"
      derivation: "ID0000001"                     (the task's id in the abstract workflow)
      mainjob:
        start: 2026-11-21T09:49:17.726+00:00      (the program's: what pegasus-statistics counts)
        duration: 0.190
        usage:
          utime: 0.102
          stime: 0.014
        status:
          raw: 0                (as wait(2) has it: 256 times the exit code, or the signal)
          regular_exitcode: 0
      files:
        Gmax_toy.fa.bwt:
          lfn: "Gmax_toy.fa.bwt"
          size: 600072
          output: True          (not there: an input)

In a clustered job there is one for each task, and pegasus-cluster, pegasus-mpi-cluster and their
predecessor seqexec add a line for each, also for tasks that kickstart did not run:

    [cluster-task id=2, start="2026-11-21T09:49:18.000+00:00", duration=1.000, status=256, line=4,
     pid=4002, app="/opt/tally/count"]

Between all these may stand whatever programs and batch systems print.

Before Pegasus 5 the document is XML, the same as the YAML in other words:

    <invocation start="2012-08-28T00:55:14.798-04:00" duration="3039.014" transformation="t::x:1.0"
        derivation="ID1" hostname="n1" …>
      <mainjob start="2012-08-28T00:55:15.013-04:00" duration="3038.799" pid="32227">
        <usage utime="8.321" stime="2.112" …/>
        <status raw="0"><regular exitcode="0"/></status>
      </mainjob>
      <statcall error="0" id="final" lfn="f.b"> … <statinfo mode="0100644" size="77" …/></statcall>
      <statcall error="0" id="stderr"> … <data>no such file</data></statcall>
    </invocation>
"""

from __future__ import annotations

import html
import re
import textwrap
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import takewhile

from network_provisioner.base.units import whole_bytes

# What a document begins with, and what ends the one before. Each begins with a text of its own,
# which is found many times faster than one of several.
_MARKS = [
    (kind, re.compile(mark, re.MULTILINE))
    for kind, mark in (
        ("yaml", r"- invocation: True[ \t\r]*$"),
        ("xml", r"<invocation\s"),
        ("task", r"\[cluster-task (?:[^\[\]\n]|\[(?!cluster-task ))*\]"),
        ("task", r"\[seqexec-task (?:[^\[\]\n]|\[(?!seqexec-task ))*\]"),
        ("other", r"\[cluster-summary"),
        ("other", r"\[seqexec-summary"),
        ("other", r"-----pegasus-multipart"),
    )
]
# The first level of a document in YAML is two spaces deep (version 3.0 of its format).
_FIELD = re.compile(
    r"^  (start|duration|hostname|transformation|derivation): *\"?([^\"\n]*)\"?\s*$", re.MULTILINE
)
_PART = re.compile(r"^  (prejob|mainjob|postjob): *\n((?:   .*\n?)*)", re.MULTILINE)
_TIME = re.compile(r"^    (start|duration): *(\S+)\s*$", re.MULTILINE)
_STATUS = re.compile(r"^      (raw|regular_exitcode): *(-?\d+)", re.MULTILINE)
_CPU = re.compile(r"^      utime: *([\d.]+)\s*\n      stime: *([\d.]+)\s*$", re.MULTILINE)
_NODE = re.compile(r"^    uname_nodename: *\"?([^\"\n]*?)\"?\s*$", re.MULTILINE)
_FILES = re.compile(r"^  files: *\n((?:   .*\n?|[ \t]*\n)*)", re.MULTILINE)
_FILE = re.compile(r"^    \S.*:\s*$", re.MULTILINE)
_STDERR = re.compile(
    r"^    stderr:\s*$(?:\n      \S.*)*?\n      data: *\|[-+]?\d*\n((?:        .*\n|\s*\n)+)",
    re.MULTILINE,
)
_ABOUT = re.compile(r"^      (lfn|size|output): *\"?([^\"\n]*)\"?\s*$", re.MULTILINE)

_VALUE = re.compile(r"(\w+)=(?:\"([^\"]*)\"|([^\s,\"]+))")  # of a line of pegasus-cluster

_IN_ORDER = ("prejob", "mainjob", "postjob")  # the first that fails is the last that runs
NOT_STARTED = -128  # as pegasus-analyzer
_CLUSTER = "pegasus-cluster"
_UNKNOWN: Mapping[str, str] = {}
_CLOCK_S = 1.0  # kickstart and pegasus-cluster write times in milliseconds, or whole seconds

_ATTRIBUTE = re.compile(r"([\w-]+)=\"([^\"]*)\"")
_XML_PART = re.compile(r"<(prejob|mainjob|postjob)\s([^<>]*)>")
_XML_STATUS = re.compile(r"<status raw=\"(-?\d+)\"")
_XML_CPU = re.compile(r"<usage utime=\"([\d.]+)\" stime=\"([\d.]+)\"")
_XML_NODE = re.compile(r"<uname\s[^<>]*nodename=\"([^\"]*)\"")
_XML_FILE = re.compile(r"<(statcall)\s([^<>]*)>")
_SIZE = re.compile(r"<statinfo\s[^<>]*\bsize=\"(\d+)\"")
_DATA = re.compile(r"<(data)\b([^<>]*)(?<!/)>")


@dataclass(frozen=True, slots=True)
class JobRecord:
    """One run of one program; times in Unix seconds, sizes in bytes by logical file name.

    ``exitcode`` is minus the signal where one ended it, -128 where it could not be started;
    ``cpu_s`` is what the program used of processors, None where nobody tells; ``source`` is what
    wrote it. ``task`` is the id in the abstract workflow, or the number in the cluster where only
    pegasus-cluster tells of it; ``stderr`` what the program wrote there, as far as it was kept.
    """

    start: float
    end: float
    exitcode: int
    source: str = "kickstart"
    host: str = ""
    cpu_s: float | None = None
    inputs: Mapping[str, int] = field(default_factory=dict)
    outputs: Mapping[str, int] = field(default_factory=dict)
    transformation: str = ""
    task: str = ""
    stderr: str = ""

    @property
    def runtime_s(self) -> float:
        """Wall time of the program itself, to the microsecond."""
        return round(self.end - self.start, 6)

    @property
    def bytes_in(self) -> int:
        """Size of all inputs, 0 where the record does not tell."""
        return sum(self.inputs.values())

    @property
    def bytes_out(self) -> int:
        """Size of all outputs, 0 where the record does not tell."""
        return sum(self.outputs.values())


def invocations(text: str, ids: Mapping[str, str] = _UNKNOWN) -> list[JobRecord]:
    """All whole documents in a job's output, in their order; of a task of a clustered job without
    one, what pegasus-cluster tells. ``ids`` are those of tasks by their numbers in the cluster."""
    records: dict[int, JobRecord] = {}  # by where they stand
    lines: dict[int, JobRecord] = {}
    for number, (kind, part) in enumerate(_parts(text)):
        if kind == "task" and (line := _from_line(part)) is not None:
            lines[number] = replace(line, task=ids.get(line.task, line.task))
        elif kind in _READERS and (record := _READERS[kind](part)) is not None:
            records[number] = record
    for number, record in _without_record(lines, records, set(ids.values())):
        records[number] = record
    return [records[number] for number in sorted(records)]


def _without_record(
    lines: Mapping[int, JobRecord], records: dict[int, JobRecord], known: Collection[str]
) -> list[tuple[int, JobRecord]]:
    """The lines of tasks that kickstart did not run. Where a line says that a task failed, so does
    its record: kickstart itself may fail."""
    by_task = {record.task: number for number, record in records.items() if record.task}
    left = dict(records)
    own = {number: by_task[line.task] for number, line in lines.items() if line.task in by_task}
    for taken in own.values():
        left.pop(taken, None)
    for number, line in lines.items():
        if number not in own and line.task not in known:
            # Those that ran side by side may have their lines in another order.
            before = takewhile(number.__gt__, left)
            near = [i for i in before if _is_within(left[i], line)]
            if not near:
                continue
            own[number] = min(near, key=lambda i: (left[i].exitcode == 0) != (line.exitcode == 0))
            del left[own[number]]
    for number, i in own.items():
        records[i] = replace(records[i], exitcode=records[i].exitcode or lines[number].exitcode)
    return [(number, line) for number, line in lines.items() if number not in own]


def _is_within(record: JobRecord, line: JobRecord) -> bool:
    return line.start - _CLOCK_S <= record.start and record.end <= line.end + _CLOCK_S


def is_recorded(text: str) -> bool:
    """Whether kickstart wrote into a job's output, whole or torn."""
    return "- invocation:" in text or "<invocation" in text


def standard_error(text: str) -> str:
    """What the first program that failed wrote to its standard error, as far as it was kept; where
    none failed, the last program."""
    records = invocations(text)
    failed = [record.stderr for record in records if record.exitcode and record.stderr]
    return failed[0] if failed else records[-1].stderr if records else ""


def _parts(text: str) -> Iterator[tuple[str, str]]:
    """What stands in a job's output: of each part its kind and its text, to the next one."""
    starts = sorted(
        (mark.start(), kind)
        for kind, pattern in _MARKS
        for mark in pattern.finditer(text)
        if kind == "task" or not _is_inside(text, mark.start())
    )
    ends = [start for start, _ in starts[1:]] + [len(text)]
    for (start, kind), end in zip(starts, ends, strict=False):
        yield kind, text[start:end]


def _is_inside(text: str, at: int) -> bool:
    """Whether it is a program's own output, which is indented in a document. Before the beginning
    of a document may stand what a program printed without a line's end."""
    before = text[text.rfind("\n", 0, at) + 1 : at]
    return before.isspace() or before.startswith(" " * 8)


def _yaml(text: str) -> JobRecord | None:
    top = text.partition("\n  mainjob:")[0]
    head = dict(reversed(_FIELD.findall(top)))  # of a name that comes twice, the first
    parts = {name: body for name, body in reversed(_PART.findall(text))}
    statuses = {name: match for name, body in parts.items() if (match := _STATUS.search(body))}
    codes = {name: _exitcode(match[1], int(match[2])) for name, match in statuses.items()}
    main = parts.get("mainjob", "")
    if not head.get("hostname") and (node := _NODE.search(text)):
        head["hostname"] = node[1]  # versions that could not look its name up
    stderr = _STDERR.findall(text)
    words = textwrap.dedent(stderr[-1]) if stderr else ""
    times = dict(reversed(_TIME.findall(main)))
    return _record(head, times, codes, _CPU.search(main), _files(text), words)


def _xml(text: str) -> JobRecord | None:
    text = text.partition("</invocation>")[0]
    head = dict(_ATTRIBUTE.findall(text.partition(">")[0]))
    if not head.get("hostname") and (node := _XML_NODE.search(text)):
        head["hostname"] = node[1]
    main, codes, cpu = dict[str, str](), dict[str, int](), None
    for name, attributes, body in _elements(_XML_PART, text):
        if status := _XML_STATUS.search(body):
            codes[name] = _exitcode("raw", int(status[1]))
        if name == "mainjob":
            main, cpu = dict(_ATTRIBUTE.findall(attributes)), _XML_CPU.search(body)
    sizes: dict[str, dict[str, int]] = {"initial": {}, "final": {}}
    stderr = ""
    for _, attributes, body in _elements(_XML_FILE, text):
        about, size = dict(_ATTRIBUTE.findall(attributes)), _SIZE.search(body)
        if about.get("id") == "stderr":
            for _, _, data in _elements(_DATA, body):
                stderr = html.unescape(data.removeprefix("<![CDATA[").removesuffix("]]>"))
        elif about.get("id") in sizes and about.get("lfn") and size:
            sizes[about["id"]][html.unescape(about["lfn"])] = int(size[1])
    return _record(head, main, codes, cpu, (sizes["initial"], sizes["final"]), stderr)


def _elements(start: re.Pattern[str], text: str) -> Iterator[tuple[str, str, str]]:
    """Name, attributes and content of all whole elements that begin so. What a program printed may
    begin any number that never end: the first of those is the last that is looked at."""
    at = 0
    while begin := start.search(text, at):
        end = text.find(f"</{begin[1]}>", begin.end())
        if end < 0:
            return
        yield begin[1], begin[2], text[begin.end() : end]
        at = end


def _record(
    head: Mapping[str, str],
    main: Mapping[str, str],
    codes: Mapping[str, int],
    cpu: re.Match[str] | None,
    sizes: tuple[dict[str, int], dict[str, int]],
    stderr: str,
) -> JobRecord | None:
    """None for a document that was torn, or does not say how it ended. ``head`` has its attributes,
    ``main`` the program's own times, nothing where it was not started; ``codes`` the exit code of
    each part that ran, ``cpu`` the seconds of processors as user and system, ``sizes`` those of
    inputs and outputs."""
    try:
        start = _at(head["start"])
        # Where it could not be started, its own start is the beginning of time.
        start = max(start, _at(main["start"])) if "start" in main else start
        seconds = float(main.get("duration") or head["duration"])
        cpu_s = float(cpu[1]) + float(cpu[2]) if cpu else None
    except (KeyError, ValueError, OverflowError):
        return None
    if not (codes and start <= start + seconds < float("inf")):
        return None
    task = head.get("derivation", "")
    return JobRecord(
        start,
        start + seconds,
        next((codes[part] for part in _IN_ORDER if codes.get(part)), 0),
        host=head.get("hostname", "").strip(),
        cpu_s=cpu_s,
        inputs=sizes[0],
        outputs=sizes[1],
        transformation=head.get("transformation", ""),
        task="" if task == "null" else task,
        stderr=stderr,
    )


def _from_line(text: str) -> JobRecord | None:
    """What pegasus-cluster or pegasus-mpi-cluster tells of a task."""
    line = text.partition("]")[0]
    values = {name: quoted or plain for name, quoted, plain in _VALUE.findall(line)}
    try:
        start = _at(values["start"])
        end = start + float(values["duration"])
        code = _exitcode("raw", int(values["status"]))
    except (KeyError, ValueError, OverflowError):
        return None
    if not start <= end < float("inf"):
        return None
    task = values.get("name") or values.get("id", "")
    return JobRecord(start, end, code, _CLUSTER, values.get("hostname", ""), task=task)


def _at(text: str) -> float:
    return datetime.fromisoformat(text.strip()).timestamp()


def _exitcode(name: str, status: int) -> int:
    if name != "raw":
        return status
    if status < 0:
        return NOT_STARTED
    return -(status & 127) or status >> 8


def _files(text: str) -> tuple[dict[str, int], dict[str, int]]:
    """Sizes of inputs and outputs. Files that are not there have no size, streams no name."""
    inputs: dict[str, int] = {}
    outputs: dict[str, int] = {}
    section = _FILES.search(text)
    # The last entries are always those of streams; where they are not, the last was torn.
    for part in _FILE.split(section[1])[1:-1] if section else ():
        about = dict(_ABOUT.findall(part))
        size = whole_bytes(about.get("size", ""))
        if "lfn" in about and size is not None:
            kind = outputs if about.get("output") == "True" else inputs
            kind[about["lfn"]] = size
    return inputs, outputs


_READERS = {"yaml": _yaml, "xml": _xml}
