"""How long measurements are kept whole, and what is kept of them afterwards: as values.

A roll-up says of all measurements of one subject in one hour or day how many there were, their
least, largest and mean value, and their distribution (:class:`Sketch`). Roll-ups of hours make
those of days, as if they had been made of the measurements.

A sketch gives quantiles within 1 % in few numbers and merges without loss: a day's is the sum of
its hours'. Values are counted in buckets that each are 2 % wider than the one below (the mapping of
DDSketch: Masson, Rim, Lee, "DDSketch: a fast and fully-mergeable quantile sketch with
relative-error guarantees", VLDB 2019). What is counted depends on the values alone, not on their
order.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from itertools import groupby
from typing import Any

from monitors.base.measurement import UNITS
from network_provisioner.base import fields
from network_provisioner.base.errors import InputError
from network_provisioner.base.units import parse_duration

HOUR_S, DAY_S = 3600, 86400
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
# Their subjects are not series of one thing, so there is nothing to roll up.
NO_SERIES = frozenset({"status", "workflow", "dag", "anomaly", "notice", "plan"})
# Of these the newest of each subject stays: how a workflow ended, and what it was.
KEPT_LAST = frozenset({"status", "workflow", "dag"})
# Few, and others rely on them (nobody is told twice): they stay unless they are named.
STAYS = frozenset({"workflow", "anomaly", "notice"})
_LARGEST = 1.7e308

ACCURACY = 0.01  # largest relative error of a quantile
_WIDTH = math.log((1 + ACCURACY) / (1 - ACCURACY))
_MIDDLE = math.log(2 / (1 + math.exp(_WIDTH)))  # from a bucket's upper end to what it stands for
_LEAST = 1e-300  # what is nearer to zero than this is zero
_LARGEST_LOG = math.log(1.7e308)
_KEYS = ("raw", "hourly", "daily")
_FOR_EVER = "forever"


@dataclass(frozen=True, slots=True)
class Point:
    """Of a measurement, what a roll-up needs."""

    metric: str
    subject: str
    unit: str
    value: float
    at: float
    source: str


@dataclass(frozen=True, slots=True)
class RollUp:
    """All measurements of a subject from ``start`` (Unix seconds) until ``width_s`` later.

    ``first_at`` and ``last_at`` are the times of the oldest and newest of them, ``source`` is who
    made that one.
    """

    metric: str
    subject: str
    unit: str
    width_s: int
    start: float
    number: int
    total: float
    low: float
    high: float
    first_at: float
    last_at: float
    source: str
    sketch: Sketch

    @property
    def mean(self) -> float:
        """Within ``low`` and ``high``."""
        return min(max(self.total / self.number, self.low), self.high)

    def quantile(self, share: float) -> float:
        """Within 1 % of the measurement of that rank; the ends are exact."""
        if share <= 0 or share >= 1:
            return self.low if share <= 0 else self.high
        return min(max(self.sketch.quantile(share), self.low), self.high)

    def merged(self, other: RollUp) -> RollUp:
        """Of both, which must be of the same series, in the time of this one."""
        newest = max(self, other, key=lambda rollup: rollup.last_at)
        return replace(
            self,
            number=self.number + other.number,
            total=_bounded(self.total + other.total),
            low=min(self.low, other.low),
            high=max(self.high, other.high),
            first_at=min(self.first_at, other.first_at),
            last_at=newest.last_at,
            source=newest.source,
            sketch=self.sketch + other.sketch,
        )


def start_of(at: float, width_s: int) -> float:
    """When the hour or day of ``at`` began (UTC)."""
    return math.floor(at / width_s) * float(width_s)


def roll_up(points: Iterable[Point], width_s: int) -> list[RollUp]:
    """Of measurements in any order, by series and time."""

    def series(point: Point) -> tuple[str, str, str, float]:
        return point.metric, point.subject, point.unit, start_of(point.at, width_s)

    roll_ups = []
    for (metric, subject, unit, start), group in groupby(sorted(points, key=series), series):
        same = list(group)
        values = [point.value for point in same]
        newest = max(same, key=lambda point: (point.at, point.source))
        roll_ups.append(
            RollUp(
                metric, subject, unit, width_s, start, len(same), _sum(values),
                min(values), max(values), min(point.at for point in same), newest.at,
                newest.source, Sketch.of(values),
            )
        )  # fmt: skip
    return roll_ups


def wider_rollups(rollups: Iterable[RollUp], width_s: int) -> list[RollUp]:
    """Roll-ups of hours, or of both, as roll-ups of days; of the same width, merged where they are
    of the same time."""
    wider: dict[tuple[str, str, str, float], RollUp] = {}
    for rollup in rollups:
        start = start_of(rollup.start, width_s)
        key = (rollup.metric, rollup.subject, rollup.unit, start)
        wide = replace(rollup, width_s=width_s, start=start)
        wider[key] = wider[key].merged(wide) if key in wider else wide
    return [wider[key] for key in sorted(wider)]


def _sum(values: list[float]) -> float:
    try:
        return math.fsum(values)
    except OverflowError:
        return _bounded(sum(value / len(values) for value in values) * len(values))


def _bounded(total: float) -> float:
    return min(max(total, -_LARGEST), _LARGEST)


@dataclass(frozen=True, slots=True)
class Keep:
    """How long a metric is kept, in seconds from when it was true; infinite: for ever.

    ``raw``: whole; ``hourly`` and ``daily``: as roll-ups of hours, then of days.
    """

    raw_s: float = math.inf
    hourly_s: float = math.inf
    daily_s: float = math.inf


@dataclass(frozen=True, slots=True)
class Retention:
    """What holds for each metric: the first pattern that matches, else ``default``. What others
    rely on (:data:`STAYS`) is kept for ever unless its own name is among them."""

    default: Keep = Keep()
    metrics: tuple[tuple[str, Keep], ...] = ()

    def of(self, metric: str) -> Keep:
        """What holds for a metric."""
        if metric in STAYS:
            return dict(self.metrics).get(metric, Keep())
        return next(
            (keep for pattern, keep in self.metrics if fnmatchcase(metric, pattern)), self.default
        )


def retention_from_dict(data: Mapping[str, Any], where: str = "monitoring.retention") -> Retention:
    """Section ``monitoring.retention``: ``{default: {raw: 90 d, hourly: 2 y, daily: forever},
    METRIC: {...}}``. What an entry does not say, the default says, and what that does not say is
    kept for ever. Raises InputError."""
    for name in data:
        if not isinstance(name, str) or not (name.startswith("custom:") or "*" in name):
            fields.known_keys({name: None}, ["default", *UNITS, "custom:*"], where)
    default = _keep(data.get("default", {}), f"{where}.default", Keep())
    entries = [
        (metric, _keep(entry, f"{where}.{metric}", default))
        for metric, entry in data.items()
        if metric != "default"
    ]
    # A name before a pattern, whatever their order.
    entries.sort(key=lambda entry: "*" in entry[0])
    return Retention(default, tuple(entries))


def _keep(entry: object, where: str, default: Keep) -> Keep:
    if not isinstance(entry, Mapping):
        raise InputError(f"{where}: found {entry!r:.80}, expected raw, hourly and daily")
    for key in entry:
        if key not in _KEYS:
            raise InputError(f"{where}: unknown key {key!r:.80}, expected {', '.join(_KEYS)}")
    given = {f"{key}_s": _time(entry[key], f"{where}.{key}") for key in _KEYS if key in entry}
    keep = replace(default, **given)
    if keep.raw_s < HOUR_S:
        raise InputError(f"{where}.raw: found {entry['raw']!r}, expected an hour or more")
    return replace(
        keep,
        hourly_s=max(keep.hourly_s, keep.raw_s) if "hourly" not in entry else keep.hourly_s,
        daily_s=max(keep.daily_s, keep.hourly_s) if "daily" not in entry else keep.daily_s,
    )


def _time(value: object, where: str) -> float:
    if value == _FOR_EVER:
        return math.inf
    try:
        seconds = parse_duration(value, where)
    except InputError:
        raise InputError(
            f"{where}: found {value!r:.80}, expected a time such as '90 d', '2 y', or 'forever'"
        ) from None
    if seconds < 0:
        raise InputError(f"{where}: found {value!r:.80}, expected a time that is not negative")
    return seconds


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
        counted = [(-_value(b), n) for b, n in sorted(self.negative.items(), reverse=True)]
        if self.zeros:
            counted.append((0.0, self.zeros))
        return counted + [(_value(b), n) for b, n in sorted(self.positive.items())]

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
