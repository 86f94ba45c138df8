"""On which scale a metric is compared: rates and delays by their ratio, shares by difference."""

from __future__ import annotations

import math
from typing import Protocol

SHARES = frozenset({"loss", "cpu_use", "memory_use", "io_wait"})
_RATES = frozenset({"throughput", "path_throughput", "tcp_throughput", "udp_throughput"})


class Scale(Protocol):
    """From values to numbers whose difference is a change, and back."""

    floor: float
    """Noise is never taken for less than this."""

    def of(self, value: float) -> float | None:
        """The number of a value; None where the value says that nothing gets through, or that it
        was not measured."""

    def value(self, number: float) -> float:
        """The inverse of :meth:`of`."""

    def change(self, shift: float) -> float:
        """A shift as a change: a share of the value before, or a difference of shares."""

    def shift(self, change: float) -> float:
        """The shift down that is a change of this size; the same up is a larger change."""


class Ratio:
    """Rates, delays, counts: the logarithm."""

    floor = 0.01

    def of(self, value: float) -> float | None:
        return math.log(value) if value > 0 else None

    def value(self, number: float) -> float:
        return math.exp(min(number, 700.0))

    def change(self, shift: float) -> float:
        return math.expm1(min(shift, 700.0))

    def shift(self, change: float) -> float:
        return math.log1p(change)


class Share:
    """Parts of a whole, 0 to 1: as they are. For loss the whole is the end."""

    floor = 0.0025

    def __init__(self, dead: float) -> None:
        self._dead = dead

    def of(self, value: float) -> float | None:
        return None if value >= self._dead else value

    def value(self, number: float) -> float:
        return number

    def change(self, shift: float) -> float:
        return shift

    def shift(self, change: float) -> float:
        return change


def scale_of(metric: str) -> Scale:
    """The scale of a metric; of one that is not known, the logarithm."""
    if metric in SHARES:
        return Share(0.999 if metric == "loss" else math.inf)
    return Ratio()


def worse(metric: str, shift: float) -> bool:
    """Whether a shift is for the worse: less of a rate, more of anything else."""
    return shift < 0 if metric in _RATES else shift > 0
