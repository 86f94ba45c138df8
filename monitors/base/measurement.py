"""One measurement, with its unit, and how it becomes a row of the archive."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from network_provisioner.base.errors import InputError
from network_provisioner.base.units import MAX_DURATION_S, MAX_RATE_BPS, MAX_SIZE_BYTES

# A transfer of less than this fits into one initial TCP window of 10 segments a few times over: its
# time is connection set-up and round trips, whatever the bandwidth of the path (RFC 6928).
SMALL_BYTES = 64_000

COLUMNS = "id, metric, subject, value, unit, at, source, workflow, details"
_FIELDS = tuple(COLUMNS.split(", "))

# The unit of every metric that decisions read. Other metrics may have any unit.
UNITS = {
    "throughput": "bit/s",
    "path_throughput": "bit/s",
    "transfer_latency": "s",
    "runtime": "s",
    "compute_rate": "byte/s",
    "output_ratio": "1",
    "queue_wait": "s",
    "status": "%",
    "workflow": "1",
    "dag": "1",
    "job": "s",
    "task": "s",
    "job_transfer": "byte",
    "placement": "s",
    "transfer_setup": "s",
    "dag_overhead": "s",
    "forecast": "1",
    "belief_error": "1",
    "tcp_throughput": "bit/s",
    "udp_throughput": "bit/s",
    "rtt": "s",
    "loss": "1",
    "one_way_delay": "s",
    "jitter": "s",
    "hops": "1",
    "cpu_use": "1",
    "memory_use": "1",
    "io_wait": "1",
    "free_space": "byte",
    "disk_io": "1",
    "disk_rate": "bit/s",
    "pool_slots": "1",
    "pool_busy": "1",
    "pool_demand": "1",
    "anomaly": "1",
    "expansion": "1",
    "pool_decision": "1",
    "boot": "s",
    "machine": "s",
    "held": "1",
    "notice": "1",
    "plan": "s",
}

MOST_DETAILS = 65_536
"""Characters of JSON that the details of a measurement may have where it is sent to a broker. The
longest that ADON writes are of a failed job: 4 kB of what it said and the name of a file, of which
each byte may need six."""

LONGEST = {"id": 1000, "metric": 200, "subject": 1000, "unit": 50, "source": 200, "workflow": 1000}
"""Characters of everything else, there."""

OF_NETWORK = frozenset(
    {
        "throughput", "path_throughput", "transfer_latency", "tcp_throughput", "udp_throughput",
        "rtt", "loss", "one_way_delay", "jitter", "hops", "cpu_use", "memory_use", "io_wait",
        "free_space", "disk_io",
    }
)  # fmt: skip
"""Metrics that brokers and agents measure, and all decide by."""

_CLAIM = "transfer of "
AHEAD_S = 3600.0
"""How far ahead of our clock a measurement may say that it was true, in seconds: clocks differ."""
_MOST = {
    "bit/s": MAX_RATE_BPS, "byte/s": MAX_RATE_BPS, "s": MAX_DURATION_S, "byte": MAX_SIZE_BYTES,
}  # fmt: skip
_MOST_OF_OTHERS = 1e18
OF_WORKFLOWS = frozenset({"workflow", "dag", "status", "held"})
"""Metrics whose subject is the workflow that they belong to."""
# What was written before nulls were written for them.
_DECODER = json.JSONDecoder(parse_constant=lambda _: None)


def claimed_by(user: str) -> str:
    """The source of what ``user`` reports about a transfer and nobody confirms."""
    return f"{_CLAIM}{user}"


def anonymous_source(source: str) -> str:
    """A source without the user's name in it."""
    return _CLAIM.partition(" ")[0] if source.startswith(_CLAIM) else source


def trusted_condition(users: Collection[str]) -> tuple[str, list[object]]:
    """The SQL condition for the measurements that decisions of ``users`` use, and its values."""
    mine = [claimed_by(user) for user in users]
    marks = ", ".join("?" * len(mine)) or "NULL"
    return f"(substr(source, 1, {len(_CLAIM)}) <> ? OR source IN ({marks}))", [_CLAIM, *mine]


@dataclass(frozen=True, slots=True)
class Measurement:
    """One thing that was measured.

    ``id`` identifies the measurement for ever, ``at`` is when it was true (Unix seconds), and
    ``value`` is in ``unit``. ``details`` must be JSON-ready; a number in them that JSON does not
    have (infinite, not a number) is kept as null.
    """

    id: str
    metric: str
    subject: str
    value: float
    unit: str
    at: float
    source: str
    workflow: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {name: getattr(self, name) for name in _FIELDS} | {"details": dict(self.details)}


