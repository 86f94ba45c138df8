"""Which transit the connections of transfer servers belong to, as their hosts' agents see them.

A client that has two servers move a file connects to each from a port of the transfer's block
(:mod:`~.reservations.ports`). The server's process that answers it opens the data connections: so
they are the transfer's, whatever their own ports are. No effects.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address, ip_network

from network_provisioner.base.flows import MAX_FLOWS, Flow
from network_provisioner.base.model import Transit
from network_provisioner.reservations.ports import PortBlocks
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
    """What one agent said last, and of which transits the connections are."""

    site: str
    at: float
    held: tuple[tuple[str, Connection], ...]


class ReportedConnections:
    """What agents reported last. Not thread-safe."""

    def __init__(self, topology: Topology, ports: PortBlocks) -> None:
        self._sites = [
            (ip_network(host.address), site)
            for site in topology.sites
            for host in topology.site(site).hosts
        ]
        self._ports = ports
        self._last: dict[str, _Report] = {}

    def reports(self, site: str, now: float) -> bool:
        """Whether the connections of a site's servers are reported these days."""
        return any(r.site == site and now - r.at < FRESH_S for r in self._last.values())

    def take_in(
        self,
        agent: str,
        site: str,
        found: Iterable[Connection],
        now: float,
        transits: Mapping[str, Transit],
    ) -> dict[str, list[Flow]]:
        """All that is open now on the host of an agent at a site; the flows of every transit that
        has any there, also by what other agents reported."""
        held = [(holder, c) for c in found if (holder := self._holder(c, site)) in transits]
        self._last[agent] = _Report(site, now, tuple(held))
        here = {holder for holder, _ in held}
        ends: dict[str, set[tuple[int, int]]] = {}
        for report in self._last.values():
            for holder, connection in report.held:
                if holder in here and now - report.at < FRESH_S:
                    local = self._site(connection.local[0])
                    pair = _ports_of(connection, local == transits[holder].src)
                    ends.setdefault(holder, set()).add(pair)
        return {holder: named(sorted(pairs)) for holder, pairs in ends.items()}

    def _holder(self, connection: Connection, site: str) -> str:
        if self._site(connection.local[0]) != site:  # an agent speaks for its own site
            return ""
        other = self._site(connection.remote[0])
        return self._ports.holder(site, other, connection.client_port) or ""

    def _site(self, address: str) -> str:
        """The site with the longest prefix of an address, "" for none."""
        found = ip_address(address)
        known = [(net.prefixlen, site) for net, site in self._sites if found in net]
        return max(known)[1] if known else ""


def named(ends: Sequence[tuple[int, int]]) -> list[Flow]:
    """Flows for the source and destination ports of connections, as few as can be: all streams of a
    transfer come to the port at which one of its servers listens."""
    sources, targets = sorted({s for s, _ in ends}), sorted({t for _, t in ends})
    if len(targets) <= len(sources):
        flows = [Flow("tcp", dst_ports=(port, port)) for port in targets]
    else:
        flows = [Flow("tcp", src_ports=(port, port)) for port in sources]
    return flows[:MAX_FLOWS]


def _ports_of(connection: Connection, at_source: bool) -> tuple[int, int]:
    local, remote = connection.local[1], connection.remote[1]
    return (local, remote) if at_source else (remote, local)
