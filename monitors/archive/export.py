"""Measurements as CSV and Parquet, for other programs.

One row each: the measurement's fields as they are (``at`` in Unix seconds), ``time`` the same
moment as others read it, and ``details`` as JSON. Written a part at a time: memory stays flat,
however many there are.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import IO, Any

from monitors.base.measurement import Measurement
from network_provisioner.base.cells import csv_cell
from network_provisioner.base.errors import InputError, MissingError

FORMATS = ("csv", "parquet")
COLUMNS = (
    "id", "metric", "subject", "value", "unit", "at", "time", "source", "workflow", "details",
)  # fmt: skip
_TIMES = "time"
_NUMBERS = frozenset({"value", "at"})
_PART = 10_000  # rows that are written at a time
_EARLIEST, _LATEST = -62135596800.0, 253402300799.0  # years 1 and 9999: what calendars know


def csv_parts(found: Iterable[Measurement]) -> Iterator[str]:
    """CSV as RFC 4180 has it, a header first; no cell is a formula to a spreadsheet."""
    yield ",".join(COLUMNS) + "\r\n"
    each = iter(found)
    while part := list(islice(each, _PART)):
        text = io.StringIO()
        writer = csv.writer(text)
        writer.writerows(map(csv_cell, _row(one, _iso)) for one in part)
        yield text.getvalue()


def write_csv(found: Iterable[Measurement], out: IO[bytes]) -> int:
    """Write them; how many there were."""
    count = 0

    def counted() -> Iterator[Measurement]:
        nonlocal count
        for one in found:
            count += 1
            yield one

    for part in csv_parts(counted()):
        out.write(part.encode())
    return count


def write_parquet(found: Iterable[Measurement], out: IO[bytes]) -> int:
    """Write them; how many there were. Raises MissingError where pyarrow is not installed."""
    pa, parquet = _pyarrow()
    schema = pa.schema([(name, _type(pa, name)) for name in COLUMNS])
    count = 0
    each = iter(found)
    with parquet.ParquetWriter(out, schema, compression="zstd") as writer:
        while part := [_row(one, _micros) for one in islice(each, _PART)]:
            columns = [
                pa.array(values, type=field.type)
                for values, field in zip(zip(*part, strict=True), schema, strict=True)
            ]
            writer.write_table(pa.Table.from_arrays(columns, schema=schema))
            count += len(part)
    return count


def format_of(name: str) -> str:
    """The format that a file's name says. Raises InputError."""
    kind = name.rpartition(".")[2].lower()
    if kind not in FORMATS:
        raise InputError(f"{name}: found the ending {kind!r}, expected .csv or .parquet")
    return kind


def to_file(found: Iterable[Measurement], path: Path, kind: str) -> int:
    """Write a file, which is there when it is whole and not before; how many there were. Raises
    InputError where it cannot be written, MissingError."""
    check_format(kind)
    part = path.with_name(f".{path.name}.part")
    try:
        with part.open("wb") as out:
            count = (write_parquet if kind == "parquet" else write_csv)(found, out)
        part.replace(path)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}") from None
    finally:
        part.unlink(missing_ok=True)
    return count


def check_format(name: str) -> None:
    """Raises MissingError where nothing can write it here."""
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


def as_dict(one: Measurement) -> dict[str, Any]:
    """For JSON."""
    return {name: getattr(one, name) for name in COLUMNS if name not in (_TIMES, "details")} | {
        "details": dict(one.details)
    }


def _row(one: Measurement, time: Callable[[float], object]) -> Sequence[object]:
    return (
        one.id, one.metric, one.subject, one.value, one.unit, one.at, time(one.at), one.source,
        one.workflow, json.dumps(dict(one.details)) if one.details else "",
    )  # fmt: skip


def _iso(at: float) -> str:
    if not _EARLIEST <= at <= _LATEST:
        return ""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="microseconds")


def _micros(at: float) -> int | None:
    return round(at * 1e6) if _EARLIEST <= at <= _LATEST else None
