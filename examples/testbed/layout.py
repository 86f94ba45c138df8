"""What a testbed is made of, as one value: sites, links, the traffic of others. No effects.

Network, data transfer nodes, pool, names and the broker's topology are all made from it::

    Layout(
        sites=(Site("mu", 1, "s1", workers=2), Site("tacc", 2, "s2", workers=4)),
        links=(Link("l2", "s1", "s2", 200e6, 0.0265), Link("l3", "s1", "s2", 20e6, 0.0265, True)),
    )

Beside this data plane every site has a management link to the hub, for HTCondor and OpenFlow, so
that control never competes with the transfers that are measured.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import networkx as nx

from network_provisioner.base.units import format_rate

HUB = "local"
"""The site that is the submit host; it lives in the box's own network namespace."""

HUB_ADDRESS = "10.254.0.1"
"""Where the hub's daemons listen: reachable from every namespace over the management network."""

SWITCH_NETNS = "adon-sw"
_SWITCH_NUMBER = 9
_LAN = 16  # addresses of a LAN
_DTN = "dtn"
_FIRST_LINK_PORT = 10
OPENFLOW_LISTEN = f"10.254.{_SWITCH_NUMBER}.1:6653"
"""Where the OpenFlow controller has to listen."""
IN_SWITCHES = ("ip", "netns", "exec", SWITCH_NETNS)
"""The words before a command for it to see the switches' devices."""
CONTROLLER = {"driver": "openflow", "listen": OPENFLOW_LISTEN, "exec": list(IN_SWITCHES)}
"""The section ``controller`` of an adon.yml for the switches."""


@dataclass(frozen=True, slots=True)
class Host:
    """A host on a switch. Its name has two letters at least (one is for links), its number, from 1
    to 8, gives its addresses, its MAC and its port."""

    name: str
    number: int
    switch: str
    access_bps: float = 1e9

    @property
    def address(self) -> str:
        """Data-plane IPv4 address."""
        return f"10.10.0.{self.number}"

    @property
    def mac(self) -> str:
        """Data-plane Ethernet address."""
        return f"02:00:00:00:00:{self.number:02x}"

    @property
    def netns(self) -> str | None:
        """Its named network namespace; None for the hub, which has the box's own."""
        return None if self.name == HUB else f"adon-{self.name}"

    @property
    def port_device(self) -> str:
        """The device of its access link at its switch."""
        return f"{self.switch}-{self.name}"


@dataclass(frozen=True, slots=True)
class LanHost:
    """A further host of a site, number ``index`` on its LAN, from 1 to 15."""

    name: str
    site: Site
    index: int

    @property
    def address(self) -> str:
        """Data-plane IPv4 address."""
        return f"10.10.0.{_LAN * self.site.number + self.index}"

    @property
    def mac(self) -> str:
        """Data-plane Ethernet address."""
        return f"02:00:00:01:{self.site.number:02x}:{self.index:02x}"

    @property
    def netns(self) -> str:
        """Its named network namespace."""
        return f"adon-{self.site.name}-{self.name}"

    @property
    def dns_name(self) -> str:
        """Its host name."""
        return f"{self.name}.{self.site.name}.adon.test"

    @property
    def port_device(self) -> str:
        """The device of its link at the site's LAN."""
        return f"{self.site.lan}-{self.index}"


@dataclass(frozen=True, slots=True)
class Site(Host):
    """A site: a data transfer node, and ``workers`` that run jobs, N of the cost model.

    ``more`` names the further hosts on its LAN: ``dtn2`` and the like are data transfer nodes, all
    others worker nodes, among which the workers are then divided.
    """

    workers: int = 1
    more: tuple[str, ...] = ()

    @property
    def lan(self) -> str:
        """The bridge of its LAN."""
        return f"lan{self.number}"

    @property
    def lan_hosts(self) -> tuple[LanHost, ...]:
        """The further hosts, data transfer nodes first."""
        ordered = sorted(self.more, key=lambda name: not name.startswith(_DTN))
        return tuple(LanHost(name, self, n) for n, name in enumerate(ordered, 1))

    @property
    def data_nodes(self) -> tuple[LanHost, ...]:
        """Those of them that serve files."""
        return tuple(host for host in self.lan_hosts if host.name.startswith(_DTN))

    @property
    def worker_nodes(self) -> tuple[LanHost, ...]:
        """Those of them that run jobs."""
        return tuple(host for host in self.lan_hosts if not host.name.startswith(_DTN))

    @property
    def dtn(self) -> str:
        """The host name of its data transfer node."""
        return dtn_name(self.name)


