"""The network as a graph: sites, switches, routers and the links between them.

NetworkX holds the graph; this module gives it units, checks it, and lists candidate paths.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Any

import networkx as nx

from network_provisioner import fields
from network_provisioner.errors import InputError
from network_provisioner.units import parse_duration, parse_rate

KINDS = ("site", "switch", "router")
LAYERS = ("l2", "l3", "lan")


@dataclass(frozen=True, slots=True)
class Node:
    """A site's data transfer node, a switch or a router.

    ``address`` and ``mac`` are the data-plane addresses of a site; ``dpid`` is a switch's OpenFlow
    datapath id; a router's ``macs`` are the addresses it is reached by, per neighbouring switch.
    """

    name: str
    kind: str
    address: str = ""
    mac: str = ""
    dpid: int = 0
    macs: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Link:
    """A link that carries ``capacity_bps`` in each direction.

    ``ports`` maps a switch at either end to its port number there, ``devices`` to the device name.
    """

    a: str
    b: str
    capacity_bps: float
    delay_s: float = 0.0
    loss: float = 0.0
    layer: str = "lan"
    ports: Mapping[str, int] | None = None
    devices: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Path:
    """A loop-free path. ``rtt_s`` is twice the sum of the links' one-way delays."""

    nodes: tuple[str, ...]
    capacity_bps: float
    rtt_s: float
    loss: float
    layer: str

    @property
    def hops(self) -> tuple[tuple[str, str], ...]:
        """The directed links of the path, in order."""
        return tuple(pairwise(self.nodes))


class Topology:
    """A validated, unchangeable network."""

    def __init__(self, nodes: Iterable[Node], links: Iterable[Link]) -> None:
        """Raises InputError for duplicates, unknown ends, self-loops and bad quantities."""
        self.nodes: dict[str, Node] = {}
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
        for link in links:
            self._add_link(link)

    def _add_link(self, link: Link) -> None:
        label = f"topology: link {link.a}-{link.b}"
        for end in (link.a, link.b):
            if end not in self.nodes:
                raise InputError(f"{label} ends at {end!r}, which is no node of the topology")
        if link.a == link.b:
            raise InputError(f"{label} joins a node with itself")
        key = frozenset((link.a, link.b))
        if key in self._links:
            raise InputError(f"{label} is listed twice")
        if not (math.isfinite(link.capacity_bps) and link.capacity_bps > 0):
            raise InputError(f"{label}: capacity {link.capacity_bps!r}, expected more than 0 b/s")
        if not (math.isfinite(link.delay_s) and link.delay_s >= 0):
            raise InputError(f"{label}: delay {link.delay_s!r}, expected 0 s or more")
        if not 0 <= link.loss < 1:
            raise InputError(f"{label}: loss {link.loss!r}, expected a fraction in [0, 1)")
        if link.layer not in LAYERS:
            raise InputError(f"{label}: layer {link.layer!r}, expected one of {', '.join(LAYERS)}")
        self._links[key] = link
        self._graph.add_edge(link.a, link.b, delay=link.delay_s)

    @property
    def links(self) -> list[Link]:
        """All links, in the order they were given."""
        return list(self._links.values())

    @property
    def sites(self) -> list[str]:
        """The names of all sites, in the order they were given."""
        return [n.name for n in self.nodes.values() if n.kind == "site"]

    def link(self, a: str, b: str) -> Link:
        """The link between two neighbours. Raises InputError where there is none."""
        try:
            return self._links[frozenset((a, b))]
        except KeyError:
            raise InputError(f"topology: no link between {a!r} and {b!r}") from None

    def site(self, name: str) -> Node:
        """A site's node. Raises InputError for an unknown name."""
        node = self.nodes.get(name)
        if node is None or node.kind != "site":
            raise InputError(
                f"unknown site {name!r}, expected one of {', '.join(self.sites) or '(none)'}"
            )
        return node

    def path(self, nodes: Sequence[str]) -> Path:
        """The path along ``nodes`` with its bottleneck, RTT, loss and layer."""
        links = [self.link(a, b) for a, b in pairwise(nodes)]
        layers = {link.layer for link in links}
        layer = "l3" if "l3" in layers else "l2" if "l2" in layers else "lan"
        passed = math.prod(1 - link.loss for link in links)
        return Path(
            tuple(nodes),
            min((link.capacity_bps for link in links), default=math.inf),
            2 * sum(link.delay_s for link in links),
            1 - passed,
            layer,
        )

    def candidate_paths(self, src: str, dst: str, limit: int = 8) -> list[Path]:
        """Up to ``limit`` loop-free paths between two sites, fewest seconds of delay first.

        No path leads through a third site. Raises InputError for unknown sites; an empty list where
        the sites are not joined.
        """
        self.site(src)
        self.site(dst)
        if src == dst:
            return []
        other_sites = [s for s in self.sites if s not in (src, dst)]
        # A copy: the search reads it many times, and a view asks its filters at every step.
        graph = nx.Graph(nx.restricted_view(self._graph, other_sites, []))
        try:
            found = list(islice(nx.shortest_simple_paths(graph, src, dst, weight="delay"), limit))
        except nx.NetworkXNoPath:
            return []
        return [self.path(nodes) for nodes in found]


def topology_from_dict(data: Mapping[str, Any]) -> Topology:
    """Build a topology from the ``topology`` section of adon.yml.

    ``{"nodes": [{name, kind, address?, mac?, dpid?, macs?}], "links": [{a, b, capacity, delay?,
    loss?, layer?, ports?, devices?}]}``; capacities and delays carry units. Raises InputError.
    """
    fields.known_keys(data, ("nodes", "links"), "topology")
    nodes = [_node(item) for item in fields.items(data, "nodes", "topology")]
    return Topology(nodes, [_link(item) for item in fields.items(data, "links", "topology")])


def _node(item: Mapping[str, Any]) -> Node:
    name = fields.text(item, "name", "topology: a node")
    label = f"topology: node {name!r}"
    fields.known_keys(item, ("name", "kind", "address", "mac", "dpid", "macs"), label)
    return Node(
        name,
        fields.text(item, "kind", label),
        fields.address(item.get("address", ""), f"{label}: address"),
        fields.mac(item.get("mac", ""), f"{label}: mac"),
        fields.whole(item.get("dpid", 0), f"{label}: dpid", 2**64 - 1),
        fields.mapping(item, "macs", label, fields.mac),
    )


def _link(item: Mapping[str, Any]) -> Link:
    a, b = (fields.text(item, end, "topology: a link") for end in ("a", "b"))
    label = f"topology: link {a}-{b}"
    known = ("a", "b", "capacity", "delay", "loss", "layer", "ports", "devices")
    fields.known_keys(item, known, label)
    if "capacity" not in item:
        raise InputError(f"{label} has no capacity, expected for example '200 Mb/s'")
    ports = fields.mapping(item, "ports", label, lambda v, what: fields.whole(v, what, 2**32 - 1))
    devices = fields.mapping(item, "devices", label, fields.name)
    for key, given in (("ports", ports), ("devices", devices)):
        for end in given or ():
            if end not in (a, b):
                raise InputError(f"{label}: {key} names {end!r}, expected {a!r} or {b!r}")
    return Link(
        a,
        b,
        capacity_bps=parse_rate(item["capacity"], f"{label}: capacity"),
        delay_s=parse_duration(item.get("delay", 0), f"{label}: delay"),
        loss=fields.number(item.get("loss", 0.0), f"{label}: loss", "a fraction in [0, 1)"),
        layer=fields.name(item.get("layer", "lan"), f"{label}: layer"),
        ports=ports,
        devices=devices,
    )
