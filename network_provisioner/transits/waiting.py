"""Serves the queue: starts the transits that wait, in their order, once there is room for them.

Some begin before others who wait for their room, and give way to them later (backfilling).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from network_provisioner.base.errors import BrokerError
from network_provisioner.base.instants import iso
from network_provisioner.base.model import Transit
from network_provisioner.selection.admission import Admission, is_before
from network_provisioner.selection.outcomes import Grant
from network_provisioner.state.active_transits import ActiveTransits
from network_provisioner.state.circuits import hops
from network_provisioner.state.waitlist import Claim, Claims
from network_provisioner.templates.template import Template
from network_provisioner.topology.graph import Hop
from network_provisioner.transits.desired_state import DesiredState
from network_provisioner.transits.lifecycle import Lifecycle
from network_provisioner.transits.placement import Placement

log = logging.getLogger(__name__)


@dataclass(eq=False)
class WaitingTransits:
    """Not thread-safe: the broker holds its lock in every call."""

    _active: ActiveTransits
    _admission: Admission
    _lifecycle: Lifecycle
    _desired: DesiredState
    _placement: Placement

    def serve(self, now: float) -> None:
        """Start whoever can start, in the queue's order."""
        if self._desired.out_of_step:  # they would come back one by one; the next sweep tries again
            return
        waitlist = self._active.waitlist
        if not len(waitlist):
            waitlist.end_pass()
            return
        claimed: dict[Hop, list[Claim]] = {}
        lowest = self._active.lowest
        for transit in waitlist.in_order(now):
            if waitlist.is_due(transit, now):
                late = self._late(transit, now)
                if (
                    late or not self._admission.shut_out(transit, claimed, lowest, now)
                ) and not self._try_again(transit, claimed, late, now):
                    return  # all go on waiting, and the next sweep tries again
            for hop, claim in waitlist.claims_of(transit).items():
                claimed.setdefault(hop, []).append(claim)
        waitlist.end_pass()

    def _try_again(
        self, transit: Transit, claimed: Claims, late: Sequence[Transit], now: float
    ) -> bool:
        """Start a transit if it can; whether that was decided, and not that the store failed."""
        template = self._active.template_of(transit)
        reason = ""
        if template is None:  # taken out of the configuration while a broker was down
            reason = f"template {transit.request.template!r} is gone"
        elif self._active.pairs.clash(transit) is not None:  # one that came while this one waited
            reason = "its flows name packets that another transit names too"
        if template is None or reason:
            self._placement.use_best_effort(transit, reason, now)
            return True
        if late:
            self._make_way(transit, template, claimed, late, now)
        try:
            self._placement.place(transit, template, claimed, now, arriving=False)
        except BrokerError as error:
            if error.code == "store_unavailable":
                return False
            # Its site has left the topology.
            log.warning("transit %s stays without a path: %s", transit.id, error)
            self._lifecycle.decline(transit, str(error), now)
        return True

    # -- those that began early --------------------------------------------------------------

    def goes_on(self, transit: Transit, until: float, now: float) -> bool:
        """Let one that began early have its usual lease, ``until`` then, or until others come;
        whether they do not now."""
        until = min(until, self._admission.keep_until(transit, transit, now))
        claim = self._admission.next_claim(transit, until, now)
        until = until if claim is None else min(until, claim.start)
        if until > now:
            try:
                self._lifecycle.extend(transit, until, now)
                return True
            except BrokerError as error:
                log.warning("transit %s is not extended: %s", transit.id, error)
        self._give_way(transit, "others" if claim is None else claim.id, now)
        return False

    def extend(self, transit: Transit, until: float, now: float) -> None:
        """Renew a lease, where nobody waits for the room first. Raises BrokerError."""
        early = transit.grant.expected_end > 0
        claim = self._admission.next_claim(transit, until, now) if early else None
        if claim is not None:
            raise BrokerError(
                f"the lease was not renewed: {claim.id} waits for its room first, expected a lease "
                f"up to {iso(max(now, claim.start))}",
                "conflict",
            )
        self._lifecycle.extend(transit, until, now)

    def _late(self, waits: Transit, now: float) -> list[Transit]:
        """Those that began before one that waits, on links that it waits for, and are not done when
        they were expected to be."""
        late = self._active.overrun(now)
        wanted = self._active.waitlist.claims_of(waits).keys()
        return [t for t in late if is_before(waits, t) and not wanted.isdisjoint(hops(t))]

    def _make_way(
        self, waits: Transit, template: Template, claims: Claims, late: Sequence[Transit],
        now: float,
    ) -> None:  # fmt: skip
        """Have those that are ``late`` fall to best effort, where one that waits can start then and
        not otherwise."""
        if isinstance(self._admission.decide(waits, template, claims, now), Grant):
            return
        outcome = self._admission.decide(waits, template, claims, now, without=late)
        if isinstance(outcome, Grant):
            needed = {hop for part in outcome.parts for hop in part.path.hops}
            for transit in late:
                if not needed.isdisjoint(hops(transit)):
                    self._give_way(transit, waits.id, now)

    def _give_way(self, transit: Transit, to: str, now: float) -> None:
        done = iso(transit.grant.expected_end)
        self._placement.use_best_effort(
            transit,
            f"started ahead of {to}, and did not end by {done} as expected: has no path any more",
            now,
        )
