"""Several paths for one request that no single path can carry (templates with ``paths`` above 1).

    candidate paths, best first ─► sets that one switch can divide ─► rates that add up ─► ways

Pure: room is asked of the caller, nothing is reserved here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import cache, partial
from itertools import combinations

from network_provisioner.state.ledger import Ledger, PathPart, whole_bps
from network_provisioner.state.timeline import Interval
from network_provisioner.topology.graph import Hop, Path


def split(
    paths: Sequence[Path],
    room: Callable[[Hop], int],
    min_bps: float,
    max_bps: float,
    most: int,
    dividers: Collection[str],
) -> tuple[PathPart, ...] | None:
    """Two to ``most`` of ``paths`` that together carry ``min_bps``; None where none do.

    ``paths`` are those that meet the QSpec but for their room, best first; ``room`` is what is free
    on a directed link during all of the request's time; ``dividers`` are the nodes that can divide
    packets (:func:`divisible`). A link that several of the paths use counts for each.

    The fewest paths are taken, among sets of equal size the one whose paths come first. Each way
    gets a part of the minimum in proportion to what it could carry, in whole bits per second.
    """
    need = whole_bps(min_bps)
    free = [min(map(room, path.hops)) for path in paths]
    if sum(sorted(free)[-most:]) < need:
        return None
    for several, together in _sets(paths, most, dividers):
        # Each path is to carry a whole bit per second at least.
        if len(several) > need or sum(free[i] for i in several) < need:
            continue
        carried = _carried(together, room)
        if sum(carried) >= need and min(carried) > 0:
            return _ways(together, carried, need, max_bps)
    return None


def earliest_split(
    ledger: Ledger,
    paths: Sequence[Path],
    min_bps: float,
    most: int,
    dividers: Collection[str],
    window: Callable[[float], tuple[float, float]],
    start: float,
    before: float,
) -> float | None:
    """The first instant in [``start``, ``before``) at which :func:`split` finds room; None where
    there is none. ``window`` gives the time that is needed from an instant on."""
    need = whole_bps(min_bps)
    every = [path.hops for path in paths]
    # Room appears only where a reservation ends, so nothing between two ends needs to be tried, and
    # only where there is room for all of it on what all paths share, and for a part on one of them.
    shared = set(every[0]).intersection(*every[1:])
    least = -(-need // most)
    busy = {hop: ledger.busy(hop, least, start) for hop in {hop for hops in every for hop in hops}}
    narrow = [interval for hop in shared for interval in ledger.busy(hop, need, start)]
    for at in (start, *ledger.drops(sorted(busy), start, before)):
        begin, end = window(at)
        if at >= before or _meets(narrow, begin, end):
            continue
        if all(any(_meets(busy[hop], begin, end) for hop in hops) for hops in every):
            continue
        room = cache(partial(_room, ledger, begin, end))
        if split(paths, room, min_bps, min_bps, most, dividers) is not None:
            return at
    return None


def _meets(busy: Sequence[Interval], start: float, end: float) -> bool:
    return any(begin < end and start < over for begin, over in busy)


def _room(ledger: Ledger, start: float, end: float, hop: Hop) -> int:
    return ledger.residual(hop, start, end)


def largest_split(
    paths: Sequence[Path], room: Callable[[Hop], int], most: int, dividers: Collection[str]
) -> int:
    """Bits per second that the best set of two to ``most`` paths carries together; 0 without."""
    rates = (sum(_carried(together, room)) for _, together in _sets(paths, most, dividers))
    return max(rates, default=0)


def divisible(paths: Sequence[Path], dividers: Collection[str]) -> bool:
    """Whether one node of ``dividers`` can divide packets over these paths: they have a common
    beginning up to it, no node in common after it, and then a common end for any two of them."""
    first = paths[0].nodes
    parting = {_common(first, other.nodes) for other in paths[1:]}
    if len(parting) > 1:
        return False
    at = parting.pop() if parting else 1
    if first[at - 1] not in dividers:
        return False
    return all(_apart(a.nodes[at:], b.nodes[at:]) for a, b in combinations(paths, 2))


def _common(a: Sequence[str], b: Sequence[str]) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), len(a))


def _apart(a: Sequence[str], b: Sequence[str]) -> bool:
    end = _common(a[::-1], b[::-1])
    return not set(a[: len(a) - end]) & set(b[: len(b) - end])


def _sets(
    paths: Sequence[Path], most: int, dividers: Collection[str]
) -> Iterator[tuple[tuple[int, ...], tuple[Path, ...]]]:
    for size in range(2, min(most, len(paths)) + 1):
        for several in combinations(range(len(paths)), size):
            together = tuple(paths[i] for i in several)
            if divisible(together, dividers):
                yield several, together


def _carried(paths: Sequence[Path], room: Callable[[Hop], int]) -> list[int]:
    """What each path carries when they are filled one after the other."""
    taken: dict[Hop, int] = {}
    carried = []
    for path in paths:
        rate = max(0, min(room(hop) - taken.get(hop, 0) for hop in path.hops))
        for hop in path.hops:
            taken[hop] = taken.get(hop, 0) + rate
        carried.append(rate)
    return carried


def _ways(
    paths: Sequence[Path], carried: list[int], need: int, max_bps: float
) -> tuple[PathPart, ...]:
    total = sum(carried)
    rates = [max(1, need * rate // total) for rate in carried]
    for i, most in enumerate(carried):  # what rounding left
        rates[i] = max(1, min(most, rates[i] + need - sum(rates)))
    scale = max(max_bps, need) / need
    ways = zip(paths, rates, strict=True)
    return tuple(PathPart(path, rate, max(rate, rate * scale)) for path, rate in ways)
