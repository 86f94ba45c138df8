"""What an archive holds, counted, copied, and as CSV and Parquet for other programs.

A file has one row for each measurement: its fields as they are (``at`` in Unix seconds), ``time``
the same moment as others read it, and ``details`` as JSON. Written a part at a time: memory stays
flat, however many there are.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import IO, Any

from monitors.archive.archive import Archive
from monitors.archive.retention.rollups import COLUMNS, horizon
from monitors.base.measurement import Measurement
from network_provisioner.base.csv_cells import csv_cell
from network_provisioner.base.errors import InputError, MissingError

FORMATS = ("csv", "parquet")
EXPORTED_COLUMNS = (
    "id", "metric", "subject", "value", "unit", "at", "time", "source", "workflow", "details",
)  # fmt: skip
_TIMES = "time"
_NUMBERS = frozenset({"value", "at"})
_WRITTEN_TOGETHER = 10_000  # rows that are written at a time
_EARLIEST, _LATEST = -62135596800.0, 253402300799.0  # years 1 and 9999: what calendars know

_COPIED_TOGETHER = 5000
_START = COLUMNS.split(", ").index("start")


def csv_parts(measurements: Iterable[Measurement]) -> Iterator[str]:
    """CSV as RFC 4180 has it, a header first; no cell is a formula to a spreadsheet."""
    yield ",".join(EXPORTED_COLUMNS) + "\r\n"
    each = iter(measurements)
    while part := list(islice(each, _WRITTEN_TOGETHER)):
        text = io.StringIO()
        writer = csv.writer(text)
        writer.writerows(map(csv_cell, _row(measurement, _iso)) for measurement in part)
        yield text.getvalue()


def write_csv(measurements: Iterable[Measurement], out: IO[bytes]) -> None:
    """As :func:`csv_parts`."""
    for part in csv_parts(measurements):
        out.write(part.encode())


def write_parquet(measurements: Iterable[Measurement], out: IO[bytes]) -> None:
    """Raises MissingError where pyarrow is not installed."""
    pa, parquet = _pyarrow()
    schema = pa.schema([(name, _type(pa, name)) for name in EXPORTED_COLUMNS])
    each = iter(measurements)
    with parquet.ParquetWriter(out, schema, compression="zstd") as writer:
        while part := [
            _row(measurement, _micros) for measurement in islice(each, _WRITTEN_TOGETHER)
        ]:
            columns = [
                pa.array(values, type=field.type)
                for values, field in zip(zip(*part, strict=True), schema, strict=True)
            ]
            writer.write_table(pa.Table.from_arrays(columns, schema=schema))


def format_of(name: str) -> str:
    """The format of a file by its name. Raises InputError."""
    kind = name.rpartition(".")[2].lower()
    if kind not in FORMATS:
        raise InputError(f"{name}: found the ending {kind!r}, expected .csv or .parquet")
    return kind


def to_file(measurements: Iterable[Measurement], path: Path, kind: str) -> int:
    """Write a file, which appears when it is complete; returns how many measurements it has. Raises
    InputError where it cannot be written, MissingError."""
    check_format(kind)
    count = 0

    def counted() -> Iterator[Measurement]:
        nonlocal count
        for measurement in measurements:
            count += 1
            yield measurement

    part = path.with_name(f".{path.name}.part")
    try:
        with part.open("wb") as out:
            (write_parquet if kind == "parquet" else write_csv)(counted(), out)
        part.replace(path)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}") from None
    finally:
        part.unlink(missing_ok=True)
    return count


def check_format(name: str) -> None:
    """Raises MissingError if this format cannot be written here."""
    if name == "parquet":
        _pyarrow()


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow  # noqa: PLC0415  # large, and for those alone who export
        from pyarrow import parquet  # noqa: PLC0415
    except ImportError:
        raise MissingError(
            "writing Parquet needs pyarrow, which is not installed: pip install 'adon-wms[parquet]'"
        ) from None
    return pyarrow, parquet


def _type(pa: Any, name: str) -> Any:
    if name in _NUMBERS:
        return pa.float64()
    return pa.timestamp("us", tz="UTC") if name == _TIMES else pa.string()


def _row(measurement: Measurement, time: Callable[[float], object]) -> Sequence[object]:
    return (
        measurement.id, measurement.metric, measurement.subject, measurement.value,
        measurement.unit, measurement.at, time(measurement.at), measurement.source,
        measurement.workflow, json.dumps(dict(measurement.details)) if measurement.details else "",
    )  # fmt: skip


def _iso(at: float) -> str:
    if not _EARLIEST <= at <= _LATEST:
        return ""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="microseconds")


def _micros(at: float) -> int | None:
    return round(at * 1e6) if _EARLIEST <= at <= _LATEST else None


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
        """JSON-ready; null for a time that does not exist."""
        return {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in asdict(self).items()
        }


def contents(archive: Archive) -> list[Content]:
    """By metric. Reads all of the archive's index."""
    engine = archive.engine
    rows = engine.rows("SELECT metric, count(*) FROM rollup GROUP BY metric")
    rolled: dict[str, int] = {row[0]: row[1] for row in rows}
    whole: dict[str, tuple[int, float, float]] = {
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
            *whole.get(metric, nothing),
            rolled.get(metric, 0),
            horizon(engine, metric),
        )
        for metric in sorted({*whole, *rolled})
    ]


def copy_archive(source: Archive, target: Archive) -> int:
    """Copy measurements in the order in which they were recorded, roll-ups and horizons; how many
    measurements. Raises InputError where ``target`` is not empty, ArchiveError."""
    if target.latest_seq() or target.engine.rows("SELECT metric FROM horizon LIMIT 1"):
        raise InputError(f"{target.shown}: found measurements, expected an empty archive")
    seq, count = 0, 0
    while True:
        rows, reached = source.read_on(seq, (), _COPIED_TOGETHER)
        count += target.record_many(measurement for _, measurement in rows)
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
