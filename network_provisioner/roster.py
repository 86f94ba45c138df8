"""Who waits and who holds, in memory: the queue's order, pairs of sites, deadlines. No effects."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping

from network_provisioner.model import LIVE, Transit, TransitState
from network_provisioner.reservations import Hop
from network_provisioner.template import Template


class Roster:
    """All queued, held and installed transits. Not thread-safe."""

    def __init__(self, templates: Mapping[str, Template]) -> None:
        self.all: dict[str, Transit] = {}  # oldest first
        self._templates = templates
        self._pairs: dict[frozenset[str], list[Transit]] = {}  # live transits of a pair of sites
        self._blocking: dict[str, frozenset[Hop]] = {}  # of each queued one: links it waits for
        self._deadlines: list[tuple[float, str]] = []  # heap of ends; entries may be outdated

    def enter(self, transit: Transit) -> None:
        """Add a transit, or take note that a queued one holds now or a live one ends later."""
        self.all[transit.id] = transit
        if transit.state in LIVE:
            self._blocking.pop(transit.id, None)
            pair = self._pairs.setdefault(_pair(transit), [])
            if all(other is not transit for other in pair):
                pair.append(transit)
        heapq.heappush(self._deadlines, (self._deadline(transit), transit.id))

    def leave(self, transit: Transit) -> None:
        """Forget a transit, if it is known."""
        self.all.pop(transit.id, None)
        self._blocking.pop(transit.id, None)
        left = [t for t in self._pairs.pop(_pair(transit), ()) if t.id != transit.id]
        if left:
            self._pairs[_pair(transit)] = left

    def pinned(self, transit: Transit) -> list[str]:
        """The nodes, from its own source, of the path that live transits between the same two sites
        hold, in either direction; none where there are no others."""
        others = self._pairs.get(_pair(transit))
        if not others:
            return []
        return others[0].path if others[0].src == transit.src else others[0].path[::-1]

    def queue(self) -> list[Transit]:
        """Who waits, in the order they will be served: highest priority first, then oldest."""
        waiting = [t for t in self.all.values() if t.state is TransitState.QUEUED]
        return sorted(waiting, key=lambda t: -self._priority(t))

    def waits_for(self, transit: Transit, links: frozenset[Hop]) -> None:
        """Note the links that a queued transit lacks room on."""
        self._blocking[transit.id] = links

    def claims_of(self, transit: Transit) -> dict[Hop, str]:
        """The links that a queued transit waits for. Nobody behind it may take what would let it
        start, or it could wait for ever."""
        return dict.fromkeys(self._blocking.get(transit.id, ()), transit.id)

    def claims_before(self, transit: Transit) -> dict[Hop, str]:
        """What all those claim that a new transit would stand behind."""
        claims: dict[Hop, str] = {}
        for other in self.queue():
            if self._priority(other) >= self._priority(transit):
                claims.update(self.claims_of(other))
        return claims

    def due(self, now: float) -> Iterator[Transit]:
        """Transits whose lease or patience has ended; each is taken out of the roster by whoever
        asked, before the next."""
        while self._deadlines and self._deadlines[0][0] <= now:
            _, transit_id = heapq.heappop(self._deadlines)
            transit = self.all.get(transit_id)
            # One that was renewed, or went from queued to live, has a later entry in the heap.
            if transit is not None and self._deadline(transit) <= now:
                yield transit

    def _deadline(self, transit: Transit) -> float:
        if transit.state in LIVE:
            return transit.lease_until
        template = self._templates.get(transit.template)
        return transit.requested_at + (template.patience_s if template else 0.0)

    def _priority(self, transit: Transit) -> int:
        template = self._templates.get(transit.template)
        return template.priority if template else 0


def _pair(transit: Transit) -> frozenset[str]:
    return frozenset((transit.src, transit.dst))
