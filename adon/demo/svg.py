"""Small SVG drawings for the report: a DAG, a Gantt chart and load over time.

Each function turns values into one ``<svg>`` string. Colours come from CSS classes of the page, so
that light and dark mode and print share one drawing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from itertools import pairwise

import networkx as nx

from adon.demo.facts import Bar, LinkSample
from network_provisioner.model import Transit
from network_provisioner.units import bits, format_rate

WIDTH = 1080
Point = tuple[float, float]


def _svg(width: float, height: float, label: str, parts: Iterable[str]) -> str:
    return (
        f'<svg viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}" '
        f'role="img" aria-label="{escape(label, quote=True)}">{"".join(parts)}</svg>'
    )


def _text(x: float, y: float, words: str, cls: str = "", anchor: str = "start") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" class="{cls}" text-anchor="{anchor}">{escape(words)}</text>'
    )


def dag(
    edges: Sequence[tuple[str, str]], labels: Mapping[str, str], classes: Mapping[str, str]
) -> str:
    """The workflow, level by level from left to right, each job coloured by its site.

    ``labels`` and ``classes`` are per job; jobs without an edge are drawn as well.
    """
    graph = nx.DiGraph()
    graph.add_nodes_from(labels)
    graph.add_edges_from(edges)
    layers = [sorted(layer) for layer in nx.topological_generations(graph)]
    widest = max((len(layer) for layer in layers), default=1)
    row = 26.0 if widest <= 24 else max(6.0, 640 / widest)
    height = widest * row + 24
    step = (WIDTH - 150) / max(1, len(layers) - 1)
    place: dict[str, Point] = {}
    for column, layer in enumerate(layers):
        top = (height - (len(layer) - 1) * row) / 2
        for index, job in enumerate(layer):
            place[job] = (20 + column * step, top + index * row)
    parts = []
    for parent, child in graph.edges:
        (x0, y0), (x1, y1) = place[parent], place[child]
        bend = (x1 - x0) / 2
        parts.append(
            f'<path class="edge" d="M{x0:.1f} {y0:.1f}C{x0 + bend:.1f} {y0:.1f} '
            f'{x1 - bend:.1f} {y1:.1f} {x1:.1f} {y1:.1f}"/>'
        )
    radius = min(7.0, row / 2.6)
    for job, (x, y) in place.items():
        parts.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}" class="{classes[job]}">'
            f"<title>{escape(labels[job])}</title></circle>"
        )
    for layer in layers:
        if len(layer) == 1 or row >= 20:
            for job in layer:
                x, y = place[job]
                parts.append(_text(x + 10, y - 8, labels[job].split(" ")[0], "small"))
    return _svg(WIDTH, height, "The workflow's jobs and dependencies, coloured by site", parts)


def lanes(bars: Sequence[Bar]) -> list[list[Bar]]:
    """Pack bars into few rows so that no two in a row overlap (first fit by start)."""
    rows: list[list[Bar]] = []
    for bar in sorted(bars, key=lambda b: (b.start, b.end, b.job)):
        for row in rows:
            if row[-1].end <= bar.start:
                row.append(bar)
                break
        else:
            rows.append([bar])
    return rows


def _time_axis(t0: float, t1: float, left: float, y: float, height: float) -> list[str]:
    span = max(t1 - t0, 1e-9)
    step = next((s for s in (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800) if span / s <= 12), 3600)
    parts = []
    tick = 0.0
    while tick <= span:
        x = left + tick / span * (WIDTH - left - 10)
        parts.append(
            f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{y:.1f}" y2="{y + height:.1f}"/>'
        )
        parts.append(_text(x, y + height + 14, f"{tick:.0f} s", "small", "middle"))
        tick += step
    return parts


def gantt(bars: Sequence[Bar], classes: Mapping[str, str], t0: float, t1: float) -> str:
    """Jobs and transfers over time, grouped by site; waiting in the queue is drawn thin.

    ``classes`` maps a site to its CSS class. ``t0`` and ``t1`` are Unix seconds.
    """
    left, row = 92.0, 18.0
    span = max(t1 - t0, 1e-9)

    def x_of(t: float) -> float:
        return left + (min(max(t, t0), t1) - t0) / span * (WIDTH - left - 10)

    groups: dict[str, list[Bar]] = {}
    for bar in bars:
        groups.setdefault("transfers" if bar.kind == "transfer" else bar.site, []).append(bar)
    parts: list[str] = []
    y = 8.0
    for name in sorted(groups, key=lambda g: (g == "transfers", g)):
        rows = lanes(groups[name])
        if len(rows) > 24:
            row = 8.0
        parts.append(_text(4, y + 12, name, "label"))
        for lane in rows:
            for bar in lane:
                cls = classes.get(bar.site, "s0") + (" moved" if bar.kind == "transfer" else "")
                cls += "" if bar.ok else " failed"
                x0, x1, xq = x_of(bar.start), x_of(bar.end), x_of(bar.submit)
                tip = f"{bar.job} at {bar.site}: {bar.start - t0:.1f}-{bar.end - t0:.1f} s"
                parts.append(
                    f'<line class="wait" x1="{xq:.1f}" x2="{x0:.1f}" '
                    f'y1="{y + row / 2:.1f}" y2="{y + row / 2:.1f}"/>'
                    f'<rect x="{x0:.1f}" y="{y + 2:.1f}" width="{max(1.5, x1 - x0):.1f}" '
                    f'height="{row - 4:.1f}" rx="2" class="{cls}">'
                    f"<title>{escape(tip)}</title></rect>"
                )
                if x1 - x0 > 7 * len(bar.job) and row > 12:
                    parts.append(_text(x0 + 4, y + row - 5.5, bar.job, "on-bar"))
            y += row
        y += 8
    return _svg(
        WIDTH, y + 22, "Jobs and transfers over time", _time_axis(t0, t1, left, 4, y - 4) + parts
    )


def reserved_steps(transits: Sequence[Transit], hop: tuple[str, str]) -> list[Point]:
    """Reserved bit/s on a directed link as (time, value) steps."""
    changes: dict[float, float] = {}
    for transit in transits:
        if transit.installed_at and hop in set(pairwise(transit.path)):
            end = transit.released_at or transit.lease_until
            changes[transit.installed_at] = (
                changes.get(transit.installed_at, 0.0) + transit.granted_bps
            )
            changes[end] = changes.get(end, 0.0) - transit.granted_bps
    level, steps = 0.0, []
    for at in sorted(changes):
        level = max(0.0, level + changes[at])
        steps.append((at, level))
    return steps


def measured_rates(samples: Sequence[LinkSample], hop: tuple[str, str]) -> list[Point]:
    """Bit/s on a directed link between successive readings of the switch's counters."""
    own = sorted((s for s in samples if (s.a, s.b) == hop), key=lambda s: s.at)
    return [
        (after.at, bits(after.bytes - before.bytes) / (after.at - before.at))
        for before, after in pairwise(own)
        if after.at > before.at and after.bytes >= before.bytes
    ]


