"""What a transit may have instead of what it holds: looked for with its own reservation out of the
way, which is there again afterwards. Not thread-safe: the broker's turn is around every call."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from network_provisioner.decisions.admission import Grant, Never, Wait
from network_provisioner.decisions.lanes import Reservation
from network_provisioner.model import Transit
from network_provisioner.terms import template_of

if TYPE_CHECKING:
    from network_provisioner.engine import Engine


def decide(
    engine: Engine, transit: Transit, wish: Transit, now: float
) -> Grant | Wait | Never | None:
    """What ``wish`` may have where the transit gives up what it holds; None where its packets
    cannot be told apart from those of others on several paths, or its template is gone."""
    template = template_of(transit, engine.templates)
    ways = engine.roster.pairs.ways(transit)
    if template is None or len(ways) > 1:
        return None
    pinned = engine.admission.topology.path(next(iter(ways))) if ways else None
    known, claims = engine.roster.all, engine.roster.waitlist.claims_before(transit, now)
    before = {
        # Those who came later, and may wait for just what this one gives up, do not keep it there.
        hop: [c for c in found if _is_before(known[c.id], wish)]
        for hop, found in claims.items()
    }
    with without(engine, transit):
        return engine.admission.decide(
            wish, template, now, pinned, before, None, engine.dispatch.multipath
        )


def _is_before(other: Transit, wish: Transit) -> bool:
    """Whether one that waits has asked before ``wish`` did, or is of higher priority."""
    if other.id == wish.id:
        return False
    return other.priority > wish.priority or other.requested_at < wish.requested_at


@contextmanager
def without(engine: Engine, transit: Transit) -> Iterator[Reservation | None]:
    """The ledger without what a transit holds, for as long as the block lasts."""
    held = engine.ledger.release(transit.id)
    try:
        yield held
    finally:
        if held is not None:
            engine.ledger.admit(held)


def free_until(engine: Engine, held: Reservation, most: float) -> float:
    """How long beyond its end, and up to ``most``, the lanes of a reservation are free."""
    until = max(most, held.end)
    for hop, rate in held.rates().items():
        begins = (begin for begin, _ in engine.ledger.busy(hop, rate, held.end) if begin < until)
        until = max(held.end, min(begins, default=until))
    return until
