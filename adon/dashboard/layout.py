"""Where to draw the nodes of a network: neighbours near each other, others far, always the same.

Distances in the drawing follow distances in hops (stress majorisation: Gansner, Koren and North,
Graph Drawing 2004), beginning from classical scaling. No random numbers.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from typing import Any

import networkx as nx
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Place = tuple[float, float]

_STEPS = 300  # fewer of them where there are many nodes: each costs n²
_APART, _FAN = 0.07, 0.7  # of neighbours: a part of the drawing's width, and radians
_STILL = 1e-4  # less than this part of a hop is no movement


def layout_of(
    nodes: Sequence[str], links: Sequence[tuple[str, str]], given: Mapping[str, Place] | None = None
) -> dict[str, Any]:
    """Where to draw the nodes, in parts of the drawing's width; JSON-ready. Where places are
    ``given``, these stay, and others are near their neighbours."""
    if not nodes:
        return {"height": 0.0, "nodes": []}
    positions = neighbour_positions(nodes, links, given) if given else places(nodes, links)
    xs, ys = zip(*positions.values(), strict=True)
    wide = max(xs) - min(xs)
    wide = wide if wide > 1e-9 else 1.0
    return {
        "height": round((max(ys) - min(ys)) / wide, 4),
        "nodes": [
            {"name": name, "x": round((x - min(xs)) / wide, 4), "y": round((y - min(ys)) / wide, 4)}
            for name, (x, y) in positions.items()
        ],
    }


def places(nodes: Sequence[str], links: Sequence[tuple[str, str]]) -> dict[str, Place]:
    """A place for every node, in hops: a link is about 1 long. The longest way lies across, the
    first node at its left. Parts that nothing joins stand apart."""
    if len(nodes) < 2:
        return dict.fromkeys(nodes, (0.0, 0.0))
    hops = _hops(nodes, links)
    positions = _turned(_relaxed(_scaled(hops), hops))
    return {name: (float(x), float(y)) for name, (x, y) in zip(nodes, positions, strict=True)}


def neighbour_positions(
    nodes: Sequence[str], links: Sequence[tuple[str, str]], given: Mapping[str, Place]
) -> dict[str, Place]:
    """A place for every node: those that are ``given``, and around each of these its neighbours
    without one, away from the middle. What nothing joins to any is in a row below."""
    graph = nx.Graph(links)
    graph.add_nodes_from(nodes)
    positions = {name: given[name] for name in nodes if name in given}
    xs, ys = zip(*positions.values(), strict=True)
    middle = (min(xs) + max(xs)) / 2, (min(ys) + max(ys)) / 2
    wide = max(max(xs) - min(xs), max(ys) - min(ys)) or 1.0
    taken: Counter[str] = Counter()
    waiting = deque(positions)
    while waiting:
        near = waiting.popleft()
        for name in sorted(graph[near]):
            if name in positions:
                continue
            known = [positions[other] for other in sorted(graph[name]) if other in positions]
            x, y = (sum(values) / len(known) for values in zip(*known, strict=True))
            if len(known) == 1:
                side = taken[near] = taken[near] + 1
                turn = _FAN * (side // 2) * (-1) ** side
                angle = math.atan2(y - middle[1], x - middle[0]) + turn
                x, y = x + _APART * wide * math.cos(angle), y + _APART * wide * math.sin(angle)
            positions[name] = x, y
            waiting.append(name)
    lost = [name for name in nodes if name not in positions]
    for number, name in enumerate(lost):
        positions[name] = min(xs) + (number + 0.5) * wide / len(lost), max(ys) + 2 * _APART * wide
    return {name: positions[name] for name in nodes}


def _hops(nodes: Sequence[str], links: Sequence[tuple[str, str]]) -> Floats:
    """Hops between every two nodes; where nothing joins them, one more than the longest way."""
    graph = nx.Graph(links)
    graph.add_nodes_from(nodes)
    number = {name: n for n, name in enumerate(nodes)}
    hops: Floats = np.full((len(nodes), len(nodes)), -1.0)
    for start, reached in nx.all_pairs_shortest_path_length(graph):
        for end, length in reached.items():
            hops[number[start], number[end]] = length
    hops[hops < 0] = hops.max() + 1
    return hops


def _scaled(hops: Floats) -> Floats:
    """Classical scaling, and a little aside from it so that no two nodes are in one place."""
    n = len(hops)
    centred = np.eye(n) - 1 / n
    # In a symmetric network several axes are equally long, and which of them, and which way round,
    # differs from processor to processor: unlike weights and a rule for signs make it the same.
    unlike = np.diag(1e-6 * np.sqrt(np.arange(n)))
    values, vectors = np.linalg.eigh(-0.5 * centred @ hops**2 @ centred + unlike)
    positions: Floats = vectors[:, [-1, -2]] * np.sqrt(np.maximum(values[[-1, -2]], 0))
    positions *= _signs(positions)
    aside = 0.05 * np.stack([np.sin(np.arange(n)), np.cos(1.7 * np.arange(n))], axis=1)
    return positions + aside


def _signs(vectors: Floats) -> Floats:
    """For each column the sign of its first element that is not nearly 0."""
    first = np.argmax(np.abs(vectors) > 1e-6, axis=0)
    signs: Floats = np.where(vectors[first, range(vectors.shape[1])] < 0, -1.0, 1.0)
    return signs


def _relaxed(positions: Floats, hops: Floats) -> Floats:
    """Move all nodes until the drawing's distances fit the hops as well as they can."""
    far = hops + np.eye(len(hops))  # nothing is divided by 0
    weights = far**-2 * (1 - np.eye(len(hops)))
    laplacian = np.diag(weights.sum(axis=1)) - weights
    inverse = np.linalg.pinv(laplacian)
    for _ in range(max(30, _STEPS * 60 // max(60, len(hops)))):
        apart = np.linalg.norm(positions[:, None] - positions[None, :], axis=2)
        pulls = -weights * hops / np.maximum(apart, 1e-9)
        np.fill_diagonal(pulls, 0)
        np.fill_diagonal(pulls, -pulls.sum(axis=1))
        after = inverse @ (pulls @ positions)
        still = float(np.abs(after - positions).max()) < _STILL
        positions = after
        if still:
            break
    return positions


def _turned(positions: Floats) -> Floats:
    """The longest way across; the first node at the left, and at the top where that is free."""
    positions = positions - positions.mean(axis=0)
    _, vectors = np.linalg.eigh(positions.T @ positions)
    positions = positions @ vectors[:, ::-1]
    signs = np.where(positions[0] > 0, -1.0, 1.0)
    turned: Floats = positions * signs
    return turned
