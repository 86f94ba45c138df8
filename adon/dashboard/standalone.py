"""A page that stands alone: the dashboard's modules that draw, and the values that they draw, in
one HTML file. It loads nothing and contacts no host. Plots are SVG: panels with bars, curves,
boxes and dots."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from html import escape
from importlib.resources import files
from pathlib import Path
from posixpath import dirname, join, normpath
from typing import Any

_IMPORT = re.compile(r'^import \{([^}]*)\} from "(\.\.?/[^"]+)";$', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:function|const) (\w+))", re.MULTILINE)

COLOURS = ("#3b6ea5", "#c4562f")
_INK, _SOFT = "#222", "#bbb"


@dataclass(frozen=True, slots=True)
class Figure:
    """Something that ``figures.js`` draws: ``kind`` is one of its functions, ``values`` what that
    takes."""

    kind: str
    values: Any
    heading: str = ""
    note: str = ""


def page(title: str, figures: Sequence[Figure]) -> str:
    """The whole page, in the dashboard's style; names may have any letters."""
    values: dict[str, list[Any]] = {}
    body = []
    for figure in figures:
        same = values.setdefault(figure.kind, [])
        body.append(
            (f"<h2>{escape(figure.heading)}</h2>" if figure.heading else "")
            + (f'<p class="soft">{escape(figure.note)}</p>' if figure.note else "")
            + f'<div class="wide" data-draw="{figure.kind}" data-number="{len(same)}"></div>'
        )
        same.append(figure.values)
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy()}">
<title>{escape(title)}</title><style>{style()}</style></head><body>
<main><h1>{escape(title)}</h1><noscript><p>The drawings need JavaScript.</p></noscript>
{"".join(body)}</main>{scripts(values)}</body></html>
"""


def style() -> str:
    """The dashboard's, with that of the drawings."""
    return _text("style.css") + _text("figures.css")


def policy() -> str:
    """What the page may do: its own style, and the one script whose words are these."""
    digest = base64.b64encode(hashlib.sha256(_script().encode()).digest()).decode()
    return f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"


def scripts(values: Mapping[str, Iterable[Any]]) -> str:
    """The end of a page: figures by kind, in which nothing can end the element that they are in,
    and what draws the ``number``-th of a kind in ``<div data-draw=kind data-number=number>``."""
    text = json.dumps(values, ensure_ascii=False, allow_nan=False).replace("<", "\\u003c")
    return (
        f'<script type="application/json" id="data">{text}</script>'
        f'<script type="module">{_script()}</script>'
    )


@cache
def _script() -> str:
    return bundle("figures.js", _text)


def _text(name: str) -> str:
    return (files("adon.dashboard") / "web" / name).read_text(encoding="utf-8")


def bundle(entry: str, read: Callable[[str], str]) -> str:
    """One script of a module and all that it imports, each in a scope of its own. ``read`` gives
    the text of a module by its path; no two have the same name."""
    done: dict[str, str] = {}

    def add(name: str) -> None:
        if name in done:
            return
        text = read(name)
        for imported in _IMPORT.finditer(text):
            add(normpath(join(dirname(name), imported[2])))
        exported = ", ".join(_EXPORT.findall(text))
        body = _IMPORT.sub(lambda m: f"const {{{m[1]}}} = {_scope(m[2])};", text)
        body = _EXPORT.sub("", body)
        done[name] = f"const {_scope(name)} = (() => {{\n{body}return {{ {exported} }};\n}})();\n"

    add(entry)
    return "".join(done.values())


def _scope(module: str) -> str:
    return f"${Path(module).stem}"


@dataclass(slots=True)
class Panel:
    """One plot at ``x``, ``y``, with ``slots`` places from left to right and values from 0, at its
    bottom, to ``most``."""

    x: float
    y: float
    width: float
    height: float
    slots: int
    most: float
    parts: list[str] = field(default_factory=list)

    def across(self, slot: float) -> float:
        """The middle of a place."""
        return self.x + (slot + 0.5) * self.width / self.slots

    def up(self, value: float) -> float:
        """Where a value is; one that is not within the panel is at its edge."""
        return self.y + self.height * (1 - min(1.0, max(0.0, value / self.most)))

    def axes(self, title: str, labels: Sequence[str], levels: Iterable[tuple[float, str]]) -> None:
        """Its title, the name of each place, and lines at values."""
        for value, words in levels:
            at = self.up(value)
            self._line(self.x, at, self.x + self.width, at, _SOFT)
            self._text(self.x - 4, at + 4, words, "end")
        for slot, words in enumerate(labels):
            self._text(self.across(slot), self.y + self.height + 15, words)
        self._text(self.x, self.y - 8, title, "start")

    def bar(self, slot: int, value: float, spread: float, colour: str) -> None:
        """A bar from 0, with ``spread`` to both sides of its end."""
        self._rectangle(slot, 0.8, 0.0, value, f'fill="{colour}"')
        self.whisker(slot, value - spread, value + spread, _INK)

    def whisker(self, slot: float, low: float, high: float, colour: str) -> None:
        """A line over a range of values."""
        self._line(self.across(slot), self.up(low), self.across(slot), self.up(high), colour)

    def box(self, slot: int, quartiles: Sequence[float], colour: str) -> None:
        """From the first quartile to the third, with a line at the median, least and most."""
        least, low, middle, high, most = quartiles
        self.whisker(slot, least, most, colour)
        self._rectangle(slot, 0.5, low, high, f'fill="#fff" stroke="{colour}"')
        left, right = self.across(slot - 0.25), self.across(slot + 0.25)
        self._line(left, self.up(middle), right, self.up(middle), colour)

    def dots(self, points: Iterable[tuple[float, float]], colour: str, radius: float = 3) -> None:
        """A dot at each place and value."""
        self.parts += [
            f'<circle cx="{self.across(x):.1f}" cy="{self.up(y):.1f}" r="{radius}" '
            f'fill="{colour}"/>'
            for x, y in points
        ]

    def curve(self, points: Iterable[tuple[float, float]], colour: str) -> None:
        """A line through places and values."""
        path = " ".join(f"{self.across(x):.1f},{self.up(y):.1f}" for x, y in points)
        self.parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}"/>')

    def _rectangle(self, slot: int, share: float, low: float, high: float, look: str) -> None:
        wide, top = share * self.width / self.slots, self.up(high)
        self.parts.append(
            f'<rect x="{self.across(slot) - wide / 2:.1f}" y="{top:.1f}" width="{wide:.1f}" '
            f'height="{self.up(low) - top:.1f}" {look}/>'
        )

    def _line(self, x1: float, y1: float, x2: float, y2: float, colour: str) -> None:
        self.parts.append(
            f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"/>'
        )

    def _text(self, x: float, y: float, words: str, anchor: str = "middle") -> None:
        self.parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'
        )


def drawing(width: float, height: float, panels: Iterable[Panel]) -> str:
    """The whole file."""
    body = "\n".join(part for panel in panels for part in panel.parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" '
        f'width="{width:g}" height="{height:g}" font-family="sans-serif" font-size="11" '
        f'fill="{_INK}">\n<rect width="100%" height="100%" fill="#fff"/>\n{body}\n</svg>\n'
    )
