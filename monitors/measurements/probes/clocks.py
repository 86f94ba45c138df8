"""How well this machine's clock is known to be right: asked of the kernel, never changed.

Whatever keeps the clock (chrony, ntpd, systemd-timesyncd) tells the kernel how far it may be off,
and the kernel lets that grow while nobody says otherwise: adjtimex(2).
"""

from __future__ import annotations

import ctypes
import math
import time

_STA_UNSYNC = 0x40
_TIME_ERROR = 5
_JUMP_S = 1e-3  # set by less than this, a clock was adjusted, not set


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


def error_s() -> float:
    """The most that the wall clock is off by, in seconds; infinite where nobody keeps it."""
    timex = _Timex()  # modes 0: only asks
    try:
        state = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(timex))
    except AttributeError:
        return math.inf
    return known_error_s(state, timex.status, timex.maxerror)


def known_error_s(state: int, status: int, maxerror_us: int) -> float:
    """The same from what adjtimex(2) answers."""
    if state < 0 or state == _TIME_ERROR or status & _STA_UNSYNC or maxerror_us < 0:
        return math.inf
    return maxerror_us / 1e6


class Unset:
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
