"""Retention carried out: old measurements become roll-ups, and old roll-ups wider ones.

A metric's *horizon* only rises. Of what is older nothing is taken any more
(:meth:`~.Archive.record_many`), so each roll-up is made once, of all there ever was,
and an id that has gone stays taken.

Each step is a short transaction: others write in between. Measurements go in three moves. First the
horizon rises (``raw_until``): from then on nothing older is taken, so that what lies between the
old horizon and the new one stays as it is, and ``rolling`` says where it begins. Then its roll-ups
are made and added, some at a time; none counts before the last one is there and ``rolling`` is
taken away, and then all do, in the place of the measurements. Last the measurements go, some at a
time. Whatever ends a process in between, the next one finds the same measurements, makes the same
roll-ups, and those that are there already stay.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from monitors.archive.archive import Archive, ArchiveError
from monitors.archive.retention import rollups
from monitors.archive.retention.horizons import (
    DAY_S,
    HOUR_S,
    KEPT_LAST,
    NO_SERIES,
    Keep,
    Point,
    Retention,
    RollUp,
    roll_up,
    start_of,
    wider_rollups,
)
from monitors.archive.stores.base import Engine, Rows, Writing
from monitors.base.background import Background

_log = logging.getLogger(__name__)

EVERY_S = 3600.0
_LONGEST_REST_S = 0.1

Ended = Callable[[], bool]
Rest = Callable[[float], object]

T = TypeVar("T")

STEP = 5000  # measurements, about, that are rolled up together: whole hours, one at least
ROWS = 100  # that one transaction adds or takes away: some 5 ms
_PAGE = 5000  # rows that are read at a time
_HELD = 100_000  # of an hour that has more, in memory at a time
_SUBJECTS = ROWS // 24  # whose hours become a day in one transaction
_OLDEST = "SELECT at FROM measurement WHERE metric = ? AND at >= ? AND at < ? ORDER BY at LIMIT 1"
_POINTS = (
    "SELECT at, seq, metric, subject, unit, value, at, source FROM measurement"
    " WHERE metric = ? AND at >= ? AND at < ? AND (at, seq) > (?, ?) ORDER BY at, seq LIMIT ?"
)
_NUMBERS = (
    "SELECT at, seq, {goes} FROM measurement"
    " WHERE metric = ? AND at >= ? AND at < ? AND (at, seq) > (?, ?) ORDER BY at, seq LIMIT ?"
)
# The newest of all stays: its number must not be given again.
_GOES = "seq < (SELECT max(m.seq) FROM measurement m)"
_NOT_LAST = (
    " AND EXISTS (SELECT 1 FROM measurement n WHERE n.metric = measurement.metric"
    " AND n.subject = measurement.subject AND n.at >= measurement.at"
    " AND (n.at > measurement.at OR n.seq > measurement.seq))"
)


def retain(
    archive: Archive,
    retention: Retention,
    now: float,
    ended: Ended = lambda: False,
    rest: Rest = time.sleep,
) -> RetentionResult:
    """Bring the archive to what is kept at ``now`` (Unix seconds), or as far as it gets until
    ``ended()``. ``rest`` waits so many seconds: after each step others get as long to write as it
    took. Raises ArchiveError; what was done until then stays."""
    done = RetentionResult()
    names = {row[0] for row in archive.engine.rows("SELECT metric FROM horizon")}
    for metric in sorted({*archive.metrics(), *names}):
        began = time.monotonic()
        for did in retain_metric(archive.engine, metric, retention.of(metric), now):
            done += did
            if ended():
                return done
            rest(min(time.monotonic() - began, _LONGEST_REST_S))
            began = time.monotonic()
    return done


def due(archive: Archive, retention: Retention, now: float) -> dict[str, int]:
    """How many measurements of each metric :func:`retain` would take away."""
    counts = {}
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
                counts[metric] = int(rows[0][0])
    return counts


class RetentionService(Background):
    """Carries retention out in a thread of its own, at once and every hour from then on."""

    def __init__(self, archive: Archive, retention: Retention, clock: Callable[[], float]) -> None:
        super().__init__("adon-retention", self._run)
        self._archive, self._retention, self._clock = archive, retention, clock

    def start(self) -> None:
        """Begin; nothing where everything is kept for ever."""
        if self._retention != Retention():
            super().start()

    def _run(self) -> None:
        while not self.stopping.is_set():
            try:
                done = retain(
                    self._archive,
                    self._retention,
                    self._clock(),
                    self.stopping.is_set,
                    self.stopping.wait,
                )
            except ArchiveError as error:
                _log.warning("measurements were not rolled up: %s", error)
            except Exception:  # a fault of ours must not end it for good
                _log.exception("measurements were not rolled up")
            else:
                if done != RetentionResult():
                    _log.info("measurements: %d rolled up into %d", done.removed, done.made)
            self.stopping.wait(EVERY_S)


def goes(metric: str) -> str:
    """The condition under which a measurement that is too old goes: some of the newest stay."""
    return _GOES + (_NOT_LAST if metric in KEPT_LAST else "")


@dataclass(frozen=True, slots=True)
class RetentionResult:
    """What was done: measurements taken away, roll-ups made, and roll-ups taken away."""

    removed: int = 0
    made: int = 0
    dropped: int = 0

    def __add__(self, other: RetentionResult) -> RetentionResult:
        return RetentionResult(
            self.removed + other.removed, self.made + other.made, self.dropped + other.dropped
        )


def retain_metric(engine: Engine, metric: str, keep: Keep, now: float) -> Iterator[RetentionResult]:
    """Bring a metric to what is kept at ``now`` (Unix seconds). Raises ArchiveError; what was done
    until then stays."""
    yield from _raw(engine, metric, keep, now)
    yield from _hourly(engine, metric, keep, now)
    yield from _daily(engine, metric, keep, now)


# ---------------------------------------------------------------- measurements


def _raw(engine: Engine, metric: str, keep: Keep, now: float) -> Iterator[RetentionResult]:
    target = start_of(now - keep.raw_s, HOUR_S) if math.isfinite(keep.raw_s) else -math.inf
    yield from _finish(engine, metric)  # what another process began
    yield from _remove(engine, metric, -math.inf)
    while math.isfinite(target):
        before = rollups.horizon(engine, metric)
        if not _give_up(engine, metric, target):
            return
        yield RetentionResult()
        yield from _finish(engine, metric)
        yield from _remove(engine, metric, before)


def _give_up(engine: Engine, metric: str, target: float) -> bool:
    """Move the horizon a step towards ``target``; whether there was anything to do."""
    with engine.write() as writing:
        if _rolling(writing, metric):
            return True  # another process is at it
        known = rollups.horizon(writing, metric)
        oldest = writing.rows(_OLDEST, [metric, known, target])
        if target <= known or (not oldest and known == -math.inf):
            return False
        end = target
        if oldest:
            later = writing.rows(f"{_OLDEST} OFFSET {STEP}", [metric, known, target])
            first = start_of(oldest[0][0], HOUR_S) + HOUR_S
            end = min(target, max(first, start_of(later[0][0], HOUR_S))) if later else target
            if metric not in NO_SERIES:
                writing.run("INSERT INTO rolling VALUES (?, ?)", [metric, known])
        if known == -math.inf:
            values: list[object] = [metric, end, -math.inf, -math.inf]
            writing.run("INSERT INTO horizon VALUES (?, ?, ?, ?)", values)
        else:
            writing.run("UPDATE horizon SET raw_until = ? WHERE metric = ?", [end, metric])
    return True


def _rolling(writing: Writing, metric: str) -> list[tuple[float]]:
    return writing.rows("SELECT since FROM rolling WHERE metric = ?", [metric])


def _finish(engine: Engine, metric: str) -> Iterator[RetentionResult]:
    """Make the roll-ups of what is being rolled up, and have them count."""
    for since, until in engine.rows(
        "SELECT since, raw_until FROM rolling JOIN horizon ON rolling.metric = horizon.metric"
        " WHERE rolling.metric = ?",
        [metric],
    ):
        for part in _parts(_rolled_up(engine, metric, since, until), ROWS):
            with engine.write() as writing:
                # Otherwise somebody else came to the end, and measurements may have gone since.
                if _rolling(writing, metric) != [(since,)]:
                    return
                made = rollups.add(writing, part)
            yield RetentionResult(made=made)
        with engine.write() as writing:
            writing.run("DELETE FROM rolling WHERE metric = ? AND since = ?", [metric, since])
        yield RetentionResult()


def _rolled_up(engine: Engine, metric: str, since: float, until: float) -> list[RollUp]:
    made: list[RollUp] = []
    points: list[Point] = []
    for page in _pages(engine, _POINTS, metric, since, until, _PAGE):
        points += [Point(*row[2:]) for row in page]
        if len(points) >= _HELD:
            made, points = wider_rollups([*made, *roll_up(points, HOUR_S)], HOUR_S), []
    return wider_rollups([*made, *roll_up(points, HOUR_S)], HOUR_S)


def _remove(engine: Engine, metric: str, since: float) -> Iterator[RetentionResult]:
    """Take away what has roll-ups, or needs none. What may go once may always go."""
    numbers = _NUMBERS.format(goes=goes(metric))
    until = rollups.horizon(engine, metric)
    for page in _pages(engine, numbers, metric, since, until, ROWS):
        going = [seq for _, seq, goes in page if goes]
        if going:
            with engine.write() as writing:
                writing.run("INSERT INTO retaining (since) VALUES (0)")
                marks = ", ".join("?" * len(going))
                removed = writing.run(f"DELETE FROM measurement WHERE seq IN ({marks})", going)
                writing.run("DELETE FROM retaining")
            yield RetentionResult(removed)


def _pages(
    engine: Engine, statement: str, metric: str, since: float, until: float, most: int
) -> Iterator[Rows]:
    """Rows by time and number, which come first in each; read when they are asked for."""
    at, seq = -math.inf, -1
    while page := engine.rows(statement, [metric, since, until, at, seq, most]):
        at, seq = page[-1][0], page[-1][1]
        yield page
        if len(page) < most:
            return


def _parts(items: Sequence[T], most: int) -> Iterator[Sequence[T]]:
    for begin in range(0, len(items), most):
        yield items[begin : begin + most]


# ---------------------------------------------------------------- roll-ups


def _hourly(engine: Engine, metric: str, keep: Keep, now: float) -> Iterator[RetentionResult]:
    """Make days of hours: a subject's hours of a day become its day at once."""
    if not math.isfinite(keep.hourly_s):
        return
    # A day whose measurements are not all rolled up yet is not over.
    until = min(now - keep.hourly_s, rollups.horizon(engine, metric))
    target = start_of(until, DAY_S) if math.isfinite(until) else -math.inf
    of_day = "FROM rollup WHERE metric = ? AND start >= ? AND start < ? AND width <= ?"
    while True:
        first = engine.rows(
            "SELECT min(start) FROM rollup WHERE metric = ? AND width = ? AND start < ?",
            [metric, HOUR_S, target],
        )
        if not first or first[0][0] is None:
            return
        day = start_of(first[0][0], DAY_S)
        hours = [metric, day, day + DAY_S, HOUR_S]
        subjects = engine.rows(f"SELECT DISTINCT subject {of_day}", hours)
        for part in _parts([row[0] for row in subjects], _SUBJECTS):
            where = f"{of_day} AND subject IN ({', '.join('?' * len(part))})"
            values = [metric, day, day + DAY_S, DAY_S, *part]
            with engine.write() as writing:
                rows = writing.rows(f"SELECT {rollups.COLUMNS} {where}", values)
                made = wider_rollups(map(rollups.from_row, rows), DAY_S)
                dropped = writing.run(f"DELETE {where}", values)
                rollups.add(writing, made)
                writing.run(
                    "UPDATE horizon SET hourly_until = ? WHERE metric = ? AND hourly_until < ?",
                    [day + DAY_S, metric, day + DAY_S],
                )
            yield RetentionResult(0, len(made), dropped)


def _daily(engine: Engine, metric: str, keep: Keep, now: float) -> Iterator[RetentionResult]:
    """Drop days."""
    if not math.isfinite(keep.daily_s):
        return
    until = start_of(now - keep.daily_s, DAY_S)
    while True:
        with engine.write() as writing:
            old = writing.rows(
                "SELECT metric, subject, width, start, unit FROM rollup"
                " WHERE metric = ? AND width = ? AND start < ? ORDER BY start LIMIT ?",
                [metric, DAY_S, until, ROWS],
            )
            for key in old:
                writing.run(
                    "DELETE FROM rollup WHERE metric = ? AND subject = ? AND width = ?"
                    " AND start = ? AND unit = ?",
                    key,
                )
            if old:
                writing.run(
                    "UPDATE horizon SET daily_until = ? WHERE metric = ? AND daily_until < ?",
                    [until, metric, until],
                )
        if not old:
            return
        yield RetentionResult(dropped=len(old))
