"""How long a hook waits for a broker: a budget of seconds over all its calls, kept by a timer.

A socket's own timeout starts again with every byte that arrives, so a broker that dribbles could
hold a hook for ever. The budget cannot be stretched: a timer interrupts the call.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from types import FrameType
from typing import TypeVar

from network_provisioner.base.errors import BrokerError

T = TypeVar("T")


class Budget:
    """``total_s`` seconds for all calls together. The timer works in a process's main thread;
    without it (``timer``) a call takes as long as its client lets it."""

    def __init__(
        self, total_s: float, clock: Callable[[], float] = time.monotonic, timer: bool = True
    ) -> None:
        self.left_s = total_s
        self._timer = timer
        self._total_s = total_s
        self._clock = clock

    def call(self, action: Callable[[], T]) -> T:
        """The value of ``action``; what it raises passes through.

        Raises BrokerError, code ``timeout``, when the budget is used up.
        """
        if self.left_s <= 0:
            raise self._used_up()
        started = self._clock()
        if not self._timer:
            try:
                return action()
            finally:
                self.left_s -= self._clock() - started
        before = signal.signal(signal.SIGALRM, self._interrupt)
        # The interval repeats, so that a handler that fires inside a C call is not the last one.
        signal.setitimer(signal.ITIMER_REAL, self.left_s, 0.05)
        try:
            return action()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
            self.left_s -= self._clock() - started

    def _interrupt(self, _number: int, _frame: FrameType | None) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        raise self._used_up()

    def _used_up(self) -> BrokerError:
        return BrokerError(f"the broker did not answer within {self._total_s:g} s", "timeout")
