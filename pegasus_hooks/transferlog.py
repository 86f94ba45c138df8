"""What ``pegasus-transfer`` tells of its transfers: one record per file and attempt.

It writes them as ``<epoch>-transfer`` into ``$PEGASUS_MULTIPART_DIR``; kickstart copies the same
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
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from pegasus_hooks.moves import Moves
from pegasus_hooks.transferlist import RELAY, SitePair

_LINE = re.compile(r"\s*(-\s+)?(\w+):\s*(.*?)\s*$")
_START_ROUNDING_S = 1.0  # ``start`` is printed in whole seconds


@dataclass(frozen=True, slots=True)
class Attempt:
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


@dataclass(frozen=True, slots=True)
class PairResult:
    """What became of one site pair. ``n_bytes`` is None where a size is known to nobody."""

    n_bytes: int | None
    seconds: float
    files: int
    failed_attempts: int


def parse(text: str) -> list[Attempt]:
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


def read_dir(directory: Path, since: float = 0.0) -> list[Attempt]:
    """The records of every ``*-transfer`` file in ``directory`` written at or after ``since``."""
    attempts: list[Attempt] = []
    for path in sorted(directory.glob("*-transfer")):
        if path.stat().st_mtime >= since:
            attempts += parse(path.read_text(encoding="utf-8", errors="replace"))
    return attempts


def placed(attempts: Iterable[Attempt], moves: Moves) -> list[Attempt]:
    """The attempts with the sites that their ends really are at: the tool writes the labels of its
    list, and calls the machine that it relays over ``local`` wherever that is."""

    def site(label: str, url: str) -> str:
        return moves.site if label == RELAY else moves.site_of(label, url)

    return [replace(a, src=site(a.src, a.src_url), dst=site(a.dst, a.dst_url)) for a in attempts]


def pair_result(
    pair: SitePair, attempts: Iterable[Attempt], known: Mapping[str, int]
) -> PairResult:
    """Bytes and seconds of what ``pair`` moved.

    Bytes are those of the record, else the declared size, else ``known`` (by lfn). Files that one
    call of a tool moved share start and duration and count their time once; calls that ran side by
    side count no more than the span from first start to last end.
    """
    # pegasus-transfer writes site labels with "_" for "-".
    ends = (pair.src.replace("-", "_"), pair.dst.replace("-", "_"))
    mine = [a for a in attempts if (a.src.replace("-", "_"), a.dst.replace("-", "_")) == ends]
    done = [a for a in mine if a.success]
    sizes = {t.lfn: t.size_bytes for t in pair.transfers}
    total: int | None = 0
    for lfn, n_bytes in {a.lfn: a.n_bytes for a in done}.items():
        size = n_bytes if n_bytes is not None else sizes.get(lfn)
        size = size if size is not None else known.get(lfn)
        total = None if total is None or size is None else total + size
    return PairResult(total if done else None, _seconds(done), len(done), len(mine) - len(done))


def _seconds(done: list[Attempt]) -> float:
    if not done:
        return 0.0
    busy = sum(duration for _, duration in {(a.start, a.duration_s) for a in done})
    span = max(a.start + a.duration_s for a in done) - min(a.start for a in done)
    return min(busy, span + _START_ROUNDING_S)


def _attempt(record: Mapping[str, str]) -> Attempt | None:
    try:
        return Attempt(
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
