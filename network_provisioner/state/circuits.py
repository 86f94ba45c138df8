"""From a transit to what is reserved, shared and installed for it. Pure.

A transit has one path, or several as its ``parts``. Where the parts are shared bandwidth one by
one, the first goes by the transit's id and the others by ``<id> <number>``: no id has a space.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from network_provisioner.base.controller import Circuit, Part, Redirect
from network_provisioner.base.errors import InputError
from network_provisioner.base.flows import Flow
from network_provisioner.base.model import Transit, TransitPart, TransitRelay
from network_provisioner.base.units import transfer_time
from network_provisioner.state.elastic import RateDemand
from network_provisioner.state.ledger import Ledger, PathPart, Reservation, whole_bps
from network_provisioner.topology.graph import Hop, Topology

# What is expected of a transfer whose size is known: a start, and a tenth for headers and losses.
BRIEF_S, BRIEF = 1.0, 1.1


def owner(name: str) -> str:
    """The id of the transit that a part's name belongs to."""
    return name.partition(" ")[0]


def take(transit: Transit, ways: Sequence[PathPart]) -> None:
    """Put a transit on its paths. Where nobody set a ceiling, it is what they have."""
    if transit.request.uncapped:
        ways = [replace(way, max_bps=max(way.path.capacity_bps, way.min_bps)) for way in ways]
        transit.request = replace(transit.request, max_bps=sum(way.max_bps for way in ways))
    first = ways[0].path
    transit.grant.path, transit.grant.layer = list(first.nodes), first.layer
    transit.grant.parts = [
        TransitPart(list(way.path.nodes), way.path.layer, way.min_bps, way.max_bps, way.min_bps)
        for way in (ways if len(ways) > 1 else ())
    ]
    transit.grant.granted_bps = sum(way.min_bps for way in ways)


def leave(transit: Transit) -> None:
    """Take a transit off its paths."""
    grant = transit.grant
    grant.path, grant.layer, grant.parts, grant.granted_bps = [], "", [], 0.0
    transit.relay = None


def granted_rates(transit: Transit) -> list[tuple[list[str], float]]:
    """The nodes of each path that a transit is on, and what it is granted there now, b/s."""
    if not transit.grant.parts:
        return [(transit.grant.path, transit.grant.granted_bps)]
    return [(part.path, part.granted_bps) for part in transit.grant.parts]


def hops(transit: Transit) -> list[Hop]:
    """Every link direction that a transit's data takes."""
    return list(dict.fromkeys(hop for path in transit.grant.paths for hop in pairwise(path)))


def first_of(transit: Transit, hops: Mapping[Hop, str]) -> tuple[Hop, str] | None:
    """The first directed link of a transit's paths that is among ``hops``, and what these say of
    it; None for none."""
    taken = (hop for path in transit.grant.paths for hop in pairwise(path))
    return next(((hop, hops[hop]) for hop in taken if hop in hops), None)


def ways(transit: Transit, topology: Topology) -> tuple[PathPart, ...]:
    """The paths a transit is on. Raises InputError where the topology has one of them no more."""
    if not transit.grant.path:
        return ()
    if not transit.grant.parts:
        low = whole_bps(transit.request.min_bps)
        high = max(transit.request.max_bps, low)
        return (PathPart(topology.path(transit.grant.path), low, high),)
    return tuple(
        PathPart(topology.path(part.path), part.min_bps, part.max_bps)
        for part in transit.grant.parts
    )


def with_rates(
    transit: Transit, topology: Topology, low: float, high: float
) -> tuple[PathPart, ...]:
    """The paths a transit is on with other rates in all; each has the part of them that it had.

    Raises InputError as :func:`ways`.
    """
    has = ways(transit, topology)
    had = sum(way.min_bps for way in has)
    parts: list[PathPart] = []
    left = whole_bps(low)
    for number, way in enumerate(has, 1):
        least = left if number == len(has) else min(left, whole_bps(low * way.min_bps / had))
        most = high * way.min_bps / had if had else high
        parts.append(replace(way, min_bps=least, max_bps=max(most, least)))
        left -= least
    return tuple(parts)


def brief_s(transit: Transit) -> float:
    """How many seconds a transfer is expected to take at its minimum; infinite where its size is
    not known, or it has an end."""
    if transit.request.size_bytes is None or transit.request.end:
        return math.inf
    return BRIEF_S + BRIEF * transfer_time(transit.request.size_bytes, transit.request.min_bps)


