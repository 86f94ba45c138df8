"""What transfer plug-ins moved for HTCondor's jobs, from HTCondor's history of transfers:

    condor_history -transfer-history -json -constraint 'member(ClusterId, {74})'
    [{"ClusterId": 74, "ProcId": 0, "TransferClass": "INPUT", "EpochWriteDate": 1795296289,
      "InputPluginResultList": [{"TransferUrl": "osdf://host/some/big", "TransferSuccess": true,
                                 "TransferProtocol": "osdf", "TransferTotalBytes": 5000000, …}],
      "InputPluginInvocations": [{"Schemes": "osdf", "DurationInSeconds": 1, …}]}, …]

It has what the event log only counts together: which server, how much, how long. Seen with HTCondor
25.14.1; what a plug-in itself says of start and end does not come through.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol
from urllib.parse import urlsplit

from monitors.jobs.attempts import Attempt
from monitors.jobs.transfer_fact import transfer_fact
from monitors.measurement import Measurement
from monitors.printed import Ad, ads, printed

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
            made = _fact(attempt, direction, host, protocol, files, seconds, workflow, retry)
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


def _fact(
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
