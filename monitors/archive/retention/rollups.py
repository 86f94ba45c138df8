"""Roll-ups in the archive: those that retention made, and those of what is still whole.

An estimate is made of measurements, and of roll-ups where those are gone. A roll-up stands for as
many measurements as it was made of, in their place of the series; which of them was the newest it
does not know, so each has the mean of their weights. One that has anything later than the moment
that is asked for is left out as a whole.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from monitors.archive.retention.horizons import (
    QUANTILES,
    Point,
    RollUp,
    Sketch,
    roll_up,
    start_of,
    wider_rollups,
)
from monitors.archive.stores.base import Engine, Row, Rows, Writing
from monitors.base.estimates import WINDOW, Estimate, weighted, weights
from monitors.base.measurement import trusted_condition

COLUMNS = (
    "metric, subject, unit, width, start, number, total, low, high, first_at, last_at, source,"
    " sketch"
)
_POINTS = "metric, subject, unit, value, at, source"
_MARKS = f"({', '.join('?' * 13)})"

# The id breaks ties, so that the answer does not depend on who recorded first.
_WHOLE = (
    "SELECT value, at, source, unit FROM measurement WHERE metric = ? AND subject = ?"
    " AND at <= ? AND at >= ?{} ORDER BY at DESC, id LIMIT ?"
)
_ROLLUPS = (
    f"SELECT {COLUMNS} FROM rollup WHERE metric = ? AND subject = ?"
    " AND last_at <= ? AND first_at >= ? AND start < ? ORDER BY last_at DESC, width LIMIT ?"
)


def add(writing: Writing, rollups: Sequence[RollUp]) -> int:
    """Keep them, in a transaction that writes; how many were not there. One that is there is the
    same: it was made of the same measurements, by a process that did not come to the end."""
    if not rollups:
        return 0
    values = [
        [
            rollup.metric, rollup.subject, rollup.unit, rollup.width_s, rollup.start,
            rollup.number, rollup.total, rollup.low, rollup.high, rollup.first_at, rollup.last_at,
            rollup.source, rollup.sketch.dumps(),
        ]
        for rollup in rollups
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
    engine: Engine | Writing, metric: str, subject: str | None, since: float, until: float
) -> list[Point]:
    """Measurements with ``since <= at < until`` that are still whole."""
    where, values = "metric = ? AND at >= ? AND at < ?", [metric, since, until]
    if subject is not None:
        where, values = f"{where} AND subject = ?", [*values, subject]
    rows = engine.rows(f"SELECT {_POINTS} FROM measurement WHERE {where}", values)
    return [Point(*row) for row in rows]


def horizon(engine: Engine | Writing, metric: str) -> float:
    """Before this (Unix seconds) a metric has roll-ups, and its measurements are not whole any
    more. While some are being rolled up it is where those begin; nothing older is taken from
    ``raw_until`` on already."""
    rows = engine.rows(
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
            return wider_rollups([*map(from_row, rows), *roll_up(whole, width_s)], width_s)


def as_dict(rollup: RollUp) -> dict[str, Any]:
    """As JSON has it; quantiles by their share."""
    return {
        "metric": rollup.metric,
        "subject": rollup.subject,
        "unit": rollup.unit,
        "start": rollup.start,
        "width_s": rollup.width_s,
        "count": rollup.number,
        "min": rollup.low,
        "mean": rollup.mean,
        "median": rollup.quantile(0.5),
        "max": rollup.high,
        "quantiles": {f"{share:g}": rollup.quantile(share) for share in QUANTILES},
    }


def rolled_up_estimate(
    engine: Engine,
    metric: str,
    subject: str,
    now: float,
    oldest: float,
    users: frozenset[str] | None = None,
) -> Estimate | None:
    """The estimate at ``now`` (Unix seconds), with what was before ``oldest`` left out. With
    ``users``, of what they decide by."""
    if users is None:
        rows, before = _kept(engine, metric, subject, now, oldest)
    else:
        whose, names = trusted_condition(users)
        query_values = [metric, subject, now, oldest, *names, WINDOW]
        rows, before = engine.rows(_WHOLE.format(f" AND {whose}"), query_values), []
    if not rows and not before:
        return None
    values = [row[0] for row in rows]
    shares = weights(0, len(values))
    used = len(values)
    for rollup in map(from_row, before):
        count = min(rollup.number, WINDOW - used)
        if count <= 0:
            break
        each = sum(weights(used, count)) / rollup.number
        for value, number in rollup.sketch.counts():
            values.append(min(max(value, rollup.low), rollup.high))
            shares.append(each * number)
        used += count
    if rows:
        _, at, source, unit = rows[0]
    else:
        newest = from_row(before[0])
        at, source, unit = newest.last_at, newest.source, newest.unit
    value, spread = weighted(values, shares)
    return Estimate(value, spread, used, at, source, unit, metric, subject)


def _kept(
    engine: Engine, metric: str, subject: str, now: float, oldest: float
) -> tuple[Rows, Rows]:
    """Measurements, newest first, and the roll-ups of those before."""
    while True:
        given_up = horizon(engine, metric)
        rows = engine.rows(_WHOLE.format(""), [metric, subject, now, max(oldest, given_up), WINDOW])
        before: Rows = []
        if len(rows) < WINDOW and given_up > oldest:
            before = engine.rows(_ROLLUPS, [metric, subject, now, oldest, given_up, WINDOW])
        if horizon(engine, metric) == given_up:  # else some may be in neither, or in both
            return rows, before
