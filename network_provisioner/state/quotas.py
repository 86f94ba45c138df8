"""How much one user or project may hold of the network. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from network_provisioner.base.model import Transit
from network_provisioner.base.schema import STRICT, Rate, Whole
from network_provisioner.base.units import format_rate
from network_provisioner.state.timeline import peak

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
