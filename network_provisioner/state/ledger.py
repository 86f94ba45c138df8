"""The ledger: who holds how much bandwidth on which link, from when to when.

Invariants, kept by every method:

*   At no instant do the reservations of a directed link add up to more than its capacity.
*   A reservation is admitted on every hop of all its lanes or on none; a change that moves several
    reservations happens as a whole or not at all.
*   Releasing everything leaves every link as empty as it was at first.

Rates are whole bits per second inside (a request is rounded up, a capacity down), because sums of
integers come back to exactly zero. Pure: no clock, no I/O; times are seconds on any one axis.
:class:`Overlay` is a ledger as it would be after some changes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace

from network_provisioner.base.errors import InputError
from network_provisioner.base.units import format_rate
from network_provisioner.state.timeline import Held, Interval, Timeline
from network_provisioner.topology.graph import Hop, Path, Topology

CLASSES = 8  # that are kept count of on each link
_Change = tuple[float, float, int]  # from when to when how much more is reserved


@dataclass(frozen=True, slots=True)
class Lane:
    """``rate_bps`` on every directed link of one path."""

    hops: tuple[Hop, ...]
    rate_bps: float


@dataclass(frozen=True, slots=True)
class PathPart:
    """One path of a request, with what is reserved on it and the ceiling of what it may have there.

    The ways of one request add up to its minimum and to its maximum.
    """

    path: Path
    min_bps: int
    max_bps: float

    @property
    def lane(self) -> Lane:
        """What the ledger holds for it."""
        return Lane(self.path.hops, self.min_bps)


@dataclass(frozen=True, slots=True)
class Reservation:
    """All ``lanes`` together during [``start``, ``end``). A link that is in several lanes carries
    the sum of their rates. ``done`` is when it is expected to be given back."""

    id: str
    lanes: tuple[Lane, ...]
    start: float
    end: float
    done: float = math.inf

    @property
    def likely_end(self) -> float:
        """When it is expected to end: after a second at least, at its end at the latest."""
        return min(self.end, max(self.done, self.start + 1.0))

    def on(self, lanes: tuple[Lane, ...], since: float) -> Reservation:
        """The same on other lanes, from ``since`` on: what it held before is past."""
        return replace(self, lanes=lanes, start=max(self.start, since))

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


@dataclass(eq=False, slots=True)
class _Class:
    """What some of the reservations of a link hold; which of the ``new`` ones are of them is not
    known yet."""

    has: dict[str, Held]
    line: Timeline
    new: set[str] = field(default_factory=set)

    def note(self, name: str, there: bool) -> None:
        """A reservation has come, or has gone."""
        if there:
            self.new.add(name)
            return
        self.new.discard(name)
        if name in self.has:
            rate, since, until = self.has.pop(name)
            self.line.add(since, until, -rate)


class Ledger:
    """Bandwidth in time on every directed link. Not thread-safe: one owner, one lock."""

    def __init__(self, capacity_bps: Mapping[Hop, float]) -> None:
        """``capacity_bps``: what may be reserved on each directed link at any instant."""
        self._links = {
            hop: Timeline(math.floor(round(bps, 3))) for hop, bps in capacity_bps.items()
        }
        # The same if all ends when it is expected to: what is likely, and nobody relies on.
        self._likely = {hop: Timeline(line.capacity) for hop, line in self._links.items()}
        # Who holds how much from when to when on each link.
        self._holders: dict[Hop, dict[str, Held]] = {hop: {} for hop in self._links}
        # What some of them hold together on a link, for whoever asked lately.
        self._classes: dict[Hop, dict[Callable[[str], bool], _Class]] = {
            hop: {} for hop in self._links
        }
        self._reservations: dict[str, Reservation] = {}

    @classmethod
    def of(cls, topology: Topology, reservable: float = 1.0) -> Ledger:
        """An empty ledger for both directions of every link; ``reservable`` is the part of each
        capacity that may be reserved, the rest stays for best effort."""
        links = topology.links
        return cls({hop: link.capacity_bps * reservable for link in links for hop in link.hops})

    # -- changes -----------------------------------------------------------------------------

    def admit(self, reservation: Reservation) -> Refusal | None:
        """Reserve on all hops of all lanes, or change nothing and say where it does not fit.

        Raises InputError for an id in use, and a period that is none.
        """
        return self.exchange((), (reservation,))

    def release(self, reservation_id: str) -> Reservation | None:
        """Free a reservation on all its hops; None where there is none with this id."""
        reservation = self._reservations.get(reservation_id)
        if reservation is not None:
            self._write(reservation, -1)
        return reservation

    def exchange(self, freed: Sequence[str], new: Sequence[Reservation]) -> Refusal | None:
        """Free some reservations and admit others, in one step or not at all; they may take each
        other's places.

        Raises InputError, with nothing changed, for an unknown id, one that is freed twice or is in
        use, and for a period that is none.
        """
        old = [self._known(name) for name in freed]
        if len(set(freed)) != len(old):
            raise InputError("a reservation is replaced twice, expected once")
        used = set(freed)
        for reservation in new:
            if reservation.id in self._reservations and reservation.id not in used:
                raise InputError(f"reservation {reservation.id!r} exists already")
            start, end = reservation.start, reservation.end
            if not -math.inf < start < end < math.inf:
                raise InputError(
                    f"reservation {reservation.id!r}: from {start!r} to {end!r}, expected an end "
                    "after the start"
                )
        for reservation in old:
            self._write(reservation, -1)
        for number, reservation in enumerate(new):
            refusal = self._lacking(reservation)
            if refusal is not None:
                for admitted in new[:number]:
                    self._write(admitted, -1)
                for taken in old:
                    self._write(taken, 1)
                return refusal
            self._write(reservation, 1)
        return None

    # -- questions ---------------------------------------------------------------------------

    def without_reservations(self, ids: Iterable[str]) -> Ledger:
        """The ledger as it would be without some reservations; this one stays as it is. What it
        answers holds until this one changes."""
        taken = [self._reservations[name] for name in ids if name in self._reservations]
        hops = {hop for reservation in taken for hop in reservation.rates()}
        view = copy(self)
        view._links = self._links | {hop: self._links[hop].copy() for hop in hops}
        view._likely = self._likely | {hop: self._likely[hop].copy() for hop in hops}
        view._holders = self._holders | {hop: self._holders[hop].copy() for hop in hops}
        view._classes = self._classes | {hop: {} for hop in hops}
        view._reservations = self._reservations.copy()
        for reservation in taken:
            view._write(reservation, -1)
        return view

    def residual(self, hop: Hop, start: float, end: float) -> int:
        """Bits per second free on a directed link during all of [start, end)."""
        return self._links[hop].fullest(start, end)[0]

    def likely_residual(self, hop: Hop, start: float, end: float) -> int:
        """As :meth:`residual`, if all reservations end when they are expected to."""
        return self._likely[hop].fullest(start, end)[0]

    def fullest(self, hop: Hop, start: float, end: float) -> tuple[int, int]:
        """As :meth:`residual`, and how many reservations there are when the least is free."""
        return self._links[hop].fullest(start, end)

    def capacity(self, hop: Hop) -> int:
        """Bits per second of a directed link that can be reserved."""
        return self._links[hop].capacity

    @property
    def capacities(self) -> dict[Hop, int]:
        """As :meth:`capacity`, of every directed link."""
        return {hop: line.capacity for hop, line in self._links.items()}

    def busy(self, hop: Hop, rate_bps: float, after: float) -> list[Interval]:
        """When after ``after`` a directed link has no room for ``rate_bps``: [from, to) each, in
        order; for ever where it is too small."""
        return self._links[hop].busy(whole_bps(rate_bps), after)

    def likely_busy(self, hop: Hop, rate_bps: float, after: float) -> list[Interval]:
        """As :meth:`busy`, if all reservations end when they are expected to."""
        return self._likely[hop].busy(whole_bps(rate_bps), after)

    def drops(self, hops: Iterable[Hop], start: float, end: float) -> list[float]:
        """The instants in (start, end), in order, at which a reservation of one of the hops ends
        and leaves more room. Only then can something begin to fit."""
        return sorted({at for hop in hops for at in self._links[hop].drops(start, end)})

    def holders(self, hop: Hop, start: float, end: float) -> tuple[str, ...]:
        """The ids of the reservations on a directed link that overlap [start, end): the largest
        rate first, equal ones by id."""
        held = [
            (-rate, name)
            for name, (rate, since, until) in self._holders[hop].items()
            if since < end and start < until
        ]
        return tuple(name for _, name in sorted(held))

    def held(self, hop: Hop, start: float, end: float, of: Callable[[str], bool]) -> int:
        """The most bits per second that the reservations of some ids hold together on a directed
        link at any instant of [start, end).

        An equal ``of`` is asked about each of them once; it must hash."""
        classes, holders = self._classes[hop], self._holders[hop]
        group = classes.get(of)
        if group is None:
            if len(classes) == CLASSES:
                del classes[next(iter(classes))]
            has = {name: held for name, held in holders.items() if of(name)}
            group = classes[of] = _Class(has, Timeline(0, has.values()))
        for name in filter(of, group.new):
            group.has[name] = rate, since, until = holders[name]
            group.line.add(since, until, rate)
        group.new.clear()
        return -group.line.fullest(start, end)[0]

    @property
    def reservations(self) -> Mapping[str, Reservation]:
        """All reservations by id, as admitted."""
        return self._reservations

    # -- within ------------------------------------------------------------------------------

    def _lacking(self, r: Reservation) -> Refusal | None:
        for hop, rate in r.rates().items():
            free, _ = self._links[hop].fullest(r.start, r.end)
            if free < rate:
                return Refusal(hop, rate, free, self.holders(hop, r.start, r.end))
        return None

    def _write(self, r: Reservation, sign: int) -> None:
        for hop, rate in r.rates().items():
            self._links[hop].add(r.start, r.end, sign * rate)
            self._likely[hop].add(r.start, r.likely_end, sign * rate)
            if sign > 0:
                self._holders[hop][r.id] = (rate, r.start, r.end)
            else:
                del self._holders[hop][r.id]
            for some in self._classes[hop].values():
                some.note(r.id, sign > 0)
        if sign > 0:
            self._reservations[r.id] = r
        else:
            del self._reservations[r.id]

    def _known(self, reservation_id: str) -> Reservation:
        try:
            return self._reservations[reservation_id]
        except KeyError:
            raise InputError(f"no reservation {reservation_id!r}") from None


class Overlay:
    """What a ledger holds, with some reservations taken off and others put on."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._changes: dict[Hop, tuple[_Change, ...]] = {}

    def copy(self) -> Overlay:
        """Another one with the same changes."""
        made = Overlay(self._ledger)
        made._changes = dict(self._changes)
        return made

    def put(self, reservation: Reservation) -> bool:
        """Add a reservation if there is room for it; whether there was."""
        rates = reservation.rates()
        start, end = reservation.start, reservation.end
        if any(self.free(hop, start, end) < rate for hop, rate in rates.items()):
            return False
        self._change(reservation, 1)
        return True

    def take(self, reservation: Reservation) -> None:
        """Take off a reservation that is in the ledger or was put here."""
        self._change(reservation, -1)

    def free(self, hop: Hop, start: float, end: float) -> int:
        """Bits per second free on a directed link during all of [start, end)."""
        changes = self._changes.get(hop)
        if not changes:
            return self._ledger.residual(hop, start, end)
        instants = {at for begin, over, _ in changes for at in (begin, over) if start < at < end}
        cuts = [start, *sorted(instants), end]
        return min(
            self._ledger.residual(hop, cuts[i], cuts[i + 1])
            - sum(more for begin, over, more in changes if begin <= cuts[i] < over)
            for i in range(len(cuts) - 1)
        )

    def _change(self, r: Reservation, sign: int) -> None:
        for hop, rate in r.rates().items():
            change = (r.start, r.end, sign * rate)
            self._changes[hop] = (*self._changes.get(hop, ()), change)