def reservation(transit: Transit, topology: Topology, start: float) -> Reservation | None:
    """What a transit reserves from ``start`` on; None for one that asks for no guarantee.

    It ends when the transit must, and with its lease where no end was asked for: so a lease can be
    renewed up to the end without asking the ledger. Raises InputError as :func:`ways`.
    """
    lanes = tuple(way.lane for way in ways(transit, topology) if way.min_bps > 0)
    if not lanes:
        return None
    done = (transit.grant.installed_at or start) + brief_s(transit)
    end = transit.request.end or transit.grant.lease_until
    return Reservation(transit.id, lanes, start, end, done)


def reserve(ledger: Ledger, transit: Transit, topology: Topology, now: float) -> str:
    """Have ``ledger`` hold again what a transit has on its paths, from Unix second ``now`` or its
    later start on. Why it cannot, in words; "" where it does."""
    try:
        held = reservation(transit, topology, max(now, transit.request.start))
        refusal = None if held is None else ledger.admit(held)
    except InputError as error:
        return str(error)
    return "" if refusal is None else str(refusal)


def part_name(transit_id: str, number: int) -> str:
    """What a transit's part goes by, counted from 0."""
    return f"{transit_id} {number}" if number else transit_id


def queue_link(queue: str, hop: Hop) -> Hop:
    """What stands for a queue on a link, as a link of its own."""
    # No node's name has a line break, so this is no link of the network.
    return f"{queue}\n{hop[0]}", hop[1]


def demands(transit: Transit, has: Sequence[PathPart], queues: Collection[Hop]) -> list[RateDemand]:
    """What a transit may have on each of its ``has`` ways, within those of the ``queues``
    (:func:`queue_link`) that it shares. None for a transit that asks for no guarantee: it takes
    what is idle."""
    queue = transit.grant.queue
    return [
        RateDemand(
            part_name(transit.id, number),
            (*way.path.hops, *(x for h in way.path.hops if (x := queue_link(queue, h)) in queues)),
            way.min_bps,
            way.max_bps,
            transit.request.priority,
        )
        for number, way in enumerate(has)
        if way.min_bps > 0
    ]


def give(transit: Transit, rates: Mapping[str, float]) -> None:
    """Write the rates that a transit's parts are given now into it."""
    transit.grant.parts = [
        replace(part, granted_bps=rates[part_name(transit.id, number)])
        for number, part in enumerate(transit.grant.parts)
    ]
    granted = [part.granted_bps for part in transit.grant.parts] or [rates[transit.id]]
    transit.grant.granted_bps = sum(granted)


def circuit(transit: Transit, matches: bool, minima: bool = False) -> Circuit:
    """What the switches should carry for a transit as it stands; they look at flows only where
    the controller ``matches``. They guarantee what it is granted now, or its minimum alone
    (``minima``)."""
    granted = transit.grant.granted_bps
    parts = tuple(
        Part(
            tuple(p.path),
            min(p.granted_bps, p.min_bps) if minima else p.granted_bps,
            max(p.granted_bps, p.max_bps),
        )
        for p in transit.grant.parts
    )
    sure = granted
    if minima:
        sure = min(granted, transit.request.min_bps) if not parts else sum(p.min_bps for p in parts)
    made = Circuit(
        transit.id,
        tuple(transit.grant.path),
        sure,
        max(granted, transit.request.max_bps),
        transit.grant.lease_until,
        transit.request.flows if matches else (),
        transit.grant.queue,
        parts,
        transit.request.hosts if matches else (),
    )
    relay = transit.relay
    return _between_relays(made, transit, relay) if relay and relay.port else made


def _between_relays(direct: Circuit, transit: Transit, relay: TransitRelay) -> Circuit:
    """The same, of connections to a port at either relay; what it was for is redirected there."""
    port = (relay.port, relay.port)

    def way(path: tuple[str, ...]) -> tuple[str, ...]:
        return (relay.src, *path[1:-1], relay.dst)

    return replace(
        direct,
        path=way(direct.path),
        parts=tuple(replace(part, path=way(part.path)) for part in direct.parts),
        flows=(Flow("tcp", None, port), Flow("tcp", port, None)),
        hosts=(),
        redirect=Redirect(transit.request.src, transit.request.dst, direct.flows, direct.hosts),
    )
