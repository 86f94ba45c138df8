"""What a switch is told, as values: flow rules, and the groups and meters they refer to; and the
difference between what is on the switches and what should be. Pure; knows no OpenFlow library.

Cookies are 64 bits: 16 bits say whose rule it is, 48 bits are a hash of what it carries, so that
everything of ours can be found and removed by mask. Groups and meters have no cookie; the upper 16
of the 32 bits of their number say whose they are.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import lru_cache
from ipaddress import ip_network

Key = tuple[object, ...]
# A value and the bits of it that count.
Masked = tuple[int, int]

PORT_BITS = 0xFFFF
# What a switch says of a counter that it does not have (OpenFlow 1.3, 7.3.5).
UNCOUNTED = 2**64 - 1
# What packets a rule's protocol means: Ethernet type, and IP protocol where it has one. 0x88b6 is
# the second of IEEE 802's experimental types.
_PACKETS = {
    "ip": (0x0800, None),
    "tcp": (0x0800, 6),
    "udp": (0x0800, 17),
    "arp": (0x0806, None),
    "stamp": (0x88B6, None),
}
IPV6 = 0x86DD
PROTOCOLS = {packets: protocol for protocol, packets in _PACKETS.items()} | {
    (IPV6, number): protocol for protocol, (kind, number) in _PACKETS.items() if kind == 0x0800
}

TRANSIT_OWNER = 0xAD0E
ROUTE_OWNER = 0xAD0F
STAMP_OWNER = 0xAD0C
OWNER_SHIFT = 48
_NUMBER_SHIFT = 16
OWNER_MASK = 0xFFFF << OWNER_SHIFT
# All owners differ in the last two bits only: one mask finds them all.
ANY_OWNER_MASK = 0xFFFC << OWNER_SHIFT
OURS = TRANSIT_OWNER << OWNER_SHIFT
"""What our cookies have in common, under that mask."""
EVERY_BIT = 2**64 - 1
_PROBE_OWNER = 0xAD1D
PROBE_COOKIE = _PROBE_OWNER << OWNER_SHIFT
"""Of rules that show which links work. Those of a search have its number in the other bits."""
PROBE_RULE_S = 300
"""After so long such a rule ends by itself where nobody lays it anew."""

# Data of named flows, their acknowledgements, everything else between two sites with a circuit,
# best effort. Acknowledgements of one transfer may look like the data of another.
FLOW_PRIORITY = 250
FLOW_ACK_PRIORITY = 240
TRANSIT_PRIORITY = 200
# Added where a rule is for two hosts that a circuit names. One for a prefix has one less for each.
HOST_PRIORITY = 20
# Added where a rule is for one branch of several: during a split or join both rules are there.
BRANCH_PRIORITY = 5
# Added where a rule sends to a relay what a circuit would carry by itself.
REDIRECT_PRIORITY = 7
ROUTE_PRIORITY = 10
STAMP_PRIORITY = 1

# OpenFlow 1.3 section A.3.4.1: hard_timeout is 16 bits of seconds, 0 means never.
MAX_HARD_TIMEOUT_S = 65535
# A timeout counts whole seconds and is rounded up, and it counts from when the switch came to the
# rule: one of thousands, seconds after it was sent. Nearer than this is the same lease.
EARLIER_S, LATER_S = 1.5, 5.0


@dataclass(frozen=True, slots=True)
class Bucket:
    """One way of a select group: packets get the DSCP ``mark`` and leave by ``out_port``."""

    weight: int
    mark: int
    out_port: int
    eth_dst: str = ""
    queue: int = 0


@dataclass(frozen=True, slots=True)
class SelectGroup:
    """Sends each connection one of several ways, more of them where the weight is greater."""

    dpid: int
    number: int
    buckets: tuple[Bucket, ...]

    @property
    def key(self) -> Key:
        """What a switch tells groups apart by."""
        return (self.dpid, "group", self.number)


@dataclass(frozen=True, slots=True)
class Meter:
    """Drops what exceeds a rate."""

    dpid: int
    number: int
    rate_kbps: int
    burst_kbit: int

    @property
    def key(self) -> Key:
        """What a switch tells meters apart by."""
        return (self.dpid, "meter", self.number)


TableEntry = SelectGroup | Meter
"""What rules refer to; a switch must have it before the rule, and keeps it until after."""


def is_our_number(number: int) -> bool:
    """Whether a group or meter is one of ours."""
    return number >> _NUMBER_SHIFT == TRANSIT_OWNER


def is_our_cookie(cookie: int) -> bool:
    """Whether it is that of a rule of ours, but for probes."""
    return cookie & ANY_OWNER_MASK == OURS & ANY_OWNER_MASK


def is_probe_cookie(cookie: int) -> bool:
    """Whether it is that of a rule for probes, or of a search."""
    return cookie >> OWNER_SHIFT == _PROBE_OWNER


def our_numbers(texts: Iterable[str]) -> dict[str, int]:
    """A group's or meter's number for each text, the same as long as no two of them collide."""
    taken: dict[int, str] = {}
    for text in sorted(set(texts)):
        low = int.from_bytes(hashlib.sha256(text.encode()).digest()[:2], "big")
        while low in taken:
            low = (low + 1) % (1 << _NUMBER_SHIFT)
        taken[low] = text
    return {text: TRANSIT_OWNER << _NUMBER_SHIFT | low for low, text in taken.items()}


@dataclass(frozen=True, slots=True)
class FlowRule:
    """One rule on one switch.

    ``src`` and ``dst`` are IP addresses or prefixes. ``protocol`` is "ip" for all of it, "tcp" or
    "udp" with ``src_port`` and ``dst_port`` as values under masks, "arp" for address resolution
    between the two, or "stamp" for the rule that no packet meets (see :func:`stamp_rule`).
    ``in_port`` is where packets must come from, 0 for anywhere; ``mark`` the DSCP value they must
    have, None for any.

    ``meter`` polices them, ``dscp`` is set where not None, ``eth_dst`` where not empty; then they
    go into ``queue`` (0: none) of ``out_port``, or to the select ``group`` where that is not 0.
    ``expires_at`` is Unix seconds, infinite for a rule that stays. ``hop`` counts the switches
    before this one on the path; it orders changes and is no part of the rule.
    """

    dpid: int
    priority: int
    src: str
    dst: str
    out_port: int
    cookie: int
    dscp: int | None = None
    eth_dst: str = ""
    expires_at: float = math.inf
    hop: int = field(default=0, compare=False)
    protocol: str = "ip"
    src_port: Masked | None = None
    dst_port: Masked | None = None
    in_port: int = 0
    mark: int | None = None
    group: int = 0
    queue: int = 0
    meter: int = 0
    key: Key = field(init=False, compare=False, repr=False)
    """What a switch tells rules apart by: two rules with one key overwrite each other."""

    def __post_init__(self) -> None:
        key = (
            self.dpid, self.priority, _canonical(self.src), _canonical(self.dst), self.protocol,
            self.src_port, self.dst_port, self.in_port, self.mark,
        )  # fmt: skip
        object.__setattr__(self, "key", key)

    @property
    def packets(self) -> tuple[int, int | None]:
        """The Ethernet type of what it meets, and the IP protocol where it has one."""
        kind, number = _PACKETS[self.protocol]
        return (IPV6 if ":" in self.src else kind), number

    @property
    def owner(self) -> int:
        """The owner prefix of the cookie."""
        return self.cookie >> OWNER_SHIFT


@dataclass(frozen=True, slots=True)
class SeenRule:
    """A rule as read from a switch, with the bytes it has forwarded so far."""

    rule: FlowRule
    bytes: int


@dataclass(frozen=True, slots=True)
class Changes:
    """Rules to add (or overwrite) and to delete, and the same for what they refer to.

    ``change_entries`` are on the switch already, with other contents.
    """

    add: tuple[FlowRule, ...] = ()
    delete: tuple[FlowRule, ...] = ()
    add_entries: tuple[TableEntry, ...] = ()
    change_entries: tuple[TableEntry, ...] = ()
    delete_entries: tuple[TableEntry, ...] = ()

    def stages(self) -> list[Changes]:
        """The changes in steps such that a packet always meets a rule.

        First everything past the first switch, then the first switch, which sends packets into
        the new path, and only then are old rules deleted. Empty steps are left out.
        """
        steps = [
            Changes(
                add=tuple(r for r in self.add if r.hop > 0),
                add_entries=self.add_entries,
            ),
            Changes(
                add=tuple(r for r in self.add if r.hop == 0), change_entries=self.change_entries
            ),
            Changes(delete=self.delete, delete_entries=self.delete_entries),
        ]
        return [step for step in steps if step]

    def waves(self) -> list[list[tuple[str, FlowRule | TableEntry]]]:
        """What a switch is told to do, and with what, in this order; all of one list may be told at
        once. The stamp comes before anything else, and what rules refer to before them."""
        stamps = [rule for rule in self.add if is_stamp(rule)]
        rules = [rule for rule in self.add if not is_stamp(rule)]
        return [
            [("add", rule) for rule in stamps],
            [("add_entry", entry) for entry in self.add_entries],
            [
                *(("change_entry", entry) for entry in self.change_entries),
                *(("add", rule) for rule in rules),
            ],
            [("delete", rule) for rule in self.delete],
            [("delete_entry", entry) for entry in self.delete_entries],
        ]

    def __or__(self, other: Changes) -> Changes:
        """Both, these first."""
        return Changes(
            *(getattr(self, part.name) + getattr(other, part.name) for part in fields(self))
        )

    def per_switch(self) -> dict[int, Changes]:
        """The same for each switch that has something to change."""
        parts: dict[int, dict[str, list[object]]] = {}
        for part in fields(self):
            for it in getattr(self, part.name):
                parts.setdefault(it.dpid, {}).setdefault(part.name, []).append(it)
        return {
            dpid: Changes(**{name: tuple(its) for name, its in parts_of.items()})  # type: ignore[arg-type]
            for dpid, parts_of in parts.items()
        }

    def __bool__(self) -> bool:
        return any(getattr(self, part.name) for part in fields(self))


@lru_cache(4096)
def _canonical(address: str) -> str:
    """One spelling for an address or prefix: IPv6 has many."""
    return str(ip_network(address)) if ":" in address else address


def make_cookie(owner: int, text: str) -> int:
    """The cookie of ``owner`` for what ``text`` describes."""
    digest = hashlib.sha256(text.encode()).digest()
    return owner << OWNER_SHIFT | int.from_bytes(digest[:6], "big")


def stamp_rule(dpid: int, stamp: int) -> FlowRule:
    """Says in its cookie who changed a switch last: 48 bits of ``stamp``. No packet meets it.

    Whoever changes a switch writes it first, so one small question tells whether what is believed
    to be on the switch still is.
    """
    cookie = STAMP_OWNER << OWNER_SHIFT | stamp
    return FlowRule(dpid, STAMP_PRIORITY, "", "", 0, cookie, protocol="stamp")


def is_stamp(rule: FlowRule) -> bool:
    """Whether it is one of those."""
    return rule.protocol == "stamp"


def item_text(item: FlowRule | TableEntry) -> str:
    """A rule, group or meter as messages name it."""
    if not isinstance(item, FlowRule):
        return f"the {'meter' if isinstance(item, Meter) else 'group'} {item.number:#x}"
    if is_stamp(item):
        return "the stamp"
    kind = "" if item.protocol == "ip" else f"{item.protocol} "
    ports = [f":{port[0]}" if port else "" for port in (item.src_port, item.dst_port)]
    return f"the rule {kind}{item.src}{ports[0]} > {item.dst}{ports[1]}"


def hard_timeout(expires_at: float, now: float) -> int:
    """Whole seconds until ``expires_at``, rounded up, within what OpenFlow can say; 0 is never."""
    if math.isinf(expires_at):
        return 0
    return max(1, min(MAX_HARD_TIMEOUT_S, math.ceil(expires_at - now)))


def same_rule(seen: FlowRule, want: FlowRule, now: float) -> bool:
    """Whether a rule on a switch does what is wanted, for as long as it is wanted."""
    return same_but_lease(seen, want) and _same_lease(seen.expires_at, want.expires_at, now)


def same_but_lease(seen: FlowRule, want: FlowRule) -> bool:
    """Whether a rule on a switch does what is wanted, for however long."""
    return seen is want or contents(seen) == contents(want)


def contents(rule: FlowRule) -> tuple[object, ...]:
    """What a rule does with which packets, for however long."""
    return rule.key, _what(rule)


def diff(
    seen: Iterable[FlowRule] | Mapping[Key, FlowRule], want: Sequence[FlowRule], now: float
) -> Changes:
    """What brings the switches from ``seen`` to ``want``. Empty where they agree already."""
    there = seen if isinstance(seen, Mapping) else {rule.key: rule for rule in seen}
    wanted = {rule.key: rule for rule in want}
    return Changes(
        add=tuple(
            rule
            for key, rule in wanted.items()
            if (before := there.get(key)) is not rule
            and (before is None or not same_rule(before, rule, now))
        ),
        delete=tuple(rule for key, rule in there.items() if key not in wanted),
    )


def diff_entries(seen: Iterable[TableEntry], want: Iterable[TableEntry]) -> Changes:
    """The same for groups and meters."""
    there = {entry.key: entry for entry in seen}
    wanted = {entry.key: entry for entry in want}
    return Changes(
        add_entries=tuple(entry for key, entry in wanted.items() if key not in there),
        change_entries=tuple(
            entry for key, entry in wanted.items() if there.get(key, entry) != entry
        ),
        delete_entries=tuple(entry for key, entry in there.items() if key not in wanted),
    )


def _what(rule: FlowRule) -> tuple[object, ...]:
    return (
        rule.out_port, rule.cookie, rule.dscp, rule.eth_dst.lower(),
        rule.group, rule.queue, rule.meter,
    )  # fmt: skip


def _same_lease(seen: float, want: float, now: float) -> bool:
    if math.isinf(seen) or math.isinf(want):
        return seen == want
    longest = now + MAX_HARD_TIMEOUT_S
    return -EARLIER_S <= min(seen, longest) - min(want, longest) <= LATER_S
