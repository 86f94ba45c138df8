"""Retention carried out: old measurements become roll-ups, and old roll-ups wider ones.

A metric's *horizon* only rises. The transaction that moves it rolls up what lies before it, takes
that away, and is short: others write in between. Of what is older than the horizon nothing is
taken any more (:meth:`monitors.archive.Archive.record_many`), so each roll-up is made once, of all
there ever was, and an id that has gone stays taken.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass

from monitors.archive import Archive, ArchiveError
from monitors.background import Background
from monitors.retention import rollups
from monitors.retention.horizons import (
    DAY_S,
    HOUR_S,
    KEPT_LAST,
    NO_SERIES,
    Keep,
    Retention,
    roll_up,
    start_of,
    widened,
)
from monitors.stores.base import Writing

_log = logging.getLogger(__name__)

_STEP = 5000  # measurements, about, that one transaction takes away
EVERY_S = 3600.0

Ended = Callable[[], bool]

_OLDEST = "SELECT at FROM measurement WHERE metric = ? AND at >= ? AND at < ? ORDER BY at LIMIT 1"
_DELETE = (
    "DELETE FROM measurement WHERE metric = ? AND at < ?"
    " AND seq < (SELECT max(m.seq) FROM measurement m)"  # its number must not be given again
)
_NOT_LAST = (
    " AND EXISTS (SELECT 1 FROM measurement n WHERE n.metric = measurement.metric"
    " AND n.subject = measurement.subject AND n.at >= measurement.at"
    " AND (n.at > measurement.at OR n.seq > measurement.seq))"
)


@dataclass(frozen=True, slots=True)
class Retained:
    """What one round did: measurements taken away, roll-ups made, and roll-ups taken away."""

    removed: int = 0
    made: int = 0
    dropped: int = 0

    def __add__(self, other: Retained) -> Retained:
        return Retained(
            self.removed + other.removed, self.made + other.made, self.dropped + other.dropped
        )


def retain(
    archive: Archive, retention: Retention, now: float, ended: Ended = lambda: False
) -> Retained:
    """Bring the archive to what is kept at ``now`` (Unix seconds), or as far as it gets until
    ``ended()``. Raises ArchiveError; what was done until then stays, and is whole."""
    done = Retained()
    names = {row[0] for row in archive.engine.rows("SELECT metric FROM horizon")}
    for metric in sorted({*archive.metrics(), *names}):
        keep = retention.of(metric)
        for step in (_raw, _hourly, _daily):
            more = True
            while more and not ended():
                with archive.engine.write() as writing:
                    writing.run("INSERT INTO retaining (since) VALUES (?)", [now])
                    did, more = step(writing, metric, keep, now)
                    writing.run("DELETE FROM retaining")
                done += did
    return done


def due(archive: Archive, retention: Retention, now: float) -> dict[str, int]:
    """How many measurements of each metric :func:`retain` would take away, of some that stay for
    being the newest of their subject one too many."""
    found = {}
    for metric in archive.metrics():
        keep = retention.of(metric)
        if math.isfinite(keep.raw_s):
            rows = archive.engine.rows(
                "SELECT count(*) FROM measurement WHERE metric = ? AND at >= ? AND at < ?",
                [
                    metric,
                    rollups.horizon(archive.engine, metric),
                    start_of(now - keep.raw_s, HOUR_S),
                ],
            )
            if rows[0][0]:
                found[metric] = int(rows[0][0])
    return found


def _raw(writing: Writing, metric: str, keep: Keep, now: float) -> tuple[Retained, bool]:
    """Move the horizon a step; whether there is another one."""
    if not math.isfinite(keep.raw_s):
        return Retained(), False
    horizon, target = rollups.horizon(writing, metric), start_of(now - keep.raw_s, HOUR_S)
    oldest = writing.rows(_OLDEST, [metric, horizon, target])
    if target <= horizon or (not oldest and horizon == -math.inf):
        return Retained(), False
    end = target
    if oldest:
        # Whole hours, as many as are about a step, but one at least.
        later = writing.rows(f"{_OLDEST} OFFSET {_STEP}", [metric, horizon, target])
        first = start_of(oldest[0][0], HOUR_S) + HOUR_S
        end = min(target, max(first, start_of(later[0][0], HOUR_S))) if later else target
    made = []
    if metric not in NO_SERIES:
        made = roll_up(rollups.points(writing, metric, None, horizon, end), HOUR_S)
        rollups.add(writing, made)
    if horizon == -math.inf:
        values: list[object] = [metric, end, -math.inf, -math.inf]
        writing.run("INSERT INTO horizon VALUES (?, ?, ?, ?)", values)
    else:
        writing.run("UPDATE horizon SET raw_until = ? WHERE metric = ?", [end, metric])
    statement = _DELETE + (_NOT_LAST if metric in KEPT_LAST else "")
    removed = writing.run(statement, [metric, end])
    return Retained(removed, len(made)), end < target


def _hourly(writing: Writing, metric: str, keep: Keep, now: float) -> tuple[Retained, bool]:
    """Make a day of hours."""
    rows = writing.rows("SELECT raw_until, hourly_until FROM horizon WHERE metric = ?", [metric])
    if not rows or not math.isfinite(keep.hourly_s):
        return Retained(), False
    # A day whose measurements are not all rolled up yet is not over.
    target = min(start_of(now - keep.hourly_s, DAY_S), start_of(rows[0][0], DAY_S))
    first = writing.rows(
        "SELECT min(start) FROM rollup WHERE metric = ? AND width = ? AND start < ?",
        [metric, HOUR_S, target],
    )[0][0]
    if first is None:
        return Retained(), False
    day = start_of(first, DAY_S)
    of_day = "FROM rollup WHERE metric = ? AND width = ? AND start < ?"
    values: list[object] = [metric, HOUR_S, day + DAY_S]
    hours = writing.rows(f"SELECT {rollups.COLUMNS} {of_day}", values)
    made = widened((rollups.from_row(row) for row in hours), DAY_S)
    dropped = writing.run(f"DELETE {of_day}", values)
    rollups.add(writing, made)
    writing.run("UPDATE horizon SET hourly_until = ? WHERE metric = ?", [day + DAY_S, metric])
    return Retained(0, len(made), dropped), day + DAY_S < target


def _daily(writing: Writing, metric: str, keep: Keep, now: float) -> tuple[Retained, bool]:
    """Drop days."""
    if not math.isfinite(keep.daily_s):
        return Retained(), False
    until = start_of(now - keep.daily_s, DAY_S)
    dropped = writing.run(
        "DELETE FROM rollup WHERE metric = ? AND width = ? AND start < ?", [metric, DAY_S, until]
    )
    if dropped:
        writing.run(
            "UPDATE horizon SET daily_until = ? WHERE metric = ? AND daily_until < ?",
            [until, metric, until],
        )
    return Retained(0, 0, dropped), False


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
                done = retain(self._archive, self._retention, self._clock(), self._stop.is_set)
            except ArchiveError as error:
                _log.warning("measurements were not rolled up: %s", error)
            except Exception:  # a fault of ours must not end it for good
                _log.exception("measurements were not rolled up")
            else:
                if done != Retained():
                    _log.info("measurements: %d rolled up into %d", done.removed, done.made)
            self._stop.wait(self._every_s)
