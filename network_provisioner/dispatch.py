"""Who gets what, and when: places new transits, serves the queue, ends what is over.

Decisions come from :mod:`~network_provisioner.decisions.admission`, the steps are those of
:mod:`~network_provisioner.lifecycle`. Not thread-safe: the broker's turn is around every call.
"""

from __future__ import annotations

import logging

from network_provisioner import circuits
from network_provisioner.decisions.admission import (
    Admission,
    Claim,
    Grant,
    Limits,
    Never,
    Wait,
    explain,
)
from network_provisioner.decisions.lanes import Hop
from network_provisioner.decisions.push import Movable
from network_provisioner.drafts import Drafts
from network_provisioner.errors import BrokerError
from network_provisioner.lifecycle import Lifecycle
from network_provisioner.model import SHARES, Transit, TransitRequest, TransitState
from network_provisioner.reports import Report
from network_provisioner.roster import Roster
from network_provisioner.small import BestEffortOf, Small, Standing
from network_provisioner.template import Template
from network_provisioner.terms import Templates, template_of, unwanted
from network_provisioner.topology import Path, Topology

log = logging.getLogger(__name__)


class Dispatcher:
    """Decides for every transit and lets the lifecycle carry it out.

    ``multipath``: the switches can divide one transit's packets over several paths.
    """

    def __init__(
        self,
        topology: Topology,
        templates: Templates,
        admission: Admission,
        roster: Roster,
        life: Lifecycle,
        limits: Limits,
        best_effort_of: BestEffortOf | None = None,
    ) -> None:
        self._topology = topology
        self._templates = templates
        self._admission = admission
        self._roster = roster
        self._life = life
        self._limits = limits
        self._drafts = Drafts(topology, templates, admission, roster, limits)
        self.small = Small(admission, life.installer.setup_times, best_effort_of)
        self._standing = Standing(life, self._hold_now)
        self.multipath = False

    # -- a new transit -----------------------------------------------------------------------

    def create(self, request: TransitRequest, now: float) -> Transit:
        """The transit of a checked request: held, queued, or best effort.

        Raises BrokerError ``unknown_template``, ``unknown_site``, ``impossible_rate``,
        ``bad_time``, ``conflict``, ``store_unavailable``.
        """
        transit, template, terms = self._drafts.draw_up(request, now)
        reason = unwanted(request)
        if request.best_effort:  # it is under way without one, or was: there is no door to open
            transit.reason = reason
            self._life.decline(transit, now)
        elif reason:
            self._without(transit, reason, now)
        elif reason := self.small.reason(transit, template, now):
            self._without(transit, self._sharing(transit, template, reason, now), now)
        else:
            self._drafts.check_possible(request, terms, template, self.multipath)
            claims = self._roster.waitlist.claims_before(transit, now)
            self._place(transit, template, claims, now, arriving=True)
        return transit

    def _sharing(self, transit: Transit, template: Template, reason: str, now: float) -> str:
        """Have a small transit share a standing circuit, where its template wants that and the
        transit is for now; the reason, completed."""
        if template.small != "share" or transit.start > now:
            return reason
        name, refusal = self._standing.share(template, transit.src, transit.dst, now)
        if name:
            return f"{SHARES} {name}: {reason}"
        return f"{reason}; there is no standing circuit to share: {refusal}"

    def _hold_now(self, request: TransitRequest, now: float) -> str:
        """Hold a path at once, or say why not and leave no trace. Raises as :meth:`create`."""
        transit, template, _ = self._drafts.draw_up(request, now)
        claims = self._roster.waitlist.claims_before(transit, now)
        verdict = self._verdict(transit, template, claims, now)
        if not isinstance(verdict, Grant):
            return verdict if isinstance(verdict, str) else verdict.reason
        self._life.hold(transit, verdict, self.lease_until(transit, verdict), now)
        return ""

    def _place(
        self,
        transit: Transit,
        template: Template,
        claims: dict[Hop, list[Claim]],
        now: float,
        arriving: bool,
    ) -> None:
        """Hold, queue, or leave to best effort: whatever can be had now."""
        verdict = self._verdict(transit, template, claims, now)
        if isinstance(verdict, str):
            self._without(transit, verdict, now)
            return
        if isinstance(verdict, Grant):
            self._life.hold(transit, verdict, self.lease_until(transit, verdict), now)
            return
        transit.candidates = explain(verdict.decision)
        if isinstance(verdict, Never):
            self._without(transit, verdict.reason, now)
        elif arriving and self._roster.pairs.ways(transit) and transit.start <= now:
            # Waiting would not keep its packets apart from those of the pair's other transits.
            reason = (
                "shares, without a rate of its own, the path that other transits between "
                f"{transit.src} and {transit.dst} hold: {verdict.reason}"
            )
            self._without(transit, reason, now)
        elif template.patience_s <= 0:
            self._without(transit, f"does not wait: {verdict.reason}", now)
        else:
            self._life.wait(transit, verdict, now)

    def _verdict(
        self, transit: Transit, template: Template, claims: dict[Hop, list[Claim]], now: float
    ) -> Grant | Wait | Never | str:
        """What admission says; in words where there is nothing to decide."""
        ways = self._roster.pairs.ways(transit)
        if len(ways) > 1:
            where = " and ".join(sorted("-".join(nodes) for nodes in ways))
            return f"other transits of its packets are on {where}"
        verdict = self._admission.decide(
            transit,
            template,
            now,
            self._topology.path(ways.pop()) if ways else None,
            claims,
            lambda holder: self._movable(holder, transit),
            self.multipath,
        )
        if isinstance(verdict, Grant) and verdict.moves and self._life.installer.starting:
            # So that only this one's moves are undone where they are refused. And those that start
            # may be refused themselves: then they can neither move nor need to.
            self._life.installer.carry_out(now)
            return self._verdict(transit, template, claims, now)
        return verdict

    def lease_until(self, transit: Transit, grant: Grant) -> float:
        """When what was granted ends unless it is renewed."""
        longest = self._limits.max_lease_s
        if transit.lease_s is not None:
            longest = min(transit.lease_s, longest)
        return min(grant.end, grant.start + longest)

    def _without(self, transit: Transit, reason: str, now: float) -> None:
        """Leave a transit to best effort; at a Science DMZ, where nothing passes without one, open
        the way for it all the same."""
        transit.reason = reason
        way = self._door(transit)
        until = self._admission.window(transit, now)[1]
        if way is None or transit.start > now or until <= now:
            self._life.decline(transit, now)
            return
        try:
            self._life.open(transit, way, until, f"open, without a rate of its own: {reason}")
        except BrokerError as error:
            log.warning("transit %s is not let through: %s", transit.id, error)
            self._life.decline(transit, now)

    def _door(self, transit: Transit) -> Path | None:
        ends = (self._topology.nodes[transit.src], self._topology.nodes[transit.dst])
        if transit.src == transit.dst or not any(end.dmz for end in ends):
            return None
        ways = self._roster.pairs.ways(transit)
        if len(ways) > 1 or self._roster.pairs.clash(transit) is not None:
            return None
        if ways:
            return self._topology.path(ways.pop())
        return next(iter(self._admission.paths(transit.src, transit.dst)), None)

    def _movable(self, holder: str, newcomer: Transit) -> list[Movable]:
        """Who would have to move together if this one did; nobody where one of them must stay."""
        first = self._roster.all.get(holder)
        if first is None:
            return []
        found = []
        for transit in (first, *self._roster.pairs.mates(first)):
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

    # -- time --------------------------------------------------------------------------------

    def serve_queue(self, now: float) -> None:
        """Start whoever can start, in the queue's order."""
        if self._life.out_of_step:  # they would come back one by one; the next sweep tries again
            return
        waitlist = self._roster.waitlist
        claimed: dict[Hop, list[Claim]] = {}
        for transit in waitlist.in_order(now):
            if waitlist.stirs(transit, now) and not waitlist.shut_out(transit, claimed):
                self._try_again(transit, claimed, now)
            for hop, claim in waitlist.claims_of(transit).items():
                claimed.setdefault(hop, []).append(claim)
        waitlist.served()

    def _try_again(self, transit: Transit, claimed: dict[Hop, list[Claim]], now: float) -> None:
        template = template_of(transit, self._templates)
        if template is None:  # taken out of the configuration while a broker was down
            self._without(transit, f"template {transit.template!r} is gone", now)
            return
        if self._roster.pairs.clash(transit) is not None:  # one that came while this one waited
            self._without(transit, "its flows name packets that another transit names too", now)
            return
        try:
            self._place(transit, template, claimed, now, arriving=False)
        except BrokerError as error:  # the store is full, or the site has left the topology
            log.warning("transit %s stays without a path: %s", transit.id, error)
            transit.reason = str(error)
            self._life.decline(transit, now)

    def expire(self, now: float) -> bool:
        """End the leases and the patience that are over; whether that left room for others."""
        freed = False
        for transit in self._roster.due(now):
            if transit.state is TransitState.QUEUED:
                waited = now - transit.requested_at
                self._without(transit, f"waited {waited:.0f} s: {transit.reason}", now)
            else:
                over = "its end has come" if 0 < transit.end <= now else "its lease ended"
                transit.reason += f"; {over}"
                self._life.end(transit, TransitState.EXPIRED, now)
            freed = True
        return freed

    def finish(self, transit: Transit, report: Report, now: float) -> bool:
        """Give back what a transit holds, and note its first report that is not empty.

        Returns whether this was that report.
        """
        active = transit.id in self._roster.all
        told = report.moved and not (transit.bytes or transit.seconds)
        if not (active or told or transit.released_at == 0):
            return False
        report.note(transit, told)
        if active:
            self._life.watch.reported(transit, report.bytes, now)
            self._life.end(transit, TransitState.RELEASED, now)
        else:
            self._life.end_late(transit, now)
        return told
