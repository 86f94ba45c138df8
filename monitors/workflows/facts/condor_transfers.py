"""What HTCondor itself moved for a job between access point and slot, from the job's event log:

    040 (028.000.000) 2026-11-21 21:22:10.483 Started transferring input files
    040 (028.000.000) 2026-11-21 21:22:10.487 Finished transferring input files
    005 (028.000.000) 2026-11-21 21:22:10.831 Job terminated.
            7111  -  Run Bytes Sent By Job
            31858  -  Run Bytes Received By Job

DAGMan's ``nodes.log`` has no transfer events, the workflow's own log has them. The bytes are those
of the last execution, of HTCondor's own protocol and of transfer plug-ins together. What plug-ins
moved stands in HTCondor's history of transfers:

    condor_history -transfer-history -json -constraint 'member(ClusterId, {74})'
    [{"ClusterId": 74, "ProcId": 0, "TransferClass": "INPUT", "EpochWriteDate": 1795296289,
      "InputPluginResultList": [{"TransferUrl": "osdf://host/some/big", "TransferSuccess": true,
                                 "TransferProtocol": "osdf", "TransferTotalBytes": 5000000, …}],
      "InputPluginInvocations": [{"Schemes": "osdf", "DurationInSeconds": 1, …}]}, …]

What a plug-in itself says of start and end does not come through. Seen with HTCondor 25.14.1.
"""

from __future__ import annotations

import logging
import re
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from monitors.measurement import Measurement
from monitors.transfers import SMALL_BYTES
from monitors.workflows.condor import Ad, ads, printed
from monitors.workflows.facts.attempts import Attempt
from monitors.workflows.facts.transfers import transfer_fact
from monitors.workflows.logs.events import Kind, header_of
from monitors.workflows.logs.tail import Lines, LocalClock, Tail
from network_provisioner.errors import InputError

ACCESS_POINT = "local"  # Pegasus's name for the site that jobs are submitted at
TOOL = "htcondor"
_FILE_TRANSFER = 40
_STEP = re.compile(rb" (Started|Finished) transferring (input|output) files")
_BYTES = re.compile(rb"^\s*(\d{1,18})\s+-\s+Run Bytes (Sent|Received) By Job")


@dataclass(frozen=True, slots=True)
class Way:
    """One direction of one execution: Unix seconds (0 where not told) and bytes."""

    began: float = 0.0
    ended: float = 0.0
    n_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Execution:
    """What went in and out, and when the job ended (Unix seconds)."""

    cluster: int
    proc: int
    at: float
    ways: dict[str, Way]


class MovesParser:
    """Takes an event log in portions and gives the executions that ended. Never fails."""

    def __init__(self, now: float | None = None) -> None:
        self._lines = Lines()
        self._now = time.time() if now is None else now
        self._clock = LocalClock()
        self._ways: dict[tuple[int, int], dict[str, Way]] = {}
        self._ending: Execution | None = None

    def feed(self, data: bytes) -> Iterator[Execution]:
        """The executions whose end became whole with the next portion of the file."""
        for _, line in self._lines.feed(data):
            if self._ending is not None:
                if found := _BYTES.match(line):
                    way = "out" if found[2] == b"Sent" else "in"
                    known = self._ending.ways.get(way, Way())
                    self._ending.ways[way] = replace(known, n_bytes=int(found[1]))
                elif line.rstrip() == b"...":
                    yield self._ending
                    self._ending = None
            if header := header_of(line, self._now, self._clock):
                self._event(line, *header)

    def _event(self, line: bytes, number: int, cluster: int, proc: int, at: float) -> None:
        self._ending = None
        if number == Kind.SUBMIT:
            self._ways.pop((cluster, proc), None)
        elif number == Kind.TERMINATED:
            ways = self._ways.pop((cluster, proc), {})
            self._ending = Execution(cluster, proc, at, ways)
        elif number == _FILE_TRANSFER and (found := _STEP.search(line)):
            ways = self._ways.setdefault((cluster, proc), {})
            way = "in" if found[2] == b"input" else "out"
            if found[1] == b"Started":
                ways[way] = Way(began=at)
            else:
                ways[way] = replace(ways.get(way, Way()), ended=at)


class CondorMoves:
    """The log of one workflow, read as far as it is needed."""

    def __init__(self, log: Path | None) -> None:
        self._log = log
        self._tail = None if log is None else Tail(log)
        self._parser = MovesParser()
        self._ended: dict[tuple[int, int], Execution] = {}

    def facts(self, attempt: Attempt, workflow: str, retry: int) -> list[Measurement]:
        """What HTCondor moved for an attempt that has ended, where that was more than its papers:
        64 kB (:data:`~monitors.transfers.SMALL_BYTES`)."""
        if self._tail is None or not attempt.start or not attempt.job.site:
            return []
        if attempt.job.site == ACCESS_POINT or self._log is None or not self._log.exists():
            return []
        try:
            for piece in self._tail.read():
                if piece.first:
                    self._parser = MovesParser()
                for execution in self._parser.feed(piece.data):
                    self._ended[execution.cluster, execution.proc] = execution
        except InputError:
            return []  # not to be read: then nobody tells
        key = (attempt.cluster, attempt.proc)
        if key not in self._ended:
            return []
        ended = self._ended.pop(key)
        if abs(ended.at - attempt.end) > 1.0:
            return []
        return [
            _fact(attempt, direction, way, workflow, retry)
            for direction, way in sorted(ended.ways.items())
            if way.n_bytes >= SMALL_BYTES and way.ended >= way.began > 0
        ]


