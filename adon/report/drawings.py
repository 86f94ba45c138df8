"""What the report's drawings show, as data for the dashboard's modules."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Any, Self

from adon.report.link_loads import FINEST, Load, Rate, coarser_series, end_of, reserved_series
from adon.report.messages import short_name
from adon.report.run_facts import Bar, DagJob, RunFacts
from monitors.base.measurement import Measurement
from network_provisioner.base.model import Transit
from network_provisioner.base.units import format_rate, format_size

TRANSFERS = "transfers"
_SHORT = 1 / 150  # of the run: a reservation that is shorter has a mark
_MOST_MARKS = 40  # more of them would be a line
MOST_JOBS = 2000  # of a DAG, and edges, that a browser draws one by one at once
_MOST_EDGES = 20_000
MOST_BARS = 2000
_MOST_LEVELS = 40  # that many kinds of jobs at each can be looked at
_MOST_KINDS = 20
_NUMBERED = re.compile(r"(.+)_ID0*(\d+)(?:_0)?\Z")
MeasuredPath = tuple[str, str, str, list[Measurement]]


def figures(
    facts: RunFacts, loads: Sequence[Load], classes: Mapping[str, str]
) -> dict[str, list[Any]]:
    """The figures by kind; times are seconds since the start. ``classes`` maps a site to its CSS
    class. The charts are those of ``loads``, then those of what was measured of paths."""
    return {
        "dag": [{"workflow": dag(facts), "classes": dict(classes)}],
        "gantt": [{"groups": groups(facts, classes), "end": facts.makespan_s}],
        "chart": [
            *(_load(load, facts) for load in loads),
            *(_measured(path, facts) for path in measured_paths(facts)),
        ],
    }


@dataclass(frozen=True, slots=True)
class _Dag:
    """Jobs by id with those right above each, in an order in which they could run."""

    jobs: Mapping[str, DagJob]
    above: Mapping[str, Sequence[str]]

    @classmethod
    def of(cls, facts: RunFacts) -> Self:
        jobs = facts.dag or [
            DagJob(p["job"], short_name(p["transformation"]), p["site"])
            for p in facts.mapping["placements"]
        ]
        above: dict[str, list[str]] = {job.job: [] for job in jobs}
        for parent, child in facts.edges:
            if parent in above and child in above:
                above[child].append(parent)
        try:
            order = list(TopologicalSorter(above).static_order())
        except CycleError:
            order = list(above)
        return cls({job.job: job for job in jobs}, {name: above[name] for name in order})

    @property
    def shown(self) -> list[DagJob]:
        """The workflow's own jobs."""
        return [job for job in self.jobs.values() if job.shown]

    def joined(self, keys: Mapping[str, str]) -> list[tuple[str, str]]:
        """Edges between the keys of jobs, past jobs that have no key."""
        edges: set[tuple[str, str]] = set()
        nearest: dict[str, frozenset[str]] = {}
        for job, parents in self.above.items():
            before: set[str] = set()
            for parent in parents:
                before |= {keys[parent]} if parent in keys else nearest.get(parent, frozenset())
            if job in keys:
                edges |= {(key, keys[job]) for key in before}
            else:
                nearest[job] = frozenset(before)
        return sorted(edges)

    def bands(self) -> dict[str, int]:
        """The level of each job: how many shown jobs come before it, one after the other. Where
        the levels are many, neighbours are one band."""
        levels: dict[str, int] = {}
        for job, parents in self.above.items():
            before = (levels.get(name, 0) + self.jobs[name].shown for name in parents)
            levels[job] = max(before, default=0)
        width = 1 + max(levels.values(), default=0) // _MOST_LEVELS
        return {job: level // width for job, level in levels.items()}


def dag(facts: RunFacts) -> dict[str, Any]:
    """The workflow for ``dag.js``: its jobs, or where they are many its kinds of jobs by level."""
    whole = _Dag.of(facts)
    shown = whole.shown
    if len(shown) <= MOST_JOBS:
        edges = whole.joined({job.job: job.job for job in shown})
        if len(edges) <= _MOST_EDGES:
            return {
                "jobs": [{"job": j.job, "name": j.name, "site": j.site} for j in shown],
                "edges": edges,
            }
    bands, usual = whole.bands(), _usual(job.name for job in shown)
    keys: dict[str, str] = {}
    boxes: dict[str, tuple[str, Counter[str]]] = {}
    for job in shown:
        name = job.name if job.name in usual else "other"
        keys[job.job] = key = f"{bands[job.job]} {name}"
        boxes.setdefault(key, (name, Counter()))[1][job.site] += 1
    return {
        "grouped": len(shown),
        "jobs": [
            {"job": key, "name": name, "sites": sorted(sites.items())}
            for key, (name, sites) in boxes.items()
        ],
        # Within a band of levels kinds may depend on each other both ways.
        "edges": [
            (a, b) for a, b in whole.joined(keys) if a.partition(" ")[0] != b.partition(" ")[0]
        ],
    }


def _usual(names: Iterable[str]) -> set[str]:
    return {name for name, _ in Counter(names).most_common(_MOST_KINDS)}


def short_job(name: str) -> str:
    """``sort_sam_ID0000005`` as ``sort_sam 5``; other names as they are."""
    match = _NUMBERED.match(name)
    return f"{match[1]} {match[2]}" if match else name


def groups(facts: RunFacts, classes: Mapping[str, str]) -> list[tuple[str, list[dict[str, Any]]]]:
    """Jobs by the site they ran at, transfers below; where they are many, a bar for each kind."""
    moves: dict[str, list[Transit]] = {}
    for transit in facts.transits:
        moves.setdefault(transit.request.job, []).append(transit)
    by_site: dict[str, list[Bar]] = {}
    for bar in facts.bars:
        name = TRANSFERS if bar.kind == "transfer" else bar.site or "no site"
        by_site.setdefault(name, []).append(bar)
    if len(facts.bars) > MOST_BARS:
        bands = _Dag.of(facts).bands()
        drawn = {name: _kind_bars(bars, bands, classes, facts) for name, bars in by_site.items()}
    else:
        drawn = {
            name: [_bar(bar, moves.get(bar.job, ()), classes, facts) for bar in bars]
            for name, bars in by_site.items()
        }
    return sorted(drawn.items(), key=lambda item: (item[0] == TRANSFERS, item[0]))


def _kind_bars(
    bars: Sequence[Bar], bands: Mapping[str, int], classes: Mapping[str, str], facts: RunFacts
) -> list[dict[str, Any]]:
    """One bar for each kind of job at each level, from its first start to its last end."""
    names = [short_name(bar.transformation) or bar.kind for bar in bars]
    usual = _usual(names)
    kinds: dict[tuple[int, str], list[Bar]] = {}
    for bar, name in zip(bars, names, strict=True):
        key = bands.get(bar.job, 0), name if name in usual else "other"
        kinds.setdefault(key, []).append(bar)
    out = []
    for (_, kind), same in kinds.items():
        spans = [(bar.start, bar.end or facts.ended) for bar in same]
        start, end = min(a for a, _ in spans), max(b for _, b in spans)
        failed = sum(bool(bar.end) and not bar.ok for bar in same)
        label = f"{kind} × {len(same)}" + (f", {failed} ✗ failed" if failed else "")
        busy = sum(b - a for a, b in spans)
        waited = sum(bar.start - bar.submit for bar in same) / len(same)
        first, last = start - facts.started, end - facts.started
        tip = (
            f"{label}: from {first:.1f} to {last:.1f} s, {busy / max(end - start, 1e-9):.1f} at a "
            f"time; on average each waited {waited:.1f} s and ran {busy / len(same):.1f} s"
        )
        out.append(
            {
                "submit": first, "start": first, "end": last, "label": label, "tip": tip,
                "cls": _class(same[0], classes), "held": [],
            }
        )  # fmt: skip
    return out


def _bar(
    bar: Bar, moved: Sequence[Transit], classes: Mapping[str, str], facts: RunFacts
) -> dict[str, Any]:
    t0, end = facts.started, bar.end or facts.ended
    how = "" if bar.ok else "failed" if bar.end else "unfinished"
    label = short_job(bar.job) + {"": "", "failed": " ✗ failed"}.get(how, f" {how}")
    label += "".join(
        f" · {t.request.src} → {t.request.dst}, {format_size(t.usage.bytes)}" for t in moved[:2]
    )
    tip = (
        f"{bar.job} at {bar.site}: waited {bar.start - bar.submit:.1f} s, "
        f"ran from {bar.start - t0:.1f} to {end - t0:.1f} s{how and f', {how}'}"
    )
    tip += "".join(
        f"; {t.request.src} → {t.request.dst} {format_size(t.usage.bytes)} at "
        f"{format_rate(t.usage.goodput_bps)}"
        for t in moved
    )
    return {
        "submit": bar.submit - t0,
        "start": bar.start - t0,
        "end": end - t0,
        "label": label,
        "tip": tip,
        "cls": _class(bar, classes) + (" failed" if how == "failed" else ""),
        "held": [
            (t.grant.installed_at - t0, end_of(t) - t0, _tip(t, t0))
            for t in moved
            if t.grant.installed_at and t.grant.path
        ],
    }


def _class(bar: Bar, classes: Mapping[str, str]) -> str:
    kind = {"transfer": " moved", "other": " other"}.get(bar.kind, "")
    return classes.get(bar.site, "s0") + kind


def _load(load: Load, facts: RunFacts) -> dict[str, Any]:
    t0, shortest = facts.started, facts.makespan_s * _SHORT
    short = [t for t in load.held if end_of(t) - t.grant.installed_at < shortest]
    title = f"{load.hop[0]} → {load.hop[1]}"
    steps = coarser_series(reserved_series(load.held), max(facts.makespan_s, 1e-9) * FINEST)
    reserved = {
        "name": "reserved",
        "cls": "t1",
        "points": [(at - t0, bps) for at, bps in steps],
        "area": True,
    }
    measured = [
        {
            "name": "measured" if load.counted else "moved",
            "cls": "t2",
            "points": [(at - t0, bps) for at, bps in part],
        }
        for part in _unbroken(load.measured)
    ]
    drawn = _chart(title, "bit/s", facts, [reserved, *measured] if steps else measured)
    if load.capacity_bps:
        drawn["cut"] = {"value": load.capacity_bps, "words": "capacity"}
    drawn["marks"] = [
        {"at": t.grant.installed_at - t0, "value": 0, "words": _tip(t, t0), "letter": ""}
        for t in short
        if len(short) <= _MOST_MARKS
    ]
    return drawn | {"step": True, "quiet": True, "floor": 0}


def _chart(title: str, unit: str, facts: RunFacts, series: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "key": title,
        "title": title,
        "unit": unit,
        "elapsed": True,
        "t0": 0,
        "t1": facts.makespan_s,
        "series": series,
    }


def measured_paths(facts: RunFacts) -> list[MeasuredPath]:
    """Subject, metric, unit and measurements in order of time, of each series of the archive."""
    series: dict[tuple[str, str, str], list[Measurement]] = {}
    for m in sorted(facts.measured, key=lambda m: m.at):
        series.setdefault((m.subject, m.metric, m.unit), []).append(m)
    return [(*key, series[key]) for key in sorted(series)]


def _measured(path: MeasuredPath, facts: RunFacts) -> dict[str, Any]:
    subject, metric, unit, values = path
    points = [(m.at - facts.started, m.value) for m in values]
    series = [{"name": "measured", "cls": "t2", "points": points, "dots": True}]
    return _chart(f"{metric} {subject}", unit, facts, series)


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
    grant = t.grant
    return (
        f"{t.request.job}: {format_rate(t.request.min_bps)} reserved, "
        f"{format_rate(grant.granted_bps)} granted on {' → '.join(grant.path)} "
        f"from {grant.installed_at - t0:.1f} to {end_of(t) - t0:.1f} s, "
        f"{format_size(t.usage.bytes)} moved at {format_rate(t.usage.goodput_bps)}"
    )
