"""Flow rules along paths: of best effort, of groups with one branch or several, of ARP. Pure.

The first switch decides: it marks packets with a DSCP value where a shaped device or another switch
has to know them again, and the last switch clears the mark. A circuit's rules take packets from the
port of the hop before alone: who sends in its name and with its mark from elsewhere on its path
gets best effort, which has no mark at any switch. Everything without a circuit takes a
best-effort route of lower priority, unless one of its ends is in a Science DMZ: that is reached
while a circuit lives, and not at all otherwise (precision-medicine paper, §2).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from network_provisioner.base.controller import Redirect
from network_provisioner.base.errors import InputError
from network_provisioner.base.flows import Flow
from network_provisioner.base.units import MAX_RATE_BPS
from network_provisioner.controllers.groups import Branch, CircuitGroup, Pair, matches
from network_provisioner.controllers.rules import (
    BRANCH_PRIORITY,
    FLOW_ACK_PRIORITY,
    FLOW_PRIORITY,
    HOST_PRIORITY,
    ROUTE_OWNER,
    ROUTE_PRIORITY,
    TRANSIT_OWNER,
    TRANSIT_PRIORITY,
    Bucket,
    FlowRule,
    Masked,
    SelectGroup,
    make_cookie,
)
from network_provisioner.topology.graph import Hop, Host, Node, Path, Topology, without_detours

# Traffic without a circuit takes the routed network; the overlay links are for circuits.
_ROUTE_PREFERENCE = {"lan": 0, "l3": 1, "l2": 2}
# The parts of a group's rate are dealt out in this many steps.
_WEIGHTS = 100


@dataclass(frozen=True, slots=True)
class SwitchHop:
    """One switch on a path: where packets come in and where they leave. ``eth_dst`` is the router
    they leave to; from the ``last`` switch they leave to the host itself.

    They come ``from_switch`` at one port. A site or a router with several links to the switch
    chooses by itself which one it sends on. A port of 0 is any: the topology does not name it.
    """

    switch: Node
    after: str
    in_ports: tuple[int, ...]
    from_switch: bool
    out_port: int
    eth_dst: str
    last: bool

    @property
    def hop(self) -> tuple[str, str]:
        """The link direction that it sends into."""
        return (self.switch.name, self.after)

    def mac(self, dst: Host) -> str:
        """What packets to ``dst`` are addressed to from here on, empty where they keep what they
        have."""
        return self.eth_dst or (dst.mac if self.last else "")


def switch_hops(topology: Topology, path: Sequence[str]) -> list[SwitchHop]:
    """The switches of a path. Raises InputError where the topology lacks something."""
    for end in (topology.end(path[0]), topology.end(path[-1])):
        if not end.hosts:
            raise InputError(f"topology: site {end.name!r} has no address, expected one, or hosts")
    triples = list(zip(path, path[1:], path[2:], strict=False))
    switches = [t for t in triples if topology.nodes[t[1]].kind == "switch"]
    if not switches:
        raise InputError(f"path {'>'.join(path)} has no switch, expected at least one")
    hops = []
    for i, (before, name, after) in enumerate(switches):
        switch = topology.nodes[name]
        hops.append(
            SwitchHop(
                switch,
                after,
                _ports_from(topology, switch, before),
                topology.beyond(name, before).kind == "switch",
                port_to(topology, switch, after),
                _router_mac(topology, switch, after),
                i == len(switches) - 1,
            )
        )
    return hops


def port_to(topology: Topology, switch: Node, after: str) -> int:
    """A switch's port towards a neighbour. Raises InputError where the topology names none."""
    link = topology.link(switch.name, after)
    port = (link.ports or {}).get(switch.name)
    if port is None:
        raise InputError(
            f"topology: link {link.a}-{link.b} has no port at the switch {switch.name!r}, "
            f"expected ports: {{{switch.name}: <number>}}"
        )
    return port


