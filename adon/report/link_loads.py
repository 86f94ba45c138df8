"""What every direction of every link carried during a run: reserved and measured."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from math import fsum
from typing import Any

from adon.report.run_facts import LinkSample, RunFacts
from network_provisioner.base.model import Transit
from network_provisioner.base.units import bits, bytes_of, format_rate, format_size

Hop = tuple[str, str]
# Finer than this share of the run no chart shows it, and a long run's report would grow large.
FINEST = 1 / 900
LAN = "lan"


@dataclass(frozen=True, slots=True)
class Rate:
    """Mean bit/s between two Unix seconds."""

    start: float
    end: float
    bps: float


@dataclass(frozen=True, slots=True)
class Load:
    """One direction of a link during a run. ``counted`` is False if no switch counts it,
    None without counters; ``capacity_bps`` is 0 if unknown."""

    hop: Hop
    layer: str
    capacity_bps: float
    held: tuple[Transit, ...]
    measured: tuple[Rate, ...]
    counted: bool | None

    @property
    def transferred_bytes(self) -> float:
        """Bytes that the switch sent while it was looked at, or that transfers reported."""
        return sum(bytes_of(r.bps * (r.end - r.start)) for r in self.measured)

    @property
    def peak(self) -> Rate | None:
        """The busiest interval; None if nothing was measured."""
        return max(self.measured, key=lambda r: r.bps, default=None)

    @property
    def most_reserved_bps(self) -> float:
        """The largest sum of reserved rates at one time."""
        return max((level for _, level in reserved_series(self.held)), default=0.0)


def held_by_hop(transits: Iterable[Transit]) -> dict[Hop, list[Transit]]:
    """The transits that held bandwidth on each directed link, by when they got it."""
    held: dict[Hop, list[Transit]] = {}
    for transit in sorted(transits, key=lambda t: (t.grant.installed_at, t.id)):
        for hop in set(pairwise(transit.grant.path)) if transit.grant.installed_at else ():
            held.setdefault(hop, []).append(transit)
    return held


def end_of(transit: Transit) -> float:
    """When a transit's bandwidth was free again, in Unix seconds."""
    return transit.grant.released_at or transit.grant.lease_until


def reserved_series(held: Iterable[Transit]) -> list[tuple[float, float]]:
    """Reserved bit/s as (Unix second, value from then on)."""
    return _summed((t.grant.installed_at, end_of(t), t.request.min_bps) for t in held)


def _summed(spans: Iterable[tuple[float, float, float]]) -> list[tuple[float, float]]:
    """The sum of values that hold from one second to another, as (second, value from then on)."""
    changes: dict[float, list[tuple[float, int]]] = {}
    for start, end, value in spans:
        if start < end:
            changes.setdefault(start, []).append((value, 1))
            changes.setdefault(end, []).append((-value, -1))
    steps, level, count = [], 0.0, 0
    for at in sorted(changes):
        count += sum(step for _, step in changes[at])
        # Rounding leaves nothing behind where none holds any more.
        level = max(0.0, fsum((level, *(value for value, _ in changes[at])))) if count else 0.0
        steps.append((at, level))
    return steps


