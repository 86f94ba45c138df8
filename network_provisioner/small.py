"""Transfers that are too small for a circuit of their own, and the standing ones they share.

Below the break-even (:mod:`~.decisions.breakeven`) a transfer runs as best effort. Where its
template says ``small: share``, a standing circuit of the template between the two sites carries it
with others: the broker asks for it itself with the first of them, each use renews its short lease,
and nobody gives it back: its lease ends.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from urllib.parse import quote

from network_provisioner.decisions.admission import Admission
from network_provisioner.decisions.breakeven import BreakEven, SetupTimes, largest_small
from network_provisioner.errors import BrokerError
from network_provisioner.lifecycle import Lifecycle
from network_provisioner.model import Transit, TransitRequest
from network_provisioner.rounds import latest
from network_provisioner.template import Template
from network_provisioner.terms import below, check

log = logging.getLogger(__name__)

STANDING_S = 30.0  # how long a standing circuit outlives its last use
_RENEW_S = 1.0  # uses within it are as one: each renewal is a word to the switches
_ROUNDS = 10**9

BestEffortOf = Callable[[str, str], tuple[float, float] | None]
"""What transfers without a circuit reach between two sites in b/s, and its age in seconds; None
where nobody measured."""


class Small:
    """Says which transfers are too small. ``setup_times`` are those of this broker's circuits;
    without ``best_effort_of`` a part of the circuit's rate is taken for best effort's."""

    def __init__(
        self,
        admission: Admission,
        setup_times: SetupTimes,
        best_effort_of: BestEffortOf | None,
    ) -> None:
        self._admission = admission
        self._setup_times = setup_times
        self.best_effort_of = best_effort_of

    def reason(self, transit: Transit, template: Template, now: float) -> str:
        """Why a circuit would not pay for a transit, in words; "" where it does, or nobody knows.

        Raises BrokerError ``unknown_site``.
        """
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
        even = BreakEven(setup_s, circuit_bps, self._measured(transit, template))
        return "" if even.pays(size) else even.words(size)

    def _measured(self, transit: Transit, template: Template) -> float | None:
        if self.best_effort_of is None:
            return None
        try:
            found = self.best_effort_of(transit.src, transit.dst)
        except Exception:  # a foreign archive that fails costs its opinion, never the transfer
            log.exception("best effort from %s to %s is unknown", transit.src, transit.dst)
            return None
        return None if found is None or found[1] > template.max_age_s else found[0]


class Standing:
    """The standing circuits. ``hold`` gets a transit its path at once, or says why it cannot."""

    def __init__(self, life: Lifecycle, hold: Callable[[TransitRequest, float], str]) -> None:
        self._life = life
        self._hold = hold

    def share(self, template: Template, src: str, dst: str, now: float) -> tuple[str, str]:
        """The id of the standing circuit of a template from ``src`` to ``dst``, which lives
        :data:`STANDING_S` from now; or "", and why there is none."""
        base = f"standing:{quote(template.name, '')}:{quote(src, '')}-{quote(dst, '')}"
        try:
            name, known = latest(base, self._life.find, _ROUNDS)
            request = TransitRequest(name, src, dst, template=template.name, lease_s=STANDING_S)
            check(request)
            if known is None:
                refusal = self._hold(request, now)
                return ("", refusal) if refusal else (name, "")
            if known.lease_until < now + STANDING_S - _RENEW_S:
                self._renew(known, now)
        except BrokerError as error:
            return "", str(error)
        return name, ""

    def _renew(self, known: Transit, now: float) -> None:
        try:
            self._life.extend(known, now + STANDING_S, now)
        except BrokerError as error:  # it lives on until its lease ends, and another follows
            log.info("standing circuit %s is not renewed: %s", known.id, error)
