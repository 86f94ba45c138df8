"""What the pool has to offer now, site by site: slots, memory, and the jobs that wait for them.

The cost model's N (workers of a site) and the question behind T_q (does a site have room now?;
thesis, Algorithm 4) are answered by HTCondor's collector and schedd. Reading them is an effect and
stands behind :class:`PoolState`; counting is :func:`summarise`, a pure function of ClassAds.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import htcondor2

from network_provisioner.errors import AdonError

Ad = Mapping[str, Any]

SOURCE = "collector"
SLOT_ATTRIBUTES = (
    "Name", "Machine", "SlotType", "State", "Activity", "Cpus", "TotalSlotCpus", "Memory",
    "PegasusSite", "AdonSite", "AdonIoWait", "AdonLoad",
)  # fmt: skip
JOB_ATTRIBUTES = ("ClusterId", "ProcId", "JobStatus", "AdonSite", "pegasus_site", "Requirements")
_IDLE, _RUNNING = 1, 2
_SITE_REQUIRED = re.compile(
    r"(?:TARGET\.)?(?:PegasusSite|AdonSite)\s*(?:==|=\?=)\s*\"([^\"]+)\"", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class SitePool:
    """One site's share of the pool at ``at`` (Unix seconds).

    ``slots`` counts jobs that can run at once, ``idle_slots`` those that could start now.
    ``io_wait`` is the worst of its machines, None where none reports it.
    """

    site: str
    at: float
    slots: int = 0
    idle_slots: int = 0
    memory_bytes: int = 0
    idle_jobs: int = 0
    running_jobs: int = 0
    io_wait: float | None = None
    source: str = SOURCE

    def as_dict(self) -> dict[str, Any]:
        """A JSON-ready copy."""
        return asdict(self)


class PoolState(Protocol):
    """Where ClassAds come from; raises AdonError where they cannot be had."""

    def slots(self) -> Sequence[Ad]:
        """One ad per slot, at least with :data:`SLOT_ATTRIBUTES`."""
        ...

    def jobs(self) -> Sequence[Ad]:
        """One ad per queued job, at least with :data:`JOB_ATTRIBUTES`."""
        ...


def site_of_slot(ad: Ad) -> str:
    """The site a slot belongs to, empty where it does not say."""
    return str(ad.get("AdonSite") or ad.get("PegasusSite") or "")


def site_of_job(ad: Ad) -> str:
    """The site a job is bound to: by its own word (Pegasus writes ``pegasus_site``), or because its
    requirements ask for one; empty where it may run anywhere."""
    named = ad.get("AdonSite") or ad.get("pegasus_site")
    if named:
        return str(named)
    found = _SITE_REQUIRED.search(str(ad.get("Requirements", "")))
    return found.group(1) if found else ""


def _workers(ad: Ad) -> tuple[int, int]:
    """How many jobs of one core a slot carries in all, and how many it could start now."""
    kind = str(ad.get("SlotType", "Static"))
    if kind == "Partitionable":
        # Its dynamic slots are counted here, as part of the whole.
        return int(ad.get("TotalSlotCpus", 0)), int(ad.get("Cpus", 0))
    if kind == "Dynamic":
        return 0, 0
    return 1, int(ad.get("State") == "Unclaimed" or ad.get("Activity") == "Idle")


def summarise(slots: Iterable[Ad], jobs: Iterable[Ad], at: float) -> dict[str, SitePool]:
    """Counts per site. Slots and jobs that name no site are left out."""
    counts: dict[str, dict[str, int]] = {}
    waits: dict[str, float] = {}

    def add(site: str, **more: int) -> None:
        if site:
            row = counts.setdefault(site, {})
            for key, n in more.items():
                row[key] = row.get(key, 0) + n

    for ad in slots:
        site = site_of_slot(ad)
        total, idle = _workers(ad)
        # Of a partitionable slot Memory is what is left; the rest is in its dynamic slots.
        mega = int(ad.get("Memory", 0))
        add(site, slots=total, idle_slots=idle, memory_bytes=mega * 2**20)
        waited = ad.get("AdonIoWait")
        if site and isinstance(waited, int | float):
            waits[site] = max(waits.get(site, 0.0), float(waited))
    for ad in jobs:
        status = ad.get("JobStatus")
        add(site_of_job(ad), idle_jobs=int(status == _IDLE), running_jobs=int(status == _RUNNING))
    return {
        site: SitePool(
            site,
            at,
            slots=row.get("slots", 0),
            idle_slots=row.get("idle_slots", 0),
            memory_bytes=row.get("memory_bytes", 0),
            idle_jobs=row.get("idle_jobs", 0),
            running_jobs=row.get("running_jobs", 0),
            io_wait=waits.get(site),
        )
        for site, row in counts.items()
    }


def workers(pools: Mapping[str, SitePool]) -> dict[str, int]:
    """N of the cost model: how many jobs each site runs at once."""
    return {site: pool.slots for site, pool in pools.items()}


class HTCondorPool:
    """The real pool that ``CONDOR_CONFIG`` names, or the one given.

    :param collector: ``host:port``, None for the configured one.
    """

    def __init__(self, collector: str | None = None) -> None:
        self._collector = collector

    def slots(self) -> Sequence[Ad]:
        """Slot ads from the collector. Raises AdonError."""
        try:
            return list(self._open().query(htcondor2.AdType.Slot, projection=list(SLOT_ATTRIBUTES)))
        except (htcondor2.HTCondorException, OSError, RuntimeError) as error:
            raise AdonError(f"HTCondor's collector: {error}") from error

    def jobs(self) -> Sequence[Ad]:
        """Job ads of every schedd that the collector knows. Raises AdonError."""
        try:
            found = self._open().locateAll(htcondor2.DaemonType.Schedd)
            return [
                job
                for schedd in found
                for job in htcondor2.Schedd(schedd).query(projection=list(JOB_ATTRIBUTES))
            ]
        except (htcondor2.HTCondorException, OSError, RuntimeError) as error:
            raise AdonError(f"HTCondor's schedd: {error}") from error

    def _open(self) -> htcondor2.Collector:
        return htcondor2.Collector(self._collector) if self._collector else htcondor2.Collector()


def read(pool: PoolState, now: float | None = None) -> dict[str, SitePool]:
    """What every site of the pool has now. Raises AdonError."""
    return summarise(pool.slots(), pool.jobs(), time.time() if now is None else now)


def main() -> int:
    """``python -m condor_plugins.collector``: the pool of CONDOR_CONFIG, as JSON by site."""
    print(json.dumps({site: found.as_dict() for site, found in read(HTCondorPool()).items()}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
