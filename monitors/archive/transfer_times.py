"""What transfers of different sizes tell apart: T = set-up + files · start + bytes / rate (thesis,
T_n).

A transfer of 600 kB that takes 4 s over a path of 200 Mb/s has shaken hands for 4 s. Taken for a
rate it would make the path 1.2 Mb/s slow. A plane through many transfers separates them, and one
with the least sum of deviations (not of their squares) is not led astray by a few slow ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from monitors.base.estimates import WINDOW, weighted, weighted_median, weights
from network_provisioner.base.units import BITS_PER_BYTE

_LEAST = 2  # transfers that a line is drawn through
_APART = 2.0  # the largest is so many times the smallest at least
_LEAST_PART = 1e-3  # of its time a transfer spends on its bytes, whatever the line says
_TURNS, _NEAR = 30, 1e-4
_BETTER = 0.9  # so much less of deviation is worth another term
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Moved:
    """One transfer between two sites: how much in how long, in how many files."""

    n_bytes: float
    seconds: float
    files: float = 1.0


@dataclass(frozen=True, slots=True)
class TransferTimes:
    """``setup_s`` of each transfer with its first file, ``start_s`` of each further file, and the
    ``rate_bps`` at which bytes then move; ``spread`` of what transfers took about this, relative to
    what it says."""

    setup_s: float
    start_s: float
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
    setup_s, start_s, per_byte = _plane(moved, shares)
    off = [
        one.seconds / (setup_s + start_s * (one.files - 1) + per_byte * one.n_bytes)
        for one in moved
    ]
    return TransferTimes(setup_s, start_s, BITS_PER_BYTE / per_byte, weighted(off, shares)[1])


def _plane(moved: Sequence[Moved], shares: Sequence[float]) -> tuple[float, float, float]:
    """Seconds of each transfer, of each further file and of each byte, none below zero; of files
    only where that explains more."""
    table = np.array([[1.0, one.files - 1, one.n_bytes] for one in moved])
    seconds, weight = np.array([one.seconds for one in moved]), np.array(shares)
    scale = np.where(table.max(axis=0) > 0, table.max(axis=0), 1.0)
    table /= scale
    best, least = None, math.inf
    for columns in ([0, 2], [0, 1, 2], [1, 2]):
        found = _least_deviations(table[:, columns], seconds, weight)
        off = float(weight @ np.abs(seconds - table[:, columns] @ found))
        if found.min() >= 0 and found[-1] > 0 and off < _BETTER * least:
            best, least = dict(zip(columns, found / scale[columns], strict=True)), off
    # Where larger ones took no longer, all that is known is that bytes hardly count.
    quickest = weighted_median([one.seconds / one.n_bytes for one in moved], shares)
    per_byte = max(_LEAST_PART * quickest, 0.0 if best is None else float(best[2]))
    if best is None:
        rest = [one.seconds - per_byte * one.n_bytes for one in moved]
        return max(0.0, weighted_median(rest, shares)), 0.0, per_byte
    return float(best.get(0, 0.0)), float(best.get(1, 0.0)), per_byte


def _least_deviations(table: Floats, seconds: Floats, weight: Floats) -> Floats:
    """By least squares in turns, each weighing what is far off the less."""
    found: Floats = np.zeros(table.shape[1])
    each = weight
    for _ in range(_TURNS):
        root = np.sqrt(each)
        found = np.asarray(np.linalg.lstsq(table * root[:, None], seconds * root, rcond=None)[0])
        off = np.abs(seconds - table @ found)
        each = weight / np.maximum(off, _NEAR * float(np.median(seconds)))
    return found
