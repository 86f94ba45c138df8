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

from monitors.base.measurement import Measurement, number_in
from monitors.jobs.jobs import Attempt, Outcome
from monitors.workflows.logs.records import JobOutput
from monitors.workflows.logs.tail import Lines, Tail
from monitors.workflows.logs.transferlog import TransferAttempt, seconds_of
from monitors.workflows.planned.foreign_files import read_text
from monitors.workflows.planned.job_files import HOOK_JOURNAL
from monitors.workflows.planned.submit_dir import JobKind
from monitors.workflows.planned.transferlist import is_relay
from network_provisioner.base.errors import InputError
from network_provisioner.base.units import goodput

_LONG_S = 20.0  # from here on two seconds of waiting are less than a tenth
_LABEL = re.compile(r'"site_label":\s*"([^"\\]+)"')
_URL = re.compile(r'"url":\s*"([^"\\]+)"')
_SIZE = re.compile(r'"lfn":\s*"([^"\\]+)"(?:(?!"lfn":).)*?"size":\s*"(\d{1,18})"', re.DOTALL)
_DIRECTIONS = {
    JobKind.STAGE_IN: "in",
    JobKind.STAGE_OUT: "out",
    JobKind.STAGE_INTER: "between",
}


@dataclass(frozen=True, slots=True)
class Volume:
    """How much was moved in how many ``seconds``; what nobody knows is None. ``retries`` are tries
    that failed."""

    n_bytes: int | None
    seconds: float | None
    files: int | None = None
    retries: int = 0

    @property
    def goodput_bps(self) -> float | None:
        """None where bytes or seconds are not known, or are none."""
        return goodput(self.n_bytes, self.seconds) if self.n_bytes and self.seconds else None


def transfer_fact(
    attempt: Attempt,
    ends: tuple[str, str],
    key: str,
    volume: Volume,
    source: str,
    **more: object,
) -> Measurement:
    """What an attempt moved between two ``ends``, until it ended; ``key`` tells it from all else
    that it moved. ``more`` says by which ``tool`` and in which ``direction``, and of which
    ``transit`` and ``path``: None where none was asked for, while an empty one is best effort.
    """
    return Measurement(
        id=f"job_transfer:{attempt.workflow}:{attempt.key}:{key}",
        metric="job_transfer",
        subject=f"{ends[0]}>{ends[1]}",
        value=float(volume.n_bytes or 0),
        unit="byte",
        at=attempt.end,
        source=source,
        workflow=attempt.workflow,
        details={
            "job": attempt.job.name,
            "kind": str(attempt.job.kind),
            "attempt": attempt.number,
            "retry": attempt.retry,
            "bytes": volume.n_bytes,
            "seconds": volume.seconds,
            "goodput_bps": volume.goodput_bps,
            "files": volume.files,
            "retries": volume.retries,
            "outcome": str(attempt.outcome),
            "path": None,
            "transit": "",
            **more,
        },
    )


@dataclass(frozen=True, slots=True)
class TransferList:
    """What a job's transfer list says: site names by the way the tool writes them, sizes by logical
    file name where they are declared, all URLs."""

    names: Mapping[str, str] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
    urls: frozenset[str] = frozenset()


def transfer_list(output: Path | None) -> TransferList:
    """From ``<job>.in`` of a transfer job or ``<job>.sh`` of PegasusLite, beside its output."""
    if output is None:
        return TransferList()
    for ending in (".in", ".sh"):
        try:
            text = read_text(output.with_suffix(ending), "replace")
        except (OSError, ValueError):
            continue
        labels = set(_LABEL.findall(text))
        if labels:
            sizes = {lfn: int(size) for lfn, size in _SIZE.findall(text)}
            names = {label.replace("-", "_"): label for label in labels}
            return TransferList(names, sizes, frozenset(_URL.findall(text)))
    return TransferList()


class Journal:
    """The hooks' journal of one workflow, of which only what is new is read."""

    def __init__(self, submit_dir: Path) -> None:
        self._path = submit_dir / HOOK_JOURNAL
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
                for line in self._lines.feed(piece.data):
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
    attempt: Attempt, left: JobOutput, journal: Sequence[Mapping[str, Any]], known: TransferList
) -> list[Measurement]:
    """One measurement for each pair of sites that an attempt which is over moved files between.

    ``journal`` are the hooks' lines about it; what the tool logged counts where there are neither
    these nor records. What stays within a site is left out. The value is in bytes, 0 where nobody
    knows them; then ``bytes`` of the details is None.
    """
    pairs: dict[tuple[str, str], list[TransferAttempt]] = {}
    for transfer in left.moved:
        src = _site(transfer.src, transfer.src_url, attempt, known)
        dst = _site(transfer.dst, transfer.dst_url, attempt, known)
        if src and dst and src != dst:
            pairs.setdefault((src, dst), []).append(transfer)
    lines = {(line["src"], line["dst"]): line for line in journal if line["src"] != line["dst"]}
    for ends in lines:
        pairs.setdefault(ends, [])
    if pairs:
        return [
            _fact(
                attempt,
                ends,
                _volume(tries, lines.get(ends, {}), known),
                lines.get(ends),
                _protocol(tries),
            )
            for ends, tries in pairs.items()
        ]
    facts = []
    for row in left.logged:
        src, dst = (known.names.get(label, label) for label in (row.src, row.dst))
        if src != dst:
            fact = _fact(
                attempt, (src, dst), Volume(row.n_bytes, row.seconds, row.files, row.retries), None
            )
            # The log's time has the wait before the first transfer in it.
            rate = fact.details["goodput_bps"] if row.seconds >= _LONG_S else None
            details = {**fact.details, "goodput_bps": rate}
            facts.append(replace(fact, source="log", details=details))
    return facts


