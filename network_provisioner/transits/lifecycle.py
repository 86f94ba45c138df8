"""Moves transits through their states, and keeps ledger, store and switches in step.

    queued ─► held ─► installed ─► active ─► released | expired
       ▲        └─► failed           │            queued ─► best_effort
       └────── its path failed ──────┘

A step changes ledger and store at once. What it means for the switches is collected, and told in
one :meth:`Lifecycle.apply` for all of it. The store is written before the switches are touched, and
the controller is always told the whole desired state; so one ``apply`` after a crash mends whatever
was cut short.

Where the switches refuse, those that were about to start are told apart: one that they will not
take fails, and the others go on; where they take nothing at all, they wait or fail as whoever
started them said. One that ran before does not fail: it waits for a path again.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace

from network_provisioner.base.clock import move_times
from network_provisioner.base.controller import ControllerError
from network_provisioner.base.errors import BrokerError
from network_provisioner.base.instants import iso
from network_provisioner.base.model import (
    LIVE,
    ON_SWITCHES,
    Transit,
    TransitRelay,
    TransitState,
)
from network_provisioner.base.units import format_rate, format_size
from network_provisioner.policies.accounting import meter
from network_provisioner.selection.breakeven import SetupTimes
from network_provisioner.selection.push import Reroute
from network_provisioner.selection.terms import LEASE_ENDS
from network_provisioner.selection.transit import explain
from network_provisioner.selection.verdicts import Grant, Wait
from network_provisioner.state import circuits
from network_provisioner.state.active_transits import ActiveTransits
from network_provisioner.state.ledger import Ledger, PathPart, Reservation
from network_provisioner.stores.store import ACTIVE
from network_provisioner.topology.graph import Hop, Path, Topology
from network_provisioner.transits.desired_state import DesiredState
from network_provisioner.transits.reports import mark, uncounted
from network_provisioner.transits.repository import Repository

log = logging.getLogger(__name__)

COUNTED_S = 10.0  # how late switches may count a packet
UNMET = "no packet of its transfer met its rules on the switches"

Write = Callable[[Sequence[Transit]], None]


@dataclass(frozen=True, slots=True)
class Start:
    """A transit to be put on the switches, what becomes of it where they do not answer, the
    transits that moved away for it, as they were before, and for one that had lost its path, the
    Unix second until which it waits for another."""

    transit: Transit
    otherwise: TransitState
    before: tuple[Transit, ...] = ()
    waits_until: float = 0.0

    @property
    def at_once(self) -> bool:
        """Whether it starts because it was asked for just now."""
        return self.otherwise is TransitState.FAILED and not self.transit.request.start


@dataclass(eq=False)
class Lifecycle:
    """The steps of transits. Not thread-safe: the broker's turn is around every call.

    ``clock`` gives Unix seconds: the switches take their time.
    """

    _topology: Topology
    _ledger: Ledger
    _active: ActiveTransits
    _repository: Repository
    _desired: DesiredState
    _clock: Callable[[], float]
    _starts: list[Start] = field(default_factory=list)
    _moved: list[Transit] = field(default_factory=list)  # that the switches were not told of yet
    _unseen: deque[str] = field(default_factory=deque)  # installed ones that no byte was seen of
    _named_at: dict[str, float] = field(default_factory=dict)  # when packets were said to be theirs
    ended: deque[Transit] = field(default_factory=deque)  # for whoever keeps accounts
    freed: set[Hop] = field(default_factory=set)  # where room was given back since it was cleared
    setup_times: SetupTimes = field(default_factory=SetupTimes)

    # -- the steps ---------------------------------------------------------------------------

    def wait(self, transit: Transit, verdict: Wait, now: float) -> None:
        """Put a transit in the queue, or leave it there with today's reason.

        Raises BrokerError ``store_unavailable`` with nothing changed.
        """
        known = transit.id in self._active.all
        if not (known and transit.reason == verdict.reason):
            transit.reason = verdict.reason
            transit.grant.candidates = explain(verdict.decision)
            transit.grant.earliest = verdict.earliest or 0.0
            transit.grant.blocking = [blocked.as_dict() for blocked in verdict.blocking]
            if known:
                self._repository.save([transit])
            else:
                self._repository.write([transit])
                self._active.enter(transit)
                _note("queued", transit)
        self._active.waitlist.waits_for(transit, verdict.claims(), now)

    def hold(
        self,
        transit: Transit,
        grant: Grant,
        lease_until: float,
        now: float,
        wanted: Transit | None = None,
    ) -> None:
        """Reserve what was granted, with all moves it needs, instead of what the transit holds, and
        have it installed at its start. ``wanted``: what it is to be instead, where it asks for
        other times.

        Raises BrokerError ``store_unavailable`` with nothing changed.
        """
        meter(transit, now)
        was, known = transit.copy(), transit.id in self._active.all
        old = self._ledger.release(transit.id)
        moves = [(move.id, tuple(way.lane for way in move.ways)) for move in grant.moves]
        refusal = self._ledger.commit(grant.reservation(transit.id), moves, now)
        if refusal is not None:  # decided a moment ago in the same turn
            raise RuntimeError(f"granted more than is free: {refusal}")
        moved, before = self._take_ways(grant.moves, now)
        for other, move in zip(moved, grant.moves, strict=True):
            other.reason += f"; {move} for {transit.id}, of priority {transit.request.priority}"
        if wanted is not None:
            self._become(transit, wanted, now)
        circuits.take(transit, grant.parts)
        transit.state, transit.grant.lease_until = TransitState.HELD, lease_until
        transit.grant.installed_at, transit.relay = 0.0, None
        transit.reason, transit.grant.candidates = grant.reason, explain(grant.decision)
        transit.grant.earliest, transit.grant.blocking = 0.0, []
        transit.grant.expected_end = grant.done if grant.early else 0.0
        try:
            self._repository.write([*moved, transit])
        except BrokerError:
            self._ledger.release(transit.id)
            self._move_back(before, now)
            if old is not None:
                self._ledger.admit(old)
            transit.assign(was)
            raise
        _note("granted", transit)
        if was.state in ON_SWITCHES:
            self._take_off(transit)
        for other in moved:
            _note("moved", other)
            if other.state in ON_SWITCHES:
                self._desired.put(other, now)
        self._active.enter(transit)
        if old is not None:
            self._room_on(old)
        if transit.request.start <= now or before:
            otherwise = TransitState.QUEUED if known else TransitState.FAILED
            if was.state in LIVE:
                otherwise = TransitState.HELD
            waits_until = was.grant.lease_until if was.lost_path else 0.0
            self._starts.append(Start(transit, otherwise, before, waits_until))
        if before:  # by itself: were others refused with it, it could not be tried again
            self.apply(now)

    def _become(self, transit: Transit, wanted: Transit, now: float) -> None:
        """Have a transit ask for what is wanted, and be given it; what it used stays."""
        if wanted.request.flows != transit.request.flows:
            self._named_at[transit.id] = now
        usage = transit.usage
        transit.assign(wanted)
        transit.usage = usage

    def move(self, moves: Sequence[Reroute], why: str, now: float, may_stay: bool = False) -> None:
        """Put transits on other ways, with what is reserved for them. The switches are to be told;
        if they refuse, the transits wait for a path. Where these ``may_stay``, the switches are
        told at once, and if they refuse all is as it was."""
        was = [self._ledger.reservations.get(move.id) for move in moves]
        lanes = [
            (move.id, tuple(way.lane for way in move.ways))
            for move, held in zip(moves, was, strict=True)
            if held is not None
        ]
        refusal = self._ledger.commit(None, lanes, now)
        if refusal is not None:  # decided a moment ago in the same turn
            raise RuntimeError(f"moved to where there is no room: {refusal}")
        moved, before = self._take_ways(moves, now)
        for transit, move in zip(moved, moves, strict=True):
            ways = " and ".join("-".join(way.path.nodes) for way in move.ways)
            reason = transit.reason.partition("; moved to ")[0]
            transit.reason = f"{reason}; moved to {ways}: {why}"
            if transit.state in ON_SWITCHES:
                self._desired.put(transit, now)
        if may_stay:
            self.apply(now)
            if self._desired.out_of_step:
                self._move_back(before, now)
                self._desired.share(now, everything=False)
                self._mended(now)
                return
        self._moved += (transit for transit in moved if transit.state in ON_SWITCHES)
        self._repository.save(moved)
        for transit in moved:
            _note("moved", transit)
        for held in filter(None, was):
            self._room_on(held)

    def _take_ways(
        self, moves: Sequence[Reroute], now: float
    ) -> tuple[list[Transit], tuple[Transit, ...]]:
        """Those that move, on their new ways, and as they were before."""
        moved = [self._active.all[move.id] for move in moves]
        before = tuple(transit.copy() for transit in moved)
        for transit, move in zip(moved, moves, strict=True):
            meter(transit, now)
            circuits.take(transit, move.ways)
            transit.grant.moves += 1
        return moved, before

    def open(self, transit: Transit, path: Path, lease_until: float, reason: str) -> None:
        """Open the way for a transit without a guarantee, where none is open by itself.

        Raises BrokerError ``store_unavailable`` with nothing changed.
        """
        was = transit.copy()
        transit.request = replace(transit.request, min_bps=0.0)
        transit.grant.path, transit.grant.layer = list(path.nodes), path.layer
        transit.state, transit.grant.lease_until = TransitState.HELD, lease_until
        transit.reason, transit.grant.earliest, transit.grant.blocking = reason, 0.0, []
        try:
            self._repository.write([transit])
        except BrokerError:
            transit.assign(was)
            raise
        self._active.enter(transit)
        self._starts.append(Start(transit, TransitState.FAILED))
        _note("opened", transit)

    def start_due(self, now: float) -> None:
        """Have those installed whose start has come."""
        if self._desired.out_of_step and not self._desired.waits(now):
            self.apply(now)
        if self._desired.out_of_step:  # they keep what they hold, and start when that is mended
            return
        for transit in self._active.starting(now):
            self._starts.append(Start(transit, TransitState.HELD))

    def change(
        self,
        transit: Transit,
        wanted: Transit,
        now: float,
        what: str,
        end: float | None = None,
        ways: Sequence[PathPart] = (),
        write: Write | None = None,
    ) -> None:
        """Make an active transit what is ``wanted`` of it, give its reservation another ``end``, or
        other rates on the ``ways`` that it has, in ledger, switches and store, or raise BrokerError
        with nothing changed: ``conflict`` (others hold the room or the time for more),
        ``controller_unavailable``, ``store_unavailable``. ``what`` did not happen then, in words.
        Its rules stay on the switches."""
        write = write or self._repository.write
        held = self._ledger.reservations.get(transit.id)
        refusal = None
        if held is not None and end is not None:
            refusal = self._ledger.move_end(transit.id, end)
        elif held is not None and ways:
            lanes = tuple(way.lane for way in ways)
            refusal = self._ledger.commit(None, [(transit.id, lanes)], now)
        if refusal is not None:
            raise BrokerError(f"{what}: {refusal}", "conflict")
        meter(transit, now)
        was, on = transit.copy(), transit.state in ON_SWITCHES
        self._become(transit, wanted, now)
        if ways:
            circuits.take(transit, ways)
        try:
            if on and ways:
                self._desired.put(transit, now)
            if on and (self._desired.update(transit) or ways):
                self._desired.share(now, everything=False)
                self._desired.apply(now)
            write([transit])
        except (ControllerError, BrokerError) as error:
            self._ledger.release(transit.id)
            if held is not None:
                self._ledger.admit(held)
            transit.assign(was)
            if on:
                self._desired.put(transit, now)  # the next change takes it back where it was taken
            if isinstance(error, BrokerError):
                raise
            raise BrokerError(f"{what}: {error}", "controller_unavailable") from error
        self._active.enter(transit)
        if wanted.request != was.request:
            _note("changed", transit)
        if held is not None and (ways or (end is not None and end < held.end)):
            self._room_on(held)

    def extend(self, transit: Transit, until: float, now: float) -> None:
        """Let a lease last longer. Raises BrokerError as :meth:`change`."""
        wanted = transit.copy()
        wanted.grant.lease_until = until
        wanted.grant.warnings = [w for w in wanted.grant.warnings if not w.startswith(LEASE_ENDS)]
        # Up to its end it is reserved already.
        end = None if transit.request.end else until
        # Who leads next gives away the time after the lease that the store has.
        write = self._repository.write_if_shared
        self.change(transit, wanted, now, "the lease was not renewed", end, write=write)

    def decline(self, transit: Transit, now: float) -> None:
        """Leave a transit to best effort. Raises BrokerError ``store_unavailable`` for a new one
        that other brokers would not know of, and which then was never asked for."""
        new = transit.id not in self._active.all
        write = self._repository.write_if_shared if new else None
        self.end(transit, TransitState.BEST_EFFORT, now, write)

    def end_late(self, transit: Transit, now: float) -> None:
        """Save what was reported of a transit that had ended before."""
        transit.grant.released_at = transit.grant.released_at or now
        self._repository.save([transit])
        self.ended.append(transit)

    def end(
        self, transit: Transit, state: TransitState, now: float, write: Write | None = None
    ) -> None:
        """Free what a transit holds and save its last state."""
        meter(transit, now)
        if transit.state in ON_SWITCHES:
            transit.usage.switch_bytes = self._desired.bytes_of(transit.id)
            self._desired.drain(transit, now)
            if transit.usage.bytes and not transit.usage.switch_bytes and self._desired.counts:
                transit.reason += f"; {UNMET}"
            if not self._active.pairs.mates(transit):  # else its count is a part of theirs
                mark(transit, uncounted(transit))
        kept = state in (TransitState.RELEASED, TransitState.EXPIRED)
        if kept or transit.grant.installed_at:
            transit.grant.released_at = now
        if not kept:  # nothing is learned of a path that it left
            circuits.leave(transit)
        if transit.grant.ports and not transit.grant.installed_at:  # others may be given them
            transit.grant.ports = []
            transit.request = replace(transit.request, flows=(), ports_at="")
        transit.state = state
        transit.grant.earliest, transit.grant.blocking = 0.0, []
        (write or self._repository.save)([transit])
        _note("refused" if state is TransitState.BEST_EFFORT else state, transit)
        self._named_at.pop(transit.id, None)
        self._free(transit.id)
        self._active.leave(transit)
        self._take_off(transit)
        self.ended.append(transit)

    def withdraw(self, transit: Transit, now: float) -> None:
        """Take back what a live transit holds. What becomes of it is the caller's to say, at
        once."""
        meter(transit, now)
        if transit.state in ON_SWITCHES:
            counted = self._desired.bytes_of(transit.id)
            transit.usage.switch_bytes = max(transit.usage.switch_bytes, counted)
        self._free(transit.id)
        self._take_off(transit)
        circuits.leave(transit)
        transit.state = TransitState.QUEUED
        transit.grant.lease_until = transit.grant.expected_end = 0.0

    def wait_for_path(self, transit: Transit, reason: str, now: float) -> None:
        """Take its path from a live transit whose transfer goes on without, and queue it for
        another until its lease ends."""
        self._requeue(transit, reason, transit.grant.lease_until, now)

    def _requeue(self, transit: Transit, reason: str, lease_until: float, now: float) -> None:
        """Take back what a live transit holds, and queue it."""
        self.withdraw(transit, now)
        self._active.leave(transit)
        transit.grant.lease_until, transit.reason = lease_until, reason
        self._active.enter(transit)
        self._repository.save([transit])
        _note("queued", transit)

    def _free(self, transit_id: str) -> None:
        freed = self._ledger.release(transit_id)
        if freed is not None:
            self._room_on(freed)

    def _room_on(self, freed: Reservation) -> None:
        """What was reserved is free again."""
        hops = freed.rates()
        self._active.waitlist.room_on(hops)
        self.freed.update(hops)

    def _take_off(self, transit: Transit) -> None:
        """A transit is to be on the switches no more, nor to start."""
        self._starts = [start for start in self._starts if start.transit is not transit]
        self._moved = [moved for moved in self._moved if moved is not transit]
        self._desired.drop(transit.id)

    def _move_back(self, before: Sequence[Transit], now: float) -> list[Transit]:
        """Put transits that were moved where they were, and what was reserved for them too."""
        for was in before:
            self._ledger.release(was.id)
        moved = [self._active.all[was.id] for was in before]
        for transit, was in zip(moved, before, strict=True):
            transit.assign(was)
            circuits.reserve(self._ledger, transit, self._topology, now)
            if transit.state in ON_SWITCHES:
                self._desired.put(transit, now)
        return moved

    # -- the switches ------------------------------------------------------------------------

    @property
    def starting(self) -> list[Transit]:
        """The transits that are about to be put on the switches."""
        return [start.transit for start in self._starts]

    def apply(self, now: float, everything: bool = False) -> None:
        """Share anew, and tell the switches, once, all that has changed since the last time.

        ``everything``: also what may wait while many are live (:mod:`~.shares`), and the queues.
        """
        starts, self._starts = self._starts, []
        for start in starts:
            if start.transit.request.start <= now:
                self._desired.put(start.transit, now)
        self._desired.share(now, everything)
        if starts or (self._desired.dirty and not self._desired.waits(now)):
            known = self._desired.out_of_step
            try:
                self._desired.apply(now)
            except ControllerError as error:
                self._refused(starts, error, known, now)
            else:
                self._moved.clear()
                self._installed([s for s in starts if s.transit.request.start <= now])

    def begin(self, now: float) -> None:
        """Have the switches carry exactly what was live before. Raises ControllerError."""
        self._desired.share(now, everything=True)
        self._desired.apply(now)

    def _installed(self, starts: Sequence[Start]) -> None:
        for start in starts:
            # Its own look at the clock: the switches took their time since the request came.
            transit = start.transit
            if not transit.grant.installed_at:
                transit.grant.installed_at = self._clock()
                if start.at_once:
                    self.setup_times.note(transit.grant.installed_at - transit.request.requested_at)
            transit.state = TransitState.INSTALLED
            self._unseen.append(transit.id)
        self._repository.save([start.transit for start in starts])

    def _refused(
        self, starts: list[Start], error: ControllerError, known: bool, now: float
    ) -> None:
        """Nothing of the last change is on the switches. ``known``: nor was what went before."""
        log.warning("the switches refused: %s", error)
        reason = f"the switches refused: {error}"
        moved = list(self._moved)
        for transit in moved:
            transit.usage.switch_bytes = self._desired.bytes_of(transit.id)
            self._desired.drop(transit.id)
        for start in starts:
            self._take_off(start.transit)
            if start.before:
                self._ledger.release(start.transit.id)
                # Not before the end of the one they moved for, which has their room till then.
                self._repository.save_later(self._move_back(start.before, now))
        self._desired.share(now, everything=False)
        mended = bool(moved or (starts and not known)) and self._mended(now)
        for transit in moved:
            if mended:
                self.wait_for_path(transit, reason, now)
            else:  # it is not for them
                self._desired.put(transit, now)
        alone = len(starts) == 1 and starts[0].transit.relayed and not starts[0].before
        if mended and starts and (len(starts) > 1 or alone or moved):
            for start in starts:  # which of them was it, and was it for its relays?
                if alone and not moved:
                    start.transit.relay = TransitRelay(why=reason)
                self._starts = [start]
                self.apply(now)
            return
        for start in starts:
            if start.waits_until:
                self._requeue(start.transit, reason, start.waits_until, now)
                self._active.waitlist.waits_for(start.transit, {}, now)  # not at once again
                continue
            otherwise = TransitState.FAILED if mended else start.otherwise
            self.not_started(start.transit, otherwise, reason, now)

    def _mended(self, now: float) -> bool:
        try:
            self._desired.apply(now)
        except ControllerError:
            return False
        return True

    def not_started(
        self, transit: Transit, otherwise: TransitState, reason: str, now: float
    ) -> None:
        """A held transit cannot start: let it fail, start later, or give back what it holds and
        wait."""
        if otherwise is TransitState.FAILED:
            transit.reason = reason
            self.end(transit, TransitState.FAILED, now)
        elif otherwise is TransitState.HELD:
            self._active.enter(transit)  # to be started again
        else:
            self._requeue(transit, reason, 0.0, now)

    # -- who moves bytes ---------------------------------------------------------------------

    def moving(self, most: int) -> list[str]:
        """Those among the next ``most`` installed transits that have carried bytes. Asks the
        switches, and may be called while others change transits."""
        some = [self._unseen.popleft() for _ in range(min(most, len(self._unseen)))]
        self._unseen.extend(some)
        return [name for name in some if self._desired.bytes_of(name) > 0]

    def moved(self, names: Collection[str], now: float) -> None:
        """These have carried bytes: they are active."""
        known, active = self._active.all, []
        for name in names:
            transit = known.get(name)
            if transit is not None and transit.state is TransitState.INSTALLED:
                transit.state, transit.grant.active_at = TransitState.ACTIVE, now
                active.append(transit)
        self._repository.save(active)
        self._unseen = deque(
            name
            for name in self._unseen
            if name in known and known[name].state is TransitState.INSTALLED
        )

    def reported(self, transit: Transit, n_bytes: int, now: float) -> None:
        """A transfer says what it moved. Where the network carries no packets, only then is its
        transit active: nobody else can know."""
        on = transit.state in ON_SWITCHES
        if on and self._desired.report(transit.id, n_bytes) and n_bytes:
            transit.state = TransitState.ACTIVE
            transit.grant.active_at = transit.grant.active_at or now

    def unmet(self, transit: Transit, n_bytes: int, now: float) -> bool:
        """Take in what a transfer has moved until now. Where no packet of it met its transit's
        rules, it goes on as best effort; whether it does."""
        if transit.state not in ON_SWITCHES or transit.awaits_flows or not n_bytes:
            return False
        before = transit.state
        self.reported(transit, n_bytes, now)
        if transit.state is not before:
            self._repository.save([transit])
        seen = not self._desired.counts or self._desired.bytes_of(transit.id)
        since = max(transit.grant.installed_at, self._named_at.get(transit.id, 0.0))
        if seen or now - since < COUNTED_S:
            return False
        transit.reason += f"; {UNMET}: its room is given back"
        self.decline(transit, now)
        return True

    # -- after a crash, a write in doubt, or a clock that was set ---------------------------------

    def adopt(self, transits: Sequence[Transit], now: float) -> None:
        """Take over all that the last broker left active, oldest first. What the store says is
        right, whatever step that broker died in: what is live there is reserved again and put on
        the switches, what is over ends, what no longer fits the network waits for another path, or
        fails where one of its sites is no more."""
        sites = set(self._topology.sites)
        for transit in transits:
            if not {transit.request.src, transit.request.dst} <= sites:
                transit.reason += "; after a restart: the topology has one of its sites no more"
                self.end(transit, TransitState.FAILED, now)
            elif transit.state is TransitState.QUEUED:
                self.resume(transit, now)
            elif transit.grant.lease_until <= now:
                transit.reason += "; its lease ended while no broker ran"
                self.end(transit, TransitState.EXPIRED, now)
            else:
                problem = circuits.reserve(self._ledger, transit, self._topology, now)
                if problem:
                    lease_until = transit.grant.lease_until if transit.request.start <= now else 0.0
                    meter(transit, now)
                    circuits.leave(transit)
                    transit.state, transit.grant.lease_until = TransitState.QUEUED, lease_until
                    transit.reason = f"after a restart: {problem}"
                    self._active.enter(transit)
                    self._repository.save([transit])
                else:
                    self.resume(transit, now)

    def take_in(self, written: Sequence[Transit], now: float) -> None:
        """Take in transits as the store has them: their write failed here, and took effect there.
        What has changed since is written again."""
        written = [t for t in written if not self._repository.is_unsaved(t.id)]
        for transit in written:
            self.forget(transit.id)
        self.adopt([transit for transit in written if transit.state in ACTIVE], now)

    def resume(self, transit: Transit, now: float) -> None:
        """Carry on with a transit that the broker before this one put where it is. Its reservation
        is the caller's business."""
        self._active.enter(transit)
        if transit.state in ON_SWITCHES:
            self._desired.put(transit, now)
            if transit.state is TransitState.INSTALLED:
                self._unseen.append(transit.id)

    def forget(self, transit_id: str) -> None:
        """Take a transit out of everything but store and switches."""
        known = self._active.all.get(transit_id)
        if known is not None:
            self._active.leave(known)
            self._take_off(known)
        self._free(transit_id)
        self._repository.forget(transit_id)

    def move_time(self, by_s: float, now: float) -> None:
        """The wall clock was set by ``by_s`` seconds, and it is ``now`` (:mod:`~.base.clock`).

        Transits that run keep what they have, for as long as they had it. Those in advance stay
        where the wall clock says, which may be in other company than before: one that no longer
        fits waits in the queue, like one that asks anew. The switches are to be told afterwards,
        and the queue to be served.
        """
        before = now - by_s
        transits = list(self._active.all.values())
        live = [transit for transit in transits if transit.state in LIVE]
        for transit in live:
            self._ledger.release(transit.id)
        # Those that run first: they held all this together a moment ago.
        live.sort(key=lambda transit: transit.request.start > before)
        for transit in transits:
            move_times(transit, by_s, before)
        for transit in live:
            if (transit.request.end or transit.grant.lease_until) <= now:
                continue  # it is over, and ends next
            refusal = circuits.reserve(self._ledger, transit, self._topology, now)
            if refusal:
                circuits.leave(transit)
                transit.state, transit.grant.lease_until = TransitState.QUEUED, 0.0
                transit.reason = f"the clock was set by {by_s:+.0f} s: {refusal}"
        for transit in transits:
            self._active.enter(transit)
            if transit.state in ON_SWITCHES:
                self._desired.update(transit)
        self._active.waitlist.unsettle()
        self._desired.move_time(by_s)
        self._repository.save(transits)


def _note(what: str, transit: Transit) -> None:
    """One line of the log: who asked for what, what it has, and why."""
    if not log.isEnabledFor(logging.INFO):
        return
    request, grant, usage = transit.request, transit.grant, transit.usage
    words = [what, transit.id, request.src, ">", request.dst]
    if request.min_bps:
        words.append(f"at least {format_rate(request.min_bps)}")
    if grant.path:
        paths = [part.path for part in grant.parts] or [grant.path]
        words.append("over " + " and ".join("-".join(path) for path in paths))
    if request.start:
        words.append(f"from {iso(request.start)}")
    if grant.lease_until and transit.state in LIVE:
        words.append(f"until {iso(grant.lease_until)}")
    if usage.bytes:
        words.append(f"after {format_size(usage.bytes)} in {usage.seconds:.1f} s")
    words.append(f"(user {request.user or '-'}, {request.template}): {transit.reason}")
    log.info("%s", " ".join(words))
