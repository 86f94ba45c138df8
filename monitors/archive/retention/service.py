"""Retention carried out: old measurements become roll-ups, and old roll-ups wider ones.

A metric's *horizon* only rises. Of what is older nothing is taken any more
(:meth:`~.Archive.record_many`), so each roll-up is made once, of all there ever was,
and an id that has gone stays taken. :mod:`monitors.archive.retention.steps` has the transactions.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable

from monitors.archive.archive import Archive, ArchiveError
from monitors.archive.retention import rollups
from monitors.archive.retention.horizons import HOUR_S, Retention, start_of
from monitors.archive.retention.steps import Retained, goes, steps
from monitors.background import Background

_log = logging.getLogger(__name__)

EVERY_S = 3600.0
_LONGEST_REST_S = 0.1

Ended = Callable[[], bool]
Rest = Callable[[float], object]


def retain(
    archive: Archive,
    retention: Retention,
    now: float,
    ended: Ended = lambda: False,
    rest: Rest = time.sleep,
) -> Retained:
    """Bring the archive to what is kept at ``now`` (Unix seconds), or as far as it gets until
    ``ended()``. ``rest`` waits so many seconds: after each step others get as long to write as it
    took. Raises ArchiveError; what was done until then stays."""
    done = Retained()
    names = {row[0] for row in archive.engine.rows("SELECT metric FROM horizon")}
    for metric in sorted({*archive.metrics(), *names}):
        began = time.monotonic()
        for did in steps(archive, metric, retention.of(metric), now):
            done += did
            if ended():
                return done
            rest(min(time.monotonic() - began, _LONGEST_REST_S))
            began = time.monotonic()
    return done


def due(archive: Archive, retention: Retention, now: float) -> dict[str, int]:
    """How many measurements of each metric :func:`retain` would take away."""
    found = {}
    for metric in archive.metrics():
        keep = retention.of(metric)
        if math.isfinite(keep.raw_s):
            rows = archive.engine.rows(
                "SELECT count(*) FROM measurement WHERE metric = ? AND at >= ? AND at < ?"
                f" AND {goes(metric)}",
                [
                    metric,
                    rollups.horizon(archive.engine, metric),
                    start_of(now - keep.raw_s, HOUR_S),
                ],
            )
            if rows[0][0]:
                found[metric] = int(rows[0][0])
    return found


class RetentionService:
    """Carries retention out in a thread of its own, at once and every hour from then on."""

    def __init__(
        self,
        archive: Archive,
        retention: Retention,
        clock: Callable[[], float],
        every_s: float = EVERY_S,
    ) -> None:
        self._archive = archive
        self._retention = retention
        self._clock = clock
        self._every_s = every_s
        self._thread = Background("adon-retention", self._run)
        self._stop = self._thread.stopping

    def start(self) -> None:
        """Begin; nothing where everything is kept for ever."""
        if self._retention != Retention():
            self._thread.start()

    def stop(self) -> None:
        """End, after the step that is under way."""
        self._thread.stop()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                done = retain(
                    self._archive,
                    self._retention,
                    self._clock(),
                    self._stop.is_set,
                    self._stop.wait,
                )
            except ArchiveError as error:
                _log.warning("measurements were not rolled up: %s", error)
            except Exception:  # a fault of ours must not end it for good
                _log.exception("measurements were not rolled up")
            else:
                if done != Retained():
                    _log.info("measurements: %d rolled up into %d", done.removed, done.made)
            self._stop.wait(self._every_s)
