"""What a terminal shows: tables no wider than it, colours, and a pager for what is longer."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain

from network_provisioner.base.errors import printable

_WITHOUT = (80, 24)  # columns and lines, where no terminal says how many it has
_BAR = 10
_SHORT, _TIE = 12, "\xa0"  # letters of what is on one line, and what keeps it there
_BOLD, _PLAIN = "\x1b[1m", "\x1b[0m"
_RED, _YELLOW, _GREEN = "\x1b[31m", "\x1b[33m", "\x1b[32m"
_COLOURS = {
    **dict.fromkeys(("failed", "expired", "missed", "stuck", "removed"), _RED),
    **dict.fromkeys(("queued", "held", "installed", "best_effort", "drained"), _YELLOW),
    **dict.fromkeys(("active", "running", "done", "ready"), _GREEN),
}


def screen_size() -> os.terminal_size:
    """Columns and lines of the terminal; 80 and 24 where the output goes elsewhere."""
    return shutil.get_terminal_size(_WITHOUT)


def line_width() -> int:
    """How many letters a line of the terminal has."""
    return screen_size().columns


class Grid:
    """A table that is drawn in parts. The rows that it is made with say how wide its columns are.
    On a terminal that is too narrow, columns without a value are left out, and the longest texts
    are on a line below each row. A column whose name ends in ``>`` is set to the right."""

    def __init__(self, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        self._names = [name.rstrip(">") for name in head]
        self._is_number = [name.endswith(">") for name in head]
        self._is_terminal = sys.stdout.isatty()
        self._is_coloured = (
            self._is_terminal
            and not os.environ.get("NO_COLOR")
            and os.environ.get("TERM", "dumb") != "dumb"
        )
        self._widths = [
            max(len(name), *(len(printable(row[i])) for row in rows), 0)
            for i, name in enumerate(self._names)
        ]
        self._beside, self._below = list(range(len(head))), list[int]()
        if self._is_terminal and not self._fits():
            self._lay_out(rows)

    def head(self) -> list[str]:
        """Its first line; none on a terminal where no column has a name."""
        if self._is_terminal and not any(self._names):
            return []
        return [self._line(self._names, lambda _: _BOLD)]

    def lines(self, rows: Iterable[Sequence[str]]) -> Iterator[str]:
        """The lines of some rows."""
        for row in rows:
            yield self._line(row, lambda cell: _COLOURS.get(cell, ""))
            cells_below = [
                f"{self._names[i]} {_whole(row[i])}" for i in self._below if row[i] not in ("", "-")
            ]
            if cells_below:
                yield wrapped("  ".join(cells_below), "  ").replace(_TIE, " ")

    def _fits(self) -> bool:
        return sum(self._widths[i] + 2 for i in self._beside) - 2 <= line_width()

    def _lay_out(self, rows: Sequence[Sequence[str]]) -> None:
        first, *others = self._beside
        self._beside = [first, *(i for i in others if any(row[i] != "-" for row in rows))]
        named = [i for i in self._beside[1:] if self._names[i]]
        # Numbers go last, of the texts the longest first.
        named.sort(key=lambda i: (not self._is_number[i], self._widths[i]))
        while named and not self._fits():
            self._beside.remove(named[-1])
            self._below.append(named.pop())
        self._below.sort()

    def _line(self, row: Sequence[str], style: Callable[[str], str]) -> str:
        *before, last = self._beside
        line = "".join(self._cell(i, row[i], style) + "  " for i in before)
        text = self._cell(last, row[last], style)
        if self._is_terminal and not self._fits():
            indent = sum(self._widths[i] + 2 for i in before)
            room = max(line_width() - indent, 1)
            text = f"\n{' ' * indent}".join(textwrap.wrap(printable(row[last]), room) or [""])
        return (line + text).rstrip()

    def _cell(self, column: int, text: str, style: Callable[[str], str]) -> str:
        text, width = printable(text), self._widths[column]
        padded = text.rjust(width) if self._is_number[column] else text.ljust(width)
        start = style(text) if self._is_coloured else ""
        return f"{start}{padded}{_PLAIN}" if start else padded


def _whole(text: str) -> str:
    """That a line does not part a number from its unit."""
    text = printable(text)
    return text.replace(" ", _TIE) if len(text) <= _SHORT else text


def grid(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A whole table, see :class:`Grid`."""
    drawn = Grid(head, rows)
    return "\n".join([*drawn.head(), *drawn.lines(rows)])


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


def for_output(line: str) -> str:
    """A line: on a terminal wrapped to its width, elsewhere as it is."""
    return wrapped(line) if sys.stdout.isatty() else line


def below_table(lines: Iterable[str]) -> Iterator[str]:
    """Lines below a table, see :func:`for_output`."""
    return map(for_output, lines)


def print_paged(parts: Iterable[str]) -> None:
    """Print them, each as soon as it is there; on a terminal by ``$PAGER`` where they have more
    lines than that."""
    parts = iter(parts)
    if pager := _pager():
        first: list[str] = []
        room = screen_size().lines - 1  # one for the prompt
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
    try:
        command = shlex.split(os.environ.get("PAGER", "less"))
    except ValueError:  # a quote is not closed
        return []
    return command if command and sys.stdout.isatty() and shutil.which(command[0]) else []


def _page(pager: Sequence[str], parts: Iterable[str]) -> None:
    import signal
    import subprocess

    environment = {"LESS": "FRX", **os.environ}  # colours, and the text stays on the terminal
    with subprocess.Popen(
        pager, stdin=subprocess.PIPE, text=True, errors="backslashreplace", env=environment
    ) as shown:
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
