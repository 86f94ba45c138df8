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
from dataclasses import replace
from urllib.parse import urlsplit

from monitors.base.measurement import SMALL_BYTES, Measurement, number_in
from monitors.jobs.condor import Ad, ads, command_output
from monitors.jobs.executions import ENDS, Execution, Span
from monitors.jobs.jobs import Attempt
from monitors.workflows.facts.transfers import Volume, transfer_fact
from monitors.workflows.logs.events import Kind

ACCESS_POINT = "local"  # Pegasus's name for the site that jobs are submitted at
TOOL = "htcondor"
_PROGRAM = "condor_history"
_TIMEOUT_S = 5.0
_CLOCK_S = 3.0  # dates are in whole seconds, and are those of the end of the transfer


def condor_transfer_facts(attempt: Attempt, execution: Execution | None) -> list[Measurement]:
    """What HTCondor moved for an attempt that has ended, by its last ``execution``, where that was
    more than its papers: 64 kB (:data:`~monitors.base.measurement.SMALL_BYTES`)."""
    if execution is None or execution.how != ENDS[Kind.TERMINATED]:
        return []
    if abs(execution.at - attempt.end) > 1.0:
        return []
    ways = (
        ("in", execution.input, execution.received_bytes or 0),
        ("out", execution.output, execution.sent_bytes or 0),
    )
    return [
        _fact(attempt, direction, span, n_bytes)
        for direction, span, n_bytes in ways
        if n_bytes >= SMALL_BYTES and span.end >= span.start > 0
    ]


def own_protocol_transfers(
    facts: Sequence[Measurement], plugins: Sequence[Measurement]
) -> list[Measurement]:
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


def _fact(attempt: Attempt, direction: str, span: Span, n_bytes: int) -> Measurement:
    ends = (ACCESS_POINT, attempt.job.site)
    fact = transfer_fact(
        attempt,
        ends if direction == "in" else ends[::-1],
        f"htcondor:{direction}",
        Volume(n_bytes, span.end - span.start),
        "event log",
        tool=TOOL,
        direction=direction,
    )
    return replace(fact, at=span.end)


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
        constraint = f"member(ClusterId, {{{', '.join(map(str, clusters))}}})"
        words = [program, "-transfer-history", "-json", "-constraint", constraint]
        job_ads = ads(command_output(words, _TIMEOUT_S, logging.WARNING))
        self._away = job_ads is None
        return job_ads or []


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
    by_server: dict[tuple[str, str], list[Ad]] = {}
    for result in results:
        if isinstance(result, dict) and isinstance(result.get("TransferUrl"), str):
            try:
                parts = urlsplit(result["TransferUrl"])
                host = parts.hostname or parts.scheme
            except ValueError:
                continue
            protocol = str(result.get("TransferProtocol") or parts.scheme)
            by_server.setdefault((host, protocol), []).append(result)
    return by_server


def _durations(invocations: object) -> dict[str, float]:
    """Seconds by scheme."""
    durations: dict[str, float] = {}
    for invocation in invocations if isinstance(invocations, list) else []:
        if isinstance(invocation, dict):
            seconds = number_in(invocation.get("DurationInSeconds")) or 0.0
            for scheme in str(invocation.get("Schemes", "")).replace(",", " ").split():
                durations[scheme] = durations.get(scheme, 0.0) + seconds
    return durations


def _volume(files: Sequence[Ad], seconds: float | None) -> Volume:
    done = [file for file in files if file.get("TransferSuccess") is True]
    sizes = [number_in(file.get("TransferTotalBytes")) for file in done]
    n_bytes = None if None in sizes else int(sum(size for size in sizes if size is not None))
    return Volume(n_bytes, seconds or None, len(done), len(files) - len(done))
