"""What a transit may have on the network as it is reserved now. Reads the state, changes nothing.

transit ─► decide: paths and time, with the paths its packets must share and who waits before it
transit ─► readmit: what it may have instead of what it holds
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from typing import Any

from network_provisioner.base.errors import BrokerError, InputError
from network_provisioner.base.model import ON_SWITCHES, Transit
from network_provisioner.base.units import MAX_RATE_BPS, format_rate
from network_provisioner.policies.policy import Differentiator, LimitOf, no_limit
from network_provisioner.selection.breakeven import BreakEven, SetupTimes, largest_small
from network_provisioner.selection.fit import failure
from network_provisioner.selection.limits import BrokerLimits, exceeded_quota
from network_provisioner.selection.outcomes import Grant, Never, Wait
from network_provisioner.selection.path_selector import PathSelector
from network_provisioner.selection.push import Movable, MovableOf, Reroute, reroutes
from network_provisioner.selection.split import split
from network_provisioner.selection.terms import below
from network_provisioner.selection.transit import Candidate, Metric
from network_provisioner.state import circuits
from network_provisioner.state.ledger import Ledger, PathPart, Reservation
from network_provisioner.state.network_state import NetworkState
from network_provisioner.state.waitlist import Claim, Claims, crowded_claims
from network_provisioner.templates.template import Template
from network_provisioner.topology.graph import Hop, Path

BestEffortOf = Callable[[str, str, str], tuple[float, float] | None]
"""What transfers without a circuit reach between two sites in b/s, as a user decides by it, and its
age in seconds; None where nobody measured."""
BETTER_BY = 0.5  # of 10: for less, nobody moves


@dataclass(eq=False)
class Admission:
    """Decides for one transit at a time. Not thread-safe.

    ``setup_times`` are those of this broker's circuits; ``policies`` bound what a class may
    reserve.
    """

    _state: NetworkState
    _selector: PathSelector
    _limits: BrokerLimits
    _setup_times: SetupTimes
    _best_effort_of: BestEffortOf
    _policies: Differentiator | None

    def too_small(self, transit: Transit, template: Template, now: float) -> str:
        """Why a circuit would not pay for a transit (:mod:`~.selection.breakeven`), in words; ""
        where it does, or nobody knows. Raises BrokerError ``unknown_site``."""
        size = transit.request.size_bytes
        if size is None:
            return ""
        if template.break_even_bytes is not None:
            return below(template, size)
        setup_s = self._setup_times.setup_s()
        if size >= largest_small(setup_s, transit.request.max_bps):
            return ""  # as most bytes are: no need to look
        circuit_bps = self._selector.likely_bps(transit, now)
        if circuit_bps <= 0:
            return ""
        even = BreakEven(setup_s, circuit_bps, self._best_effort(transit, template))
        return "" if even.pays(size) else even.explanation(size)

    def over_quota(self, transit: Transit, now: float) -> str:
        """Which quota a transit would exceed, in words; "" for none."""
        return exceeded_quota(self._limits.quotas, transit, self._state.active.of, now)

    # -- a path ------------------------------------------------------------------------------

    def decide(
        self, transit: Transit, template: Template, claims: Claims, now: float,
        without: Iterable[Transit] = (),
    ) -> Grant | Wait | Never:  # fmt: skip
        """What a transit may have. ``claims`` are those of who waits before it. ``without``: as if
        these transits held nothing."""
        pinned = self._pinned(transit)
        if isinstance(pinned, Never):
            return pinned
        return self._find(
            transit, template, now, claims, without, pinned,
            lambda holder: self._movable(holder, transit, now),
        )  # fmt: skip

    def readmit(self, transit: Transit, wanted: Transit, now: float) -> Grant | Wait | Never:
        """What ``wanted`` may have where the transit gives up what it holds."""
        template = self._state.active.template_of(transit)
        if template is None:
            return Never(f"template {transit.request.template!r} is gone")
        pinned = self._pinned(transit)
        if isinstance(pinned, Never):
            return pinned
        active = self._state.active
        claims = {
            # Who came later, and may wait for just what this one gives up, does not keep it there.
            hop: [claim for claim in there if is_before(active.all[claim.id], wanted)]
            for hop, there in active.waitlist.claims_before(transit, now).items()
        }
        return self._find(wanted, template, now, claims, [transit], pinned)

    def begin_early(
        self, transit: Transit, wanted: Transit, now: float
    ) -> tuple[Transit, Grant] | None:
        """How a held transit may begin before its start, or be sure to begin then: with the lease
        that ``wanted`` asks for, else with what is reserved and as much more as is free. None where
        it has to stay where it is."""
        outcome = self.readmit(transit, wanted, now)
        if isinstance(outcome, Grant):
            return wanted, outcome
        longest = self.window(wanted, now)[1] - now
        start = transit.request.start
        reserved_s = transit.grant.lease_until - start
        outcome = self.readmit(transit, _asking(wanted, lease_s=reserved_s), now)
        if isinstance(outcome, Wait) and outcome.earliest and outcome.earliest < start:
            wanted = _asking(wanted, start=outcome.earliest)
            outcome = self.readmit(transit, _asking(wanted, lease_s=reserved_s), now)
        if not isinstance(outcome, Grant):
            return None
        most = outcome.start + longest
        end = self._free_until(outcome.reservation(transit.id), most, transit)
        return wanted, replace(outcome, end=end)

    def keep_until(self, transit: Transit, wanted: Transit, now: float) -> float:
        """How long a transit may stay where it is: up to what ``wanted`` asks for, no shorter than
        it may now."""
        until = self.window(wanted, now)[1]
        held = self._state.ledger.reservations.get(transit.id)
        if held is not None:
            until = self._free_until(held, until, transit)
        return max(until, transit.grant.lease_until)

    def most_bps(self, transit: Transit) -> float:
        """Bits per second that a transfer can reach at most: on the paths it holds, else on the
        largest between its sites. Where the network carries no packets, or does not know both
        sites, any rate that there is."""
        if not self._state.can.real_packets:
            return MAX_RATE_BPS
        try:
            ways = circuits.ways(transit, self._state.topology)
            if ways and transit.state in ON_SWITCHES and not transit.grant.moves:
                return sum(way.path.capacity_bps for way in ways)
            paths = self._paths(transit)
        except (InputError, BrokerError):  # both are of another topology's
            return MAX_RATE_BPS
        return min(max((p.capacity_bps for p in paths), default=MAX_RATE_BPS), MAX_RATE_BPS)

    def refusal(self, transit: Transit, ways: Sequence[PathPart], now: float) -> str:
        """Why a live transit may not hold the higher rates of these ``ways``, though there is room,
        in words; "" where it may."""
        start = max(now, transit.request.start)
        until = transit.request.end or transit.grant.lease_until
        rates = Reservation(transit.id, tuple(way.lane for way in ways), start, until).rates()
        limit_of, others = self._limit_of(transit, now), self._ledger_without(transit)
        for hop, rate in rates.items():
            if (limit := limit_of(hop)) is None:
                continue
            left = limit.bps - others.held(hop, start, until, limit.of)
            if left < rate:
                free_text, rate_text = format_rate(max(0, left)), format_rate(rate)
                link = f"{hop[0]}>{hop[1]}"
                return f"{link} has {free_text} free, {rate_text} asked: {limit.explanation}"
        claim = self.next_claim(transit, until, now, rates)
        if claim is not None and self.next_claim(transit, until, now) is None:
            return f"{claim.id} waits for the room first"
        return ""

    def shut_out(self, transit: Transit, claims: Claims, lowest: int, now: float) -> bool:
        """Whether every link that a transit waits for lacks room for it still, or those before it
        in the queue need that: then none of its paths can have become free to it. With its rank,
        which rises as it waits, it may make others move.

        ``lowest``: the lowest priority that holds a path.
        """
        ledger, waits = self._state.ledger, self._state.active.waitlist.claims_of(transit)
        if not any(claims.get(hop) for hop in waits):  # the first: what it waits for may be nearer
            return False
        start, end = self.window(transit, now)
        template = self._state.active.template_of(transit)
        # A part of the room may do where several paths share it, or somebody else may move.
        rank = self._state.active.waitlist.rank(transit, now)
        whole = rank <= lowest and template is not None and template.paths < 2

        def closed(hop: Hop, mine: Claim) -> bool:
            done = min(end, start + mine.brief_s)
            if whole and ledger.residual(hop, start, done) < mine.rate_bps:
                return True
            before = crowded_claims(ledger, hop, mine.rate_bps, start, end, claims.get(hop, ()))
            return any(c.comes < done for c in before)

        return bool(waits) and all(closed(hop, c) for hop, c in waits.items() if c.lacks)

    def next_claim(
        self, transit: Transit, until: float, now: float, rates: Mapping[Hop, float] | None = None
    ) -> Claim | None:
        """Who comes first, before ``until``, of those that waited before a live transit, and need
        its room; or what it would take with other ``rates``."""
        active, others = self._state.active, self._ledger_without(transit)
        claims = active.waitlist.claims_before(transit, now)
        if rates is None:
            held = self._state.ledger.reservations.get(transit.id)
            rates = {} if held is None else held.rates()
        before = [
            claim
            for hop, rate in rates.items()
            for claim in crowded_claims(others, hop, rate, now, until, claims.get(hop, ()))
            if is_before(active.all[claim.id], transit)
        ]
        return min(before, key=lambda claim: claim.start, default=None)

    def reroutes(self, together: Sequence[Transit], away: Hop, now: float) -> tuple[Reroute, ...]:
        """Where transits of one pair of sites that must take one path have room without a link; ()
        where they have not."""
        members = []
        for transit in together:
            template = self._state.active.template_of(transit)
            if template is None:
                return ()
            avoided = self._state.avoided.get(transit.id, ())
            paths = tuple(
                sorted(
                    self._selector.best_first(transit, template, now),
                    key=lambda path: path.nodes in avoided,
                )
            )
            ways = circuits.ways(transit, self._state.topology)
            members.append(Movable(transit.id, transit.request.priority, paths, ways))
        return reroutes(self._state.ledger, members, away, now, self._selector.switches)

    def may_move(self, transit: Transit, freed: Set[Hop]) -> bool:
        """Whether a transit moves to better paths by its template, and one of its others leads
        over links where room was given back."""
        template = self._state.active.template_of(transit)
        if template is None or template.better_path != "move":
            return False
        paths, nodes = self._paths(transit), transit.grant.path
        return any(not freed.isdisjoint(p.hops) for p in paths if list(p.nodes) != nodes)

    def better(self, transit: Transit, now: float) -> Candidate | None:
        """A better path with room for a transit that is on one, alone there with its packets; None
        where there is none."""
        template = self._state.active.template_of(transit)
        if template is None or transit.request.min_bps <= 0 or not self._is_alone(transit):
            return None
        wanted = _asking(transit, start=now, end=transit.request.end or transit.grant.lease_until)
        claims = self._state.active.waitlist.claims_before(transit, now)
        outcome = self._find(wanted, template, now, claims, [transit])
        if not isinstance(outcome, Grant) or outcome.decision.chosen is None:
            return None
        best = outcome.decision.chosen
        nodes = transit.grant.path
        here = (c.q for c in outcome.decision.candidates if list(c.path.nodes) == nodes)
        avoided = best.path.nodes in self._state.avoided.get(transit.id, ())
        return best if best.q - next(here, 0.0) >= BETTER_BY and not avoided else None

    def divided(
        self, transit: Transit, most: Mapping[Hop, float], now: float
    ) -> tuple[PathPart, ...]:
        """Several paths that carry together what a transit is guaranteed, where its template allows
        them, with ``most`` b/s on some links; () for none."""
        template = self._state.active.template_of(transit)
        if template is None or template.paths < 2:
            return ()
        if not (self._state.can.multipath and self._is_alone(transit)):
            return ()
        until = transit.request.end or transit.grant.lease_until
        ledger = self._ledger_without(transit)

        def room(hop: Hop) -> int:
            return int(min(ledger.residual(hop, now, until), most.get(hop, math.inf)))

        paths, request = self._selector.best_first(transit, template, now), transit.request
        low, high = request.min_bps, request.max_bps
        return split(paths, room, low, high, template.paths, self._selector.switches) or ()

    def separating(self, transit: Transit, nodes: Sequence[str]) -> Hop | None:
        """A link of a transit's path that another path between its sites does without: the first of
        those between ``nodes``, else of all; None where every path has all of them."""
        paths = self._paths(transit)
        way = list(pairwise(transit.grant.path))
        for hop in [*(hop for hop in way if hop in set(pairwise(nodes))), *way]:
            if any(hop not in path.hops for path in paths):
                return hop
        return None

    def measured(self, transit: Transit, nodes: Sequence[str]) -> Mapping[str, Metric]:
        """What was measured of a path, as the transit's user decides by it."""
        path = self._state.topology.path(tuple(nodes))
        return self._selector.measured(path, transit.request.user)

    def open_path(self, transit: Transit) -> Path | None:
        """The path for a transit without a guarantee, where nothing passes without one (at a
        Science DMZ) and its packets are not on several; else None."""
        src, dst, nodes = transit.request.src, transit.request.dst, self._state.topology.nodes
        if src == dst or not any(nodes[end].dmz for end in (src, dst)):
            return None
        pinned = self._pinned(transit)
        if isinstance(pinned, Never) or self._state.active.pairs.clash(transit) is not None:
            return None
        if pinned is not None:
            return pinned
        paths = self._paths(transit)
        return next((p for p in paths if not failure(p, self._state.unusable)), None)

    def window(self, transit: Transit, now: float) -> tuple[float, float]:
        """From when to when a transit would hold what it asks for, if it began when it should."""
        return self._selector.window(transit, now)

    def usual_end(self, transit: Transit) -> float:
        """When the lease of a live transit would have ended had nobody waited before it."""
        start = max(transit.grant.installed_at, transit.request.start, transit.request.requested_at)
        return self._selector.window(transit, start)[1]

    def lease_until(self, transit: Transit, grant: Grant) -> float:
        """When what was granted ends unless it is renewed."""
        longest, lease_s = self._limits.max_lease_s, transit.request.lease_s
        if lease_s is not None:
            longest = min(lease_s, longest)
        until = min(grant.end, grant.start + longest)
        return min(until, transit.grant.lease_until) if transit.lost_path else until

    # -- within ------------------------------------------------------------------------------

    def _paths(self, transit: Transit) -> list[Path]:
        return self._selector.paths(transit.request.src, transit.request.dst)

    def _find(
        self, transit: Transit, template: Template, now: float, claims: Claims,
        without: Iterable[Transit], pinned: Path | None = None,
        movable_of: MovableOf | None = None,
    ) -> Grant | Wait | Never:  # fmt: skip
        limit_of, ledger = self._limit_of(transit, now), self._ledger_without(*without)
        return self._selector.find(
            transit, template, now, pinned, claims, movable_of, limit_of, ledger
        )

    def _pinned(self, transit: Transit) -> Path | Never | None:
        """The only path that it may take, which others of its packets are on; None for any."""
        ways = self._state.active.pairs.ways(transit)
        if len(ways) > 1:
            where = " and ".join(sorted("-".join(nodes) for nodes in ways))
            return Never(f"other transits of its packets are on {where}")
        return self._state.topology.path(ways.pop()) if ways else None

    def _is_alone(self, transit: Transit) -> bool:
        """Whether it is on one path, with nobody whose packets must take the same."""
        return not (transit.grant.parts or self._state.active.pairs.mates(transit))

    def _limit_of(self, transit: Transit, now: float) -> LimitOf:
        if self._policies is None:
            return no_limit
        bound, known = self._policies.bound, self._state.active.all
        at = max(now, transit.request.start)
        return cache(lambda hop: bound(transit, hop, self._state.ledger.capacity(hop), at, known))

    def _ledger_without(self, *transits: Transit) -> Ledger:
        """The ledger as it would be if these transits held nothing."""
        ledger = self._state.ledger
        held = [t.id for t in transits if t.id in ledger.reservations]
        return ledger.without_reservations(held) if held else ledger

    def _free_until(self, held: Reservation, most: float, transit: Transit) -> float:
        """How long beyond its end, and up to ``most``, the lanes of a reservation are free of all
        but the transit itself."""
        others, until = self._ledger_without(transit), max(most, held.end)
        for hop, rate in held.rates().items():
            busy = others.busy(hop, rate, held.end)
            until = max(held.end, min((begin for begin, _ in busy if begin < until), default=until))
        return until

    def _movable(self, holder: str, newcomer: Transit, now: float) -> list[Movable]:
        """Who would have to move together if this one did; nobody where one of them must stay."""
        rank = self._state.active.waitlist.rank(newcomer, now)
        first = self._state.active.all.get(holder)
        if first is None:
            return []
        movable = []
        for transit in (first, *self._state.active.pairs.mates(first)):
            template = self._state.active.template_of(transit)
            if transit.request.priority >= rank or template is None:
                return []
            ways = circuits.ways(transit, self._state.topology)
            if any(way.min_bps <= 0 for way in ways):
                return []
            low = sum(way.min_bps for way in ways)
            paths = self._selector.usable(transit, template, low)
            movable.append(Movable(transit.id, transit.request.priority, paths, ways))
        return movable

    def _best_effort(self, transit: Transit, template: Template) -> float | None:
        if not self._state.can.real_packets:
            return None
        request = transit.request
        known = self._best_effort_of(request.src, request.dst, request.user)
        return None if known is None or known[1] > template.max_age_s else known[0]


def is_before(other: Transit, wanted: Transit) -> bool:
    """Whether one that waits has asked before ``wanted`` did, or is of higher priority."""
    if other.id == wanted.id:
        return False
    mine, its = wanted.request, other.request
    return its.priority > mine.priority or its.requested_at < mine.requested_at


def _asking(transit: Transit, **values: Any) -> Transit:
    """The same transit with another request."""
    return replace(transit, request=replace(transit.request, **values))
