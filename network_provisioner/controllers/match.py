"""What rules look at, by OpenFlow's names; and rules of others that take packets before ours do.
Pure.

Rules of others are left alone: it is their owner who knows what they are for. But what they take,
no circuit and no best-effort route of ours carries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from ipaddress import ip_network
from itertools import islice
from typing import Any, NamedTuple

from network_provisioner.controllers.rules import IPV6, PROTOCOLS, FlowRule

MOST = 20
"""Of more rules than these that look at no more than ours, the first are looked at."""
_MOST_READ = 1000
Match = Mapping[str, Any]
"""What a rule looks at, by OpenFlow's names; addresses are prefixes, a port is a value under a
mask."""
# The source and the destination, by Ethernet type.
_ENDS = {
    0x0800: ("ipv4_src", "ipv4_dst"),
    0x0806: ("arp_spa", "arp_tpa"),
    IPV6: ("ipv6_src", "ipv6_dst"),
}
ENDS = frozenset(name for names in _ENDS.values() for name in names)
PORTS = frozenset({"tcp_src", "tcp_dst", "udp_src", "udp_dst"})
_KNOWN = {"eth_type", "in_port", "ip_proto", "ip_dscp", *ENDS, *PORTS}


def match_of(rule: FlowRule) -> dict[str, Any]:
    """What a rule of ours looks at."""
    eth_type, ip_protocol = rule.packets
    match = {
        "eth_type": eth_type,
        "in_port": rule.in_port or None,
        "ip_proto": ip_protocol,
        "ip_dscp": rule.mark,
        f"{rule.protocol}_src": rule.src_port,
        f"{rule.protocol}_dst": rule.dst_port,
        **dict(zip(_ENDS.get(eth_type, ()), (rule.src, rule.dst), strict=False)),
    }
    return {name: value for name, value in match.items() if value is not None}


def rule_fields(match: Match) -> dict[str, Any] | None:
    """The fields of the rule that looks at this; None where none of ours would."""
    rest = dict(match)
    eth_type = rest.pop("eth_type", None)
    protocol = PROTOCOLS.get((eth_type, rest.pop("ip_proto", None)))
    if protocol is None:
        return None
    try:
        prefixes = [ip_network(rest.pop(name)) for name in _ENDS.get(eth_type, ())]
    except (KeyError, ValueError):
        return None
    src, dst = (
        (str(p[0] if p.num_addresses == 1 else p) for p in prefixes) if prefixes else ("", "")
    )
    fields = {
        "protocol": protocol,
        "src": src,
        "dst": dst,
        "in_port": rest.pop("in_port", 0),
        "mark": rest.pop("ip_dscp", None),
        "src_port": rest.pop(f"{protocol}_src", None),
        "dst_port": rest.pop(f"{protocol}_dst", None),
    }
    return None if rest else fields


class OtherRule(NamedTuple):
    """A rule that is not ours; ``contents`` say what it looks at, as its driver has it."""

    priority: int
    cookie: int
    contents: Any


def in_front(
    others: Sequence[OtherRule], ours: Iterable[FlowRule], read: Callable[[Any], Match | None]
) -> str:
    """In words, the first of ``others`` that comes before one of our rules, or beside it, where a
    switch takes either, and may meet the same packets; "" for none. One that looks at what our
    rules do not, such as MAC addresses, or whose match cannot be read (None), is passed over: it
    may be for other packets."""
    rules = list(ours) if others else []
    first = islice(sorted(others, key=lambda e: -e.priority), _MOST_READ)
    matches = ((entry, read(entry.contents)) for entry in first)
    alike = ((e, match) for e, match in matches if match is not None and match.keys() <= _KNOWN)
    for entry, match in islice(alike, MOST):
        below = (rule for rule in rules if rule.priority <= entry.priority)
        met = [rule.priority for rule in below if _overlap(match, match_of(rule))]
        if met:
            where = "before" if min(met) < entry.priority else "beside"
            return (
                f"has another program's rule {where} ADON's, cookie {entry.cookie:#x}, priority "
                f"{entry.priority}: packets that it matches get no path"
            )
    return ""


def _overlap(match: Match, own: Match) -> bool:
    """Whether a packet may meet both."""
    return all(_agree(name, match[name], own[name]) for name in match.keys() & own.keys())


def _agree(name: str, theirs: Any, own: Any) -> bool:
    if name in ENDS:
        with suppress(ValueError, TypeError):  # no address of ours
            return ip_network(theirs).overlaps(ip_network(own))
        return False
    if name in PORTS:
        return not (theirs[0] ^ own[0]) & theirs[1] & own[1]
    return bool(theirs == own)
