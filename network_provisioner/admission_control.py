"""What a request may have on the network as it is reserved now: pure decisions, no effects.

request ─► build: checked, completed from its template ─► a transit with no path yet
transit ─► decide: admission, with the paths its packets must share and who waits before it
transit ─► readmit: what it may have instead of what it holds
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cache

from network_provisioner.base.errors import BrokerError, InputError
from network_provisioner.base.model import CLIENT, ON_SWITCHES, SEEN, Transit, TransitRequest
from network_provisioner.base.units import MAX_RATE_BPS, format_rate
from network_provisioner.controllers.base import Capabilities
from network_provisioner.desired_state import Differentiator
from network_provisioner.reservations import circuits
from network_provisioner.reservations.active_transits import ActiveTransits
from network_provisioner.reservations.ledger import Hop, Ledger, Reservation
from network_provisioner.reservations.quotas import exceeded
from network_provisioner.selection.admission import (
    Admission,
    BrokerLimits,
    MetricsOf,
    check_times,
)
from network_provisioner.selection.breakeven import BreakEven, SetupTimes, largest_small
from network_provisioner.selection.fit import failure
from network_provisioner.selection.push import Movable, Reroute, elsewhere
from network_provisioner.selection.split import PathPart
from network_provisioner.selection.transit import Candidate, Metric
from network_provisioner.selection.verdicts import (
    Claim,
    Grant,
    LimitOf,
    Never,
    Wait,
    crowded,
    unlimited,
)
from network_provisioner.templates.template import Template
from network_provisioner.terms import (
    AgreedRates,
    Templates,
    below,
    new_transit,
    settle,
    template_for,
    template_of,
    unwanted,
    warnings,
)
from network_provisioner.topology.graph import Path, Topology

log = logging.getLogger(__name__)

BestEffortOf = Callable[[str, str, str], tuple[float, float] | None]
"""What transfers without a circuit reach between two sites in b/s, as a user decides by it, and its
age in seconds; None where nobody measured."""
ReportsFlows = Callable[[str], bool]
"""Whether the connections of a site's data transfer nodes are reported as they open."""
Claims = dict[Hop, list[Claim]]
BETTER_BY = 0.5  # of 10: for less, nobody moves


