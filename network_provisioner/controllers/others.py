"""Rules of others that take packets before ours do. Pure.

They are left alone: it is their owner who knows what they are for. But what they take, no circuit
and no best-effort route of ours carries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from ipaddress import ip_network
from itertools import islice
from typing import Any, NamedTuple

from network_provisioner.controllers.rules import PORT_BITS, FlowRule

MOST = 20
"""Of more rules than these that look at no more than ours, the first are looked at."""
_MOST_READ = 1000
Match = Mapping[str, Any]
"""What a rule looks at, by OpenFlow's names; addresses are prefixes, a port may have a mask."""
ENDS = {
    "ipv4_src": "src", "ipv4_dst": "dst", "ipv6_src": "src", "ipv6_dst": "dst", "arp_spa": "src",
    "arp_tpa": "dst",
}  # fmt: skip
PORTS = {f"{p}_{end}": f"{end}_port" for p in ("tcp", "udp") for end in ("src", "dst")}
_KNOWN = {"eth_type", "in_port", "ip_proto", "ip_dscp", *ENDS, *PORTS}


class OtherRule(NamedTuple):
    """A rule that is not ours; ``contents`` say what it looks at, as its driver has it."""

    priority: int
    cookie: int
    contents: Any


def in_front(
    others: Sequence[OtherRule], ours: Iterable[FlowRule], match_of: Callable[[Any], Match | None]
) -> str:
    """In words, the first of ``others`` that comes before one of our rules, or beside it, where a
    switch takes either, and may meet the same packets; "" for none. One that looks at what our
    rules do not, such as MAC addresses, or whose match cannot be read (None), is passed over: it
    may be for other packets."""
    rules = list(ours) if others else []
    first = islice(sorted(others, key=lambda e: -e.priority), _MOST_READ)
    ordered = ((entry, match_of(entry.contents)) for entry in first)
    alike = ((e, match) for e, match in ordered if match is not None and match.keys() <= _KNOWN)
    for entry, match in islice(alike, MOST):
        met = [r.priority for r in rules if entry.priority >= r.priority and _overlap(match, r)]
        if met:
            where = "before" if min(met) < entry.priority else "beside"
            return (
                f"has a rule of somebody else {where} ours, cookie {entry.cookie:#x}, priority "
                f"{entry.priority}: what it takes gets no path of ours"
            )
    return ""


def _overlap(match: Match, rule: FlowRule) -> bool:
    eth_type, ip_protocol = rule.packets
    own = {"eth_type": eth_type, "ip_proto": ip_protocol, "ip_dscp": rule.mark}
    own["in_port"] = rule.in_port or None
    for name, value in match.items():
        if name in own:
            if own[name] is not None and own[name] != value:
                return False
        elif name in ENDS:
            if not _meet(value, getattr(rule, ENDS[name])):
                return False
        elif (port := getattr(rule, PORTS[name])) is not None:
            theirs, mask = value if isinstance(value, tuple) else (value, PORT_BITS)
            if (theirs ^ port[0]) & mask & port[1]:
                return False
    return True


def _meet(theirs: str, own: str) -> bool:
    with suppress(ValueError, TypeError):  # a mask with holes, no address of ours
        return ip_network(theirs).overlaps(ip_network(own))
    return False
