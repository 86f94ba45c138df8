"""How commands print: tables for people, JSON for programs."""

from __future__ import annotations

import io
import json
import shutil
import sys
from collections.abc import Sequence
from typing import Any

from site_selector.explain.tables import table as plain_table

_WITHOUT = (80, 24)  # columns and lines, where no terminal says how many it has


def print_json(data: Any) -> None:
    """Indented, with Greek letters as they are."""
    print(json.dumps(data, indent=2, ensure_ascii=False))


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
        shown.add_row(*map(Text, row))
    console = Console(file=io.StringIO(), force_terminal=True, width=columns())
    with console.capture() as captured:
        console.print(shown)
    return captured.get().rstrip("\n")


def duration(seconds: float) -> str:
    """Seconds for people: ``53 ms``, ``42 s``, ``15 min``, ``1 h 52 min``."""
    if 0 < seconds < 1:
        return f"{1e3 * seconds:.3g} ms"
    if seconds < 120:
        return f"{seconds:.3g} s"
    minutes = round(seconds / 60)
    if minutes < 120:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min"
