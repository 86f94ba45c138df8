"""What is reserved on one directed link, as a step function of time. Whole bits per second."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from itertools import accumulate

Interval = tuple[float, float]
Held = tuple[int, float, float]  # bits per second, from when to when

# A step holds the sum of the rates and, in its lowest bits, how many reservations make it up: one
# number, so that both cost one addition, and the fullest step is still the largest.
_COUNT_BITS = 24
_COUNT = (1 << _COUNT_BITS) - 1


class Timeline:
    """Reserved bits per second of one directed link.

    A step lasts from its instant until the next. Neighbouring steps differ, so the lists are no
    longer than twice the number of reservations, and the same reservations give the same lists in
    whatever order they came.
    """

    __slots__ = ("_steps", "_times", "capacity")

    def __init__(self, capacity: int, held: Iterable[Held] = ()) -> None:
        self.capacity = capacity
        changes: dict[float, int] = {}
        for rate, start, end in held:
            step = (rate << _COUNT_BITS) + 1
            changes[start] = changes.get(start, 0) + step
            changes[end] = changes.get(end, 0) - step
        times = sorted(at for at, change in changes.items() if change)
        self._times: list[float] = [-math.inf, *times]
        self._steps = list(accumulate((changes[at] for at in times), initial=0))

    def copy(self) -> Timeline:
        """Another one with the same reservations."""
        made = Timeline(self.capacity)
        made._times, made._steps = self._times.copy(), self._steps.copy()
        return made

    def add(self, start: float, end: float, rate: int) -> None:
        """One reservation more during [start, end), of ``rate``; one less where it is negative."""
        first, last = self._cut(start), self._cut(end)
        more = (rate << _COUNT_BITS) + (1 if rate > 0 else -1)
        self._steps[first:last] = [step + more for step in self._steps[first:last]]
        for i in (last, first):
            if self._steps[i] == self._steps[i - 1]:
                del self._times[i], self._steps[i]

    def _cut(self, at: float) -> int:
        i = bisect_right(self._times, at) - 1
        if self._times[i] != at:
            i += 1
            self._times.insert(i, at)
            self._steps.insert(i, self._steps[i - 1])
        return i

    def fullest(self, start: float, end: float) -> tuple[int, int]:
        """What is free during all of [start, end), and how many reservations there are when the
        least is free. At ``start`` where both are the same."""
        first = bisect_right(self._times, start) - 1
        last = max(bisect_left(self._times, end), first + 1)
        step = max(self._steps[first:last])
        return self.capacity - (step >> _COUNT_BITS), step & _COUNT

    def busy(self, rate: int, after: float) -> list[Interval]:
        """When after ``after`` there is no room for ``rate``: intervals in order, apart."""
        first = bisect_right(self._times, after) - 1
        least = (self.capacity - rate + 1) << _COUNT_BITS
        intervals: list[Interval] = []
        last = len(self._times) - 1
        for i in [i for i, step in enumerate(self._steps[first:], first) if step >= least]:
            end = self._times[i + 1] if i < last else math.inf
            if intervals and intervals[-1][1] == self._times[i]:
                intervals[-1] = (intervals[-1][0], end)
            else:
                intervals.append((self._times[i], end))
        return intervals

    def drops(self, start: float, end: float) -> list[float]:
        """The instants in (start, end) from which on less is reserved than just before."""
        first, last = bisect_right(self._times, start), bisect_left(self._times, end)
        levels = [step >> _COUNT_BITS for step in self._steps[first - 1 : last]]
        return [self._times[first + i] for i in range(last - first) if levels[i + 1] < levels[i]]


def peak(periods: Iterable[tuple[float, float, float]]) -> float:
    """The most that comes together at any instant of periods, each as start, end and amount."""
    changes = sorted(change for a, b, much in periods for change in ((a, much), (b, -much)))
    return max(accumulate(change for _, change in changes), default=0)


def first_gap(busy: Iterable[Interval], duration_s: float, not_before: float) -> float:
    """The first instant from ``not_before`` on after which nothing is busy for ``duration_s``;
    infinity where there is none."""
    start = not_before
    for begin, end in sorted(busy):
        if begin >= start + duration_s:
            break
        start = max(start, end)
    return start
