"""From what size on a circuit of its own pays for one transfer. Pure.

A circuit of ``c`` b/s that takes ``s`` seconds to set up moves S bytes sooner than best effort at
``b`` b/s where

    s + 8·S/c  <  8·S/b      that is, from S = s / (8/b - 8/c) on

Most transfers are smaller than that: the median data set of Globus has 6.3 MB.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from statistics import median

from network_provisioner.base.units import format_rate, format_size, transfer_time

HOOK_S = 0.1
"""What asking and giving back cost whoever runs the transfer: two short processes and two calls."""

UNKNOWN_PART = 0.5
"""Of a circuit's rate, what best effort is taken to reach where nobody has measured it."""

MOST_PART = 10.0
"""A transfer whose circuit is in use this many times as long as it takes to set up is never small.
What best effort reached lately is no promise: a guarantee is worth a tenth of the time."""

REMEMBERED = 32


@dataclass(frozen=True, slots=True)
class BreakEven:
    """``setup_s`` seconds until a circuit of ``circuit_bps`` is there, against ``best_effort_bps``
    at once; None where that was not measured."""

    setup_s: float
    circuit_bps: float
    best_effort_bps: float | None = None

    @property
    def size_bytes(self) -> float:
        """The smallest transfer that a circuit pays for; above 0."""
        slow = self._best_effort_bps
        most = largest_small(self.setup_s, self.circuit_bps)
        if slow >= self.circuit_bps:
            return most
        saved = 8 / slow - 8 / self.circuit_bps  # seconds per byte
        return min(self.setup_s / saved, most) if saved > 0 else most

    def pays(self, size_bytes: int) -> bool:
        """Whether a circuit pays for so many bytes."""
        return size_bytes >= self.size_bytes

    def explanation(self, size_bytes: int) -> str:
        """Why it does or does not, with the figures."""
        known = "measured" if self.best_effort_bps is not None else "taken for best effort"
        side = "reaches" if self.pays(size_bytes) else "is below"
        return (
            f"{format_size(size_bytes)} {side} {format_size(math.ceil(self.size_bytes))}, from "
            f"where on a circuit pays off: {_seconds(self.setup_s)} of set-up and "
            f"{_seconds(transfer_time(size_bytes, self.circuit_bps))} at "
            f"{format_rate(self.circuit_bps)}, against "
            f"{_seconds(transfer_time(size_bytes, self._best_effort_bps))} at "
            f"{format_rate(self._best_effort_bps)} ({known})"
        )

    @property
    def _best_effort_bps(self) -> float:
        if self.best_effort_bps is not None and self.best_effort_bps > 0:
            return self.best_effort_bps
        return self.circuit_bps * UNKNOWN_PART


def largest_small(setup_s: float, circuit_bps: float) -> float:
    """No transfer of so many bytes or more is small, however fast best effort is."""
    return MOST_PART * setup_s * circuit_bps / 8


class SetupTimes:
    """How long circuits took from request to the switches' word, of the latest few."""

    def __init__(self) -> None:
        self._latest: deque[float] = deque(maxlen=REMEMBERED)

    def note(self, seconds: float) -> None:
        """One was installed."""
        self._latest.append(max(0.0, seconds))

    def setup_s(self) -> float:
        """Seconds until a transfer can use a circuit that it asks for now."""
        return HOOK_S + (median(self._latest) if self._latest else 0.0)


def _seconds(seconds: float) -> str:
    return f"{seconds:.3g} s"
