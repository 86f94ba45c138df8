"""What the report's drawings show, as data for the dashboard's modules."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from examples.demo.facts import Bar, RunFacts
from examples.demo.loads import Load, Rate, end_of, loads_of, reserved_steps
from examples.demo.words import short_name
from network_provisioner.base.model import Transit
from network_provisioner.base.units import format_rate, format_size

TRANSFERS = "transfers"
_SHORT = 1 / 150  # of the run: a reservation that is shorter has a mark
_MOST_MARKS = 40  # more of them would be a line
_NUMBERED = re.compile(r"(.+)_ID0*(\d+)(?:_0)?\Z")


def figures(facts: RunFacts, classes: Mapping[str, str]) -> dict[str, list[Any]]:
    """The figures by kind; times are seconds since the start. ``classes`` maps a site to its CSS
    class."""
    jobs = [
        {"job": p["job"], "name": short_name(p["transformation"]), "site": p["site"]}
        for p in facts.mapping["placements"]
    ]
    return {
        "dag": [
            {
                "workflow": {"jobs": jobs, "edges": [list(edge) for edge in facts.edges]},
                "classes": dict(classes),
            }
        ],
        "gantt": [{"groups": _groups(facts, classes), "end": facts.makespan_s}],
        "chart": [_load(load, facts) for load in loads_of(facts)],
    }


def short_job(name: str) -> str:
    """``sort_sam_ID0000005`` as ``sort_sam 5``; other names as they are."""
    match = _NUMBERED.match(name)
    return f"{match[1]} {match[2]}" if match else name


def _groups(facts: RunFacts, classes: Mapping[str, str]) -> list[tuple[str, list[dict[str, Any]]]]:
    """Jobs by the site they ran at, transfers below."""
    moves: dict[str, list[Transit]] = {}
    for transit in facts.transits:
        moves.setdefault(transit.request.job, []).append(transit)
    groups: dict[str, list[dict[str, Any]]] = {}
    for bar in facts.bars:
        group = TRANSFERS if bar.kind == "transfer" else bar.site
        drawn = _bar(bar, moves.get(bar.job, ()), classes, facts.started)
        groups.setdefault(group, []).append(drawn)
    return sorted(groups.items(), key=lambda item: (item[0] == TRANSFERS, item[0]))


def _bar(
    bar: Bar, moved: Sequence[Transit], classes: Mapping[str, str], t0: float
) -> dict[str, Any]:
    label = short_job(bar.job) + ("" if bar.ok else " ✗ failed")
    label += "".join(
        f" · {t.request.src} → {t.request.dst}, {format_size(t.usage.bytes)}" for t in moved[:2]
    )
    tip = (
        f"{bar.job} at {bar.site}: waited {bar.start - bar.submit:.1f} s, "
        f"ran from {bar.start - t0:.1f} to {bar.end - t0:.1f} s{'' if bar.ok else ', failed'}"
    )
    tip += "".join(
        f"; {t.request.src} → {t.request.dst} {format_size(t.usage.bytes)} at "
        f"{format_rate(t.usage.goodput_bps)}"
        for t in moved
    )
    cls = classes.get(bar.site, "s0") + {"transfer": " moved", "other": " other"}.get(bar.kind, "")
    return {
        "submit": bar.submit - t0,
        "start": bar.start - t0,
        "end": bar.end - t0,
        "label": label,
        "tip": tip,
        "cls": cls + ("" if bar.ok else " failed"),
        "held": [
            (t.grant.installed_at - t0, end_of(t) - t0, _tip(t, t0))
            for t in moved
            if t.grant.installed_at and t.grant.path
        ],
    }


def _load(load: Load, facts: RunFacts) -> dict[str, Any]:
    t0, shortest = facts.started, facts.makespan_s * _SHORT
    short = [t for t in load.held if end_of(t) - t.grant.installed_at < shortest]
    title = f"{load.hop[0]} → {load.hop[1]}"
    reserved = {
        "name": "reserved",
        "cls": "t1",
        "points": [(at - t0, bps) for at, bps in reserved_steps(load.held)],
        "area": True,
    }
    measured = [
        {"name": "measured", "cls": "t2", "points": [(at - t0, bps) for at, bps in part]}
        for part in _unbroken(load.measured)
    ]
    return {
        "key": title,
        "title": title,
        "unit": "bit/s",
        "elapsed": True,
        "step": True,
        "quiet": True,
        "floor": 0,
        "t0": 0,
        "t1": facts.makespan_s,
        "series": [reserved, *measured],
        "cut": {"value": load.capacity_bps, "words": "capacity"},
        "marks": [
            {"at": t.grant.installed_at - t0, "value": 0, "words": _tip(t, t0), "letter": ""}
            for t in short
            if len(short) <= _MOST_MARKS
        ],
    }


def _unbroken(measured: Sequence[Rate]) -> list[list[tuple[float, float]]]:
    """(Unix second, bit/s from then on), in parts between which nothing is known."""
    parts: list[list[tuple[float, float]]] = []
    last_end = None
    for rate in measured:
        if rate.start != last_end:
            parts.append([])
        else:
            parts[-1].pop()
        parts[-1] += [(rate.start, rate.bps), (rate.end, rate.bps)]
        last_end = rate.end
    return parts


def _tip(t: Transit, t0: float) -> str:
    return (
        f"{t.request.job}: {format_rate(t.request.min_bps)} reserved, "
        f"{format_rate(t.grant.granted_bps)} granted "
        f"on {' → '.join(t.grant.path)} from {t.grant.installed_at - t0:.1f} "
        f"to {end_of(t) - t0:.1f} s, "
        f"{format_size(t.usage.bytes)} moved at {format_rate(t.usage.goodput_bps)}"
    )
