"""What a mapping will take of sites and paths, and when, in few steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil

from site_selector.catalogs.entries import legs_of
from site_selector.estimates.plans import TENTHS, Flows, Plan, Steps
from site_selector.mapping.estimator import Schedule
from site_selector.problem import NEVER_S, Problem

MOST_STEPS = 32
"""Of a site's cores."""
MOST_FLOWS = 8
"""Of a path."""
_MOST_SITES = 50
_MOST_PATHS = 100


def plan_of(name: str, problem: Problem, site: Sequence[int], run: Schedule, at: float) -> Plan:
    """What a mapping will take by its schedule. Nothing where it never ends."""
    if run.makespan_s >= NEVER_S:
        return Plan(name, at)
    busy: dict[int, list[tuple[float, int]]] = {}
    for here, start_s, end_s in zip(site, run.start_s, run.end_s, strict=True):
        busy.setdefault(here, []).extend(((start_s, 1), (end_s, -1)))
    by_load = sorted(busy, key=lambda here: (-len(busy[here]), here))[:_MOST_SITES]
    moved: dict[tuple[str, str], dict[tuple[float, float], float]] = {}
    for file, src, dst, start_s, end_s in run.transfers:
        for leg in legs_of(problem.places[src], problem.places[dst]):
            path = moved.setdefault(leg, {})
            path[start_s, end_s] = path.get((start_s, end_s), 0.0) + problem.size[file]
    by_bytes = sorted(moved, key=lambda pair: (-sum(moved[pair].values()), pair))[:_MOST_PATHS]
    ends = sorted(run.end_s)
    return Plan(
        name,
        at,
        {problem.places[here]: _steps(busy[here]) for here in by_load},
        {f"{src}>{dst}": _flows(moved[src, dst]) for src, dst in by_bytes},
        tuple(
            round(ends[ceil(len(ends) * tenth / TENTHS) - 1], 1)
            for tenth in range(1, TENTHS + 1)
            if ends
        ),
    )


def _steps(changes: list[tuple[float, int]]) -> Steps:
    """The cores taken over time, in few steps: of those that are taken together, the most."""
    count, steps = 0, dict[float, int]()
    for at_s, change in sorted(changes):
        count += change
        steps[round(at_s, 1)] = count
    rows = list(steps.items())
    size = ceil(len(rows) / MOST_STEPS)
    last = rows.pop() if size > 1 else None
    taken = [
        (part[0][0], max(n for _, n in part))
        for part in (rows[i : i + size] for i in range(0, len(rows), size))
    ]
    return tuple(taken if last is None else [*taken, last])


def _flows(moved: Mapping[tuple[float, float], float]) -> Flows:
    rows = sorted((start_s, end_s, size) for (start_s, end_s), size in moved.items())
    size = ceil(len(rows) / MOST_FLOWS)
    parts = (rows[i : i + size] for i in range(0, len(rows), size))
    return tuple(
        (round(part[0][0], 1), round(max(row[1] for row in part), 1), sum(r[2] for r in part))
        for part in parts
    )