@dataclass(eq=False)
class AdmissionControl:
    """Decides for one transit at a time, and changes nothing. Not thread-safe.

    ``setup_times`` are those of this broker's circuits; without ``best_effort_of`` a part of the
    circuit's rate is taken for best effort's; ``policies`` bound what a class may reserve.
    ``failed``: directed links that carry nothing now, as the broker keeps them.
    """

    _topology: Topology
    _templates: Templates
    _ledger: Ledger
    _active: ActiveTransits
    _limits: BrokerLimits
    _setup_times: SetupTimes
    _metrics_of: MetricsOf | None
    _best_effort_of: BestEffortOf | None
    _failed: Mapping[Hop, str]
    _policies: Differentiator | None
    _reports_flows: ReportsFlows
    _multipath: bool = False
    _real: bool = False

    def __post_init__(self) -> None:
        self._admission = Admission(
            self._topology, self._ledger, self._measured, self._limits, failed=self._failed
        )

    def trust(self, can: Capabilities) -> None:
        """What decides about a path: reserved rates where the network keeps them, measurements
        where it does not. Without packets, what transfers reach tells nothing about a path."""
        self._admission.guaranteed = can.bandwidth != "none" or not can.real_packets
        if not can.real_packets:
            self._metrics_of = self._best_effort_of = None
        self._multipath, self._real = can.multipath, can.real_packets

    # -- a request ---------------------------------------------------------------------------

    def build(self, request: TransitRequest, now: float) -> tuple[Transit, Template, AgreedRates]:
        """The transit of a checked request, its template, and what it settles for.

        Raises BrokerError ``unknown_template``, ``unknown_site``, ``impossible_rate``,
        ``bad_time``, ``conflict``.
        """
        try:
            self._topology.site(request.src)
            self._topology.site(request.dst)
        except InputError as error:
            raise BrokerError(str(error), "unknown_site") from error
        template = template_for(request, self._templates)
        self.check_times(request.start, request.end, now)
        most_bps = 0.0
        if not unwanted(request):
            most_bps = self._admission.capacity(request.src, request.dst, self._paths(template))
        terms = settle(request, template, most_bps)
        transit = new_transit(request, template, terms, now)
        transit.hosts = self._hosts(request)
        if request.ports_at and not (request.flows or request.best_effort):
            self._tell_apart(transit, request.ports_at)
        clash = None if request.best_effort else self._active.pairs.clash(transit)
        if clash is not None:
            raise BrokerError(
                f"flows name packets that transit {clash.id!r} names too, expected ports of its "
                "own for each, or exactly the same",
                "conflict",
            )
        return transit, template, terms

    def changed_terms(
        self, transit: Transit, min_bps: float | None, max_bps: float | None
    ) -> AgreedRates:
        """What a transit that has not ended settles for instead; None leaves a rate as it is.

        Raises BrokerError ``impossible_rate``, ``conflict`` (it has no rate of its own).
        """
        template = template_of(transit, self._templates)
        if template is None or transit.requested_bps <= 0:
            why = "has no rate of its own" if template else f"template {transit.template!r} is gone"
            raise BrokerError(f"the rates of {transit.id!r} cannot be changed: {why}", "conflict")
        if max_bps is None and not transit.uncapped:
            max_bps = transit.max_bps
        request = TransitRequest(
            transit.id,
            transit.src,
            transit.dst,
            min_bps=transit.requested_bps if min_bps is None else min_bps,
            max_bps=max_bps,
        )
        terms = settle(request, template, transit.max_bps)
        self.check_possible(request, terms, template)
        return terms

    def _hosts(self, request: TransitRequest) -> list[str]:
        """The addresses of the two hosts that a request names; none where the topology does not
        know both, or they cannot talk: then all of both sites are meant."""
        src = self._topology.site(request.src).host(request.src_host)
        dst = self._topology.site(request.dst).host(request.dst_host)
        if src is None or dst is None or src.version != dst.version:
            return []
        return [src.address, dst.address]

    def _tell_apart(self, transit: Transit, end: str) -> None:
        """Have a transit's tool use ports of its own, where the switches tell them apart: now, or
        when it begins. Of a client's ports somebody has to see which connections of the servers
        come of them; but where a transit alone opens the way, nobody does before it has rules."""
        if not self._active.pairs.matches:
            return
        ends = (self._topology.nodes[name] for name in (transit.src, transit.dst))
        if end in (CLIENT, SEEN) and any(node.dmz for node in ends):
            return
        if end == CLIENT and not any(map(self._reports_flows, (transit.src, transit.dst))):
            return
        transit.ports_at = end
        if end != SEEN and not (transit.start or transit.end):
            self.give_ports(transit)
            transit.ports_at = end if transit.ports else ""

    def give_ports(self, transit: Transit) -> None:
        """The ports for the tool of a transit that begins, if any are left."""
        if transit.ports_at not in ("", SEEN) and not transit.ports:
            transit.ports = self._active.ports.choose(transit)
            if transit.ports and transit.ports_at != CLIENT:
                key = f"{transit.ports_at}_ports"
                transit.flows = [{"protocol": "tcp", key: transit.ports}]
                if self._active.pairs.clash(transit) is not None:  # somebody names them as its own
                    transit.ports, transit.flows = [], []

    def check_times(self, start: float | None, end: float | None, now: float) -> None:
        """Raises BrokerError ``bad_time`` for times that nobody can have."""
        check_times(start, end, now, self._limits.max_lease_s)

    def check_possible(
        self, request: TransitRequest, terms: AgreedRates, template: Template
    ) -> None:
        """Raises BrokerError ``impossible_rate`` for a minimum of the caller's own that is more
        than can ever be reserved."""
        if not terms.asked:
            return
        largest = self._admission.largest(request.src, request.dst, self._paths(template))
        if 0 < largest < terms.min_bps:
            raise BrokerError(
                f"min_bps {format_rate(terms.min_bps)} between {request.src} and {request.dst}, "
                f"expected at most {format_rate(largest)}, all that can be reserved between them",
                "impossible_rate",
            )

    def warnings(
        self, transit: Transit, template: Template, grant: Grant, until: float
    ) -> list[str]:
        """What may make a transfer slower than it could be, with what was granted up to Unix second
        ``until``, in words."""
        path_bps = sum(way.path.capacity_bps for way in grant.parts)
        return warnings(transit, template, path_bps, until - grant.start)

    def too_small(self, transit: Transit, template: Template, now: float) -> str:
        """Why a circuit would not pay for a transit (:mod:`~.selection.breakeven`), in words; ""
        where it does, or nobody knows. Raises BrokerError ``unknown_site``."""
        size = transit.size_bytes
        if size is None:
            return ""
        if template.break_even_bytes is not None:
            return below(template, size)
        setup_s = self._setup_times.setup_s()
        if size >= largest_small(setup_s, transit.max_bps):  # as most bytes are: no need to look
            return ""
        circuit_bps = self._admission.likely_bps(transit, now)
        if circuit_bps <= 0:
            return ""
        even = BreakEven(setup_s, circuit_bps, self._best_effort(transit, template))
        return "" if even.pays(size) else even.words(size)

    def over_quota(self, transit: Transit, now: float) -> str:
        """Which quota a transit would exceed, in words; "" for none."""
        return exceeded(self._limits.quotas, transit, self._active.of, now)

    # -- a path ------------------------------------------------------------------------------

    def decide(
        self, transit: Transit, template: Template, claims: Claims, now: float
    ) -> Grant | Wait | Never | str:
        """What admission says; in words where there is nothing to decide. ``claims`` are those of
        who waits before it."""
        ways = self._active.pairs.ways(transit)
        if len(ways) > 1:
            where = " and ".join(sorted("-".join(nodes) for nodes in ways))
            return f"other transits of its packets are on {where}"
        return self._admission.decide(
            transit,
            template,
            now,
            self._topology.path(ways.pop()) if ways else None,
            claims,
            lambda holder: self._movable(holder, transit),
            self._multipath,
            self._limit_of(transit, now),
        )

    def readmit(self, transit: Transit, wanted: Transit, now: float) -> Grant | Wait | Never | None:
        """What ``wanted`` may have where the transit gives up what it holds; None where its packets
        cannot be told apart from those of others on several paths, or its template is gone."""
        template = template_of(transit, self._templates)
        ways = self._active.pairs.ways(transit)
        if template is None or len(ways) > 1:
            return None
        pinned = self._topology.path(ways.pop()) if ways else None
        known, claims = self._active.all, self._active.waitlist.claims_before(transit, now)
        before = {
            # Who came later, and may wait for just what this one gives up, does not keep it there.
            hop: [c for c in found if is_before(known[c.id], wanted)]
            for hop, found in claims.items()
        }
        with self._without(transit):
            return self._admission.decide(
                wanted, template, now, pinned, before, None, self._multipath,
                self._limit_of(wanted, now),
            )  # fmt: skip

    def begin_early(
        self, transit: Transit, wanted: Transit, now: float
    ) -> tuple[Transit, Grant] | None:
        """How a held transit may begin before its start, or be sure to begin then: with the lease
        that ``wanted`` asks for, else with what is reserved and as much more as is free. None where
        it has to stay where it is."""
        verdict = self.readmit(transit, wanted, now)
        if isinstance(verdict, Grant):
            return wanted, verdict
        longest = self.window(wanted, now)[1] - now
        reserved_s = transit.lease_until - transit.start
        verdict = self.readmit(transit, replace(wanted, lease_s=reserved_s), now)
        if isinstance(verdict, Wait) and verdict.earliest and verdict.earliest < transit.start:
            wanted = replace(wanted, start=verdict.earliest)
            verdict = self.readmit(transit, replace(wanted, lease_s=reserved_s), now)
        if not isinstance(verdict, Grant):
            return None
        with self._without(transit):
            end = self._free_until(verdict.reservation(transit.id), verdict.start + longest)
        return wanted, replace(verdict, end=end)

    def keep_until(self, transit: Transit, wanted: Transit, now: float) -> float:
        """How long a transit may stay where it is: up to what ``wanted`` asks for, no shorter than
        it may now."""
        until = self.window(wanted, now)[1]
        with self._without(transit) as held:
            if held is not None:
                until = max(held.end, self._free_until(held, until))
        return max(until, transit.lease_until)

    def most_bps(self, transit: Transit) -> float:
        """Bits per second that a transfer can reach at most: on the paths it holds, else on the
        largest between its sites. Where the network carries no packets, or does not know both
        sites, any rate that there is."""
        if not self._real:
            return MAX_RATE_BPS
        try:
            ways = circuits.ways(transit, self._topology)
            if ways and transit.state in ON_SWITCHES and not transit.moves:
                return sum(way.path.capacity_bps for way in ways)
            found = self._admission.paths(transit.src, transit.dst)
        except (InputError, BrokerError):  # both are of another topology's
            return MAX_RATE_BPS
        return min(max((p.capacity_bps for p in found), default=MAX_RATE_BPS), MAX_RATE_BPS)

    def without(
        self, others: Sequence[Transit], transit: Transit, template: Template, claims: Claims,
        now: float,
    ) -> Grant | Wait | Never | str:  # fmt: skip
        """As :meth:`decide`, if others did not hold what they hold."""
        with ExitStack() as stack:
            for other in others:
                stack.enter_context(self._without(other))
            return self.decide(transit, template, claims, now)

    def refusal(self, transit: Transit, ways: Sequence[PathPart], now: float) -> str:
        """Why a live transit may not hold the higher rates of these ``ways``, though there is room,
        in words; "" where it may."""
        start, until = max(now, transit.start), transit.end or transit.lease_until
        rates = Reservation(transit.id, tuple(way.lane for way in ways), start, until).rates()
        limit_of = self._limit_of(transit, now)
        for hop, rate in rates.items():
            if (limit := limit_of(hop)) is None:
                continue
            with self._without(transit):
                left = limit.bps - self._ledger.held(hop, start, until, limit.of)
            if left < rate:
                free, asked = format_rate(max(0, left)), format_rate(rate)
                return f"{hop[0]}>{hop[1]} has {free} free, {asked} asked: {limit.words}"
        claim = self.next_claim(transit, until, now, rates)
        if claim is not None and self.next_claim(transit, until, now) is None:
            return f"{claim.id} waits for the room first"
        return ""

    def shut_out(self, transit: Transit, claims: Claims, lowest: int, now: float) -> bool:
        """Whether every link that a transit waits for lacks room for it still, or those before it
        in the queue need that: then none of its paths can have become free to it.

        ``lowest``: the lowest priority that holds a path.
        """
        waits = self._active.waitlist.claims_of(transit)
        if not any(claims.get(hop) for hop in waits):  # the first: what it waits for may be nearer
            return False
        start, end = self.window(transit, now)
        template = template_of(transit, self._templates)
        # A part of the room may do where several paths share it, or somebody else may move.
        whole = transit.priority <= lowest and template is not None and template.paths < 2

        def closed(hop: Hop, mine: Claim) -> bool:
            done = min(end, start + mine.brief_s)
            if whole and self._ledger.residual(hop, start, done) < mine.rate_bps:
                return True
            there = claims.get(hop, ())
            before = crowded(self._ledger, hop, mine.rate_bps, start, end, there)
            return any(c.comes < done for c in before)

        return bool(waits) and all(closed(hop, c) for hop, c in waits.items() if c.lacks)

    def next_claim(
        self,
        transit: Transit,
        until: float,
        now: float,
        rates: Mapping[Hop, float] | None = None,
    ) -> Claim | None:
        """Who comes first, before ``until``, of those that waited before a live transit, and need
        its room; or what it would take with other ``rates``."""
        known, claims = self._active.all, self._active.waitlist.claims_before(transit, now)
        with self._without(transit) as held:
            if rates is None:
                rates = {} if held is None else held.rates()
            found = [
                claim
                for hop, rate in rates.items()
                for claim in crowded(self._ledger, hop, rate, now, until, claims.get(hop, ()))
                if is_before(known[claim.id], transit)
            ]
        return min(found, key=lambda claim: claim.start, default=None)

    def failure(self, transit: Transit) -> tuple[Hop, str] | None:
        """A link of a transit's paths that cannot be used, and that in words; None for none."""
        return circuits.first_of(transit, self._failed)

    def elsewhere(self, together: Sequence[Transit], away: Hop, now: float) -> tuple[Reroute, ...]:
        """Where transits of one pair of sites that must take one path have room without a link; ()
        where they have not."""
        members = []
        for transit in together:
            template = template_of(transit, self._templates)
            if template is None:
                return ()
            paths = self._admission.best_first(transit, template, now)
            ways = circuits.ways(transit, self._topology)
            members.append(Movable(transit.id, transit.priority, paths, ways))
        return elsewhere(self._ledger, members, away, now, self._admission.switches)

    def may_move(self, transit: Transit, freed: Set[Hop]) -> bool:
        """Whether a transit moves to better paths by its template, and one of its others leads
        over links where room was given back."""
        template = template_of(transit, self._templates)
        if template is None or template.better_path != "move":
            return False
        paths = self._admission.paths(transit.src, transit.dst)
        return any(not freed.isdisjoint(p.hops) for p in paths if list(p.nodes) != transit.path)

    def better(self, transit: Transit, now: float) -> Candidate | None:
        """A better path with room for a transit that is on one, alone there with its packets; None
        where there is none."""
        template = template_of(transit, self._templates)
        alone = not (transit.parts or self._active.pairs.mates(transit))
        if template is None or transit.requested_bps <= 0 or not alone:
            return None
        wanted = replace(transit.copy(), start=now, end=transit.end or transit.lease_until)
        claims = self._active.waitlist.claims_before(transit, now)
        with self._without(transit):
            verdict = self._admission.decide(
                wanted, template, now, claimed=claims, limit_of=self._limit_of(wanted, now)
            )
        if not isinstance(verdict, Grant) or verdict.decision.chosen is None:
            return None
        best = verdict.decision.chosen
        here = (c.q for c in verdict.decision.candidates if list(c.path.nodes) == transit.path)
        return best if best.q - next(here, 0.0) >= BETTER_BY else None

    def open_path(self, transit: Transit) -> Path | None:
        """The path for a transit without a guarantee, where nothing passes without one (at a
        Science DMZ) and its packets are not on several; else None."""
        ends = (self._topology.nodes[transit.src], self._topology.nodes[transit.dst])
        if transit.src == transit.dst or not any(end.dmz for end in ends):
            return None
        ways = self._active.pairs.ways(transit)
        if len(ways) > 1 or self._active.pairs.clash(transit) is not None:
            return None
        if ways:
            return self._topology.path(ways.pop())
        paths = self._admission.paths(transit.src, transit.dst)
        return next((p for p in paths if not failure(p, self._failed)), None)

    def window(self, transit: Transit, now: float) -> tuple[float, float]:
        """From when to when a transit would hold what it asks for, if it began when it should."""
        return self._admission.window(transit, now)

    def usual_end(self, transit: Transit) -> float:
        """When the lease of a live transit would have ended had nobody waited before it."""
        start = max(transit.installed_at, transit.start, transit.requested_at)
        return self._admission.window(transit, start)[1]

    def lease_until(self, transit: Transit, grant: Grant) -> float:
        """When what was granted ends unless it is renewed."""
        longest = self._limits.max_lease_s
        if transit.lease_s is not None:
            longest = min(transit.lease_s, longest)
        until = min(grant.end, grant.start + longest)
        return min(until, transit.lease_until) if transit.lost_path else until

    # -- within ------------------------------------------------------------------------------

    def _paths(self, template: Template) -> int:
        """Over how many paths one transit may be split."""
        return template.paths if self._multipath else 1

    @contextmanager
    def _without(self, transit: Transit) -> Iterator[Reservation | None]:
        """The ledger without what a transit holds, for as long as the block lasts."""
        held = self._ledger.release(transit.id)
        try:
            yield held
        finally:
            if held is not None:
                self._ledger.admit(held)

    def _limit_of(self, transit: Transit, now: float) -> LimitOf:
        if self._policies is None:
            return unlimited
        bound, known, at = self._policies.bound, self._active.all, max(now, transit.start)
        return cache(lambda hop: bound(transit, hop, self._ledger.capacity(hop), at, known))

    def _free_until(self, held: Reservation, most: float) -> float:
        """How long beyond its end, and up to ``most``, the lanes of a reservation are free."""
        until = max(most, held.end)
        for hop, rate in held.rates().items():
            busy = self._ledger.busy(hop, rate, held.end)
            until = max(held.end, min((begin for begin, _ in busy if begin < until), default=until))
        return until

    def _movable(self, holder: str, newcomer: Transit) -> list[Movable]:
        """Who would have to move together if this one did; nobody where one of them must stay."""
        first = self._active.all.get(holder)
        if first is None:
            return []
        found = []
        for transit in (first, *self._active.pairs.mates(first)):
            template = template_of(transit, self._templates)
            if transit.priority >= newcomer.priority or template is None:
                return []
            ways = circuits.ways(transit, self._topology)
            if any(way.min_bps <= 0 for way in ways):
                return []
            low = sum(way.min_bps for way in ways)
            paths = self._admission.usable(transit.src, transit.dst, template, low)
            found.append(Movable(transit.id, transit.priority, paths, ways))
        return found

    def _measured(self, path: Path, user: str) -> Mapping[str, Metric]:
        if self._metrics_of is None:
            return {}
        try:
            return self._metrics_of(path, user)
        except Exception:  # a foreign archive that fails costs its opinion, never the transfer
            log.exception("what was measured of %s cannot be had", "-".join(path.nodes))
            return {}

    def _best_effort(self, transit: Transit, template: Template) -> float | None:
        if self._best_effort_of is None:
            return None
        try:
            found = self._best_effort_of(transit.src, transit.dst, transit.user)
        except Exception:  # likewise
            log.exception("best effort from %s to %s is unknown", transit.src, transit.dst)
            return None
        return None if found is None or found[1] > template.max_age_s else found[0]


def is_before(other: Transit, wanted: Transit) -> bool:
    """Whether one that waits has asked before ``wanted`` did, or is of higher priority."""
    if other.id == wanted.id:
        return False
    return other.priority > wanted.priority or other.requested_at < wanted.requested_at
