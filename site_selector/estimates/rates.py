"""What is assumed of the path between two places: Γ_a, Γ_t, and what a transfer sets up.

Γ_a     archive transfer_rate (the rate apart from handshakes), else throughput, weighed by age
        and spread ─► topology: capacity minus use, or site catalog adon.bandwidth, each times what
        measured paths got of their declared values ─► default
Γ_t     cost.tuned_throughput of the path's link, RTT, loss, streams and buffer, and no more than
        the disks at its ends were found to take: archive disk_rate of the application, else of all
set-up  archive transfer_setup of the path ─► of the measured path with the RTT nearest to its own
        ─► what a job waits at the submit host; and likewise transfer_start, the handshakes of its
        tool there, and file_start, what each further file of a transfer takes, else 0

How fast each transformation runs at each site (Γ_c) is from the first source that knows:

HTCondor's schedd: jobs of the transformation that ended at the site
─► archive compute_rate, then runtime, at the site
─► either of them at another site, carried over by the ratio in which the catalogs, else the
   speeds of the machines (collector), expect the sites to differ
─► site catalog adon.rate ─► pegasus: runtime of job or transformation
─► default, times the machine's speed against the pool's where the collector tells it
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from statistics import median

from monitors.archive.knowledge import disk_rate
from monitors.base.estimates import weighted
from network_provisioner.base.units import BITS_PER_BYTE, format_rate
from network_provisioner.templates.advice import PathFigures, advise
from network_provisioner.topology.graph import Path, Topology
from site_selector.catalogs.entries import SUBMIT_SITE, Site, legs_of, site_of_place
from site_selector.cost import tuned_throughput
from site_selector.estimates.plausible import PlausibleMeasurements
from site_selector.estimates.world import (
    FRESH_S,
    NOTHING,
    ComputeEstimate,
    EstimatedValue,
    MeasurementSource,
    PathEstimate,
    PoolSite,
    archived,
    rate_now,
)
from site_selector.inputs import Inputs

_WRITTEN = ("catalog", "topology")
_METRICS = (("compute_rate", "rate"), ("runtime", "runtime"))
_LONG_S = 1.0  # of a transfer at the rate that is written down
_MOST_APART = 0.9  # of what a transfer took, for handshakes measured elsewhere
_LEAST_RATIOS = 3  # below it their spread is unknown
DEFAULT_BANDWIDTH_BPS = 100e6  # a campus connection; order of magnitude
DEFAULT_STREAMS = 4
DEFAULT_BUFFER_BYTES = 4 << 20  # Linux's default tcp_wmem maximum
Ratio = tuple[float, float, int]
"""Of what was measured to what was written down: median, spread, and of how many."""
DEFAULT_RATE = 10e6  # bytes/s: a core that reads compressed data from disk; order of magnitude
NOMINAL_BYTES = 100e6  # ten seconds' work at that rate
# Below it a schedd's history says less than an archive that has seen more.
LEAST_JOBS = 3


@dataclass(frozen=True, slots=True)
class Network:
    """The topology, and what runs on each directed link of it at ``at`` (Unix second).

    ``use``: who said so, in a few words, empty if nothing is known to run. ``ceiling_bps``: the
    most that the template gives a transfer, None for all that its path has.
    """

    topology: Topology | None = None
    in_use_bps: Mapping[tuple[str, str], float] | None = None
    use: str = ""
    ceiling_bps: float | None = None

    def best_path(self, src: str, dst: str) -> tuple[Path | None, float, tuple[str, str] | None]:
        """The path with most room (capacity minus use), that room in bits per second, and the link
        that bounds it where no other path avoids that link: without a topology the submit host's.
        """
        topology, used = self.topology, self.in_use_bps or {}
        if topology is None or src not in topology.sites or dst not in topology.sites:
            ends = ((src, ""), ("", dst))
            return None, 0.0, next((link for link in ends if SUBMIT_SITE in link), None)
        best: Path | None = None
        most = -1.0
        paths = topology.candidate_paths(src, dst)
        room = {
            hop: topology.link(*hop).capacity_bps - used.get(hop, 0.0)
            for hop in {hop for path in paths for hop in path.hops}
        }
        for path in paths:
            least = min(room[hop] for hop in path.hops)
            if least > most:
                best, most = path, least
        narrow = [hop for hop in best.hops if room[hop] == most] if best is not None else []
        shared = (hop for hop in narrow if all(hop in path.hops for path in paths))
        return best, max(most, 0.0), next(shared, None)

    def carries(self, pair: str) -> float:
        """What all paths of "src>dst" carry together, bit/s; infinite if unknown."""
        src, _, dst = pair.partition(">")
        if self.topology is None or not {src, dst} <= {*self.topology.sites}:
            return float("inf")
        paths = self.topology.candidate_paths(src, dst)
        return sum(path.capacity_bps for path in paths) or float("inf")


def path_estimates(
    sites: Mapping[str, Site],
    places: Iterable[str],
    measured: MeasurementSource,
    network: Network,
    now: float,
    application: str = "",
    between: EstimatedValue = NOTHING,
) -> dict[tuple[str, str], PathEstimate]:
    """Estimates of every ordered pair of ``places``, some of which may be no site of the catalog,
    for an application, "" for any. ``between``: what a transfer's job waits where none was
    measured."""
    names = list(places)
    paths_known: dict[tuple[str, str], tuple[PathEstimate, EstimatedValue]] = {}
    for a, b, other in _pairs(sites, names, measured, network):
        paths_known[a, b] = (
            _path(sites, measured, network, now, a, b) if other is None else paths_known[other]
        )
    disks = {
        way: {name: _disk(measured, name, way, application, now) for name in names}
        for way in ("read", "write")
    }
    for (a, b), (path, written) in paths_known.items():
        ends = [end for end in (disks["read"][a], disks["write"][b]) if end is not None]
        least = min([path.gamma_t, *ends], key=lambda end: end.value)
        if least is not path.gamma_t:
            link = path.bottleneck if least.value >= path.gamma_a.value else None
            paths_known[a, b] = replace(path, gamma_t=least, bottleneck=link), written
    ratio = ratio_of(
        (path.gamma_a.value, written)
        for (a, b), (path, written) in paths_known.items()
        if path.gamma_a.source == "archive" and _is_long(measured, f"{a}>{b}", written, now)
    )
    alike: dict[int, PathEstimate] = {}
    paths = {}
    for pair, (path, _) in paths_known.items():
        if id(path) not in alike:
            gamma_a = as_measured(path.gamma_a, ratio, "paths")
            alike[id(path)] = replace(path, gamma_a=gamma_a)
        paths[pair] = alike[id(path)]
    return _with_setup(paths, measured, now, between)


def _is_long(measured: MeasurementSource, pair: str, written: EstimatedValue, now: float) -> bool:
    """Whether what was measured tells how true a written rate is: transfers so short that it hardly
    mattered tell of handshakes."""
    moved = measured.estimate("transfer_bytes", pair, now)
    return moved is None or moved.value * BITS_PER_BYTE >= _LONG_S * written.value


def _disk(
    measured: MeasurementSource, site: str, way: str, application: str, now: float
) -> EstimatedValue | None:
    """What transfers are assumed to get from the disk of a site."""
    rate = disk_rate(measured.estimate, site, way, application, now)
    return archived(rate, f"all that its disk {way}s") if rate is not None else None


def with_place_of_all(
    paths: Mapping[tuple[str, str], PathEstimate], output_site: str | None
) -> dict[tuple[str, str], PathEstimate]:
    """And paths to a place that stands for all of several sites between commas: results go to each
    of them, and are there when they have come over the slowest path."""
    outputs, paths_known = (output_site or "").split(","), dict(paths)
    if len(outputs) < 2 or output_site is None:
        return paths_known
    for place in {src for src, _ in paths}:
        ways = [paths[place, output] for output in outputs if output != place]
        slowest = min(ways, key=lambda way: way.rate_bps)
        paths_known[place, output_site] = paths_known[output_site, place] = slowest
    return paths_known


def with_legs(
    paths: Mapping[tuple[str, str], PathEstimate], places: Iterable[str]
) -> dict[tuple[str, str], PathEstimate]:
    """And paths from those ``places`` that are no sites (``catalogs.entries.places_of``): one leg
    after the other."""
    known = dict(paths)
    sites = {site for pair in paths for site in pair}
    others = set(places) - sites
    for place in others:
        for other in (sites | others) - {place}:
            legs = _in_turn([paths[leg] for leg in legs_of(place, site_of_place(other))])
            known[place, other] = known[other, place] = legs
    return known


def _in_turn(legs: Sequence[PathEstimate]) -> PathEstimate:
    """What a file gets that a job moves over one path and then over another, whole files in
    turn: as the slower one, but less."""
    slowest = min(legs, key=lambda leg: leg.rate_bps)
    if len(legs) == 1:
        return slowest
    rate_bps = 1 / sum(1 / leg.rate_bps if leg.rate_bps > 0 else math.inf for leg in legs)
    note = ", then ".join(format_rate(leg.rate_bps) for leg in legs)
    gamma_a = slowest.gamma_a
    spread = rate_bps * gamma_a.spread / gamma_a.value if gamma_a.value > 0 else 0.0
    return replace(
        slowest,
        gamma_a=replace(
            gamma_a, value=rate_bps, spread=spread, note=f"through {SUBMIT_SITE}: {note}"
        ),
        first=replace(slowest.first, value=sum(leg.first.value for leg in legs)),
        further=replace(slowest.further, value=sum(leg.further.value for leg in legs)),
        rtt_s=sum(leg.rtt_s for leg in legs),
        room_bps=slowest.room_bps or slowest.rate_bps,
    )


def ratio_of(pairs: Iterable[tuple[float, EstimatedValue]]) -> Ratio | None:
    """Of measured values and what is written of the same; None if nothing is known about both."""
    ratios = [
        value / written.value
        for value, written in pairs
        if written.source in _WRITTEN and 0 < written.value < float("inf")
    ]
    return (*weighted(ratios, [1.0] * len(ratios)), len(ratios)) if ratios else None


def as_measured(written: EstimatedValue, ratio: Ratio | None, others: str) -> EstimatedValue:
    """What was not measured is as far from what is written of it as ``others`` were that somebody
    did: else a catalog could flatter what was never tried."""
    if ratio is None or written.source not in _WRITTEN:
        return written
    times, spread, count = ratio
    note = f"times {times:.2g}, as {count} measured {others} were"
    return replace(
        written.noted(note, written.value * times),
        spread=written.value * spread if count >= _LEAST_RATIOS else written.spread,
    )


def _path(
    sites: Mapping[str, Site],
    measured: MeasurementSource,
    network: Network,
    now: float,
    src: str,
    dst: str,
) -> tuple[PathEstimate, EstimatedValue]:
    """And what is written down of its Γ_a."""
    best, free_bps, bottleneck = network.best_path(src, dst)
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
        note = "-".join(best.nodes) + (f" minus {network.use}" if network.use else "")
        written = EstimatedValue(free_bps, "topology", now, note=note)
    elif bandwidth is not None:
        written = EstimatedValue(bandwidth, "catalog")
    else:
        written = EstimatedValue(DEFAULT_BANDWIDTH_BPS, "default")
    held_bps = (network.in_use_bps or {}).get((src, dst), 0.0)
    if best is not None:
        held_bps = best.capacity_bps - free_bps
    elif held_bps > 0:
        left = max(0.0, written.value - held_bps)
        written = replace(written, value=left, note=f"minus {network.use}")
    ceiling = float("inf") if network.ceiling_bps is None else network.ceiling_bps
    written, room = _below(written, ceiling)
    # Where transfers of different sizes were seen, their handshakes are not taken for the path.
    pair = f"{src}>{dst}"
    rates = (measured.estimate(metric, pair, now) for metric in ("transfer_rate", "throughput"))
    rate = next(filter(None, rates), None)
    gamma_a = rate_now(rate, written, now) if rate is not None and rate.value > 0 else written
    if gamma_a.source == "archive" and link < float("inf"):
        room = link
    most = min(link, ceiling)
    gamma_a = replace(gamma_a, value=min(gamma_a.value, most))
    if held_bps > 0 and written.value < gamma_a.value:
        gamma_a = replace(gamma_a, value=written.value, note=f"all that is left, {written.note}")
    known, at = "topology" if best is not None else "catalog" if rtt > 0 else "default", None
    seen_rtt, seen_loss = (measured.estimate(m, f"{src}>{dst}", now) for m in ("rtt", "loss"))
    if seen_rtt is not None and seen_rtt.value > 0:
        rtt, known, at = seen_rtt.value, "archive", seen_rtt.at
    if seen_loss is not None and 0 <= seen_loss.value < 1:
        loss, known, at = seen_loss.value, "archive", seen_loss.at
    if best is not None and not any(h.streams for h, _ in hints):
        streams = advise(PathFigures(link, rtt, loss)).streams  # as its transits are tuned
    tuned = float(tuned_throughput(link, rtt, streams, buffer, loss))
    note = f"{streams} streams of {buffer / 2**20:.3g} MiB"
    note += f", RTT {rtt * 1e3:.3g} ms" if rtt > 0 else ", RTT unknown"
    note += f", loss {loss:.3g}" if loss else ""
    gamma_t = EstimatedValue(tuned, known, at, note=note)
    has_own_bound = tuned < gamma_a.value or (best is None and gamma_a.source != "default")
    figures = (most, rtt, streams, buffer, loss, room, None if has_own_bound else bottleneck)
    return PathEstimate(gamma_a, gamma_t, *figures), written


def _below(written: EstimatedValue, ceiling_bps: float) -> tuple[EstimatedValue, float | None]:
    """What one transfer gets of what is written of a path, and what several get together."""
    if written.value <= ceiling_bps:
        return written, None
    note = ", ".join(filter(None, (written.note, "the template's ceiling")))
    return replace(written, value=ceiling_bps, note=note), written.value


def _pairs(
    sites: Mapping[str, Site],
    names: Sequence[str],
    measured: MeasurementSource,
    network: Network,
) -> Iterator[tuple[str, str, tuple[str, str] | None]]:
    """Every ordered pair, and an earlier one of whose path exactly the same is known: hundreds of
    sites have many of them."""
    subjects = _subjects_of(measured)
    used = {end for pair in network.in_use_bps or () for end in pair}
    used.update(network.topology.sites if network.topology is not None else (), (SUBMIT_SITE,))
    named = {
        other
        for site in sites.values()
        for known in (site.hints.bandwidth_bps, site.hints.rtt_s, site.hints.loss)
        for other in (*known, *([site.name] if known else []))
    }
    kind = {}
    for name in names:
        hints = sites[name].hints if name in sites else None
        special = name in used or name in named or subjects is None
        kind[name] = name if special else (hints and hints.streams, hints and hints.buffer_bytes)
    first: dict[tuple[object, object], tuple[str, str]] = {}
    for a in names:
        for b in names:
            if a == b:
                continue
            if subjects and f"{a}>{b}" in subjects:
                yield a, b, None
                continue
            other = first.setdefault((kind[a], kind[b]), (a, b))
            yield a, b, None if other == (a, b) else other


def _subjects_of(measured: MeasurementSource) -> frozenset[str] | None:
    """What anything was measured of, None if unknown."""
    return measured.subjects if isinstance(measured, PlausibleMeasurements) else None


def _with_setup(
    paths: Mapping[tuple[str, str], PathEstimate],
    measured: MeasurementSource,
    now: float,
    between: EstimatedValue,
) -> dict[tuple[str, str], PathEstimate]:
    """The paths with what a transfer costs besides its bytes: the stage job's own wait and start,
    and handshakes."""
    setups = _carried(paths, measured, "transfer_setup", now, between)
    firsts, files = (
        _carried(paths, measured, metric, now) for metric in ("transfer_start", "file_start")
    )
    with_setup = {}
    alike: dict[tuple[int, ...], PathEstimate] = {}
    for pair, path in paths.items():
        first, further = firsts[pair], files[pair]
        key = (id(path), id(setups[pair]), id(first), id(further))
        if key not in alike:
            with_own = path
            if first.note and path.gamma_a.source == "archive":  # its rate has handshakes in it
                with_own, first, further = _apart(pair, path, first, further, measured, now)
            alike[key] = replace(with_own, setup=setups[pair], first=first, further=further)
        with_setup[pair] = alike[key]
    return with_setup


def _apart(
    pair: tuple[str, str],
    path: PathEstimate,
    first: EstimatedValue,
    further: EstimatedValue,
    measured: MeasurementSource,
    now: float,
) -> tuple[PathEstimate, EstimatedValue, EstimatedValue]:
    """A path whose transfers were of one size, with its rate apart from the handshakes of another
    path, where those explain a part of what they took; as it is where nothing tells their size."""
    name, goodput = ">".join(pair), measured.estimate("throughput", ">".join(pair), now)
    size, count = (measured.estimate(f"transfer_{m}", name, now) for m in ("bytes", "files"))
    if size is None or count is None or goodput is None or goodput.value <= 0:
        return path, path.first, path.further
    bits, files = size.value * BITS_PER_BYTE, max(count.value, 1.0)
    took_s = bits / goodput.value
    part = (first.value + further.value * (files - 1)) / took_s
    shrunk = min(1.0, _MOST_APART / part) if part > 0 else 0.0
    rate = min(path.gamma_a.value / (1 - shrunk * part), path.link_bps)
    gamma_a = path.gamma_a.noted(f"without handshakes {first.note}", rate)
    first, further = (replace(b, value=shrunk * b.value) for b in (first, further))
    return replace(path, gamma_a=gamma_a), first, further


def _carried(
    paths: Mapping[tuple[str, str], PathEstimate],
    measured: MeasurementSource,
    metric: str,
    now: float,
    unknown: EstimatedValue = NOTHING,
) -> dict[tuple[str, str], EstimatedValue]:
    """Seconds of every path. One that was never measured takes those of the path with the RTT
    nearest to its own, of several the longest: handshakes take a number of round trips."""
    subjects = _subjects_of(measured)
    rates = {
        pair: measured.estimate(metric, name, now) if subjects is None or name in subjects else None
        for pair in paths
        if (name := f"{pair[0]}>{pair[1]}")
    }
    known = {pair: rate for pair, rate in rates.items() if rate is not None}

    @cache
    def like(rtt_s: float) -> EstimatedValue:
        src, dst = min(known, key=lambda p: (abs(paths[p].rtt_s - rtt_s), -known[p].value, p))
        return archived(known[src, dst], f"measured from {src} to {dst}")

    return {
        pair: archived(rate) if rate is not None else like(paths[pair].rtt_s) if known else unknown
        for pair, rate in rates.items()
    }


def amount_of(input_bytes: float) -> float:
    """S_c: what a job computes on. One that reads nothing computes all the same."""
    return input_bytes if input_bytes >= 1 else NOMINAL_BYTES


def compute_estimates(
    inputs: Inputs, measured: MeasurementSource, pool: Mapping[str, PoolSite], now: float
) -> dict[tuple[str, str], ComputeEstimate]:
    """Γ_c by transformation and site, for every site that may run a job of it."""
    return _Compute(inputs, measured, pool, now).all()


def transformations(inputs: Inputs) -> dict[str, list[str]]:
    """Jobs by transformation, in the order of the workflow."""
    jobs: dict[str, list[str]] = {}
    for job in inputs.workflow.jobs.values():
        jobs.setdefault(job.transformation, []).append(job.id)
    return jobs


@dataclass(slots=True)
class _Compute:
    inputs: Inputs
    measured: MeasurementSource
    pool: Mapping[str, PoolSite]
    now: float
    _usual_mips: float | None = field(init=False)

    def __post_init__(self) -> None:
        speeds = [p.mips for p in self.pool.values() if p.mips]
        self._usual_mips = median(speeds) if speeds else None

    def all(self) -> dict[tuple[str, str], ComputeEstimate]:
        rates_known: dict[tuple[str, str], ComputeEstimate] = {}
        unseen: list[tuple[str, str]] = []
        # Of those measured, as multiples of the written.
        rates: list[tuple[float, EstimatedValue]] = []
        for name, jobs in transformations(self.inputs).items():
            sites = dict.fromkeys(s for job in jobs for s in self.inputs.candidates[job])
            read = self._typical_input(jobs)
            typical = amount_of(read)
            here = {site: self._seen(name, site, read >= 1) for site in self.inputs.sites}
            for site in sites:
                expected = self._expected(name, site)[0]
                own = here[site] or self._carried_over(here, name, site, typical)
                rates_known[name, site] = own or expected
                if own is None:
                    unseen.append((name, site))
                elif here[site] is not None and own.seconds(typical) > 0:
                    times = expected.seconds(typical) / own.seconds(typical)
                    rates.append((times, replace(expected.estimated, value=1.0)))
        for kind, ratio in (
            ("rate", ratio_of(rates)),
            ("runtime", ratio_of((1 / times, rate) for times, rate in rates)),
        ):
            for key in (key for key in unseen if rates_known[key].kind == kind):
                estimate = as_measured(rates_known[key].estimated, ratio, "programs")
                rates_known[key] = ComputeEstimate(kind, estimate)
        return rates_known

    def _typical_input(self, jobs: Iterable[str]) -> float:
        """Median bytes of declared input per job: only for comparing a rate with a runtime."""
        flow = self.inputs.workflow
        raw = self.inputs.raw_bytes
        sizes = [
            sum(raw.get(f, flow.files[f].size_bytes or 0) for f in flow.jobs[job].inputs)
            for job in jobs
        ]
        return float(median(sizes))

    def _seen(self, name: str, site: str, reads: bool) -> ComputeEstimate | None:
        """Measured at the site itself: by the schedd, else in the archive, where a rate comes first
        for what ``reads`` anything."""
        pool = self.pool.get(site)
        seconds, count = pool.runtimes.get(name, (0.0, 0)) if pool is not None else (0.0, 0)
        if pool is not None and count >= LEAST_JOBS and seconds > 0:
            note = f"median of {count} jobs in the schedd's history"
            return ComputeEstimate(
                "runtime", EstimatedValue(seconds, "schedd", pool.at, 0.0, note, count)
            )
        for metric, kind in _METRICS if reads else _METRICS[::-1]:
            estimate = self.measured.estimate(metric, f"{name}@{site}", self.now)
            if estimate is not None and estimate.value > 0:
                old = "old, and there is no newer one" if self.now - estimate.at > FRESH_S else ""
                return ComputeEstimate(kind, archived(estimate, old))
        return None

    def _expected(self, name: str, site: str) -> tuple[ComputeEstimate, bool]:
        """What the catalogs say, else the default, times the machine's speed where it is known; and
        whether the catalogs distinguish sites."""
        rate = self.inputs.sites[site].hints.rate
        if rate is not None:
            estimate = EstimatedValue(rate, "catalog", note="adon.rate")
            return ComputeEstimate("rate", estimate), True
        transformation = self.inputs.transformations.get(name)
        runtime = transformation.runtime_at(site) if transformation else None
        if transformation is not None and runtime is not None:
            estimate = EstimatedValue(runtime, "catalog", note="pegasus: runtime")
            own = runtime != transformation.runtime_s
            return ComputeEstimate("runtime", estimate), own
        pool = self.pool.get(site)
        if pool is not None and pool.mips and self._usual_mips:
            speed = pool.mips / self._usual_mips
            # Still a guess, and to be beaten by a job's own ``pegasus: runtime``.
            note = f"times {speed:.3g} by the machine's speed, {pool.mips:g} Mips (collector)"
            estimate = EstimatedValue(DEFAULT_RATE * speed, "default", pool.at, note=note)
            return ComputeEstimate("rate", estimate), False
        return ComputeEstimate("rate", EstimatedValue(DEFAULT_RATE, "default")), False

    def _ratio(self, name: str, site: str, other: str, typical: float) -> tuple[float, str]:
        """Seconds at ``site`` for each second at ``other``, and in a few words how one knows.

        By the catalogs never less than one: a site is tried for its workers and its paths, not
        because its entry flatters it. That machines are faster, the collector knows.
        """
        (mine, apart), (theirs, too) = self._expected(name, site), self._expected(name, other)
        speeds = [p.mips if (p := self.pool.get(s)) is not None else None for s in (other, site)]
        if not (apart or too) and speeds[0] and speeds[1]:
            return speeds[0] / speeds[1], ", by the machines' speed"
        return max(1.0, mine.seconds(typical) / theirs.seconds(typical)), ""

    def _carried_over(
        self, here: Mapping[str, ComputeEstimate | None], name: str, site: str, typical: float
    ) -> ComputeEstimate | None:
        """A measurement at another site, times the ratio in which both are expected to differ.

        Without this, a site that was never tried would keep its guess beside sites that were
        measured, and win or lose by the error of the guess alone.
        """
        seen = {other: estimate for other, estimate in here.items() if estimate is not None}
        if not seen:
            return None
        ratios = {other: self._ratio(name, site, other, typical) for other in seen}
        value = median(b.seconds(typical) * ratios[other][0] for other, b in seen.items())
        spread = median(b.estimated.spread / b.estimated.value for b in seen.values())
        at = min(
            (b.estimated.at for b in seen.values() if b.estimated.at is not None), default=None
        )
        kind = next(b.kind for b in seen.values())
        source = next(b.estimated.source for b in seen.values())
        how = next(words for _, words in ratios.values())
        amount = typical / value if kind == "rate" else value
        note = f"measured at {', '.join(seen)}{how}"
        count = sum(b.estimated.count for b in seen.values())
        return ComputeEstimate(
            kind, EstimatedValue(amount, source, at, spread * amount, note, count)
        )
