"""The ledger: who holds how much bandwidth on which link, from when to when.

Invariants, kept by every method:

*   At no instant do the reservations of a directed link add up to more than its capacity.
*   A reservation is admitted on every hop of its path or on none.
*   Releasing everything leaves every link as empty as it was at first.

Rates are whole bits per second inside (a request is rounded up, a capacity down), because sums of
integers come back to exactly zero. Pure: no clock, no I/O; times are seconds on any one axis.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from network_provisioner.errors import InputError
from network_provisioner.topology import Link, Topology
from network_provisioner.units import format_rate

Hop = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Reservation:
    """``rate_bps`` on every directed link of ``hops`` during [``start``, ``end``).

    ``max_bps`` is the ceiling up to which idle bandwidth may be borrowed; it reserves nothing.
    """

    id: str
    hops: tuple[Hop, ...]
    rate_bps: float
    max_bps: float
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Refusal:
    """The first hop where a reservation does not fit, and who holds what it lacks."""

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


class _Timeline:
    """Reserved bits per second of one directed link, as a step function of time.

    ``levels[i]`` holds from ``times[i]`` until ``times[i + 1]``. Neighbouring levels differ, so the
    lists are no longer than twice the number of live reservations.
    """

    __slots__ = ("capacity", "holders", "levels", "times")

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.times: list[float] = [-math.inf]
        self.levels: list[int] = [0]
        self.holders: dict[str, Reservation] = {}

    def add(self, start: float, end: float, rate: int) -> None:
        first, last = self._cut(start), self._cut(end)
        for i in range(first, last):
            self.levels[i] += rate
        for i in (last, first):
            if self.levels[i] == self.levels[i - 1]:
                del self.times[i], self.levels[i]

    def _cut(self, at: float) -> int:
        i = bisect_right(self.times, at) - 1
        if self.times[i] != at:
            i += 1
            self.times.insert(i, at)
            self.levels.insert(i, self.levels[i - 1])
        return i

    def free(self, start: float, end: float) -> int:
        first = bisect_right(self.times, start) - 1
        last = max(bisect_left(self.times, end), first + 1)
        return self.capacity - max(self.levels[first:last])

    def full_until(self, start: float, end: float, rate: int) -> float | None:
        """The end of the last stretch in [start, end) without room for ``rate``; None if none."""
        first = bisect_right(self.times, start) - 1
        for i in range(max(bisect_left(self.times, end), first + 1) - 1, first - 1, -1):
            if self.levels[i] + rate > self.capacity:
                return self.times[i + 1] if i + 1 < len(self.times) else math.inf
        return None


class Ledger:
    """Bandwidth in time on every directed link. Not thread-safe: one owner, one lock."""

    def __init__(self, capacity_bps: Mapping[Hop, float]) -> None:
        """``capacity_bps``: what may be reserved on each directed link at any instant."""
        self._links = {
            hop: _Timeline(math.floor(round(bps, 3))) for hop, bps in capacity_bps.items()
        }
        self._reservations: dict[str, Reservation] = {}

    @classmethod
    def of(cls, topology: Topology, reservable: float = 1.0) -> Ledger:
        """An empty ledger for both directions of every link; ``reservable`` is the part of each
        capacity that may be reserved, the rest stays for best effort."""
        both = ((ends, link) for link in topology.links for ends in _ends(link.a, link.b))
        return cls({ends: link.capacity_bps * reservable for ends, link in both})

    def admit(self, reservation: Reservation) -> Refusal | None:
        """Reserve on all hops, or change nothing and say where it does not fit.

        Raises InputError for an id in use, an unknown or repeated link, a rate or a period that is
        none.
        """
        self._check(reservation)
        refusal = self._lacking(reservation, reservation.start)
        if refusal is None:
            self._write(reservation, 1)
        return refusal

    def release(self, reservation_id: str) -> Reservation | None:
        """Free a reservation on all its hops; None where there is none with this id."""
        found = self._reservations.get(reservation_id)
        if found is not None:
            self._write(found, -1)
        return found

    def move_end(self, reservation_id: str, end: float) -> Refusal | None:
        """Let a reservation end at another time, or change nothing and say why it cannot.

        Raises InputError for an unknown id or an end that is not after the start.
        """
        old = self._reservations.get(reservation_id)
        if old is None:
            raise InputError(f"no reservation {reservation_id!r}")
        new = replace(old, end=end)
        _check_period(new)
        refusal = self._lacking(new, old.end) if end > old.end else None
        if refusal is None:
            self._write(old, -1)
            self._write(new, 1)
        return refusal

    def residual(self, hop: Hop, start: float, end: float) -> int:
        """Bits per second free on a directed link during all of [start, end).

        Raises InputError for an unknown link.
        """
        return self._link(hop).free(start, end)

    def path_residual(self, hops: Iterable[Hop], start: float, end: float) -> int:
        """Bits per second free on every hop during all of [start, end)."""
        return min(self.residual(hop, start, end) for hop in hops)

    def capacity(self, hop: Hop) -> int:
        """Bits per second of a directed link that can be reserved. Raises InputError."""
        return self._link(hop).capacity

    def earliest_start(
        self, hops: Iterable[Hop], rate_bps: float, duration_s: float, not_before: float
    ) -> float | None:
        """The first instant from ``not_before`` on at which ``rate_bps`` is free on all hops for
        ``duration_s``; None where a link is too small for it at any time."""
        links = [self._link(hop) for hop in hops]
        rate = _whole(rate_bps)
        if any(link.capacity < rate for link in links):
            return None
        start = not_before
        while True:
            ends = (link.full_until(start, start + duration_s, rate) for link in links)
            # Whatever starts before a full stretch of its window ends would overlap that stretch.
            after = max((end for end in ends if end is not None), default=None)
            if after is None:
                return start
            start = after

    def holders(self, hop: Hop, start: float, end: float) -> tuple[str, ...]:
        """The ids of the reservations on a directed link that overlap [start, end)."""
        held = self._link(hop).holders.values()
        return tuple(r.id for r in held if r.start < end and start < r.end)

    @property
    def reservations(self) -> Mapping[str, Reservation]:
        """All reservations by id, as admitted."""
        return self._reservations

    def _lacking(self, r: Reservation, start: float) -> Refusal | None:
        rate = _whole(r.rate_bps)
        for hop in r.hops:
            free = self.residual(hop, start, r.end)
            if free < rate:
                return Refusal(hop, r.rate_bps, free, self.holders(hop, start, r.end))
        return None

    def _write(self, r: Reservation, sign: int) -> None:
        for hop in r.hops:
            link = self._links[hop]
            link.add(r.start, r.end, sign * _whole(r.rate_bps))
            if sign > 0:
                link.holders[r.id] = r
            else:
                del link.holders[r.id]
        if sign > 0:
            self._reservations[r.id] = r
        else:
            del self._reservations[r.id]

    def _link(self, hop: Hop) -> _Timeline:
        try:
            return self._links[hop]
        except KeyError:
            raise InputError(f"reservation: no link {hop[0]}>{hop[1]} in this network") from None

    def _check(self, r: Reservation) -> None:
        if r.id in self._reservations:
            raise InputError(f"reservation {r.id!r} exists already")
        if not r.hops or len(set(r.hops)) != len(r.hops):
            raise InputError(f"reservation {r.id!r}: hops {r.hops!r}, expected each link once")
        if not 0 < r.rate_bps <= r.max_bps < math.inf:
            raise InputError(
                f"reservation {r.id!r}: {r.rate_bps!r} to {r.max_bps!r} b/s, expected more than 0 "
                "and a ceiling that is not lower"
            )
        _check_period(r)
        for hop in r.hops:
            self._link(hop)


def describe_load(topology: Topology, ledger: Ledger, at: float) -> dict[str, Any]:
    """Nodes, and links with what is reserved in each direction at one instant, JSON-ready."""

    def load(hop: Hop) -> dict[str, Any]:
        limit, free = ledger.capacity(hop), ledger.residual(hop, at, at)
        return {
            "from": hop[0],
            "to": hop[1],
            "reservable_bps": limit,
            "reserved_bps": limit - free,
            "transits": list(ledger.holders(hop, at, math.nextafter(at, math.inf))),
        }

    def link(item: Link) -> dict[str, Any]:
        return {
            "a": item.a,
            "b": item.b,
            "layer": item.layer,
            "capacity_bps": item.capacity_bps,
            "delay_s": item.delay_s,
            "loss": item.loss,
            "load": [load(hop) for hop in _ends(item.a, item.b)],
        }

    nodes = [{"name": n.name, "kind": n.kind} for n in topology.nodes.values()]
    return {"nodes": nodes, "links": [link(item) for item in topology.links]}


def _check_period(r: Reservation) -> None:
    if not -math.inf < r.start < r.end < math.inf:
        raise InputError(
            f"reservation {r.id!r}: from {r.start!r} to {r.end!r}, expected an end after the start"
        )


def _whole(rate_bps: float) -> int:
    # Rounded first, so that 0.9 * 20 Mb/s is 18 Mb/s and not one bit more.
    return math.ceil(round(rate_bps, 3))


def _ends(a: str, b: str) -> tuple[Hop, Hop]:
    return (a, b), (b, a)