def to_row(measurement: Measurement) -> tuple[Any, ...]:
    """The values of :data:`COLUMNS`. Raises InputError for what the archive does not take."""
    if not measurement.id or not measurement.metric:
        raise InputError(f"measurement {measurement!r}: found no id or metric, expected both")
    if not (math.isfinite(measurement.value) and math.isfinite(measurement.at)):
        raise InputError(
            f"measurement {measurement.id}: found value {measurement.value!r} at"
            f" {measurement.at!r}, expected finite numbers"
        )
    unit = UNITS.get(measurement.metric, measurement.unit)
    if measurement.unit != unit:
        raise InputError(
            f"measurement {measurement.id}: found unit {measurement.unit!r}, expected {unit!r}"
            f" for {measurement.metric}"
        )
    texts = f"{measurement.id}{measurement.metric}{measurement.subject}{measurement.unit}"
    texts += f"{measurement.source}{measurement.workflow}"
    if not storable(texts):
        raise InputError(
            f"measurement {measurement.id!r:.200}: found characters that are no text, expected none"
        )
    details = _as_json(measurement) if measurement.details else ""
    return (
        measurement.id,
        measurement.metric,
        measurement.subject,
        float(measurement.value),
        measurement.unit,
        float(measurement.at),
        measurement.source,
        measurement.workflow,
        details,
    )


def check_sendable(measurement: Measurement) -> None:
    """Raises InputError for what no broker takes: above :data:`LONGEST`, :data:`MOST_DETAILS`."""
    for name, most in LONGEST.items():
        length = len(getattr(measurement, name))
        if length > most:
            raise InputError(
                f"measurement {measurement.id!r:.200}: found {name} of {length} characters,"
                f" expected at most {most}"
            )
    length = len(_as_json(measurement))
    if length > MOST_DETAILS:
        raise InputError(
            f"measurement {measurement.id!r:.200}: found details of {length} characters of JSON,"
            f" expected at most {MOST_DETAILS}"
        )


def check_believable(measurement: Measurement, now: float) -> None:
    """Raises InputError for an impossible value, or a time after ``now`` (Unix seconds)."""
    most = _MOST.get(measurement.unit, _MOST_OF_OTHERS)
    if not abs(measurement.value) <= most:
        raise InputError(
            f"measurement {measurement.id!r:.200}: found {measurement.value!r} {measurement.unit},"
            f" expected at most {most:g}"
        )
    if not measurement.at <= now + AHEAD_S:
        raise InputError(
            f"measurement {measurement.id!r:.200}: found the time {measurement.at!r}, which is"
            f" in the future, expected at most {now + AHEAD_S:.0f}"
        )


def believable(measurements: Iterable[Measurement], now: float) -> tuple[list[Measurement], str]:
    """Those that pass :func:`check_believable`, and why the last of the others does not, or ""."""
    taken, problem = [], ""
    for measurement in measurements:
        try:
            check_believable(measurement, now)
            taken.append(measurement)
        except InputError as error:
            problem = str(error)
    return taken, problem


def from_row(row: tuple[Any, ...]) -> Measurement:
    """The inverse of :func:`to_row`. Raises ValueError or TypeError for a damaged row."""
    key, metric, subject, value, unit, at, source, workflow, details = row
    for text in (key, subject, source, workflow, details):
        if not (text.isascii() or storable(text)):
            raise ValueError(f"{text!r:.200} is no text")
    try:
        known = _quick_decoder()(details, allow_inf_nan=False) if details else {}
    except ValueError:
        known = _DECODER.decode(details)
    return Measurement(key, metric, subject, value, unit, at, source, workflow, known)


@cache
def _quick_decoder() -> Callable[..., Any]:
    from pydantic_core import from_json  # noqa: PLC0415  # takes a while

    return from_json


def number_in(value: object, most: float = 2**53) -> float | None:
    """``value`` of foreign JSON if it is a number in [0, ``most``), else None."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < most:
        return None
    return float(value)


def storable(text: str) -> bool:
    """Whether both databases can store it: neither stores lone surrogates, PostgreSQL no NUL."""
    if "\0" in text:
        return False
    try:
        text.isascii() or text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _as_json(measurement: Measurement) -> str:
    try:
        try:
            return json.dumps(dict(measurement.details), allow_nan=False)
        except ValueError:
            readable = _DECODER.decode(json.dumps(dict(measurement.details)))
            return json.dumps(readable, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(
            f"measurement {measurement.id}: its details are not JSON-ready: {error}"
        ) from error
