"""Outages of one series: measurements that are missing, or that say that nothing gets through; and
how often it is measured, without which none can be missing."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import replace
from statistics import median

from monitors.alerts.anomalies.model import Anomaly, Sensitivity
from monitors.alerts.anomalies.words import why_dead, why_missing

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


class Outages:
    """Tells when one begins, once, and when it is over."""

    def __init__(self, metric: str, subject: str, sensitivity: Sensitivity, rhythm: Rhythm) -> None:
        """``rhythm`` is the series's own; it learns of a measurement after :meth:`add`."""
        self._metric, self._subject = metric, subject
        self._after = sensitivity.outage_after
        self._rhythm = rhythm
        self._open: Anomaly | None = None
        self._dead_since: float | None = None
        self._dead = 0

    def add(self, at: float, alive: bool, before: float) -> list[Anomaly]:
        """A measurement, and whether anything got through. ``before``: the level until then."""
        found = self.tick(at, before)
        if not alive:
            self._dead += 1
            if self._dead_since is None:
                self._dead_since = at
            if self._open is None and self._dead >= self._after:
                why = why_dead(self._metric, self._dead)
                found.append(self._begin(self._dead_since, at, before, why))
            return found
        self._dead, self._dead_since = 0, None
        if self._open is not None:
            found.append(replace(self._open, until=at))
            self._open = None
        return found

    def tick(self, now: float, before: float, awake: float = -math.inf) -> list[Anomaly]:
        """Time passed without a measurement; ``awake``: see :meth:`Rhythm.missing`."""
        if self._open is not None or not self._rhythm.missing(now, self._after, awake):
            return []
        last, period_s = self._rhythm.last, self._rhythm.period_s
        assert last is not None
        assert period_s is not None
        return [self._begin(last, now, before, why_missing(self._metric, period_s, self._after))]

    def _begin(self, since: float, now: float, before: float, why: str) -> Anomaly:
        self._open = Anomaly(
            self._metric, self._subject, "outage", since, now, before, None, -1.0, 1.0, why
        )
        return self._open
