"""What an archive holds, counted, and copied to another place."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from monitors.archive.archive import Archive
from monitors.archive.retention.rollups import COLUMNS, horizon
from network_provisioner.base.errors import InputError

_PART = 5000
_START = COLUMNS.split(", ").index("start")


@dataclass(frozen=True, slots=True)
class Content:
    """Of one metric: subjects and measurements that are whole, when the oldest and newest of them
    were true, roll-ups, and the moment before which only those are left (-inf: none)."""

    metric: str
    subjects: int
    count: int
    oldest: float
    newest: float
    rollups: int
    whole_since: float

    def as_dict(self) -> dict[str, Any]:
        """For JSON; null where there is no moment."""
        return {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in asdict(self).items()
        }


def contents(archive: Archive) -> list[Content]:
    """By metric. Reads all of the archive's index."""
    engine = archive.engine
    rows = engine.rows("SELECT metric, count(*) FROM rollup GROUP BY metric")
    rolled: dict[str, int] = {row[0]: row[1] for row in rows}
    found: dict[str, tuple[int, float, float]] = {
        row[0]: (row[1], row[2], row[3])
        for row in engine.rows(
            "SELECT metric, count(*), min(at), max(at) FROM measurement GROUP BY metric"
        )
    }
    nothing = (0, -math.inf, -math.inf)
    return [
        Content(
            metric,
            len(archive.subjects(metric)),
            *found.get(metric, nothing),
            rolled.get(metric, 0),
            horizon(engine, metric),
        )
        for metric in sorted({*found, *rolled})
    ]


def copy_archive(source: Archive, target: Archive) -> int:
    """Copy measurements in the order in which they were recorded, roll-ups and horizons; how many
    measurements. Raises InputError where ``target`` is not empty, ArchiveError."""
    if target.latest_seq() or target.engine.rows("SELECT metric FROM horizon LIMIT 1"):
        raise InputError(f"{target.shown}: found measurements, expected an empty archive")
    seq, count = 0, 0
    while True:
        rows, reached = source.read_on(seq, (), _PART)
        count += target.record_many(found for _, found in rows)
        if reached == seq:
            break
        seq = reached
    # Retention may be at work. What counts at one moment is copied; the roll-ups that come after
    # it, the retention of the copy makes of what was copied whole.
    horizons = source.engine.rows(
        "SELECT horizon.metric, raw_until, hourly_until, daily_until, since"
        " FROM horizon LEFT JOIN rolling ON rolling.metric = horizon.metric"
    )
    counts_until = {row[0]: row[1] if row[4] is None else row[4] for row in horizons}
    rolled = [
        row
        for row in source.engine.rows(f"SELECT {COLUMNS} FROM rollup")
        if row[_START] < counts_until.get(row[0], -math.inf)
    ]
    with target.engine.write() as writing:  # last: what is older than a horizon is not taken
        for table, columns, rows in (
            ("rollup", COLUMNS, rolled),
            ("horizon", "metric, raw_until, hourly_until, daily_until", [r[:4] for r in horizons]),
            ("rolling", "metric, since", [(r[0], r[4]) for r in horizons if r[4] is not None]),
        ):
            marks = ", ".join("?" * len(columns.split(",")))
            for row in rows:
                writing.run(f"INSERT INTO {table} ({columns}) VALUES ({marks})", row)
    return count