@dataclass(frozen=True, slots=True)
class Relay(Host):
    """A host that carries connections of others, in their names. It has a management link."""


@dataclass(frozen=True, slots=True)
class Link:
    """A wide-area path between two switches, with its delay one way.

    It is a layer-2 overlay, or, where it is ``routed``, layer 3 over a router of its own.
    """

    name: str
    a: str
    b: str
    rate_bps: float
    delay_s: float
    routed: bool = False


@dataclass(frozen=True, slots=True)
class Traffic:
    """What two hosts of others send: at most ``rate_bps`` as long as the network is up, ``on_s`` at
    a time with ``off_s`` between. It goes where best effort goes, in so many ``streams`` of TCP,
    which give way, or by ``udp``, which does not."""

    src: str
    dst: str
    rate_bps: float
    udp: bool = False
    on_s: float = 0.0
    off_s: float = 0.0
    streams: int = 1


@dataclass(frozen=True, slots=True)
class Router:
    """The router in a routed link. ``macs``: its Ethernet address towards each of its switches."""

    name: str
    link: Link
    macs: dict[str, str]

    @property
    def netns(self) -> str:
        """Its named network namespace."""
        return f"adon-{self.name}"

    def device(self, switch: str) -> str:
        """Its device towards a switch."""
        return f"{self.name}-{'a' if switch == self.link.a else 'b'}"


