"""What a job moved between sites: measurements of metric ``job_transfer``.

Bytes, times and failed tries are those that ``pegasus-transfer`` told of its files
(:mod:`monitors.workflows.logs.transferlog`). Where hooks ran around the job, their journal in the
submit directory knows more: sizes of files that no tool counts, and the path that the bytes went.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from monitors.measurement import Measurement
from monitors.workflows.facts.attempts import Attempt
from monitors.workflows.logs.submit_dir import JobKind
from monitors.workflows.logs.tail import Lines, Tail
from monitors.workflows.logs.transferlog import Attempt as Moved
from monitors.workflows.logs.transferlog import Summary, seconds_of
from network_provisioner.errors import InputError
from network_provisioner.units import goodput


def transfer_fact(
    attempt: Attempt,
    ends: tuple[str, str],
    key: str,
    workflow: str,
    retry: int,
    *,
    n_bytes: int | None,
    seconds: float | None,
    files: int | None,
    retries: int,
    direction: str,
    tool: str,
    source: str,
    at: float,
    path: Sequence[str] | None = None,
    transit: str = "",
) -> Measurement:
    """``ends``: from where to where; ``key`` tells it from all else that the attempt moved; ``at``:
    when it ended (Unix seconds).

    What nobody knows is None: of ``n_bytes``, and the value is 0 then; of ``seconds`` and
    ``files``; of ``path`` where none was asked for, while an empty one is that of best effort.
    Where bytes or seconds are not known, or are none, there is no goodput.
    """
    return Measurement(
        id=f"job_transfer:{workflow}:{attempt.key}:{key}",
        metric="job_transfer",
        subject=f"{ends[0]}>{ends[1]}",
        value=float(n_bytes or 0),
        unit="byte",
        at=at,
        source=source,
        workflow=workflow,
        details={
            "job": attempt.job.name,
            "kind": str(attempt.job.kind),
            "attempt": attempt.number,
            "retry": retry,
            "bytes": n_bytes,
            "seconds": seconds,
            "goodput_bps": goodput(n_bytes, seconds) if n_bytes and seconds else None,
            "files": files,
            "retries": retries,
            "outcome": str(attempt.outcome),
            "path": None if path is None else list(path),
            "transit": transit,
            "tool": tool,
            "direction": direction,
        },
    )


JOURNAL = "adon-hooks.jsonl"
RELAY = "local"  # what pegasus-transfer calls the machine that it runs on, wherever that is
_LONG_S = 20.0  # from here on two seconds of waiting are less than a tenth
_LOCAL = ("file:", "symlink:", "moveto:")
_LABEL = re.compile(r'"site_label":\s*"([^"\\]+)"')
_SIZE = re.compile(r'"lfn":\s*"([^"\\]+)"(?:(?!"lfn":).)*?"size":\s*"(\d{1,18})"', re.DOTALL)
_DIRECTIONS = {
    JobKind.STAGE_IN: "in",
    JobKind.STAGE_OUT: "out",
    JobKind.STAGE_INTER: "between",
}


@dataclass(frozen=True, slots=True)
class Listed:
    """What a job's transfer list says: site names by the way the tool writes them, sizes by logical
    file name where they are declared."""

    names: Mapping[str, str] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)


def listed(output: Path | None) -> Listed:
    """From ``<job>.in`` of a transfer job or ``<job>.sh`` of PegasusLite, beside its output."""
    if output is None:
        return Listed()
    for ending in (".in", ".sh"):
        try:
            text = output.with_suffix(ending).read_text(encoding="utf-8", errors="replace")
        except (OSError, ValueError):
            continue
        labels = set(_LABEL.findall(text))
        if labels:
            sizes = {lfn: int(size) for lfn, size in _SIZE.findall(text)}
            return Listed({label.replace("-", "_"): label for label in labels}, sizes)
    return Listed()


class Journal:
    """The hooks' journal of one workflow, of which only what is new is read."""

    def __init__(self, submit_dir: Path) -> None:
        self._path = submit_dir / JOURNAL
        self._tail = Tail(self._path)
        self._lines = Lines()
        self._transfers: dict[str, list[Mapping[str, Any]]] = {}

    def transfers(self, job: str, since: float, until: float) -> list[Mapping[str, Any]]:
        """What POST told of a job's transfers between two instants (Unix seconds)."""
        if not self._path.exists():  # no hooks: looking where else it may have gone costs a scan
            return []
        try:
            for piece in self._tail.read():
                if piece.first:
                    self._lines, self._transfers = Lines(), {}
                for _, line in self._lines.feed(piece.data):
                    self._take(line)
        except InputError:
            pass  # not to be read: then the tool's own records are what there is
        return [line for line in self._transfers.get(job, ()) if since <= line["at"] <= until]

    def _take(self, line: bytes) -> None:
        if b'"transfer"' not in line:
            return
        try:
            data = json.loads(line)
            if data["event"] == "transfer" and isinstance(data["at"], int | float):
                _text(data, "src"), _text(data, "dst")
                self._transfers.setdefault(_text(data, "job"), []).append(data)
        except (ValueError, KeyError, TypeError, RecursionError):
            return  # torn or foreign


