"""What tells one transfer's packets from others between the same two hosts: protocol and ports.

A data channel is encrypted, so nobody on the way can see whose it is; but the application knows its
ports and says them (application-aware SDN paper, §III.A). A transit without flows means all traffic
between its two sites.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from network_provisioner.base import fields
from network_provisioner.base.errors import InputError

PROTOCOLS = ("tcp", "udp")
MAX_FLOWS = 16  # of one transit: each is a rule on every switch of its path
Ports = tuple[int, int]


@dataclass(frozen=True, slots=True, order=True)
class Flow:
    """Packets from source to destination with these ports, and the answers to them.

    ``src_ports`` and ``dst_ports`` are ranges with both ends, None for any port.
    """

    protocol: str = "tcp"
    src_ports: Ports | None = None
    dst_ports: Ports | None = None

    def as_dict(self) -> dict[str, Any]:
        """A JSON-ready copy; :func:`flow_from_dict` is the inverse."""
        out: dict[str, Any] = {"protocol": self.protocol}
        for name in ("src_ports", "dst_ports"):
            ports = getattr(self, name)
            if ports is not None:
                out[name] = list(ports)
        return out


def flow_from_dict(data: Mapping[str, Any], what: str = "flow") -> Flow:
    """``{protocol?, src_ports?: port | [first, last], dst_ports?: …}``. Raises InputError."""
    fields.known_keys(data, ("protocol", "src_ports", "dst_ports"), what)
    protocol = data.get("protocol", "tcp")
    if protocol not in PROTOCOLS:
        raise InputError(f"{what}: protocol is {protocol!r}, expected {' or '.join(PROTOCOLS)}")
    flow = Flow(
        protocol,
        _ports(data.get("src_ports"), f"{what}: src_ports"),
        _ports(data.get("dst_ports"), f"{what}: dst_ports"),
    )
    if flow.src_ports is None and flow.dst_ports is None:
        raise InputError(f"{what} names no port, expected src_ports or dst_ports")
    return flow


def _ports(value: object, what: str) -> Ports | None:
    if value is None:
        return None
    ends = value if isinstance(value, list | tuple) else (value, value)
    if len(ends) != 2:
        raise InputError(f"{what} is {value!r}, expected a port or [first, last]")
    first, last = (fields.whole(end, what, 65535) for end in ends)
    if not 0 < first <= last:
        raise InputError(f"{what} is {value!r}, expected ports above 0, the first not the larger")
    return first, last
