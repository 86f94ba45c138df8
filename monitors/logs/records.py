"""What a job says about its own run, more exactly than the event log.

Two kinds of record are read from a job's standard output: the line that the embedded planner's
wrapper prints,

    adon-job-record: {"job": …, "start": …, "end": …, "exitcode": 0, "inputs": {"lfn": bytes}, …}

and the YAML document of pegasus-kickstart, which the real planner's jobs write.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from monitors.logs import kickstart

_TAIL_BYTES = 1 << 20  # records stand at the end, whatever the job printed before
_MOST_RENAMED = 1000  # three digits
_PREFIX = "adon-job-record:"
_CLOCK_S = 2.0  # how far clocks and whole-second event times may disagree


@dataclass(frozen=True, slots=True)
class JobRecord:
    """One run of one job; times in Unix seconds, sizes in bytes."""

    start: float
    end: float
    exitcode: int
    source: str
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


def read_record(output: Path, started: float, ended: float) -> JobRecord | None:
    """The record of the run between two event times (Unix seconds), None where there is none.

    pegasus-exitcode renames the output of a finished job to ``<job>.out.000`` and so on, so those
    are looked at too. Records of other runs of the job are told apart by their times.
    """
    for path in versions(output):
        for record in reversed(records_in(end_of(path))):
            if is_of(record, started, ended):
                return record
    return None


def is_of(record: JobRecord, started: float, ended: float) -> bool:
    """Whether a record is of the run between two event times (Unix seconds)."""
    return record.start >= started - _CLOCK_S and record.end <= ended + _CLOCK_S


def versions(path: Path) -> Iterator[Path]:
    """A job's file, then those that pegasus-exitcode renamed it to, newest first. All are there
    when they are looked for, but need not be any more when they are opened."""
    yield path
    # Only now: what is renamed while the first is opened is found here. Names are tried, for the
    # folder may hold the files of ten thousand jobs.
    renamed = []
    for number in range(_MOST_RENAMED):
        one = path.with_name(f"{path.name}.{number:03d}")
        if not _is_there(one):
            break
        renamed.append(one)
    yield from reversed(renamed)


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # a name that is too long
        return False


def end_of(path: Path, most_bytes: int = _TAIL_BYTES) -> str:
    """The end of a file, "" where it is not there or not to be read: then it tells nothing."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - most_bytes))
            return file.read(most_bytes).decode(errors="replace")
    except (OSError, ValueError):  # ValueError: a name with a zero byte in it
        return ""


def records_in(text: str) -> list[JobRecord]:
    """All whole records in a job's output: lines of the embedded planner's, then documents."""
    found = [_from_line(line) for line in text.splitlines() if line.startswith(_PREFIX)]
    found += [
        JobRecord(
            start=one.start,
            end=one.end,
            exitcode=one.exitcode,
            source="kickstart",
            host=one.host,
            cpu_s=one.cpu_s,
            inputs=one.inputs,
            outputs=one.outputs,
        )
        for one in kickstart.invocations(text)
    ]
    return [record for record in found if record is not None]


def _from_line(line: str) -> JobRecord | None:
    try:
        data = json.loads(line[len(_PREFIX) :])
        record = JobRecord(
            start=float(data["start"]),
            end=float(data["end"]),
            exitcode=int(data["exitcode"]),
            source="job record",
            host=str(data.get("host", "")),
            cpu_s=float(data["cpu_s"]) if data.get("cpu_s") is not None else None,
            inputs=_sizes(data.get("inputs")),
            outputs=_sizes(data.get("outputs")),
        )
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
        return None  # torn or foreign: it is a program's output, anything may stand there
    return record if record.end >= record.start else None


def _sizes(data: Any) -> dict[str, int]:
    return {
        str(lfn): int(size)
        for lfn, size in (data or {}).items()
        if isinstance(size, int | float) and size >= 0
    }
