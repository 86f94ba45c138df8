"""Packets that enter a path and never leave it, told by the counters of its rules. Pure.

Every switch of a path counts the packets of a circuit by a rule of its own. Where one counts again
and again and the next one counts nothing, what is between them swallows packets. Once says nothing,
for a packet may be lost or on its way; nor does a moment, for switches count late; nor one circuit
where another one comes through: its packets may be such as a router refuses.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

GroupPath = tuple[str, tuple[str, ...]]
"""A circuit here: the key of a group, and its path."""

BEST_EFFORT = ""
"""The key of what has no circuit. It only tells what comes through: nobody answers for it."""

Segment = tuple[str, ...]
"""A part of a path, from a switch to the next switch."""

AGAIN = 2
"""How often more must be sent while nothing comes: TCP tries again after 0.3, 0.9 and 2 s."""

_CHANCE = 3  # after so many times as long as switches may be late, what was lost is forgotten


@dataclass(slots=True)
class _Counted:
    """What both switches of a segment have counted, how often the first one counted more
    since the second one did, and when for the first and the last time."""

    sent: int
    came: int
    again: int = 0
    since: float = 0.0
    last: float = -math.inf


@dataclass(slots=True)
class _Circuit:
    """What was read of a circuit, when, and whether more had come somewhere."""

    segments: list[_Counted]
    read_at: float
    came: bool = False


class Losses:
    """Compares readings of the counters along paths. ``patience_s`` is how much later than the
    first switch the last one may count."""

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._known: dict[GroupPath, _Circuit] = {}
        self._came_at: dict[Segment, float] = {}
        self._turn = 0
        self.doubtful: dict[GroupPath, None] = {}
        """Circuits of which more was sent than came."""

    def observe(
        self,
        circuit: GroupPath,
        path: Sequence[Segment],
        counts: Sequence[int],
        now: float,
        delay_s: float = 0.0,
    ) -> Segment | None:
        """Take in the bytes that each of the switches along a circuit's path has counted; the
        segment that swallows packets, None where all is well as far as can be told. ``delay_s`` is
        how long packets are on their way."""
        known = self._known.get(circuit)
        if known is None:
            self._known[circuit] = _Circuit([_Counted(*both) for both in pairwise(counts)], now)
            return None
        late_s = self._patience_s + delay_s
        lately = now - known.read_at <= late_s
        known.read_at, known.came = now, False
        swallows = None
        for number, (segment, counted) in enumerate(zip(path, known.segments, strict=True)):
            sent, came = counts[number], counts[number + 1]
            if came != counted.came or sent < counted.sent:  # a counter may have begun anew
                known.segments[number] = _Counted(sent, came)
                if came > counted.came:
                    known.came = True
                    if lately:  # else nobody knows when it came
                        self._came_at[segment] = now
                continue
            if now - counted.last > _CHANCE * late_s:
                counted.again = 0
            if sent > counted.sent:
                counted.sent, counted.again, counted.last = sent, counted.again + 1, now
                counted.since = counted.since if counted.again > 1 else now
            since = max(counted.since, self._came_at.get(segment, counted.since))
            # The next switch may count what was sent last a little later.
            settled = counted.again > AGAIN or (counted.again == AGAIN and now > counted.last)
            if swallows is None and settled and now - since >= late_s:
                swallows = segment
        if circuit[0] == BEST_EFFORT:
            return None
        if any(counted.again for counted in known.segments):
            self.doubtful[circuit] = None
        else:
            self.doubtful.pop(circuit, None)
        return swallows

    def due(self, paths: Mapping[GroupPath, Sequence[Segment]], most: int) -> list[GroupPath]:
        """Which circuits to read next, of these with the segments of their paths: a third of them
        doubtful ones, of many paths and always the same, half such as share a segment with these,
        and the rest in turn."""
        alike: Counter[tuple[str, ...]] = Counter()
        ranks = {}
        for circuit in self.doubtful:
            ranks[circuit] = alike[circuit[1]]
            alike[circuit[1]] += 1
        first = heapq.nsmallest(most // 3, ranks, key=ranks.__getitem__)
        if first:
            doubted = {segment for circuit in first for segment in paths[circuit]}
            beside = (
                circuit
                for circuit, path in paths.items()
                if circuit not in self.doubtful and not doubted.isdisjoint(path)
            )
            first += heapq.nlargest(most // 2, beside, key=self._may_tell)
        every = [circuit for circuit in paths if circuit[0] != BEST_EFFORT]
        room = most - len(first)
        start = self._turn % max(1, len(every))
        self._turn = start + room
        return list(dict.fromkeys(first + (every[start:] + every[:start])[:room]))

    def _may_tell(self, circuit: GroupPath) -> tuple[bool, float]:
        """First those of which more came, as they were read last; then the longest unread."""
        known = self._known.get(circuit)
        if known is None:
            return False, math.inf
        return known.came, known.read_at if known.came else -known.read_at

    def retain(self, circuits: Iterable[GroupPath]) -> None:
        """Forget all others."""
        kept = set(circuits)
        self._known = {name: known for name, known in self._known.items() if name in kept}
        self.doubtful = {name: None for name in self.doubtful if name in kept}
