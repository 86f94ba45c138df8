"""Serves the queue: starts the transits that wait, in their order, once there is room for them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from network_provisioner.base.errors import BrokerError
from network_provisioner.base.model import Transit
from network_provisioner.selection.admission import Admission
from network_provisioner.state.active_transits import ActiveTransits
from network_provisioner.state.waitlist import Claim, Claims
from network_provisioner.templates.lookup import Templates, template_of
from network_provisioner.topology.graph import Hop
from network_provisioner.transits.desired_state import DesiredState
from network_provisioner.transits.early import EarlyTransits
from network_provisioner.transits.lifecycle import Lifecycle
from network_provisioner.transits.placement import Placement

log = logging.getLogger(__name__)


@dataclass(eq=False)
class WaitingTransits:
    """Not thread-safe: the broker's turn is around every call."""

    _templates: Templates
    _active: ActiveTransits
    _admission: Admission
    _lifecycle: Lifecycle
    _desired: DesiredState
    _placement: Placement
    _early: EarlyTransits

    def serve(self, now: float) -> None:
        """Start whoever can start, in the queue's order."""
        if self._desired.out_of_step:  # they would come back one by one; the next sweep tries again
            return
        waitlist = self._active.waitlist
        if not len(waitlist):
            waitlist.served()
            return
        claimed: dict[Hop, list[Claim]] = {}
        lowest = self._active.lowest
        for transit in waitlist.in_order(now):
            if waitlist.is_due(transit, now):
                late = self._early.late(transit, now)
                if (
                    late or not self._admission.shut_out(transit, claimed, lowest, now)
                ) and not self._try_again(transit, claimed, late, now):
                    return  # all go on waiting, and the next sweep tries again
            for hop, claim in waitlist.claims_of(transit).items():
                claimed.setdefault(hop, []).append(claim)
        waitlist.served()

    def _try_again(
        self, transit: Transit, claimed: Claims, late: Sequence[Transit], now: float
    ) -> bool:
        """Start a transit if it can; whether that was decided, and not that the store failed."""
        template = template_of(transit, self._templates)
        reason = ""
        if template is None:  # taken out of the configuration while a broker was down
            reason = f"template {transit.request.template!r} is gone"
        elif self._active.pairs.clash(transit) is not None:  # one that came while this one waited
            reason = "its flows name packets that another transit names too"
        if template is None or reason:
            self._placement.do_without(transit, reason, now)
            return True
        if late:
            self._early.make_way(transit, template, claimed, late, now)
        try:
            self._placement.place(transit, template, claimed, now, arriving=False)
        except BrokerError as error:
            if error.code == "store_unavailable":
                return False
            # Its site has left the topology.
            log.warning("transit %s stays without a path: %s", transit.id, error)
            self._lifecycle.decline(transit, str(error), now)
        return True
