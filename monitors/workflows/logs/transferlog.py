"""What ``pegasus-transfer`` tells of its transfers: one record per file and attempt.

It writes them as ``<epoch>-transfer`` into ``$PEGASUS_MULTIPART_DIR``; PegasusLite prints the same
lines into a job's ``.out``. The tool prints this YAML by hand, in one fixed form, so the lines are
read as they are and the hooks need no YAML library:

    - transfer_attempts:
      - src_url: "file:///a"
        src_label: "mu"
        dst_url: "gsiftp://h/b"
        dst_label: "tacc"
        success: True
        start: 1700000000         (whole seconds)
        duration: 1.2
        lfn: "f"
        bytes: 42                 (only where one end is a file:// URL)

Where nobody gave it such a directory there is its log, rounded, and with the two seconds that it
waits before the first:

    … INFO:  Starting transfers - attempt 1
    … INFO:         Between sites local->mu : 1 transfers, 19.0 B transferred in 2 seconds. Rate: …

Standard library only: the hooks import this.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from monitors.workflows.planned.foreign_files import read_text

_LINE = re.compile(r"\s*(-\s+)?(\w+):\s*(.*?)\s*$")
_START_ROUNDING_S = 1.0  # ``start`` is printed in whole seconds
_MOST = 2**63  # bytes of one file
_BETWEEN = re.compile(
    r"INFO: +Between sites (\S{1,200})->(\S{1,200}) : (\d{1,9}) transfers, (\d{1,5}\.\d) ([KMGT]?)B"
    r" transferred in (\d{1,9}) seconds\."
)
_TRIES = re.compile(r"INFO: +Starting transfers - attempt (\d{1,3})$", re.MULTILINE)
_PREFIXES = ("", "K", "M", "G", "T")


@dataclass(frozen=True, slots=True)
class TransferAttempt:
    """One attempt at one file. ``n_bytes`` is None for third-party transfers."""

    src: str
    dst: str
    lfn: str
    success: bool
    start: float
    duration_s: float
    n_bytes: int | None = None
    src_url: str = field(default="", compare=False)
    dst_url: str = field(default="", compare=False)


def parse(text: str) -> list[TransferAttempt]:
    """Every complete record in ``text``; lines of anything else are passed over."""
    records: list[dict[str, str]] = []
    inside = False
    for line in text.splitlines():
        match = _LINE.match(line)
        if match is None:
            inside = False
            continue
        dash, key, value = match.groups()
        if dash:
            inside = key == "src_url"
            if inside:
                records.append({})
        if inside:
            records[-1][key] = value.strip('"')
    return [a for a in map(_attempt, records) if a is not None]


def read_dir(directory: Path, since: float = 0.0) -> list[TransferAttempt]:
    """The records of every ``*-transfer`` file in ``directory`` written at or after ``since``.
    Raises OSError for one that cannot be read."""
    attempts: list[TransferAttempt] = []
    for path in sorted(directory.glob("*-transfer")):
        if path.stat().st_mtime >= since:
            attempts += parse(read_text(path, "replace"))
    return attempts


def seconds_of(done: Iterable[TransferAttempt]) -> float:
    """How long transfers took together. Files that one call of a tool moved share start and
    duration and count their time once; calls that ran side by side count no more than the span from
    first start to last end."""
    done = list(done)
    if not done:
        return 0.0
    busy = sum(duration for _, duration in {(a.start, a.duration_s) for a in done})
    span = max(a.start + a.duration_s for a in done) - min(a.start for a in done)
    return min(busy, span + _START_ROUNDING_S)


def _attempt(record: Mapping[str, str]) -> TransferAttempt | None:
    try:
        attempt = TransferAttempt(
            src=record["src_label"],
            dst=record["dst_label"],
            lfn=record.get("lfn", ""),
            success=record["success"] == "True",
            start=float(record["start"]),
            duration_s=float(record["duration"]),
            n_bytes=int(record["bytes"]) if "bytes" in record else None,
            src_url=record["src_url"],
            dst_url=record.get("dst_url", ""),
        )
    except (KeyError, ValueError):  # cut short: the tool died while writing
        return None
    # Foreign text: what no clock and no disk can have said is no record.
    times = 0 <= attempt.start < float("inf") and 0 <= attempt.duration_s < float("inf")
    return attempt if times and 0 <= (attempt.n_bytes or 0) < _MOST else None


@dataclass(frozen=True, slots=True)
class Summary:
    """What the tool logged of one pair of sites; bytes to three digits or so, times to seconds."""

    src: str
    dst: str
    files: int
    n_bytes: int
    seconds: float
    retries: int


def summaries(text: str) -> list[Summary]:
    """What the log of one run of the tool says at its end; nothing where servers moved the files
    between themselves."""
    tries = [int(digits) for digits in _TRIES.findall(text)]
    return [
        Summary(
            src=src,
            dst=dst,
            files=int(files),
            n_bytes=round(float(number) * 1024 ** _PREFIXES.index(prefix)),
            seconds=float(seconds),
            retries=max(tries, default=1) - 1,
        )
        for src, dst, files, number, prefix, seconds in _BETWEEN.findall(text)
    ]
