"""From when packets left and came to delay, loss and jitter. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from monitors.measurements.probes.probe import Reading, reading

_NS = 1e9


@dataclass(frozen=True, slots=True)
class Trip:
    """One packet there and back; nanoseconds by each end's own wall clock.

    ``sent`` and ``back`` are ours, ``there`` and ``returned`` the other end's (0 where it is
    nobody's agent). ``steady`` is how long it was away by a clock that nobody sets.
    """

    number: int
    sent: int
    back: int
    steady: int
    there: int = 0
    returned: int = 0

    def rtt_s(self, trusted: bool) -> float:
        """Round trip without the time at the other end. ``trusted``: the wall clock was not set
        meanwhile; the kernel's stamps of arrivals go by it, so they count then alone."""
        away = self.back - self.sent if trusted and self.back > self.sent else self.steady
        stay = self.returned - self.there
        return (away - stay if 0 <= stay <= away else away) / _NS


def rtt(trips: Sequence[Trip], trusted: bool = True) -> Reading:
    """The median, with what else describes them. ``trips``: one at least."""
    times = sorted(trip.rtt_s(trusted) for trip in trips)
    return reading("rtt", statistics.median(times), **_summary(times))


def loss(sent: int, came: int, **details: Any) -> Reading:
    """Which part did not come."""
    return reading("loss", min(1.0, max(0.0, 1 - came / sent)), sent=sent, came=came, **details)


def jitter(trips: Sequence[Trip]) -> Reading | None:
    """Mean change of the one-way delay from one packet to the next (RFC 3393's ipdv, absolute).

    The clocks' difference falls out. None for fewer than two packets in a row.
    """
    by_number = {trip.number: trip.there - trip.sent for trip in trips}
    changes = [
        abs(delay - by_number[number - 1])
        for number, delay in by_number.items()
        if number - 1 in by_number
    ]
    if not changes:
        return None
    return reading("jitter", statistics.fmean(changes) / _NS, count=len(changes))


def one_way(trips: Sequence[Trip], error_s: float) -> Reading:
    """The median delay there, where both clocks together are off by at most ``error_s``."""
    there = sorted((trip.there - trip.sent) / _NS for trip in trips)
    back = sorted((trip.back - trip.returned) / _NS for trip in trips)
    return reading(
        "one_way_delay",
        statistics.median(there),
        error_s=error_s,
        back_s=statistics.median(back),
        **_summary(there),
    )


def _summary(times: Sequence[float]) -> dict[str, float]:
    return {
        "count": len(times),
        "min_s": times[0],
        "mean_s": statistics.fmean(times),
        "p95_s": times[min(len(times) - 1, int(0.95 * len(times)))],
        "max_s": times[-1],
        "spread_s": statistics.pstdev(times),
    }
