"""One site's share of an HTCondor pool, counted from ClassAds: slots, speed, and jobs that wait.

The cost model's N (workers of a site), T_q (how long the jobs ahead will hold the slots) and what
ended jobs report Γ_c (thesis, Algorithm 4). Pure functions of ClassAds, without HTCondor's
bindings; :mod:`condor_plugins.collector` reads the ads.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import fmean, median, quantiles
from typing import Any

from condor_plugins.jobs.jobad import number, takes_a_slot
from condor_plugins.jobs.sites import Ad, site_of_job, site_of_slot
from condor_plugins.pool.shares import share_of, starts_before
from network_provisioner.base.errors import AdonError

SOURCE = "collector"
_IDLE, _RUNNING, _COMPLETED = 1, 2, 4
_CLOSED = ("Owner", "Drained")  # states of slots that start no job
CLAIM_S = 1200.0
"""HTCondor's CLAIM_WORKLIFE."""
# A job that has run so many times as long as usual, and a cycle of the negotiator, goes on.
_LONG, _CYCLE_S = 3.0, 60.0
_STALE_S = 900.0  # three of the updates that a startd sends every 5 minutes


@dataclass(frozen=True, slots=True)
class SitePool:
    """One site's share of the pool at ``at`` (Unix seconds).

    ``slots`` counts jobs that can run at once, ``idle_slots`` those that could start now: cores
    for which there is memory, of slots that take jobs.
    ``stalled`` is how many cores of its machines have stood still for minutes because disks are
    waited for. ``mips`` is the median speed of its cores, None if none reports it. ``ahead``
    counts idle jobs that want these slots: those bound to the site, and of those that may run
    anywhere the site's share of the pool. ``before``: how many of them start before a job of the
    user who asks, by shares and priorities, None if unknown; ``share``: what that user can
    have of the slots while others want them, at most a half, leaving out those that are ``kept`` by
    jobs which have run for much longer than is usual. ``claim_s``: how long a user who has jobs
    keeps a slot, at least. ``run_s`` is how long a job holds a slot on average, from jobs that
    ended, else from those that run; ``start_s`` what jobs waited that had no job ahead (lower
    quartile); None if no job tells. ``runtimes`` has by transformation the median seconds on a slot
    and the number of jobs behind it.
    """

    site: str
    at: float
    slots: int = 0
    idle_slots: int = 0
    memory_bytes: int = 0
    idle_jobs: int = 0
    running_jobs: int = 0
    source: str = SOURCE
    mips: float | None = None
    ahead: float | None = None
    before: float | None = None
    share: float = 0.5
    kept: int = 0
    claim_s: float = CLAIM_S
    run_s: float | None = None
    start_s: float | None = None
    runtimes: Mapping[str, tuple[float, int]] = field(default_factory=dict)
    stalled: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        """A JSON-ready copy."""
        return asdict(self)


def _workers(ad: Ad, job_mb: float) -> tuple[int, int]:
    """How many jobs of one core and ``job_mb`` (MiB) a slot carries in all, and how many it could
    start now."""
    if ad.get("IsDataSlot") is True:  # HTCondor 25: it holds common files and runs no job
        return 0, 0
    if ad.get("State") in _CLOSED:
        return 0, 0
    kind = str(ad.get("SlotType", "Static"))
    if kind == "Partitionable":
        # Its dynamic slots are counted here, as part of the whole.
        return (
            _with_memory(_whole(ad, "TotalSlotCpus"), number(ad, "TotalSlotMemory"), job_mb),
            _with_memory(_whole(ad, "Cpus"), number(ad, "Memory"), job_mb),
        )
    if kind == "Dynamic":
        return 0, 0
    fits = _with_memory(1, number(ad, "Memory"), job_mb)
    return fits, fits * int(ad.get("State") == "Unclaimed" or ad.get("Activity") == "Idle")


