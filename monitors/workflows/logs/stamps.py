"""Reads the times in the logs of HTCondor and DAGMan.

    05/11 08:00:05             without a year, up to HTCondor 8.8
    5/11 08:00:05              without zeros, DAGMan's up to HTCondor 7
    05/11/26 08:00:05          DAGMan
    2026-05-11T08:00:05.123Z   ISO 8601, with or without a fraction and a zone

In autumn an hour comes twice, and what the C library then takes a time for depends on what it was
asked before: two followers would tell one event by two times. What stands before it in the file
says which hour it is.
"""

from __future__ import annotations

import calendar
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

STAMP = (
    rb"(?:(\d{4})-(\d\d)-(\d\d)|(\d\d?)/(\d\d?)(?:/(\d\d))?)"
    rb"[ T](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?(Z|[+-]\d\d:?\d\d)?"
)
"""A regular expression of :data:`GROUPS` groups."""
GROUPS = 11
_GRACE_S = 86400.0  # of clocks that are wrong


_TOGETHER_S = 2.0  # programs that share a log may write a little out of order


@dataclass(frozen=True, slots=True)
class LogTimes:
    """What the times of a workflow's logs do not say: ``offset_s``, seconds east of Greenwich of
    the machine that wrote them, None for this one's zone; and ``latest`` (Unix seconds), before
    which the last of them is."""

    offset_s: int | None = None
    latest: Callable[[], float] = time.time


HERE = LogTimes()


class LocalClock:
    """Reads the times of one file, in their order."""

    def __init__(self, times: LogTimes = HERE) -> None:
        self.times = times
        self._last = 0.0

    def unix(
        self, year: int, month: int, day: int, hour: int, minute: int, second: float
    ) -> float | None:
        """Unix seconds, of two that it may be the first that is not before what was read so far;
        None for a time that is none."""
        if self.times.offset_s is not None:
            try:
                utc = calendar.timegm((year, month, day, hour, minute, 0, 0, 0, 0))
            except (OverflowError, ValueError):
                return None
            return utc - self.times.offset_s + second
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


def read_stamp(match: re.Match[bytes], first: int, clock: LocalClock) -> float | None:
    """Unix seconds of a match whose groups from ``first`` on are those of :data:`STAMP`; None for a
    time that is none. Times without a zone are read by ``clock``; one without a year is the last
    such one that is not after the latest."""
    groups = match.groups()[first - 1 : first - 1 + GROUPS]
    year, month, day, us_month, us_day, us_year, hour, minute, second, fraction, zone = groups
    seconds = int(second) + (float(b"." + fraction) if fraction else 0.0)

    def of_year(number: int, local: LocalClock = clock) -> float | None:
        wall = number, int(month or us_month), int(day or us_day), int(hour), int(minute)
        if not zone:
            return local.unix(*wall, seconds)
        try:
            return calendar.timegm((*wall, 0, 0, 0, 0)) - _offset_s(zone) + seconds
        except (OverflowError, ValueError):
            return None

    if year or us_year:
        return of_year(int(year) if year else 2000 + int(us_year))
    newest = clock.times.latest()
    this_year = time.localtime(newest).tm_year
    at = of_year(this_year, LocalClock(clock.times))
    is_past = at is not None and at <= newest + _GRACE_S
    return of_year(this_year if is_past else this_year - 1)


def _offset_s(zone: bytes) -> int:
    """Seconds east of Greenwich of ``Z``, ``+01:00`` or ``-0600``."""
    if zone == b"Z":
        return 0
    digits = zone[1:].replace(b":", b"")
    seconds = int(digits[:2]) * 3600 + int(digits[2:]) * 60
    return -seconds if zone.startswith(b"-") else seconds
