"""What the report's drawings share: an ``<svg>``, text in it, a scale of time with its axis.

Colours come from CSS classes of the page, so that light and dark mode and print share one drawing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

WIDTH = 1080.0
LEFT = 96.0
RIGHT = WIDTH - 26.0
_TICKS = 12
_STEPS_S = (
    0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 28800,
    86400,
)  # fmt: skip
# Wider than most letters of the usual sans-serif fonts, so that what is planned to fit does fit.
_LETTER = 0.6


@dataclass(frozen=True, slots=True)
class TimeScale:
    """Unix seconds ``t0`` to ``t1`` across the drawing; what lies outside is drawn at the edge."""

    t0: float
    t1: float

    @property
    def span_s(self) -> float:
        """Seconds shown, never zero."""
        return max(self.t1 - self.t0, 1e-9)

    def x(self, at: float) -> float:
        """The horizontal place of a Unix second."""
        inside = min(max(at, self.t0), self.t0 + self.span_s)
        return LEFT + (inside - self.t0) / self.span_s * (RIGHT - LEFT)


def drawing(width: float, height: float, label: str, parts: Iterable[str]) -> str:
    """An image for eyes and, through ``label``, for screen readers."""
    return (
        f'<svg viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}" '
        f'role="img" aria-label="{escape(label, quote=True)}">{"".join(parts)}</svg>'
    )


def text(x: float, y: float, words: str, cls: str = "", anchor: str = "start") -> str:
    """Words at a place; ``anchor`` is start, middle or end."""
    classed = f' class="{cls}"' if cls else ""
    anchored = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return f'<text x="{x:.1f}" y="{y:.1f}"{classed}{anchored}>{escape(words)}</text>'


def text_width(words: str, size: float) -> float:
    """About how wide words are, at least, at a font size; both in the drawing's unit."""
    return len(words) * size * _LETTER


def box(
    x: float, y: float, width: float, height: float, cls: str, tip: str = "", round_: float = 3
) -> str:
    """A rectangle with an optional tooltip."""
    inner = f"<title>{escape(tip)}</title>" if tip else ""
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" '
        f'rx="{round_:.0f}" class="{cls}">{inner}</rect>'
    )


def line(x0: float, y0: float, x1: float, y1: float, cls: str) -> str:
    """A straight line."""
    return f'<line class="{cls}" x1="{x0:.1f}" x2="{x1:.1f}" y1="{y0:.1f}" y2="{y1:.1f}"/>'


def time_axis(scale: TimeScale, top: float, bottom: float) -> list[str]:
    """Vertical lines at round times since the start, with their times below."""
    span = scale.span_s
    step = next((s for s in _STEPS_S if span / s <= _TICKS), span / _TICKS)
    parts = []
    for tick in range(int(span / step + 1e-6) + 1):
        x = scale.x(scale.t0 + tick * step)
        parts.append(line(x, top, x, bottom, "grid"))
        parts.append(text(x, bottom + 15, _time_label(tick * step, span), "small", "middle"))
    return parts


def _time_label(value_s: float, span_s: float) -> str:
    if span_s >= 7200:
        return f"{value_s / 3600:.3g} h"
    if span_s >= 600:
        return f"{value_s / 60:.3g} min"
    return f"{value_s:.3g} s"


def pack(spans: Sequence[tuple[float, float]]) -> list[int]:
    """A row for each (from, to), so that no two in a row overlap: first fit by start."""
    rows = [0] * len(spans)
    ends: list[float] = []
    for index in sorted(range(len(spans)), key=lambda i: (spans[i], i)):
        start, end = spans[index]
        row = next((r for r, busy in enumerate(ends) if busy <= start), len(ends))
        if row == len(ends):
            ends.append(end)
        ends[row] = end
        rows[index] = row
    return rows
