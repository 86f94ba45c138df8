"""Packets that enter a path and never leave it, told by the counters of its rules. Pure.

Every switch of a path counts the packets of a circuit by a rule of its own. Where one goes on
counting and the next one counts nothing, what is between them swallows packets. A few packets say
nothing, for they may be lost or on their way; nor does a moment, for switches count late.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass
from itertools import pairwise

MIN_BYTES = 10_000  # TCP's first window is as large: RFC 6928


@dataclass(slots=True)
class _Segment:
    """From one switch to the next: what both had counted when as much had come as was sent, and
    since when more is sent and nothing comes, None for not at all."""

    sent: int
    came: int
    since: float | None = None


class Losses:
    """Compares readings of the counters along paths. ``patience_s`` is how much later than the
    first switch the last one may count."""

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._segments: dict[Hashable, list[_Segment]] = {}

    def observe(
        self, path: Hashable, counts: Sequence[int], now: float, delay_s: float = 0.0
    ) -> int | None:
        """Take in the bytes that each switch of a path has counted; the number of the switch
        whose packets do not reach the next, None where all is well as far as can be told.
        ``delay_s`` is how long packets are on their way."""
        known = self._segments.setdefault(path, [])
        if len(known) != len(counts) - 1:
            known[:] = [_Segment(a, b) for a, b in pairwise(counts)]
            return None
        for number, segment in enumerate(known):
            sent, came = counts[number], counts[number + 1]
            if came != segment.came or sent < segment.sent:  # a counter may have begun anew
                known[number] = _Segment(sent, came)
            elif sent - segment.sent >= MIN_BYTES:
                if segment.since is None:
                    segment.since = now
                elif now - segment.since >= self._patience_s + delay_s:
                    return number
        return None

    def doubtful(self, path: Hashable) -> bool:
        """Whether more was sent than came."""
        return any(one.since is not None for one in self._segments.get(path, ()))

    def retain(self, paths: Collection[Hashable]) -> None:
        """Forget all others."""
        self._segments = {path: known for path, known in self._segments.items() if path in paths}
