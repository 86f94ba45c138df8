"""How commands print: tables for people, JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any


def print_json(data: Any) -> None:
    """Indented, with Greek letters as they are."""
    print(json.dumps(data, indent=2, ensure_ascii=False))


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as they need to be; ``head`` tells their number. A column whose name ends in
    ``>`` is set to the right."""
    right = [name.endswith(">") for name in head]
    lines = [[name.rstrip(">") for name in head], *rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(line, widths, right, strict=True)
        ).rstrip()
        for line in lines
    )


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
