"""What becomes of transits, as values: decisions make them, and a commit carries them out. Pure.

Each function reads the state and a decision, and gives what a transit is to be; until it is
committed (:mod:`~.transits.lifecycle`), nothing has changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from network_provisioner.base.model import LIVE, Transit, TransitState
from network_provisioner.selection.outcomes import Grant, Wait
from network_provisioner.selection.push import Reroute
from network_provisioner.selection.transit import explain
from network_provisioner.state import circuits
from network_provisioner.state.ledger import PathPart, Reservation
from network_provisioner.state.network_state import NetworkState
from network_provisioner.topology.graph import Path

KEPT = frozenset({TransitState.RELEASED, TransitState.EXPIRED})
"""The ends of transits that had what they asked for."""


@dataclass(frozen=True, slots=True)
class Change:
    """``transit`` becomes ``after``, all but its usage, and holds ``reservation`` from then on.

    ``event``      what the log calls it, "" for nothing
    ``otherwise``  where it is to start: what becomes of it if the switches refuse
    """

    transit: Transit
    after: Transit
    reservation: Reservation | None
    event: str = ""
    otherwise: TransitState | None = None


def grant_changes(
    state: NetworkState,
    transit: Transit,
    grant: Grant,
    lease_until: float,
    now: float,
    wanted: Transit | None = None,
) -> list[Change]:
    """A transit holds what it was granted instead of what it has, and others move for it.
    ``wanted``: what it asks for then, where that is something else."""
    after = (wanted or transit).copy()
    circuits.take(after, grant.parts)
    after.state, after.grant.lease_until = TransitState.HELD, lease_until
    after.grant.installed_at, after.relay = 0.0, None
    after.reason, after.grant.candidates = grant.reason, explain(grant.decision)
    after.grant.earliest, after.grant.blocking = 0.0, []
    after.grant.expected_end = grant.done if grant.early else 0.0
    otherwise = TransitState.QUEUED if transit.id in state.active.all else TransitState.FAILED
    if transit.state in LIVE:
        otherwise = TransitState.HELD
    why = f" for {transit.id}, of priority {transit.request.priority}"
    moves = [_moved(state, move, now) for move in grant.moves]
    for change, move in zip(moves, grant.moves, strict=True):
        change.after.reason += f"; {move}{why}"
    held = grant.reservation(transit.id)
    return [*moves, Change(transit, after, held, "granted", otherwise)]


def reroute_changes(
    state: NetworkState, moves: Sequence[Reroute], why: str, now: float
) -> list[Change]:
    """Transits are on other ways, with what is reserved for them."""
    changes = [_moved(state, move, now) for move in moves]
    for change, move in zip(changes, moves, strict=True):
        ways = " and ".join("-".join(way.path.nodes) for way in move.ways)
        reason = change.after.reason.partition("; moved to ")[0]
        change.after.reason = f"{reason}; moved to {ways}: {why}"
    return changes


def _moved(state: NetworkState, move: Reroute, now: float) -> Change:
    transit = state.active.all[move.id]
    after = transit.copy()
    circuits.take(after, move.ways)
    after.grant.moves += 1
    return Change(transit, after, _on_ways(state, transit, move.ways, now), "moved")


def _on_ways(
    state: NetworkState, transit: Transit, ways: Sequence[PathPart], now: float
) -> Reservation | None:
    """What a transit has reserved, on these ways from now on."""
    held = state.ledger.reservations.get(transit.id)
    return None if held is None else held.on(tuple(way.lane for way in ways), now)


def modification_changes(
    state: NetworkState,
    transit: Transit,
    wanted: Transit,
    now: float,
    end: float | None = None,
    ways: Sequence[PathPart] = (),
) -> list[Change]:
    """A transit is what is ``wanted`` of it, with another ``end`` of its reservation, or other
    rates on the ``ways`` that it has."""
    held, after = state.ledger.reservations.get(transit.id), wanted.copy()
    if ways:
        held = _on_ways(state, transit, ways, now)
        circuits.take(after, ways)
    elif held is not None and end is not None:
        held = replace(held, end=end)
    event = "changed" if wanted.request != transit.request else ""
    return [Change(transit, after, held, event)]


def opening_changes(
    transit: Transit, path: Path, lease_until: float, reason: str, last: Transit
) -> list[Change]:
    """A transit without a guarantee passes where nothing does without a path. ``last``: as it is
    without the one that it had."""
    after = last.copy()
    after.request = replace(after.request, min_bps=0.0)
    after.grant.path, after.grant.layer = list(path.nodes), path.layer
    after.state, after.grant.lease_until, after.reason = TransitState.HELD, lease_until, reason
    after.grant.earliest, after.grant.blocking = 0.0, []
    return [Change(transit, after, None, "opened", TransitState.FAILED)]


def queue_changes(transit: Transit, reason: str, lease_until: float = 0.0) -> list[Change]:
    """A live transit gives back what it holds and waits, up to ``lease_until`` for another path."""
    after = transit_without_path(transit)
    after.grant.lease_until, after.reason = lease_until, reason
    return [Change(transit, after, None, "queued")]


def wait_changes(state: NetworkState, transit: Transit, outcome: Wait) -> list[Change]:
    """A transit waits, for the reason of today; none where it did for the same."""
    known = transit.id in state.active.all
    if known and transit.reason == outcome.reason:
        return []
    after = transit.copy()
    after.reason = outcome.reason
    after.grant.candidates = explain(outcome.decision)
    after.grant.earliest = outcome.earliest or 0.0
    after.grant.blocking = [blocked.as_dict() for blocked in outcome.blocking]
    return [Change(transit, after, None, "" if known else "queued")]


def end_changes(
    transit: Transit, end: TransitState, now: float, reason: str, last: Transit | None = None
) -> list[Change]:
    """A transit ends. ``last``: as it was last, where that is not as it is."""
    after = (last or transit).copy()
    after.state, after.reason = end, reason
    if end in KEPT or after.grant.installed_at:
        after.grant.released_at = now
    if end not in KEPT:  # nothing is learned of a path that it left
        circuits.leave(after)
    if after.grant.ports and not after.grant.installed_at:  # others may be given them
        after.grant.ports = []
        after.request = replace(after.request, flows=(), ports_at="")
    after.grant.earliest, after.grant.blocking = 0.0, []
    event = "refused" if end is TransitState.BEST_EFFORT else str(end)
    return [Change(transit, after, None, event)]


def transit_without_path(transit: Transit) -> Transit:
    """A transit as it is without what it holds."""
    after = transit.copy()
    circuits.leave(after)
    after.state = TransitState.QUEUED
    after.grant.lease_until = after.grant.expected_end = 0.0
    return after
