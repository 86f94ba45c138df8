"""The YAML document that pegasus-kickstart writes about each job of a real Pegasus.

Only a few lines of it are of use here, and they stand in one fixed form, so they are read as they
are: the hooks do without a YAML library.

    - invocation: True
      start: 2026-11-21T09:49:17.718+00:00
      duration: 0.199
      mainjob:
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
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from network_provisioner.base.units import whole_bytes

_BEGIN = re.compile(r"^- invocation: True\s*$", re.MULTILINE)
# The first level of the document, two spaces deep (version 3.0 of its format).
_FIELD = re.compile(r"^  (start|duration|hostname): *\"?([^\"\n]*)\"?\s*$", re.MULTILINE)
_EXIT = re.compile(
    r"^  mainjob:.*?^      (raw|regular_exitcode): *(-?\d+)", re.MULTILINE | re.DOTALL
)
_CPU = re.compile(
    r"^  mainjob:\s*$(?:\n {4,}.*)*?\n      utime: *([\d.]+)\s*\n      stime: *([\d.]+)\s*$",
    re.MULTILINE,
)
_NODE = re.compile(r"^    uname_nodename: *\"?([^\"\n]*?)\"?\s*$", re.MULTILINE)
_FILES = re.compile(r"^  files:\s*$(.*?)(?=^ {0,2}\S|\Z)", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"^    \S.*:\s*$", re.MULTILINE)
_STDERR = re.compile(
    r"^    stderr:\s*$(?:\n      \S.*)*?\n      data: *\|[-+]?\d*\n((?:        .*\n|\s*\n)+)",
    re.MULTILINE,
)
_ABOUT = re.compile(r"^      (lfn|size|output): *\"?([^\"\n]*)\"?\s*$", re.MULTILINE)

_NOT_STARTED = -128  # as pegasus-analyzer


@dataclass(frozen=True, slots=True)
class JobRecord:
    """One run of one job; times in Unix seconds, sizes in bytes by logical file name. ``exitcode``
    is minus the signal where one ended it, -128 where it could not be started; ``cpu_s`` is what
    the program used of processors, None where nobody tells; ``source`` is what wrote it."""

    start: float
    end: float
    exitcode: int
    source: str = "kickstart"
    host: str = ""
    cpu_s: float | None = None
    inputs: Mapping[str, int] = field(default_factory=dict)
    outputs: Mapping[str, int] = field(default_factory=dict)

    @property
    def runtime_s(self) -> float:
        """Wall time of the tool itself."""
        return self.end - self.start

    @property
    def bytes_in(self) -> int:
        """Size of all inputs, 0 where the record does not tell."""
        return sum(self.inputs.values())

    @property
    def bytes_out(self) -> int:
        """Size of all outputs, 0 where the record does not tell."""
        return sum(self.outputs.values())


def invocations(text: str) -> list[JobRecord]:
    """All whole documents in a job's output, in their order."""
    found = list(_BEGIN.finditer(text))
    ends = [*(one.start() for one in found[1:]), len(text)] if found else []
    made = [_invocation(text[a.end() : b]) for a, b in zip(found, ends, strict=True)]
    return [one for one in made if one is not None]


def standard_error(text: str) -> str:
    """What the program of the last document wrote to its standard error, as far as it was kept."""
    found = _STDERR.findall(text)
    return textwrap.dedent(found[-1]) if found else ""


def _invocation(text: str) -> JobRecord | None:
    fields = dict(reversed(_FIELD.findall(text)))  # of a name that comes twice, the first
    exitcode = _EXIT.search(text)
    try:
        start = datetime.fromisoformat(fields["start"].strip()).timestamp()
        end = start + float(fields["duration"])
        code = _exitcode(exitcode[1], int(exitcode[2])) if exitcode else 0
    except (KeyError, ValueError, OverflowError):
        return None
    if not start <= end < float("inf"):
        return None
    inputs, outputs = _files(text)
    host = fields.get("hostname", "").strip()
    if not host and (node := _NODE.search(text)):  # versions that could not look its name up
        host = node[1]
    return JobRecord(
        start, end, code, host=host, cpu_s=_cpu_s(text), inputs=inputs, outputs=outputs
    )


def _exitcode(name: str, status: int) -> int:
    if name != "raw":
        return status
    if status < 0:
        return _NOT_STARTED
    return -(status & 127) or status >> 8


def _cpu_s(text: str) -> float | None:
    found = _CPU.search(text)
    try:
        return float(found[1]) + float(found[2]) if found else None
    except ValueError:
        return None


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
