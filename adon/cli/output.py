"""How commands print: tables for people, JSON for programs."""

from __future__ import annotations

import io
import json
import re
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TextIO

from network_provisioner.base.errors import printable
from site_selector.explain.tables import table as plain_table

# Control characters, and those that turn the direction of what follows; no line breaks.
_OBEYED = re.compile("[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_WITHOUT = (80, 24)  # columns and lines, where no terminal says how many it has


def print_json(data: Any, indent: int | None = 2) -> None:
    """Greek letters stay as they are; what a terminal would obey is escaped. Without ``indent`` it
    is one line."""
    text = json.dumps(data, indent=indent, ensure_ascii=False)
    print(_OBEYED.sub(lambda found: f"\\u{ord(found[0]):04x}", text))


def columns() -> int:
    """How many letters a line of the terminal has; 80 where the output goes elsewhere."""
    return shutil.get_terminal_size(_WITHOUT).columns


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table as in :mod:`site_selector.explain.tables`; on a terminal, no wider than that."""
    if not sys.stdout.isatty():
        return plain_table(head, rows)
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    shown = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for name in head:
        shown.add_column(
            Text(name.rstrip(">")),
            justify="right" if name.endswith(">") else "left",
            overflow="fold",
        )
    for row in rows:
        shown.add_row(*(Text(printable(cell)) for cell in row))
    console = Console(file=io.StringIO(), force_terminal=True, width=columns())
    with console.capture() as captured:
        console.print(shown)
    return captured.get().rstrip("\n")


_FEW_MINUTES_S = 600


def duration(seconds: float) -> str:
    """Seconds for people: ``53 ms``, ``42 s``, ``2 min 28 s``, ``15 min``, ``1 h 52 min``."""
    if 0 < seconds < 1:
        return f"{1e3 * seconds:.3g} ms"
    if seconds < 120:
        return f"{seconds:.3g} s"
    if (whole := round(seconds)) < _FEW_MINUTES_S:
        return f"{whole // 60} min {whole % 60} s" if whole % 60 else f"{whole // 60} min"
    minutes = round(seconds / 60)
    if minutes < 120:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min"


_BAR = 10


def bar(share: float) -> str:
    """A tenth for each mark; one for the least that there is."""
    marks = min(_BAR, max(round(share * _BAR), 1 if share > 0 else 0))
    return f"{'#' * marks:.<{_BAR}} {100 * share:3.0f} %"


def fits(text: str) -> bool:
    """Whether all lines fit into the terminal."""
    return max(map(len, text.splitlines()), default=0) <= columns()


def wrapped(line: str) -> str:
    """A line of words, on several lines of the terminal where it is too long for one."""
    return textwrap.fill(line, columns(), subsequent_indent="    ", break_on_hyphens=False)


def fitted(
    head: Sequence[str], rows: Sequence[Sequence[str]], labels: Sequence[str], named: Sequence[int]
) -> str:
    """A table. Where it is too wide, each row's label stands above it, and says what stands in the
    columns ``named``, which are left out."""
    whole = plain_table(head, rows)
    if fits(whole):
        return whole
    rest = [i for i in range(len(head)) if i not in named]
    numbers = plain_table([head[i] for i in rest], [[row[i] for i in rest] for row in rows])
    first, *others = (f"  {line}" for line in numbers.splitlines())
    lines = [first]
    for label, line in zip(labels, others, strict=True):
        lines += [wrapped(label), line]
    return "\n".join(lines)


_LINES = 10  # where there is no terminal: about as many in all


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
    began, told = clock(), 0

    def show(done: int) -> None:
        nonlocal told
        if done * _LINES // total > told:
            told = done * _LINES // total
            spent = clock() - began
            left = f"about {duration(spent / done * (total - done))} left"
            words = left if done < total else duration(spent)
            print(f"{done} of {total} {things}, {words}", file=stream, flush=True)

    return show
