"""Plots as SVG text, for files that stand alone: panels with bars, points and boxes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape

COLOURS = ("#3b6ea5", "#c4562f")
_INK, _SOFT = "#222", "#bbb"
_LETTER = 11


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
        """Where a value is; one above ``most`` is at the top."""
        return self.y + self.height * (1 - min(1.0, value / self.most))

    def axes(self, title: str, labels: Sequence[str], levels: Iterable[tuple[float, str]]) -> None:
        """Its title, the name of each place, and lines at values."""
        for value, words in levels:
            self.line(self.x, self.up(value), self.x + self.width, self.up(value), _SOFT)
            self.text(self.x - 4, self.up(value) + 4, words, "end")
        for slot, words in enumerate(labels):
            self.text(self.across(slot), self.y + self.height + _LETTER + 4, words)
        self.text(self.x, self.y - 8, title, "start")

    def bar(self, slot: int, value: float, spread: float, colour: str) -> None:
        """A bar from 0, with ``spread`` to both sides of its end."""
        wide = 0.8 * self.width / self.slots
        left, top = self.across(slot) - wide / 2, self.up(value)
        self.parts.append(
            f'<rect x="{left:.1f}" y="{top:.1f}" width="{wide:.1f}" '
            f'height="{self.y + self.height - top:.1f}" fill="{colour}"/>'
        )
        self.whisker(slot, value - spread, value + spread, _INK)

    def whisker(self, slot: float, low: float, high: float, colour: str) -> None:
        """A line over a range of values."""
        at = self.across(slot)
        self.line(at, self.up(max(0.0, low)), at, self.up(high), colour)

    def box(self, slot: int, quartiles: Sequence[float], colour: str) -> None:
        """Least, three quartiles, most."""
        least, low, middle, high, most = quartiles
        self.whisker(slot, least, most, colour)
        left, right = self.across(slot - 0.25), self.across(slot + 0.25)
        self.parts.append(
            f'<rect x="{left:.1f}" y="{self.up(high):.1f}" width="{right - left:.1f}" '
            f'height="{self.up(low) - self.up(high):.1f}" fill="#fff" stroke="{colour}"/>'
        )
        self.line(left, self.up(middle), right, self.up(middle), colour)

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

    def line(self, x1: float, y1: float, x2: float, y2: float, colour: str) -> None:
        """A straight line between two points of the drawing."""
        self.parts.append(
            f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"/>'
        )

    def text(self, x: float, y: float, words: str, anchor: str = "middle") -> None:
        """Words at a point of the drawing."""
        self.parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'
        )


def drawing(width: float, height: float, panels: Iterable[Panel]) -> str:
    """The whole file."""
    body = "\n".join(part for panel in panels for part in panel.parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" '
        f'width="{width:g}" height="{height:g}" font-family="sans-serif" font-size="{_LETTER}" '
        f'fill="{_INK}">\n<rect width="100%" height="100%" fill="#fff"/>\n{body}\n</svg>\n'
    )


def levels(most: float, unit: str = "") -> list[tuple[float, str]]:
    """Values for lines, a quarter of ``most`` apart, in words."""
    return [(most * n / 4, f"{most * n / 4:.3g}{unit}") for n in range(5)]
