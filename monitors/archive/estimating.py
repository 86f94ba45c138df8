"""What the archive says about a subject now: of measurements, and of roll-ups where those are gone.

A roll-up stands for as many measurements as it was made of, in their place of the series; which of
them was the newest it does not know, so each has the mean of their weights. One that has anything
later than the moment that is asked for is left out as a whole.
"""

from __future__ import annotations

from monitors.archive.retention.rollups import COLUMNS, from_row, horizon
from monitors.archive.stores.base import Engine, Rows
from monitors.base.estimates import WINDOW, Estimate, weighted, weights
from monitors.base.measurement import believed

# The id breaks ties, so that the answer does not depend on who recorded first.
_WHOLE = (
    "SELECT value, at, source, unit FROM measurement WHERE metric = ? AND subject = ?"
    " AND at <= ? AND at >= ?{} ORDER BY at DESC, id LIMIT ?"
)
_ROLLUPS = (
    f"SELECT {COLUMNS} FROM rollup WHERE metric = ? AND subject = ?"
    " AND last_at <= ? AND first_at >= ? AND start < ? ORDER BY last_at DESC, width LIMIT ?"
)


def estimated(
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
        rows, before = _found(engine, metric, subject, now, oldest)
    else:
        whose, names = believed(users)
        found = [metric, subject, now, oldest, *names, WINDOW]
        rows, before = engine.rows(_WHOLE.format(f" AND {whose}"), found), []
    if not rows and not before:
        return None
    values = [row[0] for row in rows]
    shares = weights(0, len(values))
    used = len(values)
    for one in map(from_row, before):
        count = min(one.number, WINDOW - used)
        if count <= 0:
            break
        each = sum(weights(used, count)) / one.number
        for value, number in one.sketch.counts():
            values.append(min(max(value, one.low), one.high))
            shares.append(each * number)
        used += count
    if rows:
        _, at, source, unit = rows[0]
    else:
        newest = from_row(before[0])
        at, source, unit = newest.last_at, newest.source, newest.unit
    value, spread = weighted(values, shares)
    return Estimate(value, spread, used, at, source, unit)


def _found(
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
