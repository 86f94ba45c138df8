"""Values as perfSONAR writes them: ISO 8601 durations, and histograms of milliseconds."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from reprlib import repr as shown

from network_provisioner.errors import InputError

_DURATION = re.compile(
    r"P(?:(\d+(?:\.\d+)?)W)?(?:(\d+(?:\.\d+)?)D)?"
    r"(?:T(?:(\d+(?:\.\d+)?)H)?(?:(\d+(?:\.\d+)?)M)?(?:(\d+(?:\.\d+)?)S)?)?\Z"
)
_PARTS_S = (604_800.0, 86_400.0, 3600.0, 60.0, 1.0)
_MOST_BUCKETS = 100_000


def seconds(value: object, what: str) -> float:
    """Seconds of a duration such as ``PT0.0002S`` or ``P1DT2H``. Raises InputError."""
    match = _DURATION.match(value) if isinstance(value, str) and len(value) <= 100 else None
    if match is None or not any(match.groups()):
        raise InputError(f"{what} is {shown(value)}, expected a duration such as PT0.02S")
    return sum(float(n) * part for n, part in zip(match.groups(), _PARTS_S, strict=True) if n)


def number(value: object, what: str) -> float:
    """A finite number, also one written as text. Raises InputError."""
    found = math.nan
    if isinstance(value, int | float | str) and not isinstance(value, bool):
        with suppress(ValueError, OverflowError):
            found = float(value)
    if not math.isfinite(found):
        raise InputError(f"{what} is {shown(value)}, expected a number")
    return found


def histogram(value: object, what: str) -> list[tuple[float, int]]:
    """Values and how often each was seen, in order of the values. Raises InputError."""
    if not isinstance(value, Mapping) or not 0 < len(value) <= _MOST_BUCKETS:
        raise InputError(f"{what} is {shown(value)}, expected counts by value")
    counted = []
    for bucket, count in value.items():
        often = number(count, f"{what}: a count")
        if often < 0 or often != int(often):
            raise InputError(f"{what}: a count is {shown(count)}, expected a whole number")
        counted.append((number(bucket, f"{what}: a value"), int(often)))
    return sorted(counted)


def quantile(counted: Sequence[tuple[float, int]], share: float) -> float:
    """The smallest value that ``share`` of what was counted does not exceed. Raises InputError
    where nothing was counted."""
    total = sum(count for _, count in counted)
    if total == 0:
        raise InputError("found a histogram of nothing, expected at least one packet")
    reached = 0
    for value, count in counted:
        reached += count
        if reached >= share * total:
            return value
    return counted[-1][0]
