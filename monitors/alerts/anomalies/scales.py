"""On which scale a metric is compared: rates and delays by their ratio, shares by difference."""

from __future__ import annotations

import math
from dataclasses import dataclass

SHARES = frozenset({"loss", "cpu_use", "memory_use", "io_wait", "disk_io", "belief_error"})
_RATES = frozenset({"throughput", "path_throughput", "tcp_throughput", "udp_throughput"})


@dataclass(frozen=True, slots=True)
class Scale:
    """From values to numbers whose difference is a change, and back: the logarithm where a change
    is a ``ratio`` (rates, delays, counts), else values as they are (parts of a whole). From
    ``dead`` on a value says that nothing gets through. Noise is never taken for less than
    ``floor``."""

    ratio: bool
    floor: float
    dead: float = math.inf

    def of(self, value: float) -> float | None:
        """The number of a value; None where the value says that nothing gets through, or that it
        was not measured."""
        if self.ratio:
            return math.log(value) if value > 0 else None
        return None if value >= self.dead else value

    def value(self, number: float) -> float:
        """The inverse of :meth:`of`."""
        return math.exp(min(number, 700.0)) if self.ratio else number

    def change(self, shift: float) -> float:
        """A shift as a change: a share of the value before, or a difference of shares."""
        return math.expm1(min(shift, 700.0)) if self.ratio else shift

    def shift(self, change: float) -> float:
        """The shift down that is a change of this size; the same up is a larger change."""
        return math.log1p(change) if self.ratio else change


_RATIO = Scale(ratio=True, floor=0.01)
_SHARE = Scale(ratio=False, floor=0.0025)
_LOSS = Scale(ratio=False, floor=0.0025, dead=0.999)  # the whole is the end


def scale_of(metric: str) -> Scale:
    """The scale of a metric; of one that is not known, the logarithm."""
    if metric == "loss":
        return _LOSS
    return _SHARE if metric in SHARES else _RATIO


def worse(metric: str, shift: float) -> bool:
    """Whether a shift is for the worse: less of a rate, more of anything else."""
    return shift < 0 if metric in _RATES else shift > 0
