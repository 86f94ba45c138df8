"""What queues the links get: kept while transits come and go, worked out only where they do.

One policy governs a link direction at a time: of those that could, the one with the highest
:attr:`~network_provisioner.policies.policy.Policy.precedence`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from network_provisioner.base.controller import Queue
from network_provisioner.base.model import Transit
from network_provisioner.base.units import bits
from network_provisioner.policies.accounting import so_far_bytes
from network_provisioner.policies.policy import Policy
from network_provisioner.policies.strategies import (
    Side,
    Situation,
    checked_queues,
    strategies,
    sure_bps,
)
from network_provisioner.state.circuits import hops
from network_provisioner.topology.graph import Hop, Topology

log = logging.getLogger(__name__)

UsedBytes = Callable[[Policy], tuple[float, float]]
"""What each of a policy's queues moved lately."""
Governing = Mapping[Hop, Policy]
# A transfer that could end sooner than this wants no more than to end then.
_HORIZON_S = 10.0


def governed_by(policy: Policy, topology: Topology) -> Iterable[Hop]:
    """The link directions that a policy names: both of each link, by default of all that have
    neither site nor relay at an end."""
    links = policy.links or [
        (link.a, link.b)
        for link in topology.links
        if {"site", "relay"}.isdisjoint(topology.nodes[end].kind for end in (link.a, link.b))
    ]
    for a, b in links:
        yield a, b
        yield b, a


def governing(running: Iterable[Policy], topology: Topology) -> dict[Hop, Policy]:
    """Who governs each link direction that any of these policies names."""
    by_hop: dict[Hop, Policy] = {}
    for policy in sorted(running, key=lambda p: p.precedence):
        by_hop.update(dict.fromkeys(governed_by(policy, topology), policy))
    return by_hop


def queue_of(transit: Transit, by_hop: Governing) -> str:
    """The queue that a transit shares on its path, "" for none: that of the policy with the highest
    precedence that governs a link of it and names the transit."""
    here = {by_hop[hop].id: by_hop[hop] for hop in hops(transit) if hop in by_hop}
    ranked = sorted(here.values(), key=lambda p: p.precedence, reverse=True)
    return next((queue for p in ranked if (queue := p.queue_of(transit))), "")


def reserved_rates(transit: Transit) -> list[tuple[Hop, float]]:
    """What a live transit has reserved at least on each link direction, in bits per second."""
    if not transit.grant.parts:
        return [(hop, transit.request.min_bps) for hop in pairwise(transit.grant.path)]
    by_hop: dict[Hop, float] = {}
    for part in transit.grant.parts:
        for hop in pairwise(part.path):
            by_hop[hop] = by_hop.get(hop, 0.0) + part.min_bps
    return list(by_hop.items())


def demand_bps(transit: Transit, now: float) -> float:
    """What a live transfer could use now: up to its ceiling, no more than what is left of it needs
    to be done in a few seconds, and never less than its minimum."""
    most = max(transit.request.max_bps, transit.request.min_bps)
    if transit.request.size_bytes is None:
        return most
    left = max(0.0, transit.request.size_bytes - so_far_bytes(transit, now))
    return max(transit.request.min_bps, min(most, bits(left) / _HORIZON_S))


@dataclass(frozen=True, slots=True)
class _Crossing:
    """A live transit as it was when it was looked at: its path, its minimum, its queue."""

    transit: Transit
    path: Sequence[str]
    min_bps: float
    queue: str
    at: Mapping[Hop, float]  # what is reserved for it on each governed link direction

    def holds(self, transit: Transit) -> bool:
        """Whether it still is so."""
        return (
            self.transit is transit
            and self.min_bps == transit.request.min_bps
            and self.path == transit.grant.path
            and not transit.grant.parts
        )


