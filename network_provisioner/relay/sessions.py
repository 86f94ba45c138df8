"""What both agents of a relayed transit know of it, and what an agent says of itself. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from ipaddress import ip_address, ip_network
from typing import Any

from network_provisioner.base.flows import Flow, flow_from_dict

VERSION = 1  # of what agents say to each other and to the broker
Address = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Session:
    """The connections of one transit, as one of its two agents serves them.

    ``near`` and ``far`` are the addresses, or prefixes, of the hosts on this agent's side and on
    the other's. ``flows`` name packets as data flows, from ``near`` where the ``source_here``;
    empty: all TCP. The ``peer`` (its name, and data-plane address) takes streams at ``port``, and
    so does this one. Each connection is carried by ``streams`` connections with a ``congestion``
    control and buffers of ``buffer_bytes``, paced at ``rate_bps`` together, in chunks of at most
    ``chunk_bytes``, by TLS where ``tls``. ``secret`` (hexadecimal) tells that a stream is of this
    session. At Unix second ``until`` it ends.
    """

    id: str
    near: tuple[str, ...]
    far: tuple[str, ...]
    source_here: bool
    peer: str
    peer_address: str
    port: int
    secret: str = field(repr=False)
    flows: tuple[Flow, ...] = ()
    streams: int = 1
    congestion: str = "bbr"
    buffer_bytes: int = 1 << 24
    chunk_bytes: int = 1 << 18
    rate_bps: float = math.inf
    tls: bool = False
    until: float = math.inf

    def carries(self, client: Address, server: Address, here: bool) -> bool:
        """Whether a connection is one of its own: ``here`` where the client is on this side."""
        sides = (self.near, self.far) if here else (self.far, self.near)
        if not all(map(_among, (client[0], server[0]), sides)):
            return False
        from_client = here == self.source_here  # else data flows from the server's side
        ports = (client[1], server[1]) if from_client else (server[1], client[1])
        return not self.flows or any(
            _within(ports[0], flow.src_ports) and _within(ports[1], flow.dst_ports)
            for flow in self.flows
        )

    def opens_like(self, other: Session) -> bool:
        """Whether streams of both are opened alike, to the same agent: what was opened for one can
        serve the other."""
        mine, its = (
            replace(it, near=(), far=(), flows=(), secret="", rate_bps=0.0, until=0.0)
            for it in (self, other)
        )
        return mine == its

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready; an unbounded rate or end is left out."""
        out = {key: value for key, value in asdict(self).items() if value != math.inf}
        return out | {"flows": [flow.as_dict() for flow in self.flows]}


def session_from_dict(data: Mapping[str, Any]) -> Session:
    """The inverse of :meth:`Session.as_dict`. Raises InputError, KeyError, TypeError."""
    lists = {key: tuple(data[key]) for key in ("near", "far")}
    flows = tuple(flow_from_dict(flow) for flow in data["flows"])
    return Session(**{**data, **lists, "flows": flows})


@dataclass(frozen=True, slots=True)
class AgentStatus:
    """What an agent says of itself with each poll: the ``revision`` of the sessions that it has,
    why it is ``unready`` in words ("" where it is not), whether it has what streams by ``tls``
    need, and its open connections by session."""

    revision: int = 0
    unready: str = ""
    version: int = VERSION
    tls: bool = False
    connections: Mapping[str, int] = field(default_factory=dict)


def _among(address: str, hosts: Iterable[str]) -> bool:
    return any(ip_address(address) in ip_network(host) for host in hosts)


def _within(port: int, ports: tuple[int, int] | None) -> bool:
    return ports is None or ports[0] <= port <= ports[1]