def _ports_from(topology: Topology, switch: Node, before: str) -> tuple[int, ...]:
    """The ports where packets from the neighbour before a switch come in."""
    sender = topology.beyond(switch.name, before)
    links = [topology.link(before, switch.name)]
    if sender.kind != "switch":
        ends = {sender.name, switch.name}
        links = [link for link in topology.whole_links if {link.a, link.b} == ends]
    ports = sorted((link.ports or {}).get(switch.name, 0) for link in links)
    return tuple(ports) if all(ports) else (0,)


def _router_mac(topology: Topology, switch: Node, after: str) -> str:
    node = topology.beyond(switch.name, after)
    if node.kind != "router":
        return ""
    mac = (node.macs or {}).get(switch.name)
    if mac is None:
        raise InputError(
            f"topology: router {node.name!r} has no MAC address towards {switch.name!r}, "
            f"expected macs: {{{switch.name}: <address>}}"
        )
    return mac


def host_pairs(topology: Topology, between: CircuitGroup | Redirect) -> list[tuple[Host, Host]]:
    """The hosts at both ends: those that are named, else all there that can talk."""
    src, dst = topology.end(between.src), topology.end(between.dst)
    if not between.hosts:
        return _all_pairs(src, dst)
    return [(_host(src, between.hosts[0]), _host(dst, between.hosts[1]))]


def _host(site: Node, named: str) -> Host:
    host = site.host(named)
    if host is None:
        raise InputError(f"topology: {named} is no address of the site {site.name!r}")
    return host


def _all_pairs(src: Node, dst: Node) -> list[tuple[Host, Host]]:
    return [(a, b) for a in src.hosts for b in dst.hosts if a.version == b.version]


def named_packets(flows: Iterable[Flow]) -> list[tuple[str, Masked | None, Masked | None]]:
    """The protocol, source and destination port of every rule that flows need; where there are
    none, of one for all packets."""
    named = [(flow.protocol, *ports) for flow in flows for ports in matches(flow)]
    return named or [("ip", None, None)]


def specific(src: Host, dst: Host) -> int:
    """What is added to the priority of a rule: one host's comes before its prefix's."""
    return -src.is_prefix - dst.is_prefix


@dataclass(frozen=True, slots=True)
class RateControl:
    """How rates are kept along paths.

    ``shaped`` are the link directions with classes. ``by_queue``: a class is named by a queue
    number instead of a DSCP value. ``meters`` are the meters' numbers, by group key, and for best
    effort by link direction. Where no class is told by a DSCP value, ``tag`` is the one by which
    the next switch knows what belongs to a circuit; 0 for none.
    """

    shaped: frozenset[Hop] = frozenset()
    by_queue: bool = False
    tag: int = 0
    meters: Mapping[str, int] | None = None

    def meter(self, what: str) -> int:
        """The meter's number for a group's key or a link direction's, 0 for none."""
        return (self.meters or {}).get(what, 0)


def shaped_hops(topology: Topology) -> frozenset[Hop]:
    """The link directions that leave a switch through a named device."""
    return frozenset(
        (switch, link.other(switch)) for link in topology.links for switch in link.devices or {}
    )


def default_paths(topology: Topology, failed: Collection[Hop] = ()) -> list[Path]:
    """Where best effort goes: straight through where both sites are on one switch, else the routed
    network, and a layer 2 path where there is no routed one that costs about as little. Not over
    links that have ``failed`` where there is another way. None to or from a Science DMZ."""
    open_sites = [name for name in topology.sites if not topology.nodes[name].dmz]
    paths = (default_path(topology, src, dst, failed) for src in open_sites for dst in open_sites)
    return [path for path in paths if path is not None]


