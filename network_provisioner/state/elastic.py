"""Who gets how much now: max-min fair sharing of what minima leave free.

    capacity of links ─► every demand's minimum ─► the rest, highest priority first ─► rates now

Each demand has its minimum. What is left of the links goes tier by tier: all demands of the highest
priority are raised together until a link of theirs is full or they have their maximum, then the
next priority shares what that left, and so on (progressive filling; Bertsekas and Gallager, *Data
Networks*, §6.5.2). Within a tier nobody could have more above its minimum without somebody who has
no more than it getting less. A higher priority thus pushes a lower one down to its minimum, never
below.

Whole bits per second throughout, so nothing adds up to more than a link carries, not by a bit.
Pure: no clock, no ledger.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from network_provisioner.state.filling import Table
from network_provisioner.state.ledger import whole_bps
from network_provisioner.topology.graph import Hop

_MOST = 1 << 62  # b/s; stands for any larger rate, so that sums fit into 64 bits


@dataclass(frozen=True, slots=True)
class RateDemand:
    """What one path of one transit may have: ``min_bps`` for certain, up to ``max_bps``.

    ``id`` is the caller's. A transit with several paths is several demands (``max_bps`` of each:
    :attr:`~network_provisioner.selection.split.PathPart.max_bps`). ``min_bps`` may be 0.
    """

    id: str
    hops: tuple[Hop, ...]
    min_bps: float
    max_bps: float
    priority: int = 0


class MaxMinShares:
    """Rates, kept up to date while demands come and go.

    Changes are cheap and nothing is computed until :meth:`rates` is asked, so any number of changes
    costs one computation. Not thread-safe.
    """

    def __init__(self, capacity: Mapping[Hop, float]) -> None:
        """``capacity``: bits per second to be shared on each directed link. The ledger sees to it
        that all minima fit."""
        self._hops = list(capacity)
        self._number = {hop: number for number, hop in enumerate(self._hops)}
        self._capacity = [math.floor(round(min(bps, _MOST), 3)) for bps in capacity.values()]
        self._minima = [0] * len(self._hops)  # of the demands on each link, added up
        self._demands: dict[str, RateDemand] = {}
        self._table = Table(len(self._hops))
        self._rates: dict[str, float] | None = {}

    def update(self, put: Iterable[RateDemand], gone: Iterable[str] = ()) -> None:
        """Take demands out by id (unknown ones are none), then add others, or replace those of the
        same id."""
        new = {demand.id: demand for demand in put}
        old = [self._demands[i] for i in {*gone, *new} if i in self._demands]
        for demand in old:
            del self._demands[demand.id]
            self._table.remove(demand.id)
            for hop in demand.hops:
                self._minima[self._number[hop]] -= whole_bps(demand.min_bps)
        for demand in new.values():
            self._demands[demand.id] = demand
            low = whole_bps(demand.min_bps)
            links = [self._number[hop] for hop in demand.hops]
            span = max(0, math.floor(min(demand.max_bps, _MOST)) - low)
            self._table.add(demand.id, links, low, span, demand.priority)
            for link in links:
                self._minima[link] += low
        if new or old:
            self._rates = None

    def rates(self) -> dict[str, float]:
        """Bits per second for each demand now, by id."""
        if self._rates is None:
            spare = [c - m for c, m in zip(self._capacity, self._minima, strict=True)]
            self._rates = self._table.fill(spare)
        return dict(self._rates)
