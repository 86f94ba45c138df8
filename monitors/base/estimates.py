"""What a series of measurements says about now: a value, how sure, and how old.

One slow transfer must not change where a workflow runs, and a path that has become faster should
be believed after a few transfers. So the estimate is a weighted median, the weights halving every
:data:`HALF_LIFE` measurements back from the newest, and its spread the weighted median absolute
deviation. Weights go by rank and not by age: workflows may run hourly or once a month, and what is
known from last month is still the best there is. How old it is stands beside it (``at``), for the
reader to judge.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

# Half of the weight lies on the newest ten or so: about one stage of a small workflow.
HALF_LIFE = 8.0

# Beyond 128 measurements weights are below 2**-16 of the newest: they cannot move the median.
WINDOW = 128

# For a normal distribution the standard deviation is this many median absolute deviations.
MAD_TO_SIGMA = 1.4826


@dataclass(frozen=True, slots=True)
class Estimate:
    """``value`` and ``spread`` in the metric's ``unit``.

    ``spread`` is comparable to a standard deviation; ``count`` is the number of measurements used,
    ``at`` the time of the newest of them (Unix seconds), ``source`` who made that one. ``metric``
    and ``subject`` are those that were measured; ``note`` says in a few words where they are others
    than what one would expect.
    """

    value: float
    spread: float
    count: int
    at: float
    source: str
    unit: str = ""
    metric: str = ""
    subject: str = ""
    note: str = ""

    def age_s(self, now: float) -> float:
        """Seconds since the newest measurement that was used."""
        return max(0.0, now - self.at)

    def as_dict(self, now: float) -> dict[str, Any]:
        """JSON-ready, at ``now`` (Unix seconds), without the note."""
        known = asdict(self) | {"age_s": self.age_s(now)}
        del known["note"]
        return known


def weighted_median(values: Sequence[float], weights: Sequence[float]) -> float:
    """The value with half of the weight on either side; between two where it falls on the edge.

    Always within the range of ``values``, and unmoved by outliers of less than half the weight.
    """
    pairs = sorted(zip(values, weights, strict=True))
    half = sum(weight for _, weight in pairs) / 2
    below = 0.0
    for index, (value, weight) in enumerate(pairs):
        below += weight
        if below > half:
            return value
        if below == half and index + 1 < len(pairs):
            following = pairs[index + 1][0]
            return value + (following - value) / 2
    return pairs[-1][0]


def weights(first: int, count: int) -> list[float]:
    """Of ``count`` measurements of which the newest is the ``first``-newest of all (from 0)."""
    return [0.5 ** (rank / HALF_LIFE) for rank in range(first, first + count)]


def weighted(values: Sequence[float], weights: Sequence[float]) -> tuple[float, float]:
    """Value and spread of values with these weights. ``values`` must not be empty."""
    middle = weighted_median(values, weights)
    deviation = weighted_median([abs(value - middle) for value in values], weights)
    return middle, MAD_TO_SIGMA * deviation


def estimate(values: Sequence[float]) -> tuple[float, float]:
    """Value and spread of a series that is given newest first. ``values`` must not be empty."""
    newest = values[:WINDOW]
    return weighted(newest, weights(0, len(newest)))