def route_rules(topology: Topology, paths: Sequence[Path], control: RateControl) -> list[FlowRule]:
    """Best-effort rules along ``paths``. Raises InputError like :func:`switch_hops`.

    Where a mark would count each switch clears the DSCP field, so that no host, whichever switch it
    is at, can mark itself into somebody's reservation.
    """
    rules = []
    for path in paths:
        steps = switch_hops(topology, path.nodes)
        clears = 0 if _may_be_marked(path, steps, control) else None
        pairs = _all_pairs(topology.site(path.nodes[0]), topology.site(path.nodes[-1]))
        for i, step in enumerate(steps):
            rules += [
                FlowRule(
                    dpid=step.switch.dpid,
                    priority=ROUTE_PRIORITY + specific(src, dst),
                    src=src.address,
                    dst=dst.address,
                    out_port=step.out_port,
                    cookie=make_cookie(ROUTE_OWNER, ">".join(path.nodes)),
                    dscp=clears,
                    eth_dst=step.mac(dst),
                    hop=i,
                    meter=control.meter(hop_key(step.hop)),
                )
                for src, dst in pairs
            ]
    return rules


def _may_be_marked(path: Path, steps: Sequence[SwitchHop], control: RateControl) -> bool:
    """Whether a mark that a host sets would count for something on this way."""
    if any(step.from_switch for step in steps):
        return bool(control.tag or control.shaped)
    return not control.tag and any(hop in control.shaped for hop in path.hops)


def group_rules(
    topology: Topology,
    group: CircuitGroup,
    control: RateControl,
    number: int,
    walk: Callable[[tuple[str, ...]], list[SwitchHop]],
) -> tuple[list[FlowRule], SelectGroup | None]:
    """The rules that carry a group, first switch first, and the select group they need.

    ``number`` is the select group's; ``walk`` gives the steps of a path.
    """
    pairs = host_pairs(topology, group)
    several = len(group.branches) > 1
    walks = [(branch, walk(branch.path)) for branch in group.branches]
    cookie = make_cookie(TRANSIT_OWNER, group.text)
    priority = TRANSIT_PRIORITY
    if group.flows:
        priority = FLOW_PRIORITY if group.data else FLOW_ACK_PRIORITY
    if group.hosts:
        priority += HOST_PRIORITY
    named = named_packets(group.flows)
    rules = []
    for branch, walked in walks:
        for i, step in enumerate(walked):
            if several and i == 0 and branch is not group.branches[0]:
                continue  # the first switch has one rule for all branches
            dealt = several and i == 0
            rules += [
                FlowRule(
                    dpid=step.switch.dpid,
                    priority=priority
                    + specific(src, dst)
                    + (BRANCH_PRIORITY if several and i > 0 else 0),
                    src=src.address,
                    dst=dst.address,
                    out_port=0 if dealt else step.out_port,
                    cookie=cookie,
                    dscp=None if dealt else _dscp(branch, walked, i, control, several),
                    eth_dst="" if dealt else step.mac(dst),
                    expires_at=group.lease_until,
                    hop=i,
                    protocol=protocol,
                    src_port=src_port,
                    dst_port=dst_port,
                    in_port=in_port,
                    mark=_expected_mark(branch, walked, i, control, several),
                    group=number if dealt else 0,
                    queue=0 if dealt else _queue(branch, step, control),
                    meter=control.meter(group.key) if i == 0 else 0,
                )
                for in_port in step.in_ports
                for src, dst in pairs
                for protocol, src_port, dst_port in named
            ]
    if not several:
        return rules, None
    buckets = _buckets(walks, control, pairs[0][1])
    return rules, SelectGroup(walks[0][1][0].switch.dpid, number, buckets)


def arp_rules(
    topology: Topology, pair: Pair, circuits: Sequence[str], path: Sequence[str], until: float
) -> list[FlowRule]:
    """Rules for address resolution from one site to another, while ``circuits`` live.

    ARP does not pass routers: where ``path`` leads through one, the best path without takes it,
    and there is none where the sites are not joined at layer 2.
    """
    if not _is_layer_2(topology, path):
        paths = (p.nodes for p in topology.candidate_paths(*pair))
        path = next((nodes for nodes in paths if _is_layer_2(topology, nodes)), ())
    if not path:
        return []
    text = f"arp|{'>'.join(path)}|{','.join(sorted(circuits))}"
    return [
        FlowRule(
            dpid=step.switch.dpid,
            priority=TRANSIT_PRIORITY + specific(src, dst),
            src=src.address,
            dst=dst.address,
            out_port=step.out_port,
            cookie=make_cookie(TRANSIT_OWNER, text),
            expires_at=until,
            hop=i,
            protocol="arp",
            in_port=in_port,
        )
        for i, step in enumerate(switch_hops(topology, path))
        for in_port in step.in_ports
        for src, dst in _all_pairs(topology.site(pair[0]), topology.site(pair[1]))
    ]


