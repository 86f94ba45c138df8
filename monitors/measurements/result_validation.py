"""What a result may say: whether what an agent sent is about a run that it was given, and nothing
that it was not asked to measure.

An agent is trusted for its own part alone. A stolen token of one agent so spoils measurements of
its own ends at the time of their runs, and no others.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from reprlib import repr as shown
from typing import Any

from monitors.archive.measurement import UNITS, Measurement, check_sendable, to_row
from monitors.measurements.probes.tools import gives
from monitors.measurements.runs import Part, Run, State
from network_provisioner.base.errors import InputError

SLACK_S = 2.0
"""How far outside of its run a measurement may say that it was true."""
MOST_MEASUREMENTS = 20  # of one result; no tool has more metrics than that
_LONGEST_ERROR = 500  # characters
_LONGEST_METRIC = 200
_SHARES = ("loss", "cpu_use", "memory_use", "io_wait")
_KEYS = {"assignment", "task", "started", "ended", "measurements", "error"}
_MEASUREMENT_KEYS = {
    "id", "metric", "subject", "value", "unit", "at", "source", "workflow", "details",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ValidResult:
    """What is believed: the measurements to record, or why there are none."""

    measurements: tuple[Measurement, ...]
    error: str


def validated(data: Mapping[str, Any], run: Run, part: Part, now_ms: int) -> ValidResult:
    """A result (docs/agents.md) about ``part`` of ``run``, that came at ``now_ms`` (Unix time).

    Raises InputError that says what it may not say; such a result is never taken.
    """
    if run.state is State.DROPPED and not part.told:
        raise InputError("this run was taken back before anybody was told of it")
    _only(data, _KEYS, "the result")
    if data.get("task", run.task) != run.task:
        raise InputError(f"found task {shown(data['task'])}, expected {run.task!r}")
    for key in ("started", "ended"):
        _number(data.get(key, 0.0), key)
    error = data.get("error", "")
    if not isinstance(error, str):
        raise InputError(f"found error {shown(error)}, expected a text")
    items = data.get("measurements", [])
    if not isinstance(items, list) or len(items) > MOST_MEASUREMENTS:
        raise InputError(
            f"found {shown(items)}, expected a list of at most {MOST_MEASUREMENTS} measurements"
        )
    if items and not part.measures:
        raise InputError("the server of a run measures nothing, its client does")
    if items and now_ms / 1000 < run.at_ms / 1000 - SLACK_S:
        raise InputError("found measurements of a run that has not begun")
    measurements = tuple(_measurement(item, run, part) for item in items)
    if len({m.id for m in measurements}) < len(measurements):
        raise InputError("found a metric twice, expected each once")
    if error and measurements:
        raise InputError("found measurements beside an error, expected one of both")
    if not error and not measurements and part.measures:
        error = "the agent sent neither a measurement nor a reason"
    return ValidResult(measurements, " ".join(error.split())[:_LONGEST_ERROR])


def _measurement(item: object, run: Run, part: Part) -> Measurement:
    if not isinstance(item, dict):
        raise InputError(f"found {shown(item)}, expected a measurement")
    _only(item, _MEASUREMENT_KEYS, "a measurement")
    metric = item.get("metric")
    if not isinstance(metric, str) or len(metric) > _LONGEST_METRIC or not gives(run.tool, metric):
        raise InputError(f"found metric {shown(metric)}, which {run.tool} does not measure")
    unit = item.get("unit")
    if not isinstance(unit, str):
        raise InputError(f"{metric}: found unit {shown(unit)}, expected a text")
    if metric in UNITS and unit != UNITS[metric]:
        raise InputError(f"{metric}: found unit {shown(unit)}, expected {UNITS[metric]!r}")
    expected = {
        "id": f"{metric}:{run.id}",
        "subject": run.subject,
        "source": f"agent:{part.agent}",
        "workflow": "",
    }
    for key, right in expected.items():
        if item.get(key, right) != right:
            raise InputError(f"{metric}: found {key} {shown(item[key])}, expected {right!r}")
    value = _value(item.get("value"), metric)
    at = _number(item.get("at"), f"{metric}: at")
    first, last = run.at_ms / 1000 - SLACK_S, run.end_ms / 1000 + SLACK_S
    if not first <= at <= last:
        raise InputError(f"{metric}: found at {at:.3f}, expected {first:.3f} to {last:.3f}")
    details = item.get("details", {})
    if not isinstance(details, dict):
        raise InputError(f"{metric}: found details {shown(details)}, expected an object")
    found = Measurement(
        expected["id"], metric, run.subject, value, unit, at, expected["source"], "", details
    )
    check_sendable(found)
    to_row(found)  # what the archive does not take is refused here, and costs no other result
    known = {**details, "task": run.task, **({"demanded": run.demanded} if run.demanded else {})}
    return replace(found, details=known)


def _value(found: object, metric: str) -> float:
    value = _number(found, f"{metric}: value")
    if metric in _SHARES and not 0 <= value <= 1:
        raise InputError(f"{metric}: found {value!r}, expected 0 to 1")
    if value < 0 and metric in UNITS and metric != "one_way_delay":
        raise InputError(f"{metric}: found {value!r}, expected 0 or more")
    return value


def _number(found: object, what: str) -> float:
    if isinstance(found, int | float) and not isinstance(found, bool):
        try:
            value = float(found)
        except OverflowError:
            value = math.inf
        if math.isfinite(value):
            return value
    raise InputError(f"{what}: found {shown(found)}, expected a finite number")


def _only(data: Mapping[str, Any], known: set[str], what: str) -> None:
    strange = [key for key in data if key not in known]
    if strange:
        raise InputError(f"{what} has an unknown key {shown(strange[0])}")
