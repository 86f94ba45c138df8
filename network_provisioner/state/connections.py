"""TCP connections of transfers, as the agents of their hosts report them: which transit those of
transfer servers belong to, and what all of them do at their senders. No effects.

A client that has two servers move a file connects to each from a port of the transfer's block
(:mod:`~.state.pairs`). The server's process that answers it opens the data connections: so they are
the transfer's, whatever their own ports are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from ipaddress import ip_address, ip_network

from network_provisioner.base.errors import InputError
from network_provisioner.base.flows import MAX_FLOWS, Flow
from network_provisioner.base.model import AgreedRequest, Transit
from network_provisioner.base.units import bits, format_rate
from network_provisioner.state.pairs import PortBlocks
from network_provisioner.topology.graph import Topology

FRESH_S = 30.0  # an agent reports more often, also when nothing is open
KEPT_S = 15.0  # how long a report of what sockets did counts
MOST_SOCKETS = 1_000  # of one report
_BEYOND = 2.0  # times what a site's links carry: no host sent that
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


@dataclass(frozen=True, slots=True)
class SocketPeriod:
    """What a connection did in ``seconds`` at the end that sends: ``local`` and ``remote`` are
    address and port.

    ``acked_bytes`` arrived at the other end. ``busy`` is the share of the time in which data was on
    its way or waited; in ``window`` of it the receiver took no more, in ``buffer`` the sender's
    buffer was too small. ``waiting``: at its end, data waited to be sent. ``paced_bps`` is what its
    program lets it send, 0 where that is not limited.
    """

    local: End
    remote: End
    seconds: float
    acked_bytes: int
    busy: float
    window: float
    buffer: float
    waiting: bool
    paced_bps: float = 0.0


@dataclass(frozen=True, slots=True)
class Sender:
    """What the connections of a transit did over some seconds: the rate at which data arrived
    (b/s), and the mean of the shares of :class:`SocketPeriod`, where a connection that was not
    reported did nothing."""

    acked_bps: float
    busy: float
    window: float
    buffer: float
    waiting: float
    paced_bps: float = 0.0


_Sent = tuple[float, dict[str, list[SocketPeriod]]]
"""When it came (Unix seconds), and what was sent, by the site that it was sent to."""


class ReportedSockets:
    """What agents reported last, by site and agent. Not thread-safe."""

    def __init__(self, topology: Topology) -> None:
        self._site = site_of(topology)
        self._carries = dict.fromkeys(topology.sites, 0.0)
        for link in topology.whole_links:
            for end in {link.a, link.b} & self._carries.keys():
                self._carries[end] += link.capacity_bps
        self._reports: dict[str, dict[str, list[_Sent]]] = {}

    def take_in(self, agent: str, site: str, periods: Iterable[SocketPeriod], now: float) -> None:
        """What the host of an agent at a site sent since its last report. An agent speaks for its
        own site. Raises InputError, and takes nothing in, for more than the site's links carry."""
        site_at = cache(self._site)
        own: dict[str, list[SocketPeriod]] = {}
        for period in periods:
            if site_at(period.local[0]) == site:
                own.setdefault(site_at(period.remote[0]), []).append(period)
        others = own.keys() - {site, ""}
        self._check(site, [period for other in others for period in own[other]])
        reports = {  # old ones are forgotten, as hosts may not return
            name: fresh
            for name, sent in self._reports.get(site, {}).items()
            if (fresh := [(at, periods) for at, periods in sent if 0 <= now - at < KEPT_S])
        }
        reports.setdefault(agent, []).append((now, own))
        self._reports[site] = reports

    def _check(self, site: str, periods: Iterable[SocketPeriod]) -> None:
        sent_bps = sum(bits(p.acked_bytes) / max(p.seconds, 1.0) for p in periods)
        most_bps = self._carries.get(site, math.inf)
        if sent_bps > _BEYOND * most_bps:
            raise InputError(
                f"found {format_rate(sent_bps)} sent, expected at most the {format_rate(most_bps)} "
                f"that the links of {site} carry"
            )

    def sender(
        self, transit: Transit, since: float, until: float, others: Sequence[Transit] = ()
    ) -> Sender | None:
        """What the connections of a transit did from one Unix second to another, those left out
        that ``others`` of its two sites name; None where nobody reported any, or nothing of the
        latter half of that time."""
        counted: list[tuple[SocketPeriod, float]] = []  # and the seconds of each that count
        last = since
        for reports in self._reports.get(transit.request.src, {}).values():
            lately = [
                (at, sent.get(transit.request.dst, ()))
                for at, sent in reports
                if since < at <= until
            ]
            own = [
                (period, min(period.seconds, at - since))
                for at, periods in lately
                for period in periods
                if _carried(period, transit.request)
                and not any(_carried(period, other.request) for other in others)
            ]
            if own:
                counted += own
                last = max(last, lately[-1][0])
        seconds = last - since
        if not counted or seconds < (until - since) / 2:
            return None
        connections = {(p.local, p.remote): p.paced_bps for p, _ in counted}

        def mean(values: Iterable[float]) -> float:
            sums = sum(v * s for v, (_, s) in zip(values, counted, strict=True))
            return sums / (seconds * len(connections))

        acked = sum(p.acked_bytes * s / p.seconds for p, s in counted)
        return Sender(
            bits(acked) / seconds,
            mean(p.busy for p, _ in counted),
            mean(p.window for p, _ in counted),
            mean(p.buffer for p, _ in counted),
            mean(float(p.waiting) for p, _ in counted),
            sum(connections.values()) if all(connections.values()) else 0.0,
        )


def _carried(period: SocketPeriod, request: AgreedRequest) -> bool:
    """Whether a connection is among what a request means; all of its two sites are where it names
    neither hosts nor flows."""

    def within(port: int, ports: tuple[int, int] | None) -> bool:
        return ports is None or ports[0] <= port <= ports[1]

    hosts = period.local[0], period.remote[0]
    if request.hosts not in ((), hosts):
        return False
    return not request.flows or any(
        flow.protocol == "tcp"
        and within(period.local[1], flow.src_ports)
        and within(period.remote[1], flow.dst_ports)
        for flow in request.flows
    )


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
