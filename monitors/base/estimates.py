"""What a series of measurements says about now: a value, how sure, and how old.

One slow transfer must not change where a workflow runs, and a path that has become faster should
be believed after a few transfers. So the estimate is a weighted median, the weights halving every
:data:`HALF_LIFE` measurements back from the newest, and its spread the weighted median absolute
deviation. Weights go by rank and not by age: workflows may run hourly or once a month, and what is
known from last month is still the best there is. How old it is stands beside it (``at``), for the
reader to judge.

Queues have their days: what jobs waited at night says little of the morning. And a pool that gives
one job a slot at once makes a hundred of them wait for those of others. So waits are told apart by
the hour of the day, and by how many jobs of one workflow had asked for slots at once.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from monitors.base.measurement import Measurement, number_in

# Half of the weight lies on the newest ten or so: about one stage of a small workflow.
HALF_LIFE = 8.0

# Beyond 128 measurements weights are below 2**-16 of the newest: they cannot move the median.
WINDOW = 128

# For a normal distribution the standard deviation is this many median absolute deviations.
MAD_TO_SIGMA = 1.4826

WAITS_READ = 1000  # of the newest waits of a site
_DAY_S, _NEAR_S = 86400.0, 1.5 * 3600.0  # from one time of the day to another
_LEAST_WAITS, _LEAST_DAYS = 10, 3
WIDTH = "width:"
"""Before a number of jobs in a name that stands where those of transformations do."""
_WIDTH = re.compile(f"{WIDTH}[0-9]{{1,9}}")


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
    """The weights of ``count`` measurements, the newest of which has rank ``first`` (from 0)."""
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


def width_name(jobs: int) -> str:
    """The name for ``jobs`` at once, rounded up to a power of two: ``width:8``."""
    return f"{WIDTH}{1 << max(0, jobs - 1).bit_length()}"


def at_this_hour(newest_first: Sequence[Measurement], now: float) -> list[Measurement]:
    """The waits that ended within 1.5 hours of this time of the day; none if they are fewer than
    ten, or of fewer than three days."""
    near = [row for row in newest_first if _apart_s(row.at, now) <= _NEAR_S]
    days = {int((now - row.at + _DAY_S / 2) // _DAY_S) for row in near}
    return near if len(near) >= _LEAST_WAITS and len(days) >= _LEAST_DAYS else []


def of_width(newest_first: Sequence[Measurement], name: str) -> list[Measurement]:
    """The waits of jobs that were as many at once as ``name`` says (:func:`width_name`)."""
    most = int(name.removeprefix(WIDTH)) if _WIDTH.fullmatch(name) else 0
    widths = [(row, number_in(row.details.get("width"))) for row in newest_first]
    return [row for row, width in widths if width and most / 2 < width <= most]


def wait_spread(newest_first: Sequence[Measurement]) -> tuple[float, float, int]:
    """Median, spread and number of waits, which must not be empty."""
    values = [row.value for row in newest_first[:WINDOW]]
    return *estimate(values), len(values)


def _apart_s(at: float, now: float) -> float:
    apart_s = (now - at) % _DAY_S
    return min(apart_s, _DAY_S - apart_s)
