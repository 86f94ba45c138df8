"""The network as a graph: sites, switches, routers, relays and the links between them.

NetworkX holds the graph; this module gives it units, checks it, and lists candidate paths.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from itertools import pairwise
from typing import Any

import networkx as nx

from network_provisioner.base.errors import InputError, did_you_mean
from network_provisioner.base.fields import format_dpid, plain_address
from network_provisioner.base.units import format_rate
from network_provisioner.topology.paths import PathFinder

KINDS = ("site", "switch", "router", "relay")
_SLOWEST_BPS = 1e4  # what is slower was meant to have a unit
LINK = "link"  # the kind of node that stands for a link with a name
LAYERS = ("l2", "l3", "lan")
COST_BITS = 120e3  # ten packets: what TCP sends before it hears of any (RFC 6928)
# Layers and small differences of other kinds are worth no path that costs more than this.
DETOUR, DETOUR_S = 2.0, 0.01

Hop = tuple[str, str]
"""A directed link: the nodes that it leads from and to."""


@dataclass(frozen=True, slots=True)
class Host:
    """A host of a site by its IP ``address``, or all under a prefix. ``mac`` is what its frames are
    addressed to, empty for as they come; ``name`` its host name, if anybody knows it by one."""

    address: str
    mac: str = ""
    name: str = ""

    @property
    def version(self) -> int:
        """4 or 6."""
        return 6 if ":" in self.address else 4

    @property
    def is_prefix(self) -> bool:
        """Whether it stands for many."""
        return "/" in self.address


@dataclass(frozen=True, slots=True)
class Node:
    """A site, a switch, a router or a relay; or a link with a name, in paths.

    ``dtn`` is the host name of a site's data transfer node, ``address`` and ``mac`` are its
    data-plane addresses, ``others`` what else talks there: more of them, worker nodes. What a URL
    that begins with one of its ``urls`` names lies there, for HTCondor's transfers. ``dpid`` is
    a switch's OpenFlow datapath id; a router's ``macs`` are the addresses it is reached by, per
    neighbouring switch. A site in a Science ``dmz`` is reached by transits alone: without one its
    switch drops all that comes and goes (precision-medicine paper, §3). A relay at a switch carries
    others' TCP connections, and has an ``address`` and a ``mac`` of its own. ``was`` is the name
    before this one, "" for none. ``x`` and ``y`` are its place on drawings, from left to right and
    from top to bottom by any scale, None where nobody says.
    """

    name: str
    kind: str
    address: str = ""
    mac: str = ""
    dpid: int = 0
    macs: Mapping[str, str] | None = None
    dmz: bool = False
    dtn: str = ""
    others: tuple[Host, ...] = ()
    urls: tuple[str, ...] = ()
    was: str = ""
    x: float | None = None
    y: float | None = None

    @property
    def hosts(self) -> tuple[Host, ...]:
        """All hosts of a site, its data transfer node first; of a relay, itself."""
        own = (Host(self.address, self.mac, self.dtn),) if self.address else ()
        return own + self.others

    def host(self, named: str) -> Host | None:
        """The host of that name or address, be it under a prefix; None for one that is not known
        to be of this site."""
        for host in self.hosts:
            if named == host.address or (host.name and _same_name(named, host.name)):
                return host
        try:
            address = ip_address(plain_address(named))
        except ValueError:
            return None
        for host in self.hosts:
            if address in ip_network(host.address):
                return Host(str(address), host.mac)
        return None


@dataclass(frozen=True, slots=True)
class Link:
    """A link that carries ``capacity_bps`` in each direction.

    ``delay_s`` is one way, ``jitter_s`` what it varies by (None: nobody said), ``loss`` a fraction.
    ``ports`` maps a switch at either end to its port number there, ``devices`` to the device name.
    ``vlan`` is the VLAN id that frames carry on a link that is no routed one, 0 for none. ``name``
    tells it from others between the same nodes. ``guaranteed``: whether what is reserved on it can
    be promised; None for where our queues enforce it and it is no routed link.
    """

    a: str
    b: str
    capacity_bps: float
    delay_s: float = 0.0
    loss: float = 0.0
    layer: str = "lan"
    ports: Mapping[str, int] | None = None
    devices: Mapping[str, str] | None = None
    jitter_s: float | None = None
    vlan: int = 0
    name: str = ""
    guaranteed: bool | None = None
    was: str = ""

    def other(self, end: str) -> str:
        """The node at the other end."""
        return self.b if end == self.a else self.a

    @property
    def label(self) -> str:
        """What people call it."""
        return self.name or f"{self.a}-{self.b}"

    @property
    def halves(self) -> tuple[Link, ...]:
        """What paths lead over: the link itself, or with a name two, which meet in a node of that
        name. Delay, jitter and loss are the first one's."""
        if not self.name:
            return (self,)

        def half(a: str, b: str, end: str, **values: Any) -> Link:
            for what in ("ports", "devices"):
                known = getattr(self, what) or {}
                values[what] = {end: known[end]} if end in known else None
            return replace(self, a=a, b=b, name="", **values)

        return (
            half(self.a, self.name, self.a),
            half(self.name, self.b, self.b, delay_s=0.0, jitter_s=None, loss=0.0),
        )

    @property
    def hops(self) -> tuple[Hop, ...]:
        """All directed links that it consists of in paths."""
        return tuple(hop for x in self.halves for hop in ((x.a, x.b), (x.b, x.a)))


