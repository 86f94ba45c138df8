"""The little HTML that the report is made of. Everything that is given as text is escaped."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from html import escape

NONE: frozenset[int] = frozenset()


def text(words: str) -> str:
    """Words as HTML."""
    return escape(words)


def scroller(label: str, body: str) -> str:
    """Something wide: it scrolls by itself, also with the keyboard, and the page does not."""
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="{escape(label, quote=True)}">'
        f"{body}</div>"
    )


def drawing(label: str, kind: str, number: int = 0) -> str:
    """Where the dashboard's modules draw the ``number``-th of some kind."""
    return scroller(label, f'<div data-draw="{kind}" data-number="{number}"></div>')


def table(
    label: str, head: Sequence[str], bodies: Iterable[str], numbers: frozenset[int] = NONE
) -> str:
    """A table in its scroller. ``bodies`` are rows or whole ``<tbody>``; ``numbers`` are columns
    to align right."""
    cells = "".join(
        f'<th scope="col"{_number(i, numbers)}>{escape(words)}</th>' for i, words in enumerate(head)
    )
    inner = "".join(bodies)
    if not inner.startswith("<tbody"):
        inner = f"<tbody>{inner}</tbody>"
    return scroller(label, f"<table><thead><tr>{cells}</tr></thead>{inner}</table>")


def row(cells: Sequence[str], numbers: frozenset[int] = NONE, cls: str = "") -> str:
    """One row; each cell is HTML."""
    body = "".join(f"<td{_number(i, numbers)}>{cell}</td>" for i, cell in enumerate(cells))
    return f'<tr class="{cls}">{body}</tr>' if cls else f"<tr>{body}</tr>"


def details(summary: str, body: str, opened: bool = False) -> str:
    """Something to unfold, with the keyboard too. ``summary`` is text, ``body`` is HTML."""
    return (
        f"<details{' open' if opened else ''}><summary>{escape(summary)}</summary>{body}</details>"
    )


def bullets(items: Iterable[str], cls: str = "") -> str:
    """A list of texts; nothing where there are none."""
    inner = "".join(f"<li>{escape(item)}</li>" for item in items)
    return f"<ul{f' class={cls!r}' if cls else ''}>{inner}</ul>" if inner else ""


def verbatim(lines: Iterable[str]) -> str:
    """Lines of a program, as they are."""
    return f"<pre>{escape(chr(10).join(lines))}</pre>"


def picture(label: str, png: bytes) -> str:
    """A PNG within the page; nothing where there is none."""
    data = b64encode(png).decode()
    alt = escape(label, quote=True)
    return f'<img alt="{alt}" src="data:image/png;base64,{data}">' if png else ""


def section(anchor: str, title: str, *body: str) -> str:
    """A part of the page that the list of contents can point to."""
    return f'<section id="{anchor}"><h2>{escape(title)}</h2>{"".join(body)}</section>'


def note(words: str) -> str:
    """A soft line under a heading."""
    return f'<p class="soft">{escape(words)}</p>'


def key(entries: Mapping[str, str]) -> str:
    """A key of colours: words to CSS class."""
    return (
        '<p class="key">'
        + "".join(
            f'<span><i class="{cls}"></i>{escape(words)}</span>' for words, cls in entries.items()
        )
        + "</p>"
    )


def _number(column: int, numbers: frozenset[int]) -> str:
    return ' class="n"' if column in numbers else ""
