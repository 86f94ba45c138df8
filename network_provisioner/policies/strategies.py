"""How two classes of transfers share a link: from a policy's strategy to queues. Pure.

A strategy sees one directed link at a time and says what queues it shall have. Three are built in:

    ``7-3``       two shaped queues of equal priority, seven and three tenths of the link
    ``10-3``      one queue of the whole link with priority, and out of it at most three tenths
    ``computed``  both may take the whole link; what each is sure of comes from what it is
                  guaranteed, what its transfers ask for and what it had lately

The first two are those of the application-aware SDN paper (§IV.E), the third is what its §VI leaves
to future work. Another one is a function of the same shape: see :func:`strategies`.

Invariants, of every built-in strategy and checked for any other (:func:`checked_queues`): a queue
is never sure of less than the reservations in it (as long as the link carries them all), and what
the queues are sure of together is never more than the link has beside the reservations in no queue.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import entry_points

from network_provisioner.base.controller import Queue
from network_provisioner.base.errors import InputError
from network_provisioner.base.units import bytes_of, format_rate

log = logging.getLogger(__name__)

ENTRY_POINTS = "adon.strategies"
"""The group of Python entry points that other strategies are found in."""

# `computed` moves rates in steps of this part of the link, so that every byte of history does not
# mean a change of the switches.
_STEP = 0.01
# How far history may raise or lower a class's claim to what is left.
_MOST_CREDIT = 4.0
# A minute of the link: differences below it say nothing about who had more than its part.
_NOISE_S = 60.0


@dataclass(frozen=True, slots=True)
class Amount:
    """A rate that may depend on the link: ``share`` of its capacity, and ``bps`` beside it."""

    share: float = 0.0
    bps: float = 0.0

    def of(self, capacity_bps: float) -> float:
        """In bits per second."""
        return self.share * capacity_bps + self.bps


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two classes on one directed link.

    ``queue``       the name its queue shall have
    ``floor_bps``   the sum of the minima reserved in it
    ``demand_bps``  what its live transfers could use; 0 where it has none
    ``used_bytes``  what it moved lately, older bytes counting less
    ``part``        what is meant to be its own, beside the other's part: 7 and 3 are 70 and 30 %
    ``guarantee``   what `computed` keeps for it whatever the others want
    """

    queue: str
    floor_bps: float = 0.0
    demand_bps: float = 0.0
    used_bytes: float = 0.0
    part: float = 1.0
    guarantee: Amount = Amount()


@dataclass(frozen=True, slots=True)
class Situation:
    """One directed link with its capacity, and the two classes on it.

    ``others_bps`` is the sum of the minima reserved on it by transfers in neither.
    """

    hop: tuple[str, str]
    capacity_bps: float
    sides: tuple[Side, Side]
    others_bps: float = 0.0

    @property
    def room_bps(self) -> float:
        """What the two classes may be sure of together."""
        return max(0.0, self.capacity_bps - self.others_bps)

    @property
    def floors(self) -> tuple[float, float]:
        """The minima of both; scaled down together where the link does not carry them."""
        first, second = (side.floor_bps for side in self.sides)
        scale = min(1.0, self.room_bps / (first + second)) if first + second > 0 else 1.0
        return first * scale, second * scale


Strategy = Callable[[Situation], list[Queue]]
"""Says what queues a link shall have, at most one for each :attr:`Side.queue`."""


def seven_three(situation: Situation) -> list[Queue]:
    """``7-3``: two queues that neither lend nor borrow (paper, §IV.E.1)."""
    tenths = (0.7 * situation.capacity_bps, 0.3 * situation.capacity_bps)
    return [
        Queue(side.queue, situation.hop, rate, rate)
        for side, rate in zip(situation.sides, _fitted(situation, tenths), strict=True)
    ]


def ten_three(situation: Situation) -> list[Queue]:
    """``10-3``: the first takes the link, the second at most three tenths out of it (paper,
    §IV.E.2 and Figure 8: while the second sends, the first makes room for it)."""
    first, second = situation.sides
    sure, capped = situation.floors[1], 0.3 * situation.capacity_bps
    rate = max(sure, min(capped, situation.room_bps - situation.floors[0]))
    return [
        Queue(first.queue, situation.hop, situation.room_bps, situation.capacity_bps),
        Queue(second.queue, situation.hop, rate, max(rate, capped), prio=1, parent=first.queue),
    ]


def computed(situation: Situation) -> list[Queue]:
    """``computed``: both may take what is idle, up to the whole link.

    Each is sure of its guarantee. What is left of the link beside both guarantees is divided in
    proportion to the parts, up to what each side's transfers could use; who had more than its part
    lately counts for less, who had less for more (at most fourfold). What demand leaves is divided
    in the same proportion, so the rates always add up to the link.
    """
    situation = _normal(situation)
    capacity, room = situation.capacity_bps, situation.room_bps
    sure = _fitted(situation, [side.guarantee.of(capacity) for side in situation.sides])
    weights = _claims(situation)
    wanted = [
        max(0.0, side.demand_bps - rate) for side, rate in zip(situation.sides, sure, strict=True)
    ]
    left = max(0.0, room - sum(sure))
    first = _first_part(left, weights, wanted)
    step = _STEP * capacity
    first = min(round(first / step) * step, left)
    rates = (sure[0] + first, sure[1] + left - first)
    return [
        Queue(side.queue, situation.hop, rate, capacity)
        for side, rate in zip(situation.sides, rates, strict=True)
    ]


