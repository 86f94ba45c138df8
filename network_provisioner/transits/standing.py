"""Standing circuits, which transfers share that are too small for one of their own.

Nobody gives them back: each use renews their short lease.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from urllib.parse import quote

from network_provisioner.base.errors import BrokerError
from network_provisioner.base.model import SHARES, Transit, TransitRequest
from network_provisioner.client.request_ids import latest, numbered
from network_provisioner.selection.outcomes import Grant
from network_provisioner.selection.request_builder import RequestBuilder
from network_provisioner.selection.terms import check
from network_provisioner.state.active_transits import ActiveTransits
from network_provisioner.templates.template import Template
from network_provisioner.transits.lifecycle import Lifecycle
from network_provisioner.transits.placement import Placement
from network_provisioner.transits.waiting import WaitingTransits

log = logging.getLogger(__name__)

STANDING_S = 30.0  # how long a standing circuit outlives its last use
_RENEW_S = 1.0  # uses within it are as one: each renewal is a word to the switches
_IDS = 10**9


@dataclass(eq=False)
class StandingCircuits:
    """Not thread-safe: the broker holds its lock in every call."""

    _requests: RequestBuilder
    _active: ActiveTransits
    _lifecycle: Lifecycle
    _placement: Placement
    _waiting: WaitingTransits

    def sharing(self, transit: Transit, template: Template, reason: str, now: float) -> str:
        """Have a small transit share a standing circuit, where its template wants that and the
        transit is for now; the reason, completed."""
        if template.small != "share" or transit.request.start > now:
            return reason
        try:
            name, refusal = self._standing(template, transit.request.src, transit.request.dst, now)
        except BrokerError as error:
            refusal = str(error)
        if refusal:
            return f"{reason}; there is no standing circuit to share: {refusal}"
        return f"{SHARES} {name}: {reason}"

    def _standing(self, template: Template, src: str, dst: str, now: float) -> tuple[str, str]:
        """The id of the standing circuit of a template from ``src`` to ``dst``, which lives
        :data:`STANDING_S` from now, and why there is none or "". Nobody gives it back: each use
        renews its short lease. Raises BrokerError."""
        base = f"standing:{quote(template.name, '')}:{quote(src, '')}-{quote(dst, '')}"
        number, known = latest(base, self._lifecycle.find, _IDS)
        name = numbered(base, number)
        if known is None:
            request = TransitRequest(name, src, dst, template=template.name, lease_s=STANDING_S)
            check(request)
            transit, template, _ = self._requests.build(request, now)
            claims = self._active.waitlist.claims_before(transit, now)
            outcome = self._placement.decide(transit, template, claims, now)
            if not isinstance(outcome, Grant):
                return name, outcome.reason
            self._placement.hold(transit, outcome, now)
        elif known.grant.lease_until < now + STANDING_S - _RENEW_S:
            try:
                self._waiting.extend(known, now + STANDING_S, now)
            except BrokerError as error:  # it lives until its lease ends, and another follows
                log.info("standing circuit %s is not renewed: %s", known.id, error)
        return name, ""
