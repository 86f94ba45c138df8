"""Transits that began before others who wait for their room, and give way to them (backfilling)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from network_provisioner.base.errors import BrokerError
from network_provisioner.base.instants import iso
from network_provisioner.base.model import Transit
from network_provisioner.selection.admission import Admission, is_before
from network_provisioner.selection.verdicts import Grant
from network_provisioner.state.active_transits import ActiveTransits
from network_provisioner.state.circuits import hops
from network_provisioner.state.waitlist import Claims
from network_provisioner.templates.template import Template
from network_provisioner.transits.lifecycle import Lifecycle
from network_provisioner.transits.placement import Placement

log = logging.getLogger(__name__)


@dataclass(eq=False)
class EarlyTransits:
    """Not thread-safe: the broker's turn is around every call."""

    _admission: Admission
    _lifecycle: Lifecycle
    _active: ActiveTransits
    _placement: Placement

    def late(self, waits: Transit, now: float) -> list[Transit]:
        """Those that began before one that waits, on links that it waits for, and are not done when
        they were expected to be."""
        late = self._active.overrun(now)
        wanted = self._active.waitlist.claims_of(waits).keys()
        return [t for t in late if is_before(waits, t) and not wanted.isdisjoint(hops(t))]

    def make_way(
        self,
        waits: Transit,
        template: Template,
        claims: Claims,
        late: Sequence[Transit],
        now: float,
    ) -> None:
        """Have those that are ``late`` fall to best effort, where one that waits can start then and
        not otherwise."""
        if isinstance(self._admission.decide(waits, template, claims, now), Grant):
            return
        verdict = self._admission.decide(waits, template, claims, now, without=late)
        if isinstance(verdict, Grant):
            needed = {hop for part in verdict.parts for hop in part.path.hops}
            for transit in late:
                if not needed.isdisjoint(hops(transit)):
                    self._give_way(transit, waits.id, now)

    def goes_on(self, transit: Transit, until: float, now: float) -> bool:
        """Let one have its usual lease, ``until`` then, or until others come; whether they do not
        now."""
        until = min(until, self._admission.keep_until(transit, transit, now))
        claim = self._admission.next_claim(transit, until, now)
        until = until if claim is None else min(until, claim.start)
        if until > now:
            try:
                self._lifecycle.extend(transit, until, now)
                return True
            except BrokerError as error:
                log.warning("transit %s is not made longer: %s", transit.id, error)
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

    def _give_way(self, transit: Transit, to: str, now: float) -> None:
        done = iso(transit.grant.expected_end)
        self._placement.do_without(
            transit,
            f"began before {to}, and was not done by {done} as expected: goes on without a path",
            now,
        )
