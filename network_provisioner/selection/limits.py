"""The limits of what a request may have: of links and leases, and of its times."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from network_provisioner.base.errors import BrokerError
from network_provisioner.base.instants import iso
from network_provisioner.state.quotas import Quotas

MAX_AHEAD_S = 366 * 86_400.0  # what is asked for is at most so far away: later is a slip
PAST_S = 5.0  # a start that is no longer ago than this counts as now: clocks differ


@dataclass(frozen=True, slots=True)
class BrokerLimits:
    """How the broker deals with links and leases.

    ``reservable``        the part of each link that may be reserved; the rest, and whatever is
                          idle, stays with best effort traffic, which must not starve
    ``max_lease_s``       no lease is longer, so that nothing is held for ever
    ``unsized_lease_s``   the lease of a transfer whose size nobody knows
    ``pin_pairs``         transits between the same two sites share one path, because a switch that
                          matches addresses cannot tell their packets apart
    ``max_paths``         how many candidate paths are compared; where none of so many has room, the
                          shortest of all others that has is taken
    ``aging_s``           what waits so long counts as one priority higher, so that nobody starves
    ``quotas``            what one user or project may hold
    """

    reservable: float = 0.9
    max_lease_s: float = 86_400.0
    unsized_lease_s: float = 900.0
    pin_pairs: bool = True
    max_paths: int = 8
    aging_s: float = 60.0
    quotas: Quotas = field(default_factory=dict)


def check_times(start: float | None, end: float | None, now: float, max_lease_s: float) -> None:
    """Raises BrokerError ``bad_time`` for a request in the past, or far too late to be meant, one
    that ends before it starts, and one that is longer than any lease. None stands for now, and for
    as long as it takes."""
    for name, value in (("start", start), ("end", end)):
        if value is not None and not math.isfinite(value):
            raise BrokerError(f"{name} {value!r}, expected Unix seconds", "bad_time")
        if value is not None and value > now + MAX_AHEAD_S:
            raise BrokerError(
                f"{name} {value!r}, expected Unix seconds at most {MAX_AHEAD_S / 86_400:.0f} days "
                "from now",
                "bad_time",
            )
    if start is not None and start < now - PAST_S:
        raise BrokerError(f"start {iso(start)} is past, expected {iso(now)} or later", "bad_time")
    begin = now if start is None else max(start, now)
    if end is not None and end <= begin:
        raise BrokerError(f"end {iso(end)}, expected it after the start, {iso(begin)}", "bad_time")
    if end is not None and end - begin > max_lease_s:
        raise BrokerError(
            f"{end - begin:g} s from start to end, expected at most {max_lease_s:g} s", "bad_time"
        )
