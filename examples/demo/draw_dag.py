"""The workflow as a drawing: every job where that is readable, else one box per kind of job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import networkx as nx

from adon import svg

_BOX_HEIGHT = 34.0
_STEP = 64.0
_GAP = 12.0
_FONT = 11.0
_SMALL = 10.0
_MOST_BOXES = 80


@dataclass(frozen=True, slots=True)
class Node:
    """A job: its id, what it runs, and where."""

    job: str
    name: str
    site: str


@dataclass(frozen=True, slots=True)
class _Box:
    """What stands in one box: jobs of one kind on one level, with how many are at which site."""

    title: str
    below: str
    tip: str
    sites: tuple[tuple[str, int], ...]

    @property
    def width(self) -> float:
        words = max(svg.text_width(self.title, _FONT), svg.text_width(self.below, _SMALL))
        return max(90.0, words + 16)


def layers_of(nodes: Sequence[Node], edges: Sequence[tuple[str, str]]) -> list[list[str]]:
    """Job ids by level; a job stands below all that it depends on, near those it depends on."""
    graph = nx.DiGraph()
    graph.add_nodes_from(node.job for node in nodes)
    graph.add_edges_from(e for e in edges if e[0] in graph and e[1] in graph)
    place: dict[str, float] = {}
    layers = []
    for generation in nx.topological_generations(graph):
        middle = {
            job: sum(place[p] for p in graph.pred[job]) / max(1, len(graph.pred[job]))
            for job in generation
        }
        layer = sorted(generation, key=lambda job: (round(middle[job], 6), job))
        for index, job in enumerate(layer):
            place[job] = (index + 0.5) / len(layer)
        layers.append(layer)
    return layers


def dag(
    nodes: Sequence[Node], edges: Sequence[tuple[str, str]], classes: Mapping[str, str]
) -> tuple[str, bool]:
    """The drawing from top to bottom, and whether each job has a box of its own.

    ``classes`` maps a site to its CSS class. A large workflow has one box per kind and level, with
    the share of each site.
    """
    layers = layers_of(nodes, edges)
    known = {node.job: node for node in nodes}
    single = {
        job: _Box(n.name, f"{n.site} · {job}", f"{n.name} ({job}) at {n.site}", ((n.site, 1),))
        for job, n in known.items()
    }
    rows = [[(job, single[job]) for job in layer] for layer in layers]
    width = max((_row_width([b for _, b in row]) for row in rows), default=0.0)
    if len(nodes) <= _MOST_BOXES and width <= svg.WIDTH - 20:
        label = f"The workflow: {len(nodes)} jobs with their dependencies, coloured by site"
        return _boxes(rows, edges, classes, label), True
    names, grouped = _grouped(layers, known)
    between = Counter((names[a], names[b]) for a, b in edges if a in names and b in names)
    label = f"The workflow: {len(nodes)} jobs, one box per kind of job, coloured by site"
    return _boxes(grouped, list(between), classes, label), False


def _grouped(
    layers: Sequence[Sequence[str]], known: Mapping[str, Node]
) -> tuple[dict[str, str], list[list[tuple[str, _Box]]]]:
    names: dict[str, str] = {}
    rows = []
    for level, layer in enumerate(layers):
        kinds: dict[str, Counter[str]] = {}
        for job in layer:
            node = known[job]
            kinds.setdefault(node.name, Counter())[node.site] += 1
            names[job] = f"{level} {node.name}"
        rows.append([(f"{level} {kind}", _group_box(kind, kinds[kind])) for kind in kinds])
    return names, rows


def _group_box(name: str, sites: Counter[str]) -> _Box:
    shares = tuple(sorted(sites.items()))
    where = ", ".join(f"{count} {site}" for site, count in shares)
    title = name if sites.total() == 1 else f"{name} × {sites.total()}"
    return _Box(title, where, f"{title}: {where}", shares)


def _row_width(boxes: Sequence[_Box]) -> float:
    return sum(b.width + _GAP for b in boxes) - _GAP


def _boxes(
    rows: Sequence[Sequence[tuple[str, _Box]]],
    edges: Sequence[tuple[str, str]],
    classes: Mapping[str, str],
    label: str,
) -> str:
    width = max([svg.WIDTH, *(_row_width([b for _, b in row]) + 20 for row in rows)])
    place: dict[str, tuple[float, float, int]] = {}
    drawn: list[str] = []
    for level, row in enumerate(rows):
        x = (width - _row_width([b for _, b in row])) / 2
        y = 8 + level * _STEP
        for name, box in row:
            place[name] = (x + box.width / 2, y, level)
            drawn.append(_draw_box(x, y, box, classes))
            x += box.width + _GAP
    lines = []
    for parent, child in edges:
        if parent in place and child in place:
            (x0, y0, up), (x1, y1, down) = place[parent], place[child]
            y0 += _BOX_HEIGHT
            bend = max(12.0, (y1 - y0) / 2)
            cls = "edge" if down - up == 1 else "edge far"
            lines.append(
                f'<path class="{cls}" d="M{x0:.0f} {y0:.0f}C{x0:.0f} {y0 + bend:.0f} '
                f'{x1:.0f} {y1 - bend:.0f} {x1:.0f} {y1:.0f}"/>'
            )
    height = max(1, len(rows)) * _STEP - (_STEP - _BOX_HEIGHT) + 16
    return svg.drawing(width, height, label, [*lines, *drawn])


def _draw_box(x: float, y: float, box: _Box, classes: Mapping[str, str]) -> str:
    total = sum(count for _, count in box.sites)
    parts = [svg.box(x, y, box.width, _BOX_HEIGHT, "paper")]
    left = x
    for site, count in box.sites:
        share = box.width * count / total
        cls = classes.get(site, "s0") + (" part" if len(box.sites) > 1 else "")
        parts.append(svg.box(left, y, share, _BOX_HEIGHT, cls, box.tip))
        left += share
    if len(box.sites) > 1:
        parts.append(svg.box(x, y, box.width, _BOX_HEIGHT, "outline"))
    middle = x + box.width / 2
    parts.append(svg.text(middle, y + 14, box.title, "name", "middle"))
    parts.append(svg.text(middle, y + 27, box.below, "small", "middle"))
    return "".join(parts)


def dots(
    nodes: Sequence[Node], edges: Sequence[tuple[str, str]], classes: Mapping[str, str]
) -> str:
    """Every job as a dot with its name as tooltip, level by level from left to right."""
    layers = layers_of(nodes, edges)
    known = {node.job: node for node in nodes}
    widest = max((len(layer) for layer in layers), default=1)
    row = max(5.0, min(20.0, 1600 / widest))
    height = widest * row + 16
    step = (svg.WIDTH - 40) / max(1, len(layers) - 1)
    place = {
        job: (20 + column * step, (height - (len(layer) - 1) * row) / 2 + index * row)
        for column, layer in enumerate(layers)
        for index, job in enumerate(layer)
    }
    lines = [
        f"M{place[a][0]:.0f} {place[a][1]:.0f}L{place[b][0]:.0f} {place[b][1]:.0f}"
        for a, b in edges
        if a in place and b in place
    ]
    parts = [f'<path class="edge far" d="{"".join(lines)}"/>']
    for job, (x, y) in place.items():
        node = known[job]
        tip = f"{node.name} ({job}) at {node.site}"
        parts.append(svg.box(x - 3, y - 2, 6, 4, classes.get(node.site, "s0"), tip, 1))
    return svg.drawing(svg.WIDTH, height, f"All {len(nodes)} jobs, level by level", parts)
