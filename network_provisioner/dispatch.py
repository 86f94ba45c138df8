"""Who gets what, and when: places new transits, serves the queue, ends what is over.

Decisions come from :mod:`~network_provisioner.admission`, the steps are those of
:mod:`~network_provisioner.lifecycle`. Not thread-safe: the broker's lock is around every call.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from network_provisioner.admission import Admission, Grant, Limits, Never, explain
from network_provisioner.errors import BrokerError, InputError
from network_provisioner.lifecycle import Lifecycle
from network_provisioner.model import LIVE, Transit, TransitRequest, TransitState
from network_provisioner.reservations import Hop
from network_provisioner.roster import Roster
from network_provisioner.template import Template
from network_provisioner.terms import Terms, needless, settle
from network_provisioner.topology import Topology
from network_provisioner.units import format_rate, goodput

log = logging.getLogger(__name__)


class Dispatcher:
    """Decides for every transit and lets the lifecycle carry it out."""

    def __init__(
        self,
        topology: Topology,
        templates: Mapping[str, Template],
        admission: Admission,
        roster: Roster,
        life: Lifecycle,
        limits: Limits,
    ) -> None:
        self._topology = topology
        self._templates = templates
        self._admission = admission
        self._roster = roster
        self._life = life
        self._limits = limits

    def create(self, request: TransitRequest, now: float) -> Transit:
        """The transit of a checked request: installed, queued, failed, or best effort.

        Raises BrokerError ``unknown_template``, ``unknown_site``, ``impossible_rate``,
        ``store_unavailable``.
        """
        template = self._templates.get(request.template)
        if template is None:
            raise BrokerError(
                f"unknown template {request.template!r}, expected one of "
                f"{', '.join(sorted(self._templates))}",
                "unknown_template",
            )
        self._check_sites(request)
        terms = settle(request, template)
        transit = Transit(
            id=request.id,
            src=request.src,
            dst=request.dst,
            state=TransitState.QUEUED,
            template=request.template,
            workflow=request.workflow,
            job=request.job,
            retry=request.retry,
            requested_bps=terms.min_bps,
            max_bps=terms.max_bps,
            size_bytes=request.size_bytes,
            requested_at=now,
            lease_s=request.lease_s,
        )
        reason = needless(request, template)
        if reason:
            self._best_effort(transit, reason, now)
        else:
            self._check_possible(request, terms)
            claimed = self._roster.claims_before(transit)
            self._place(transit, template, claimed, now, arriving=True)
        return transit

    def _place(
        self,
        transit: Transit,
        template: Template,
        claimed: Mapping[Hop, str],
        now: float,
        arriving: bool,
    ) -> None:
        """Install, queue, or leave to best effort: whatever can be had now."""
        nodes = self._roster.pinned(transit) if self._limits.pin_pairs else []
        pinned = self._topology.path(nodes) if nodes else None
        verdict = self._admission.decide(transit, template, now, pinned, claimed)
        if isinstance(verdict, Grant):
            self._life.install(transit, verdict, now)
        elif isinstance(verdict, Never):
            transit.candidates = explain(verdict.decision)
            self._best_effort(transit, verdict.reason, now)
        elif pinned is not None and arriving:
            # Waiting would not keep its packets apart from those of the pair's other transits.
            transit.candidates = explain(verdict.decision)
            self._best_effort(
                transit,
                "shares, without a rate of its own, the path that other transits between "
                f"{transit.src} and {transit.dst} hold: {verdict.reason}",
                now,
            )
        elif template.patience_s <= 0:
            transit.candidates = explain(verdict.decision)
            self._best_effort(transit, f"does not wait: {verdict.reason}", now)
        else:
            self._life.wait(transit, verdict)

    def serve_queue(self, now: float) -> None:
        """Start whoever can start, in the queue's order."""
        claimed: dict[Hop, str] = {}
        for transit in self._roster.queue():
            if self._life.out_of_step:  # they would fail one by one; the next sweep tries again
                return
            template = self._templates.get(transit.template)
            if template is None:  # taken out of the configuration while a broker was down
                self._best_effort(transit, f"template {transit.template!r} is gone", now)
                continue
            try:
                self._place(transit, template, claimed, now, arriving=False)
            except BrokerError as error:  # the store is full, or the site has left the topology
                log.warning("transit %s stays without a path: %s", transit.id, error)
                self._best_effort(transit, str(error), now)
            claimed.update(self._roster.claims_of(transit))

    def _best_effort(self, transit: Transit, reason: str, now: float) -> None:
        transit.reason = reason
        self._life.end(transit, TransitState.BEST_EFFORT, now)

    def finish(
        self, transit: Transit, n_bytes: int, seconds: float, outcome: str, now: float
    ) -> bool:
        """Give back what a transit holds, and note its first report that is not empty.

        Returns whether this was that report.
        """
        active, held = transit.id in self._roster.all, transit.state in LIVE
        told = bool(n_bytes or seconds) and not (transit.bytes or transit.seconds)
        if not (active or told or transit.released_at == 0):
            return False
        if told:
            transit.bytes, transit.seconds = n_bytes, seconds
            transit.goodput_bps = goodput(n_bytes, seconds)
        if outcome not in ("", "success"):
            transit.reason += f"; the transfer ended with {outcome!r}"
        if active:
            self._life.count(transit, n_bytes)
            self._life.end(transit, TransitState.RELEASED, now)
        else:
            transit.released_at = transit.released_at or now
            self._life.save_ended(transit)
        if held:
            self._life.apply(now)
        if active:
            self.serve_queue(now)
        return told

    def expire(self, now: float) -> None:
        """End the leases and the patience that are over, and serve who waited for the room."""
        freed = False
        for transit in self._roster.due(now):
            if transit.state is TransitState.QUEUED:
                waited = now - transit.requested_at
                self._best_effort(transit, f"waited {waited:.0f} s: {transit.reason}", now)
            else:
                transit.reason += "; its lease ended"
                self._life.end(transit, TransitState.EXPIRED, now)
                freed = True
        if freed:
            self._life.apply(now)
            self.serve_queue(now)

    def _check_sites(self, request: TransitRequest) -> None:
        try:
            self._topology.site(request.src)
            self._topology.site(request.dst)
        except InputError as error:
            raise BrokerError(str(error), "unknown_site") from error

    def _check_possible(self, request: TransitRequest, terms: Terms) -> None:
        largest = self._admission.largest(request.src, request.dst)
        if terms.asked and 0 < largest < terms.min_bps:
            raise BrokerError(
                f"min_bps {format_rate(terms.min_bps)} between {request.src} and {request.dst}, "
                f"expected at most {format_rate(largest)}, all that their largest path may reserve",
                "impossible_rate",
            )
