"""What flow rules refer to, as values: select groups and meters. Pure.

They have no cookie; the upper 16 of the 32 bits of their number say whose they are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

OWNER = 0xAD0E
_NUMBER_SHIFT = 16

Key = tuple[object, ...]


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


Aid = SelectGroup | Meter
"""What rules refer to; a switch must have it before the rule, and keeps it until after."""


def aid_text(aid: Aid) -> str:
    """A group or meter as messages name it."""
    return f"the {'meter' if isinstance(aid, Meter) else 'group'} {aid.number:#x}"


def is_our_number(number: int) -> bool:
    """Whether a group or meter is one of ours."""
    return number >> _NUMBER_SHIFT == OWNER


def our_numbers(texts: Iterable[str]) -> dict[str, int]:
    """A group's or meter's number for each text, the same as long as no two of them collide."""
    taken: dict[int, str] = {}
    for text in sorted(set(texts)):
        low = int.from_bytes(hashlib.sha256(text.encode()).digest()[:2], "big")
        while low in taken:
            low = (low + 1) % (1 << _NUMBER_SHIFT)
        taken[low] = text
    return {text: OWNER << _NUMBER_SHIFT | low for low, text in taken.items()}
