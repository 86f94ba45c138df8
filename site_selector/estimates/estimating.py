"""What is estimated of sites and paths, from what, and how old that is.

Every value is a :class:`EstimatedValue`. For each, the first source that knows wins:

    N      HTCondor's collector ─► site catalog adon.workers ─► default
    T_q    HTCondor's schedd: the jobs ahead and how long each holds a slot, and what a job waits
           without jobs ahead (else the archive's queue_wait of the site, or of another site of
           the pool) ─► archive queue_wait ─► site catalog adon.queue_wait ─► default;
           infinite where a site has no workers; never less than what was measured in this pool,
           or, without measurements and hints, than DAGMan takes between two jobs; for a
           transformation longer or shorter by as much as it waited there, where that was measured
           three times
    space  archive free_space ─► site catalog adon.space ─► freeSize of its sharedScratch
    Γ_c, Γ_a, Γ_t, set-up of a transfer    see :mod:`site_selector.estimates.rates`

How the age and spread of a measurement are taken into account: :mod:`~.world`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import isfinite
from operator import attrgetter
from statistics import median

from monitors.base.estimates import Estimate, width_name
from network_provisioner.templates.template import RSpec
from site_selector.catalogs.entries import SCRATCH, SUBMIT_SITE, Site, site_of_place
from site_selector.estimates.plans import with_plans
from site_selector.estimates.plausible import PlausibleMeasurements
from site_selector.estimates.rates import (
    Network,
    compute_estimates,
    path_estimates,
    transformations,
    with_legs,
    with_place_of_all,
)
from site_selector.estimates.running import IDLE, Live, what_is_left
from site_selector.estimates.world import (
    ERRORS_OF,
    SOURCES,
    SPREADS,
    EstimatedValue,
    MeasurementSource,
    NoMeasurements,
    PoolSite,
    SiteEstimate,
    World,
    archived,
    seconds_now,
)
from site_selector.inputs import Inputs

DEFAULT_WORKERS = 4
# What passes from a job's end to its child's start where slots are idle: DAGMan looks at its log,
# at POST's end and at what is ready once each in three cycles (DAGMAN_USER_LOG_SCAN_INTERVAL, 5 s).
DAGMAN_S = 15.0
_BETWEEN = EstimatedValue(DAGMAN_S, "default", note="DAGMan's cycles")
_ALL = RSpec()
_LEAST_WAITS = 3  # of a kind of job at a site; below it they are taken for those of all jobs
_LEAST_ERRORS = 5  # below it the errors of a source are unknown
# "could be only about 1/10th of the original raw data size" (thesis §4.3), for final results.
FINAL_RATIO = 0.1
# Work in between rewrites the data (align, sort, mark): as much comes out as went in.
INTERMEDIATE_RATIO = 1.0


def estimate_world(
    inputs: Inputs,
    source: MeasurementSource | None = None,
    *,
    now: float,
    live: Live = IDLE,
    output_site: str | None = None,
) -> World:
    """Gather the estimates that a mapping of ``inputs`` needs.

    ``output_site``: a place to which results go and which may be no site of the catalog; results go
    to each of several between commas.
    """
    places, names = subjects(inputs, output_site)
    held = {place for row in set(inputs.places.values()) for place in row}
    network = Network(live.topology, live.in_use_bps, live.use, inputs.rspec.max_bps)
    measured = PlausibleMeasurements(source or NoMeasurements(), network.carries)
    overhead = measured.estimate("dag_overhead", SUBMIT_SITE, now)
    ratios = {}
    for name in names:
        ratio = measured.estimate("output_ratio", name, now)
        if ratio is not None and ratio.value > 0:
            ratios[name] = archived(ratio)
    rspec = inputs.rspec
    if rspec.memory is None:
        rspec = replace(rspec, memory=_usual_memory(inputs))
    sites = _sites(inputs.sites, measured, live, now, rspec)
    between = _between(sites)
    waits = _waits(sites, transformations(inputs), measured, now)
    errors = {what: known for what in ERRORS_OF if (known := _errors(what, measured, now))}
    world = World(
        now,
        sites,
        with_place_of_all(
            path_estimates(
                inputs.sites, places, measured, network, now, inputs.workflow.name, between
            ),
            output_site,
        ),
        compute_estimates(inputs, measured, live.pool or {}, now),
        ratios,
        # A directory is made first and cleaned up last.
        replace(between, value=2 * between.value) if overhead is None else archived(overhead),
        measured.note,  # of all that was asked
        errors,
        waits,
    )
    totals = {site: workers_now(here).value for site, here in (live.pool or {}).items()}
    world = with_plans(world, live.plans, live.pool, totals, reserved=bool(live.in_use_bps))
    return replace(world, paths=with_legs(world.paths, held))


def _waits(
    sites: Mapping[str, SiteEstimate],
    jobs: Mapping[str, Sequence[str]],
    measured: MeasurementSource,
    now: float,
) -> dict[tuple[str, str], EstimatedValue]:
    """T_q by transformation and site: what is assumed of the site, and by how much such jobs were
    seen to wait longer or shorter than its jobs on the whole; where none were seen, as elsewhere,
    lest a site that they never tried look the quicker for it. Of a transformation that nobody saw
    wait, by how much as many jobs at once did there."""
    usual = {site: measured.estimate("queue_wait", site, now) for site in sites}
    waits = {}

    def longer_s(kind: str) -> dict[str, float]:
        known = {site: measured.estimate("queue_wait", f"{kind}@{site}", now) for site in sites}
        return {
            site: wait.value - all_jobs.value
            for site, wait in known.items()
            if wait is not None and wait.count >= _LEAST_WAITS
            if (all_jobs := usual[site]) is not None
        }

    for name, alike in jobs.items():
        longer = longer_s(name)
        such = "such jobs" if longer else f"{len(alike)} jobs at once"
        longer = longer or longer_s(width_name(len(alike)))
        for site, wait in ((site, estimate.queue_wait) for site, estimate in sites.items()):
            if longer and isfinite(wait.value):
                more_s = longer.get(site, median(longer.values()))
                note = f"{more_s:+.3g} s for {such}" + ("" if site in longer else " elsewhere")
                waits[name, site] = wait.noted(note, max(0.0, wait.value + more_s))
    return waits


def _errors(what: str, measured: MeasurementSource, now: float) -> dict[str, float]:
    """The ``e`` by source of what was estimated of runtimes, waits or rates, where enough of it was
    held against the truth."""
    errors = {kind: measured.estimate("belief_error", f"{what}:{kind}", now) for kind in SOURCES}
    return {
        source: SPREADS * error.value
        for source, error in errors.items()
        if error is not None and error.count >= _LEAST_ERRORS
    }


def subjects(inputs: Inputs, output_site: str | None = None) -> tuple[list[str], list[str]]:
    """What :func:`estimate_world` asks about: sites, other places, and the transformations with
    how many jobs of each there are at once."""
    places = dict.fromkeys(inputs.sites)
    for place in dict.fromkeys(p for held in inputs.places.values() for p in held):
        site = site_of_place(place)
        places.update(dict.fromkeys((site,) if site == place else (site, SUBMIT_SITE)))
    places.update(dict.fromkeys(output_site.split(",") if output_site else ()))
    places.update(dict.fromkeys(at for row in set(inputs.staged.values()) for _, at in row))
    jobs = transformations(inputs)
    widths = dict.fromkeys(width_name(len(alike)) for alike in jobs.values())
    return list(places), [*jobs, *widths]


def estimate_sites(
    sites: Mapping[str, Site],
    source: MeasurementSource | None = None,
    *,
    now: float,
    live: Live = IDLE,
) -> World:
    """:func:`estimate_world` without a workflow: sites and paths only."""
    network = Network(live.topology, live.in_use_bps, live.use)
    measured = PlausibleMeasurements(source or NoMeasurements(), network.carries)
    there = _sites(sites, measured, live, now)
    return World(
        now,
        there,
        path_estimates(sites, sites, measured, network, now, between=_between(there)),
        {},
        note=measured.note,
    )


def _sites(
    sites: Mapping[str, Site],
    measured: MeasurementSource,
    live: Live,
    now: float,
    rspec: RSpec = _ALL,
) -> dict[str, SiteEstimate]:
    typical = _pool_latency(sites, measured, now)
    latency = None if live.pool is None else typical
    sites_known = {
        name: _site(site, measured, now, live.pool, latency) for name, site in sites.items()
    }
    least = _BETWEEN if typical is None else archived(typical[0], f"measured at {typical[1]}")
    return {
        name: replace(
            _allowed(
                what_is_left(_at_least(estimate, least), name, live),
                rspec,
                (live.pool or {}).get(name),
            ),
            space=_space(sites[name], measured, now),
        )
        for name, estimate in sites_known.items()
    }


def _usual_memory(inputs: Inputs) -> int | None:
    """The median of what jobs ask for (``pegasus: memory``), bytes; None where none does."""
    asked_mb = [job.memory_mb for job in inputs.workflow.jobs.values() if job.memory_mb]
    return int(median(asked_mb) * 2**20) if asked_mb else None


def _allowed(estimate: SiteEstimate, rspec: RSpec, here: PoolSite | None) -> SiteEstimate:
    """With no more workers than a template allows, and than its slots have memory for."""
    workers = estimate.workers
    limits = [(rspec.cores, "what the template allows of cores")]
    if rspec.memory and here is not None and here.memory_bytes:
        limits.append((here.memory_bytes // rspec.memory, "what there is of memory"))
    for limit, what in limits:
        if limit is not None and limit < workers.value:
            note = f"of {workers.value:g}: {what}"
            workers = replace(workers, value=float(limit), note=note)
    if workers.value <= 0:
        wait = EstimatedValue(float("inf"), workers.source, workers.at, note=workers.note)
        return replace(estimate, workers=workers, queue_wait=wait)
    return replace(estimate, workers=workers)


def _space(site: Site, measured: MeasurementSource, now: float) -> EstimatedValue | None:
    known = measured.estimate("free_space", site.name, now)
    if known is not None:
        return archived(known)
    if site.hints.space_bytes is not None:
        return EstimatedValue(float(site.hints.space_bytes), "catalog")
    for directory in site.directories:
        if directory.kind == SCRATCH and directory.free_bytes is not None:
            return EstimatedValue(
                float(directory.free_bytes), "catalog", note=f"freeSize of {directory.path}"
            )
    return None


def _at_least(estimate: SiteEstimate, least: EstimatedValue) -> SiteEstimate:
    """A wait that was not measured is no shorter than those that were: DAGMan, hooks and submission
    take their time for every site, whatever its catalog entry says. Where none was measured, the
    catalog knows better than a default."""
    wait = estimate.queue_wait
    known = ("archive", "catalog") if least is _BETWEEN else ("archive",)
    if wait.source in known or wait.value >= least.value:
        return estimate
    if least is _BETWEEN and wait.note:  # what HTCondor says of it is still worth reading
        least = replace(wait, value=least.value, note=f"{wait.note}, and {least.note}")
    return replace(estimate, queue_wait=least)


def _between(sites: Mapping[str, SiteEstimate]) -> EstimatedValue:
    """What a job waits that is not one of the workflow's own: staging, making and removing folders.
    DAGMan's cycles, or less where a site is known to be quicker."""
    return min((_BETWEEN, *(site.queue_wait for site in sites.values())), key=attrgetter("value"))


