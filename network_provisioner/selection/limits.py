"""The limits of what a request may have: of links, leases and its times, and how much one user or
project may hold. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import Field

from network_provisioner.base.errors import BrokerError
from network_provisioner.base.instants import iso
from network_provisioner.base.model import Transit
from network_provisioner.base.schema import STRICT, Rate, Whole
from network_provisioner.base.units import format_rate
from network_provisioner.state.timeline import peak

MAX_AHEAD_S = 366 * 86_400.0  # what is asked for is at most so far away: later is a slip
PAST_S = 5.0  # a start that is no longer ago than this counts as now: clocks differ
EVERYBODY_ELSE = "*"


@dataclass(frozen=True, slots=True)
class Quota:
    """None where there is no bound.

    ``live``      transits that hold a path or wait for one
    ``rate_bps``  the sum of their minima at any time, with those in advance, in bits per second
    ``advance``   transits whose start is to come
    """

    __pydantic_config__ = STRICT

    live: Annotated[Whole, Field(ge=0)] | None = None
    rate_bps: Annotated[Annotated[Rate, Field(gt=0)] | None, Field(alias="rate")] = None
    advance: Annotated[Whole, Field(ge=0)] | None = None


Quotas = Mapping[str, Mapping[str, Quota]]
"""For "user" and for "project": by name, ``"*"`` for everybody else."""


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


def exceeded_quota(
    quotas: Quotas, transit: Transit, of: Callable[[str, str], Iterable[Transit]], now: float
) -> str:
    """Which quota a transit would exceed, in words; "" for none. ``of`` gives the active transits
    of a user or project. Who names no project has no project's quota."""
    for kind, by_name in quotas.items():
        name = getattr(transit.request, kind)
        quota = by_name.get(name, by_name.get(EVERYBODY_ELSE))
        if quota is None or not name:
            continue
        others = [other for other in of(kind, name) if other.id != transit.id]
        words = _beyond(quota, transit, others, now)
        if words:
            return f"the quota of {kind} {name!r} is reached: {words}"
    return ""


def _beyond(quota: Quota, transit: Transit, others: list[Transit], now: float) -> str:
    ahead = transit.request.start > now
    count = sum((other.request.start > now) == ahead for other in others)
    most = quota.advance if ahead else quota.live
    if most is not None and count >= most:
        what = "in advance" if ahead else "that hold a path or wait for one"
        return f"found {count} transits {what}, expected at most {most}"
    if quota.rate_bps is None:
        return ""
    begin, end = _times(transit, now)
    there = [
        (since, until, other.request.min_bps)
        for other in others
        for since, until in (_times(other, now),)
        if since < end and begin < until
    ]
    left = quota.rate_bps - transit.request.min_bps
    # All of it together is quickly added up, and mostly is no more than it may be.
    if sum(bps for *_, bps in there) <= left or (least := peak(there)) <= left:
        return ""
    return (
        f"found {format_rate(least)} promised and {format_rate(transit.request.min_bps)} asked "
        f"for, expected at most {format_rate(quota.rate_bps)}"
    )


def _times(transit: Transit, now: float) -> tuple[float, float]:
    end = transit.request.end or transit.grant.lease_until or math.inf
    return max(transit.request.start, now), end