def setup_facts(attempt: Attempt, ready: float, moved: Sequence[Measurement]) -> list[Measurement]:
    """What a transfer job took beside moving, from ``ready`` (Unix seconds) to its end, once for
    each pair of sites; of one that did well at once and told its seconds."""
    seconds = [fact.details["seconds"] for fact in moved]
    if attempt.job.kind not in _DIRECTIONS or attempt.outcome is not Outcome.DONE:
        return []
    if attempt.starts > 1:  # it was evicted, or on hold
        return []
    if not seconds or None in seconds or any(fact.source == "log" for fact in moved):
        return []  # the log's seconds have waiting in them
    beside_s = max(0.0, attempt.end - ready - _longest_s(moved))
    return [
        replace(
            fact,
            id=f"transfer_setup:{attempt.workflow}:{attempt.key}:{fact.subject}",
            metric="transfer_setup",
            value=round(beside_s, 6),
            unit="s",
            source="event log",
            details={"job": attempt.job.name, "files": fact.details["files"]},
        )
        for fact in moved
    ]


def _longest_s(moved: Sequence[Measurement]) -> float:
    """How long the transfers of a job took: pairs of sites at the same time, but one after the
    other what goes on from where it came to, as through the submit host."""
    by_source: dict[str, list[tuple[str, float]]] = {}
    for fact in moved:
        src, _, dst = fact.subject.partition(">")
        by_source.setdefault(src, []).append((dst, float(fact.details["seconds"])))

    def from_here(site: str, passed: frozenset[str]) -> float:
        return max(
            (
                seconds + from_here(to, passed | {site})
                for to, seconds in by_source.get(site, ())
                if to not in passed
            ),
            default=0.0,
        )

    return max(from_here(site, frozenset()) for site in by_source)


def _fact(
    attempt: Attempt,
    ends: tuple[str, str],
    volume: Volume,
    line: Mapping[str, Any] | None,
    protocol: str = "",
) -> Measurement:
    path = line.get("path") if line else None
    return transfer_fact(
        attempt,
        ends,
        f"{ends[0]}>{ends[1]}",
        volume,
        "hooks" if line else "pegasus-transfer",
        path=[str(node) for node in path] if isinstance(path, list) else None,
        transit=str(line.get("id", "")) if line else "",
        tool="pegasus-transfer",
        protocol=protocol,
        direction=_direction(attempt, ends),
    )


def _volume(
    tries: Sequence[TransferAttempt], line: Mapping[str, Any], known: TransferList
) -> Volume:
    """By the tool's records of its tries and the hooks' journal; neither need be there."""
    done = [attempt for attempt in tries if attempt.success]
    n_bytes = number_in(line.get("bytes"), 2**63)
    if n_bytes is None and tries:
        n_bytes = _sum(done, known.sizes)
    return Volume(
        n_bytes=None if n_bytes is None else int(n_bytes),
        seconds=number_in(line.get("seconds"), 2**63) or seconds_of(done),
        files=len({attempt.lfn for attempt in done})
        if tries
        else int(number_in(line.get("files"), 2**63) or 0),
        retries=len(tries) - len(done)
        if tries
        else int(number_in(line.get("failed_attempts"), 2**63) or 0),
    )


def _protocol(tries: Sequence[TransferAttempt]) -> str:
    """That of the end that is no file of the machine, ``gsiftp``; "" where nobody told."""
    schemes = [
        url.partition(":")[0] for attempt in tries for url in (attempt.src_url, attempt.dst_url)
    ]
    return next((scheme[:20] for scheme in schemes if scheme not in ("file", "")), "")


def _direction(attempt: Attempt, ends: tuple[str, str]) -> str:
    """A compute job's own transfers are in or out by where it ran."""
    direction = _DIRECTIONS.get(attempt.job.kind)
    return direction or ("in" if ends[1] == attempt.job.site else "out")


def _site(label: str, url: str, attempt: Attempt, known: TransferList) -> str:
    if attempt.job.site and is_relay(label, url, known.urls):
        return attempt.job.site
    return known.names.get(label, label)


def _sum(done: Sequence[TransferAttempt], sizes: Mapping[str, int]) -> int | None:
    total = 0
    for lfn, counted in {attempt.lfn: attempt.n_bytes for attempt in done}.items():
        size = sizes.get(lfn) if counted is None else counted
        if size is None:
            return None
        total += size
    return total


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