def _with_memory(cores: int, memory_mb: float | None, job_mb: float) -> int:
    if memory_mb is None or job_mb <= 0:
        return cores
    return min(cores, int(memory_mb // job_mb))


def _memory_of_jobs(jobs: Iterable[Ad], slots: Iterable[Ad]) -> dict[str, float]:
    """By site the median MiB that jobs ask for: of its own jobs, else of all. What is more than any
    of its slots has does not count: such a job never starts there. Nothing of a site where no job
    says it: HTCondor's default is an expression."""
    largest: dict[str, float] = {}
    for ad in slots:
        memory_mb = number(ad, "TotalSlotMemory") or number(ad, "Memory") or 0.0
        largest[site_of_slot(ad)] = max(largest.get(site_of_slot(ad), 0.0), memory_mb)
    wanted: dict[str, list[float]] = {}
    for ad in jobs:
        wanted_mb = number(ad, "RequestMemory")
        if takes_a_slot(ad) and wanted_mb is not None and wanted_mb > 0:
            for site in {site_of_job(ad), ""}:
                wanted.setdefault(site, []).append(wanted_mb)
    fitting = {
        site: [n for n in wanted.get(site, wanted.get("", [])) if n <= most_mb]
        for site, most_mb in largest.items()
    }
    return {site: median(values) for site, values in fitting.items() if values}


def summarise(
    slots: Iterable[Ad],
    jobs: Iterable[Ad] | None,
    at: float,
    ended: Iterable[Ad] = (),
    user: str = "",
    priority: Mapping[str, float] | None = None,
    claim_s: float = CLAIM_S,
) -> dict[str, SitePool]:
    """Counts per site at ``at``. Slots that name no site are left out; jobs that name none count
    in proportion as ahead of others at every site. ``jobs`` is None if no schedd told. ``user``
    is who asks, ``priority`` the effective priority of each submitter, and ``claim_s`` the pool's
    CLAIM_WORKLIFE."""
    counts: dict[str, dict[str, int]] = {}
    stalled: dict[str, dict[str, float]] = {}
    speeds: dict[str, list[float]] = {}
    elapsed: dict[str, list[float]] = {}
    anywhere = 0
    queue, past_jobs = [*(jobs or ())], [*ended]
    slots = [*slots]
    wanted = _Wanted.of(queue)
    submitter = wanted.submitter(user)
    memory_mb = _memory_of_jobs(queue, slots) or _memory_of_jobs(past_jobs, slots)

    def add(site: str, **more: int) -> None:
        if site:
            row = counts.setdefault(site, {})
            for key, n in more.items():
                row[key] = row.get(key, 0) + n

    for ad in slots:
        if ad.get("Offline") is True:  # a machine that could be started
            continue
        site = site_of_slot(ad)
        total, idle = _workers(ad, memory_mb.get(site, 0.0))
        # Of a partitionable slot Memory is what is left; the rest is in its dynamic slots.
        memory_bytes = _whole(ad, "Memory") * 2**20
        add(site, slots=total, idle_slots=idle, memory_bytes=memory_bytes)
        mips = number(ad, "Mips")
        if site:  # of the whole machine, and so the same in all of its slots
            stalled.setdefault(site, {})[str(ad.get("Machine"))] = _stalled(ad, at)
        if site and mips:
            speeds.setdefault(site, []).append(mips)
    for ad in queue:
        status, site = ad.get("JobStatus"), site_of_job(ad)
        add(site, idle_jobs=int(status == _IDLE), running_jobs=int(status == _RUNNING))
        if takes_a_slot(ad):
            add(site, ahead=int(status == _IDLE))
            anywhere += int(status == _IDLE and not site)
            began = number(ad, "JobCurrentStartDate")
            if status == _RUNNING and began is not None and began <= at:
                elapsed.setdefault(site, []).append(at - began)
    past = _past(past_jobs)
    all_slots = sum(row.get("slots", 0) for row in counts.values())
    out = {}
    for site, row in counts.items():
        share = row.get("slots", 0) / all_slots if all_slots else 0.0
        site_past = past.get(site, _Past())
        held = site_past.held or elapsed.get(site, [])
        running, waiting = wanted.at(site, share)
        out[site] = SitePool(
            site,
            at,
            slots=row.get("slots", 0),
            idle_slots=row.get("idle_slots", 0),
            memory_bytes=row.get("memory_bytes", 0),
            idle_jobs=row.get("idle_jobs", 0),
            running_jobs=row.get("running_jobs", 0),
            stalled=round(sum(stalled.get(site, {}).values()), 3),
            mips=median(speeds[site]) if site in speeds else None,
            ahead=None if jobs is None else row.get("ahead", 0) + round(anywhere * share, 3),
            before=None
            if jobs is None or not user
            else starts_before(submitter, row.get("slots", 0), running, waiting, priority or {}),
            share=min(0.5, share_of(submitter, waiting, priority or {})) if user else 0.5,
            kept=_kept(site_past.held, elapsed.get(site, []), claim_s),
            claim_s=claim_s,
            run_s=fmean(held) if held else None,
            start_s=_lower_quartile(site_past.waited),
            runtimes={
                name: (median(seconds), len(seconds)) for name, seconds in site_past.runs.items()
            },
        )
    return out


def _kept(held: Sequence[float], elapsed: Sequence[float], claim_s: float) -> int:
    """How many jobs have run so long that no slot of theirs is expected back soon; ``held`` is how
    long those that ended had one, without any CLAIM_WORKLIFE stands for it."""
    longest = max(_LONG * fmean(held), _CYCLE_S) if held else claim_s
    return sum(seconds > longest for seconds in elapsed)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """How many jobs each submitter has running or idle at each site, "" for anywhere."""

    counts: Mapping[tuple[str, object], Mapping[str, float]]

    @classmethod
    def of(cls, queue: Iterable[Ad]) -> _Wanted:
        counts: dict[tuple[str, object], Counter[str]] = {}
        for ad in filter(takes_a_slot, queue):
            name = str(ad.get("AccountingGroup") or ad.get("User", "")).partition("@")[0]
            counts.setdefault((site_of_job(ad), ad.get("JobStatus")), Counter())[name] += 1
        return cls(counts)

    def submitter(self, user: str) -> str:
        """The accounting group in which a user has most jobs, ``group.user``; the user, where that
        has none in any."""
        totals: Counter[str] = sum(map(Counter, self.counts.values()), Counter())
        own = {name: n for name, n in totals.items() if name == user or name.endswith(f".{user}")}
        return max(own, key=own.__getitem__, default=user)

    def at(self, site: str, share: float) -> tuple[dict[str, float], dict[str, float]]:
        """Running and idle jobs by submitter, with this share of those that may run anywhere."""
        both = []
        for status in (_RUNNING, _IDLE):
            totals = dict(self.counts.get((site, status), {}))
            for name, n in self.counts.get(("", status), {}).items():
                totals[name] = totals.get(name, 0.0) + n * share
            both.append(totals)
        return both[0], both[1]


@dataclass(slots=True)
class _Past:
    """What the jobs that ended at one site tell, in seconds."""

    held: list[float] = field(default_factory=list)
    waited: list[float] = field(default_factory=list)
    runs: dict[str, list[float]] = field(default_factory=dict)


def _past(ended: Iterable[Ad]) -> dict[str, _Past]:
    out: dict[str, _Past] = {}
    for ad in ended:
        site, held = site_of_job(ad), number(ad, "RemoteWallClockTime")
        # A removed or failed job tells neither how long one runs nor how long one waits.
        good = ad.get("JobStatus") == _COMPLETED and ad.get("ExitCode", 0) == 0
        if not (site and good and held and held > 0 and takes_a_slot(ad)):
            continue
        past = out.setdefault(site, _Past())
        past.held.append(held)
        queued, began = number(ad, "QDate"), number(ad, "JobStartDate")
        if queued is not None and began is not None and began >= queued:
            past.waited.append(began - queued)
        name = ad.get("pegasus_wf_xformation")
        if isinstance(name, str) and name:
            past.runs.setdefault(name, []).append(held)
    return out


def _lower_quartile(values: Sequence[float]) -> float | None:
    if len(values) < 2:
        return values[0] if values else None
    return quantiles(values, n=4, method="inclusive")[0]


def _stalled(ad: Ad, at: float) -> float:
    """Cores of a slot's machine that have waited for disks for minutes, 0 if it does not say,
    or not any more."""
    share, cores = number(ad, "AdonIoWaitSustainedFraction"), number(ad, "DetectedCpus")
    fresh = at - (number(ad, "AdonMetricsAt") or 0.0) <= _STALE_S
    return share * cores if share and cores and fresh else 0.0


def _whole(ad: Ad, key: str) -> int:
    """0 for what is not there, or an expression."""
    return int(number(ad, key) or 0)


def workers(pools: Mapping[str, SitePool]) -> dict[str, int]:
    """N of the cost model: how many jobs each site runs at once."""
    return {site: pool.slots for site, pool in pools.items()}


def pool_from_json(text: str) -> dict[str, SitePool]:
    """What :func:`main` printed. Raises AdonError if it is something else."""
    try:
        return {
            site: SitePool(**{**row, "runtimes": {n: (s, k) for n, (s, k) in runtimes.items()}})
            for site, row in json.loads(text).items()
            for runtimes in [row.get("runtimes", {})]
        }
    except (ValueError, TypeError, AttributeError) as error:
        raise AdonError(f"found {text[:60]!r}, expected sites of a pool as JSON: {error}") from None
