"""What transfers of different sizes tell apart: T = files · set-up + bytes / rate (thesis, T_n).

A transfer of 600 kB that takes 4 s over a path of 200 Mb/s has shaken hands for 4 s. Taken for a
rate it would make the path 1.2 Mb/s slow. A line through many transfers separates both, and one
through the medians of slopes (Theil 1950, Sen 1968) is not led astray by a few slow ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from monitors.archive.estimates import WINDOW, weighted, weighted_median, weights
from network_provisioner.base.units import BITS_PER_BYTE

_LEAST = 4  # transfers, below which a line says nothing
_APART = 2.0  # the largest is so many times the smallest at least
_LEAST_PART = 1e-3  # of its time a transfer spends on its bytes, whatever the line says


@dataclass(frozen=True, slots=True)
class Moved:
    """One file between two sites: how much in how long; of files that one job moved, their mean."""

    n_bytes: float
    seconds: float


@dataclass(frozen=True, slots=True)
class TransferTimes:
    """``setup_s`` of each file, and the ``rate_bps`` at which its bytes then move; ``spread``
    of what transfers took about this line, relative to what it says."""

    setup_s: float
    rate_bps: float
    spread: float


def transfer_times(newest_first: Sequence[Moved]) -> TransferTimes | None:
    """The line through transfers, the newest of which weigh most. None where they are too few or
    too much alike to tell set-up from rate."""
    moved = newest_first[:WINDOW]
    sizes = [one.n_bytes for one in moved]
    if len(moved) < _LEAST or min(sizes) <= 0 or max(sizes) < _APART * min(sizes):
        return None
    shares = weights(0, len(moved))
    slopes, weight = [], []
    for (a, share), (b, other) in combinations(zip(moved, shares, strict=True), 2):
        apart = abs(a.n_bytes - b.n_bytes)
        if apart > 0:
            slopes.append((a.seconds - b.seconds) / (a.n_bytes - b.n_bytes))
            weight.append(share * other * apart)
    per_byte = weighted_median(slopes, weight)
    # Where larger ones took no longer, all that is known is that bytes hardly count.
    quickest = weighted_median([one.seconds / one.n_bytes for one in moved], shares)
    per_byte = max(per_byte, _LEAST_PART * quickest)
    setup_s, _ = weighted([one.seconds - per_byte * one.n_bytes for one in moved], shares)
    setup_s = max(0.0, setup_s)
    expected = [setup_s + per_byte * one.n_bytes for one in moved]
    off = [one.seconds / said for one, said in zip(moved, expected, strict=True)]
    return TransferTimes(setup_s, BITS_PER_BYTE / per_byte, weighted(off, shares)[1])
