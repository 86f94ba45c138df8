"""Measurements as they are sent and answered. Times are Unix seconds."""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated, Any

from pydantic import Field

from monitors.base.estimates import Estimate
from monitors.base.measurement import LONGEST, MOST_DETAILS, Measurement
from network_provisioner.api.shapes import MOST, Answer, Body

Number = Annotated[float, Field(ge=-1e300, le=1e300)]
Moment = Annotated[float, Field(ge=0, le=MOST)]
MOST_SENT = 5000
_FIELDS = tuple(field.name for field in fields(Measurement))


class MeasurementBody(Body):
    """One thing that was measured. ``id`` is the sender's, and taken once."""

    id: str = Field(min_length=1, max_length=LONGEST["id"], examples=["rtt:campus-1"])
    metric: str = Field(min_length=1, max_length=LONGEST["metric"], examples=["rtt"])
    subject: str = Field(max_length=LONGEST["subject"], examples=["mu>tacc"])
    value: Number = Field(examples=[0.053])
    unit: str = Field(max_length=LONGEST["unit"], examples=["s"])
    at: Moment = Field(description="when it was true", examples=[1000000.0])
    source: str = Field(max_length=LONGEST["source"], examples=["ping"])
    workflow: str = Field(default="", max_length=LONGEST["workflow"])
    details: dict[str, Any] = Field(
        default_factory=dict, description=f"at most {MOST_DETAILS} characters of JSON"
    )

    def measurement(self) -> Measurement:
        """As the archive takes it."""
        return Measurement(**dict(self))


class MeasurementsBody(Body):
    """Several, recorded all or, where one cannot be, none."""

    measurements: Annotated[list[MeasurementBody], Field(max_length=MOST_SENT)]


class RecordedAnswer(Answer):
    """How many were recorded; ``known`` counts those whose id was there already, and those older
    than what the archive keeps."""

    recorded: int
    known: int


class PageAnswer(Answer):
    """Measurements, and what to pass as ``cursor`` for those that follow; null where none do."""

    measurements: list[Measurement]
    next: str | None


class LatestAnswer(Answer):
    """The newest measurement of each subject."""

    measurements: list[Measurement]


class SeriesAnswer(Answer):
    """A metric and what it was measured of."""

    metric: str
    subjects: list[str]


class SeriesListAnswer(Answer):
    """All metrics."""

    series: list[SeriesAnswer]


class EstimateAnswer(Answer):
    """What is known of a subject: ``spread`` is comparable to a standard deviation, ``count`` how
    many measurements it rests on, ``at`` when the newest was made and ``age_s`` how long ago that
    was, ``metric`` what was measured."""

    metric: str
    subject: str
    value: float
    spread: float
    unit: str
    count: int
    at: float
    age_s: float
    source: str


class EstimatesBody(Body):
    """What is to be decided on: sites, with all paths between them, and transformations."""

    sites: Annotated[list[str], Field(max_length=1000)] = Field(examples=[["mu", "tacc"]])
    transformations: Annotated[list[str], Field(max_length=10_000)] = Field(
        default_factory=list, examples=[["soykb::bwa_mem:1.0"]]
    )


class KnownAnswer(EstimateAnswer):
    """An estimate of what a decision reads; ``note`` says where something else was measured."""

    note: str


class EstimatesAnswer(Answer):
    """All that is known and may be seen."""

    estimates: list[KnownAnswer]


class RollUpAnswer(Answer):
    """What an hour or a day had, from ``start`` on, ``width_s`` long; ``quantiles`` within 1 %."""

    metric: str
    subject: str
    unit: str
    start: float
    width_s: int
    count: int
    min: float
    mean: float
    median: float
    max: float
    quantiles: dict[str, float]


class RollUpsAnswer(Answer):
    """Oldest first."""

    rollups: list[RollUpAnswer]


def shown(measurement: Measurement) -> dict[str, Any]:
    """JSON-ready."""
    return {name: getattr(measurement, name) for name in _FIELDS} | {
        "details": dict(measurement.details)
    }


def shown_estimate(metric: str, subject: str, estimate: Estimate, now: float) -> dict[str, Any]:
    """As :class:`EstimateAnswer`."""
    known = {field.name: getattr(estimate, field.name) for field in fields(Estimate)}
    return known | {"metric": metric, "subject": subject, "age_s": estimate.age_s(now)}
