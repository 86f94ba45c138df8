"""Which transit the connections of transfer servers belong to, as their hosts' agents see them.

A client that has two servers move a file connects to each from a port of the transfer's block
(:mod:`~.state.ports`). The server's process that answers it opens the data connections: so
they are the transfer's, whatever their own ports are. No effects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from ipaddress import ip_address, ip_network

from network_provisioner.base.flows import MAX_FLOWS, Flow
from network_provisioner.base.model import Transit
from network_provisioner.state.ports import PortBlocks
from network_provisioner.topology.graph import Topology

FRESH_S = 30.0  # an agent reports more often, also when nothing is open
End = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Connection:
    """A TCP connection of a server's process: its two ends as address and port, and the port that
    the client of the process comes from."""

    client_port: int
    local: End
    remote: End


@dataclass(frozen=True, slots=True)
class _Report:
    """What one agent said last: source and destination ports of each transit's connections."""

    site: str
    at: float
    ends: dict[str, set[tuple[int, int]]]


class ReportedConnections:
    """What agents reported last. Not thread-safe."""

    def __init__(self, topology: Topology, ports: PortBlocks) -> None:
        self._site = site_of(topology)
        self._ports = ports
        self._last: dict[str, _Report] = {}

    def reports(self, site: str, now: float) -> bool:
        """Whether the connections of a site's servers are reported these days."""
        return any(r.site == site and now - r.at < FRESH_S for r in self._last.values())

    def take_in(
        self,
        agent: str,
        site: str,
        connections: Iterable[Connection],
        now: float,
        transits: Mapping[str, Transit],
    ) -> dict[str, list[Flow]]:
        """All that is open now on the host of an agent at a site; the flows of every transit that
        has any there, also by what other agents reported."""
        site_at = cache(self._site)
        here: dict[str, set[tuple[int, int]]] = {}
        for connection in connections:
            (near, port), (far, other_port) = connection.local, connection.remote
            if site_at(near) != site:  # an agent speaks for its own site
                continue
            holder = self._ports.holder(site, site_at(far), connection.client_port)
            if holder is not None and holder in transits:
                at_source = transits[holder].request.src == site
                ends = (port, other_port) if at_source else (other_port, port)
                here.setdefault(holder, set()).add(ends)
        fresh = {name: r for name, r in self._last.items() if now - r.at < FRESH_S}
        self._last = fresh | {agent: _Report(site, now, here)}
        return {
            holder: flows_of_ports(
                sorted(set().union(*(r.ends.get(holder, ()) for r in self._last.values())))
            )
            for holder in here
        }


def site_of(topology: Topology) -> Callable[[str], str]:
    """Gives the site with the longest prefix of an address, "" for none."""
    sites = [
        (ip_network(host.address), site)
        for site in topology.sites
        for host in topology.site(site).hosts
    ]

    def find(address: str) -> str:
        known = [(net.prefixlen, site) for net, site in sites if ip_address(address) in net]
        return max(known)[1] if known else ""

    return find


def flows_of_ports(ends: Sequence[tuple[int, int]]) -> list[Flow]:
    """Flows for the source and destination ports of connections, as few as can be: all streams of a
    transfer come to the port at which one of its servers listens."""
    sources, targets = sorted({s for s, _ in ends}), sorted({t for _, t in ends})
    if len(targets) <= len(sources):
        flows = [Flow("tcp", dst_ports=(port, port)) for port in targets]
    else:
        flows = [Flow("tcp", src_ports=(port, port)) for port in sources]
    return flows[:MAX_FLOWS]