class LinkQueues:
    """The queues of all links under the policies that govern them."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._governing: Governing = {}
        self._seen: dict[str, _Crossing] = {}
        self._on: dict[Hop, dict[str, _Crossing]] = {}
        self._laid: dict[Hop, Sequence[Queue]] = {}
        self._failed: set[Hop] = set()

    def queues(
        self,
        by_hop: Governing,
        live: Sequence[Transit],
        used_bytes: UsedBytes,
        now: float,
        everywhere: bool,
    ) -> list[Queue]:
        """The queues wherever a live transit shares one, at Unix second ``now``.

        ``everywhere``: also on links that no transit has come to or gone from since the last time,
        as demand and history may have changed.
        """
        if by_hop is not self._governing:
            self._governing = by_hop
            self._seen, self._on, self._laid, self._failed = {}, {}, {}, set()
        touched = self._take_in(live)
        if everywhere:
            touched |= self._on.keys()
        used: dict[str, tuple[float, float]] = {}
        for hop in touched:
            self._lay(hop, used_bytes, used, now)
        return [queue for hop in sorted(self._laid) for queue in self._laid[hop]]

    def _take_in(self, live: Sequence[Transit]) -> set[Hop]:
        """Bring up to date what crosses which link; returns the links where that changed."""
        touched: set[Hop] = set()
        for transit in live:
            seen = self._seen.get(transit.id)
            if seen is None or not seen.holds(transit):
                touched |= self._drop(transit.id)
                touched |= self._enter(transit)
        if len(self._seen) > len(live):
            for gone in self._seen.keys() - {transit.id for transit in live}:
                touched |= self._drop(gone)
        return touched

    def _enter(self, transit: Transit) -> set[Hop]:
        at = {hop: min_bps for hop, min_bps in reserved_rates(transit) if hop in self._governing}
        queue = queue_of(transit, self._governing)
        crossing = _Crossing(transit, list(transit.grant.path), transit.request.min_bps, queue, at)
        self._seen[transit.id] = crossing
        for hop in at:
            self._on.setdefault(hop, {})[transit.id] = crossing
        return set(at)

    def _drop(self, transit_id: str) -> set[Hop]:
        crossing = self._seen.pop(transit_id, None)
        if crossing is None:
            return set()
        for hop in crossing.at:
            del self._on[hop][transit_id]
        return set(crossing.at)

    def _lay(
        self, hop: Hop, used_bytes: UsedBytes, used: dict[str, tuple[float, float]], now: float
    ) -> None:
        policy, there = self._governing[hop], list(self._on.get(hop, {}).values())
        if not any(crossing.queue in policy.queues for crossing in there):
            self._laid.pop(hop, None)
            return
        if policy.id not in used:
            used[policy.id] = used_bytes(policy)
        capacity = self._topology.link(*hop).capacity_bps
        situation = _situation(hop, capacity, policy, there, used[policy.id], now)
        try:
            self._laid[hop] = checked_queues(strategies()[policy.strategy], situation)
        except Exception:  # a foreign strategy costs its own queues, never anybody's path
            self._laid.pop(hop, None)
            if hop not in self._failed:  # said once, not at every transit
                self._failed.add(hop)
                log.exception("policy %s has no queues on %s-%s", policy.name, *hop)


def sure_when_idle(hop: Hop, capacity_bps: float, policy: Policy) -> dict[str, float]:
    """What each queue of a policy is sure of where nothing is reserved or was used, in b/s: what
    its class may reserve. Nothing where the strategy fails."""
    situation = _situation(hop, capacity_bps, policy, (), (0.0, 0.0), 0.0)
    try:
        queues = checked_queues(strategies()[policy.strategy], situation)
    except Exception:  # as in the queues themselves, where it is said
        return {}
    return {queue.name: sure_bps(queue, queues) for queue in queues}


def _situation(
    hop: Hop,
    capacity_bps: float,
    policy: Policy,
    there: Sequence[_Crossing],
    used: tuple[float, float],
    now: float,
) -> Situation:
    guarantees = policy.guaranteed()
    first, second = (
        Side(
            queue=name,
            floor_bps=sum(c.at[hop] for c in there if c.queue == name),
            demand_bps=sum(demand_bps(c.transit, now) for c in there if c.queue == name),
            used_bytes=used[i],
            part=policy.parts[i],
            guarantee=guarantees[i],
        )
        for i, name in enumerate(policy.queues)
    )
    others = sum(c.at[hop] for c in there if c.queue not in policy.queues)
    return Situation(hop, capacity_bps, (first, second), others)
