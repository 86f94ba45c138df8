"""Where and when one request fits: the steps behind :mod:`~.admission`. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from network_provisioner.base.instants import iso
from network_provisioner.base.units import format_rate
from network_provisioner.reservations.ledger import Hop, Ledger, whole_bps
from network_provisioner.reservations.timeline import Interval, first_gap
from network_provisioner.selection.push import MovableOf, make_room
from network_provisioner.selection.split import PathPart, earliest_split, largest_split, split
from network_provisioner.selection.transit import Metric, PathChoice, PathMetrics, choose, path_name
from network_provisioner.selection.verdicts import Blocked, Claim, Claims, Grant, Never, Wait
from network_provisioner.templates.template import Template
from network_provisioner.topology.graph import Path

MAX_HOLDERS = 32  # that are named for one link, the largest


@dataclass(frozen=True, slots=True)
class Requirement:
    """What one request needs: rates, and a time of ``duration_s`` from ``start`` on.

    ``until`` is when it must end, infinite where it only needs so long; then it may start later and
    end later, otherwise starting later makes it shorter.
    """

    id: str
    low: float
    high: float
    start: float
    duration_s: float
    until: float = math.inf

    @property
    def end(self) -> float:
        """When it ends if it starts at its start."""
        return self.start + self.duration_s if self.until == math.inf else self.until


class Fit:
    """One request held against the ledger and the claims of those who wait before it.

    ``dividers``: the nodes that can divide packets over several paths; ``guaranteed`` as in
    :func:`~network_provisioner.selection.transit.choose`; ``failed``: directed links that carry
    nothing, and why.
    """

    def __init__(
        self,
        ledger: Ledger,
        ask: Requirement,
        template: Template,
        claims: Claims,
        dividers: Collection[str],
        guaranteed: bool,
        failed: Mapping[Hop, str],
    ) -> None:
        self.ledger = ledger
        self.ask = ask
        self.template = template
        self.dividers = dividers
        self.guaranteed = guaranteed
        self._failed = failed
        self._need = whole_bps(ask.low)
        self._claims = claims
        self._free: dict[Hop, int] = {}
        self._share: dict[Hop, int] = {}
        self._held: dict[Hop, tuple[str, ...]] = {}
        self._busy: dict[Hop, list[Interval]] = {}

    def metrics(self, path: Path, measured: Mapping[str, Metric]) -> PathMetrics:
        """What is known of a path for the time of the request. ``measured``: of that path, by
        metric."""
        hops = path.hops
        free, tight = min((self._room(hop), hop) for hop in hops)
        limit = ""
        if free < self._need:
            holders = self._holders(tight)
            held = f"held by {some(holders)}" if holders else "which carries no more"
            limit = f"{tight[0]}>{tight[1]}, {held}"
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
            failed=failure(path, self._failed),
        )

    def is_open(self, a: str, b: str) -> bool:
        """Whether a directed link works, has room for the whole request, and nobody before claims
        it."""
        hop = (a, b)
        return hop not in self._failed and self._room(hop) >= self._need and not self._ahead(hop)

    def grant(self, path: Path, decision: PathChoice) -> Grant:
        """The whole request on one path."""
        way = PathPart(path, self._need, max(self.ask.high, self._need))
        return Grant((way,), self.ask.start, self.ask.end, decision, decision.reason)

    def fitting(self, decision: PathChoice) -> list[Path]:
        """The paths that meet the QSpec if only they were free, best first."""
        roomy = [
            (
                c.path,
                PathMetrics(math.inf, k.throughput, k.delay, k.jitter, k.loss, failed=k.failed),
            )
            for c in decision.candidates
            for k in (c.metrics,)
        ]
        low, high = self.ask.low, self.ask.high
        made = choose(roomy, self.template, low, high, self.guaranteed)
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
        return Grant(ways, self.ask.start, self.ask.end, decision, reason)

    def pushed(
        self, paths: Sequence[Path], decision: PathChoice, movable_of: MovableOf | None, now: float
    ) -> Grant | None:
        """The request on one path, after moving transits of lower priority off it."""
        free = [p for p in self._large(paths) if not any(map(self._ahead, p.hops))]
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
        return Grant((way,), ask.start, ask.end, decision, reason, push.moves)

    def waiting(self, paths: Sequence[Path], decision: PathChoice, most: int) -> Wait | Never:
        """When it could start, and what keeps it from starting when it was asked to."""
        large = self._large(paths)
        several = most > 1 and self._need <= largest_split(
            paths, self.ledger.capacity, most, self.dividers
        )
        if not large and not several:
            if any(c.metrics.failed for c in decision.candidates):  # it may work again in a moment
                return Wait(decision.reason, None, (), decision)
            return Never(decision.reason, "impossible_rate" if paths else "quality", decision)
        worth = paths if several else large
        earliest = self._earliest(large, paths if several else (), most)
        when = "" if earliest is None else f"; earliest start {iso(earliest)}"
        ask = self.ask
        begins = math.inf if earliest is None else earliest
        return Wait(
            f"{decision.reason}{when}",
            earliest,
            self._blocking(worth),
            decision,
            Claim(ask.id, ask.start, max(ask.end, begins + ask.duration_s)),
        )

    # -- within ------------------------------------------------------------------------------

    def _room(self, hop: Hop) -> int:
        if hop not in self._free:
            free, others = self.ledger.fullest(hop, self.ask.start, self.ask.end)
            self._free[hop] = self._share[hop] = free
            if free > self._need:
                # What it may expect where all who hold some take what they can: its minimum, and
                # an equal part of what the minima leave.
                self._share[hop] = self._need + (free - self._need) // (others + 1)
        return self._free[hop]

    def _holders(self, hop: Hop) -> tuple[str, ...]:
        if hop not in self._held:
            self._held[hop] = self.ledger.holders(hop, self.ask.start, self.ask.end)
        return self._held[hop]

    def _unclaimed(self, hop: Hop) -> int:
        return 0 if self._ahead(hop) else self._room(hop)

    def _ahead(self, hop: Hop) -> list[Claim]:
        claims, ask = self._claims.get(hop, ()), self.ask
        return [c for c in claims if c.start < ask.end and ask.start < c.end]

    def _large(self, paths: Sequence[Path]) -> list[Path]:
        return [p for p in paths if min(map(self.ledger.capacity, p.hops)) >= self._need]

    def _earliest(self, large: Sequence[Path], several: Sequence[Path], most: int) -> float | None:
        best = min((self._free_from(path) for path in large), default=math.inf)
        if several:
            after = self._after([hop for path in several for hop in path.hops])
            found = earliest_split(
                self.ledger, several, self.ask.low, most, self.dividers, self._window, after, best
            )
            best = best if found is None else found
        return None if best == math.inf else best

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

    def _after(self, hops: Sequence[Hop]) -> float:
        """When all who wait for one of these links before will have had it."""
        ends = (c.end for hop in hops for c in self._claims.get(hop, ()) if c.end > self.ask.start)
        return max(ends, default=self.ask.start)

    def _window(self, start: float) -> tuple[float, float]:
        until = self.ask.until
        return start, until if start < until < math.inf else start + self.ask.duration_s

    def _blocking(self, paths: Sequence[Path]) -> tuple[Blocked, ...]:
        found = []
        for hop in dict.fromkeys(hop for path in paths for hop in path.hops):
            ahead = tuple(dict.fromkeys(claim.id for claim in self._ahead(hop)))
            if not ahead and self._room(hop) >= self._need:
                continue
            named = ahead or self._holders(hop)
            found.append(Blocked(hop, self._room(hop), named[:MAX_HOLDERS]))
        return tuple(found)


def failure(path: Path, failed: Mapping[Hop, str]) -> str:
    """Which link of a path has failed, in words; "" where none has."""
    return next((failed[hop] for hop in path.hops if hop in failed), "") if failed else ""


def some(ids: Sequence[str], most: int = 3) -> str:
    """The first few of a list, in words."""
    more = f" and {len(ids) - most} more" if len(ids) > most else ""
    return ", ".join(ids[:most]) + more
