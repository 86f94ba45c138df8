"""Tables that fit into a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from adon.cli.output import columns
from site_selector.explain.tables import table


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
    whole = table(head, rows)
    if fits(whole):
        return whole
    rest = [i for i in range(len(head)) if i not in named]
    numbers = table([head[i] for i in rest], [[row[i] for i in rest] for row in rows])
    first, *others = (f"  {line}" for line in numbers.splitlines())
    lines = [first]
    for label, line in zip(labels, others, strict=True):
        lines += [wrapped(label), line]
    return "\n".join(lines)
