"""What the switches should carry: from circuits to flow rules and shaping classes. Pure.

A circuit's data takes its path, and its acknowledgements come back the same way. Where a link names
devices, traffic with a circuit is marked with a DSCP value at its first switch, the device's HTB
class for that value keeps the rate, and the last switch clears the mark. Everything without a
circuit takes a best-effort route of lower priority.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from network_provisioner.controllers.base import Circuit
from network_provisioner.controllers.groups import (
    Group,
    Pair,
    assign_marks,
    by_hop,
    group_circuits,
)
from network_provisioner.controllers.rules import (
    ROUTE_OWNER,
    ROUTE_PRIORITY,
    TRANSIT_OWNER,
    TRANSIT_PRIORITY,
    FlowRule,
    make_cookie,
)
from network_provisioner.controllers.shaping import DeviceShape, ShapeClass, share_out
from network_provisioner.errors import InputError
from network_provisioner.topology import Node, Path, Topology

# Traffic without a circuit takes the routed network; the overlay links are for circuits.
_ROUTE_PREFERENCE = {"lan": 0, "l3": 1, "l2": 2}


@dataclass(frozen=True, slots=True)
class Plan:
    """What the switches should carry now.

    ``groups`` say why; ``rules`` are for the switches; ``shapes`` lists every shaped device of the
    topology, also those on which nothing is reserved.
    """

    groups: tuple[Group, ...]
    rules: tuple[FlowRule, ...]
    shapes: tuple[DeviceShape, ...]

    def rules_of(self, group: Group) -> list[FlowRule]:
        """The rules that carry one group, first switch first."""
        cookie = make_cookie(TRANSIT_OWNER, group.text)
        return [rule for rule in self.rules if rule.cookie == cookie]


def make_plan(
    topology: Topology, circuits: Sequence[Circuit], now: float, *, shaped: bool = True
) -> Plan:
    """The plan for the circuits whose lease has not ended at Unix second ``now``.

    ``shaped`` is False where nobody can shape the devices: then nothing is marked. Raises
    InputError for circuits that cannot all be carried and for a topology that lacks a port, an
    address or a router's MAC on one of the paths.
    """
    hops = shaped_hops(topology) if shaped else frozenset()
    groups = group_circuits(topology, circuits, now)
    marks = assign_marks(groups, topology.sites, hops)
    marked = tuple(replace(g, mark=marks.get(g.pair, 0)) for g in groups)
    rules = [
        rule
        for group in marked
        for rule in path_rules(
            topology,
            group.path,
            priority=TRANSIT_PRIORITY,
            cookie=make_cookie(TRANSIT_OWNER, group.text),
            mark=group.mark or None,
            shaped=hops,
            expires_at=group.lease_until,
        )
    ]
    return Plan(marked, tuple(rules), _shapes(topology, marked) if shaped else ())


def default_routes(topology: Topology, *, shaped: bool = True) -> list[FlowRule]:
    """Best-effort rules between all sites that are joined.

    Straight through where both sites are on one switch; else the routed network, and a layer 2 path
    where there is no routed one. Where the way crosses a shaped device its first switch clears the
    DSCP field, so that no host can mark itself into somebody's reservation. Raises InputError like
    :func:`make_plan`.
    """
    hops = shaped_hops(topology) if shaped else frozenset()
    rules = []
    for src in topology.sites:
        for dst in topology.sites:
            path = _default_path(topology, src, dst)
            if path is None:
                continue
            crosses = any(hop in hops for hop in path.hops)
            rules += path_rules(
                topology,
                path.nodes,
                priority=ROUTE_PRIORITY,
                cookie=make_cookie(ROUTE_OWNER, ">".join(path.nodes)),
                mark=0 if crosses else None,
                shaped=hops,
            )
    return rules


def path_rules(
    topology: Topology,
    path: Sequence[str],
    *,
    priority: int,
    cookie: int,
    mark: int | None,
    shaped: frozenset[Pair],
    expires_at: float = float("inf"),
) -> list[FlowRule]:
    """The rules that carry one direction along ``path``, one for each switch on it.

    The first switch sets the DSCP ``mark`` (None: leaves it); the last one clears it, unless the
    device it sends into is shaped too. Raises InputError where the topology lacks something.
    """
    src, dst = topology.site(path[0]), topology.site(path[-1])
    for site in (src, dst):
        if not site.address:
            raise InputError(f"topology: site {site.name!r} has no address, expected an IPv4 one")
    steps = [
        (topology.nodes[name], after)
        for name, after in pairwise(path)
        if topology.nodes[name].kind == "switch"
    ]
    if not steps:
        raise InputError(f"path {'>'.join(path)} has no switch, expected at least one")
    rules = []
    for i, (switch, after) in enumerate(steps):
        last = i == len(steps) - 1
        dscp = None
        if i == 0:
            dscp = mark
        elif last and mark and (switch.name, after) not in shaped:
            dscp = 0
        rules.append(
            FlowRule(
                dpid=switch.dpid,
                priority=priority,
                src=src.address,
                dst=dst.address,
                out_port=_port(topology, switch, after),
                cookie=cookie,
                dscp=dscp,
                eth_dst=_next_mac(topology, switch, after, dst.mac if last else ""),
                expires_at=expires_at,
                hop=i,
            )
        )
    return rules


def shaped_hops(topology: Topology) -> frozenset[Pair]:
    """The link directions that leave a switch through a named device."""
    return frozenset(
        (switch, link.b if switch == link.a else link.a)
        for link in topology.links
        for switch in link.devices or {}
    )


def _shapes(topology: Topology, groups: Iterable[Group]) -> tuple[DeviceShape, ...]:
    crossing = by_hop(groups)
    shapes = []
    for a, b in sorted(shaped_hops(topology)):
        link = topology.link(a, b)
        there = crossing.get((a, b), [])
        rates = share_out(link.capacity_bps, [(g.min_bps, g.ack_bps) for g in there])
        shapes.append(
            DeviceShape(
                switch=a,
                device=(link.devices or {})[a],
                capacity_bps=link.capacity_bps,
                delay_s=link.delay_s,
                classes=tuple(
                    ShapeClass(g.mark, rate, _ceiling(g, rate, link.capacity_bps))
                    for g, rate in zip(there, rates, strict=True)
                ),
            )
        )
    return tuple(shapes)


def _ceiling(group: Group, rate_bps: float, capacity_bps: float) -> float:
    """Acknowledgements may take what is free; data its max_bps."""
    most = group.max_bps + group.ack_bps if group.data else capacity_bps
    return max(rate_bps, min(most, capacity_bps))


def _default_path(topology: Topology, src: str, dst: str) -> Path | None:
    paths = topology.candidate_paths(src, dst)
    return min(paths, key=lambda p: _ROUTE_PREFERENCE[p.layer], default=None)


def _port(topology: Topology, switch: Node, after: str) -> int:
    link = topology.link(switch.name, after)
    port = (link.ports or {}).get(switch.name)
    if port is None:
        raise InputError(
            f"topology: link {link.a}-{link.b} has no port at the switch {switch.name!r}, "
            f"expected ports: {{{switch.name}: <number>}}"
        )
    return port


def _next_mac(topology: Topology, switch: Node, after: str, at_last: str) -> str:
    node = topology.nodes[after]
    if node.kind != "router":
        return at_last
    mac = (node.macs or {}).get(switch.name)
    if mac is None:
        raise InputError(
            f"topology: router {after!r} has no MAC address towards {switch.name!r}, "
            f"expected macs: {{{switch.name}: <address>}}"
        )
    return mac
