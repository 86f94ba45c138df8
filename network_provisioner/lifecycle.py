"""Moves transits through their states, and keeps ledger, shares, store and switches in step.

    queued ─► held ─► installed ─► active ─► released | expired
                └─► failed                        queued ─► best_effort

A step changes ledger and store at once. What it means for the switches is collected, and told in
one ``apply`` for all of it (:mod:`~network_provisioner.installing`). The store is written before
the switches are touched, and the controller is always told the whole desired state; so one
``apply`` after a crash mends whatever was cut short. Not thread-safe: the broker's turn is around
every call.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from network_provisioner import circuits
from network_provisioner.classes import Classes
from network_provisioner.controllers.base import ControllerError
from network_provisioner.decisions.admission import Grant, Wait, explain
from network_provisioner.decisions.reservations import Ledger
from network_provisioner.errors import BrokerError
from network_provisioner.installing import Installer, Start
from network_provisioner.keeper import Keeper
from network_provisioner.model import ON_SWITCHES, Transit, TransitState
from network_provisioner.policies.accounting import meter
from network_provisioner.roster import Roster
from network_provisioner.shares import Shares
from network_provisioner.switchboard import Switchboard
from network_provisioner.topology import Path, Topology
from network_provisioner.watching import Watch


class Lifecycle:
    """The steps of transits; ``roster`` has those that wait or hold bandwidth.

    ``step`` is told of every step as it begins or ends, so that tests can stop there.
    """

    def __init__(
        self,
        topology: Topology,
        roster: Roster,
        ledger: Ledger,
        keeper: Keeper,
        shares: Shares,
        switches: Switchboard,
        classes: Classes,
        clock: Callable[[], float],
        step: Callable[[str], None],
    ) -> None:
        self._roster = roster
        self._ledger = ledger
        self._keeper = keeper
        self._switches = switches
        self._step = step
        self.watch = Watch(roster, switches, keeper)
        self.installer = Installer(
            topology, roster, ledger, keeper, shares, switches, classes, self.watch, clock, step,
            lambda transit, now: self.end(transit, TransitState.FAILED, now),
        )  # fmt: skip
        self.ended: deque[Transit] = deque()  # for whoever keeps accounts

    def find(self, transit_id: str) -> Transit | None:
        """The transit with this id, whatever its state. Raises StoreError."""
        return self._roster.all.get(transit_id) or self._keeper.find(transit_id)

    @property
    def out_of_step(self) -> bool:
        """Whether the switches did not take the last change."""
        return self._switches.out_of_step

    # -- the steps ---------------------------------------------------------------------------

    def wait(self, transit: Transit, verdict: Wait, now: float) -> None:
        """Put a transit in the queue, or leave it there with today's reason.

        Raises BrokerError ``store_unavailable`` with nothing changed.
        """
        known = transit.id in self._roster.all
        if not (known and transit.reason == verdict.reason):
            transit.reason = verdict.reason
            transit.candidates = explain(verdict.decision)
            transit.earliest = verdict.earliest or 0.0
            transit.blocking = [blocked.as_dict() for blocked in verdict.blocking]
            if known:
                self._keeper.save([transit])
            else:
                self._keeper.must([transit])
                self._roster.enter(transit)
        self._roster.waitlist.waits_for(transit, verdict.claims(), now)

    def hold(self, transit: Transit, grant: Grant, lease_until: float, now: float) -> None:
        """Reserve what was granted, with all moves it needs, and have it installed at its start.

        Raises BrokerError ``store_unavailable`` with nothing changed.
        """
        queued = transit.id in self._roster.all
        moves = [(move.id, tuple(way.lane for way in move.ways)) for move in grant.moves]
        refusal = self._ledger.commit(grant.reservation(transit.id), moves, now)
        if refusal is not None:  # decided a moment ago in the same turn
            raise RuntimeError(f"granted more than is free: {refusal}")
        self._step("reserved")
        moved = [self._roster.all[move.id] for move in grant.moves]
        before = tuple(other.copy() for other in moved)
        for other, move in zip(moved, grant.moves, strict=True):
            meter(other, now)
            circuits.take(other, move.ways)
            other.moves += 1
            other.reason += f"; {move} for {transit.id}, of priority {transit.priority}"
        was = transit.copy()
        circuits.take(transit, grant.parts)
        transit.state, transit.lease_until = TransitState.HELD, lease_until
        transit.reason, transit.candidates = grant.reason, explain(grant.decision)
        transit.earliest, transit.blocking = 0.0, []
        try:
            self._keeper.must([*moved, transit])
        except BrokerError:
            self._ledger.release(transit.id)
            self.installer.move_back(before, now)
            transit.assign(was)
            raise
        for other in moved:
            if other.state in ON_SWITCHES:
                self.installer.put_on(other)
        self._roster.enter(transit)
        if transit.start <= now or before:
            otherwise = TransitState.QUEUED if queued else TransitState.FAILED
            self.installer.start(Start(transit, otherwise, before))
        if before:  # by itself: were others refused with it, it could not be tried again
            self.installer.carry_out(now)

    def open(self, transit: Transit, path: Path, lease_until: float, reason: str) -> None:
        """Open the way for a transit without a guarantee, where none is open by itself.

        Raises BrokerError ``store_unavailable`` with nothing changed.
        """
        was = transit.copy()
        transit.requested_bps = 0.0
        transit.path, transit.layer = list(path.nodes), path.layer
        transit.state, transit.lease_until = TransitState.HELD, lease_until
        transit.reason, transit.earliest, transit.blocking = reason, 0.0, []
        try:
            self._keeper.must([transit])
        except BrokerError:
            transit.assign(was)
            raise
        self._roster.enter(transit)
        self.installer.start(Start(transit, TransitState.FAILED))

    def start_due(self, now: float) -> None:
        """Have those installed whose start has come."""
        if self._switches.out_of_step and not self._switches.waits(now):
            self.installer.carry_out(now)
        if self._switches.out_of_step:  # they keep what they hold, and start when that is mended
            return
        for transit in self._roster.starting(now):
            self.installer.start(Start(transit, TransitState.HELD))

    def resume(self, transit: Transit) -> None:
        """Carry on with a transit that another broker, or one before this, put where it is. Its
        reservation is the caller's business."""
        self._roster.enter(transit)
        if transit.state in ON_SWITCHES:
            self.installer.put_on(transit)
            if transit.state is TransitState.INSTALLED:
                self.watch.enter(transit)

    def forget(self, transit_id: str) -> None:
        """Take a transit out of everything but store and switches; others decided about it."""
        known = self._roster.all.get(transit_id)
        if known is not None:
            self._roster.leave(known)
            self.installer.take_off(known)
        self._free(transit_id)
        self._keeper.forget(transit_id)

    def end(self, transit: Transit, state: TransitState, now: float) -> None:
        """Free what a transit holds and save its last state."""
        self._end(transit, state, now, self._keeper.save)

    def decline(self, transit: Transit, now: float) -> None:
        """Leave a transit to best effort. Raises BrokerError ``store_unavailable`` for a new one
        that other brokers would not know of, and which then was never asked for."""
        new = transit.id not in self._roster.all
        write = self._keeper.answer if new else self._keeper.save
        self._end(transit, TransitState.BEST_EFFORT, now, write)

    def _end(
        self,
        transit: Transit,
        state: TransitState,
        now: float,
        write: Callable[[Sequence[Transit]], None],
    ) -> None:
        meter(transit, now)
        if transit.state in ON_SWITCHES:
            transit.switch_bytes = self._switches.bytes_of(transit.id)
        if state in (TransitState.RELEASED, TransitState.EXPIRED):
            transit.released_at = now
        elif state is TransitState.FAILED:
            circuits.leave(transit)
        transit.state = state
        transit.earliest, transit.blocking = 0.0, []
        write([transit])
        self._free(transit.id)
        self._roster.leave(transit)
        self.installer.take_off(transit)
        self.ended.append(transit)
        self._step("freed")

    def _free(self, transit_id: str) -> None:
        freed = self._ledger.release(transit_id)
        if freed is not None:
            self._roster.waitlist.room_on(freed.rates())

    def end_late(self, transit: Transit, now: float) -> None:
        """Save what was reported of a transit that had ended before."""
        transit.released_at = transit.released_at or now
        self._keeper.save([transit])
        self.ended.append(transit)

    def extend(self, transit: Transit, until: float, now: float) -> None:
        """A later end of a live lease, or BrokerError ``controller_unavailable`` (the switches did
        not take it), ``conflict`` (others hold the time after it) or ``store_unavailable`` with
        nothing changed."""
        before = transit.lease_until
        reserved = not transit.end and transit.id in self._ledger.reservations
        refusal = self._ledger.move_end(transit.id, until) if reserved else None
        if refusal is not None:
            raise BrokerError(f"the lease cannot be renewed: {refusal}", "conflict")
        transit.lease_until = until
        on = transit.state in ON_SWITCHES
        try:
            if on:
                self._switches.want(transit)
                self.installer.tell(now)
            # Other brokers give away the time after the lease that the store has.
            self._keeper.answer([transit])
        except (ControllerError, BrokerError) as error:
            if reserved:
                self._ledger.move_end(transit.id, before)
            transit.lease_until = before
            if on:
                self._switches.want(transit)  # the next change takes it back where it was taken
            if isinstance(error, BrokerError):
                raise
            raise BrokerError(
                f"the lease was not renewed: {error}", "controller_unavailable"
            ) from error
        self._roster.enter(transit)

    def mark(self, transit: Transit, flows: list[dict[str, Any]], now: float) -> None:
        """Which packets a transit carries from now on, or BrokerError ``conflict`` (another one
        takes them another way), ``controller_unavailable``, ``store_unavailable`` with nothing
        changed."""
        before, transit.flows = transit.flows, flows
        on = transit.state in ON_SWITCHES
        pairs, way = self._roster.pairs, {tuple(transit.path)} if transit.path else set()
        try:
            if pairs.clash(transit) is not None or (way and pairs.ways(transit) - way):
                raise BrokerError(
                    f"some of the packets of {transit.id} go another way already, with another "
                    "transit between its sites; expected ports of its own",
                    "conflict",
                )
            if on:
                self._switches.want(transit)
                self.installer.tell(now)
            self._keeper.must([transit])
        except (ControllerError, BrokerError) as error:
            transit.flows = before
            if on:
                self._switches.want(transit)  # the next change takes it back where it was taken
            if isinstance(error, BrokerError):
                raise
            raise BrokerError(
                f"the flows were not changed: {error}", "controller_unavailable"
            ) from error
