"""What joins two switches, one way: a link, or routers between two links. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from ipaddress import ip_network
from itertools import pairwise

from network_provisioner.base.controller import Way
from network_provisioner.topology.graph import Hop, Host, Topology

_PAIRS = 2  # of hosts that probes are sent between: one of them may be switched off
_NOBODY = (("169.254.0.1", "169.254.0.2"),)  # hosts of a link (RFC 3927)
_COVER = 2  # segments over each link: where one is silent, the other tells which link it is


@dataclass(frozen=True, slots=True)
class Segment:
    """From a port of one switch to a port of the next one, over the directed links ``hops``.

    ``entry_bps`` and ``exit_bps`` are what the first and the last link carry. Where routers are
    between, ``router_mac`` is the first one's address there, and they route between ``hosts``,
    pairs of addresses; both are empty on a link.
    """

    way: Way
    hops: tuple[Hop, ...]
    entry_bps: float
    exit_bps: float
    router_mac: str = ""
    hosts: tuple[tuple[str, str], ...] = ()

    @property
    def is_routed(self) -> bool:
        """Whether routers are between."""
        return bool(self.hosts)

    @property
    def ends(self) -> tuple[tuple[str, str], ...]:
        """Pairs of addresses that probes by UDP go between."""
        return self.hosts or _NOBODY

    @property
    def eth_types(self) -> set[int]:
        """Of its probes by UDP."""
        return {eth_type(src) for src, _ in self.ends}


def segments(topology: Topology) -> list[Segment]:
    """All links between two switches, both ways, and of the segments through routers so many that
    each of their links is in two, where there are as many."""
    all_segments = [
        segment
        for link in topology.whole_links
        for nodes in ([link.a, link.name, link.b], [link.b, link.name, link.a])
        if (segment := _segment(topology, [n for n in nodes if n])) is not None
    ]
    routed = {segment.way: segment for segment in _routed(topology)}
    covered: Counter[Hop] = Counter()
    for segment in routed.values():
        if min(covered[hop] for hop in segment.hops) < _COVER:
            covered.update(segment.hops)
            all_segments.append(segment)
    return all_segments


def _routed(topology: Topology) -> Iterator[Segment]:
    """Those of candidate paths; of the longest ones first, so that the last one of a way is of the
    shortest path: then no router between sends its packets elsewhere."""
    if not any(node.kind == "router" for node in topology.nodes.values()):
        return
    sites = topology.sites
    paths = [p.nodes for a in sites for b in sites for p in topology.candidate_paths(a, b)]
    for nodes in sorted(paths, key=len, reverse=True):
        switches = [n for n, name in enumerate(nodes) if topology.nodes[name].kind == "switch"]
        hosts = _host_pairs(topology.site(nodes[0]).hosts, topology.site(nodes[-1]).hosts)
        for first, last in pairwise(switches):
            through = (topology.nodes[name].kind for name in nodes[first + 1 : last])
            if hosts and "router" in through:
                segment = _segment(topology, nodes[first : last + 1], hosts)
                if segment is not None:
                    yield segment


def _host_pairs(src: Iterable[Host], dst: Iterable[Host]) -> tuple[tuple[str, str], ...]:
    """Pairs of addresses that packets can go between, each to another host."""
    from_version = {host.version: host for host in reversed(list(src))}
    pairs = [(from_version[to.version], to) for to in dst if to.version in from_version]
    return tuple((_address(a), _address(b)) for a, b in pairs[:_PAIRS])


def _address(host: Host) -> str:
    return str(next(iter(ip_network(host.address).hosts())))


def _segment(
    topology: Topology, nodes: Sequence[str], hosts: tuple[tuple[str, str], ...] = ()
) -> Segment | None:
    """None where an end is no switch, or a port or a router's address is not known."""
    first, last = topology.link(*nodes[:2]), topology.link(*nodes[-2:])
    ends = [
        (topology.nodes[name].dpid, (link.ports or {}).get(name, 0))
        for name, link in ((nodes[0], first), (nodes[-1], last))
    ]
    mac = (topology.beyond(*nodes[:2]).macs or {}).get(nodes[0], "")
    if not all(number for end in ends for number in end) or (hosts and not mac):
        return None
    hops = tuple(pairwise(nodes))
    return Segment((ends[0], ends[1]), hops, first.capacity_bps, last.capacity_bps, mac, hosts)


def failed_hops(
    watched: Iterable[Segment], silent: Collection[Way], heard: Collection[Way]
) -> dict[Hop, str]:
    """The directed links that let no probes through, and that in words: those of ``silent``
    segments, but for links that others were ``heard`` over. A link fails both ways."""
    watched = list(watched)
    fine = {hop for segment in watched if segment.way in heard for hop in segment.hops}
    failed = {}
    for segment in watched:
        if segment.way in silent:
            why = f"nothing comes through from {segment.hops[0][0]} to {segment.hops[-1][1]}"
            for a, b in [hop for hop in segment.hops if hop not in fine] or segment.hops:
                failed[a, b] = failed[b, a] = why
    return failed


def eth_type(address: str) -> int:
    """Of packets from an address."""
    return 0x86DD if ":" in address else 0x0800