@dataclass(frozen=True, slots=True)
class Layout:
    """A testbed. ``others`` are hosts that belong to no site, ``traffic`` is what they send;
    ``relays`` carry connections between sites.

    One of the sites must be the hub. Two switches have one link of each layer at most.
    """

    sites: tuple[Site, ...]
    links: tuple[Link, ...]
    others: tuple[Host, ...] = ()
    traffic: tuple[Traffic, ...] = ()
    relays: tuple[Relay, ...] = ()

    @property
    def hosts(self) -> tuple[Host, ...]:
        """Those of the sites and of others, and relays."""
        return (*self.sites, *self.others, *self.relays)

    @property
    def stations(self) -> tuple[Host | LanHost, ...]:
        """All hosts, those on LANs too."""
        return (*self.hosts, *(host for site in self.sites for host in site.lan_hosts))

    def host(self, name: str) -> Host:
        """By its name."""
        return next(host for host in self.hosts if host.name == name)

    def link(self, name: str) -> Link:
        """By its name."""
        return next(link for link in self.links if link.name == name)

    @property
    def switches(self) -> dict[str, int]:
        """Every switch that is named, with its datapath id."""
        named = {h.switch for h in self.hosts} | {end for k in self.links for end in (k.a, k.b)}
        return {name: dpid for dpid, name in enumerate(sorted(named), 1)}

    @property
    def routers(self) -> tuple[Router, ...]:
        """One for each routed link, r1 first."""
        routed = [link for link in self.links if link.routed]
        return tuple(
            Router(f"r{n}", link, {end: f"02:00:00:00:{10 + n:02x}:{side:02x}"
                                   for side, end in enumerate((link.a, link.b), 1)})
            for n, link in enumerate(routed, 1)
        )  # fmt: skip

    def port(self, link: Link, switch: str) -> int:
        """The port of a link at one of its switches."""
        return _FIRST_LINK_PORT + self._index(link, switch)

    def device(self, link: Link, switch: str) -> str:
        """The device of a link at one of its switches."""
        return f"{switch}-{'abcdefgh'[self._index(link, switch)]}"

    def _index(self, link: Link, switch: str) -> int:
        return [k for k in self.links if switch in (k.a, k.b)].index(link)

    def ports(self, switch: str) -> dict[int, str]:
        """A switch's ports, with the device of each."""
        ports = {h.number: h.port_device for h in self.hosts if h.switch == switch}
        links = [link for link in self.links if switch in (link.a, link.b)]
        return ports | {self.port(link, switch): self.device(link, switch) for link in links}

    def side_of(self, router: Router, host: Host) -> str:
        """The switch of ``router`` from which a host is nearer, by the delay of the other links."""
        rest = nx.Graph()
        rest.add_nodes_from(self.switches)
        for link in sorted(self.links, key=lambda link: -link.delay_s):
            if link is not router.link:  # of two between the same switches the faster one stays
                rest.add_edge(link.a, link.b, delay_s=link.delay_s)
        delays = nx.single_source_dijkstra_path_length(rest, host.switch, weight="delay_s")
        return min((router.link.a, router.link.b), key=lambda end: delays.get(end, math.inf))

    def hosts_lines(self) -> list[str]:
        """Lines for /etc/hosts: every address has a name, so no lookup leaves the box.

        Servers look up the names of their peers; without these each would wait for DNS.
        """
        lines = [f"{host.address} {dtn_name(host.name)}" for host in self.hosts]
        further = [host for site in self.sites for host in site.lan_hosts]
        lines += [f"{host.address} {host.dns_name}" for host in further]
        lines.append(f"{HUB_ADDRESS} hub.adon.test")
        for netns, number in self.managed().items():
            name = netns.removeprefix("adon-")
            lines.append(f"{hub_management_address(number)} hub-{name}.adon.test")
            lines.append(f"{management_address(number)} {name}.adon.test")
        return lines

    def managed(self) -> dict[str, int]:
        """The namespaces with a management link, and its number."""
        ends = (*self.sites, *self.relays)
        hosts = {host.netns: host.number for host in ends if host.netns}
        nodes = {
            node.netns: _LAN * site.number + node.index
            for site in self.sites
            for node in site.worker_nodes
        }
        return hosts | {SWITCH_NETNS: _SWITCH_NUMBER} | nodes

    def topology(self) -> dict[str, Any]:
        """As ``network_provisioner.topology.data.topology_from_dict`` and adon.yml have it."""
        nodes: list[dict[str, Any]] = [
            {
                "name": host.name,
                "kind": "relay" if isinstance(host, Relay) else "site",
                "address": host.address,
                "mac": host.mac,
            }
            for host in self.hosts
        ]
        for node, site in zip(nodes, self.sites, strict=False):
            if site.more:
                node["hosts"] = [
                    {"address": host.address, "mac": host.mac, "name": host.dns_name}
                    for host in site.lan_hosts
                ]
        nodes += [{"name": s, "kind": "switch", "dpid": dpid} for s, dpid in self.switches.items()]
        nodes += [{"name": r.name, "kind": "router", "macs": dict(r.macs)} for r in self.routers]
        access = [
            _joined(h.name, h.switch, "lan", h.access_bps, {h.switch: (h.number, h.port_device)})
            for h in self.hosts
        ]
        for link in access[len(self.sites) + len(self.others) :]:
            del link["devices"]
        return {
            "nodes": nodes,
            "links": access + [k for link in self.links for k in self._wide(link)],
        }

    def _wide(self, link: Link) -> Iterable[dict[str, Any]]:
        a, b = link.a, link.b
        ends = {end: (self.port(link, end), self.device(link, end)) for end in (a, b)}
        delay = {"delay": f"{link.delay_s * 1e3:g} ms"}
        if not link.routed:
            return [_joined(a, b, "l2", link.rate_bps, ends) | delay]
        (router,) = (r.name for r in self.routers if r.link is link)
        return [
            _joined(a, router, "l3", link.rate_bps, {a: ends[a]}) | delay,
            _joined(router, b, "l3", link.rate_bps, {b: ends[b]}),
        ]

    def __str__(self) -> str:
        kinds = (f"{k.name} {format_rate(k.rate_bps)} from {k.a} to {k.b}" for k in self.links)
        return f"{len(self.switches)} switches; {', '.join(kinds)}"


def dtn_name(site: str) -> str:
    """The host name of a site's data transfer node."""
    return f"dtn.{site}.adon.test"


def hub_management_address(number: int) -> str:
    """The hub's end of management link ``number``."""
    return f"10.254.{number}.1"


def management_address(number: int) -> str:
    """The far end of management link ``number``."""
    return f"10.254.{number}.2"


def _joined(
    a: str, b: str, layer: str, rate_bps: float, ends: dict[str, tuple[int, str]]
) -> dict[str, Any]:
    return {
        "a": a,
        "b": b,
        "layer": layer,
        "capacity": f"{rate_bps / 1e6:g} Mb/s",
        "ports": {switch: port for switch, (port, _) in ends.items()},
        "devices": {switch: device for switch, (_, device) in ends.items()},
    }
