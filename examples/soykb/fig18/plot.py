"""The story as a page like the thesis's Figure 18: throughput over time on each path."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from adon.dashboard.standalone import Figure, page
from examples.soykb.fig18.story import SCALE, TRANSFERS, Sample, Story
from examples.soykb.scenario import LAYOUT
from network_provisioner.base.units import format_rate

_TITLES = {"l2": "Layer 2, the overlay", "l3": "Layer 3, the routed network"}
# The dashboard's classes for lines, by transfer; what can be reserved is grey.
_LINES = {transfer.name: f"t{n}" for n, transfer in enumerate(TRANSFERS, 1)}
_FREE = "t0"
_WAIT_S = 1.0  # who waited for longer is shown to have waited


def draw(story: Story, real: bool) -> str:
    """A page that is self-contained."""
    how = "measured on the testbed's switches" if real else "simulated"
    note = f"Throughput of each transfer, {how}; rates are the thesis's times {SCALE:g}."
    figures = [
        Figure("chart", _path(story, name), f"{title} ({format_rate(rate_bps)})", note)
        for name, title in _TITLES.items()
        for rate_bps in [LAYOUT.link(name).rate_bps]
    ]
    return page("Figure 18: SoyKB and Neuroblastoma between the same two sites", figures)


def _path(story: Story, layer: str) -> dict[str, Any]:
    """What a path carried, and what of it could still be reserved; seconds and bit/s."""
    taken = [t for t in TRANSFERS if story.layers[t.name] == layer]
    free = [(s.at_s, s.free[layer]) for s in story.samples if layer in s.free]
    at_s_by_mark = {event.mark: event.at_s for event in story.events}
    return {
        "key": layer,
        "title": _TITLES[layer],
        "legend": [
            *((f"line {_LINES[t.name]}", f"{t.name} {t.title}") for t in taken),
            (f"line {_FREE}", "can still be reserved"),
        ],
        "height": 260,
        "unit": "bit/s",
        "elapsed": True,
        "step": True,
        "quiet": True,
        "floor": 0,
        "t0": 0,
        "t1": story.samples[-1].at_s,
        "series": [
            {"name": "can still be reserved", "cls": _FREE, "points": free},
            *(_transfer(story, t.name) for t in taken),
        ],
        "bands": [
            {"from": at_s_by_mark[t.name], "to": story.spans[t.name][0], "words": f"{t.name} waits"}
            for t in taken
            if story.spans[t.name][0] - at_s_by_mark[t.name] > _WAIT_S
        ],
        "marks": [
            {"at": event.at_s, "value": 0, "letter": event.mark, "words": event.text}
            for event in story.events
            if event.mark
        ],
        "cut": {"value": LAYOUT.link(layer).rate_bps, "words": "capacity"},
    }


def _transfer(story: Story, name: str) -> dict[str, Any]:
    """Its rate from one reading of the counters to the next."""
    began, ended = story.spans[name]
    read = [Sample(began, {}, {}), *(s for s in story.samples if name in s.rates)]
    points = [(before.at_s, after.rates[name]) for before, after in pairwise(read)]
    return {"name": name, "cls": _LINES[name], "points": points, "to": ended, "area": True}
