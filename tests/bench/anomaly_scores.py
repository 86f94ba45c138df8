"""How good a detector is on paths with known anomalies (:mod:`tests.anomaly_paths`).

A detector is a function from a path to alarms: when somebody was told. An alarm belongs to an event
when it comes after the event's start (a sample earlier at most) and within 6 h or 24 samples of
it, whichever is longer. Each event takes one alarm. Every other alarm is false, be it a second one
about the same event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from tests.bench.anomaly_paths import DAY_S, DAYS, Event, Path

Alarms = Callable[[Path], Sequence[float]]
MONTH_DAYS = 30.0


def limit_s(path: Path) -> float:
    """Within which time somebody must be told."""
    return max(6 * 3600.0, 24 * path.period_s)


@dataclass
class Score:
    """``told`` of ``events``, each after a time (seconds and samples); ``false`` alarms in
    ``months`` of paths."""

    events: int = 0
    told: int = 0
    false: int = 0
    months: float = 0.0
    delays_s: list[float] = field(default_factory=list)
    missed: list[tuple[Path, Event]] = field(default_factory=list)

    @property
    def recall(self) -> float:
        return self.told / self.events if self.events else 1.0

    @property
    def false_per_month(self) -> float:
        return self.false / self.months

    def count(self, path: Path, alarms: Sequence[float]) -> list[Event | None]:
        """One path's alarms; which event each belongs to."""
        self.months += DAYS * DAY_S / (MONTH_DAYS * DAY_S)
        self.events += len(path.events)
        open_events = list(path.events)
        belongs: list[Event | None] = []
        for alarm in sorted(alarms):
            event = next((e for e in open_events if _belongs(path, e, alarm)), None)
            belongs.append(event)
            if event is None:
                self.false += 1
                continue
            open_events.remove(event)
            self.told += 1
            self.delays_s.append(max(0.0, alarm - event.start))
        self.missed += [(path, event) for event in open_events]
        return belongs


def _belongs(path: Path, event: Event, alarm: float) -> bool:
    return event.start - path.period_s <= alarm <= event.start + limit_s(path)


def score(detector: Alarms, paths: Iterable[Path]) -> Score:
    """A detector's score on all of them."""
    total = Score()
    for path in paths:
        total.count(path, detector(path))
    return total
