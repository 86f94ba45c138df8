"""Rules of others that take packets before ours do. Pure.

They are left alone: it is their owner who knows what they are for. But what they take, no circuit
and no best-effort route of ours carries.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import lru_cache
from ipaddress import ip_network
from typing import Any

from network_provisioner.controllers.openflow.wire import PARSER, FlowEntry, read_ends
from network_provisioner.controllers.rules import PORT_BITS, FlowRule

MOST = 20
"""Of more rules than these, the first are looked at."""
_ENDS = {
    "ipv4_src": "src", "ipv4_dst": "dst", "ipv6_src": "src", "ipv6_dst": "dst", "arp_spa": "src",
    "arp_tpa": "dst",
}  # fmt: skip
_PORTS = {f"{p}_{end}": f"{end}_port" for p in ("tcp", "udp") for end in ("src", "dst")}
_KNOWN = {"eth_type", "in_port", "ip_proto", "ip_dscp", *_ENDS, *_PORTS}


def in_front(others: Iterable[FlowEntry], ours: Sequence[FlowRule]) -> FlowEntry | None:
    """The first of ``others`` that comes before one of our rules and may meet the same packets. One
    that looks at what our rules do not, such as MAC addresses, is passed over: it may be for other
    packets."""
    for entry in sorted(others, key=lambda e: -e.priority)[:MOST]:
        match = _match(entry.contents)
        if match is not None and any(
            entry.priority > rule.priority and _overlap(match, rule) for rule in ours
        ):
            return entry
    return None


@lru_cache(maxsize=10_000)
def _match(contents: bytes) -> dict[str, Any] | None:
    """What it looks at; None for what cannot be read, or our rules do not look at."""
    try:
        found = dict(PARSER.OFPMatch.parser(contents, 0).items())
    except Exception:  # the library's decoders raise whatever a wrong length leads them to
        return None
    return found if found.keys() <= _KNOWN else None


def _overlap(match: dict[str, Any], rule: FlowRule) -> bool:
    eth_type, ip_protocol = rule.packets
    own = {"eth_type": eth_type, "ip_proto": ip_protocol, "ip_dscp": rule.mark}
    own["in_port"] = rule.in_port or None
    for name, value in match.items():
        if name in own:
            if own[name] is not None and own[name] != value:
                return False
        elif name in _ENDS:
            if not _meet(value, getattr(rule, _ENDS[name])):
                return False
        elif (port := getattr(rule, _PORTS[name])) is not None:
            theirs, mask = value if isinstance(value, tuple) else (value, PORT_BITS)
            if (theirs ^ port[0]) & mask & port[1]:
                return False
    return True


def _meet(theirs: Any, own: str) -> bool:
    with suppress(ValueError):  # a mask with holes
        return ip_network(read_ends(theirs)).overlaps(ip_network(own))
    return False
