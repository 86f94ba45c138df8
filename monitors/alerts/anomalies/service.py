"""Follows the archive, and tells of anomalies as they come.

The archive is all that is needed to go on: at the start the last weeks are read again, and what was
recorded then is found again under the same ids. So a restart neither loses nor doubles anything.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from monitors.alerts.anomalies.model import Anomaly, SeriesLimits
from monitors.alerts.anomalies.records import METRIC, to_measurement, together
from monitors.alerts.anomalies.settings import WATCHED, WatchedMetrics
from monitors.alerts.anomalies.watcher import SeriesDetectors
from monitors.alerts.anomalies.words import told
from monitors.archive.archive import Archive, Selection
from monitors.base.background import Background
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


class AnomalyService:
    """Detection in a thread of its own, from ``start`` to ``stop``."""

    def __init__(
        self, archive: Archive, watch: WatchedMetrics, tell: Tell, clock: Callable[[], float]
    ) -> None:
        """``clock`` gives Unix seconds."""
        self._archive, self._watch, self._tell, self._clock = archive, watch, tell, clock
        self._watcher = SeriesDetectors(watch)
        self._lock = threading.Lock()
        self._thread = Background("anomalies", self._run)
        self._stop = self._thread.stopping
        self._seq = 0
        self._unpublished: list[Anomaly] = []
        self._started: float | None = None
        self.up_to_date = threading.Event()
        """Set when what was in the archive at the start has been read."""

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End, and wait for it."""
        self._thread.stop()

    def limits(self, metric: str, subject: str) -> dict[str, SeriesLimits]:
        """What measurements would be judged by now, by their source."""
        with self._lock:
            return self._watcher.limits(metric, subject, self._clock())

    # ---------------------------------------------------------------- the thread

    def _run(self) -> None:
        seen: object = None
        ticked = 0.0
        while not self._stop.is_set():
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
                self._stop.wait(_TICK_S)
            except Exception:  # a fault of ours must not end it for good
                _log.exception("anomalies")
                self._stop.wait(_TICK_S)
            self._stop.wait(_PAUSE_S)

    def catch_up(self) -> None:
        """Read what there is. Raises AdonError."""
        now = self._clock()
        self._seq = self._archive.latest_seq()
        past = self._archive.query(METRIC, since=now - MEMORY_S - NEWS_S)
        watcher = SeriesDetectors(self._watch)
        watcher.know(together(past))
        newest = 0.0
        for metric in self._metrics():
            wanted = Selection((metric,), since=now - MEMORY_S)
            found: list[Anomaly] = []
            for measurement in self._archive.each(wanted):
                if measurement.at <= now + AHEAD_S:
                    newest = max(newest, min(now, measurement.at))
                    found += watcher.add(measurement)
                if self._stop.is_set():
                    return
            self._publish(found, now)
        # Until the newest of all measurements somebody was there to take those that are missing.
        self._publish(watcher.tick(newest), now)
        with self._lock:
            self._watcher = watcher
        self._started = now
        self.up_to_date.set()

    def read_new(self) -> bool:
        """Take what was recorded since. False where more may be there. Raises AdonError."""
        rows, reached = self._archive.read_on(self._seq, self._metrics(), _PAGE)
        now = self._clock()
        found: list[Anomaly] = []
        with self._lock:
            for _, measurement in rows:
                if measurement.at <= now + AHEAD_S:
                    found += self._watcher.add(measurement)
        self._seq = reached  # no detector takes a measurement twice
        self._publish(found, now)
        return len(rows) < _PAGE

    def tick(self, now: float) -> None:
        """Look for measurements that are missing, and say so. Raises AdonError."""
        with self._lock:
            found = self._watcher.tick(now, self._started if self._started is not None else now)
        self._publish(found, now)

    def _publish(self, found: Iterable[Anomaly], now: float) -> None:
        # What cannot be recorded just now is kept: no detector finds it again.
        self._unpublished += found
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
                self._tell(METRIC, anomaly.id, told(anomaly), details)

    def _metrics(self) -> Sequence[str]:
        """Watched ones; patterns are compared with what there is."""
        names = set(WATCHED) | set(self._watch.sensitivities)
        if any("*" in name for name in names):
            names |= set(self._archive.metrics())
        return sorted(name for name in names if "*" not in name and self._watch.of(name))