def link_load(
    hop: tuple[str, str],
    capacity_bps: float,
    transits: Sequence[Transit],
    samples: Sequence[LinkSample],
    t0: float,
    t1: float,
) -> str:
    """One directed link over time: reserved (area), measured (line), capacity (dashed)."""
    left, height = 92.0, 110.0
    span = max(t1 - t0, 1e-9)
    measured = measured_rates(samples, hop)
    top = max([capacity_bps, *(rate for _, rate in measured)])

    def at(t: float, rate: float) -> str:
        x = left + (min(max(t, t0), t1) - t0) / span * (WIDTH - left - 10)
        return f"{x:.1f} {8 + height * (1 - rate / top):.1f}"

    parts = _time_axis(t0, t1, left, 8, height)
    parts.append(_text(left - 6, 18, format_rate(top), "small", "end"))
    parts.append(_text(left - 6, 8 + height, "0", "small", "end"))
    ceiling = 8 + height * (1 - capacity_bps / top)
    parts.append(
        f'<line class="capacity" x1="{left}" x2="{WIDTH - 10}" '
        f'y1="{ceiling:.1f}" y2="{ceiling:.1f}"/>'
    )
    area = [f"M{at(t0, 0)}"]
    level = 0.0
    for t, rate in reserved_steps(transits, hop):
        area += [f"L{at(t, level)}", f"L{at(t, rate)}"]
        level = rate
    area += [f"L{at(t1, level)}", f"L{at(t1, 0)}Z"]
    parts.append(f'<path class="reserved" d="{"".join(area)}"/>')
    if measured:
        line = "L".join(at(t, rate) for t, rate in measured)
        parts.append(f'<path class="measured" d="M{line}"/>')
    return _svg(WIDTH, height + 34, f"Load of link {hop[0]} to {hop[1]}", parts)
