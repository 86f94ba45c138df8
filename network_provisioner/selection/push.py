"""Making room: which transits of lower priority move to other paths so that a request fits.

A transit is pushed only onto a path that meets its own QSpec, with all that is reserved for it, for
all the time it has left. It never gets less than its minimum and is never ended. (A higher priority
takes what a lower one has *above* its minimum without any of this: the ledger holds minima alone,
and :mod:`~network_provisioner.state.elastic` serves the higher one first.)

Pure: nothing is changed; whoever asked carries the moves out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations

from network_provisioner.selection.split import divisible
from network_provisioner.state.ledger import Lane, Ledger, Overlay, PathPart, Reservation, whole_bps
from network_provisioner.topology.graph import Hop, Path

MAX_MOVES = 8  # transits that are moved for one request
EXACT_MOVES = 3  # up to so many, every choice is looked at
MAX_HOLDERS = 16  # of one link that are asked whether they may move, largest first
MAX_GROUPS = 6  # of one path that are chosen from
MAX_CHECKS = 48  # looks for room, on the path that is wanted or on another one, for one request

_REQUEST = " "  # the request's own name in trials; no id is a space


@dataclass(frozen=True, slots=True)
class Movable:
    """A transit that holds bandwidth and may be put on another path.

    ``paths``: those that meet its own QSpec whatever is free there, best first; the one it is on
    may be among them. ``ways``: where it is now.
    """

    id: str
    priority: int
    paths: tuple[Path, ...]
    ways: tuple[PathPart, ...]


MovableOf = Callable[[str], Sequence[Movable]]
"""The transit with this id, and those that must move along with it onto the same path (transits of
one pair of sites that the switches cannot tell apart, in either direction). Empty where it must
stay, for instance because one of them has no lower priority."""


@dataclass(frozen=True, slots=True)
class Reroute:
    """One transit's new ways, and the full link that it makes room on."""

    id: str
    ways: tuple[PathPart, ...]
    away_from: Hop

    def __str__(self) -> str:
        ways = " and ".join("-".join(way.path.nodes) for way in self.ways)
        return f"{self.id} moves from {self.away_from[0]}>{self.away_from[1]} to {ways}"


@dataclass(frozen=True, slots=True)
class Push:
    """The path that becomes free for the request, and the moves that free it."""

    path: Path
    moves: tuple[Reroute, ...]


@dataclass(frozen=True, slots=True)
class _Group:
    """Transits that move together, away from a link, and what they hold on each link."""

    members: tuple[Movable, ...]
    away_from: Hop
    frees: dict[Hop, int]


def make_room(
    ledger: Ledger,
    paths: Sequence[Path],
    min_bps: float,
    start: float,
    end: float,
    movable_of: MovableOf,
    now: float,
    dividers: Collection[str] = (),
) -> Push | None:
    """The fewest moves that let a request have ``min_bps`` on one of ``paths`` in [start, end).

    ``paths`` meet the request's QSpec but for room, best first; ``dividers`` as in
    :func:`~.split.divisible`, for those that are on several paths. What is
    returned fits as a whole: all moves and the request at once. The search is bounded, so where
    very many hold a little each, or where one move would only be possible by others, None may come
    although there was a way. Deterministic: fewest moves, then the better path, then the lowest
    priorities and the largest rates.
    """
    search = _Search(ledger, whole_bps(min_bps), start, end, now, dividers, movable_of)
    options = [option for path in paths if (option := search.option(path)) is not None]
    for moves in range(1, EXACT_MOVES + 1):
        for path, lack, groups in options:
            for chosen in _choices(groups, moves):
                if _covers(chosen, lack) and (push := search.tried(path, chosen)) is not None:
                    return push
    for path, lack, groups in options:
        many = _enough(groups, lack)
        if many and (push := search.tried(path, many)) is not None:
            return push
    return None


def reroutes(
    ledger: Ledger,
    members: Sequence[Movable],
    away_from: Hop,
    now: float,
    dividers: Collection[str] = (),
) -> tuple[Reroute, ...]:
    """Where transits that go together have room for their minima, from ``now`` on and without a
    link; () where they have not, or one of them is over the link on several of its paths."""
    search = _Search(ledger, 0, now, now, now, dividers)
    group = _Group(tuple(members), away_from, {})
    placed = search.place(group, search.ledger_without([group]))
    return () if placed is None else tuple(placed[1])


def _choices(groups: Sequence[_Group], moves: int) -> Iterator[tuple[_Group, ...]]:
    """All sets of groups that have so many members together."""
    for size in range(1, moves + 1):
        for chosen in combinations(groups, size):
            if sum(len(group.members) for group in chosen) == moves:
                yield chosen


def _covers(chosen: Sequence[_Group], lack: dict[Hop, int]) -> bool:
    return all(sum(g.frees.get(hop, 0) for g in chosen) >= bps for hop, bps in lack.items())


def _enough(groups: Sequence[_Group], lack: dict[Hop, int]) -> tuple[_Group, ...]:
    """Groups in order until they hold what is lacking; none where they do not, or are too many."""
    left, chosen, moves = dict(lack), [], 0
    for group in groups:
        if any(left[hop] > 0 and hop in group.frees for hop in left):
            chosen.append(group)
            moves += len(group.members)
            left = {hop: bps - group.frees.get(hop, 0) for hop, bps in left.items()}
    done = EXACT_MOVES < moves <= MAX_MOVES and all(bps <= 0 for bps in left.values())
    return tuple(chosen) if done else ()


