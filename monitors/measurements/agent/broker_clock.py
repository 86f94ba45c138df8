"""The broker's time at the agent, whatever its own wall clock says or is set to. Pure.

As NTP does: of a question sent at t0, received at t1, answered at t2, and the answer here at t3,
the offset is ((t1 - t0) + (t2 - t3)) / 2, and off by at most half of the time on the way, however
unequal both directions are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

_DRIFT = 50e-6  # seconds per second that an ordinary quartz is off by
_SLACK_S = 1e-3
_MOST_ERROR_S = 5.0  # an answer that took longer says nothing


@dataclass(frozen=True, slots=True)
class _Known:
    offset_s: float
    error_s: float
    at: float

    def error_at(self, steady: float) -> float:
        return self.error_s + _DRIFT * abs(steady - self.at)


class BrokerClock:
    """Learns from answers. ``steady`` are seconds of a clock of this machine that nobody sets."""

    def __init__(self) -> None:
        self._known: _Known | None = None

    @property
    def known(self) -> bool:
        """Whether anything was learned yet."""
        return self._known is not None

    def learn(self, asked: float, received: float, sent: float, answered: float) -> None:
        """One question: ``asked`` and ``answered`` steady, the others the broker's clock."""
        on_the_way = (answered - asked) - (sent - received)
        error_s = max(0.0, on_the_way) / 2
        if on_the_way < -_SLACK_S or error_s > _MOST_ERROR_S or sent < received:
            return
        found = _Known(((received - asked) + (sent - answered)) / 2, error_s, answered)
        known = self._known
        if known is not None:
            before = known.error_at(answered)
            apart = abs(found.offset_s - known.offset_s)
            # Farther apart than both allow: the broker's clock was set, and what was known is past.
            if apart <= error_s + before + _SLACK_S and error_s > before:
                return
        self._known = found

    def now(self, steady: float) -> float:
        """The broker's time, Unix seconds; NaN while nothing is known."""
        return steady + self._known.offset_s if self._known else math.nan

    def steady_at(self, broker_time: float) -> float:
        """When it is that time at the broker; infinitely late while nothing is known."""
        return broker_time - self._known.offset_s if self._known else math.inf

    def error_s(self, steady: float) -> float:
        """What :meth:`now` may be off by; infinite while nothing is known."""
        return self._known.error_at(steady) if self._known else math.inf
