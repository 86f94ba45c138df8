"""Anomalies as measurements of the archive, and back.

An anomaly is recorded when it is noticed, and once more when it is over: the archive is
append-only. The two have ids that follow from the anomaly alone, so that finding it again records
nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, cast

from monitors.alerts.anomalies.model import Anomaly, Kind
from monitors.archive.measurement import Measurement

METRIC = "anomaly"
_END = ":end"


def to_measurement(anomaly: Anomaly) -> Measurement:
    """For the archive; ``at`` is when it began, or when it ended. The value is the change, relative
    or, for shares, the difference."""
    ended = anomaly.until is not None
    details: dict[str, Any] = {
        "kind": anomaly.kind,
        "metric": anomaly.metric,
        "since": anomaly.since,
        "until": anomaly.until,
        "noticed": anomaly.at,
        "before": anomaly.before,
        "after": anomaly.after,
        "confidence": round(anomaly.confidence, 4),
        "why": anomaly.why,
    }
    if anomaly.limits:
        details["limits"] = dict(anomaly.limits)
    return Measurement(
        anomaly.id + (_END if ended else ""),
        METRIC,
        anomaly.subject,
        anomaly.change,
        "1",
        anomaly.since if anomaly.until is None else anomaly.until,
        "plateaus",
        details=details,
    )


def from_measurement(found: Measurement) -> Anomaly | None:
    """The inverse; None for what is no anomaly of ours."""
    known = found.details
    try:
        return Anomaly(
            metric=str(known["metric"]),
            subject=found.subject,
            kind=cast("Kind", str(known["kind"])),
            since=float(known["since"]),
            at=float(known["noticed"]),
            before=float(known["before"]),
            after=None if known["after"] is None else float(known["after"]),
            change=found.value,
            confidence=float(known["confidence"]),
            why=str(known["why"]),
            until=None if known["until"] is None else float(known["until"]),
            limits=known.get("limits"),
        )
    except (KeyError, TypeError, ValueError):
        return None


def together(found: Iterable[Measurement]) -> list[Anomaly]:
    """Each anomaly once, as it is known last, by when it began."""
    by_id: dict[str, Anomaly] = {}
    for anomaly in filter(None, map(from_measurement, found)):
        known = by_id.get(anomaly.id)
        if known is None or anomaly.until is not None:
            by_id[anomaly.id] = anomaly if known is None else replace(anomaly, at=known.at)
    return sorted(by_id.values(), key=lambda one: (one.since, one.id))


def as_dict(anomaly: Anomaly) -> dict[str, Any]:
    """For JSON."""
    return {
        "id": anomaly.id,
        "kind": anomaly.kind,
        "metric": anomaly.metric,
        "subject": anomaly.subject,
        "since": anomaly.since,
        "until": anomaly.until,
        "noticed": anomaly.at,
        "before": anomaly.before,
        "after": anomaly.after,
        "change": anomaly.change,
        "confidence": anomaly.confidence,
        "why": anomaly.why,
        "limits": dict(anomaly.limits or {}),
    }
