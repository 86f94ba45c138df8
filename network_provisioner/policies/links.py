"""Which policy governs which link, and what transits mean to it. Pure.

One policy governs a link direction at a time: of those that could, the one with the highest
:attr:`~network_provisioner.policies.policy.Policy.precedence`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise

from network_provisioner.base.model import Transit
from network_provisioner.base.units import bits
from network_provisioner.policies.accounting import so_far_bytes
from network_provisioner.policies.policy import Policy
from network_provisioner.state.circuits import hops
from network_provisioner.topology.graph import Hop, Topology

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
    found: dict[Hop, Policy] = {}
    for policy in sorted(running, key=lambda p: p.precedence):
        found.update(dict.fromkeys(governed_by(policy, topology), policy))
    return found


def queue_of(transit: Transit, by_hop: Governing) -> str:
    """The queue that a transit shares on its path, "" for none: that of the policy with the highest
    precedence that governs a link of it and names the transit."""
    here = {by_hop[hop].id: by_hop[hop] for hop in hops(transit) if hop in by_hop}
    ranked = sorted(here.values(), key=lambda p: p.precedence, reverse=True)
    return next((queue for p in ranked if (queue := p.queue_of(transit))), "")


def reserved(transit: Transit) -> list[tuple[Hop, float]]:
    """What a live transit has reserved at least on each link direction, in bits per second."""
    if not transit.grant.parts:
        return [(hop, transit.request.min_bps) for hop in pairwise(transit.grant.path)]
    found: dict[Hop, float] = {}
    for part in transit.grant.parts:
        for hop in pairwise(part.path):
            found[hop] = found.get(hop, 0.0) + part.min_bps
    return list(found.items())


def demand_bps(transit: Transit, now: float) -> float:
    """What a live transfer could use now: up to its ceiling, no more than what is left of it needs
    to be done in a few seconds, and never less than its minimum."""
    most = max(transit.request.max_bps, transit.request.min_bps)
    if transit.request.size_bytes is None:
        return most
    left = max(0.0, transit.request.size_bytes - so_far_bytes(transit, now))
    return max(transit.request.min_bps, min(most, bits(left) / _HORIZON_S))
