"""What a result may say: whether what an agent sent is about a run that it was given, and nothing
that it was not asked to measure.

An agent is trusted for its own part alone. A stolen token of one agent so spoils measurements of
its own ends at the time of their runs, and no others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from reprlib import repr as shown
from typing import Annotated, Any

from pydantic import Field

from monitors.base.measurement import UNITS, Measurement, check_believable, check_sendable, to_row
from monitors.measurements.probes.tools import gives
from monitors.measurements.runs import AgentPart, Run, RunState
from network_provisioner.base.errors import InputError
from network_provisioner.base.schema import Number, Schema, read

SLACK_S = 2.0
"""How far outside of its run a measurement may say that it was true."""
MOST_MEASUREMENTS = 20  # of one result; no tool has more metrics than that
_LONGEST_ERROR = 500  # characters
_SHARES = ("loss", "cpu_use", "memory_use", "io_wait")


class _Measured(Schema):
    """What the run itself says may be left out, and must not say otherwise."""

    metric: Annotated[str, Field(max_length=200)]
    value: Number
    unit: str
    at: Number
    id: str | None = None
    subject: str | None = None
    source: str | None = None
    workflow: str | None = None
    details: dict[str, Any] = Field(default={})


class _Result(Schema):
    assignment: str = ""
    task: str | None = None
    started: Number = 0.0
    ended: Number = 0.0
    measurements: list[_Measured] = Field(default=[], max_length=MOST_MEASUREMENTS)
    error: str = ""


@dataclass(frozen=True, slots=True)
class ValidResult:
    """What is believed: the measurements to record, or why there are none."""

    measurements: tuple[Measurement, ...]
    error: str


def valid_result(data: Mapping[str, Any], run: Run, part: AgentPart, now_ms: int) -> ValidResult:
    """A result (docs/agents.md) about ``part`` of ``run``, that came at ``now_ms`` (Unix time).

    Raises InputError that says what it may not say; such a result is never taken.
    """
    if run.state is RunState.DROPPED and not part.told:
        raise InputError("this run was taken back before anybody was told of it")
    doc = read(_Result, data, "the result")
    if doc.task not in (None, run.task):
        raise InputError(f"found task {shown(doc.task)}, expected {run.task!r}")
    if doc.measurements and not part.measures:
        raise InputError("the server of a run measures nothing, its client does")
    if doc.measurements and now_ms / 1000 < run.at_ms / 1000 - SLACK_S:
        raise InputError("found measurements of a run that has not begun")
    measurements = tuple(_measurement(item, run, part) for item in doc.measurements)
    if len({m.id for m in measurements}) < len(measurements):
        raise InputError("found a metric twice, expected each once")
    if doc.error and measurements:
        raise InputError("found measurements beside an error, expected one of both")
    error = doc.error
    if not error and not measurements and part.measures:
        error = "the agent sent neither a measurement nor a reason"
    return ValidResult(measurements, " ".join(error.split())[:_LONGEST_ERROR])


def _measurement(item: _Measured, run: Run, part: AgentPart) -> Measurement:
    metric, value = item.metric, item.value
    if not gives(run.tool, metric):
        raise InputError(f"found metric {shown(metric)}, which {run.tool} does not measure")
    right = Measurement(
        f"{metric}:{run.id}", metric, run.subject, value, UNITS.get(metric, item.unit), item.at,
        f"agent:{part.agent}", "", item.details,
    )  # fmt: skip
    for key in ("unit", "id", "subject", "source", "workflow"):
        reported = getattr(item, key)
        if reported not in (None, getattr(right, key)):
            raise InputError(
                f"{metric}: found {key} {shown(reported)}, expected {getattr(right, key)!r}"
            )
    if metric in _SHARES and not 0 <= value <= 1:
        raise InputError(f"{metric}: found {value!r}, expected 0 to 1")
    if value < 0 and metric in UNITS and metric != "one_way_delay":
        raise InputError(f"{metric}: found {value!r}, expected 0 or more")
    first, last = run.at_ms / 1000 - SLACK_S, run.end_ms / 1000 + SLACK_S
    if not first <= item.at <= last:
        raise InputError(f"{metric}: found at {item.at:.3f}, expected {first:.3f} to {last:.3f}")
    check_sendable(right)
    check_believable(right, item.at)  # which was held against its run
    to_row(right)  # what the archive does not take is refused here, and costs no other result
    demanded = {"demanded": run.demanded} if run.demanded else {}
    return replace(right, details={**item.details, "task": run.task, **demanded})
