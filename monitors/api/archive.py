"""``/v1/measurements``: what was measured, and the newest of what is measured again and again for
Prometheus. Times are Unix seconds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from pydantic import Field

from monitors.archive.archive import Archive, ArchiveError, Cursor, Measurement, Selection
from monitors.base.measurement import (
    LONGEST,
    MOST_DETAILS,
    anonymous_source,
    check_believable,
    check_sendable,
)
from monitors.recording import own
from monitors.rules import Rules
from network_provisioner.access import May
from network_provisioner.api import answers
from network_provisioner.api.callers import Caller
from network_provisioner.api.metrics import SCRAPING
from network_provisioner.api.shapes import MOST, Answer, Body
from network_provisioner.base.errors import BrokerError, InputError

MOST_LISTED = 10_000
MOST_SENT = 5000
# What sites, paths and the pool are like. What belongs to somebody's workflow is not told to whom
# a scraper tells it; ``workflows`` counts them.
SHOWN = (
    "throughput", "path_throughput", "transfer_latency", "tcp_throughput", "udp_throughput", "rtt",
    "loss", "one_way_delay", "jitter", "hops", "cpu_use", "memory_use", "io_wait", "disk_io",
    "free_space", "queue_wait", "compute_rate", "runtime", "pool_slots", "pool_busy", "pool_demand",
)  # fmt: skip
MOST_SUBJECTS = 1000
RECENT_S = 86400.0
_CUSTOM = "custom:"
_LOOKS = 8  # pages that are looked at to fill one with what the caller may see

Names = Annotated[list[str], Query(max_length=1000, description="may be given several times")]
Name = Annotated[str | None, Query(max_length=1000)]
Instant = Annotated[float | None, Query(ge=0, le=MOST, description="Unix seconds")]
Number = Annotated[float, Field(ge=-1e300, le=1e300)]
Moment = Annotated[float, Field(ge=0, le=MOST)]


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


def router(archive: Archive, rules: Rules, clock: Callable[[], float]) -> APIRouter:
    """The routes. ``clock`` gives Unix seconds. Every one raises BrokerError for what it refuses,
    ArchiveError where the archive cannot be read or written just now."""
    routes = APIRouter(tags=["measurements"])

    @routes.post("/v1/measurements", response_model=RecordedAnswer)
    def record_measurements(body: MeasurementsBody, caller: Caller) -> Response:
        """Record measurements, each once however often it is sent: all of them, or none where one
        cannot be taken. An agent may record what it is an end of, a researcher what belongs to its
        own workflows."""
        sent = [measurement.measurement() for measurement in body.measurements]
        for measurement in sent:
            check_sendable(measurement)
            check_believable(measurement, clock())
        recorded = archive.record_many(own(caller, sent, archive.get))
        return answers.answer({"recorded": recorded, "known": len(sent) - recorded})

    @routes.get("/v1/measurements", response_model=PageAnswer)
    def list_measurements(
        caller: Caller,
        metric: Names = [],  # noqa: B006  # pydantic copies it
        subject: Name = None,
        workflow: Name = None,
        source: Name = None,
        since: Instant = None,
        until: Instant = None,
        order: Literal["newest", "oldest"] = "oldest",
        limit: Annotated[int, Query(ge=1, le=MOST_LISTED)] = 1000,
        cursor: Annotated[str | None, Query(max_length=100)] = None,
    ) -> Response:
        """Measurements of metrics or a workflow that are all of this, by time, as far as the caller
        may see them. Pass ``next`` as ``cursor`` for those that follow."""
        caller.need(May.SEE)
        if not metric and workflow is None:  # every page would look through everything there is
            raise InputError("found no metric and no workflow, expected one of them")
        selection = Selection(tuple(metric), subject, workflow, source, since, until)
        measurements, following = _page(
            archive,
            selection,
            _cursor(cursor),
            order == "newest",
            limit,
            lambda measurement: rules.may_see(caller, measurement),
        )
        return answers.answer(
            {
                "measurements": [measurement.as_dict() for measurement in measurements],
                "next": following,
            }
        )

    @routes.get("/v1/measurements/latest", response_model=LatestAnswer)
    def list_latest(
        caller: Caller,
        metric: Annotated[str, Query(max_length=200)],
        subject: Names = [],  # noqa: B006
    ) -> Response:
        """The newest measurement of each subject, or of those named, by subject."""
        caller.need(May.SEE)
        latest = archive.latest(metric, subject or None)
        visible = [
            measurement.as_dict()
            for _, measurement in sorted(latest.items())
            if rules.may_see(caller, measurement)
        ]
        return answers.answer({"measurements": visible})

    @routes.get("/v1/measurements/series", response_model=SeriesListAnswer)
    def list_series(caller: Caller, metric: Names = []) -> Response:  # noqa: B006
        """Which metrics there are, or of those named, and what was measured of each."""
        caller.need(May.SEE)
        series = []
        for name in metric or archive.metrics():
            subjects = [s for s in archive.subjects(name) if rules.may_see_series(caller, name, s)]
            if subjects:
                series.append({"metric": name, "subjects": subjects})
        return answers.answer({"series": series})

    @routes.get("/v1/measurements/by-id/{measurement_id:path}", response_model=Measurement)
    def get_measurement(measurement_id: str, caller: Caller) -> Response:
        """One measurement."""
        caller.need(May.SEE)
        measurement = archive.get(measurement_id)
        # Whether there is one is for those alone who may see it.
        if measurement is None or not rules.may_see(caller, measurement):
            raise BrokerError(f"unknown measurement {measurement_id!r:.200}", "unknown_measurement")
        return answers.answer(measurement.as_dict())

    return routes


def read_cursor(cursor: str, kind: str) -> tuple[float, str]:
    """The Unix second and the id of the last of a page, from ``SECOND:ID``; ``kind`` names what
    is listed. Raises InputError."""
    second, _, key = cursor.partition(":")
    try:
        return float(second), key
    except ValueError:
        raise InputError(f"cursor: found {cursor!r:.100}, expected SECOND:ID of {kind}") from None


def _cursor(text: str | None) -> Cursor | None:
    try:
        return None if text is None else Cursor.parse(text)
    except ValueError:
        raise InputError(f"cursor: found {text!r:.100}, expected one that was answered") from None


def _page(
    archive: Archive,
    selection: Selection,
    behind: Cursor | None,
    newest: bool,
    limit: int,
    visible: Callable[[Measurement], bool],
) -> tuple[Sequence[Measurement], str | None]:
    """Up to ``limit`` visible ones, and where to go on; fewer where most cannot be seen."""
    taken: list[Measurement] = []
    cursor = behind
    for _ in range(_LOOKS):
        looked = archive.page(selection, cursor, newest=newest, limit=limit)
        for place, measurement in looked:
            cursor = place
            if visible(measurement):
                taken.append(measurement)
                if len(taken) == limit:
                    return taken, str(place)
        if len(looked) < limit:
            return taken, None
    return taken, str(cursor)


class ArchiveMetrics:
    """The archive for Prometheus, which asks when it scrapes; all names begin with ``adon_``. Shows
    what is at most a day old: what nobody measures any more is absent, as Prometheus wants
    it."""

    def __init__(self, archive: Archive, rules: Rules, clock: Callable[[], float]) -> None:
        self._archive, self._rules, self._clock = archive, rules, clock

    def describe(self) -> list[Metric]:
        """Nothing is asked of the archive before the first scrape."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Called by the library. ``adon_archive_up`` is 0 where the archive cannot be read now."""
        up = GaugeMetricFamily("adon_archive_up", "Whether the archive of measurements answers.")
        metrics: list[Metric] = []
        with suppress(ArchiveError):
            oldest = self._clock() - RECENT_S
            metrics = [*self._newest(oldest), self._workflows(oldest), self._recorded()]
        up.add_metric([], 1.0 if metrics else 0.0)
        yield up
        yield from metrics

    def _recorded(self) -> Metric:
        return CounterMetricFamily(
            "adon_archive_measurements",
            "Number of the newest measurement: how many were recorded.",
            value=self._archive.latest_seq(),
        )

    def _newest(self, oldest: float) -> list[Metric]:
        labels = ["metric", "subject", "unit", "source"]
        value = GaugeMetricFamily(
            "adon_measurement", "Newest value of a metric of a subject, in its unit.", labels=labels
        )
        at = GaugeMetricFamily(
            "adon_measurement_time_seconds", "When it was measured, Unix seconds.", labels=labels
        )
        for metric in self._archive.metrics():
            if metric not in SHOWN and not metric.startswith(_CUSTOM):
                continue
            newest = self._archive.latest(metric).values()
            shown = (m for m in newest if m.at >= oldest and self._may_see(m))
            for measurement in islice(shown, MOST_SUBJECTS):
                names = [
                    measurement.metric,
                    measurement.subject,
                    measurement.unit,
                    anonymous_source(measurement.source),
                ]
                value.add_metric(names, measurement.value)
                at.add_metric(names, measurement.at)
        return [value, at]

    def _may_see(self, measurement: Measurement) -> bool:
        who = SCRAPING.get()
        return who is None or self._rules.may_see_series(
            who, measurement.metric, measurement.subject
        )

    def _workflows(self, oldest: float) -> Metric:
        states = GaugeMetricFamily(
            "adon_workflows", "Workflows by state, of those that changed lately.", labels=["state"]
        )
        latest = self._archive.latest("status").values()
        counts = Counter(str(m.details.get("state", "unknown")) for m in latest if m.at >= oldest)
        for state, count in sorted(counts.items()):
            states.add_metric([state], count)
        return states
