"""What every direction of every link carried during a run: reserved and measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from examples.demo.facts import LinkSample, RunFacts
from network_provisioner.base.model import Transit
from network_provisioner.base.units import bits, bytes_of, format_rate, format_size

Hop = tuple[str, str]
# Finer than this share of the run no chart shows it, and a long run's report would grow large.
_FINEST = 1 / 900
LAN = "lan"


@dataclass(frozen=True, slots=True)
class Rate:
    """Mean bit/s between two Unix seconds."""

    start: float
    end: float
    bps: float


@dataclass(frozen=True, slots=True)
class Load:
    """One direction of a link during a run. ``counted`` is False where no switch counts it."""

    hop: Hop
    layer: str
    capacity_bps: float
    held: tuple[Transit, ...]
    measured: tuple[Rate, ...]
    counted: bool

    @property
    def moved_bytes(self) -> float:
        """Bytes that the switch sent while it was looked at."""
        return sum(bytes_of(r.bps * (r.end - r.start)) for r in self.measured)

    @property
    def peak(self) -> Rate | None:
        """The busiest interval; None where nothing was measured."""
        return max(self.measured, key=lambda r: r.bps, default=None)

    @property
    def most_reserved_bps(self) -> float:
        """The largest sum of reserved rates at one time."""
        return max((level for _, level in reserved_steps(self.held)), default=0.0)


def over(transits: Sequence[Transit], hop: Hop) -> list[Transit]:
    """The transits that held bandwidth on a directed link, by when they got it."""
    found = [t for t in transits if t.grant.installed_at and hop in set(pairwise(t.grant.path))]
    return sorted(found, key=lambda t: (t.grant.installed_at, t.id))


def end_of(transit: Transit) -> float:
    """When a transit's bandwidth was free again, in Unix seconds."""
    return transit.grant.released_at or transit.grant.lease_until


def reserved_steps(held: Sequence[Transit]) -> list[tuple[float, float]]:
    """Reserved bit/s as (Unix second, value from then on)."""
    times = sorted({at for t in held for at in (t.grant.installed_at, end_of(t))})
    return [
        (at, sum(t.request.min_bps for t in held if t.grant.installed_at <= at < end_of(t)))
        for at in times
    ]


def measured_rates(samples: Sequence[LinkSample], hop: Hop, at_least_s: float = 0.0) -> list[Rate]:
    """Mean rates on a directed link between readings of the switch's counters.

    Readings nearer than ``at_least_s`` to the last are passed over: the counter has their bytes.
    A counter that went back was reset; nothing is known of that interval.
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
    """Both directions of every link, in the order of the topology, wide-area links first."""
    at_least_s = facts.makespan_s * _FINEST
    sampled = {(s.a, s.b) for s in facts.samples}
    own: dict[Hop, list[LinkSample]] = {}
    for sample in facts.samples:
        own.setdefault((sample.a, sample.b), []).append(sample)
    found = []
    for link in facts.links:
        for hop in ((link["a"], link["b"]), (link["b"], link["a"])):
            found.append(
                Load(
                    hop,
                    link.get("layer", ""),
                    float(link["capacity_bps"]),
                    tuple(over(facts.transits, hop)),
                    tuple(measured_rates(own.get(hop, ()), hop, at_least_s)),
                    hop in sampled,
                )
            )
    return sorted(found, key=lambda load: load.layer == LAN)


def load_words(load: Load, t0: float) -> str:
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
        parts.append(
            f"measured {format_size(load.moved_bytes)} in all, at most "
            f"{format_rate(load.peak.bps)} at {load.peak.end - t0:.1f} s"
        )
    elif not load.counted:
        parts.append("not measured: the sender is no switch")
    return "; ".join(parts)