@dataclass(frozen=True, slots=True)
class Path:
    """A loop-free path. ``rtt_s`` is twice the sum of the links' one-way delays, ``jitter_s`` the
    sum of what they vary by: the most it can be; None where no link says."""

    nodes: tuple[str, ...]
    capacity_bps: float
    rtt_s: float
    loss: float
    layer: str
    jitter_s: float | None = None

    @property
    def hops(self) -> tuple[Hop, ...]:
        """The directed links of the path, in order."""
        return tuple(pairwise(self.nodes))

    @property
    def cost_s(self) -> float:
        """What it costs to send a little over it, in seconds: a round trip, and COST_BITS at its
        rate."""
        return self.rtt_s + COST_BITS / self.capacity_bps


def without_detours(paths: Iterable[Path]) -> list[Path]:
    """Those, in their order, that cost no more than DETOUR times the cheapest and DETOUR_S."""
    paths = list(paths)
    most_s = DETOUR * min((path.cost_s for path in paths), default=0.0) + DETOUR_S
    return [path for path in paths if path.cost_s <= most_s]


def way_of(nodes: Sequence[str]) -> str:
    """What tells a path from others between the same two sites: what it leads through."""
    return "-".join(nodes[1:-1])


class Topology:
    """A validated, unchangeable network.

    A link with a name is a node in paths, between the two that it joins: so paths, reservations and
    rules tell several links between the same two nodes apart. Of these each but the first has one.
    """

    def __init__(self, nodes: Iterable[Node], links: Iterable[Link]) -> None:
        """Raises InputError for whatever is there twice (names, links, addresses, ports), unknown
        ends, self-loops and bad quantities."""
        self.nodes: dict[str, Node] = {}
        self.whole_links: list[Link] = []
        """All links, in the order they were given."""
        self._links: dict[frozenset[str], Link] = {}
        self._graph: Any = nx.Graph()
        for node in nodes:
            if node.name in self.nodes:
                raise InputError(f"topology: node {node.name!r} is listed twice")
            if node.kind not in KINDS:
                raise InputError(
                    f"topology: node {node.name!r} has kind {node.kind!r}, "
                    f"expected one of {', '.join(KINDS)}"
                )
            self.nodes[node.name] = node
            self._graph.add_node(node.name)
        _unique("was", ((node.was, node.name) for node in self.nodes.values()))
        for node in self.nodes.values():
            if node.was in self.nodes:
                raise InputError(
                    f"topology: node {node.name!r} was {node.was!r}, which is another node; "
                    "expected a name that none has"
                )
        _unique("mac", ((node.mac, node.name) for node in self.nodes.values()))
        dpids = [(node.dpid and format_dpid(node.dpid), n) for n, node in self.nodes.items()]
        _unique("dpid", dpids)
        self._check_hosts()
        between: dict[frozenset[str], int] = {}
        for link in links:
            ends = frozenset((link.a, link.b))
            between[ends] = number = between.get(ends, 0) + (not link.name)
            again = number > 1 and not link.name
            self._add_link(replace(link, name=f"{link.label}.{number}") if again else link)
        ports = [(f"{node} port {n}", x) for x in self.whole_links for node, n in _ports(x)]
        _unique("switch", ((end, link.label) for end, link in ports))
        for node in self.nodes.values():
            if node.kind == "relay":
                self._check_relay(node)
        for node in self.nodes.values():
            for other in node.macs or ():
                if frozenset((node.name, other)) not in between:
                    raise InputError(
                        f"topology: node {node.name!r}: macs names {other!r}, which no link joins "
                        "it with"
                    )

    def _check_hosts(self) -> None:
        networks = [(ip_network(h.address), n) for n in self.nodes.values() for h in n.hosts]
        # Sorted, a prefix stands before all that is under it.
        networks.sort(key=lambda it: (it[0].version, int(it[0].network_address), it[0].prefixlen))
        outer: tuple[IPv4Network | IPv6Network, Node] | None = None
        before: IPv4Network | IPv6Network | None = None
        for network, node in networks:
            if node.dmz and network.version == 6:
                raise InputError(
                    f"topology: node {node.name!r} is in a Science DMZ and has the address "
                    f"{_words(network)}, expected IPv4 ones: no neighbour discovery passes there"
                )
            if (
                outer is not None
                and outer[0].version == network.version
                and outer[0].overlaps(network)
            ):
                if outer[1] is not node or before == network:
                    raise InputError(
                        f"topology: address {_words(network)} is that of {outer[1].name!r} and of "
                        f"{node.name!r}, expected each to have its own"
                    )
            else:
                outer = network, node
            before = network

    def _check_relay(self, node: Node) -> None:
        links = [link for link in self.whole_links if node.name in (link.a, link.b)]
        others = [self.nodes[link.other(node.name)].kind for link in links]
        if others != ["switch"] or links[0].name or links[0].devices:
            kinds = ", ".join(others) or "nothing"
            raise InputError(
                f"topology: relay {node.name!r} has links to {kinds}, expected one, to a switch, "
                "without name or devices"
            )

    def _add_link(self, link: Link) -> None:
        label = f"topology: link {link.a}-{link.b}"
        for end in (link.a, link.b):
            if end not in self.nodes:
                raise InputError(f"{label} ends at {end!r}, which is no node of the topology")
        if link.a == link.b:
            raise InputError(f"{label} joins a node with itself")
        if link.name in self.nodes:
            raise InputError(
                f"{label}: name {link.name!r} is taken, expected one that no node or link has"
            )
        if not (math.isfinite(link.capacity_bps) and link.capacity_bps > 0):
            raise InputError(f"{label}: capacity {link.capacity_bps!r}, expected more than 0 b/s")
        if not (math.isfinite(link.delay_s) and link.delay_s >= 0):
            raise InputError(f"{label}: delay {link.delay_s!r}, expected 0 s or more")
        if not 0 <= link.loss < 1:
            raise InputError(f"{label}: loss {link.loss!r}, expected a fraction in [0, 1)")
        if link.jitter_s is not None and not (math.isfinite(link.jitter_s) and link.jitter_s >= 0):
            raise InputError(f"{label}: jitter {link.jitter_s!r}, expected 0 s or more")
        if link.layer not in LAYERS:
            raise InputError(f"{label}: layer {link.layer!r}, expected one of {', '.join(LAYERS)}")
        if link.vlan and (link.layer == "l3" or not 0 < link.vlan < 4095):
            raise InputError(
                f"{label}: vlan {link.vlan!r} of layer {link.layer}, expected 1 to 4094 on a link "
                "of layer l2 or lan"
            )
        self.whole_links.append(link)
        if link.name:
            self.nodes[link.name] = Node(link.name, LINK)
        for half in link.halves:
            self._links[frozenset((half.a, half.b))] = half
            self._graph.add_edge(half.a, half.b, delay=half.delay_s)

    @property
    def links(self) -> list[Link]:
        """What paths lead over, in the order that links were given: those without a name, and the
        halves of the others."""
        return list(self._links.values())

    @property
    def sites(self) -> list[str]:
        """The names of all sites, in the order they were given."""
        return [n.name for n in self.nodes.values() if n.kind == "site"]

    @cached_property
    def largest_bps(self) -> float:
        """What the largest path between any two sites carries; 0 where nothing joins two."""
        graph, sites = nx.Graph(), set(self.sites)
        for link in sorted(self.links, key=lambda link: -link.capacity_bps):
            graph.add_edge(link.a, link.b)
            if len(sites & nx.node_connected_component(graph, link.a)) > 1:
                return link.capacity_bps
        return 0.0

    @cached_property
    def warnings(self) -> list[str]:
        """What may be meant but is most likely a slip: sites that no other site reaches, nodes
        without a link, and capacities that lack their unit."""
        ends = {end for link in self.links for end in (link.a, link.b)}
        alone = [n for n in self.nodes.values() if n.name not in ends]
        messages = [f"topology: {n.kind} {n.name!r} has no link" for n in alone]
        sites = set(self.sites)
        parts = [sites & part for part in nx.connected_components(self._graph)]
        parts = sorted((sorted(p) for p in parts if p), key=lambda part: (-len(part), part))
        for part in parts[1:]:
            if part[0] in ends:
                words = ", ".join(map(repr, part))
                messages.append(f"topology: no path joins {words} with {parts[0][0]!r}")
        return messages + [
            f"topology: link {link.label} carries {format_rate(link.capacity_bps)}: a number "
            "without a unit is bits per second"
            for link in self.whole_links
            if link.capacity_bps < _SLOWEST_BPS
        ]

    def link(self, a: str, b: str) -> Link:
        """The link between two neighbours. Raises InputError where there is none."""
        try:
            return self._links[frozenset((a, b))]
        except KeyError:
            raise InputError(f"topology: no link between {a!r} and {b!r}") from None

    def label_of(self, a: str, b: str) -> str:
        """What people call the link between two neighbours, of which one may be a link's node."""
        name = next((n for n in (a, b) if self.nodes[n].kind == LINK), "")
        return name or self.link(a, b).label

    def beyond(self, end: str, after: str) -> Node:
        """The node that a path comes to next after ``end``, where ``after`` may be a link's."""
        if self.nodes[after].kind == LINK:
            after = next(x.other(end) for x in self.whole_links if x.name == after)
        return self.nodes[after]

    @cached_property
    def renamed(self) -> dict[str, str]:
        """The names of nodes, and of links that have one, by their names before; those that have
        changed."""
        nodes = {node.name: node.was or node.name for node in self.nodes.values()}
        names = {was: name for name, was in nodes.items() if was != name}
        for link in self.whole_links:
            _, dot, number = link.name.rpartition(".")
            if link.was:
                names[link.was] = link.name
            elif link.name == f"{link.a}-{link.b}{dot}{number}":  # named by its ends
                names[f"{nodes[link.a]}-{nodes[link.b]}{dot}{number}"] = link.name
        return {was: name for was, name in names.items() if was != name}

    def site(self, name: str) -> Node:
        """A site's node. Raises InputError for an unknown name."""
        node = self.nodes.get(name)
        if node is None or node.kind != "site":
            raise InputError(
                f"unknown site {name!r}, expected one of {', '.join(self.sites) or '(none)'}"
                + did_you_mean(name, self.sites)
            )
        return node

    def end(self, name: str) -> Node:
        """The node of a site or of a relay. Raises InputError for an unknown name."""
        node = self.nodes.get(name)
        return node if node is not None and node.kind == "relay" else self.site(name)

    def relays_at(self, switch: str) -> list[Node]:
        """The relays at a switch, in the order they were given."""
        there = (n for n in self.nodes.values() if n.kind == "relay")
        return [n for n in there if frozenset((n.name, switch)) in self._links]

    def path(self, nodes: Sequence[str]) -> Path:
        """The path along ``nodes`` with its bottleneck, RTT, loss and layer."""
        links = [self.link(a, b) for a, b in pairwise(nodes)]
        layers = {link.layer for link in links}
        layer = "l3" if "l3" in layers else "l2" if "l2" in layers else "lan"
        passed = math.prod(1 - link.loss for link in links)
        jitters = [link.jitter_s for link in links if link.jitter_s is not None]
        return Path(
            tuple(nodes),
            min((link.capacity_bps for link in links), default=math.inf),
            2 * sum(link.delay_s for link in links),
            1 - passed,
            layer,
            sum(jitters) if jitters else None,
        )

    def candidate_paths(self, src: str, dst: str, limit: int = 8) -> list[Path]:
        """Up to ``limit`` loop-free paths between two sites, fewest seconds of delay first, then
        fewest hops, then names in alphabetical order.

        No path leads through a third site, and a router sends all packets to one site the same way.
        Raises InputError for unknown sites; an empty list where
        the sites are not joined.
        """
        self.site(src)
        self.site(dst)
        if src == dst:
            return []
        return [self.path(nodes) for nodes in self._finder.k_shortest(src, dst, limit)]

    def open_path(self, src: str, dst: str, is_open: Callable[[str, str], bool]) -> Path | None:
        """The path of least delay between two sites over links, from one node to the next, that
        are open, also where :meth:`candidate_paths` stops before it; None where none is found."""
        nodes = self._finder.shortest_open(src, dst, is_open)
        return None if nodes is None else self.path(nodes)

    @cached_property
    def _finder(self) -> PathFinder:
        routers = [node.name for node in self.nodes.values() if node.kind == "router"]
        return PathFinder(self._graph, self._graph.edges(data="delay"), self.sites, routers)


def _ports(link: Link) -> list[tuple[str, int]]:
    return list((link.ports or {}).items())


def _same_name(name: str, other: str) -> bool:
    """Whether two host names are the same; one without a domain is in any."""
    if "." in name and "." in other:
        return name.lower() == other.lower()
    return name.partition(".")[0].lower() == other.partition(".")[0].lower()


def _words(network: IPv4Network | IPv6Network) -> str:
    return str(network[0] if network.num_addresses == 1 else network)


def _unique(what: str, named: Iterable[tuple[object, str]]) -> None:
    first: dict[object, str] = {}
    for value, where in named:
        if value and first.setdefault(value, where) != where:
            raise InputError(
                f"topology: {what} {value} is that of {first[value]!r} and of {where!r}, expected "
                "each to have its own"
            )
