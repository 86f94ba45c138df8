"""The words of the ledger: directed links, lanes, reservations, and why one does not fit."""

from __future__ import annotations

import math
from dataclasses import dataclass

from network_provisioner.base.errors import InputError
from network_provisioner.base.units import format_rate

Hop = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Lane:
    """``rate_bps`` on every directed link of one path."""

    hops: tuple[Hop, ...]
    rate_bps: float


@dataclass(frozen=True, slots=True)
class Reservation:
    """All ``lanes`` together during [``start``, ``end``). A link that is in several lanes carries
    the sum of their rates."""

    id: str
    lanes: tuple[Lane, ...]
    start: float
    end: float

    def rates(self) -> dict[Hop, int]:
        """Whole bits per second on each directed link, in the order of the lanes."""
        rates: dict[Hop, int] = {}
        for lane in self.lanes:
            rate = whole_bps(lane.rate_bps)
            for hop in lane.hops:
                rates[hop] = rates.get(hop, 0) + rate
        return rates


@dataclass(frozen=True, slots=True)
class Refusal:
    """The first hop where a reservation does not fit, and who holds what it lacks, largest
    first."""

    hop: Hop
    asked_bps: float
    free_bps: int
    holders: tuple[str, ...]

    def __str__(self) -> str:
        held = f", held by {', '.join(self.holders)}" if self.holders else ""
        return (
            f"{self.hop[0]}>{self.hop[1]} has {format_rate(self.free_bps)} free, "
            f"{format_rate(self.asked_bps)} asked{held}"
        )


def whole_bps(rate_bps: float) -> int:
    """What is reserved for a rate: whole bits per second, rounded up."""
    # Rounded first, so that 0.9 * 20 Mb/s is 18 Mb/s and not one bit more.
    return math.ceil(round(rate_bps, 3))


def check_period(r: Reservation) -> None:
    """Raises InputError for a reservation that is at no time, or for ever."""
    if not -math.inf < r.start < r.end < math.inf:
        raise InputError(
            f"reservation {r.id!r}: from {r.start!r} to {r.end!r}, expected an end after the start"
        )
