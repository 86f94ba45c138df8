"""Carries out what was decided about transits, and keeps ledger, store and switches in step.

    queued ─► held ─► installed ─► active ─► released | expired
       ▲        └─► failed           │            queued ─► best_effort
       └────── its path failed ──────┘

A :meth:`~Lifecycle.commit` changes ledger and store at once. What it means for the switches is
collected, and told in one :meth:`Lifecycle.apply` for all of it. The store is written before the
switches are touched, and the controller is always told the whole desired state; so one ``apply``
after a crash mends whatever was cut short.

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
    ENDED,
    LIVE,
    ON_SWITCHES,
    Transit,
    TransitRelay,
    TransitState,
)
from network_provisioner.base.units import format_rate, format_size
from network_provisioner.policies.accounting import meter
from network_provisioner.selection.breakeven import SetupTimes
from network_provisioner.selection.outcomes import Wait
from network_provisioner.selection.push import Reroute
from network_provisioner.selection.terms import LEASE_ENDS
from network_provisioner.state import circuits
from network_provisioner.state.ledger import PathPart, Reservation
from network_provisioner.state.network_state import NetworkState
from network_provisioner.stores.store import ACTIVE
from network_provisioner.topology.graph import Hop, Path
from network_provisioner.transits.changes import (
    KEPT,
    Change,
    end_changes,
    modification_changes,
    queue_changes,
    reroute_changes,
    wait_changes,
)
from network_provisioner.transits.desired_state import DesiredState
from network_provisioner.transits.reports import count_mismatch, mark
from network_provisioner.transits.repository import Repository

log = logging.getLogger(__name__)

COUNTED_S = 10.0  # how late switches may count a packet
UNMET = "no packet of its transfer met its rules on the switches"

Write = Callable[[Sequence[Transit]], None]


@dataclass(frozen=True, slots=True)
class Start:
    """A transit to be put on the switches, what becomes of it where they do not answer, what undoes
    the moves that were made for it, and for one that had lost its path, the Unix second until which
    it waits for another."""

    transit: Transit
    otherwise: TransitState
    undo: tuple[Change, ...] = ()
    waits_until: float = 0.0

    @property
    def at_once(self) -> bool:
        """Whether it starts because it was asked for just now."""
        return self.otherwise is TransitState.FAILED and not self.transit.request.start


@dataclass(eq=False)
class Lifecycle:
    """Commits changes of transits. Not thread-safe: the broker holds its lock in every call.

    ``clock`` gives Unix seconds: the switches take their time.
    """

    _state: NetworkState
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

    def find(self, transit_id: str) -> Transit | None:
        """The transit with this id, whatever its state. Raises StoreError."""
        return self._state.active.all.get(transit_id) or self._repository.find(transit_id)

    # -- the commit --------------------------------------------------------------------------

    def commit(
        self,
        changes: Sequence[Change],
        now: float,
        write: Write | None = None,
        what: str = "",
        at_once: bool = False,
    ) -> None:
        """Carry out all of these changes or none: in the ledger, in memory and in the store, by
        ``write`` (None: one that may be refused). What starts is put on the switches by the next
        :meth:`apply`; what is there already changes then too, or ``at_once``.

        Raises BrokerError with nothing changed, and ``what`` did not happen, in words:
        ``conflict`` (others hold the room), ``controller_unavailable``, ``store_unavailable``.
        """
        undo = self._exchange(changes, now, what)
        try:
            if at_once and self._desire(undo, now):
                self._desired.share(now, everything=False)
                self._desired.apply(now)
            (write or self._repository.write)([change.transit for change in changes])
        except (ControllerError, BrokerError) as error:
            self._exchange(undo, now)
            if at_once:
                self._desire(changes, now)  # the next apply takes it back where it was taken
            if isinstance(error, BrokerError):
                raise
            raise BrokerError(f"{what}: {error}", "controller_unavailable") from error
        if not at_once:
            self._desire(undo, now)
        for change, before in zip(changes, undo, strict=True):
            self._index(change, before)
        starts = [change for change in changes if change.otherwise is not None]
        if not (starts or at_once):
            self._moved += (b.transit for b in undo if _moves(b.after, b.transit))
        for change in starts:
            self._start(change, undo, now)

    def _exchange(self, changes: Sequence[Change], now: float, what: str = "") -> list[Change]:
        """Make transits and ledger what the changes say, or change nothing; what undoes it. Raises
        BrokerError ``conflict``."""
        ledger = self._state.ledger
        before = [ledger.reservations.get(change.transit.id) for change in changes]
        exchanged = [
            (old, change.reservation)
            for old, change in zip(before, changes, strict=True)
            if old is not change.reservation
        ]
        freed = [old.id for old, _ in exchanged if old is not None]
        refusal = ledger.exchange(freed, [new for _, new in exchanged if new is not None])
        if refusal is not None:
            if what:
                raise BrokerError(f"{what}: {refusal}", "conflict")
            # Decided a moment ago, on the same state.
            raise RuntimeError(f"granted more than is free: {refusal}")
        undo = []
        for change, old in zip(changes, before, strict=True):
            transit, usage = change.transit, change.transit.usage
            meter(transit, now)
            undo.append(Change(transit, replace(transit), old))
            if change.after.request.flows != transit.request.flows:
                self._named_at[transit.id] = now
            left = transit.state in ON_SWITCHES and change.after.state not in ON_SWITCHES
            transit.assign(change.after)
            transit.usage = usage  # what was measured stays
            if left:
                self._count(transit)
        return undo

    def _count(self, transit: Transit) -> None:
        """A transit leaves the switches: what they counted for it."""
        usage = transit.usage
        usage.switch_bytes = max(usage.switch_bytes, self._desired.bytes_of(transit.id))
        if transit.state in KEPT:
            missed = usage.bytes and not usage.switch_bytes and self._state.can.real_packets
            if missed and not self._desired.may_carry(transit.id):
                transit.reason += f"; {UNMET}"
            if not self._state.active.pairs.mates(transit):  # else its count is a part of theirs
                mark(transit, count_mismatch(transit))

    def _desire(self, before: Sequence[Change], now: float) -> bool:
        """Have the switches carry what transits have become since ``before``; whether that is
        something else for them."""
        desired = False
        for change in before:
            transit, was = change.transit, change.after
            if transit.state not in ON_SWITCHES:
                if was.state in ON_SWITCHES and transit.state in KEPT:
                    self._desired.drain(was, now)
                if was.state in ON_SWITCHES or transit.state not in LIVE:
                    self._take_off(transit)
            elif was.state not in ON_SWITCHES or _moves(was, transit):
                self._desired.put(transit, now)
                desired = True
            else:
                desired = self._desired.update(transit) or desired
        return desired

    def _index(self, change: Change, before: Change) -> None:
        """Note a change that was made."""
        transit, was, active = change.transit, before.after, self._state.active
        if change.event:
            _note(change.event, transit)
        if transit.state in ENDED:
            self._named_at.pop(transit.id, None)
            self.ended.append(transit)
        if transit.state in ENDED or (was.state in LIVE and transit.state not in LIVE):
            active.leave(transit)
        if transit.state not in ENDED:
            active.enter(transit)
        held, new = before.reservation, change.reservation
        if held is not None and (new is None or not _extends(held, new)):
            self._room_on(held)

    def _start(self, change: Change, undo: Sequence[Change], now: float) -> None:
        """Have what a change is about put on the switches, at its start."""
        transit = change.transit
        was = next(before.after for before in undo if before.transit is transit)
        moves = tuple(before for before in undo if before.transit is not transit)
        if change.otherwise is not None and (transit.request.start <= now or moves):
            waits_until = was.grant.lease_until if was.lost_path else 0.0
            self._starts.append(Start(transit, change.otherwise, moves, waits_until))
        if moves:  # by itself: were others refused with it, it could not be tried again
            self.apply(now)

    # -- changes that many make --------------------------------------------------------------

    def wait(self, transit: Transit, outcome: Wait, now: float) -> None:
        """Put a transit in the queue, or leave it there with today's reason.

        Raises BrokerError ``store_unavailable`` with nothing changed.
        """
        known = transit.id in self._state.active.all
        changes = wait_changes(self._state, transit, outcome)
        self.commit(changes, now, self._repository.save if known else None)
        self._state.active.waitlist.waits_for(transit, outcome.claims(), now)

    def move(self, moves: Sequence[Reroute], why: str, now: float) -> None:
        """Put transits on other ways, with what is reserved for them. The switches are to be told;
        if they refuse, the transits wait for a path."""
        self.commit(reroute_changes(self._state, moves, why, now), now, self._repository.save)

    def try_move(self, moves: Sequence[Reroute], why: str, now: float) -> bool:
        """As :meth:`move`, and tell the switches at once; whether they took it. Else all is as it
        was."""
        changes = reroute_changes(self._state, moves, why, now)
        try:
            self.commit(changes, now, self._repository.save, "they stay", at_once=True)
        except BrokerError:
            self._desired.share(now, everything=False)
            self._mended(now)
            return False
        return True

    def extend(self, transit: Transit, until: float, now: float) -> None:
        """Let a lease last longer. Raises BrokerError as :meth:`commit`."""
        wanted = transit.copy()
        wanted.grant.lease_until = until
        wanted.grant.warnings = [w for w in wanted.grant.warnings if not w.startswith(LEASE_ENDS)]
        # Up to its end it is reserved already.
        end = None if transit.request.end else until
        # Who leads next gives away the time after the lease that the store has.
        write = self._repository.write_if_shared
        what = "the lease was not renewed"
        self.commit(
            modification_changes(self._state, transit, wanted, now, end), now, write, what, True
        )

    def modify(
        self,
        transit: Transit,
        wanted: Transit,
        now: float,
        what: str,
        end: float | None = None,
        ways: Sequence[PathPart] = (),
    ) -> None:
        """Make a transit what is ``wanted`` of it, at once on the switches too. Raises BrokerError
        as :meth:`commit`."""
        changes = modification_changes(self._state, transit, wanted, now, end, ways)
        self.commit(changes, now, what=what, at_once=True)

    def amend(self, transit: Transit, wanted: Transit, now: float) -> None:
        """As :meth:`modify`, for what switches do not know of and nobody can refuse."""
        changes = modification_changes(self._state, transit, wanted, now)
        self.commit(changes, now, self._repository.save)

    def decline(
        self, transit: Transit, reason: str, now: float, last: Transit | None = None
    ) -> None:
        """Leave a transit to best effort. Raises BrokerError ``store_unavailable`` for a new one
        that other brokers would not know of, and which then was never asked for."""
        new = transit.id not in self._state.active.all
        write = self._repository.write_if_shared if new else self._repository.save
        self.commit(end_changes(transit, TransitState.BEST_EFFORT, now, reason, last), now, write)

    def try_path(self, transit: Transit, path: Path, why: str, now: float) -> bool:
        """As :meth:`try_move`, for a transit on one path that moves to another alone."""
        (way,) = circuits.ways(transit, self._state.topology)
        move = Reroute(transit.id, (replace(way, path=path),), way.path.hops[0])
        return self.try_move([move], why, now)

    def end(self, transit: Transit, state: TransitState, reason: str, now: float) -> None:
        """Free what a transit holds and save its last state."""
        self.commit(end_changes(transit, state, now, reason), now, self._repository.save)

    def end_late(self, transit: Transit, now: float) -> None:
        """Save what was reported of a transit that had ended before."""
        transit.grant.released_at = transit.grant.released_at or now
        self._repository.save([transit])
        self.ended.append(transit)

    def requeue(
        self, transit: Transit, reason: str, now: float, lease_until: float | None = None
    ) -> None:
        """Take its path from a live transit, and queue it for another until its lease ends, or
        ``lease_until``; 0 has it wait like a new one."""
        until = transit.grant.lease_until if lease_until is None else lease_until
        self.commit(queue_changes(transit, reason, until), now, self._repository.save)

    def start_due(self, now: float) -> None:
        """Have those installed whose start has come."""
        if self._desired.out_of_step and not self._desired.waits(now):
            self.apply(now)
        if self._desired.out_of_step:  # they keep what they hold, and start when that is mended
            return
        for transit in self._state.active.starting(now):
            self._starts.append(Start(transit, TransitState.HELD))

    def _room_on(self, freed: Reservation) -> None:
        """What was reserved is free again."""
        hops = freed.rates()
        self._state.active.waitlist.room_on(hops)
        self.freed.update(hops)

    def _take_off(self, transit: Transit) -> None:
        """A transit is to be on the switches no more, nor to start."""
        self._starts = [start for start in self._starts if start.transit is not transit]
        self._moved = [rerouted for rerouted in self._moved if rerouted is not transit]
        self._desired.drop(transit.id)

    # -- the switches ------------------------------------------------------------------------

    @property
    def starting(self) -> list[Transit]:
        """The transits that are about to be put on the switches."""
        return [start.transit for start in self._starts]

    def apply(self, now: float, everything: bool = False) -> None:
        """Share anew, and tell the switches, once, all that has changed since the last time.

        ``everything``: also what may wait while many are live (:mod:`~.desired_state`), and queues.
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
        rerouted = list(self._moved)
        for transit in rerouted:
            transit.usage.switch_bytes = self._desired.bytes_of(transit.id)
            self._desired.drop(transit.id)
        for start in starts:
            self._take_off(start.transit)
            if start.undo:
                self._state.ledger.release(start.transit.id)
                forward = self._exchange(start.undo, now)
                self._desire(forward, now)
                # Not before the end of the one they moved for, which has their room till then.
                self._repository.save_later([change.transit for change in forward])
        self._desired.share(now, everything=False)
        mended = bool(rerouted or (starts and not known)) and self._mended(now)
        for transit in rerouted:
            if mended:
                self.requeue(transit, reason, now)
            else:  # it is not for them
                self._desired.put(transit, now)
        alone = len(starts) == 1 and starts[0].transit.relayed and not starts[0].undo
        if mended and starts and (len(starts) > 1 or alone or rerouted):
            for start in starts:  # which of them was it, and was it for its relays?
                if alone and not rerouted:
                    start.transit.relay = TransitRelay(why=reason)
                self._starts = [start]
                self.apply(now)
            return
        for start in starts:
            if start.waits_until:
                self.requeue(start.transit, reason, now, start.waits_until)
                self._state.active.waitlist.waits_for(start.transit, {}, now)  # not at once again
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
            self.end(transit, TransitState.FAILED, reason, now)
        elif otherwise is TransitState.HELD:
            self._state.active.enter(transit)  # to be started again
        else:
            self.requeue(transit, reason, now, 0.0)

    # -- who moves bytes ---------------------------------------------------------------------

    def moving(self, most: int) -> list[str]:
        """Those among the next ``most`` installed transits that have carried bytes. Asks the
        switches, and may be called while others change transits."""
        some = [self._unseen.popleft() for _ in range(min(most, len(self._unseen)))]
        self._unseen.extend(some)
        return [name for name in some if self._desired.bytes_of(name) > 0]

    def mark_active(self, names: Collection[str], now: float) -> None:
        """These have carried bytes: they are active."""
        known, active = self._state.active.all, []
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
        seen = not self._state.can.real_packets or self._desired.may_carry(transit.id)
        since = max(transit.grant.installed_at, self._named_at.get(transit.id, 0.0))
        if seen or now - since < COUNTED_S:
            return False
        self.decline(transit, f"{transit.reason}; {UNMET}: its bandwidth is released", now)
        return True

    # -- after a crash, a write in doubt, or a clock that was set ---------------------------------

    def adopt(self, transits: Sequence[Transit], now: float) -> None:
        """Take over all that the last broker left active, oldest first. What the store says is
        right, whatever step that broker died in: what is live there is reserved again and put on
        the switches, what is over ends, what no longer fits the network waits for another path, or
        fails where one of its sites is no more."""
        sites = set(self._state.topology.sites)
        for transit in transits:
            if not {transit.request.src, transit.request.dst} <= sites:
                reason = "after a restart: the topology no longer has one of its sites"
                self.end(transit, TransitState.FAILED, f"{transit.reason}; {reason}", now)
            elif transit.state is TransitState.QUEUED:
                self.resume(transit, now)
            elif transit.grant.lease_until <= now:
                reason = f"{transit.reason}; its lease ended while no broker ran"
                self.end(transit, TransitState.EXPIRED, reason, now)
            else:
                problem = self._reserve(transit, now)
                if problem:
                    until = transit.grant.lease_until if transit.request.start <= now else 0.0
                    self.requeue(transit, f"after a restart: {problem}", now, until)
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
        self._state.active.enter(transit)
        if transit.state in ON_SWITCHES:
            self._desired.put(transit, now)
            if transit.state is TransitState.INSTALLED:
                self._unseen.append(transit.id)

    def _reserve(self, transit: Transit, now: float) -> str:
        return circuits.reserve(self._state.ledger, transit, self._state.topology, now)

    def forget(self, transit_id: str) -> None:
        """Take a transit out of everything but store and switches."""
        known = self._state.active.all.get(transit_id)
        if known is not None:
            self._state.active.leave(known)
            self._take_off(known)
        freed = self._state.ledger.release(transit_id)
        if freed is not None:
            self._room_on(freed)
        self._repository.forget(transit_id)

    def move_time(self, by_s: float, now: float) -> None:
        """The wall clock was set by ``by_s`` seconds, and it is ``now`` (:mod:`~.base.clock`).

        Transits that run keep what they have, for as long as they had it. Those in advance stay
        where the wall clock says, which may be in other company than before: one that no longer
        fits waits in the queue, like one that asks anew. The switches are to be told afterwards,
        and the queue to be served.
        """
        before = now - by_s
        transits = list(self._state.active.all.values())
        live = [transit for transit in transits if transit.state in LIVE]
        for transit in live:
            self._state.ledger.release(transit.id)
        # Those that run first: they held all this together a moment ago.
        live.sort(key=lambda transit: transit.request.start > before)
        for transit in transits:
            move_times(transit, by_s, before)
        for transit in live:
            if (transit.request.end or transit.grant.lease_until) <= now:
                continue  # it is over, and ends next
            refusal = self._reserve(transit, now)
            if refusal:
                circuits.leave(transit)
                transit.state, transit.grant.lease_until = TransitState.QUEUED, 0.0
                transit.reason = f"the clock was set by {by_s:+.0f} s: {refusal}"
        for transit in transits:
            self._state.active.enter(transit)
            if transit.state in ON_SWITCHES:
                self._desired.update(transit)
        self._state.active.waitlist.unsettle()
        self._desired.move_time(by_s)
        self._repository.save(transits)


