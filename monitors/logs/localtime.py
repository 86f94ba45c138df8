"""Times as DAGMan and HTCondor write them: local ones without a zone.

In autumn an hour comes twice, and what the C library then takes a time for depends on what it was
asked before: two followers would tell one event by two times. What stands before it in the file
says which hour it is.
"""

from __future__ import annotations

import time
from functools import lru_cache

_TOGETHER_S = 2.0  # programs that share a log may write a little out of order


class LocalClock:
    """Reads the times of one file, in their order."""

    def __init__(self) -> None:
        self._last = 0.0

    def unix(
        self, year: int, month: int, day: int, hour: int, minute: int, second: float
    ) -> float | None:
        """Unix seconds, of two that it may be the first that is not before what was read so far;
        None for a time that is none."""
        # A process may be told of another zone (time.tzset).
        once, again = _minute(year, month, day, hour, minute, time.timezone, time.tzname)
        if once is None or again is None:
            return None
        at = once + second
        if again > once and at < self._last - _TOGETHER_S:
            at = again + second
        self._last = max(self._last, at)
        return at


@lru_cache(maxsize=64)
def _minute(
    year: int, month: int, day: int, hour: int, minute: int, _zone: int, _names: tuple[str, str]
) -> tuple[float, float] | tuple[None, None]:
    """When that minute began by the clock on the wall, for the first and for the last time."""
    wall = (year, month, day, hour, minute)
    try:
        either = {time.mktime((*wall, 0, 0, 0, summer)) for summer in (0, 1)}
        shown = sorted(at for at in either if time.localtime(at)[:5] == wall)
        if not shown:  # it never was, in spring
            shown = [time.mktime((*wall, 0, 0, 0, 0))]
    except (OverflowError, ValueError, OSError):
        return None, None
    return shown[0], shown[-1]
