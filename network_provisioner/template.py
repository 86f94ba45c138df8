"""Templates: what an application needs from the network, and how its paths are judged.

A template holds (thesis, §3.1 and §3.3):

    QSpec     what the application needs at least: throughput, and limits for delay, jitter, loss
    RSpec     what it may have at most: the ceiling of its throughput
    weights   W, how much each metric counts in Q = Σ w_i·s_i; scaled here to add up to 1
    tables    metric value -> score, 0 to 10; linear between QSpec -> 1 and RSpec -> 10 by default

and beside them what the broker needs to serve it: priority, patience, share, tuning.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType
from typing import Any

from network_provisioner.errors import InputError
from network_provisioner.fields import known_keys
from network_provisioner.units import parse_duration, parse_rate, parse_size

METRICS = ("throughput", "delay", "jitter", "loss")
MIN_SCORE = 1.0  # of a path that just meets the QSpec (thesis, Table 2)
MAX_SCORE = 10.0  # of a path that gives all that the RSpec allows (thesis, Table 2)

Table = tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class QSpec:
    """The least quality that is useful. ``max_delay_s`` is a round-trip time, ``max_loss`` a
    fraction; None sets no limit."""

    min_bps: float
    max_delay_s: float | None = None
    max_jitter_s: float | None = None
    max_loss: float | None = None

    def limit(self, metric: str) -> float | None:
        """The most that is allowed of delay, jitter or loss; None where nothing was said."""
        limits = {"delay": self.max_delay_s, "jitter": self.max_jitter_s, "loss": self.max_loss}
        return limits.get(metric)


@dataclass(frozen=True, slots=True)
class RSpec:
    """The most the application may take."""

    max_bps: float


@dataclass(frozen=True, slots=True)
class Tuning:
    """What worked for the transfer itself: parallel TCP streams, buffer of each in bytes."""

    streams: int = 4
    buffer_bytes: int = 1 << 20


@dataclass(frozen=True, slots=True)
class Template:
    """One application's needs. Built by :func:`template_from_dict`, which validates.

    ``patience_s``        how long a request may wait in the queue before it goes best effort
    ``break_even_bytes``  transfers smaller than this end before a circuit would pay off
    ``share``             the part of a path's free bandwidth one transit is granted at once, so
                          that the first does not take the whole link; 1 lets it
    ``max_age_s``         a measurement older than this counts as missing
    """

    name: str
    qspec: QSpec
    rspec: RSpec
    weights: Mapping[str, float]
    tables: Mapping[str, Table]
    version: int = 1
    priority: int = 0
    patience_s: float = 20.0
    break_even_bytes: int = 256 * 1024
    share: float = 0.5
    max_age_s: float = 900.0
    tuning: Tuning = Tuning()

    def score(
        self,
        metric: str,
        value: float,
        min_bps: float | None = None,
        max_bps: float | None = None,
    ) -> float:
        """The score s_i of a metric's value, 0 to 10 (thesis, Algorithm 3 and Table 2).

        The template's own table where it has one. Otherwise linear: throughput scores 1 at
        ``min_bps`` and 10 at ``max_bps`` (both default to QSpec and RSpec); delay, jitter and loss
        score 1 at the QSpec's limit and 10 at zero. What misses the QSpec scores 0.
        """
        table = self.tables.get(metric)
        if table is not None:
            return interpolate(table, value)
        if metric == "throughput":
            low = self.qspec.min_bps if min_bps is None else min_bps
            high = self.rspec.max_bps if max_bps is None else max_bps
            return _linear(value - low, high - low)
        limit = self.qspec.limit(metric)
        if limit is None:
            return MIN_SCORE
        return _linear(limit - value, limit)


def _linear(above: float, span: float) -> float:
    """1 at ``above`` = 0, 10 at ``above`` >= ``span``, 0 below."""
    if above < 0:
        return 0.0
    if span <= 0:
        return MAX_SCORE
    return MIN_SCORE + (MAX_SCORE - MIN_SCORE) * min(1.0, above / span)


def interpolate(table: Table, value: float) -> float:
    """The score at ``value``: linear between breakpoints, constant outside them."""
    at = bisect_right(table, value, key=lambda point: point[0])
    if at == 0:
        return table[0][1]
    if at == len(table):
        return table[-1][1]
    (x0, y0), (x1, y1) = table[at - 1], table[at]
    # Clamped, because rounding must not carry a score past its breakpoints.
    between = y0 + (y1 - y0) * (value - x0) / (x1 - x0)
    return min(max(between, min(y0, y1)), max(y0, y1))


BUILT_IN: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "default": {
            "qspec": {"min_throughput": "5 Mb/s", "max_delay": "500 ms", "max_loss": 0.01},
            "rspec": {"max_throughput": "1 Gb/s"},
            "weights": {"throughput": 0.7, "delay": 0.15, "loss": 0.15},
        },
        # Bulk transfers of reads and alignments between data store, campus and HPC centre: time
        # taken counts, jitter does not (thesis, §5.2).
        "soykb": {
            "qspec": {"min_throughput": "25 Mb/s", "max_delay": "200 ms", "max_loss": 0.01},
            "rspec": {"max_throughput": "150 Mb/s"},
            "weights": {"throughput": 0.8, "delay": 0.1, "loss": 0.1},
            "priority": 5,
            "patience": "30 s",
            "tuning": {"streams": 4, "buffer": "1 MiB"},
        },
    }
)

_KEYS = (
    "version", "qspec", "rspec", "priority", "weights", "tables", "patience", "break_even",
    "share", "max_age", "tuning",
)  # fmt: skip


def templates_from_dict(data: Mapping[str, Any] | None) -> dict[str, Template]:
    """All templates by name: the built-in ones, replaced or added to by ``data`` (the
    ``templates`` section of adon.yml, name -> mapping). Raises InputError."""
    merged: dict[str, Any] = {**BUILT_IN, **_mapping({} if data is None else data, "templates")}
    return {str(name): template_from_dict(str(name), body) for name, body in merged.items()}


def template_from_dict(name: str, data: object) -> Template:
    """One template from plain data; quantities carry units. Raises InputError.

    ``{version?, qspec: {min_throughput, max_delay?, max_jitter?, max_loss?},
    rspec: {max_throughput}, priority?, weights?: {metric: w}, tables?: {metric: [[value, score]]},
    patience?, break_even?, share?, max_age?, tuning?: {streams?, buffer?}}``
    """
    label = f"template {name!r}"
    body = _section({"t": data}, "t", _KEYS, label)
    qspec = _qspec(body, label)
    ceiling = _section(body, "rspec", ("max_throughput",), f"{label}: rspec")
    if "max_throughput" not in ceiling:
        raise InputError(f"{label}: rspec has no 'max_throughput', expected for example '1 Gb/s'")
    max_bps = parse_rate(ceiling["max_throughput"], f"{label}: rspec.max_throughput")
    if max_bps < qspec.min_bps:
        raise InputError(
            f"{label}: rspec.max_throughput {max_bps:g} b/s is below qspec.min_throughput "
            f"{qspec.min_bps:g} b/s"
        )
    tables = _tables(body, label)
    tuning = _section(body, "tuning", ("streams", "buffer"), f"{label}: tuning")
    default = Template.__dataclass_fields__
    return Template(
        name=name,
        qspec=qspec,
        rspec=RSpec(max_bps),
        weights=_weights(body, qspec, tables, label),
        tables=tables,
        version=_integer(body.get("version", 1), f"{label}: version", 1),
        priority=_integer(body.get("priority", 0), f"{label}: priority", 0),
        patience_s=parse_duration(
            body.get("patience", default["patience_s"].default), f"{label}: patience"
        ),
        break_even_bytes=parse_size(
            body.get("break_even", default["break_even_bytes"].default), f"{label}: break_even"
        ),
        share=_fraction(body.get("share", default["share"].default), f"{label}: share"),
        max_age_s=parse_duration(
            body.get("max_age", default["max_age_s"].default), f"{label}: max_age"
        ),
        tuning=Tuning(
            _integer(tuning.get("streams", Tuning().streams), f"{label}: tuning.streams", 1),
            parse_size(tuning.get("buffer", Tuning().buffer_bytes), f"{label}: tuning.buffer"),
        ),
    )


def _qspec(body: Mapping[str, Any], label: str) -> QSpec:
    keys = ("min_throughput", "max_delay", "max_jitter", "max_loss")
    spec = _section(body, "qspec", keys, f"{label}: qspec")
    if "min_throughput" not in spec:
        raise InputError(f"{label}: qspec has no 'min_throughput', expected for example '25 Mb/s'")
    min_bps = parse_rate(spec["min_throughput"], f"{label}: qspec.min_throughput")
    if min_bps <= 0:
        raise InputError(f"{label}: qspec.min_throughput is 0, expected more than 0 b/s")

    def seconds(key: str) -> float | None:
        return None if key not in spec else parse_duration(spec[key], f"{label}: qspec.{key}")

    loss = spec.get("max_loss")
    if loss is not None:
        loss = _number(loss, f"{label}: qspec.max_loss", "a fraction in [0, 1)")
        if not 0 <= loss < 1:
            raise InputError(f"{label}: qspec.max_loss is {loss!r}, expected a fraction in [0, 1)")
    return QSpec(min_bps, seconds("max_delay"), seconds("max_jitter"), loss)


def _tables(body: Mapping[str, Any], label: str) -> Mapping[str, Table]:
    tables = {}
    for metric, points in _section(body, "tables", METRICS, f"{label}: tables").items():
        what = f"{label}: tables.{metric}"
        if not isinstance(points, list | tuple) or not points:
            raise InputError(f"{what} is {points!r}, expected a list of [value, score]")
        tables[metric] = tuple(_point(point, metric, what) for point in points)
        values = [v for v, _ in tables[metric]]
        scores = [s if metric == "throughput" else -s for _, s in tables[metric]]
        if any(b <= a for a, b in pairwise(values)):
            raise InputError(f"{what}: values {values!r}, expected them to rise")
        if any(b < a for a, b in pairwise(scores)):
            better = "rise" if metric == "throughput" else "fall"
            raise InputError(f"{what}: scores must {better} as the value rises, found {points!r}")
    return MappingProxyType(tables)


def _point(point: object, metric: str, what: str) -> tuple[float, float]:
    if not isinstance(point, list | tuple) or len(point) != 2:
        raise InputError(f"{what}: found {point!r}, expected [value, score]")
    value, score = point
    if metric == "throughput":
        x = parse_rate(value, what)
    elif metric == "loss":
        x = _number(value, what, "a fraction")
    else:
        x = parse_duration(value, what)
    y = _number(score, what, "a score from 0 to 10")
    if not 0 <= y <= MAX_SCORE:
        raise InputError(f"{what}: score {score!r}, expected a number from 0 to 10")
    return x, y


def _weights(
    body: Mapping[str, Any], qspec: QSpec, tables: Mapping[str, Table], label: str
) -> Mapping[str, float]:
    given = _section(body, "weights", METRICS, f"{label}: weights") or {"throughput": 1.0}
    weights = {m: _number(w, f"{label}: weights.{m}", "0 or more") for m, w in given.items()}
    total = sum(weights.values())
    if any(w < 0 for w in weights.values()) or not 0 < total < math.inf:
        raise InputError(f"{label}: weights {weights!r}, expected 0 or more, not all of them 0")
    for metric, weight in weights.items():
        scored = metric == "throughput" or metric in tables or qspec.limit(metric) is not None
        if weight > 0 and not scored:
            raise InputError(
                f"{label}: weights.{metric} counts, but nothing says how to score it: expected "
                f"qspec.max_{metric} or tables.{metric}"
            )
    return MappingProxyType({m: w / total for m, w in weights.items() if w > 0})


def _mapping(value: object, what: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise InputError(f"{what} is {value!r}, expected a mapping")
    return value


def _section(
    body: Mapping[str, Any], key: str, known: tuple[str, ...], what: str
) -> Mapping[str, Any]:
    section = _mapping(body.get(key, {}), what)
    known_keys(section, known, what)
    return section


_LARGEST = 1e300


def _number(value: object, what: str, expected: str) -> float:
    # Compared, not converted: a whole number in YAML can be larger than any float.
    if isinstance(value, bool) or not isinstance(value, int | float) or not -1e99 < value < 1e99:
        raise InputError(f"{what} is {value!r}, expected {expected}")
    return float(value)


def _integer(value: object, what: str, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InputError(f"{what} is {value!r}, expected a whole number, {least} or more")
    return value


def _fraction(value: object, what: str) -> float:
    number = _number(value, what, "a fraction in (0, 1]")
    if not 0 < number <= 1:
        raise InputError(f"{what} is {value!r}, expected a fraction in (0, 1]")
    return number
