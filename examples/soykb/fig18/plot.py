"""The story as a drawing like the thesis's Figure 18: throughput over time on each path."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from adon import svg
from fig18.story import SCALE, TRANSFERS, Event, Story

WIDTH, LEFT, RIGHT = 960.0, 84.0, 876.0
_TOP, _PANEL, _GAP = 124.0, 190.0, 46.0
_MOST = {"l2": 200e6, "l3": 20e6}
_TITLES = {
    "l2": "Layer 2, the overlay (200 Mb/s)",
    "l3": "Layer 3, the routed network (20 Mb/s)",
}
_COLOURS = {"t1": "#2a78b5", "t3": "#c0504d", "t4": "#3c9a5f", "t6": "#8064a2"}
_STYLE = """
text { font: 13px sans-serif; fill: #222 } .small { font-size: 11.5px; fill: #555 }
.title { font-size: 17px; font-weight: 600 } .grid { stroke: #ddd } .axis { stroke: #888 }
.mark { stroke: #888; stroke-dasharray: 3 3 } .free { fill: none; stroke: #999; stroke-width: 1.4 }
.paper { fill: #fff }
"""


def draw(story: Story, real: bool) -> str:
    """A self-contained SVG."""
    end = story.samples[-1].at_s
    height = _TOP + 2 * _PANEL + _GAP + 50
    how = "measured on the testbed's switches" if real else "simulated"
    parts = [
        f'<rect class="paper" width="{WIDTH:.0f}" height="{height:.0f}"/>',
        svg.text(LEFT, 26, "SoyKB and Neuroblastoma between the same two sites", "title"),
        svg.text(
            LEFT, 46, f"throughput of each transfer, {how}; rates are the thesis's times {SCALE:g}"
        ),
        *_legend(),
    ]
    for i, layer in enumerate(_MOST):
        top = _TOP + i * (_PANEL + _GAP)
        parts += _panel(story, layer, top, end)
    bottom = _TOP + 2 * _PANEL + _GAP
    for event in story.events:
        if event.mark:
            parts += _mark(event, bottom, end)
    parts.append(svg.text((LEFT + RIGHT) / 2, bottom + 36, "seconds", "small", "middle"))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:.0f} {height:.0f}" '
        f'width="{WIDTH:.0f}" height="{height:.0f}" role="img" '
        f'aria-label="Figure 18: throughput over time"><style>{_STYLE}</style>'
        f"{''.join(parts)}</svg>\n"
    )


def _panel(story: Story, layer: str, top: float, end: float) -> list[str]:
    most = _MOST[layer]

    def y(rate_bps: float) -> float:
        return top + _PANEL * (1 - min(rate_bps / most, 1.05))

    parts = [svg.text(LEFT, top - 8, _TITLES[layer])]
    for tick in range(5):
        rate = most * tick / 4
        parts.append(svg.line(LEFT, y(rate), RIGHT, y(rate), "grid"))
        parts.append(svg.text(LEFT - 8, y(rate) + 4, f"{rate / 1e6:g}", "small", "end"))
        there = f"{rate / SCALE / 1e9:.2g}" if rate else "0"
        parts.append(svg.text(RIGHT + 8, y(rate) + 4, there, "small"))
    parts.append(svg.text(LEFT - 8, top - 8, "Mb/s", "small", "end"))
    parts.append(svg.text(RIGHT + 8, top - 8, "Gb/s there", "small"))
    free = [(_x(s.at_s, end), y(s.free[layer])) for s in story.samples if layer in s.free]
    steps = [(x, y0) for (_, y0), (x, _) in pairwise(free)]
    path = [free[0], *(p for pair in zip(steps, free[1:], strict=True) for p in pair)]
    parts.append(_poly(path, 'class="free"'))
    for name, taken in story.layers.items():
        if taken == layer:
            parts.append(_curve(story, name, y, end))
    for second in range(0, int(end) + 1, 10):
        at = _x(second, end)
        parts.append(svg.text(at, top + _PANEL + 16, str(second), "small", "middle"))
    parts.append(svg.line(LEFT, top + _PANEL, RIGHT, top + _PANEL, "axis"))
    return parts + _waits(story, layer, top, end)


def _waits(story: Story, layer: str, top: float, end: float) -> list[str]:
    """A line from when a transfer asked to when it got its path, where it had to wait."""
    parts = []
    asked = {e.mark: e.at_s for e in story.events}
    for name, taken in story.layers.items():
        began = story.spans[name][0]
        if taken == layer and began - asked[name] > 1:
            x0, x1, y = _x(asked[name], end), _x(began, end), top + _PANEL - 10
            parts.append(svg.line(x0, y, x1, y, "mark"))
            parts.append(svg.text((x0 + x1) / 2, y - 5, f"{name} waits", "small", "middle"))
    return parts


def _curve(story: Story, name: str, y: Callable[[float], float], end: float) -> str:
    began, ended = story.spans[name]
    points = [(_x(s.at_s, end), y(s.rates[name])) for s in story.samples if name in s.rates]
    points = [(_x(began, end), y(0)), *points, (_x(ended, end), y(0))]
    colour = _COLOURS[name]
    shape = f'fill="{colour}" fill-opacity="0.18" stroke="{colour}" stroke-width="2"'
    return _poly(points, shape)


def _mark(event: Event, bottom: float, end: float) -> list[str]:
    x = _x(event.at_s, end)
    return [
        svg.line(x, _TOP - 24, x, bottom, "mark"),
        svg.text(x, _TOP - 28, event.mark, "small", "middle"),
    ]


def _legend() -> list[str]:
    parts = []
    for i, transfer in enumerate(TRANSFERS):
        x, y = LEFT + 250 * (i % 2), 54 + 18 * (i // 2)
        fill = f'fill="{_COLOURS[transfer.name]}"'
        parts.append(f'<rect x="{x:.0f}" y="{y}" width="11" height="11" {fill}/>')
        parts.append(svg.text(x + 16, y + 10, f"{transfer.name} {transfer.title}", "small"))
    x = LEFT + 500
    parts.append(svg.line(x, 60, x + 14, 60, "free"))
    parts.append(svg.text(x + 18, 64, "can still be reserved", "small"))
    return parts


def _x(at_s: float, end: float) -> float:
    return LEFT + (RIGHT - LEFT) * at_s / end


def _poly(points: list[tuple[float, float]], shape: str) -> str:
    at = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline points="{at}" {shape}/>'
