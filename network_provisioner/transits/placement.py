"""Puts a transit where admission says: on paths, in the queue, or on best effort.

Not thread-safe: the broker holds its lock in every call.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from itertools import islice, pairwise

from network_provisioner.base.errors import BrokerError
from network_provisioner.base.model import LIVE, Transit
from network_provisioner.selection.admission import Admission
from network_provisioner.selection.outcomes import Grant, Never, Wait
from network_provisioner.selection.request_builder import RequestBuilder
from network_provisioner.selection.transit import PathChoice, explain
from network_provisioner.state.network_state import NetworkState
from network_provisioner.state.waitlist import Claims
from network_provisioner.templates.template import Template
from network_provisioner.transits.changes import (
    grant_changes,
    opening_changes,
    transit_without_path,
)
from network_provisioner.transits.lifecycle import Lifecycle
from network_provisioner.transits.space import FreeSpace

log = logging.getLogger(__name__)

_WARNINGS_KEPT = 999


@dataclass(eq=False)
class Placement:
    """Carries out what admission decides about one transit. What raises BrokerError changes
    nothing."""

    _state: NetworkState
    _requests: RequestBuilder
    _admission: Admission
    _lifecycle: Lifecycle
    space: FreeSpace
    _warned: set[str] = field(default_factory=set)

    def place(
        self, transit: Transit, template: Template, claims: Claims, now: float, arriving: bool
    ) -> None:
        """Hold, queue, or leave to best effort: whatever can be had now. ``arriving``: it was
        asked for just now. Raises BrokerError ``store_unavailable``."""
        full = "" if transit.lost_path else self.space.lacks(transit, now)
        if full:
            outcome: Grant | Wait | Never | str
            outcome = Wait(full, None, (), PathChoice(None, (), full))
        else:
            outcome = self.decide(transit, template, claims, now)
        if isinstance(outcome, str):
            self.use_best_effort(transit, outcome, now)
        elif isinstance(outcome, Grant):
            until = self._admission.lease_until(transit, outcome)
            wanted = transit.copy()
            wanted.grant.warnings = self._requests.warnings(transit, template, outcome, until)
            self.hold(transit, outcome, now, wanted)
            self._warn(transit)
        elif isinstance(outcome, Never):
            self.use_best_effort(transit, outcome.reason, now, outcome.decision)
        elif arriving and not full and self._shares_a_way(transit) and transit.request.start <= now:
            # Waiting would not keep its packets apart from those of the pair's other transits.
            reason = (
                "shares, without a rate of its own, the path that other transits between "
                f"{transit.request.src} and {transit.request.dst} hold: {outcome.reason}"
            )
            self.use_best_effort(transit, reason, now, outcome.decision)
        elif template.patience_s <= 0 and not transit.lost_path:
            self.use_best_effort(transit, f"does not wait: {outcome.reason}", now, outcome.decision)
        else:
            self._lifecycle.wait(transit, outcome, now)

    def decide(
        self, transit: Transit, template: Template, claims: Claims, now: float
    ) -> Grant | Wait | Never | str:
        """As :meth:`~network_provisioner.selection.admission.Admission.decide`, once nothing is
        about to start that a grant would move."""
        outcome = self._admission.decide(transit, template, claims, now)
        if isinstance(outcome, Grant) and outcome.moves and self._lifecycle.starting:
            # So that only this one's moves are undone where they are refused. And those that start
            # may be refused themselves: then they can neither move nor need to.
            self._lifecycle.apply(now)
            return self._admission.decide(transit, template, claims, now)
        return outcome

    def hold(
        self, transit: Transit, grant: Grant, now: float, wanted: Transit | None = None
    ) -> None:
        """Reserve what was granted, with all moves it needs, instead of what the transit holds, and
        have it installed at its start. ``wanted``: what it asks for then. Raises BrokerError
        ``store_unavailable`` with nothing changed."""
        until = self._admission.lease_until(wanted or transit, grant)
        self._lifecycle.commit(grant_changes(self._state, transit, grant, until, now, wanted), now)

    def use_best_effort(
        self, transit: Transit, reason: str, now: float, decision: PathChoice | None = None
    ) -> None:
        """Leave a transit to best effort, and take its path from a live one; at a Science DMZ,
        where nothing passes without one, open the way for it all the same."""
        last = transit_without_path(transit) if transit.state in LIVE else transit.copy()
        if decision is not None:
            last.grant.candidates = explain(decision)
        path = self._admission.open_path(transit)
        until = self._admission.window(transit, now)[1]
        if path is not None and transit.request.start <= now < until:
            opening = opening_changes(
                transit, path, until, f"open, without a rate of its own: {reason}", last
            )
            try:
                self._lifecycle.commit(opening, now)
                return
            except BrokerError as error:
                log.warning("transit %s is not let through: %s", transit.id, error)
        self._lifecycle.decline(transit, reason, now, last)

    def _shares_a_way(self, transit: Transit) -> bool:
        """Whether others hold the way that its packets take, and that can be used."""
        ways = self._state.active.pairs.ways(transit)
        hops = {hop for way in ways for hop in pairwise(way)}
        return bool(ways) and hops.isdisjoint(self._state.unusable)

    def _warn(self, transit: Transit) -> None:
        """Put a transit's warnings into the log, each once: a workflow's transfers are many."""
        for warning in transit.grant.warnings:
            if warning not in self._warned:
                log.warning("transit %s: %s", transit.id, warning)
                self._warned = {*islice(self._warned, _WARNINGS_KEPT), warning}