def _tag(walked: Sequence[SwitchHop], control: RateControl) -> int:
    """The tag of what takes this way, 0 where no switch hands it to another."""
    return control.tag if any(step.from_switch for step in walked) else 0


def _mark(branch: Branch, walked: Sequence[SwitchHop], control: RateControl, several: bool) -> int:
    """The DSCP value of a branch's packets between its first switch and its last."""
    return _tag(walked, control) if control.tag and not several else branch.mark


def _expected_mark(
    branch: Branch, walked: Sequence[SwitchHop], i: int, control: RateControl, several: bool
) -> int | None:
    """What packets must have. Routers may rewrite a tag."""
    known = several or (control.tag and walked[i].from_switch)
    return _mark(branch, walked, control, several) if i > 0 and known else None


def _dscp(
    branch: Branch, walked: Sequence[SwitchHop], i: int, control: RateControl, several: bool
) -> int | None:
    """What the switch sets, None where it leaves the field alone."""
    mark = _mark(branch, walked, control, several)
    if i == 0 and not several:
        crosses = not control.tag and any(step.hop in control.shaped for step in walked)
        return mark or (0 if crosses else None)
    last = i == len(walked) - 1
    return 0 if last and mark and (control.tag or walked[i].hop not in control.shaped) else None


def _queue(branch: Branch, step: SwitchHop, control: RateControl) -> int:
    return branch.mark if control.by_queue and step.hop in control.shaped else 0


def _buckets(
    walks: Sequence[tuple[Branch, list[SwitchHop]]], control: RateControl, dst: Host
) -> tuple[Bucket, ...]:
    rates = [branch.min_bps for branch, _ in walks]
    if min(rates) <= 0:
        rates = [min(branch.max_bps, MAX_RATE_BPS) for branch, _ in walks]
    total = math.fsum(rates)
    return tuple(
        Bucket(
            weight=max(1, round(_WEIGHTS * rate / total)),
            mark=branch.mark,
            out_port=walked[0].out_port,
            eth_dst=walked[0].mac(dst),
            queue=_queue(branch, walked[0], control),
        )
        for (branch, walked), rate in zip(walks, rates, strict=True)
    )


def _is_layer_2(topology: Topology, path: Sequence[str]) -> bool:
    return all(topology.nodes[name].kind != "router" for name in path)


def default_path(
    topology: Topology, src: str, dst: str, failed: Collection[Hop] = ()
) -> Path | None:
    """Where best effort between two sites goes; None where nothing joins them."""
    return default_route(topology, src, dst, failed)[0]


def default_route(
    topology: Topology, src: str, dst: str, failed: Collection[Hop] = ()
) -> tuple[Path | None, str]:
    """Where best effort between two sites goes, and why there."""
    candidates = topology.candidate_paths(src, dst)
    if not candidates:
        return None, "no path joins the two sites"
    works = [p for p in candidates if not any(hop in failed for hop in p.hops)]
    paths = works or candidates
    near = without_detours(paths)
    best = min(near, key=lambda p: (_ROUTE_PREFERENCE[p.layer], p.cost_s))
    if not works:
        why = "no path works"
    elif len(paths) == 1:
        why = "the only path" if len(candidates) == 1 else "the only path that works"
    elif len({p.layer for p in near}) > 1:
        why = f"layer {best.layer} comes first, and costs little more"
    else:
        why = "the least delay for its rate"
    if works and len(works) < len(candidates):
        why += ", round what has failed"
    return best, why


def hop_key(hop: Hop) -> str:
    """What names best effort on a link direction."""
    return f"best effort|{hop[0]}>{hop[1]}"
