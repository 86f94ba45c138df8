"""Puts a transit where admission says: on paths, in the queue, or on best effort.

A transfer waits while its destination has no room for it: it would fail half-way. What is free is
what was measured there last, less what running transits have yet to bring. Nobody waits where
nobody measured, or longer than for a path.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice, pairwise

from network_provisioner.base.errors import BrokerError
from network_provisioner.base.model import LIVE, Transit
from network_provisioner.base.units import bytes_of, format_size
from network_provisioner.selection.admission import Admission
from network_provisioner.selection.outcomes import Grant, Never, Wait
from network_provisioner.selection.terms import warnings
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

log = logging.getLogger(__name__)

_WARNINGS_KEPT = 999

SpaceOf = Callable[[str], tuple[float, float] | None]
"""The free bytes of a site as measured last, and the age of that in seconds; None where nobody
measured it lately."""


@dataclass(eq=False)
class Placement:
    """Carries out what admission decides about one transit. What raises BrokerError changes
    nothing. Not thread-safe: the broker holds its lock in every call."""

    _state: NetworkState
    _admission: Admission
    _lifecycle: Lifecycle
    _space_of: SpaceOf
    _warned: set[str] = field(default_factory=set)

    def place(
        self, transit: Transit, template: Template, claims: Claims, now: float, arriving: bool
    ) -> None:
        """Hold, queue, or leave to best effort: whatever can be had now. ``arriving``: it was
        asked for just now. Raises BrokerError ``store_unavailable``."""
        full = "" if transit.lost_path else self.lacks_space(transit, now)
        outcome: Grant | Wait | Never
        if full:
            outcome = Wait(full, None, (), PathChoice(None, (), full))
        else:
            outcome = self.decide(transit, template, claims, now)
        if isinstance(outcome, Grant):
            until = self._admission.lease_until(transit, outcome)
            wanted = transit.copy()
            path_bps = sum(way.path.capacity_bps for way in outcome.parts)
            lease_s = until - outcome.start
            wanted.grant.warnings = warnings(transit, template, path_bps, lease_s)
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

    def lacks_space(self, transit: Transit, now: float) -> str:
        """Why a transit has to wait for room at its destination, in words; "" where it has not."""
        request = transit.request
        if not request.size_bytes or request.start > now:
            return ""
        known = self._space_of(request.dst)
        if known is None:
            return ""
        free_bytes, age_s = known
        coming = sum(
            to_come(other, now - age_s)
            for other in self._state.active.on_switches()
            if other.request.dst == request.dst and other.id != transit.id
        )
        if request.size_bytes + coming <= free_bytes:
            return ""
        others = f", {format_size(coming)} on their way" if coming else ""
        return (
            f"{request.dst} has no room: {format_size(request.size_bytes)} needed, "
            f"{format_size(free_bytes)} free {age_s:.0f} s ago{others}"
        )

    def decide(
        self, transit: Transit, template: Template, claims: Claims, now: float
    ) -> Grant | Wait | Never:
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


def to_come(transit: Transit, at: float) -> float:
    """Bytes that a running transit had yet to bring at a Unix second, at the rate that it was
    granted; 0 where its size is not known."""
    began, grant = transit.grant.active_at or transit.grant.installed_at, transit.grant
    moved = bytes_of(max(0.0, at - began) * grant.granted_bps)
    return max(0.0, (transit.request.size_bytes or 0) - moved)
