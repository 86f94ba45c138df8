"""How often a series is measured, and whether it is missing."""

from __future__ import annotations

import math
from collections import deque
from statistics import median

_GAPS = 33
_LEAST = 8
_REGULAR = 0.75  # so many of the gaps must be about the usual one


class Rhythm:
    """Learns the period from the times between measurements.

    Transfers come when they come; only what is measured regularly can be missing.
    """

    def __init__(self) -> None:
        self._gaps: deque[float] = deque(maxlen=_GAPS)
        self._news = 0
        self.last: float | None = None
        self.period_s: float | None = None
        """Usual seconds between two measurements, None where not yet known."""
        self.regular = False
        """Whether it is kept."""

    def add(self, at: float) -> None:
        """A measurement at ``at``, not before the last one."""
        if self.last is not None and at > self.last:
            self._gaps.append(at - self.last)
            self._news += 1
            if len(self._gaps) >= _LEAST and (self.period_s is None or self._news >= _LEAST):
                self._news = 0
                self._learn()
        self.last = at

    def missing(self, now: float, after: int, awake: float = -math.inf) -> bool:
        """Whether at ``now`` more than ``after`` measurements in a row are missing. ``awake``: what
        should have come before could not be taken, and says nothing."""
        if self.last is None or self.period_s is None or not self.regular:
            return False
        return now - max(self.last, awake) > (after + 1) * self.period_s

    def _learn(self) -> None:
        usual = median(self._gaps)
        near = sum(1 for gap in self._gaps if 0.5 * usual <= gap <= 1.5 * usual)
        self.period_s = usual
        self.regular = near >= _REGULAR * len(self._gaps)
