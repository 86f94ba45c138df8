"""Which measurements are meant, and the statements that find them in either database."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from monitors.archive.stores.base import check_texts
from monitors.base.measurement import COLUMNS, trusted_condition

_LARGEST = 2**63 - 1  # number that either database knows
NTH_AFTER = "SELECT seq FROM measurement WHERE seq > ? ORDER BY seq LIMIT 1 OFFSET ?"
# Each step looks up the next name in the index, however many measurements the last one has.
METRICS = """
    WITH RECURSIVE names(name) AS (
        SELECT min(metric) FROM measurement
        UNION ALL
        SELECT (SELECT min(metric) FROM measurement WHERE metric > names.name)
        FROM names WHERE names.name IS NOT NULL
    )
    SELECT name FROM names WHERE name IS NOT NULL
"""
_SUBJECTS = """
    WITH RECURSIVE names(name) AS (
        SELECT min(subject) FROM measurement WHERE metric = ?
        UNION ALL
        SELECT (SELECT min(subject) FROM measurement WHERE metric = ? AND subject > names.name)
        FROM names WHERE names.name IS NOT NULL
    )
"""
SUBJECTS = f"{_SUBJECTS} SELECT name FROM names WHERE name IS NOT NULL"
"""Takes the metric twice."""
ROLLED_UP = SUBJECTS.replace("FROM measurement", "FROM rollup")
"""The same of what was rolled up."""
LATEST = f"""
    {_SUBJECTS}
    SELECT {COLUMNS} FROM names JOIN measurement ON seq = (
        SELECT m.seq FROM measurement m WHERE m.metric = ? AND m.subject = names.name
        ORDER BY m.at DESC, m.seq DESC LIMIT 1
    )
"""
"""The newest of each subject. Takes the metric three times."""
LATEST_OF = f"""
    SELECT {COLUMNS} FROM measurement WHERE metric = ? AND subject = ?
    ORDER BY at DESC, seq DESC LIMIT 1
"""


@dataclass(frozen=True, slots=True)
class Selection:
    """Measurements that are all of this; what is None, or empty, asks nothing.

    ``since <= at <= until`` in Unix seconds; ``users``: what they decide by
    (:mod:`monitors.archive.estimate_sources`). Raises InputError for a name that no database takes,
    before anything is answered.
    """

    metrics: tuple[str, ...] = ()
    subject: str | None = None
    workflow: str | None = None
    source: str | None = None
    since: float | None = None
    until: float | None = None
    users: frozenset[str] | None = None

    def __post_init__(self) -> None:
        check_texts((*self.metrics, self.subject, self.workflow, self.source))

    def conditions(self) -> tuple[str, list[object]]:
        """What stands behind WHERE, and its values."""
        clauses: list[tuple[str, tuple[object, ...]]] = []
        if self.metrics:
            marks = ", ".join("?" * len(self.metrics))
            clauses.append((f"metric IN ({marks})", self.metrics))
        for column in ("subject", "workflow", "source"):
            value = getattr(self, column)
            if value is not None:
                clauses.append((f"{column} = ?", (value,)))
        if self.since is not None:
            clauses.append(("at >= ?", (self.since,)))
        if self.until is not None:
            clauses.append(("at <= ?", (self.until,)))
        if self.users is not None:
            condition, names = trusted_condition(self.users)
            clauses.append((condition, tuple(names)))
        where = " AND ".join(condition for condition, _ in clauses) or "1 = 1"
        return where, [value for _, values in clauses for value in values]


@dataclass(frozen=True, slots=True)
class Cursor:
    """Where a page ended: the time and number of its last measurement."""

    at: float
    seq: int

    def __str__(self) -> str:
        return f"{self.at!r}:{self.seq}"

    @classmethod
    def parse(cls, text: str) -> Cursor:
        """The inverse of ``str``. Raises ValueError."""
        at, _, seq = text.partition(":")
        cursor = cls(float(at), int(seq))
        if not (math.isfinite(cursor.at) and 0 <= cursor.seq <= _LARGEST):
            raise ValueError(f"found {text!r}, expected a time and a number of the archive's")
        return cursor


def page(
    selection: Selection, cursor: Cursor | None, newest: bool, limit: int | None
) -> tuple[str, list[object]]:
    """The statement for those that follow ``cursor``, oldest or ``newest`` first, with their
    numbers in front."""
    where, values = selection.conditions()
    if cursor is not None:
        where += f" AND (at, seq) {'<' if newest else '>'} (?, ?)"
        values += [cursor.at, cursor.seq]
    order = "at DESC, seq DESC" if newest else "at, seq"
    statement = f"SELECT seq, {COLUMNS} FROM measurement WHERE {where} ORDER BY {order}"
    if limit is not None:
        statement += " LIMIT ?"
        values.append(limit)
    return statement, values


def by_number(
    metrics: Sequence[str], after: int, until: int, limit: int
) -> tuple[str, list[object]]:
    """The statement for those with ``after < number <= until`` in that order, with their numbers in
    front; of ``metrics`` alone where some are named."""
    # Not the bare column: SQLite would take the index of a metric, and look at all there ever was
    # of it for the few that are new.
    where = f" AND metric || '' IN ({', '.join('?' * len(metrics))})" if metrics else ""
    statement = f"SELECT seq, {COLUMNS} FROM measurement WHERE seq > ? AND seq <= ?{where}"
    return f"{statement} ORDER BY seq LIMIT ?", [after, until, *metrics, limit]
