"""What a workflow will ask of the network between each pair of sites, over time. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from network_provisioner.base.units import bits
from pegasus_hooks.advance.predict import Pair, Window


@dataclass(frozen=True, slots=True)
class Stretch:
    """From ``start`` to ``end`` (Unix seconds) the same ``transfers`` go on between two sites and
    move so many bytes; ``rate_bps`` is what they need to end when they are believed to."""

    pair: Pair
    start: float
    end: float
    transfers: int
    size_bytes: float

    @property
    def rate_bps(self) -> float:
        """Bits per second on average."""
        return bits(self.size_bytes) / (self.end - self.start)


def demand(windows: Iterable[Window]) -> list[Stretch]:
    """The demand as steps, pair by pair, each in order of time. Bytes are spread evenly over a
    transfer's time."""
    of: dict[Pair, list[Window]] = {}
    for window in windows:
        if window.end > window.start:
            of.setdefault(window.pair, []).append(window)
    return [stretch for pair in sorted(of) for stretch in _steps(pair, of[pair])]


def _steps(pair: Pair, windows: list[Window]) -> list[Stretch]:
    instants = sorted({at for w in windows for at in (w.start, w.end)})
    found = []
    for start, end in pairwise(instants):
        there = [w for w in windows if w.start <= start and end <= w.end]
        if there:
            size = sum(w.size_bytes * (end - start) / (w.end - w.start) for w in there)
            found.append(Stretch(pair, start, end, len(there), size))
    return found
