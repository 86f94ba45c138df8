"""How long jobs wait at a site as they did in times like these: at this hour of the day, and where
as many jobs of one workflow had asked for its slots at once. Pure.

Queues have their days: what jobs waited at night says little of the morning. And a pool that gives
one job a slot at once makes a hundred of them wait for those of others.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from monitors.base.estimates import WINDOW, estimate
from monitors.base.measurement import Measurement, number_in

READ = 1000  # of the newest waits of a site
_DAY_S, _NEAR_S = 86400.0, 1.5 * 3600.0  # from one time of the day to another
_LEAST_WAITS, _LEAST_DAYS = 10, 3
WIDTH = "width:"
"""Before a number of jobs in a name that stands where those of transformations do."""
_WIDTH = re.compile(f"{WIDTH}[0-9]{{1,9}}")


def width_name(jobs: int) -> str:
    """The name of so many jobs at once: 1, 2, 4, 8, … stand for those up to them."""
    return f"{WIDTH}{1 << max(0, jobs - 1).bit_length()}"


def at_this_hour(newest_first: Sequence[Measurement], now: float) -> list[Measurement]:
    """The waits of jobs that ended at about this time of the day, if there are enough of them, of
    several days; else none."""
    near = [row for row in newest_first if _apart_s(row.at, now) <= _NEAR_S]
    days = {int((now - row.at + _DAY_S / 2) // _DAY_S) for row in near}
    return near if len(near) >= _LEAST_WAITS and len(days) >= _LEAST_DAYS else []


def of_width(newest_first: Sequence[Measurement], name: str) -> list[Measurement]:
    """The waits of jobs of which there were about as many at once as :func:`width_name` says."""
    most = int(name.removeprefix(WIDTH)) if _WIDTH.fullmatch(name) else 0
    widths = [(row, number_in(row.details.get("width"))) for row in newest_first]
    return [row for row, width in widths if width and most / 2 < width <= most]


def wait_spread(newest_first: Sequence[Measurement]) -> tuple[float, float, int]:
    """Median, spread and number of some waits, of which there is one at least."""
    values = [row.value for row in newest_first[:WINDOW]]
    return *estimate(values), len(values)


def _apart_s(at: float, now: float) -> float:
    apart_s = (now - at) % _DAY_S
    return min(apart_s, _DAY_S - apart_s)
