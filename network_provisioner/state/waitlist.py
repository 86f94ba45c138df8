"""The queue: who waits, in what order, for which links, and who may be able to start now.

A transit in the queue can start when room appears on a link that it lacked room on, or that
somebody before it in the queue claimed. Only then is it decided about again, and now and then
besides, for what no link tells (a measurement, a door that closed): so thousands may wait. No
effects, not thread-safe.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from network_provisioner.base.model import Transit
from network_provisioner.state.ledger import Ledger
from network_provisioner.topology.graph import Hop

LOOK_AGAIN_S = 5.0
LOOK_AGAIN_AT = 50  # so many, at most, each time the queue is served without news of their links


@dataclass(frozen=True, slots=True)
class Claim:
    """Somebody who waits will have ``rate_bps`` (infinite: all) of a link during [``start``,
    ``end``): ``start`` is its earliest as far as is known, else when it was to begin. ``likely`` is
    when the first that waits could begin if all that runs ended when it is expected to.

    ``lacks``: the link has no room for it now. ``brief_s``: how long it is expected to take.
    """

    id: str
    start: float
    end: float
    rate_bps: float = math.inf
    brief_s: float = math.inf
    lacks: bool = True
    likely: float = math.inf

    @property
    def comes(self) -> float:
        """When it is to be reckoned with."""
        return min(self.start, self.likely)


NO_CLAIM = Claim("", -math.inf, math.inf)
Claims = Mapping[Hop, Sequence[Claim]]
"""Whom a request must leave their rate on each directed link, while the times overlap."""


def crowded_claims(
    ledger: Ledger, hop: Hop, rate_bps: float, start: float, end: float, claims: Sequence[Claim]
) -> list[Claim]:
    """Who of those with claims on a link would not have its rate there, when it is to, and when it
    likely could, beside one more of ``rate_bps`` during [``start``, ``end``)."""
    here = [c for c in claims if c.rate_bps and c.comes < end and start < c.end]
    displaced = []
    for c in here:
        needed = rate_bps + sum(o.rate_bps for o in here if o.start < c.end and c.start < o.end)
        until = min(end, c.end)
        if ledger.likely_residual(hop, max(start, c.comes), until) < needed or (
            c.start < end and ledger.residual(hop, max(start, c.start), until) < needed
        ):
            displaced.append(c)
    return displaced


class Waitlist:
    """All queued transits. ``aging_s`` is the wait that counts as one step of priority, so that
    nobody waits for ever behind ever newer ones. Of equal rank, users take turns: the n-th transit
    of one comes after the first n - 1 of every other, so nobody waits behind all of somebody who
    asked for everything."""

    def __init__(self, aging_s: float) -> None:
        self._aging_s = aging_s
        self._waiting: dict[str, Transit] = {}  # oldest first
        self._rounds: dict[str, int] = {}  # of each that waits
        self._claims: dict[str, dict[Hop, Claim]] = {}  # of each: what it waits for
        self._looked_at: dict[str, float] = {}
        self._room: set[Hop] = set()  # where room has appeared since the queue was served
        self._more = LOOK_AGAIN_AT

    def __len__(self) -> int:
        return len(self._waiting)

    def enter(self, transit: Transit) -> None:
        """Add a transit, or take note that it has changed."""
        if transit.id not in self._rounds:
            self._rounds[transit.id] = self._round(transit)
        self._waiting[transit.id] = transit

    def leave(self, transit: Transit) -> None:
        """Forget a transit, if it is known: what it claimed is free to those behind it."""
        self._rounds.pop(transit.id, None)
        if self._waiting.pop(transit.id, None) is not None:
            self._room.update(self._claims.pop(transit.id, ()))
            self._looked_at.pop(transit.id, None)

    def in_order(self, now: float) -> list[Transit]:
        """Who waits, in the order they will be served: highest rank first, then users in turns,
        then oldest."""
        return sorted(self._waiting.values(), key=lambda t: self._order(t, now))

    def _order(self, transit: Transit, now: float) -> tuple[float, int]:
        return -self.rank(transit, now), self._round(transit)

    def _round(self, transit: Transit) -> int:
        """The turn of its user in which a transit is served, or would be if it waited."""
        known = self._rounds.get(transit.id)
        if known is not None:
            return known
        user = transit.request.user
        own = [self._rounds[i] for i, t in self._waiting.items() if t.request.user == user]
        return max([min(self._rounds.values(), default=0), *(number + 1 for number in own)])

    def rank(self, transit: Transit, now: float) -> float:
        """The priority of a transit, and one more for each ``aging_s`` that it has waited."""
        waited = max(0.0, now - max(transit.request.requested_at, transit.request.start))
        return transit.request.priority + waited // self._aging_s

    def waits_for(self, transit: Transit, claims: dict[Hop, Claim], now: float) -> None:
        """Note what a queued transit waits for, on each link. Nobody behind it may take what would
        let it start by then, or it could wait for ever."""
        self._claims[transit.id] = claims
        self._looked_at[transit.id] = now

    def ask_again(self, transit: Transit) -> None:
        """A queued transit wants something else than what it was to wait for."""
        self._room.update(self._claims.pop(transit.id, ()))

    def claims_of(self, transit: Transit) -> dict[Hop, Claim]:
        """What a queued transit waits for."""
        return self._claims.get(transit.id, {})

    def claims_before(self, transit: Transit, now: float) -> dict[Hop, list[Claim]]:
        """What all those claim that a new transit would stand behind."""
        claims: dict[Hop, list[Claim]] = {}
        if self._claims:
            order = self._order(transit, now)
            for other in self._waiting.values():
                if self._order(other, now) <= order:
                    for hop, claim in self.claims_of(other).items():
                        claims.setdefault(hop, []).append(claim)
        return claims

    # -- serving it --------------------------------------------------------------------------

    def room_on(self, hops: Iterable[Hop]) -> None:
        """Room has appeared on these links."""
        if self._waiting:
            self._room.update(hops)

    def room_between(self, a: str, b: str) -> None:
        """A transit between two sites has let go of its path: those that wait there may not be
        bound to it any more, and what they were waiting for on it says nothing."""
        for transit in self._waiting.values():
            if {transit.request.src, transit.request.dst} == {a, b}:
                self._claims.pop(transit.id, None)

    def unsettle(self) -> None:
        """All are to be asked about again: what they were waiting for may be at other times."""
        self._claims.clear()
        self._looked_at.clear()

    def is_due(self, transit: Transit, now: float) -> bool:
        """Whether a queued transit should be decided about again."""
        claims = self._claims.get(transit.id)
        if claims is None or not self._room.isdisjoint(claims):
            return True
        if self._more > 0 and now - self._looked_at[transit.id] >= LOOK_AGAIN_S:
            self._more -= 1
            return True
        return False

    def end_pass(self) -> None:
        """All have been asked about."""
        self._room.clear()
        self._more = LOOK_AGAIN_AT
