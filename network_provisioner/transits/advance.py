"""Reservations in advance: moved to other times, and begun when their transfer comes.

All of it happens in the broker's cycle. Whatever is refused leaves the transit as it was.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

from network_provisioner.base.errors import BrokerError
from network_provisioner.base.instants import iso
from network_provisioner.base.model import ON_SWITCHES, Transit, TransitRequest, TransitState
from network_provisioner.selection.admission import Admission
from network_provisioner.selection.outcomes import Grant, Wait
from network_provisioner.selection.request_builder import RequestBuilder
from network_provisioner.selection.terms import fingerprint
from network_provisioner.state.network_state import NetworkState
from network_provisioner.transits.desired_state import DesiredState
from network_provisioner.transits.lifecycle import Lifecycle
from network_provisioner.transits.placement import Placement

log = logging.getLogger(__name__)


@dataclass(eq=False)
class AdvanceReservations:
    """What is reserved for later. Not thread-safe."""

    _state: NetworkState
    _requests: RequestBuilder
    _admission: Admission
    _lifecycle: Lifecycle
    _placement: Placement
    _desired: DesiredState

    def shift(
        self, transit: Transit, start: float, end: float, size_bytes: int | None, now: float
    ) -> None:
        """Move one that has not ended to other times. Raises BrokerError: ``conflict``,
        ``bad_time``, ``controller_unavailable``, ``store_unavailable``."""
        if not (transit.request.start or transit.request.end):
            # Who moves it may not know of its transfer yet.
            raise BrokerError(
                f"transit {transit.id!r} was asked for without times, expected one that is "
                "reserved in advance",
                "conflict",
            )
        begun = transit.state in ON_SWITCHES or transit.request.start <= now
        moves_on = begun and start <= now and transit.state is not TransitState.QUEUED
        self._requests.check_times(None if moves_on else start, end, now)
        wanted, request = transit.copy(), transit.request
        wanted.request = replace(
            request,
            start=request.start if moves_on else max(start, now),
            end=end,
            size_bytes=request.size_bytes if size_bytes is None else size_bytes,
        )
        if over := self._admission.over_quota(wanted, now):
            raise BrokerError(f"transit {transit.id!r} was not moved: {over}", "conflict")
        if moves_on:
            self._end_at(transit, wanted, end, now)
        elif transit.state is not TransitState.QUEUED and begun and self._in_use(transit):
            raise BrokerError(
                f"transit {transit.id!r} has begun, expected a start up to now, {iso(now)}",
                "conflict",
            )
        else:
            self._move(transit, wanted, now)

    def claim(self, transit: Transit, request: TransitRequest, now: float) -> None:
        """Begin what is held for later, for a request that is for now.

        It gets the lease of an ordinary request where there is room for it; else what was reserved,
        and as much more as is free; else it begins as early as it can, which is its own start at
        the latest.
        """
        size_bytes = request.size_bytes
        wanted = transit.copy()
        wanted.request = replace(
            transit.request,
            start=0.0,
            end=0.0,
            requested_at=now,
            lease_s=request.lease_s,
            size_bytes=transit.request.size_bytes if size_bytes is None else size_bytes,
            fingerprint=fingerprint(request),
        )
        self._requests.give_ports(wanted)
        begun = transit.state in ON_SWITCHES or transit.request.start <= now
        over = begun or self._admission.over_quota(wanted, now)
        early = None if over else self._admission.begin_early(transit, wanted, now)
        if early is not None:
            wanted, grant = early
            self._placement.hold(transit, grant, now, wanted)
            return
        if not begun:
            wanted.request = replace(wanted.request, start=transit.request.start)
        # It has a path all the same, until the end that it has.
        for end in (self._admission.keep_until(transit, wanted, now), transit.grant.lease_until):
            try:
                self._end_at(transit, wanted, end, now)
                break
            except BrokerError as error:
                log.warning("transit %s is not extended: %s", transit.id, error)

    def _move(self, transit: Transit, wanted: Transit, now: float) -> None:
        outcome = self._admission.readmit(transit, wanted, now)
        if isinstance(outcome, Grant):
            self._placement.hold(transit, outcome, now, wanted)
        elif isinstance(outcome, Wait) and transit.state is TransitState.QUEUED:
            self._lifecycle.modify(transit, wanted, now, "it waits with its previous times")
            self._lifecycle.wait(transit, outcome, now)
        else:
            raise BrokerError(
                f"transit {transit.id!r} cannot be held from {iso(wanted.request.start)} to "
                f"{iso(wanted.request.end)}: {outcome.reason}",
                "conflict",
            )

    def _in_use(self, transit: Transit) -> bool:
        """Whether it cannot be put off: a transfer uses it, or nothing but the way is kept."""
        if transit.state is TransitState.ACTIVE or not transit.request.min_bps:
            return True
        return transit.state in ON_SWITCHES and self._desired.bytes_of(transit.id) > 0

    def _end_at(self, transit: Transit, wanted: Transit, end: float, now: float) -> None:
        """Let a transit that has begun end at another time. Raises BrokerError."""
        wanted.grant.lease_until = end
        self._lifecycle.modify(transit, wanted, now, f"transit {transit.id!r} cannot end then", end)
