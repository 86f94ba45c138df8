"""Tables of text."""

from __future__ import annotations

from collections.abc import Sequence

from network_provisioner.base.errors import printable


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as they need to be; ``head`` tells their number. A column whose name ends in
    ``>`` is set to the right. Control characters in cells are escaped."""
    right = [name.endswith(">") for name in head]
    lines = [[name.rstrip(">") for name in head], *(list(map(printable, row)) for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(line, widths, right, strict=True)
        ).rstrip()
        for line in lines
    )
