"""Moves transits through their states, and keeps ledger, store and switches in step.

    queued ─► held ─► installed ─► released | expired
                └──────────────► failed          queued ─► best_effort

The store is written before the switches are touched, and the controller is always told the whole
desired state; so one ``apply`` after a crash mends whatever step was cut short. Not thread-safe:
the broker's lock is around every call.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import pairwise
from typing import Protocol, runtime_checkable

from network_provisioner.admission import Grant, Wait, explain
from network_provisioner.controllers.base import Circuit, Controller, ControllerError
from network_provisioner.errors import BrokerError, InputError
from network_provisioner.model import LIVE, Transit, TransitState
from network_provisioner.reservations import Ledger, Reservation
from network_provisioner.roster import Roster
from network_provisioner.store import Store, StoreError

log = logging.getLogger(__name__)

APPLY_AGAIN_S = 5.0  # between attempts to mend switches that did not take the last change


@runtime_checkable
class CountsReports(Protocol):
    """A controller that sees no packets, and counts what transfers report instead."""

    def report_bytes(self, circuit_id: str, n_bytes: int) -> None:
        """Take in that a transfer has moved ``n_bytes`` over a circuit."""
        ...


class Lifecycle:
    """The steps of transits; ``roster`` has those that wait or hold bandwidth."""

    def __init__(
        self,
        roster: Roster,
        ledger: Ledger,
        store: Store,
        controller: Controller,
        clock: Callable[[], float],
    ) -> None:
        self._roster = roster
        self._ledger = ledger
        self._store = store
        self._controller = controller
        self._clock = clock
        self._unsaved: dict[str, Transit] = {}  # what the store has not taken yet
        self._apply_again: float | None = None  # when to try again what the switches did not take

    # -- looking up --------------------------------------------------------------------------

    def find(self, transit_id: str) -> Transit | None:
        """The transit with this id, whatever its state. Raises StoreError."""
        return self._roster.all.get(transit_id) or self.saved(transit_id)

    def saved(self, transit_id: str) -> Transit | None:
        """The transit as it was last saved; needs no lock. Raises StoreError."""
        return self._unsaved.get(transit_id) or self._store.get(transit_id)

    @property
    def out_of_step(self) -> bool:
        """Whether the switches did not take the last change."""
        return self._apply_again is not None

    def degraded(self) -> str:
        """What is out of step, in words; "" where nothing is."""
        if self.out_of_step:
            return "the switches did not take the last change"
        return "the store did not take the last change" if self._unsaved else ""

    # -- the steps ---------------------------------------------------------------------------

    def adopt(self, now: float) -> None:
        """Take over what the store says is active. Raises ControllerError, StoreError.

        Live transits are reserved again and installed, whatever step the last broker died in; those
        whose lease ended expire, those that no longer fit the topology fail.
        """
        for transit in self._store.active():
            if transit.state is TransitState.QUEUED:
                self._roster.enter(transit)
            elif transit.lease_until <= now:
                transit.reason += "; its lease ended while no broker ran"
                self.end(transit, TransitState.EXPIRED, now)
            else:
                problem = self._reserve_again(transit, now)
                if problem:
                    transit.reason += f"; after a restart: {problem}"
                    self.end(transit, TransitState.FAILED, now)
                else:
                    self._roster.enter(transit)
        self._tell_switches()
        for transit in list(self._roster.all.values()):
            if transit.state is TransitState.HELD:
                self._installed(transit)

    def wait(self, transit: Transit, verdict: Wait) -> None:
        """Put a transit in the queue, or leave it there with today's reason."""
        self._roster.waits_for(transit, verdict.blocking)
        if transit.id in self._roster.all and transit.reason == verdict.reason:
            return
        transit.reason = verdict.reason
        transit.candidates = explain(verdict.decision)
        if transit.id not in self._roster.all:
            self._save_or_refuse(transit)
            self._roster.enter(transit)
        else:
            self._save(transit)

    def install(self, transit: Transit, grant: Grant, now: float) -> None:
        """held, then installed; or failed, with the reservation freed, where the switches refuse.

        Raises BrokerError ``store_unavailable`` with nothing changed.
        """
        transit.path, transit.layer = list(grant.path.nodes), grant.path.layer
        transit.granted_bps = grant.granted_bps
        transit.lease_until = now + grant.lease_s
        transit.reason = grant.decision.reason
        transit.candidates = explain(grant.decision)
        refusal = self._ledger.admit(_reservation(transit, now))
        if refusal is not None:  # decided a moment ago under the same lock
            raise RuntimeError(f"granted more than is free: {refusal}")
        transit.state = TransitState.HELD
        try:
            self._save_or_refuse(transit)
        except BrokerError:
            self._ledger.release(transit.id)
            self._roster.leave(transit)
            raise
        self._roster.enter(transit)
        try:
            self._tell_switches()
        except ControllerError as error:
            log.warning("transit %s: the switches refused: %s", transit.id, error)
            transit.reason = f"the switches refused: {error}"
            self._apply_again = now + APPLY_AGAIN_S
            self.end(transit, TransitState.FAILED, now)
        else:
            self._apply_again = None
            self._installed(transit)

    def count(self, transit: Transit, n_bytes: int) -> None:
        """Tell a controller that sees no packets what a live transit has moved."""
        if transit.state is TransitState.INSTALLED and isinstance(self._controller, CountsReports):
            self._controller.report_bytes(transit.id, n_bytes)

    def end(self, transit: Transit, state: TransitState, now: float) -> None:
        """Free what a transit holds and save its last state. The switches are told by
        :meth:`apply`, once for all that end together."""
        if transit.state is TransitState.INSTALLED:
            transit.switch_bytes = self._switch_bytes(transit.id)
        if state in (TransitState.RELEASED, TransitState.EXPIRED):
            transit.released_at = now
        elif state is TransitState.FAILED:
            transit.path, transit.layer, transit.granted_bps = [], "", 0.0
        transit.state = state
        self._save(transit)
        self._ledger.release(transit.id)
        self._roster.leave(transit)

    def apply(self, now: float) -> None:
        """Tell the controller what should be there; where it cannot, try again later."""
        try:
            self._tell_switches()
        except ControllerError as error:
            log.warning("the switches are out of step: %s", error)
            self._apply_again = now + APPLY_AGAIN_S
        else:
            self._apply_again = None

    def extend(self, transit: Transit, until: float, now: float) -> None:
        """A later end of a live lease, or BrokerError ``controller_unavailable`` (the switches did
        not take it) or ``bad_request`` (others hold the time after it) with nothing changed."""
        before = transit.lease_until
        refusal = self._ledger.move_end(transit.id, until)
        if refusal is not None:
            raise BrokerError(f"the lease cannot be renewed: {refusal}", "bad_request")
        transit.lease_until = until
        try:
            self._tell_switches()
        except ControllerError as error:
            self._ledger.move_end(transit.id, before)
            transit.lease_until = before
            self._apply_again = now + APPLY_AGAIN_S
            raise BrokerError(
                f"the lease was not renewed: {error}", "controller_unavailable"
            ) from error
        self._save(transit)
        self._roster.enter(transit)

    def save_ended(self, transit: Transit) -> None:
        """Save a transit that is not active: one that never was, or what was reported late."""
        self._save(transit)

    def mend(self, now: float) -> None:
        """Try again what store and switches did not take."""
        for transit in list(self._unsaved.values()):
            self._save(transit)
        if self._apply_again is not None and self._apply_again <= now:
            self.apply(now)

    def circuits(self) -> list[Circuit]:
        """What the switches should carry now."""
        return [
            Circuit(
                t.id, tuple(t.path), t.granted_bps, max(t.granted_bps, t.max_bps), t.lease_until
            )
            for t in self._roster.all.values()
            if t.state in LIVE
        ]

    # -- within ------------------------------------------------------------------------------

    def _reserve_again(self, transit: Transit, now: float) -> str:
        transit.state = TransitState.HELD
        try:
            return str(self._ledger.admit(_reservation(transit, now)) or "")
        except InputError as error:
            return str(error)

    def _installed(self, transit: Transit) -> None:
        # Its own look at the clock: the switches took their time since the request came.
        transit.state = TransitState.INSTALLED
        transit.installed_at = transit.installed_at or self._clock()
        self._save(transit)

    def _tell_switches(self) -> None:
        try:
            self._controller.apply(self.circuits())
        except ControllerError:
            raise
        except Exception as error:  # a driver's own fault must end like a refusal, not half-way
            log.exception("the controller failed in a way of its own")
            raise ControllerError(f"the controller failed: {error}") from error

    def _switch_bytes(self, transit_id: str) -> int:
        try:
            return self._controller.circuit_bytes(transit_id)
        except Exception as error:  # a counter that cannot be read must not keep a path from ending
            log.warning("transit %s: its byte counter cannot be read: %s", transit_id, error)
            return 0

    def _save_or_refuse(self, transit: Transit) -> None:
        try:
            self._store.put(transit)
        except StoreError as error:
            raise BrokerError(str(error), "store_unavailable") from error

    def _save(self, transit: Transit) -> None:
        # What has happened cannot be refused any more: keep it in memory until the store takes it.
        try:
            self._store.put(transit)
        except StoreError as error:
            log.warning("transit %s cannot be saved: %s", transit.id, error)
            self._unsaved[transit.id] = transit
        else:
            self._unsaved.pop(transit.id, None)


def _reservation(transit: Transit, start: float) -> Reservation:
    return Reservation(
        transit.id,
        tuple(pairwise(transit.path)),
        transit.granted_bps,
        max(transit.granted_bps, transit.max_bps),
        start,
        transit.lease_until,
    )