def _pool_latency(
    sites: Iterable[str], measured: MeasurementSource, now: float
) -> tuple[Estimate, str] | None:
    """How long jobs of this pool waited where waits were measured: the median site's estimate.

    One negotiator serves all sites of a pool. A site with idle slots and no queue therefore starts
    a job as fast as its neighbours do, whatever its queue was once estimated to be.
    """
    waits = [(measured.estimate("queue_wait", name, now), name) for name in sites]
    known = sorted(((m.value, name, m) for m, name in waits if m is not None))
    return (known[len(known) // 2][2], known[len(known) // 2][1]) if known else None


def _site(
    site: Site,
    measured: MeasurementSource,
    now: float,
    pool: Mapping[str, PoolSite] | None,
    latency: tuple[Estimate, str] | None,
) -> SiteEstimate:
    here = None if pool is None else pool.get(site.name)
    if pool is not None and (here is not None or _by_slots(site)):
        workers = EstimatedValue(0.0, "collector", now) if here is None else workers_now(here)
    elif site.hints.workers is not None:
        workers = EstimatedValue(float(site.hints.workers), "catalog")
    else:
        workers = EstimatedValue(float(DEFAULT_WORKERS), "default")
    if workers.value <= 0:
        wait = EstimatedValue(float("inf"), workers.source, workers.at, note="no workers now")
        return SiteEstimate(workers, wait)
    queue_wait = measured.estimate("queue_wait", site.name, now)
    live = None if here is None else _live_wait(here, queue_wait, latency)
    if live is not None:
        return SiteEstimate(workers, live)
    hint = site.hints.queue_wait_s
    written = EstimatedValue(0.0, "default") if hint is None else EstimatedValue(hint, "catalog")
    return SiteEstimate(
        workers,
        written if queue_wait is None else seconds_now(queue_wait, written, now),
    )


def workers_now(here: PoolSite) -> EstimatedValue:
    """N from HTCondor: the slots, less the cores that have stood still for minutes because disks
    are waited for.

    More jobs there would wait for the same disks. At least half of the slots count: the kernel
    tells who waits, and not whether the next jobs will.
    """
    stalled = min(int(here.stalled), here.slots // 2)
    note = f"of {here.slots} slots, {stalled} wait for disks (I/O wait)" if stalled else ""
    return EstimatedValue(float(here.slots - stalled), "collector", here.at, note=note)


def _by_slots(site: Site) -> bool:
    """Whether its jobs need slots of the pool: jobs of the submit host's own site run beside the
    schedd, and those of other styles are handed to other batch systems."""
    style = site.profiles.get("pegasus", {}).get("style", "condor")
    return site.name != SUBMIT_SITE and style == "condor"


def _live_wait(
    here: PoolSite, own: Estimate | None, latency: tuple[Estimate, str] | None
) -> EstimatedValue | None:
    """T_q from HTCondor; None if it cannot say.

    Where slots are idle and no job is ahead, what a job waits anyway: matchmaking and claiming,
    from the schedd's history, else as measured here or elsewhere in the pool. Else the k-th slot
    that falls free is the new job's, k being the jobs ahead plus one minus the idle slots: of N
    slots that are held for a mean of r seconds and without memory, that takes k · r / N
    ± √k · r / N. Sooner comes a user whose share lets fewer jobs go before, though others keep
    their slots for CLAIM_WORKLIFE. Slots whose jobs go on and on are none of the N.
    """
    if here.ahead is None:
        return None
    start_s = here.start_s
    queue = f"{here.ahead:g} jobs ahead, {here.idle_slots} of {here.slots} slots idle"
    if here.ahead < here.idle_slots:
        if start_s is None:
            if own is not None:
                return archived(own, getattr(own, "note", ""))
            if latency is not None:
                return archived(latency[0], f"measured at {latency[1]}, slots are idle here now")
        return EstimatedValue(start_s or 0.0, "schedd", here.at, note=queue)
    if here.run_s is None:
        return None
    slots, run_s = here.slots - here.kept, here.run_s
    if slots < 1:
        slots, run_s = here.slots, max(here.run_s, abs(here.claim_s))
    count, each_s = here.ahead + 1 - here.idle_slots, run_s / slots
    note = f"{queue}, each job holds one for {here.run_s:.3g} s"
    if here.before is not None and here.claim_s >= 0:
        fewer = here.before + 1 - here.idle_slots
        kept_s = max(here.run_s, here.claim_s + here.run_s / 2) / here.slots
        if fewer * kept_s < count * each_s:
            count, each_s = max(fewer, 0.0), kept_s
            note += f"; by users' priorities {here.before:g} of them start before"
    wait_s = count * each_s + (start_s or 0.0)
    return EstimatedValue(wait_s, "schedd", here.at, spread=count**0.5 * each_s, note=note)
