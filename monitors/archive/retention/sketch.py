"""A distribution in few numbers, from which quantiles can be told within 1 %, and which can be
merged without loss: a day's is the sum of its hours'.

Values are counted in buckets that each are 2 % wider than the one below (the mapping of DDSketch:
Masson, Rim, Lee, "DDSketch: a fast and fully-mergeable quantile sketch with relative-error
guarantees", VLDB 2019). What is counted depends on the values alone, not on their order.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

ACCURACY = 0.01
"""Largest relative error of a quantile."""
_WIDTH = math.log((1 + ACCURACY) / (1 - ACCURACY))
_MIDDLE = math.log(2 / (1 + math.exp(_WIDTH)))  # from a bucket's upper end to what it stands for
_LEAST = 1e-300  # what is nearer to zero than this is zero
_LARGEST_LOG = math.log(1.7e308)


@dataclass(slots=True)
class Sketch:
    """``positive`` and ``negative``: how many values by number of bucket; ``zeros``: how many are
    none of both."""

    positive: Counter[int] = field(default_factory=Counter)
    negative: Counter[int] = field(default_factory=Counter)
    zeros: int = 0

    @classmethod
    def of(cls, values: Iterable[float]) -> Sketch:
        """Of finite values."""
        made = cls()
        for value in values:
            if value > _LEAST:
                made.positive[_bucket(value)] += 1
            elif value < -_LEAST:
                made.negative[_bucket(-value)] += 1
            else:
                made.zeros += 1
        return made

    def __add__(self, other: Sketch) -> Sketch:
        return Sketch(
            self.positive + other.positive,
            self.negative + other.negative,
            self.zeros + other.zeros,
        )

    def counts(self) -> list[tuple[float, int]]:
        """Values in ascending order, each with how many it stands for."""
        found = [(-_value(b), n) for b, n in sorted(self.negative.items(), reverse=True)]
        if self.zeros:
            found.append((0.0, self.zeros))
        return found + [(_value(b), n) for b, n in sorted(self.positive.items())]

    def quantile(self, share: float) -> float:
        """The value below which ``share`` (0..1) of all lie: the one of that rank, as
        ``sorted(values)[round-half-down(share * (n - 1))]``. Raises ValueError for an empty one."""
        counts = self.counts()
        total = sum(n for _, n in counts)
        rank, below = share * (total - 1), 0
        for value, n in counts:
            below += n
            if below > rank:
                return value
        raise ValueError("found an empty sketch, expected one of values")

    def dumps(self) -> str:
        """As text."""
        parts = [sorted(self.positive.items()), sorted(self.negative.items()), self.zeros]
        return json.dumps(parts, separators=(",", ":"))

    @classmethod
    def loads(cls, text: str) -> Sketch:
        """The inverse of :meth:`dumps`."""
        positive, negative, zeros = json.loads(text)
        return cls(Counter(dict(positive)), Counter(dict(negative)), zeros)


def _bucket(value: float) -> int:
    return math.ceil(math.log(value) / _WIDTH)


def _value(bucket: int) -> float:
    return math.exp(min(bucket * _WIDTH + _MIDDLE, _LARGEST_LOG))
