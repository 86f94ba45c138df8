"""One measurement, with its unit, and how it becomes a row of the archive."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from network_provisioner.errors import InputError

COLUMNS = "id, metric, subject, value, unit, at, source, workflow, details"

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
}


@dataclass(frozen=True, slots=True)
class Measurement:
    """One thing that was measured.

    ``id`` identifies the measurement for ever, ``at`` is when it was true (Unix seconds), and
    ``value`` is in ``unit``. ``details`` must be JSON-ready.
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


def to_row(measurement: Measurement) -> tuple[object, ...]:
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
    try:
        details = json.dumps(dict(measurement.details)) if measurement.details else ""
    except (TypeError, ValueError) as error:
        raise InputError(
            f"measurement {measurement.id}: its details are not JSON-ready: {error}"
        ) from error
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


def from_row(row: tuple[Any, ...]) -> Measurement:
    """The inverse of :func:`to_row`."""
    key, metric, subject, value, unit, at, source, workflow, details = row
    known = json.loads(details) if details else {}
    return Measurement(key, metric, subject, value, unit, at, source, workflow, known)
