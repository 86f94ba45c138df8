"""What a terminal shows: tables no wider than it, colours, and a pager for what is longer."""

from __future__ import annotations

import contextlib
import io
import os
import shlex
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from itertools import chain

from network_provisioner.base.errors import printable
from site_selector.explain.tables import table as plain_table

_WITHOUT = (80, 24)  # columns and lines, where no terminal says how many it has
_BAR = 10
_COLOURS = {
    **dict.fromkeys(("failed", "expired", "missed", "stuck", "removed"), "red"),
    **dict.fromkeys(("queued", "held", "installed", "best_effort"), "yellow"),
    **dict.fromkeys(("active", "running", "done", "ready"), "green"),
}


def line_width() -> int:
    """How many letters a line of the terminal has; 80 where the output goes elsewhere."""
    return shutil.get_terminal_size(_WITHOUT).columns


def grid(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table as in :mod:`site_selector.explain.tables`. On a terminal that is too narrow for it,
    columns without a value are left out, and the longest texts are on a line below each row."""
    if not sys.stdout.isatty():
        return plain_table(head, rows)
    beside, below = list(range(len(head))), list[int]()
    if not _fit(head, rows, beside):
        beside = [i for i in beside if i == 0 or any(row[i] != "-" for row in rows)]
    texts = sorted(
        (i for i in beside[1:] if head[i] and not head[i].endswith(">")),
        key=lambda i: max(len(row[i]) for row in rows),
    )
    while texts and not _fit(head, rows, beside):
        below.append(texts.pop())
        beside.remove(below[-1])
    lines = _drawn([head[i] for i in beside], [[row[i] for i in beside] for row in rows])
    if not below or len(lines) != len(rows) + 1:
        return "\n".join(lines)
    shown = lines[:1]
    for row, line in zip(rows, lines[1:], strict=True):
        shown.append(line)
        words = (f"{head[i]} {row[i]}" for i in sorted(below) if row[i] != "-")
        if text := printable("  ".join(words)):
            shown.append(wrapped(text, "  "))
    return "\n".join(shown)


def _fit(head: Sequence[str], rows: Sequence[Sequence[str]], columns: Sequence[int]) -> bool:
    return fits(
        plain_table([head[i] for i in columns], [[row[i] for i in columns] for row in rows])
    )


def _drawn(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table; cells that do not fit are folded."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    shown = Table(
        box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0), show_header=any(head)
    )
    for name in head:
        number = name.endswith(">")
        shown.add_column(
            Text(name.rstrip(">")),
            justify="right" if number else "left",
            no_wrap=number,
            overflow="fold",
        )
    for row in rows:
        shown.add_row(*(Text(printable(cell), _COLOURS.get(cell, "")) for cell in row))
    console = Console(file=io.StringIO(), force_terminal=True, width=line_width())
    with console.capture() as captured:
        console.print(shown)
    return captured.get().rstrip("\n").splitlines()


def bar(share: float) -> str:
    """A tenth for each mark; one for the least that there is."""
    marks = min(_BAR, max(round(share * _BAR), 1 if share > 0 else 0))
    return f"{'#' * marks:.<{_BAR}} {100 * share:3.0f} %"


def fits(text: str) -> bool:
    """Whether all lines fit into the terminal."""
    return max(map(len, text.splitlines()), default=0) <= line_width()


def wrapped(line: str, indent: str = "") -> str:
    """A line of words, on several lines of the terminal where it is too long for one."""
    return textwrap.fill(
        line, line_width(), initial_indent=indent, subsequent_indent="    ", break_on_hyphens=False
    )


def print_paged(parts: Iterable[str]) -> None:
    """Print them, each as soon as it is there; on a terminal by ``$PAGER`` where they have more
    lines than that."""
    parts = iter(parts)
    if pager := _pager():
        first: list[str] = []
        room = shutil.get_terminal_size(_WITHOUT).lines - 1  # one for the prompt
        for part in parts:
            first.append(part)
            room -= part.count("\n") + 1
            if room < 0:
                _page(pager, chain(first, parts))
                return
        parts = iter(first)
    for part in parts:
        print(part, flush=True)


def _pager() -> list[str]:
    """``$PAGER``, else less; nothing where no person reads or there is no such program."""
    words = shlex.split(os.environ.get("PAGER", "less"))
    return words if words and sys.stdout.isatty() and shutil.which(words[0]) else []


def _page(pager: Sequence[str], parts: Iterable[str]) -> None:
    import signal
    import subprocess

    environment = {"LESS": "FRX", **os.environ}  # colours, and the text stays on the terminal
    with subprocess.Popen(pager, stdin=subprocess.PIPE, text=True, env=environment) as shown:
        interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is the pager's
        try:
            assert shown.stdin is not None
            with contextlib.suppress(BrokenPipeError), shown.stdin as stream:
                for part in parts:
                    stream.write(f"{part}\n")
                    stream.flush()
            shown.wait()
        finally:
            signal.signal(signal.SIGINT, interrupt)