def coarser_series(
    steps: Sequence[tuple[float, float]], at_least_s: float
) -> list[tuple[float, float]]:
    """The same with at most two steps in each ``at_least_s``: the highest level, and the last."""
    out: list[tuple[float, float]] = []
    for _, group in groupby(steps, key=lambda step: step[0] // at_least_s):
        inside = list(group)
        out.append((inside[0][0], max(level for _, level in inside)))
        if inside[-1][1] != out[-1][1]:
            out.append(inside[-1])
    return out


def transfer_rates_by_hop(
    transits: Iterable[Transit], at_least_s: float = 0.0
) -> dict[Hop, tuple[Rate, ...]]:
    """What transfers moved over each directed link by their own reports, each at its mean rate;
    between two sites with an unknown path. Intervals shorter than ``at_least_s`` are put
    together."""
    spans: dict[Hop, list[tuple[float, float, float]]] = {}
    for t in transits:
        if t.grant.released_at and t.usage.seconds > 0 and t.usage.bytes:
            end, seconds = t.grant.released_at, t.usage.seconds
            span = (end - seconds, end, bits(t.usage.bytes) / seconds)
            for hop in set(pairwise(t.grant.path)) or {(t.request.src, t.request.dst)}:
                spans.setdefault(hop, []).append(span)
    return {
        hop: tuple(_together([Rate(a, b, bps) for (a, bps), (b, _) in pairwise(steps)], at_least_s))
        for hop, of_hop in spans.items()
        if (steps := _summed(of_hop))
    }


def _together(rates: Iterable[Rate], at_least_s: float) -> list[Rate]:
    """Neighbours within ``at_least_s`` as one, at their mean rate."""
    out: list[Rate] = []
    for rate in rates:
        last = out[-1] if out else rate
        if out and rate.end - last.start <= at_least_s:
            moved_bits = last.bps * (last.end - last.start) + rate.bps * (rate.end - rate.start)
            out[-1] = Rate(last.start, rate.end, moved_bits / (rate.end - last.start))
        else:
            out.append(rate)
    return out


def measured_rates(samples: Sequence[LinkSample], hop: Hop, at_least_s: float = 0.0) -> list[Rate]:
    """Mean rates on a directed link between readings of the switch's counters.

    Readings nearer than ``at_least_s`` to the last are passed over: the counter has their bytes.
    A counter that went back was reset; nothing is known about that interval.
    """
    own = sorted((s for s in samples if (s.a, s.b) == hop), key=lambda s: s.at)
    kept = own[:1]
    for sample in own[1:]:
        if sample.at - kept[-1].at >= at_least_s:
            kept.append(sample)
    if own and kept[-1] is not own[-1]:
        kept.append(own[-1])
    return [
        Rate(a.at, b.at, bits(b.bytes - a.bytes) / (b.at - a.at))
        for a, b in pairwise(kept)
        if b.at > a.at and b.bytes >= a.bytes
    ]


def loads_of(facts: RunFacts) -> list[Load]:
    """Both directions of every link, in the order of the topology, wide-area links first.

    Rates are by the switches' counters, or without those by the reports of transfers,
    which may have gone over links that the topology does not have, or no longer.
    """
    samples: dict[Hop, list[LinkSample]] = {}
    for sample in facts.samples:
        samples.setdefault((sample.a, sample.b), []).append(sample)
    at_least_s = facts.makespan_s * FINEST
    held = held_by_hop(facts.transits)
    reported = {} if samples else transfer_rates_by_hop(facts.transits, at_least_s)
    links: dict[Hop, Mapping[str, Any]] = {
        hop: link
        for link in facts.links
        for hop in ((link["a"], link["b"]), (link["b"], link["a"]))
    }
    links |= {hop: {} for hop in (*held, *reported) if hop not in links}
    loads = [
        Load(
            hop,
            link.get("layer", ""),
            float(link.get("capacity_bps", 0.0)),
            tuple(held.get(hop, ())),
            reported.get(hop) or tuple(measured_rates(samples.get(hop, ()), hop, at_least_s)),
            hop in samples if samples else None,
        )
        for hop, link in links.items()
    ]
    return sorted(loads, key=lambda load: load.layer == LAN)


def load_sentence(load: Load, t0: float) -> str:
    """A chart in a sentence, for readers who cannot see it or want the figures."""
    parts = []
    if load.held:
        start = min(t.grant.installed_at for t in load.held) - t0
        end = max(end_of(t) for t in load.held) - t0
        parts.append(
            f"reserved up to {format_rate(load.most_reserved_bps)} between {start:.1f} and "
            f"{end:.1f} s"
        )
    else:
        parts.append("nothing reserved")
    if load.peak is not None:
        verb = "measured" if load.counted else "moved"
        parts.append(
            f"{verb} {format_size(load.transferred_bytes)} in all, at most "
            f"{format_rate(load.peak.bps)} at {load.peak.end - t0:.1f} s"
        )
    elif load.counted is None:
        parts.append("no transfer has reported yet what it moved")
    elif not load.counted:
        parts.append("not measured: the sender is no switch")
    return "; ".join(parts)
