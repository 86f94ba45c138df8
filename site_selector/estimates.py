"""What ADON believes about sites and paths, where from, and how old that is.

Every value is a :class:`Belief`. For each, the first source that knows wins:

    N      pool (HTCondor's collector) ─► site catalog adon.workers ─► default
    T_q    archive queue_wait ─► the same measured at another site of the pool, where the collector
           sees slots idle here now ─► site catalog adon.queue_wait ─► default
    Γ_c    archive compute_rate, then runtime, at the site ─► the same measured at another site,
           carried over by the ratio that the catalogs expect ─► site catalog adon.rate
           ─► pegasus: runtime of job or transformation ─► default
    Γ_a    archive throughput ─► topology: capacity minus use ─► site catalog adon.bandwidth
           ─► default
    set-up archive transfer_setup of the path ─► the median of the paths where it was measured ─► 0
    Γ_t    cost.tuned_throughput of the path's link, RTT, loss, streams and buffer
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from statistics import median

from network_provisioner.topology import Path, Topology
from site_selector.beliefs import (
    Belief,
    ComputeBelief,
    Measured,
    MeasurementSource,
    NoMeasurements,
    PathBelief,
    SiteBelief,
    World,
)
from site_selector.catalogs import Site
from site_selector.cost import tuned_throughput
from site_selector.inputs import Inputs

__all__ = [
    "Belief",
    "ComputeBelief",
    "Measured",
    "MeasurementSource",
    "NoMeasurements",
    "PathBelief",
    "SiteBelief",
    "World",
    "believe",
]

DEFAULT_WORKERS = 4
DEFAULT_RATE = 10e6  # bytes/s: a core that reads compressed data from disk; order of magnitude
DEFAULT_BANDWIDTH_BPS = 100e6  # a campus connection; order of magnitude
DEFAULT_STREAMS = 4
DEFAULT_BUFFER_BYTES = 4 << 20  # Linux's default tcp_wmem maximum
# "could be only about 1/10th of the original raw data size" (thesis §4.3), for final results.
FINAL_RATIO = 0.1
# Work in between rewrites the data (align, sort, mark): as much comes out as went in.
INTERMEDIATE_RATIO = 1.0


def believe(
    inputs: Inputs,
    source: MeasurementSource | None = None,
    *,
    now: float,
    topology: Topology | None = None,
    pool: Mapping[str, int] | None = None,
    idle: Mapping[str, int] | None = None,
    in_use_bps: Mapping[tuple[str, str], float] | None = None,
    output_site: str | None = None,
) -> World:
    """Gather the beliefs that a mapping of ``inputs`` needs.

    ``pool``: worker slots per site as HTCondor's collector reports them now; ``idle``: those of
    them that would take a job at once, for which nobody waits. ``in_use_bps``: what
    runs on each directed link of the topology now. ``output_site``: a place to which results go and
    which may be no site of the catalog.
    """
    measured = source or NoMeasurements()
    latency = _pool_latency(inputs.sites, measured, now) if idle else None
    sites = {
        name: _site(site, measured, now, pool, latency if (idle or {}).get(name) else None)
        for name, site in inputs.sites.items()
    }
    places = dict.fromkeys(inputs.sites)
    places.update(dict.fromkeys(p for held in inputs.places.values() for p in held))
    if output_site is not None:
        places[output_site] = None
    paths = {
        (a, b): _path(inputs.sites, measured, now, topology, in_use_bps or {}, a, b)
        for a in places
        for b in places
        if a != b
    }
    paths = _with_setup(paths, measured, now)
    ratios = {}
    for name in _transformations(inputs):
        found = measured.estimate("output_ratio", name, now)
        if found is not None and found.value > 0:
            ratios[name] = _archived(found)
    return World(now, sites, paths, _compute(inputs, measured, now), ratios)


def _archived(found: Measured, note: str = "") -> Belief:
    return Belief(found.value, "archive", found.at, found.spread, note)


def _pool_latency(
    sites: Iterable[str], measured: MeasurementSource, now: float
) -> tuple[Measured, str] | None:
    """How long jobs of this pool waited where waits were measured: the median site's estimate.

    One negotiator serves all sites of a pool. A site with idle slots and no queue therefore starts
    a job as fast as its neighbours do, whatever its queue was once believed to be.
    """
    found = [(measured.estimate("queue_wait", name, now), name) for name in sites]
    known = sorted(((m.value, name, m) for m, name in found if m is not None))
    return (known[len(known) // 2][2], known[len(known) // 2][1]) if known else None


def _site(
    site: Site,
    measured: MeasurementSource,
    now: float,
    pool: Mapping[str, int] | None,
    latency: tuple[Measured, str] | None,
) -> SiteBelief:
    if pool is not None:
        workers = Belief(float(pool.get(site.name, 0)), "collector", now)
    elif site.hints.workers is not None:
        workers = Belief(float(site.hints.workers), "catalog")
    else:
        workers = Belief(float(DEFAULT_WORKERS), "default")
    found = measured.estimate("queue_wait", site.name, now)
    if workers.value <= 0:
        wait = Belief(float("inf"), workers.source, workers.at, note="no workers now")
    elif found is not None:
        wait = _archived(found)
    elif latency is not None:
        wait = _archived(latency[0], f"measured at {latency[1]}, slots are idle here now")
    elif site.hints.queue_wait_s is not None:
        wait = Belief(site.hints.queue_wait_s, "catalog")
    else:
        wait = Belief(0.0, "default")
    return SiteBelief(workers, wait)


def _with_setup(
    paths: Mapping[tuple[str, str], PathBelief], measured: MeasurementSource, now: float
) -> dict[tuple[str, str], PathBelief]:
    """The paths with what a transfer costs beside its bytes. Mostly the stage job's own wait and
    start, it is alike on all paths: one that was never measured takes the median of the others."""
    found = {(a, b): measured.estimate("transfer_setup", f"{a}>{b}", now) for a, b in paths}
    known = sorted((m.value, pair, m) for pair, m in found.items() if m is not None)
    if not known:
        return dict(paths)
    _, (src, dst), typical = known[len(known) // 2]
    carried = _archived(typical, f"measured from {src} to {dst}")
    return {
        pair: replace(path, setup=carried if m is None else _archived(m))
        for (pair, path), m in zip(paths.items(), found.values(), strict=True)
    }


def _path(
    sites: Mapping[str, Site],
    measured: MeasurementSource,
    now: float,
    topology: Topology | None,
    in_use_bps: Mapping[tuple[str, str], float],
    src: str,
    dst: str,
) -> PathBelief:
    best, free_bps = _best_path(topology, in_use_bps, src, dst)
    hints = [(sites[s].hints, other) for s, other in ((src, dst), (dst, src)) if s in sites]
    bandwidth = next((h.bandwidth_bps[o] for h, o in hints if o in h.bandwidth_bps), None)
    rtt = next((h.rtt_s[o] for h, o in hints if o in h.rtt_s), 0.0)
    loss = next((h.loss[o] for h, o in hints if o in h.loss), 0.0)
    streams = min((h.streams for h, _ in hints if h.streams is not None), default=DEFAULT_STREAMS)
    buffer = min(
        (h.buffer_bytes for h, _ in hints if h.buffer_bytes is not None),
        default=DEFAULT_BUFFER_BYTES,
    )
    link = float("inf")
    if best is not None:
        link, rtt, loss = best.capacity_bps, best.rtt_s, best.loss
    found = measured.estimate("throughput", f"{src}>{dst}", now)
    if found is not None and found.value > 0:
        gamma_a = _archived(found)
    elif best is not None:
        gamma_a = Belief(free_bps, "topology", now, note="-".join(best.nodes))
    elif bandwidth is not None:
        gamma_a = Belief(bandwidth, "catalog")
    else:
        gamma_a = Belief(DEFAULT_BANDWIDTH_BPS, "default")
    tuned = float(tuned_throughput(link, rtt, streams, buffer, loss))
    known = "topology" if best is not None else "catalog" if rtt > 0 else "default"
    note = f"{streams} streams of {buffer} bytes, RTT {rtt * 1e3:.3g} ms"
    return PathBelief(gamma_a, Belief(tuned, known, note=note), link, rtt, streams, buffer, loss)


def _best_path(
    topology: Topology | None, in_use_bps: Mapping[tuple[str, str], float], src: str, dst: str
) -> tuple[Path | None, float]:
    """The path with most room, and that room in bits per second."""
    if topology is None or src not in topology.sites or dst not in topology.sites:
        return None, 0.0
    best: Path | None = None
    most = -1.0
    for path in topology.candidate_paths(src, dst):
        room = min(topology.link(*hop).capacity_bps - in_use_bps.get(hop, 0.0) for hop in path.hops)
        if room > most:
            best, most = path, room
    return best, max(most, 0.0)


def _transformations(inputs: Inputs) -> dict[str, list[str]]:
    """Jobs by transformation, in the order of the workflow."""
    jobs: dict[str, list[str]] = {}
    for job in inputs.workflow.jobs.values():
        jobs.setdefault(job.transformation, []).append(job.id)
    return jobs


def _compute(
    inputs: Inputs, measured: MeasurementSource, now: float
) -> dict[tuple[str, str], ComputeBelief]:
    found: dict[tuple[str, str], ComputeBelief] = {}
    for name, jobs in _transformations(inputs).items():
        sites = dict.fromkeys(s for job in jobs for s in inputs.candidates[job])
        typical = _typical_input(inputs, jobs)
        expected = {site: _expected(inputs, name, site) for site in sites}
        here = {site: _measured_compute(measured, name, site, now) for site in inputs.sites}
        for site in sites:
            own = here[site]
            if own is None:
                own = _carried_over(here, expected, inputs, name, site, typical)
            found[name, site] = own or expected[site]
    return found


def _typical_input(inputs: Inputs, jobs: Iterable[str]) -> float:
    """Median bytes of declared input per job: only for comparing a rate with a runtime."""
    flow = inputs.workflow
    sizes = [
        sum(inputs.raw_bytes.get(f, flow.files[f].size_bytes or 0) for f in flow.jobs[job].inputs)
        for job in jobs
    ]
    return max(float(median(sizes)), 1.0)


def _measured_compute(
    measured: MeasurementSource, name: str, site: str, now: float
) -> ComputeBelief | None:
    subject = f"{name}@{site}"
    for metric, kind in (("compute_rate", "rate"), ("runtime", "runtime")):
        found = measured.estimate(metric, subject, now)
        if found is not None and found.value > 0:
            return ComputeBelief(kind, _archived(found))
    return None


def _expected(inputs: Inputs, name: str, site: str) -> ComputeBelief:
    """What the catalogs say, before anything was measured."""
    rate = inputs.sites[site].hints.rate
    if rate is not None:
        return ComputeBelief("rate", Belief(rate, "catalog", note="adon.rate"))
    transformation = inputs.transformations.get(name)
    runtime = transformation.runtime_at(site) if transformation else None
    if runtime is not None:
        return ComputeBelief("runtime", Belief(runtime, "catalog", note="pegasus: runtime"))
    return ComputeBelief("rate", Belief(DEFAULT_RATE, "default"))


def _carried_over(
    here: Mapping[str, ComputeBelief | None],
    expected: Mapping[str, ComputeBelief],
    inputs: Inputs,
    name: str,
    site: str,
    typical: float,
) -> ComputeBelief | None:
    """A measurement at another site, times the ratio in which the catalogs expect both to differ.

    Without this, a site that was never tried would keep its guess beside sites that were measured,
    and win or lose by the error of the guess alone.
    """
    seconds, ages, names = [], [], []
    for other, belief in here.items():
        if belief is not None:
            base = expected.get(other) or _expected(inputs, name, other)
            ratio = expected[site].seconds(typical) / base.seconds(typical)
            seconds.append(belief.seconds(typical) * ratio)
            ages.append(belief.belief.at)
            names.append(other)
    if not seconds:
        return None
    kind = next(b.kind for b in here.values() if b is not None)
    value = float(median(seconds))
    at = min((a for a in ages if a is not None), default=None)
    note = f"measured at {', '.join(names)}"
    return ComputeBelief(
        kind, Belief(typical / value if kind == "rate" else value, "archive", at, note=note)
    )
