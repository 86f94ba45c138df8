"""Flow rules as values: what one switch does with one direction between two sites, and the
difference between what is on the switches and what should be. Pure; knows no OpenFlow library.

A rule matches IPv4 source and destination. Cookies are 64 bits: 16 bits say whose rule it is, 48
bits are a hash of what it carries, so that everything of ours can be found and removed by mask.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

TRANSIT_OWNER = 0xAD0E
ROUTE_OWNER = 0xAD0F
OWNER_SHIFT = 48
OWNER_MASK = 0xFFFF << OWNER_SHIFT
# Both owners differ in the last bit only: one mask finds them both.
ANY_OWNER_MASK = 0xFFFE << OWNER_SHIFT

TRANSIT_PRIORITY = 200
ROUTE_PRIORITY = 10

# OpenFlow 1.3 section A.3.4.1: hard_timeout is 16 bits of seconds, 0 means never.
MAX_HARD_TIMEOUT_S = 65535
# A timeout counts whole seconds and is rounded up: nearer than this is the same lease.
LEASE_TOLERANCE_S = 1.5


@dataclass(frozen=True, slots=True)
class FlowRule:
    """One rule on one switch.

    ``src`` and ``dst`` are IPv4 addresses. ``dscp`` is set where not None, ``eth_dst`` where not
    empty. ``expires_at`` is Unix seconds, infinite for a rule that stays. ``hop`` counts the
    switches before this one on the path; it orders changes and is no part of the rule.
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

    @property
    def key(self) -> tuple[int, int, str, str]:
        """What a switch tells rules apart by: two rules with one key overwrite each other."""
        return (self.dpid, self.priority, self.src, self.dst)

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
    """Rules to add (or overwrite) and rules to delete."""

    add: tuple[FlowRule, ...] = ()
    delete: tuple[FlowRule, ...] = ()

    def stages(self) -> list[Changes]:
        """The changes in steps such that a packet always meets a rule.

        First everything past the first switch, then the first switch, which sends packets into
        the new path, and only then are old rules deleted. Empty steps are left out.
        """
        steps = [
            Changes(add=tuple(r for r in self.add if r.hop > 0)),
            Changes(add=tuple(r for r in self.add if r.hop == 0)),
            Changes(delete=self.delete),
        ]
        return [step for step in steps if step]

    def __bool__(self) -> bool:
        return bool(self.add or self.delete)


def make_cookie(owner: int, text: str) -> int:
    """The cookie of ``owner`` for what ``text`` describes."""
    digest = hashlib.sha256(text.encode()).digest()
    return owner << OWNER_SHIFT | int.from_bytes(digest[:6], "big")


def hard_timeout(expires_at: float, now: float) -> int:
    """Whole seconds until ``expires_at``, rounded up, within what OpenFlow can say; 0 is never."""
    if math.isinf(expires_at):
        return 0
    return max(1, min(MAX_HARD_TIMEOUT_S, math.ceil(expires_at - now)))


def same_rule(seen: FlowRule, want: FlowRule, now: float) -> bool:
    """Whether a rule on a switch does what is wanted, for as long as it is wanted."""
    return _what(seen) == _what(want) and _same_lease(seen.expires_at, want.expires_at, now)


def same_but_lease(seen: FlowRule, want: FlowRule) -> bool:
    """Whether a rule on a switch does what is wanted, for however long."""
    return _what(seen) == _what(want)


def diff(seen: Iterable[FlowRule], want: Sequence[FlowRule], now: float) -> Changes:
    """What brings the switches from ``seen`` to ``want``. Empty where they agree already."""
    there = {rule.key: rule for rule in seen}
    wanted = {rule.key for rule in want}
    return Changes(
        add=tuple(
            rule
            for rule in want
            if rule.key not in there or not same_rule(there[rule.key], rule, now)
        ),
        delete=tuple(rule for key, rule in there.items() if key not in wanted),
    )


def _what(rule: FlowRule) -> tuple[object, ...]:
    return (rule.key, rule.out_port, rule.cookie, rule.dscp, rule.eth_dst.lower())


def _same_lease(seen: float, want: float, now: float) -> bool:
    if math.isinf(seen) or math.isinf(want):
        return seen == want
    longest = now + MAX_HARD_TIMEOUT_S
    return abs(min(seen, longest) - min(want, longest)) <= LEASE_TOLERANCE_S
