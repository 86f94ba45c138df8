"""What fetching URLs came to, by HTCondor's history of transfers, and what made it slow: pure.

GlobalJobId, NumShadowStarts, TransferClass = "INPUT"
InputPluginResultList   of each file: TransferUrl, TransferTotalBytes, TransferStartTime,
                        TransferEndTime (whole seconds), and DeveloperData: of curl_plugin
                        TransferHostName; of Pelican's client for its attempts 0, 1, …
                        Endpoint0, TimeToFirstByte0, TransferTime0, DataAge0
InputPluginInvocations  of each plug-in: DurationInSeconds
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

from condor_plugins.jobs.jobad import number, text
from condor_plugins.urls.sources import CACHED
from network_provisioner.base.units import format_rate, goodput
from network_provisioner.base.urls import host_of, scheme_of, site_of_url

Ad = Mapping[str, Any]
_SLOW = 0.5  # of what was granted, or of what others reach
_COUNTS_S = 1.0  # times are in whole seconds
_DOMINATES = 0.5  # of the time
_STANDS_STILL = 0.5  # processors that wait for a disk
_LAST = 7
_LONGEST = 200  # characters of a name


@dataclass(slots=True)
class SiteDownload:
    """What came from one site: in Unix seconds from when to when, whole ones; how long servers took
    to send first bytes; the ``cache`` it came by, "" for none, and whether that had to fetch it."""

    n_bytes: int = 0
    start: float = float("inf")
    end: float = 0.0
    first_byte_s: float = 0.0
    cache: str = ""
    missed: bool = False

    def seconds(self, input_s: float) -> float:
        """How long it took; all of the input took ``input_s``."""
        return max(0.0, self.end - self.start) or input_s


def url_transfers(ad: Ad, sources: Mapping[str, str]) -> dict[str, SiteDownload]:
    """What an ad of the history reports, by the sites that files came from."""
    sites: dict[str, SiteDownload] = {}
    for file in ad.get("InputPluginResultList", ()):
        url, details = text(file, "TransferUrl"), file.get("DeveloperData")
        details = details if isinstance(details, Mapping) else {}
        last = max(0, int(number(details, "Attempts") or 1) - 1)
        end_point = text(details, f"Endpoint{last}", "TransferHostName")
        site = site_of_url(f"https://{end_point}/", sources) or site_of_url(url, sources)
        total = sites.setdefault(site, SiteDownload())
        total.n_bytes += int(number(file, "TransferTotalBytes") or 0)
        total.start = min(total.start, number(file, "TransferStartTime") or total.start)
        total.end = max(total.end, number(file, "TransferEndTime") or 0.0)
        if scheme_of(url) in CACHED:
            cache = host_of(f"https://{end_point}/")
            total.cache = "".join(c for c in cache if c.isprintable())[:_LONGEST]
            total.first_byte_s += number(details, f"TimeToFirstByte{last}") or 0.0
            total.missed |= number(details, f"DataAge{last}") == 0.0
    return sites


def plugins_s(ad: Ad) -> float:
    """How long plug-ins ran, in whole seconds each."""
    return sum(
        number(invocation, "DurationInSeconds") or 0.0
        for invocation in ad.get("InputPluginInvocations", ())
    )


def slow(
    what: SiteDownload,
    input_s: float,
    granted_bps: float,
    usual_bps: float,
    disk_waits: Callable[[], bool],
) -> str:
    """Why it was slow, as text, empty if it was not: less than half of what was granted, else
    of what its like reached. ``disk_waits`` says whether the slot stood still for its disk."""
    expected_bps = granted_bps or usual_bps
    seconds = what.seconds(input_s)
    if goodput(what.n_bytes, seconds - _COUNTS_S) >= _SLOW * expected_bps or seconds <= _COUNTS_S:
        return ""
    kind = "granted" if granted_bps else "usual"
    rates = f"{format_rate(goodput(what.n_bytes, seconds))} of {format_rate(expected_bps)} {kind}"
    if what.cache and what.first_byte_s > _DOMINATES * seconds:
        why = (
            f"cache {what.cache}, {what.first_byte_s:.3g} of {seconds:.3g} s until it sent anything"
        )
    elif what.missed:
        why = f"cache {what.cache}, which had to fetch it"
    else:
        why = "disk of the slot" if disk_waits() else "network"
    return f"slow: {why} ({rates})"


def disk_waits(ad: Ad, since: float) -> bool:
    """Whether a machine stood still for its disk, by an ad of one of its slots. ``since`` is in
    Unix seconds: what was read earlier says nothing."""
    share, cores = number(ad, "AdonIoWaitFraction"), number(ad, "DetectedCpus")
    read = number(ad, "AdonMetricsAt")
    if share is None or cores is None or read is None or read < since:
        return False
    return share * cores >= _STANDS_STILL


class UsualRates:
    """What transfers between two sites reached, the last seven of each pair, in b/s."""

    def __init__(self) -> None:
        self._seen = defaultdict[tuple[str, str], deque[float]](partial(deque, maxlen=_LAST))

    def usual(self, src: str, dst: str) -> float:
        """Their median, 0 if unknown."""
        return median(self._seen[src, dst] or [0.0])

    def learn(self, src: str, dst: str, rate_bps: float) -> None:
        """Remember one."""
        self._seen[src, dst].append(rate_bps)
