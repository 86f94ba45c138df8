"""What was reserved in advance: moved to other times, and begun by the transfer it was made for.

    held for later ── shift ─► held for another time
                   ── claim ─► installed now, with the lease of an ordinary request

Either happens as a whole or not at all: what is held stays held until something else is certain.
Not thread-safe: the broker's turn is around every call.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from network_provisioner import circuits, instead
from network_provisioner.controllers.base import ControllerError
from network_provisioner.decisions.admission import Grant, Never, Wait, check_times, explain
from network_provisioner.errors import BrokerError
from network_provisioner.installing import Start
from network_provisioner.instants import iso
from network_provisioner.model import ENDED, ON_SWITCHES, Transit, TransitRequest, TransitState
from network_provisioner.policies.accounting import meter
from network_provisioner.terms import check_ahead, fingerprint, same_terms

if TYPE_CHECKING:
    from network_provisioner.engine import Engine

log = logging.getLogger(__name__)

# What a change of times changes of a transit that keeps its path.
_TIMES = ("start", "end", "lease_s", "lease_until", "requested_at", "size_bytes", "asked")


def is_claim(transit: Transit, request: TransitRequest) -> bool:
    """Whether a request for now is for what the same caller reserved in advance, on these terms."""
    return (
        request.start is None
        and request.end is None
        and transit.state not in ENDED
        and bool(transit.start or transit.end)
        and (transit.src, transit.dst) == (request.src, request.dst)
        and same_terms(transit.asked, request)
    )


def claim(engine: Engine, transit: Transit, request: TransitRequest, now: float) -> Transit:
    """Begin what was reserved in advance, at Unix second ``now``; returns what it is then.

    It gets the lease of an ordinary request where there is room for it; else what was reserved, and
    as much more as is free; else it begins as early as it can, which is its own start at the
    latest. One that waits for a later start is asked for anew. Call it where :func:`is_claim`; for
    any other transit it does nothing.

    Raises BrokerError as :meth:`~network_provisioner.dispatch.Dispatcher.create`, with nothing
    changed.
    """
    if not is_claim(transit, request):
        return transit
    if transit.state is TransitState.QUEUED:
        engine.life.forget(transit.id)
        try:
            return engine.dispatch.create(request, now)
        except BrokerError:
            engine.life.resume(transit)
            raise
    if transit.state in ON_SWITCHES or transit.start <= now:
        _keep(engine, transit, _as_if_asked(transit, request, now), now)
    else:
        _begin(engine, transit, _as_if_asked(transit, request, now), now)
    return transit


def shift(
    engine: Engine, transit: Transit, start: float, end: float, size_bytes: int | None, now: float
) -> None:
    """Hold a transit from ``start`` to ``end`` (Unix seconds) instead of when it was asked for, on
    whichever path has room then.

    One that is on the switches may be put off while it carries nothing; of one that does, only the
    end can move. One that waits, waits for the new times where they are taken too. Raises
    BrokerError ``bad_time``, ``conflict`` (no room, or it has begun, or ended, or has no times: its
    transfer has asked for it), ``controller_unavailable``, ``store_unavailable``: it is as it was.
    """
    if transit.state in ENDED:
        raise BrokerError(
            f"transit {transit.id!r} is {transit.state}, expected one that has not ended",
            "conflict",
        )
    if not (transit.start or transit.end):  # who moves it may not have heard of its transfer yet
        raise BrokerError(
            f"transit {transit.id!r} was asked for without times, expected one that is reserved in "
            "advance",
            "conflict",
        )
    begun = transit.state in ON_SWITCHES or transit.start <= now
    moves_on = begun and start <= now and transit.state is not TransitState.QUEUED
    longest = engine.admission.limits.max_lease_s
    check_ahead(TransitRequest(transit.id, transit.src, transit.dst, start=start, end=end), now)
    check_times(None if moves_on else start, end, now, longest)
    wish = transit.copy()
    wish.start, wish.end = (transit.start if moves_on else max(start, now)), end
    wish.size_bytes = transit.size_bytes if size_bytes is None else size_bytes
    if transit.state is TransitState.QUEUED:
        _requeue(engine, transit, wish, now)
    elif moves_on:
        _retime(engine, transit, replace(wish, lease_until=end), now)
    elif begun and _in_use(engine, transit):
        raise BrokerError(
            f"transit {transit.id!r} has begun, expected a start up to now, {iso(now)}", "conflict"
        )
    else:
        verdict = instead.decide(engine, transit, wish, now)
        if not isinstance(verdict, Grant):
            raise _refusal(transit, wish, verdict)
        _book(engine, transit, wish, verdict, now)
    engine.dispatch.serve_queue(now)


# -- what becomes of a transit ---------------------------------------------------------------------


def _as_if_asked(transit: Transit, request: TransitRequest, now: float) -> Transit:
    """The transit with the terms of a request that came now."""
    size = transit.size_bytes if request.size_bytes is None else request.size_bytes
    return replace(
        transit,
        start=0.0,
        end=0.0,
        requested_at=now,
        lease_s=request.lease_s,
        asked=fingerprint(request),
        size_bytes=size,
    )


def _begin(engine: Engine, transit: Transit, wish: Transit, now: float) -> None:
    """Have a held transit begin before its start, or be sure to begin then."""
    verdict = instead.decide(engine, transit, wish, now)
    if isinstance(verdict, Grant):
        _book(engine, transit, wish, verdict, now)
        return
    _, most = engine.admission.window(wish, now)
    tight = replace(wish, lease_s=transit.lease_until - transit.start)
    verdict = instead.decide(engine, transit, tight, now)
    if isinstance(verdict, Wait) and verdict.earliest and verdict.earliest < transit.start:
        wish = replace(wish, start=verdict.earliest)
        verdict = instead.decide(engine, transit, replace(tight, start=wish.start), now)
    if isinstance(verdict, Grant):
        with instead.without(engine, transit):
            most += verdict.start - now
            until = instead.free_until(engine, verdict.reservation(transit.id), most)
        _book(engine, transit, wish, replace(verdict, end=until), now)
    else:
        _keep(engine, transit, replace(wish, start=transit.start), now)


def _keep(engine: Engine, transit: Transit, wish: Transit, now: float) -> None:
    """Have a transit stay where it is and last as long as one that is asked for now, or as long as
    it can."""
    _, until = engine.admission.window(wish, now)
    with instead.without(engine, transit) as held:
        if held is not None:
            until = max(held.end, instead.free_until(engine, held, until))
    now_until = transit.lease_until
    for end in (max(until, now_until), now_until):  # it has a path all the same, until its end
        try:
            _retime(engine, transit, replace(wish, lease_until=end), now)
        except BrokerError as error:
            log.warning("transit %s is not made longer: %s", transit.id, error)
        else:
            return


def _book(engine: Engine, transit: Transit, wish: Transit, grant: Grant, now: float) -> None:
    """Give a transit what was granted to ``wish``, instead of what it has."""
    meter(transit, now)
    was, on = transit.copy(), transit.state in ON_SWITCHES
    old = engine.ledger.release(transit.id)
    refusal = engine.ledger.admit(grant.reservation(transit.id))
    if refusal is not None:  # decided a moment ago in the same turn
        raise RuntimeError(f"granted more than is free: {refusal}")
    _copy_times(wish, transit)
    circuits.take(transit, grant.parts)
    transit.state, transit.installed_at = TransitState.HELD, 0.0
    transit.lease_until = engine.dispatch.lease_until(transit, grant)
    transit.reason, transit.candidates = grant.reason, explain(grant.decision)
    try:
        engine.keeper.must([transit])
    except BrokerError:
        engine.ledger.release(transit.id)
        if old is not None:
            engine.ledger.admit(old)
        transit.assign(was)
        raise
    if on:
        engine.life.installer.take_off(transit)
    engine.roster.enter(transit)
    if old is not None:
        engine.roster.waitlist.room_on(old.rates())
    if transit.start <= now:
        engine.life.installer.start(Start(transit, TransitState.HELD))


def _retime(engine: Engine, transit: Transit, wish: Transit, now: float) -> None:
    """Let a transit that has begun end when ``wish`` does. Raises BrokerError, nothing changed."""
    was = transit.copy()
    until = wish.lease_until
    held = engine.ledger.reservations.get(transit.id)
    refusal = None if held is None else engine.ledger.move_end(transit.id, until)
    if refusal is not None:
        raise BrokerError(f"transit {transit.id!r} cannot end later: {refusal}", "conflict")
    _copy_times(wish, transit)
    on = transit.state in ON_SWITCHES
    try:
        if on and until != was.lease_until:
            engine.switches.want(transit)
            engine.life.installer.tell(now)
        engine.keeper.must([transit])
    except (ControllerError, BrokerError) as error:
        if held is not None:
            engine.ledger.move_end(transit.id, held.end)
        _copy_times(was, transit)
        if on:
            engine.switches.want(transit)  # the next change takes it back where it was taken
        if isinstance(error, BrokerError):
            raise
        raise BrokerError(f"the end was not changed: {error}", "controller_unavailable") from error
    engine.roster.enter(transit)
    if held is not None and until < held.end:
        engine.roster.waitlist.room_on(held.rates())


def _requeue(engine: Engine, transit: Transit, wish: Transit, now: float) -> None:
    """Have a transit in the queue wait for other times, or hold it where these are free."""
    verdict = instead.decide(engine, transit, wish, now)
    if not isinstance(verdict, Grant | Wait):
        raise _refusal(transit, wish, verdict)
    was = transit.copy()
    _copy_times(wish, transit)
    try:
        if isinstance(verdict, Grant):
            until = engine.dispatch.lease_until(transit, verdict)
            engine.life.hold(transit, verdict, until, now)
            return
        engine.keeper.must([transit])
    except BrokerError:
        transit.assign(was)
        raise
    engine.roster.enter(transit)
    engine.life.wait(transit, verdict, now)


def _in_use(engine: Engine, transit: Transit) -> bool:
    """Whether it cannot be put off: a transfer uses it, or nothing but the way is kept for one."""
    if transit.state is TransitState.ACTIVE or not transit.requested_bps:
        return True
    return transit.state in ON_SWITCHES and engine.switches.bytes_of(transit.id) > 0


def _copy_times(source: Transit, target: Transit) -> None:
    for name in _TIMES:
        setattr(target, name, getattr(source, name))


def _refusal(transit: Transit, wish: Transit, verdict: Wait | Never | None) -> BrokerError:
    why = "its packets are on several paths" if verdict is None else verdict.reason
    return BrokerError(
        f"transit {transit.id!r} cannot be held from {iso(wish.start)} to {iso(wish.end)}: {why}",
        "conflict",
    )
