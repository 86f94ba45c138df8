"""Roll-ups in the archive: those that retention made, and those of what is still whole."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from monitors.retention.horizons import Point, RollUp, roll_up, start_of, widened
from monitors.retention.sketch import Sketch
from monitors.stores.base import Engine, Row, Writing

if TYPE_CHECKING:
    from monitors.archive import Archive

COLUMNS = (
    "metric, subject, unit, width, start, number, total, low, high, first_at, last_at, source,"
    " sketch"
)
_POINTS = "metric, subject, unit, value, at, source"
_INSERT = f"INSERT INTO rollup ({COLUMNS}) VALUES ({', '.join('?' * 13)})"


def add(writing: Writing, rollups: Sequence[RollUp]) -> None:
    """Keep them, in a transaction that writes."""
    for one in rollups:
        writing.run(
            _INSERT,
            [
                one.metric, one.subject, one.unit, one.width_s, one.start, one.number, one.total,
                one.low, one.high, one.first_at, one.last_at, one.source, one.sketch.dumps(),
            ],
        )  # fmt: skip


def from_row(row: Row) -> RollUp:
    """Of a row of :data:`COLUMNS`."""
    *values, sketch = row
    return RollUp(*values, Sketch.loads(sketch))  # type: ignore[call-arg]  # so many values


def points(
    asked: Engine | Writing, metric: str, subject: str | None, since: float, until: float
) -> list[Point]:
    """Measurements with ``since <= at < until`` that are still whole."""
    where, values = "metric = ? AND at >= ? AND at < ?", [metric, since, until]
    if subject is not None:
        where, values = f"{where} AND subject = ?", [*values, subject]
    rows = asked.rows(f"SELECT {_POINTS} FROM measurement WHERE {where}", values)
    return [Point(*row) for row in rows]


def horizon(asked: Engine | Writing, metric: str) -> float:
    """Before this (Unix seconds) a metric's measurements are not whole any more."""
    rows = asked.rows("SELECT raw_until FROM horizon WHERE metric = ?", [metric])
    return float(rows[0][0]) if rows else -math.inf


def roll_ups(
    archive: Archive, metric: str, subject: str, width_s: int, since: float, until: float
) -> list[RollUp]:
    """What each hour or day from ``since`` to ``until`` (Unix seconds) had, oldest first, the first
    one whole; those without measurements are left out. An hour of which only its day is left is in
    none of the hours."""
    first = start_of(since, width_s)
    engine = archive.engine
    # In this order, what retention rolls up meanwhile may be found twice, but is never missed.
    whole = points(engine, metric, subject, max(first, horizon(engine, metric)), until)
    rows: list[Row] = engine.rows(
        f"SELECT {COLUMNS} FROM rollup WHERE metric = ? AND subject = ? AND width <= ?"
        " AND start >= ? AND start < ? ORDER BY start",
        [metric, subject, width_s, first, until],
    )
    kept = [from_row(row) for row in rows]
    rolled = max((one.start + one.width_s for one in kept), default=-math.inf)
    return widened([*kept, *roll_up((p for p in whole if p.at >= rolled), width_s)], width_s)


def as_dict(found: RollUp, shares: Sequence[float]) -> dict[str, Any]:
    """As JSON has it; quantiles by their share."""
    return {
        "metric": found.metric,
        "subject": found.subject,
        "unit": found.unit,
        "start": found.start,
        "width_s": found.width_s,
        "count": found.number,
        "min": found.low,
        "mean": found.mean,
        "median": found.quantile(0.5),
        "max": found.high,
        "quantiles": {f"{share:g}": found.quantile(share) for share in shares},
    }
