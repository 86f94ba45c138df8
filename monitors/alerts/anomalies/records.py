"""Anomalies as measurements of the archive, and back.

An anomaly is recorded when it is noticed, and once more when it is over: the archive is
append-only. The two have ids that follow from the anomaly alone, so that finding it again records
nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, replace

from monitors.alerts.anomalies.model import Anomaly
from monitors.base.measurement import Measurement
from network_provisioner.base.errors import InputError
from network_provisioner.base.schema import read

METRIC = "anomaly"
_END = ":end"


def to_measurement(anomaly: Anomaly) -> Measurement:
    """For the archive; ``at`` is when it began, or when it ended. The value is the change, relative
    or, for shares, the difference."""
    details = asdict(anomaly)
    for key in ("id", "subject", "change", *(() if anomaly.limits else ("limits",))):
        del details[key]
    details["confidence"] = round(anomaly.confidence, 4)
    return Measurement(
        anomaly.id if anomaly.until is None else anomaly.id + _END,
        METRIC,
        anomaly.subject,
        anomaly.change,
        "1",
        anomaly.since if anomaly.until is None else anomaly.until,
        "plateaus",
        details=details,
    )


def from_measurement(record: Measurement) -> Anomaly | None:
    """The inverse; None for what is no anomaly of ours."""
    about = {"subject": record.subject, "change": record.value}
    try:
        return read(Anomaly, {**record.details, **about}, "anomaly")
    except InputError:
        return None


def together(found: Iterable[Measurement]) -> list[Anomaly]:
    """Each anomaly once, as it is known last, by when it began."""
    by_id: dict[str, Anomaly] = {}
    for anomaly in filter(None, map(from_measurement, found)):
        known = by_id.get(anomaly.id)
        if known is None or anomaly.until is not None:
            by_id[anomaly.id] = (
                anomaly if known is None else replace(anomaly, noticed=known.noticed)
            )
    return sorted(by_id.values(), key=lambda one: (one.since, one.id))
