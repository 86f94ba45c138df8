"""From when packets left and came to delay, loss and jitter, and how far this machine's clock may
be off.

The kernel is asked about the clock, which is never changed. Whatever keeps the clock (chrony, ntpd,
systemd-timesyncd) tells the kernel how far it may be off, and the kernel lets that grow while
nobody says otherwise: adjtimex(2).
"""

from __future__ import annotations

import ctypes
import math
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from monitors.measurements.probes.probe import Reading, reading

_NS = 1e9

_STA_UNSYNC = 0x40
_TIME_ERROR = 5
_JUMP_S = 1e-3  # set by less than this, a clock was adjusted, not set


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


def one_way(trips: Sequence[Trip], clock_error_s: float) -> Reading:
    """The median delay there, where both clocks together are off by at most ``error_s``."""
    one_way_s = sorted((trip.there - trip.sent) / _NS for trip in trips)
    back = sorted((trip.back - trip.returned) / _NS for trip in trips)
    return reading(
        "one_way_delay",
        statistics.median(one_way_s),
        error_s=clock_error_s,
        back_s=statistics.median(back),
        **_summary(one_way_s),
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


class _Timex(ctypes.Structure):
    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_byte * 512),  # more than any architecture's
    )


def clock_error_s() -> float:
    """The most that the wall clock is off by, in seconds; infinite where nobody keeps it."""
    timex = _Timex()  # modes 0: only asks
    try:
        state = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(timex))
    except AttributeError:
        return math.inf
    return known_clock_error_s(state, timex.status, timex.maxerror)


def known_clock_error_s(state: int, status: int, maxerror_us: int) -> float:
    """The same from what adjtimex(2) answers."""
    if state < 0 or state == _TIME_ERROR or status & _STA_UNSYNC or maxerror_us < 0:
        return math.inf
    return maxerror_us / 1e6


class UnsetClock:
    """Whether the wall clock was set since this was made."""

    def __init__(self) -> None:
        self._ahead_s = self._now_ahead_s()

    def holds(self) -> bool:
        """Whether nobody set it."""
        return abs(self._now_ahead_s() - self._ahead_s) < _JUMP_S

    @staticmethod
    def _now_ahead_s() -> float:
        # The nearest pair of several: who is stopped between the two must not see a jump.
        readings = []
        for _ in range(5):
            before = time.monotonic_ns()
            wall = time.time_ns()
            after = time.monotonic_ns()
            readings.append((after - before, wall - (before + after) / 2))
        return min(readings)[1] / 1e9
