"""Tables of text."""

from __future__ import annotations

from collections.abc import Sequence


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
