"""How commands print: tables for people, JSON and CSV for programs."""

from __future__ import annotations

import argparse
import io
import json
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any, NamedTuple, TextIO

from adon.cli.terminal import Grid, below_table, fits, grid, print_paged, wrapped
from network_provisioner.base.errors import InputError, did_you_mean, printable
from network_provisioner.base.instants import local_time
from network_provisioner.base.units import format_rate, format_size
from site_selector.explain.tables import table as plain_table

# Control characters, and those that turn the direction of what follows; no line breaks.
_OBEYED = re.compile("[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_FEW_MINUTES_S = 600
Record = Mapping[str, Any]
_LINES = 10  # where there is no terminal: about as many in all


def duration(seconds: float) -> str:
    """Seconds for people: ``53 ms``, ``42 s``, ``2 min 28 s``, ``15 min``, ``1 h 52 min``."""
    if 0 < seconds < 0.9995:  # else it would be 1e+03 ms
        return f"{1e3 * seconds:.3g} ms"
    if seconds < 120:
        return f"{seconds:.3g} s"
    if (whole := round(seconds)) < _FEW_MINUTES_S:
        return f"{whole // 60} min {whole % 60} s" if whole % 60 else f"{whole // 60} min"
    minutes = round(seconds / 60)
    if minutes < 120:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min"


def metric_text(metric: str, value: float) -> str:
    """A path's throughput (bits per second), loss (a share), delay or jitter (seconds) for
    people."""
    if metric == "throughput":
        return format_rate(value)
    return f"{value:g}" if metric == "loss" else duration(value)


class Column(NamedTuple):
    """A column of a table. ``key`` is where its raw value is in a record, ``totals.done`` inside
    another and ``specs.0`` in a list; ``cell`` makes text for people of that value, or by its unit
    where there is none, and of those of the keys ``also``. A ``heading`` that ends in ``>`` is set
    to the right."""

    key: str
    heading: str = ""
    cell: Callable[..., str] | None = None
    also: tuple[str, ...] = ()

    def text(self, record: Record) -> str:
        """The cell for people."""
        values = [value_at(record, key) for key in (self.key, *self.also)]
        if self.cell is None or values == [None]:
            return text_of(self.key, values[0])
        return self.cell(*values)


def value_at(record: Any, key: str) -> Any:
    """The raw value, None inside of nothing. Raises LookupError, TypeError or ValueError if
    there is none."""
    if record is None or (isinstance(record, Mapping) and key in record):
        return record and record[key]
    first, dot, rest = key.partition(".")
    inner = record[int(first) if isinstance(record, list | tuple) else first]
    return value_at(inner, rest) if dot else inner


def _value_or_none(record: Record, key: str) -> Any:
    try:
        return value_at(record, key)
    except (LookupError, TypeError, ValueError):
        return None


_UNITS: dict[str, Callable[[Any], str]] = {
    "bps": format_rate, "s": duration, "bytes": format_size,
    "at": local_time, "start": local_time, "end": local_time, "since": local_time,
    "until": local_time,
}  # fmt: skip


def text_of(key: str, value: Any) -> str:
    """A value for people, by the unit that its name ends in."""
    if value in (None, "", [], {}):
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        unit = _UNITS.get(re.split(r"[._]", key)[-1])
        return unit(value) if unit else f"{value:.6g}" if isinstance(value, float) else str(value)
    if isinstance(value, list | tuple) and not any(isinstance(v, list | dict) for v in value):
        return ", ".join(map(str, value))
    return str(value) if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def print_records(
    args: argparse.Namespace,
    columns: Sequence[Column],
    records: Sequence[Record],
    *,
    document: Any = ...,
    none: str = "",
    text: Callable[[str], str] | None = None,
) -> int:
    """Print records by the options of :func:`adon.cli.parsing.add_output`; exit code 0.

    ``document`` is their JSON where that is not the records themselves; ``none`` is the text where
    there are none, and ``text`` adds to the table the lines around it. With ``--columns`` each
    form has these alone: JSON is a list of objects then. Raises InputError for a column that no
    record has.
    """
    if args.columns:
        columns = _chosen(columns, records, args.columns)
        records = [{c.key: _value_or_none(record, c.key) for c in columns} for record in records]
        document, none, text = ..., "", None
    if args.json:
        shown = json_text(records if document is ... else document)
    elif args.csv:
        shown = _csv(_split(columns), records)
    elif not records and none:
        shown = none
    else:
        shown = table(columns, records) if text is None else text(table(columns, records))
    print_paged([shown])
    return 0


def rendered_pages(
    args: argparse.Namespace,
    columns: Sequence[Column],
    pages: Iterable[Sequence[Record]],
    *,
    none: str = "",
    below: Callable[[], Iterable[str]] = tuple,
) -> Iterator[str]:
    """What :func:`print_records` prints of all records, in parts, each as soon as its page is
    there; ``below`` makes the lines below the table. The columns are those of the first page, and
    as wide as it needs them. Raises InputError for a column that no record of it has."""
    rest = iter(pages)
    first = next(rest, ())
    every: Iterable[Sequence[Record]] = chain([first], rest)
    if args.columns:
        columns, none, below = _chosen(columns, first, args.columns), "", tuple
        keys = [column.key for column in columns]
        every = ([{k: _value_or_none(r, k) for k in keys} for r in page] for page in every)
    if args.json:
        yield from _json_parts(every)
    elif args.csv:
        csv = (_csv(_split(columns), page, header=not n) for n, page in enumerate(every))
        yield from filter(None, csv)
    elif not first and none:
        yield none
    else:
        yield from _table_parts(columns, every)
        yield from below_table(below())


def print_fields(
    args: argparse.Namespace,
    records: Record | Sequence[Record],
    text: Callable[[], str],
    document: Any = ...,
) -> int:
    """Print what is no table for people but ``text``: for programs, a column for each field of the
    record or records; exit code 0. Raises InputError for a column that no record has."""
    if not for_programs(args):
        print_paged([text()])
        return 0
    document = records if document is ... else document
    records = [records] if isinstance(records, Mapping) else records
    keys = dict.fromkeys(key for record in records for key in record)
    whole = [{key: record.get(key) for key in keys} for record in records]
    return print_records(args, [Column(key) for key in keys], whole, document=document)


def for_programs(args: argparse.Namespace) -> bool:
    """Whether a program reads what the command prints, which has nothing else then."""
    return bool(args.json or args.csv or args.columns)


def _split(columns: Sequence[Column]) -> list[Column]:
    """A column for each value."""
    keys = dict.fromkeys(key for column in columns for key in (column.key, *column.also))
    return [Column(key) for key in keys]


def _chosen(
    columns: Sequence[Column], records: Sequence[Record], names: Sequence[str]
) -> list[Column]:
    """The columns of these names. Without records any name is one. Raises InputError."""
    known = {column.key: Column(column.key) for column in _split(columns)}
    for record in records:
        known |= {key: known.get(key, Column(key)) for key in _keys(record)}
    known |= {column.key: column for column in columns if not column.also}
    for name in names if records else ():
        if name not in known:
            expected = f"expected some of {', '.join(known)}"
            raise InputError(f"--columns: found {name!r}, {expected}{did_you_mean(name, known)}")
    return [known.get(name, Column(name)) for name in names]


def _keys(record: Record, above: str = "") -> Iterator[str]:
    """All keys, those of records inside with their own in front."""
    for key, value in record.items():
        if isinstance(value, Mapping) and value:
            yield from _keys(value, f"{above}{key}.")
        else:
            yield f"{above}{key}"


def _json_parts(pages: Iterable[Sequence[Record]]) -> Iterator[str]:
    """One list, as :func:`json_text` has it."""
    part = "["
    for page in filter(None, pages):
        yield part if part == "[" else f"{part},"
        part = json_text(page)[len("[\n") : -len("\n]")]
    yield from ("[]",) if part == "[" else (part, "]")


def _table_parts(columns: Sequence[Column], pages: Iterable[Sequence[Record]]) -> Iterator[str]:
    drawn = None
    for page in pages:
        rows = [[column.text(record) for column in columns] for record in page]
        if drawn is None:
            drawn = Grid([column.heading or column.key for column in columns], rows)
            yield from drawn.head()
        if rows:
            yield "\n".join(drawn.lines(rows))


def _csv(columns: Sequence[Column], records: Sequence[Record], header: bool = True) -> str:
    import csv

    from network_provisioner.base.csv_cells import csv_cell

    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    if header:
        writer.writerow([column.key for column in columns])
    for record in records:
        writer.writerow([csv_cell(_raw(value_at(record, c.key))) for c in columns])
    return _visible(out.getvalue()).rstrip("\n")


def _raw(value: Any) -> Any:
    """A value in a cell of CSV: what is neither text nor nothing is as in JSON."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    return json.dumps(value, ensure_ascii=False)


def json_text(data: Any, indent: int | None = 2) -> str:
    """JSON. Greek letters stay as they are; what a terminal would obey is escaped. Without
    ``indent`` it is one line."""
    return _visible(json.dumps(data, indent=indent, ensure_ascii=False))


def _visible(text: str) -> str:
    return _OBEYED.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def print_json(data: Any, indent: int | None = 2) -> None:
    """See :func:`json_text`."""
    print(json_text(data, indent))


def note(message: str) -> None:
    """One line on standard error, whatever is in the message: it may quote a foreign server."""
    print(f"adon: {printable(' '.join(message.split()))}", file=sys.stderr)


def table(columns: Sequence[Column], records: Sequence[Record]) -> str:
    """A line for each record; on a terminal no line is wider than that."""
    head = [column.heading or column.key for column in columns]
    return grid(head, [[column.text(record) for column in columns] for record in records])


def fitted(
    columns: Sequence[Column],
    records: Sequence[Record],
    label: Callable[..., str],
    named: Sequence[int],
) -> str:
    """A table of plain text. Where it is too wide, a line above each row has what is in the
    columns ``named``, of whose cells ``label`` makes it."""
    head = [column.heading for column in columns]
    rows = [[column.text(record) for column in columns] for record in records]
    whole = plain_table(head, rows)
    if fits(whole):
        return whole
    rest = [i for i in range(len(head)) if i not in named]
    numbers = plain_table([head[i] for i in rest], [[row[i] for i in rest] for row in rows])
    first, *others = (f"  {line}" for line in numbers.splitlines())
    lines = [first]
    for row, line in zip(rows, others, strict=True):
        lines += [wrapped(printable(label(*(row[i] for i in named)))), line]
    return "\n".join(lines)


@contextmanager
def progress(
    total: int,
    things: str,
    stream: TextIO | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Callable[[int], None]]:
    """Shows how many of ``total`` ``things`` are done, each time that the function says it."""
    stream = sys.stderr if stream is None else stream
    if not stream.isatty():
        yield _lines(total, things, stream, clock)
        return
    from rich import progress as rich  # slow to import, and seldom needed
    from rich.console import Console

    columns = (rich.BarColumn(), rich.MofNCompleteColumn(), things, rich.TimeRemainingColumn())
    with rich.Progress(*columns, console=Console(file=stream)) as bar:
        task = bar.add_task(things, total=total)
        yield lambda done: bar.update(task, completed=done)


def _lines(
    total: int, things: str, stream: TextIO, clock: Callable[[], float]
) -> Callable[[int], None]:
    began, lines_shown = clock(), 0

    def show(done: int) -> None:
        nonlocal lines_shown
        if done * _LINES // total > lines_shown:
            lines_shown = done * _LINES // total
            spent = clock() - began
            left = f"about {duration(spent / done * (total - done))} left"
            time_text = left if done < total else duration(spent)
            print(f"{done} of {total} {things}, {time_text}", file=stream, flush=True)

    return show
