"""What a transit may have now: its paths, its grant, its lease. Decides, and touches nothing.

    terms of a transit ─► candidate paths with metrics ─► choose() ─► Grant | Wait | Never

``Grant`` names path, rate and lease; ``Wait`` says since when it could start and which links keep
it waiting; ``Never`` is a request that no path of this network could serve, however empty.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from network_provisioner.errors import BrokerError, InputError
from network_provisioner.model import Transit
from network_provisioner.reservations import Hop, Ledger
from network_provisioner.template import Template
from network_provisioner.topology import Path, Topology
from network_provisioner.transit import Candidate, Decision, Metric, PathMetrics, choose
from network_provisioner.units import transfer_time

ThroughputOf = Callable[[Path], tuple[float, float] | None]
"""The measured throughput of a path in b/s and its age in seconds; None where nobody measured."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How the broker deals with links and leases.

    ``reservable``        the part of each link that may be reserved; the rest, and whatever is
                          idle, stays with best effort traffic, which must not starve
    ``max_lease_s``       no lease is longer, so that nothing is held for ever
    ``unsized_lease_s``   the lease of a transfer whose size nobody knows
    ``pin_pairs``         transits between the same two sites share one path, because a switch that
                          matches addresses cannot tell their packets apart
    ``max_paths``         how many candidate paths are looked at
    """

    reservable: float = 0.9
    max_lease_s: float = 86_400.0
    unsized_lease_s: float = 900.0
    pin_pairs: bool = True
    max_paths: int = 8


@dataclass(frozen=True, slots=True)
class Grant:
    """The path and rate to install, until when, and why."""

    path: Path
    granted_bps: float
    lease_s: float
    decision: Decision


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing fits now. ``blocking``: the links that lack room; ``earliest``: Unix second or None
    where only an unknown event (such as another request's end) would help."""

    reason: str
    earliest: float | None
    blocking: frozenset[Hop]
    decision: Decision


@dataclass(frozen=True, slots=True)
class Never:
    """No path of this network can serve the request, however empty it is."""

    reason: str
    decision: Decision | None = None


@dataclass
class Admission:
    """Looks for a path for one transit in a topology and the ledger over it.

    ``guaranteed``: the controller keeps reserved rates (:func:`~.transit.choose`).
    """

    topology: Topology
    ledger: Ledger
    throughput_of: ThroughputOf
    limits: Limits
    guaranteed: bool = True
    _paths: dict[tuple[str, str], list[Path]] = field(default_factory=dict)

    def paths(self, src: str, dst: str) -> list[Path]:
        """The candidate paths between two sites. Raises BrokerError ``unknown_site``."""
        try:
            if (src, dst) not in self._paths:
                found = self.topology.candidate_paths(src, dst, self.limits.max_paths)
                self._paths[src, dst] = found
        except InputError as error:
            raise BrokerError(str(error), "unknown_site") from error
        return self._paths[src, dst]

    def largest(self, src: str, dst: str) -> int:
        """Bits per second that the largest path between two sites may reserve; 0 without one."""
        paths = self.paths(src, dst)
        return max((min(map(self.ledger.capacity, path.hops)) for path in paths), default=0)

    def decide(
        self,
        transit: Transit,
        template: Template,
        now: float,
        pinned: Path | None = None,
        claimed: Mapping[Hop, str] | None = None,
    ) -> Grant | Wait | Never:
        """Grant, wait or never, for a transit's ``requested_bps`` to ``max_bps``.

        ``pinned`` is the only path it may take, if given; ``claimed`` are links that a transit
        before it in the queue waits for (link -> its id), which it must leave alone.
        """
        claimed = claimed or {}
        low, high = transit.requested_bps, transit.max_bps
        paths = self.paths(transit.src, transit.dst)
        if not paths:
            return Never(f"no path joins {transit.src} and {transit.dst}")
        paths = [pinned] if pinned else paths
        until = now + self._lease(transit, low)
        metrics = [(p, self._metrics(p, now, until, claimed)) for p in paths]
        decision = choose(metrics, template, low, high, self.guaranteed)
        if pinned:
            words = "the only path to choose from: other transits of the two sites hold it"
            decision = replace(decision, reason=f"{decision.reason} ({words})")
        if decision.chosen is not None:
            free = decision.chosen.metrics.free_bps
            granted = min(high, max(low, template.share * free))
            lease_s = self._lease(transit, granted)
            return Grant(decision.chosen.path, granted, lease_s, decision)
        # Worth waiting for: a path that is large enough and fails only for want of room.
        waiting = [c for c in decision.candidates if self._will_fit(c, low, template)]
        if not waiting:
            return Never(decision.reason, decision)
        starts = [self.ledger.earliest_start(c.path.hops, low, until - now, now) for c in waiting]
        earliest = min((s for s in starts if s is not None and s > now), default=None)
        blocking = frozenset(
            hop
            for candidate in waiting
            for hop in candidate.path.hops
            if hop in claimed or self.ledger.residual(hop, now, until) < low
        )
        when = f"; earliest start {_clock(earliest)}" if earliest is not None else ""
        return Wait(f"{decision.reason}{when}", earliest, blocking, decision)

    def _will_fit(self, candidate: Candidate, low: float, template: Template) -> bool:
        known = candidate.metrics
        if min(self.ledger.capacity(hop) for hop in candidate.path.hops) < low:
            return False
        roomy = PathMetrics(math.inf, known.throughput, known.delay, known.jitter, known.loss)
        only = choose([(candidate.path, roomy)], template, low, None, self.guaranteed)
        return only.chosen is not None

    def _metrics(
        self, path: Path, now: float, until: float, claimed: Mapping[Hop, str]
    ) -> PathMetrics:
        free = {hop: self.ledger.residual(hop, now, until) for hop in path.hops}
        tight = min(path.hops, key=free.__getitem__)
        holders = self.ledger.holders(tight, now, until)
        limit = f"{tight[0]}>{tight[1]}, " + (
            f"held by {_some(holders)}" if holders else "which carries no more"
        )
        ahead = sorted({claimed[hop] for hop in path.hops if hop in claimed})
        measured = self.throughput_of(path)
        return PathMetrics(
            free_bps=free[tight],
            throughput=None if measured is None else Metric(measured[0], "measured", measured[1]),
            delay=Metric(path.rtt_s, "topology"),
            loss=Metric(path.loss, "topology"),
            limit=limit,
            blocked=f"{_some(ahead)} waits for it first" if ahead else "",
        )

    def _lease(self, transit: Transit, rate_bps: float) -> float:
        """Seconds: what was asked for, or three times the estimated time and a minute, because a
        lease that ends too early costs more than one that ends late."""
        if transit.lease_s is not None:
            return min(transit.lease_s, self.limits.max_lease_s)
        if transit.size_bytes is None:
            return min(self.limits.unsized_lease_s, self.limits.max_lease_s)
        estimate = 3 * transfer_time(transit.size_bytes, rate_bps) + 60
        return min(estimate, self.limits.max_lease_s)


def explain(decision: Decision | None) -> list[dict[str, Any]]:
    """The candidates of a decision, JSON-ready."""
    return [] if decision is None else [c.as_dict() for c in decision.candidates]


def _some(ids: tuple[str, ...] | list[str], most: int = 3) -> str:
    more = f" and {len(ids) - most} more" if len(ids) > most else ""
    return ", ".join(ids[:most]) + more


def _clock(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
