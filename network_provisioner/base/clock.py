"""Wall time that passes evenly, whatever is done to the machine's clock.

Leases end at instants of the wall clock, because clients and other machines know no other. But that
clock may be set while leases run: by its administrator, by NTP after a start with a wrong time, by
a virtual machine that comes back from a pause. Then nothing has happened to the transfers, and
their leases must neither end at once nor last for hours. So time is taken from the clock that
counts since the machine was started, those seconds in which it slept among them, and the wall clock
only says where that began; where it is found set, :meth:`SteadyClock.catch_up` says by how much,
once. A step of seconds may be taken back, and hurts nobody until it is followed: it has to last.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace

from network_provisioner.base.model import LIVE, Transit

log = logging.getLogger(__name__)

JUMP_S = 1.0  # less than this is left alone: a clock that is kept right is never set by more
GLITCH_S, LASTS_S = 60.0, 300.0  # less than this is followed when it has lasted so long
_AT_ONCE_S = 0.05  # two clocks read within this are read at the same time
_ATTEMPTS = 5

Seconds = Callable[[], float]


def since_boot() -> float:
    """Seconds since this machine was started, those in which it slept among them; nobody can set
    this clock."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class SteadyClock:
    """Calling it gives Unix seconds, as :func:`time.time` does where nobody sets the clock."""

    def __init__(
        self, wall: Seconds = time.time, steady: Seconds = since_boot, follows: bool = True
    ) -> None:
        """``follows``: where the wall clock is set, :meth:`catch_up` follows it; else time goes on
        as it was."""
        self._wall = wall
        self._steady = steady
        self.follows = follows
        self._offset_s = self._seen_s = self._wall_offset_s()
        self._stepped_at: float | None = None  # by a step that has not been followed yet
        self._moved_s = 0.0  # by renew, not told by catch_up yet

    def __call__(self) -> float:
        return self._steady() + self._offset_s

    def catch_up(self) -> float:
        """By how many seconds this clock is set with this call, or was by :meth:`renew` before it.

        It follows the wall clock where that was set by :data:`GLITCH_S` or more, or by
        :data:`JUMP_S` or more :data:`LASTS_S` ago.
        """
        moved_s, self._moved_s = self._moved_s, 0.0
        offset_s, now = self._wall_offset_s(), self._steady()
        jump_s = offset_s - self._seen_s
        if abs(jump_s) < JUMP_S:
            self._stepped_at = None
            return moved_s
        if self._stepped_at is None:
            self._stepped_at = now
        if abs(jump_s) < GLITCH_S and now - self._stepped_at < LASTS_S:
            return moved_s
        self._seen_s, self._stepped_at = offset_s, None
        then = "leases keep their length" if self.follows else "this process keeps its own time"
        log.warning("the wall clock was set by %+.1f s: %s", jump_s, then)
        if not self.follows:
            return moved_s
        self._offset_s = offset_s
        return moved_s + jump_s

    def renew(self) -> None:
        """Take the time from the wall clock, however that was set, now."""
        offset_s = self._wall_offset_s()
        self._moved_s += offset_s - self._offset_s
        self._offset_s = self._seen_s = offset_s
        self._stepped_at = None

    def _wall_offset_s(self) -> float:
        """What the wall clock is ahead of the steady one. Who is stopped between reading the one
        and the other must not take that for a jump."""
        nearest, offset_s = float("inf"), 0.0
        for _ in range(_ATTEMPTS):
            before = self._steady()
            wall = self._wall()
            after = self._steady()
            if after - before < nearest:
                nearest, offset_s = after - before, wall - (before + after) / 2
            if nearest <= _AT_ONCE_S:
                break
        return offset_s


def steady(clock: Seconds) -> SteadyClock:
    """``clock`` itself where it is steady; any other is taken for one that nobody sets."""
    return clock if isinstance(clock, SteadyClock) else SteadyClock(clock, clock)


def move_times(transit: Transit, by_s: float, before: float) -> None:
    """Bring a live or queued transit's times to a wall clock that was set by ``by_s`` seconds when
    it said ``before``. Pure, but for the transit.

    A lease that runs keeps its length, a wait its patience, and what has happened stays as long
    ago as it was. Times that were asked for by the wall clock stay: a start in advance, and an end.
    """

    def moved(at: float) -> float:
        # 0 stands for what has not happened, also where the clock was set to the year 1970.
        return max(1.0, at + by_s) if at else at

    request, grant, usage = transit.request, transit.grant, transit.usage
    if transit.state in LIVE and transit.request.start <= before:
        request = replace(request, start=moved(request.start))
        grant.lease_until, grant.expected_end = moved(grant.lease_until), moved(grant.expected_end)
    transit.request = replace(request, requested_at=moved(request.requested_at))
    usage.metered_at = moved(usage.metered_at)
    grant.installed_at, grant.active_at = moved(grant.installed_at), moved(grant.active_at)
    if transit.request.end and transit.grant.lease_until:
        transit.grant.lease_until = min(transit.grant.lease_until, transit.request.end)
