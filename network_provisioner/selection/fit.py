"""Where and when one request fits: the steps behind :mod:`~.path_selector`. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from network_provisioner.base.instants import iso
from network_provisioner.base.units import format_rate
from network_provisioner.policies.policy import LimitOf, no_limit
from network_provisioner.selection.outcomes import Blocked, Grant, Never, Wait
from network_provisioner.selection.push import MovableOf, make_room
from network_provisioner.selection.split import earliest_split, largest_split, split
from network_provisioner.selection.transit import Metric, PathChoice, PathMetrics, choose, path_name
from network_provisioner.state.ledger import Ledger, PathPart, whole_bps
from network_provisioner.state.timeline import Interval, first_gap
from network_provisioner.state.waitlist import Claim, Claims, crowded_claims
from network_provisioner.templates.template import Template
from network_provisioner.topology.graph import Hop, Path

MAX_HOLDERS = 32  # that are named for one link, the largest


@dataclass(frozen=True, slots=True)
class Requirement:
    """What one request needs: rates, and a time of ``duration_s`` from ``start`` on.

    ``until`` is when it must end, infinite where it only needs so long; then it may start later and
    end later, otherwise starting later makes it shorter. ``brief_s`` is how long it is expected to
    take, where that is known to be less.
    """

    id: str
    low: float
    high: float
    start: float
    duration_s: float
    until: float = math.inf
    brief_s: float = math.inf

    @property
    def end(self) -> float:
        """When it ends if it starts at its start."""
        return self.start + self.duration_s if self.until == math.inf else self.until

    @property
    def done(self) -> float:
        """When it is expected to need no more."""
        return min(self.end, self.start + self.brief_s)


@dataclass(eq=False)
class Fit:
    """One request held against the ledger and the claims of those who wait before it.

    ``dividers``: the nodes that can divide packets over several paths; ``not_guaranteed``: which
    link of a path can take no promise, in words; ``failed``: directed links that carry nothing, and
    why; ``limit_of``: what the request's class may reserve.
    """

    ledger: Ledger
    ask: Requirement
    template: Template
    claims: Claims
    dividers: Collection[str]
    not_guaranteed: Callable[[Path], str]
    failed: Mapping[Hop, str]
    limit_of: LimitOf = no_limit
    _free: dict[Hop, int] = field(default_factory=dict)
    _share: dict[Hop, int] = field(default_factory=dict)
    _held: dict[Hop, tuple[str, ...]] = field(default_factory=dict)
    _busy: dict[Hop, list[Interval]] = field(default_factory=dict)
    _crowding: dict[Hop, list[Claim]] = field(default_factory=dict)
    _class_full: set[Hop] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._need = whole_bps(self.ask.low)

    def metrics(self, path: Path, measured: Mapping[str, Metric]) -> PathMetrics:
        """What is known of a path for the time of the request. ``measured``: of that path, by
        metric."""
        hops = path.hops
        free, tight = min((self._room(hop), hop) for hop in hops)
        limit = ""
        if free < self._need:
            holders = self._holders(tight)
            held = f"held by {some(holders)}" if holders else "which carries no more"
            there = self.limit_of(tight) if tight in self._class_full else None
            words = f"{there.explanation}, " if there else ""
            limit = f"{tight[0]}>{tight[1]}, {words}{held}"
        ahead = sorted({claim.id for hop in hops for claim in self._ahead(hop)})
        return PathMetrics(
            free_bps=free,
            throughput=measured.get("throughput"),
            delay=measured.get("delay"),
            jitter=measured.get("jitter"),
            loss=measured.get("loss"),
            limit=limit,
            blocked=f"{some(ahead)} waits for it first" if ahead else "",
            share_bps=min(self._share[hop] for hop in hops),
            failed=failure(path, self.failed),
            not_guaranteed=self.not_guaranteed(path),
        )

    def is_open(self, a: str, b: str) -> bool:
        """Whether a directed link works, has room for the whole request, and nobody before claims
        it."""
        hop = (a, b)
        return hop not in self.failed and self._room(hop) >= self._need and not self._ahead(hop)

    def grant(self, path: Path, decision: PathChoice) -> Grant:
        """The whole request on one path."""
        way = PathPart(path, self._need, max(self.ask.high, self._need))
        return self._granted((way,), decision, decision.reason)

    def fitting(self, known: Iterable[tuple[Path, PathMetrics]]) -> list[Path]:
        """The paths that meet the QSpec if only they were free, best first."""
        roomy = [
            (path, replace(metrics, free_bps=math.inf, share_bps=None, blocked=""))
            for path, metrics in known
        ]
        low, high = self.ask.low, self.ask.high
        made = choose(roomy, self.template, low, high)
        return [c.path for c in made.candidates if not c.rejected]

    def several(self, paths: Sequence[Path], decision: PathChoice, most: int) -> Grant | None:
        """The request split over two to ``most`` paths."""
        if most < 2:
            return None
        ways = split(paths, self._unclaimed, self.ask.low, self.ask.high, most, self.dividers)
        if ways is None:
            return None
        parts = " and ".join(f"{path_name(w.path)} with {format_rate(w.min_bps)}" for w in ways)
        reason = f"split over {parts}, because no path alone has room ({decision.reason})"
        return self._granted(ways, decision, reason)

    def pushed(
        self, paths: Sequence[Path], decision: PathChoice, movable_of: MovableOf | None, now: float
    ) -> Grant | None:
        """The request on one path, after moving transits of lower priority off it."""
        free = [
            p
            for p in self._large(paths)
            if self._class_full.isdisjoint(p.hops) and not any(map(self._crowded, p.hops))
        ]
        if movable_of is None or not free:
            return None
        ask = self.ask
        push = make_room(
            self.ledger, free, ask.low, ask.start, ask.end, movable_of, now, self.dividers
        )
        if push is None:
            return None
        moves = "; ".join(map(str, push.moves))
        reason = f"{path_name(push.path)} has room once lower priorities make it: {moves}"
        way = PathPart(push.path, self._need, max(ask.high, self._need))
        return Grant((way,), ask.start, ask.end, decision, reason, push.moves, ask.done)

    def waiting(self, paths: Sequence[Path], decision: PathChoice, most: int) -> Wait | Never:
        """When it could start, and what keeps it from starting when it was asked to."""
        large = self._large(paths)
        several = most > 1 and self._need <= largest_split(
            paths, self._capacity, most, self.dividers
        )
        if not large and not several:
            if any(c.metrics.failed for c in decision.candidates):  # it may work again in a moment
                return Wait(decision.reason, None, (), decision)
            return Never(decision.reason, decision)
        worth = paths if several else large
        earliest, path = self._earliest(large, paths if several else (), most)
        when = "" if earliest is None else f"; earliest start {iso(earliest)}"
        ask = self.ask
        begins, ends = ask.start, math.inf
        if earliest is not None:
            begins, ends = earliest, max(ask.end, earliest + ask.duration_s)
        likely = self._likely_from(path)
        claim = Claim(ask.id, begins, ends, self._need, ask.done - ask.start, likely=likely)
        reason, blocking = f"{decision.reason}{when}", self._blocking(worth)
        full = frozenset(self._class_full)
        return Wait(reason, earliest, blocking, decision, claim, path, full)

    # -- within ------------------------------------------------------------------------------

    def _room(self, hop: Hop) -> int:
        if hop not in self._free:
            ask, limit = self.ask, self.limit_of(hop)
            free, others = self.ledger.fullest(hop, ask.start, ask.end)
            if limit is not None:
                left = max(0, limit.bps - self.ledger.held(hop, ask.start, ask.end, limit.of))
                if left < min(free, self._need):
                    self._class_full.add(hop)
                free = min(free, left)
            self._free[hop] = self._share[hop] = free
            if free > self._need:
                # What it may expect where all who hold some take what they can: its minimum, and
                # an equal part of what the minima leave.
                self._share[hop] = self._need + (free - self._need) // (others + 1)
        return self._free[hop]

    def _holders(self, hop: Hop) -> tuple[str, ...]:
        if hop not in self._held:
            held = self.ledger.holders(hop, self.ask.start, self.ask.end)
            limit = self.limit_of(hop) if hop in self._class_full else None
            self._held[hop] = held if limit is None else tuple(filter(limit.of, held))
        return self._held[hop]

    def _capacity(self, hop: Hop) -> int:
        limit, most = self.limit_of(hop), self.ledger.capacity(hop)
        return most if limit is None else min(most, limit.bps)

    def _unclaimed(self, hop: Hop) -> int:
        return 0 if self._ahead(hop) else self._room(hop)

    def _granted(self, ways: tuple[PathPart, ...], decision: PathChoice, reason: str) -> Grant:
        """Until others come who wait for some of its room, where there are such."""
        ask = self.ask
        before = [c for way in ways for hop in way.path.hops for c in self._crowded(hop)]
        if not before:
            return Grant(ways, ask.start, ask.end, decision, reason, done=ask.done)
        end = min(ask.end, *(c.start for c in before))
        names = some(list(dict.fromkeys(c.id for c in before)))
        reason += f"; starts ahead of {names}, with a path until {iso(ask.done)}"
        return Grant(ways, ask.start, end, decision, reason, done=ask.done, early=True)

    def _crowded(self, hop: Hop) -> list[Claim]:
        if hop not in self._crowding:
            ask, claims = self.ask, self.claims.get(hop, ())
            self._crowding[hop] = crowded_claims(
                self.ledger, hop, self._need, ask.start, ask.end, claims
            )
        return self._crowding[hop]

    def _ahead(self, hop: Hop) -> list[Claim]:
        """Who waits for a link before, and comes before the request is done."""
        return [c for c in self._crowded(hop) if c.comes < self.ask.done]

    def _large(self, paths: Sequence[Path]) -> list[Path]:
        return [p for p in paths if min(map(self._capacity, p.hops)) >= self._need]

    def _earliest(
        self, large: Sequence[Path], several: Sequence[Path], most: int
    ) -> tuple[float | None, Path | None]:
        """When it could start, and on which path where that is a single one."""
        # When its class has more room, nobody knows: it is shared by whoever comes.
        large = [path for path in large if self._class_full.isdisjoint(path.hops)]
        several = [path for path in several if self._class_full.isdisjoint(path.hops)]
        free = [self._free_from(path) for path in large]
        best = min(free, default=math.inf)
        path = large[free.index(best)] if best < math.inf else None
        if several:
            after = self._after([hop for path in several for hop in path.hops])
            at = earliest_split(
                self.ledger, several, self.ask.low, most, self.dividers, self._window, after, best
            )
            if at is not None:
                best, path = at, None
        return (None if best == math.inf else best), path

    def _free_from(self, path: Path) -> float:
        ask, hops = self.ask, path.hops
        after = self._after(hops)
        for hop in hops:
            if hop not in self._busy:
                self._busy[hop] = self.ledger.busy(hop, ask.low, ask.start)
        busy = [interval for hop in hops for interval in self._busy[hop]]
        if after < ask.until < math.inf:
            # The first instant from which on it is free until the end.
            ends = (end for begin, end in busy if begin < ask.until)
            latest = max(ends, default=after)
            if latest < ask.until:
                return max(after, latest)
        return first_gap(busy, ask.duration_s, after)

    def _likely_from(self, path: Path | None) -> float:
        """When a path is free if all that is on it ends when it is expected to; infinite for none,
        and where others come first."""
        if path is None or any(c.rate_bps for hop in path.hops for c in self.claims.get(hop, ())):
            return math.inf
        ask, likely = self.ask, self.ledger.likely_busy
        busy = [interval for hop in path.hops for interval in likely(hop, ask.low, ask.start)]
        return first_gap(busy, ask.duration_s, ask.start)

    def _after(self, hops: Sequence[Hop]) -> float:
        """When all who wait for one of these links before will have had it."""
        ends = (c.end for hop in hops for c in self.claims.get(hop, ()) if c.end > self.ask.start)
        return max(ends, default=self.ask.start)

    def _window(self, start: float) -> tuple[float, float]:
        until = self.ask.until
        return start, until if start < until < math.inf else start + self.ask.duration_s

    def _blocking(self, paths: Sequence[Path]) -> tuple[Blocked, ...]:
        blocking = []
        for hop in dict.fromkeys(hop for path in paths for hop in path.hops):
            ahead = tuple(dict.fromkeys(claim.id for claim in self._ahead(hop)))
            if not ahead and self._room(hop) >= self._need:
                continue
            named = ahead or self._holders(hop)
            blocking.append(Blocked(hop, self._room(hop), named[:MAX_HOLDERS]))
        return tuple(blocking)


def failure(path: Path, failed: Mapping[Hop, str]) -> str:
    """Which link of a path has failed, in words; "" where none has."""
    return next((failed[hop] for hop in path.hops if hop in failed), "") if failed else ""


def some(ids: Sequence[str], most: int = 3) -> str:
    """The first few of a list, in words."""
    more = f" and {len(ids) - most} more" if len(ids) > most else ""
    return ", ".join(ids[:most]) + more
