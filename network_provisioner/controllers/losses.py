"""Packets that enter a path and never leave it, told by the counters of its rules. Pure.

Every switch of a path counts the packets of a circuit by a rule of its own. Where one counts again
and again and the next one counts nothing, what is between them swallows packets. Once says nothing,
for a packet may be lost or on its way; nor does a moment, for switches count late; nor one circuit
where another one comes through: its packets may be such as a router refuses.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass
from itertools import pairwise

AGAIN = 2
"""How often more must be sent while nothing comes: TCP tries again after 0.3, 0.9 and 2 s."""


@dataclass(slots=True)
class _Segment:
    """From one switch to the next: what both have counted, how often the first one counted more
    since the second one did, and when for the first time."""

    sent: int
    came: int
    again: int = 0
    since: float = 0.0


class Losses:
    """Compares readings of the counters along paths. ``patience_s`` is how much later than the
    first switch the last one may count."""

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._segments: dict[Hashable, list[_Segment]] = {}
        self._came_at: dict[tuple[str, str], float] = {}

    def observe(
        self,
        circuit: Hashable,
        switches: Sequence[str],
        counts: Sequence[int],
        now: float,
        delay_s: float = 0.0,
    ) -> int | None:
        """Take in the bytes that each of the switches along a circuit's path has counted; the
        number of the switch whose packets do not reach the next, None where all is well as far as
        can be told. ``delay_s`` is how long packets are on their way."""
        known = self._segments.setdefault(circuit, [])
        if len(known) != len(counts) - 1:
            known[:] = [_Segment(a, b) for a, b in pairwise(counts)]
            return None
        late_s = self._patience_s + delay_s
        for number, segment in enumerate(known):
            sent, came = counts[number], counts[number + 1]
            between = switches[number], switches[number + 1]
            if came != segment.came or sent < segment.sent:  # a counter may have begun anew
                known[number] = _Segment(sent, came)
                self._came_at[between] = now
                continue
            if sent > segment.sent:
                segment.sent, segment.again = sent, segment.again + 1
                segment.since = segment.since if segment.again > 1 else now
            since = max(segment.since, self._came_at.get(between, segment.since))
            if segment.again >= AGAIN and now - since >= late_s:
                return number
        return None

    def doubtful(self, circuit: Hashable) -> bool:
        """Whether more was sent than came."""
        return any(one.again for one in self._segments.get(circuit, ()))

    def retain(self, circuits: Collection[Hashable]) -> None:
        """Forget all others."""
        self._segments = {name: known for name, known in self._segments.items() if name in circuits}