def without(facts: Sequence[Measurement], plugins: Sequence[Measurement]) -> list[Measurement]:
    """What HTCondor's own protocol moved, of what the event log counts together with what
    ``plugins`` moved; nothing where that is not more than papers."""
    kept = []
    for fact in facts:
        way = fact.details["direction"]
        by_plugins = sum(p.value for p in plugins if p.details["direction"] == way)
        rest = int(fact.value - by_plugins)
        if by_plugins and rest >= SMALL_BYTES:
            # How long its part took nobody tells.
            alone = {"bytes": rest, "seconds": None, "goodput_bps": None}
            kept.append(replace(fact, value=float(rest), details={**fact.details, **alone}))
        elif not by_plugins:
            kept.append(fact)
    return kept


def _fact(attempt: Attempt, direction: str, way: Way, workflow: str, retry: int) -> Measurement:
    ends = (ACCESS_POINT, attempt.job.site)
    src, dst = ends if direction == "in" else ends[::-1]
    return transfer_fact(
        attempt,
        (src, dst),
        f"htcondor:{direction}",
        workflow,
        retry,
        n_bytes=way.n_bytes,
        seconds=way.ended - way.began,
        files=None,
        retries=0,
        direction=direction,
        tool=TOOL,
        source="event log",
        at=way.ended,
    )


_PROGRAM = "condor_history"
_TIMEOUT_S = 5.0
_CLOCK_S = 3.0  # dates are in whole seconds, and are those of the end of the transfer
_MOST = 2**53


class History(Protocol):
    """Somebody who knows of past transfers."""

    def ads(self, clusters: Sequence[int]) -> list[Ad]:
        """All that is known of these jobs' transfers. Never raises."""


class CondorHistory:
    """The access point's own history, by ``condor_history``. Where that cannot be asked, it is not
    asked again."""

    def __init__(self) -> None:
        self._away = False

    def ads(self, clusters: Sequence[int]) -> list[Ad]:
        """See :class:`History`."""
        program = shutil.which(_PROGRAM)
        if self._away or program is None or not clusters:
            return []
        wanted = f"member(ClusterId, {{{', '.join(map(str, clusters))}}})"
        words = [program, "-transfer-history", "-json", "-constraint", wanted]
        found = ads(printed(words, _TIMEOUT_S, logging.WARNING))
        self._away = found is None
        return found or []


def plugin_facts(
    attempt: Attempt, ads: Iterable[Ad], workflow: str, retry: int
) -> list[Measurement]:
    """A ``job_transfer`` measurement for each server that plug-ins moved files from or to, for an
    attempt that has ended. The server's name stands where else a site does."""
    facts: dict[str, Measurement] = {}
    for ad in ads:
        if not _is_of(ad, attempt):
            continue
        way = str(ad.get("TransferClass", "")).upper()
        direction = {"INPUT": "in", "OUTPUT": "out"}.get(way)
        results = ad.get(f"{way.title()}PluginResultList")
        if direction is None or not isinstance(results, list):
            continue
        seconds = _durations(ad.get(f"{way.title()}PluginInvocations"))
        for (host, protocol), files in _by_server(results).items():
            made = _plugin_fact(attempt, direction, host, protocol, files, seconds, workflow, retry)
            facts[made.id] = made
    return list(facts.values())


def _is_of(ad: Ad, attempt: Attempt) -> bool:
    """Numbers of clusters begin anew with each pool."""
    written = _number(ad.get("EpochWriteDate"))
    return (
        ad.get("ClusterId") == attempt.cluster
        and ad.get("ProcId") == attempt.proc
        and written is not None
        and attempt.submit - _CLOCK_S <= written <= attempt.end + _CLOCK_S
    )


def _by_server(results: Sequence[object]) -> dict[tuple[str, str], list[Ad]]:
    found: dict[tuple[str, str], list[Ad]] = {}
    for one in results:
        if isinstance(one, dict) and isinstance(one.get("TransferUrl"), str):
            try:
                parts = urlsplit(one["TransferUrl"])
                host = parts.hostname or parts.scheme
            except ValueError:
                continue
            protocol = str(one.get("TransferProtocol") or parts.scheme)
            found.setdefault((host, protocol), []).append(one)
    return found


def _durations(invocations: object) -> dict[str, float]:
    """Seconds by scheme."""
    found: dict[str, float] = {}
    for one in invocations if isinstance(invocations, list) else []:
        if isinstance(one, dict):
            seconds = _number(one.get("DurationInSeconds")) or 0.0
            for scheme in str(one.get("Schemes", "")).replace(",", " ").split():
                found[scheme] = found.get(scheme, 0.0) + seconds
    return found


def _plugin_fact(
    attempt: Attempt,
    direction: str,
    host: str,
    protocol: str,
    files: Sequence[Ad],
    seconds_of: Mapping[str, float],
    workflow: str,
    retry: int,
) -> Measurement:
    done = [one for one in files if one.get("TransferSuccess") is True]
    sizes = [_number(one.get("TransferTotalBytes")) for one in done]
    n_bytes = None if None in sizes else int(sum(size for size in sizes if size is not None))
    ends = (host, attempt.job.site) if direction == "in" else (attempt.job.site, host)
    return transfer_fact(
        attempt,
        ends,
        f"{protocol}:{direction}:{host}",
        workflow,
        retry,
        n_bytes=n_bytes,
        seconds=seconds_of.get(protocol) or None,
        files=len(done),
        retries=len(files) - len(done),
        direction=direction,
        tool=f"htcondor ({protocol})",
        source="transfer history",
        at=attempt.end,
    )


def _number(value: object) -> float | None:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < _MOST:
        return None
    return float(value)
