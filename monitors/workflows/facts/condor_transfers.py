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

What a plug-in itself says of start and end is in whole seconds. Seen with HTCondor 25.14.1.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

from monitors.archive.measurement import Measurement, number_in
from monitors.archive.transfers import SMALL_BYTES
from monitors.jobs.jobs import Attempt
from monitors.workflows.condor import Ad, ads, printed
from monitors.workflows.facts.transfers import Volume, transfer_fact
from monitors.workflows.logs.events import EventTail, JobEvent, Kind, TransferStep
from monitors.workflows.logs.stamps import LogTimes
from network_provisioner.base.errors import InputError

ACCESS_POINT = "local"  # Pegasus's name for the site that jobs are submitted at
TOOL = "htcondor"
_KINDS = frozenset({Kind.SUBMIT, Kind.TERMINATED, Kind.FILE_TRANSFER})
_STARTED = {TransferStep.IN_STARTED: "in", TransferStep.OUT_STARTED: "out"}
_FINISHED = {TransferStep.IN_FINISHED: "in", TransferStep.OUT_FINISHED: "out"}
_PROGRAM = "condor_history"
_TIMEOUT_S = 5.0
_CLOCK_S = 3.0  # dates are in whole seconds, and are those of the end of the transfer


@dataclass(frozen=True, slots=True)
class DirectionMoved:
    """One direction of one execution: Unix seconds (0 where not told) and bytes."""

    began: float = 0.0
    ended: float = 0.0
    n_bytes: int = 0


class CondorTransfers:
    """Those in the log of one workflow, read as far as it is needed."""

    def __init__(self, log: Path | None, times: LogTimes | None = None) -> None:
        self._log = log
        self._events = None if log is None else EventTail(log, _KINDS, times)
        self._ways: dict[tuple[int, int], dict[str, DirectionMoved]] = {}  # of the job's execution
        self._ended: dict[tuple[int, int], float] = {}

    def facts(self, attempt: Attempt) -> list[Measurement]:
        """What HTCondor moved for an attempt that has ended, where that was more than its papers:
        64 kB (:data:`~monitors.archive.transfers.SMALL_BYTES`)."""
        if self._events is None or not attempt.start or not attempt.job.site:
            return []
        if attempt.job.site == ACCESS_POINT or self._log is None or not self._log.exists():
            return []
        with suppress(InputError):  # not to be read: then nobody tells
            for event in self._events.read():
                self._feed(event)
        job = (attempt.cluster, attempt.proc)
        if abs(self._ended.get(job, 0.0) - attempt.end) > 1.0:
            return []
        del self._ended[job]
        return [
            _fact(attempt, direction, way)
            for direction, way in sorted(self._ways.pop(job).items())
            if way.n_bytes >= SMALL_BYTES and way.ended >= way.began > 0
        ]

    def _feed(self, event: JobEvent) -> None:
        job = (event.cluster, event.proc)
        if event.kind is Kind.SUBMIT:
            self._ways[job] = {}
            self._ended.pop(job, None)
            return
        ways = self._ways.setdefault(job, {})
        if event.step in _STARTED:
            ways[_STARTED[event.step]] = DirectionMoved(began=event.at)
        elif event.step in _FINISHED:
            way = _FINISHED[event.step]
            ways[way] = replace(ways.get(way, DirectionMoved()), ended=event.at)
        elif event.kind is Kind.TERMINATED:
            self._ended[job] = event.at
            for way, n_bytes in (("in", event.received_bytes), ("out", event.sent_bytes)):
                ways[way] = replace(ways.get(way, DirectionMoved()), n_bytes=n_bytes or 0)


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


def _fact(attempt: Attempt, direction: str, way: DirectionMoved) -> Measurement:
    ends = (ACCESS_POINT, attempt.job.site)
    fact = transfer_fact(
        attempt,
        ends if direction == "in" else ends[::-1],
        f"htcondor:{direction}",
        Volume(way.n_bytes, way.ended - way.began),
        "event log",
        tool=TOOL,
        direction=direction,
    )
    return replace(fact, at=way.ended)


class CondorHistory:
    """The access point's own history, by ``condor_history``. Where that cannot be asked, it is not
    asked again."""

    def __init__(self) -> None:
        self._away = False

    def ads(self, clusters: Sequence[int]) -> list[Ad]:
        """All that is known of these jobs' transfers. Never raises."""
        program = shutil.which(_PROGRAM)
        if self._away or program is None or not clusters:
            return []
        wanted = f"member(ClusterId, {{{', '.join(map(str, clusters))}}})"
        words = [program, "-transfer-history", "-json", "-constraint", wanted]
        found = ads(printed(words, _TIMEOUT_S, logging.WARNING))
        self._away = found is None
        return found or []


def plugin_facts(attempt: Attempt, ads: Iterable[Ad]) -> list[Measurement]:
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
            volume = _volume(files, seconds.get(protocol))
            ends = (host, attempt.job.site) if direction == "in" else (attempt.job.site, host)
            made = transfer_fact(
                attempt,
                ends,
                f"{protocol}:{direction}:{host}",
                volume,
                "transfer history",
                tool=f"htcondor ({protocol})",
                direction=direction,
            )
            facts[made.id] = made
    return list(facts.values())


def _is_of(ad: Ad, attempt: Attempt) -> bool:
    """Numbers of clusters begin anew with each pool."""
    written = number_in(ad.get("EpochWriteDate"))
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
            seconds = number_in(one.get("DurationInSeconds")) or 0.0
            for scheme in str(one.get("Schemes", "")).replace(",", " ").split():
                found[scheme] = found.get(scheme, 0.0) + seconds
    return found


def _volume(files: Sequence[Ad], seconds: float | None) -> Volume:
    done = [one for one in files if one.get("TransferSuccess") is True]
    sizes = [number_in(one.get("TransferTotalBytes")) for one in done]
    n_bytes = None if None in sizes else int(sum(size for size in sizes if size is not None))
    return Volume(n_bytes, seconds or None, len(done), len(files) - len(done))