BUILT_IN: Mapping[str, Strategy] = {"7-3": seven_three, "10-3": ten_three, "computed": computed}


@cache
def strategies() -> Mapping[str, Strategy]:
    """All strategies by name: the built-in ones, and those of installed packages.

    A package offers one by an entry point in the group ``adon.strategies``::

        [project.entry-points."adon.strategies"]
        nights-to-ligo = "our_strategies:nights_to_ligo"

    A name that is built in cannot be taken. One that cannot be imported is logged and left out.
    """
    by_name: dict[str, Strategy] = {}
    for point in entry_points(group=ENTRY_POINTS):
        try:
            by_name[point.name] = point.load()
        except Exception:  # a foreign package may fail in any way, and the others are still there
            log.exception("strategy %r cannot be loaded from %r", point.name, point.value)
    return {**by_name, **BUILT_IN}


def checked_queues(strategy: Strategy, situation: Situation) -> list[Queue]:
    """What a strategy says, if it keeps the rules of this module. Raises InputError otherwise.

    For strategies of others: what one gets wrong must not break a reservation.
    """
    queues = strategy(situation)
    what = f"the strategy's queues on {situation.hop[0]}-{situation.hop[1]}"
    if sorted(q.name for q in queues) != sorted(side.queue for side in situation.sides):
        raise InputError(f"{what} are {[q.name for q in queues]!r}, expected one for each class")
    slack = 1e-6 * situation.capacity_bps
    rates = {q.name: sure_bps(q, queues) for q in queues}
    for queue in queues:
        if queue.hop != situation.hop or not all(
            math.isfinite(bps) and bps >= 0 for bps in (queue.rate_bps, queue.ceil_bps)
        ):
            raise InputError(f"{what} are {queue!r}, expected finite rates on that link")
        if queue.ceil_bps < queue.rate_bps - slack:
            raise InputError(f"{what}: {queue.name!r} has a ceiling below its rate")
    for side, floor in zip(situation.sides, situation.floors, strict=True):
        if rates[side.queue] < floor - slack:
            raise InputError(
                f"{what}: {side.queue!r} is guaranteed {format_rate(rates[side.queue])}, expected "
                f"at least {format_rate(floor)}, which is reserved in it"
            )
    if sum(rates.values()) > situation.room_bps + slack:
        raise InputError(
            f"{what} are guaranteed {format_rate(sum(rates.values()))} together, expected at most "
            f"{format_rate(situation.room_bps)}"
        )
    return queues


def sure_bps(queue: Queue, queues: Sequence[Queue]) -> float:
    """What a queue's own transfers are sure of: its rate without what is served out of it."""
    return queue.rate_bps - sum(q.rate_bps for q in queues if q.parent == queue.name)


def _normal(situation: Situation) -> Situation:
    """The same with parts that add up to 1."""
    total = sum(side.part for side in situation.sides)
    first, second = (replace(side, part=side.part / total) for side in situation.sides)
    return replace(situation, sides=(first, second))


def _fitted(situation: Situation, wanted: Sequence[float]) -> tuple[float, float]:
    """The wanted rates, none below its floor, together no more than there is room for."""
    floors = situation.floors
    above = [max(0.0, want - floor) for want, floor in zip(wanted, floors, strict=True)]
    left = max(0.0, situation.room_bps - sum(floors))
    scale = min(1.0, left / sum(above)) if sum(above) > 0 else 0.0
    return floors[0] + scale * above[0], floors[1] + scale * above[1]


def _claims(situation: Situation) -> tuple[float, float]:
    """What each counts for when the rest is divided: its part, corrected by what it had lately."""
    noise = bytes_of(_NOISE_S * situation.capacity_bps)
    total = sum(side.used_bytes for side in situation.sides) + noise

    def claim(side: Side) -> float:
        had = (side.used_bytes + noise * side.part) / total
        credit = side.part / had if had > 0 else _MOST_CREDIT
        return side.part * min(_MOST_CREDIT, max(1 / _MOST_CREDIT, credit))

    return claim(situation.sides[0]), claim(situation.sides[1])


def _first_part(left: float, weights: tuple[float, float], wanted: Sequence[float]) -> float:
    """The first side's part of ``left``: by weight up to what is wanted, the rest by weight."""
    share = weights[0] / sum(weights)
    most = [min(want, left) for want in wanted]
    first = min(most[0], max(share * left, left - most[1]))
    second = min(most[1], left - first)
    return first + share * (left - first - second)
