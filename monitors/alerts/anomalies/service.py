"""Follows the archive and reports anomalies of every series as they come.

The archive is all that is needed to go on: at the start the last weeks are read again, and what was
recorded then is found again under the same ids. So a restart neither loses nor doubles anything.
"""

from __future__ import annotations

import logging
import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from monitors.alerts.anomalies.detector import Detector
from monitors.alerts.anomalies.model import (
    METRIC,
    Anomaly,
    SeriesLimits,
    notice_text,
    to_measurement,
    together,
)
from monitors.alerts.anomalies.settings import WATCHED, WatchedMetrics
from monitors.archive.archive import Archive, Selection
from monitors.base.background import Background
from monitors.base.measurement import Measurement
from network_provisioner.base.errors import AdonError, InputError

_log = logging.getLogger(__name__)

MEMORY_S = 35 * 86_400.0
"""So much of the past is read at the start; a little more than what a detector remembers."""

NEWS_S = 86_400.0
"""What was noticed longer ago is recorded, but nobody is told any more."""

AHEAD_S = 3600.0
"""What claims to be of later than this after now was measured with a wrong clock. It is passed
over: after it, everything would be old."""

_PAGE = 2000
_PAUSE_S = 0.5
_TICK_S = 5.0

Tell = Callable[[str, str, str, Mapping[str, Any]], None]
"""Tells people of a kind of event, once for each key: kind, key, text, details."""

MOST_SERIES = 5_000  # of 50 kB each
_LARGEST = 1e100  # what is beyond was never measured, and no arithmetic goes well with it

Series = tuple[str, str, str]
"""Metric, subject, source: two tools measure the same path differently."""


class AnomalyService(Background):
    """Detection in a thread of its own, from ``start`` to ``stop``."""

    def __init__(
        self, archive: Archive, watch: WatchedMetrics, tell: Tell, clock: Callable[[], float]
    ) -> None:
        """``clock`` gives Unix seconds."""
        super().__init__("anomalies", self._run)
        self._archive, self._watch, self._tell, self._clock = archive, watch, tell, clock
        self._watcher = SeriesDetectors(watch)
        self._lock = threading.Lock()
        self._seq = 0
        self._unpublished: list[Anomaly] = []
        self._started: float | None = None
        self.up_to_date = threading.Event()
        """Set when what was in the archive at the start has been read."""

    def limits(self, metric: str, subject: str) -> dict[str, SeriesLimits]:
        """What measurements would be judged by now, by their source."""
        with self._lock:
            return self._watcher.limits(metric, subject, self._clock())

    # ---------------------------------------------------------------- the thread

    def _run(self) -> None:
        seen: object = None
        ticked = 0.0
        while not self.stopping.is_set():
            try:
                if self._started is None:
                    self.catch_up()
                changed = self._archive.changed()
                if changed != seen:
                    seen = changed if self.read_new() else None
                now = self._clock()
                if abs(now - ticked) >= _TICK_S:  # a clock may be set back
                    ticked = now
                    self.tick(now)
            except AdonError as error:  # the archive may be away for a while
                _log.warning("anomalies: %s", error)
                seen = None
                self.stopping.wait(_TICK_S)
            except Exception:  # a fault of ours must not end it for good
                _log.exception("anomalies")
                self.stopping.wait(_TICK_S)
            self.stopping.wait(_PAUSE_S)

    def catch_up(self) -> None:
        """Read what there is. Raises AdonError."""
        now = self._clock()
        self._seq = self._archive.latest_seq()
        past = self._archive.query(METRIC, since=now - MEMORY_S - NEWS_S)
        watcher = SeriesDetectors(self._watch)
        watcher.know(together(past))
        newest = 0.0
        for metric in self._metrics():
            selection = Selection((metric,), since=now - MEMORY_S)
            anomalies: list[Anomaly] = []
            for measurement in self._archive.each(selection):
                if measurement.at <= now + AHEAD_S:
                    newest = max(newest, min(now, measurement.at))
                    anomalies += watcher.add(measurement)
                if self.stopping.is_set():
                    return
            self._publish(anomalies, now)
        # Until the newest of all measurements somebody was there to take those that are missing.
        self._publish(watcher.tick(newest), now)
        with self._lock:
            self._watcher = watcher
        self._started = now
        self.up_to_date.set()

    def read_new(self) -> bool:
        """Process what was recorded since. False if there may be more. Raises AdonError."""
        rows, reached = self._archive.read_on(self._seq, self._metrics(), _PAGE)
        now = self._clock()
        anomalies: list[Anomaly] = []
        with self._lock:
            for _, measurement in rows:
                if measurement.at <= now + AHEAD_S:
                    anomalies += self._watcher.add(measurement)
        self._seq = reached  # no detector takes a measurement twice
        self._publish(anomalies, now)
        return len(rows) < _PAGE

    def tick(self, now: float) -> None:
        """Look for measurements that are missing, and say so. Raises AdonError."""
        with self._lock:
            anomalies = self._watcher.tick(now, self._started if self._started is not None else now)
        self._publish(anomalies, now)

    def _publish(self, anomalies: Iterable[Anomaly], now: float) -> None:
        # What cannot be recorded just now is kept: no detector finds it again.
        self._unpublished += anomalies
        while self._unpublished:
            anomaly = self._unpublished[0]
            measurement = to_measurement(anomaly)
            try:
                self._archive.record(measurement)
            except InputError as error:  # nor will it ever be taken
                _log.warning("anomalies: %s", error)
                self._unpublished.pop(0)
                continue
            self._unpublished.pop(0)
            # Also where it was recorded before: who was stopped between the two has told nobody,
            # and who tells people knows whom it told.
            if anomaly.until is None and now - anomaly.noticed <= NEWS_S:
                details = {**measurement.details, "subject": anomaly.subject}
                self._tell(METRIC, anomaly.id, notice_text(anomaly), details)

    def _metrics(self) -> Sequence[str]:
        """Watched ones; patterns are compared with what there is."""
        names = set(WATCHED) | set(self._watch.sensitivities)
        if any("*" in name for name in names):
            names |= set(self._archive.metrics())
        return sorted(name for name in names if "*" not in name and self._watch.of(name))


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
        """Anomalies that an earlier process found. Found again from a shorter past, one may begin a
        little earlier or later: it is still the same."""
        for anomaly in anomalies:
            self._known.setdefault((anomaly.metric, anomaly.subject), []).append(anomaly)

    def add(self, measurement: Measurement) -> list[Anomaly]:
        """The next measurement; what begins or ends with it."""
        if not abs(measurement.value) <= _LARGEST:
            return []
        detector = self._detector(measurement)
        if detector is None:
            return []
        return list(self._renamed(detector.add(measurement.at, measurement.value)))

    def tick(self, now: float, awake: float = -math.inf) -> list[Anomaly]:
        """Time passed. ``awake``: since when measurements could be taken."""
        return [
            anomaly
            for detector in self._detectors.values()
            for anomaly in self._renamed(detector.tick(now, awake))
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

    def _renamed(self, anomalies: Iterable[Anomaly]) -> Iterator[Anomaly]:
        for anomaly in anomalies:
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
