"""All series together: which measurement belongs to which detector."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import replace

from monitors.alerts.anomalies.detector import Detector
from monitors.alerts.anomalies.model import Anomaly, SeriesLimits
from monitors.alerts.anomalies.settings import WatchedMetrics
from monitors.base.measurement import Measurement

MOST_SERIES = 5_000  # of 50 kB each
_LARGEST = 1e100  # what is beyond was never measured, and no arithmetic goes well with it

Series = tuple[str, str, str]
"""Metric, subject, source: two tools measure the same path differently."""


class SeriesDetectors:
    """A detector for each series, of at most :data:`MOST_SERIES`; the one that was silent longest
    is forgotten first."""

    def __init__(self, watch: WatchedMetrics, most: int = MOST_SERIES) -> None:
        self._watch = watch
        self._most = most
        self._detectors: OrderedDict[Series, Detector] = OrderedDict()
        self._known: dict[tuple[str, str], list[Anomaly]] = {}
        self._same: dict[str, Anomaly] = {}

    def know(self, anomalies: Iterable[Anomaly]) -> None:
        """What was found earlier, by a process before this one: where it is found again, and
        because less of the past is known begins a little earlier or later, it is the same."""
        for anomaly in anomalies:
            self._known.setdefault((anomaly.metric, anomaly.subject), []).append(anomaly)

    def add(self, measurement: Measurement) -> list[Anomaly]:
        """The next measurement; what begins or ends with it."""
        if not abs(measurement.value) <= _LARGEST:
            return []
        detector = self._detector(measurement)
        if detector is None:
            return []
        return self._new(detector.add(measurement.at, measurement.value))

    def tick(self, now: float, awake: float = -math.inf) -> list[Anomaly]:
        """Time passed. ``awake``: since when measurements could be taken."""
        return [
            anomaly
            for detector in self._detectors.values()
            for anomaly in self._new(detector.tick(now, awake))
        ]

    def limits(self, metric: str, subject: str, now: float) -> dict[str, SeriesLimits]:
        """What each source's measurements of this are judged by."""
        return {
            source: detector.limits(now)
            for (its, of, source), detector in self._detectors.items()
            if (its, of) == (metric, subject)
        }

    def __len__(self) -> int:
        return len(self._detectors)

    def _detector(self, measurement: Measurement) -> Detector | None:
        key = measurement.metric, measurement.subject, measurement.source
        detector = self._detectors.get(key)
        if detector is None:
            sensitivity = self._watch.of(measurement.metric)
            if sensitivity is None:
                return None
            detector = Detector(measurement.metric, measurement.subject, sensitivity)
            self._detectors[key] = detector
            if len(self._detectors) > self._most:
                self._detectors.popitem(last=False)
        self._detectors.move_to_end(key)
        return detector

    def _new(self, found: Iterable[Anomaly]) -> list[Anomaly]:
        return list(self._renamed(found))

    def _renamed(self, found: Iterable[Anomaly]) -> Iterator[Anomaly]:
        for anomaly in found:
            same = self._same.get(anomaly.id)
            if same is None and anomaly.until is None:
                same = self._found_before(anomaly)
                if same is not None:
                    self._same[anomaly.id] = same
            if same is None:
                yield anomaly
            elif anomaly.until is not None and same.until is None:
                yield replace(anomaly, since=same.since, noticed=same.noticed)

    def _found_before(self, anomaly: Anomaly) -> Anomaly | None:
        """The same anomaly, known by another beginning: each was noticed after both began."""
        for known in self._known.get((anomaly.metric, anomaly.subject), ()):
            if (
                known.id != anomaly.id
                and (known.kind == "outage") == (anomaly.kind == "outage")
                and max(known.since, anomaly.since) <= min(known.noticed, anomaly.noticed)
            ):
                return known
        return None
