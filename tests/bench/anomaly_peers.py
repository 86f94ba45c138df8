"""Other ways to notice anomalies, for comparison: fixed thresholds, z-scores, and plateau detection
as it was published.

Each is given the values of a path and says when it raises an alarm; an alarm is raised again only
after values were inside for as long as it takes to raise one. To all of them measurements that are
missing are an alarm after :data:`MISSING` periods: what is compared is how values are judged.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from tests.bench.anomaly_paths import DAY_S, LEAD_DAYS, Path

MISSING = 6
Floats = npt.NDArray[np.float64]
Alarms = Callable[[Path], list[float]]


def fixed(share: float, samples: int) -> Alarms:
    """So many samples in a row that are further than a share from the median of the first two
    weeks, both ways."""

    def alarms(path: Path) -> list[float]:
        at, values = np.asarray(path.at), np.asarray(path.values)
        usual = float(np.median(values[at < at[0] + LEAD_DAYS * DAY_S]))
        outside = np.abs(np.log(values / usual)) > -math.log(1 - share)
        return _told(path, outside, samples)

    return alarms


def zscore(factor: float, samples: int, days: float = 1.0) -> Alarms:
    """So many samples in a row that are further than ``factor`` standard deviations from the mean
    of the days before."""

    def alarms(path: Path) -> list[float]:
        values = np.asarray(path.values)
        width = int(days * DAY_S / path.period_s)
        sums = np.concatenate([[0.0], np.cumsum(values)])
        squares = np.concatenate([[0.0], np.cumsum(values**2)])
        mean = (sums[width:-1] - sums[: -width - 1]) / width
        power = (squares[width:-1] - squares[: -width - 1]) / width
        deviation = np.sqrt(np.maximum(power - mean**2, 1e-12 * power))
        outside = np.zeros(values.size, dtype=bool)
        outside[width:] = np.abs(values[width:] - mean) > factor * deviation
        return _told(path, outside, samples)

    return alarms


def plateau(window: int = 20) -> Alarms:
    """The adaptive plateau detector of OnTimeDetect: a summary window, two thresholds at one and
    two times the sensitivity factor, a trigger buffer of a third of the window, elevated thresholds
    after an event, and a sensitivity factor that rises with the variance of the newest samples.

    The published detector looks at the samples to come for that variance; here it has to do with
    those of the trigger buffer.
    """
    full = (window + 2) // 3

    def alarms(path: Path) -> list[float]:
        return sorted([*_plateaus(path, window, full), *_missing(path)])

    return alarms


def _plateaus(path: Path, window: int, full: int) -> Iterator[float]:
    values = path.values
    normal = list(values[:window])
    place, triggers, timer = 0, 0, 0
    warned: list[float] = []
    critical: list[float] = []
    low = high = lowest = highest = 0.0
    for at, value in zip(path.at[window:], values[window:], strict=True):
        if timer:
            timer -= 1
        else:
            mean = sum(normal) / window
            sigma = math.sqrt(sum((v - mean) ** 2 for v in normal) / (window - 1))
            newest = (warned + critical + [value])[-full:]
            middle = sum(newest) / len(newest)
            ratio = sum((v - middle) ** 2 for v in newest) / len(newest) / max(sigma**2, 1e-30)
            factor = min(5.0, 0.4 * ratio + 2)
            low, high = mean - factor * sigma, mean + factor * sigma
            lowest, highest = mean - 2 * factor * sigma, mean + 2 * factor * sigma
        if not lowest <= value <= highest:
            critical.append(value)
            triggers += 1
        elif not low <= value <= high:
            warned.append(value)
            triggers += 1
        else:
            normal[place] = value
            place = (place + 1) % window
            triggers = max(0, triggers - 1)
            if triggers == 0:
                for old in warned:
                    normal[place] = old
                    place = (place + 1) % window
                warned, critical = [], []
        if triggers == full:
            yield at
            triggers = 0
            beyond = warned + critical
            # thresholds about the new level, elevated by 20 and 40 %, for a window's time
            low, high = min(beyond) * 0.8, max(beyond) * 1.2
            lowest, highest = min(beyond) * 0.6, max(beyond) * 1.4
            for new in beyond:
                normal[place] = new
                place = (place + 1) % window
            warned, critical = [], []
            timer = window


def _told(path: Path, outside: npt.NDArray[np.bool_], samples: int) -> list[float]:
    alarms: list[float] = []
    count, alarmed = 0, False
    for at, out in zip(path.at, outside.tolist(), strict=True):
        count = count + 1 if out != alarmed else 0
        if count >= samples:
            alarmed, count = out, 0
            if alarmed:
                alarms.append(at)
    return sorted([*alarms, *_missing(path)])


def _missing(path: Path) -> list[float]:
    at = np.asarray(path.at)
    long = np.flatnonzero(np.diff(at) > MISSING * path.period_s)
    return (at[long] + MISSING * path.period_s).tolist()
