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

The rates are found on arrays. All demands of a tier are raised at the same pace. Instead of one
link after the other, each round settles every link that is known to fill first among the links of
all its demands, and every demand that has its maximum before any of its links can be full; rounds
are few even where links are many. Levels only rise from round to round, so what is settled stays
right.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from network_provisioner.state.ledger import whole_bps
from network_provisioner.topology.graph import Hop

_MOST = 1 << 62  # b/s; stands for any larger rate, so that sums fit into 64 bits
Whole = NDArray[np.int64]
Mask = NDArray[np.bool_]

_ROOM = 64  # demands and entries to begin with; doubled when they are full
_LOW, _SPAN, _PRIORITY, _COUNT, _ALIVE = range(5)


@dataclass(frozen=True, slots=True)
class RateDemand:
    """What one path of one transit may have: ``min_bps`` for certain, up to ``max_bps``.

    ``id`` is the caller's. A transit with several paths is several demands. ``min_bps`` may be
    0.
    """

    id: str
    hops: tuple[Hop, ...]
    min_bps: float
    max_bps: float
    priority: int = 0


class MaxMinShares:
    """Rates, kept up to date while demands come and go.

    Changes are cheap and nothing is computed until :meth:`rates` is asked, so any number of changes
    costs one computation. Demands are kept as columns, and which links each uses as one long list;
    removed ones leave gaps, which are closed when they are more than half of it. Not thread-safe.
    """

    def __init__(self, capacity: Mapping[Hop, float]) -> None:
        """``capacity``: bits per second to be shared on each directed link. The ledger sees to it
        that all minima fit."""
        self._number = {hop: number for number, hop in enumerate(capacity)}
        whole = [math.floor(round(min(bps, _MOST), 3)) for bps in capacity.values()]
        self._capacity: Whole = np.array(whole, np.int64)
        self._names: list[str] = []
        self._row: dict[str, int] = {}
        self._entries = 0
        # Minimum, span from there to the maximum, priority, number of links, and 0 where removed.
        self._columns: Whole = np.zeros((5, _ROOM), np.int64)
        self._link: Whole = np.zeros(_ROOM, np.int64)
        self._rates: dict[str, float] | None = {}

    def update(self, put: Iterable[RateDemand], gone: Iterable[str] = ()) -> None:
        """Take demands out by id (unknown ones are none), then add others, or replace those of the
        same id."""
        new = {demand.id: demand for demand in put}
        old = {name for name in (*gone, *new) if name in self._row}
        for name in old:
            self._columns[_ALIVE, self._row.pop(name)] = 0
        if len(self._names) > _ROOM and len(self._row) < len(self._names) // 2:
            self._close_gaps()
        for demand in new.values():
            self._add(demand)
        if new or old:
            self._rates = None

    def rates(self) -> Mapping[str, float]:
        """Bits per second for each demand now, by id."""
        if self._rates is None:
            self._rates = self._shared()
        return self._rates

    def _add(self, demand: RateDemand) -> None:
        """A demand that is not there yet."""
        links = [self._number[hop] for hop in demand.hops]
        row, first, last = len(self._names), self._entries, self._entries + len(links)
        # At least so much: where all were removed, there is no room left to double.
        if row == self._columns.shape[1]:
            columns = np.zeros((5, max(row, _ROOM)), np.int64)
            self._columns = np.concatenate([self._columns, columns], axis=1)
        if last > len(self._link):
            self._link = np.concatenate([self._link, np.zeros(max(last, _ROOM), np.int64)])
        low = whole_bps(demand.min_bps)
        span = max(0, math.floor(min(demand.max_bps, _MOST)) - low)
        self._columns[:, row] = (low, span, demand.priority, len(links), 1)
        self._link[first:last] = links
        self._row[demand.id] = row
        self._names.append(demand.id)
        self._entries = last

    def _close_gaps(self) -> None:
        columns, row_of, link = self._read()
        alive = columns[_ALIVE] == 1
        link = link[alive[row_of]]
        self._names = [name for name, here in zip(self._names, alive.tolist(), strict=True) if here]
        self._row = {name: row for row, name in enumerate(self._names)}
        self._columns, self._link, self._entries = columns[:, alive], link, len(link)

    def _read(self) -> tuple[Whole, Whole, Whole]:
        """The columns, and for each entry its row and its link."""
        columns = self._columns[:, : len(self._names)]
        row_of = np.arange(len(self._names)).repeat(columns[_COUNT])
        return columns, row_of, self._link[: self._entries]

    def _shared(self) -> dict[str, float]:
        if not self._row:
            return {}
        columns, row_of, link = self._read()
        alive, span, priority = columns[_ALIVE] == 1, columns[_SPAN], columns[_PRIORITY]
        rest = self._capacity.copy()
        np.subtract.at(rest, link, (columns[_LOW] * columns[_ALIVE])[row_of])
        np.maximum(rest, 0, out=rest)
        extra = np.zeros(len(span), np.int64)
        wants = alive & (span > 0)
        for tier in sorted(set(priority[wants].tolist()), reverse=True):
            rows = wants & (priority == tier)
            entries = rows[row_of]
            _fill_tier(rows, row_of[entries], link[entries], span, rest, extra)
        rates = (columns[_LOW] + extra).tolist()
        named = zip(self._names, rates, alive.tolist(), strict=True)
        return {name: float(rate) for name, rate, here in named if here}


def _fill_tier(
    rows: Mask, row_of: Whole, link: Whole, span: Whole, rest: Whole, extra: Whole
) -> None:
    """Raises ``extra`` of the demands in ``rows`` and takes it off ``rest``."""
    extra[rows] = span[rows]  # what they have unless a link of theirs is too narrow
    demanded = np.bincount(link, span[row_of], len(rest))  # not exact, and cannot overflow
    narrow = (demanded > rest * 0.999999)[link]
    if narrow.any():
        _settle(row_of[narrow], link[narrow], span, rest.copy(), extra)
    np.subtract.at(rest, link, extra[row_of])


def _settle(row_of: Whole, link: Whole, span: Whole, rest: Whole, extra: Whole) -> None:
    """Sets ``extra`` of the demands on links that cannot carry all that is asked of them."""
    # The demands in question, numbered from 0 as they are settled and drop out.
    entries = np.bincount(row_of, minlength=len(span))
    rows = entries.nonzero()[0]
    row_of, count, span = ((entries > 0).cumsum() - 1)[row_of], entries[rows], span[rows]
    while len(link):
        first = count.cumsum() - count
        sharing = np.bincount(link, minlength=len(rest))
        level = (rest // np.maximum(sharing, 1))[link]
        gets = np.minimum(np.minimum.reduceat(level, first), span)
        gets_here = gets[row_of]
        # A link is not settled while one of those on it is held back further elsewhere: what that
        # one leaves here, the others share.
        waits = np.zeros(len(rest), np.bool_)
        waits[link[gets_here < level]] = True
        settled = gets == span
        settled[row_of[~waits[link]]] = True
        extra[rows[settled]] = gets[settled]
        done, left = settled[row_of], ~settled
        np.subtract.at(rest, link[done], gets_here[done])
        row_of, link = (left.cumsum() - 1)[row_of[~done]], link[~done]
        rows, count, span = rows[left], count[left], span[left]