def _extends(held: Reservation, new: Reservation) -> bool:
    """Whether a reservation is the same as before, or only longer."""
    return new.end >= held.end and new == replace(held, end=new.end)


def _moves(before: Transit, after: Transit) -> bool:
    """Whether a transit that stays on the switches has other paths or rates there."""
    on = before.state in ON_SWITCHES and after.state in ON_SWITCHES
    return on and _demand(before) != _demand(after)


def _demand(transit: Transit) -> tuple[object, ...]:
    parts = [(part.path, part.min_bps, part.max_bps) for part in transit.grant.parts]
    return transit.grant.path, parts, transit.request.min_bps, transit.request.max_bps


def _note(what: str, transit: Transit) -> None:
    """One line of the log: who asked for what, what it has, and why."""
    if not log.isEnabledFor(logging.INFO):
        return
    request, grant, usage = transit.request, transit.grant, transit.usage
    words = [what, transit.id, request.src, ">", request.dst]
    if request.min_bps:
        words.append(f"at least {format_rate(request.min_bps)}")
    if grant.path:
        words.append("over " + " and ".join(map("-".join, grant.paths)))
    if request.start:
        words.append(f"from {iso(request.start)}")
    if grant.lease_until and transit.state in LIVE:
        words.append(f"until {iso(grant.lease_until)}")
    if usage.bytes:
        words.append(f"after {format_size(usage.bytes)} in {usage.seconds:.1f} s")
    words.append(f"(user {request.user or '-'}, {request.template}): {transit.reason}")
    log.info("%s", " ".join(words))
