"""Elements of SVG: text, boxes, lines. Colours come from CSS classes."""

from __future__ import annotations

from html import escape

# Wider than most letters of the usual sans-serif fonts, so that what is planned to fit does fit.
_LETTER = 0.6


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
