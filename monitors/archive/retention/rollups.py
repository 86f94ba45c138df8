"""Roll-ups in the archive: those that retention made, and those of what is still whole."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from monitors.archive.retention.horizons import Point, RollUp, roll_up, start_of, widened
from monitors.archive.retention.sketch import Sketch
from monitors.archive.stores.base import Engine, Row, Writing

COLUMNS = (
    "metric, subject, unit, width, start, number, total, low, high, first_at, last_at, source,"
    " sketch"
)
_POINTS = "metric, subject, unit, value, at, source"
_MARKS = f"({', '.join('?' * 13)})"


def add(writing: Writing, rollups: Sequence[RollUp]) -> int:
    """Keep them, in a transaction that writes; how many were not there. One that is there is the
    same: it was made of the same measurements, by a process that did not come to the end."""
    if not rollups:
        return 0
    values = [
        [
            one.metric, one.subject, one.unit, one.width_s, one.start, one.number, one.total,
            one.low, one.high, one.first_at, one.last_at, one.source, one.sketch.dumps(),
        ]
        for one in rollups
    ]  # fmt: skip
    return writing.run(
        f"INSERT INTO rollup ({COLUMNS}) VALUES {', '.join([_MARKS] * len(rollups))}"
        " ON CONFLICT DO NOTHING",
        [value for row in values for value in row],
    )


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
    """Before this (Unix seconds) a metric has roll-ups, and its measurements are not whole any
    more. While some are being rolled up it is where those begin; nothing older is taken from
    ``raw_until`` on already."""
    rows = asked.rows(
        "SELECT coalesce((SELECT since FROM rolling WHERE metric = horizon.metric), raw_until)"
        " FROM horizon WHERE metric = ?",
        [metric],
    )
    return float(rows[0][0]) if rows else -math.inf


def roll_ups(
    engine: Engine, metric: str, subject: str, width_s: int, since: float, until: float
) -> list[RollUp]:
    """What each hour or day from ``since`` to ``until`` (Unix seconds) had, oldest first, the first
    one whole; those without measurements are left out. An hour of which only its day is left is in
    none of the hours."""
    first = start_of(since, width_s)
    while True:
        rolled = horizon(engine, metric)
        whole = points(engine, metric, subject, max(first, rolled), until)
        rows: list[Row] = engine.rows(
            f"SELECT {COLUMNS} FROM rollup WHERE metric = ? AND subject = ? AND width <= ?"
            " AND start >= ? AND start < ? ORDER BY start",
            [metric, subject, width_s, first, min(until, rolled)],
        )
        if horizon(engine, metric) == rolled:  # else some may be in neither, or in both
            return widened([*map(from_row, rows), *roll_up(whole, width_s)], width_s)


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
