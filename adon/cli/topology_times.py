"""Who holds what of each direction of a link over time: a chart below the picture of a network."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

from adon import svg
from network_provisioner.base.units import format_rate

MOST_CHARTS = 24  # the fullest directions; more are in the table
MOST_HOLDERS = 100  # of a direction that are drawn apart; of more only what they hold together
_HEIGHT = 44.0
_GAP = 16.0
_LEFT, _RIGHT_MARGIN = 150.0, 24.0
_TICKS = 5

Held = Mapping[str, Any]


def charts(data: Mapping[str, Any], top: float, width: float) -> tuple[list[str], float]:
    """The drawing of what the broker says of a while, and how high it is; nothing where nothing is
    reserved. Each reservation is as high as its part of the link's capacity."""
    found = [
        (load, link["capacity_bps"])
        for link in data["links"]
        for load in link["load"]
        if load.get("holders")
    ]
    found.sort(key=lambda item: -max(level for _, _, level in _steps(item[0]["holders"])) / item[1])
    shown = found[:MOST_CHARTS]
    if not shown:
        return [], 0.0
    across = (_LEFT, width - _RIGHT_MARGIN)
    window = (float(data["at"]), float(data["until"]))
    height = len(shown) * (_HEIGHT + _GAP)
    parts = _axis(window, across, top, height)
    for number, (load, capacity) in enumerate(shown):
        parts += _chart(load, capacity, window, across, top + number * (_HEIGHT + _GAP))
    return parts, height + 3 * _GAP


def _steps(holders: Sequence[Held]) -> list[tuple[float, float, float]]:
    """From when to when together how much."""
    changes: dict[float, float] = {}
    for held in holders:
        for at, sign in ((held["start"], 1), (held["end"], -1)):
            changes[at] = changes.get(at, 0) + sign * held["reserved_bps"]
    instants = sorted(changes)
    levels = accumulate(changes[at] for at in instants)
    return [
        (begin, end, level) for (begin, end), level in zip(pairwise(instants), levels, strict=False)
    ]


def _chart(
    load: Mapping[str, Any],
    capacity: float,
    window: tuple[float, float],
    across: tuple[float, float],
    top: float,
) -> list[str]:
    floor = top + _HEIGHT
    parts = [
        svg.text(across[0] - 8, floor - 24, f"{load['from']} > {load['to']}", "", "end"),
        svg.text(across[0] - 8, floor - 8, format_rate(capacity), "small", "end"),
        svg.box(across[0], top, across[1] - across[0], _HEIGHT, "frame", "", 0),
    ]
    holders = load["holders"]
    for begin, end, level in _steps(holders):
        x0, x1 = (_x(at, window, across) for at in (begin, end))
        if x1 <= x0:
            continue
        here = [(level, "")]
        if len(holders) <= MOST_HOLDERS:
            own = [h for h in holders if h["start"] <= begin < h["end"]]
            here = [(h["reserved_bps"], _tip(h)) for h in own]
        below = 0.0
        for bps, tip in here:
            high = _HEIGHT * min(bps / capacity, 1)
            below += high
            if high > 0:
                parts.append(svg.box(x0, floor - below, x1 - x0, high, "held", tip, 0))
    return parts


def _axis(
    window: tuple[float, float], across: tuple[float, float], top: float, height: float
) -> list[str]:
    parts = []
    for tick in range(_TICKS + 1):
        at = window[0] + (window[1] - window[0]) * tick / _TICKS
        x = _x(at, window, across)
        parts.append(svg.line(x, top, x, top + height, "grid"))
        words = time.strftime("%m-%d %H:%M:%S", time.localtime(at))
        anchor = "end" if tick == _TICKS else "middle"
        parts.append(svg.text(x, top + height + 12, words, "small", anchor))
    return parts


def _x(at: float, window: tuple[float, float], across: tuple[float, float]) -> float:
    inside = min(max(at, window[0]), window[1])
    return across[0] + (inside - window[0]) / (window[1] - window[0]) * (across[1] - across[0])


def _tip(held: Held) -> str:
    begin, end = (
        time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(held[key])) for key in ("start", "end")
    )
    return f"{held['id']}: {format_rate(held['reserved_bps'])} from {begin} until {end}"