def transfer_facts(
    attempt: Attempt,
    moved: Iterable[Moved],
    logged: Iterable[Summary],
    told: Sequence[Mapping[str, Any]],
    known: Listed,
    workflow: str,
    retry: int,
) -> list[Measurement]:
    """One measurement for each pair of sites that an attempt which is over moved files between.

    ``told`` are the hooks' lines about it, ``logged`` counts where there are neither these nor
    records. What stays within a site is left out. The value is in
    bytes, 0 where nobody knows them; then ``bytes`` of the details is None. ``path`` is None where
    no path was asked for, and empty where it went as best effort.
    """
    pairs: dict[tuple[str, str], list[Moved]] = {}
    for one in moved:
        ends = (_site(one.src, one.src_url, attempt, known), _site(one.dst, one.dst_url, attempt,
                                                                   known))  # fmt: skip
        if ends[0] != ends[1] and all(ends):
            pairs.setdefault(ends, []).append(one)
    lines = {(line["src"], line["dst"]): line for line in told if line["src"] != line["dst"]}
    for ends in lines:
        pairs.setdefault(ends, [])
    facts = [
        _fact(attempt, ends, tries, lines.get(ends, {}), known, workflow, retry)
        for ends, tries in pairs.items()
    ]
    for row in () if facts else logged:
        src, dst = (known.names.get(label, label) for label in (row.src, row.dst))
        if src != dst:
            # Its log as one record, whose time has the wait before the first transfer in it.
            whole = Moved(src, dst, "", True, attempt.start, row.seconds, row.n_bytes)
            fact = _fact(attempt, (src, dst), [whole], {}, known, workflow, retry)
            rate = fact.details["goodput_bps"] if row.seconds >= _LONG_S else None
            rounded = {"files": row.files, "retries": row.retries, "goodput_bps": rate}
            facts.append(replace(fact, source="log", details={**fact.details, **rounded}))
    return facts


def _fact(
    attempt: Attempt,
    ends: tuple[str, str],
    tries: Sequence[Moved],
    line: Mapping[str, Any],
    known: Listed,
    workflow: str,
    retry: int,
) -> Measurement:
    done = [one for one in tries if one.success]
    n_bytes = _number(line, "bytes") if line else None
    if n_bytes is None and tries:
        n_bytes = _sum(done, known.sizes)
    seconds = (_number(line, "seconds") if line else None) or seconds_of(done)
    files = len({one.lfn for one in done}) if tries else int(_number(line, "files") or 0)
    failed = len(tries) - len(done) if tries else int(_number(line, "failed_attempts") or 0)
    path = line.get("path")
    return transfer_fact(
        attempt,
        ends,
        f"{ends[0]}>{ends[1]}",
        workflow,
        retry,
        n_bytes=None if n_bytes is None else int(n_bytes),
        seconds=seconds,
        files=files,
        retries=failed,
        direction=_direction(attempt, ends),
        tool="pegasus-transfer",
        source="hooks" if line else "pegasus-transfer",
        at=attempt.end,
        path=[str(node) for node in path] if isinstance(path, list) else None,
        transit=str(line.get("id", "")),
    )


def _direction(attempt: Attempt, ends: tuple[str, str]) -> str:
    """A compute job's own transfers are in or out by where it ran."""
    found = _DIRECTIONS.get(attempt.job.kind)
    return found or ("in" if ends[1] == attempt.job.site else "out")


def _site(label: str, url: str, attempt: Attempt, known: Listed) -> str:
    if label == RELAY and url.startswith(_LOCAL) and attempt.job.site:
        return attempt.job.site
    return known.names.get(label, label)


def _sum(done: Sequence[Moved], sizes: Mapping[str, int]) -> int | None:
    total = 0
    for lfn, counted in {one.lfn: one.n_bytes for one in done}.items():
        size = sizes.get(lfn) if counted is None else counted
        if size is None:
            return None
        total += size
    return total


def _number(line: Mapping[str, Any], key: str) -> float | None:
    value = line.get(key)
    good = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 2**63
    return value if good else None


def _text(data: Mapping[str, Any], key: str) -> str:
    value = data[key]
    if not isinstance(value, str):
        raise TypeError(key)
    return value


def transfers_of(measurements: Iterable[Measurement]) -> Iterator[tuple[str, str, Measurement]]:
    """Source, destination and measurement of all that are of metric ``job_transfer``."""
    for measurement in measurements:
        src, arrow, dst = measurement.subject.partition(">")
        if measurement.metric == "job_transfer" and arrow:
            yield src, dst, measurement