@dataclass(eq=False)
class _Search:
    """One request's look for room."""

    ledger: Ledger
    need: int
    start: float
    end: float
    now: float
    dividers: Collection[str]
    movable_of: MovableOf = lambda _: ()
    checks: int = MAX_CHECKS
    _asked: dict[str, tuple[Movable, ...]] = field(default_factory=dict)
    _on: dict[Hop, list[_Group]] = field(default_factory=dict)
    _leaves: dict[tuple[Hop, tuple[str, ...]], bool] = field(default_factory=dict)

    def option(self, path: Path) -> tuple[Path, dict[Hop, int], list[_Group]] | None:
        """What a path lacks on which links, and who could leave them; None where they do not hold
        enough."""
        free = {hop: self.ledger.residual(hop, self.start, self.end) for hop in path.hops}
        lack = {hop: self.need - bps for hop, bps in free.items() if bps < self.need}
        groups: dict[tuple[str, ...], _Group] = {}
        for hop, bps in lack.items():
            there = self._holding(hop)
            if sum(group.frees[hop] for group in there) < bps:
                return None
            for group in there:
                groups.setdefault(tuple(m.id for m in group.members), group)
        ranked = [group for group in sorted(groups.values(), key=_rank) if self._can_leave(group)]
        return (path, lack, ranked[:MAX_GROUPS]) if _covers(ranked[:MAX_GROUPS], lack) else None

    def tried(self, path: Path, chosen: Sequence[_Group]) -> Push | None:
        """The moves of these groups that leave the path to the request; None where there are
        none."""
        self.checks -= 1
        names = [member.id for group in chosen for member in group.members]
        if self.checks < 0 or len(set(names)) < len(names):  # one of them goes along with two
            return None
        after = self.ledger_without(chosen)
        lane = Lane(path.hops, self.need)
        if not after.put(Reservation(_REQUEST, (lane,), self.start, self.end)):
            return None
        moves: list[Reroute] = []
        for group in chosen:
            placed = self.place(group, after)
            if placed is None:
                return None
            after, more = placed
            moves += more
        return Push(path, tuple(moves))

    def _holding(self, hop: Hop) -> list[_Group]:
        """The largest of those on a link who may be moved."""
        if hop not in self._on:
            groups: dict[tuple[str, ...], _Group] = {}
            for holder in self.ledger.holders(hop, self.start, self.end)[:MAX_HOLDERS]:
                if holder not in self._asked:
                    members = tuple(self.movable_of(holder))
                    self._asked |= dict.fromkeys(
                        [holder, *(member.id for member in members)], members
                    )
                members = self._asked[holder]
                if members:
                    key = tuple(member.id for member in members)
                    groups[key] = _Group(members, hop, self._frees(members))
            self._on[hop] = list(groups.values())
        return self._on[hop]

    def _frees(self, members: Sequence[Movable]) -> dict[Hop, int]:
        frees: dict[Hop, int] = {}
        for member in members:
            held = self._held(member)
            for hop, bps in held.rates().items() if held else ():
                frees[hop] = frees.get(hop, 0) + bps
        return frees

    def _held(self, member: Movable) -> Reservation | None:
        """What it holds from now on; None where it guarantees nothing, and only goes along."""
        held = self.ledger.reservations.get(member.id)
        return None if held is None else held.on(held.lanes, self.now)

    def ledger_without(self, groups: Sequence[_Group]) -> Overlay:
        """The ledger with these taken off."""
        after = Overlay(self.ledger)
        for held in (self._held(member) for group in groups for member in group.members):
            if held is not None:
                after.take(held)
        return after

    def _can_leave(self, group: _Group) -> bool:
        """Whether there is room for them now on other paths than over this link."""
        key = group.away_from, tuple(member.id for member in group.members)
        if key not in self._leaves:
            self._leaves[key] = self.place(group, self.ledger_without([group])) is not None
        return self._leaves[key]

    def place(self, group: _Group, before: Overlay) -> tuple[Overlay, list[Reroute]] | None:
        """Puts a group, which is taken off already, on its best other path with room; None where
        there is none, or the search has gone on for too long."""
        lead, away = group.members[0], group.away_from
        for path in lead.paths:
            if away in path.hops or away[::-1] in path.hops:
                continue
            self.checks -= 1
            if self.checks < 0:
                return None
            after, moves = before.copy(), []
            for member in group.members:
                ways = self._ways(member, path, lead, away)
                if not ways or not self._put(member, ways, after):
                    break
                moves.append(Reroute(member.id, ways, away))
            else:
                return after, moves
        return None

    def _put(self, member: Movable, ways: tuple[PathPart, ...], after: Overlay) -> bool:
        held = self._held(member)
        return held is None or after.put(replace(held, lanes=tuple(way.lane for way in ways)))

    def _ways(self, member: Movable, path: Path, lead: Movable, away: Hop) -> tuple[PathPart, ...]:
        """The member's ways with those over the full link put on this path; () where it cannot."""
        if (member.ways[0].path.nodes[0]) != lead.ways[0].path.nodes[0]:
            path = replace(path, nodes=path.nodes[::-1])
        if all(path.nodes != other.nodes for other in member.paths):
            return ()
        leaving = [way for way in member.ways if {away, away[::-1]} & set(way.path.hops)]
        staying = [way for way in member.ways if way not in leaving]
        if len(member.ways) == 1:
            return (replace(member.ways[0], path=path),)
        if len(leaving) != 1 or not divisible([path, *(w.path for w in staying)], self.dividers):
            return ()
        return tuple(replace(w, path=path) if w in leaving else w for w in member.ways)


def _rank(group: _Group) -> tuple[int, int, tuple[str, ...]]:
    lowest = max(member.priority for member in group.members)
    return lowest, -group.frees[group.away_from], tuple(m.id for m in group.members)
