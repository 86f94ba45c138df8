"""``/v1/anomalies``: what was noticed, and what measurements are judged by."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response

from monitors.alerts.anomalies.model import (
    END,
    METRIC,
    Anomaly,
    SeriesLimits,
    from_measurement,
    together,
)
from monitors.api.archive import read_cursor
from monitors.archive.archive import Archive, Cursor, Selection
from monitors.base.measurement import Measurement
from monitors.rules import Rules
from network_provisioner.access import May
from network_provisioner.api import answers
from network_provisioner.api.callers import Caller
from network_provisioner.api.shapes import MOST, Answer
from network_provisioner.base.errors import BrokerError

_MOST_LISTED = 1000
_PAGE = 5000  # measurements that are read at once

Name = Annotated[str | None, Query(max_length=1000)]
Instant = Annotated[float | None, Query(ge=0, le=MOST, description="Unix seconds")]
LimitsOf = Callable[[str, str], Mapping[str, SeriesLimits]]
"""The limits of a metric and subject now, by the source of the measurements."""


class AnomaliesAnswer(Answer):
    """Anomalies, the latest first, by when they began."""

    anomalies: list[Anomaly]


@dataclass(frozen=True, slots=True)
class SourceLimits(SeriesLimits):
    """What the measurements of one source are judged by."""

    source: str


class ExplainAnswer(Answer):
    """The limits of a series, for each source."""

    metric: str
    subject: str
    limits: list[SourceLimits]


def router(archive: Archive, rules: Rules, limits_of: LimitsOf) -> APIRouter:
    """The routes. They raise BrokerError for what they refuse, ArchiveError where the archive
    cannot be read just now."""
    routes = APIRouter(tags=["anomalies"])

    @routes.get("/v1/anomalies", response_model=AnomaliesAnswer)
    def list_anomalies(
        caller: Caller,
        metric: Name = None,
        subject: Name = None,
        kind: Literal["level", "dip", "outage"] | None = None,
        since: Instant = None,
        until: Instant = None,
        limit: Annotated[int, Query(ge=1, le=_MOST_LISTED)] = 100,
        cursor: Annotated[
            str | None,
            Query(max_length=1100, description="SINCE:ID of the last of the page before"),
        ] = None,
    ) -> Response:
        """Anomalies that began or ended in a period, as far as the caller may see what was
        measured. For the next page, pass ``since`` and ``id`` of the last as ``cursor``; a page of
        fewer than ``limit`` is the last."""
        caller.need(May.SEE)
        began, key = (math.inf, "") if cursor is None else read_cursor(cursor, "an anomaly")
        selection = Selection((METRIC,), subject, since=since, until=until)

        def matching(anomaly: Anomaly) -> bool:
            return (
                metric in (None, anomaly.metric)
                and kind in (None, anomaly.kind)
                and (anomaly.since, anomaly.id) < (began, key)
            )

        seen: list[Measurement] = []
        behind: Cursor | None = None
        while True:
            page = archive.page(selection, behind, newest=True, limit=_PAGE)
            records = [measurement for _, measurement in page]
            if until is not None:  # an anomaly may have ended later
                records += archive.those([record.id + END for record in records]).values()
            seen += (record for record in records if rules.may_see(caller, record))
            chosen = list(filter(matching, reversed(together(seen))))
            if len(page) < _PAGE:
                break
            behind = page[-1][0]
            # What began before is not all read yet.
            chosen = [anomaly for anomaly in chosen if anomaly.since > behind.at]
            if len(chosen) >= limit:
                break
        return answers.answer({"anomalies": [asdict(anomaly) for anomaly in chosen[:limit]]})

    @routes.get("/v1/anomalies/limits", response_model=ExplainAnswer)
    def explain_limits(
        caller: Caller,
        metric: Annotated[str, Query(max_length=200)],
        subject: Annotated[str, Query(max_length=1000)],
    ) -> Response:
        """What measurements of a series are judged by now, and why."""
        caller.need(May.SEE)
        series_limits: Mapping[str, SeriesLimits] = {}
        if rules.may_see_series(caller, metric, subject):
            series_limits = limits_of(metric, subject)
        if not series_limits:
            raise BrokerError(
                f"no measurements of {metric!r:.200} of {subject!r:.200} are watched",
                "unknown_measurement",
            )
        answer: dict[str, Any] = {"metric": metric, "subject": subject}
        answer["limits"] = [
            {"source": source, **asdict(series)} for source, series in sorted(series_limits.items())
        ]
        return answers.answer(answer)

    @routes.get("/v1/anomalies/{anomaly_id:path}", response_model=Anomaly)
    def get_anomaly(anomaly_id: str, caller: Caller) -> Response:
        """One anomaly."""
        caller.need(May.SEE)
        begun = archive.get(anomaly_id)
        if begun is None or from_measurement(begun) is None or not rules.may_see(caller, begun):
            raise BrokerError(f"unknown anomaly {anomaly_id!r:.200}", "unknown_anomaly")
        ended = archive.get(anomaly_id + END)
        (anomaly,) = together([begun] + ([ended] if ended is not None else []))
        return answers.answer(asdict(anomaly))

    return routes
