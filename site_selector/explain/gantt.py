"""A mapping over time, as values for a Gantt chart: jobs at sites, files on paths."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from network_provisioner.base.units import format_size
from site_selector.mapping.estimator import Estimator
from site_selector.mapping.placement import Mapping
from site_selector.mapping.reasons import range_text, seconds
from site_selector.problem import NEVER_S, Problem

_COLOURS = 8
_MOVE = "s0"


def title_of(mapping: Mapping) -> str:
    """What the chart is of."""
    return (
        f"{mapping.workflow}: {len(mapping.placements)} jobs, expected to end after "
        f"{seconds(mapping.expected_s)}{range_text(mapping.forecast)} ({mapping.policy})"
    )


def gantt_of(problem: Problem, names: Sequence[str], mapping: Mapping) -> dict[str, Any]:
    """Bars of jobs by site, then of files by path, in seconds from the start; JSON-ready, as the
    dashboard's ``gantt.js`` takes them. ``names`` are the jobs' transformations.

    Jobs that wait for a site without resources have no place in time and are left out.
    """
    place = {name: i for i, name in enumerate(problem.places)}
    schedule = Estimator(problem)([place[mapping.sites[job]] for job in problem.jobs])
    kinds = {name: f"s{n % _COLOURS + 1}" for n, name in enumerate(dict.fromkeys(names))}
    sites: dict[str, list[dict[str, Any]]] = {}
    for job, name, start, end in zip(
        problem.jobs, names, schedule.start_s, schedule.end_s, strict=True
    ):
        if end < NEVER_S:
            site = mapping.sites[job]
            bar = _bar(job, kinds[name], start, end, f"{job} {name} at {site}")
            sites.setdefault(site, []).append(bar)
    paths: dict[str, list[dict[str, Any]]] = {}
    for move in schedule.transfers:
        if move.end_s < NEVER_S:
            path = f"{problem.places[move.src]} > {problem.places[move.dst]}"
            lfn = problem.files[move.file]
            tip = f"{lfn}, {format_size(problem.size[move.file])}, {path}"
            paths.setdefault(path, []).append(_bar(lfn, _MOVE, move.start_s, move.end_s, tip))
    groups = sorted(sites.items()) + sorted(paths.items())
    return {
        "groups": groups,
        "end": max((bar["end"] for _, bars in groups for bar in bars), default=1.0),
        "key": [*((cls, name) for name, cls in kinds.items()), (_MOVE, "transfer")],
    }


def _bar(label: str, cls: str, start_s: float, end_s: float, what: str) -> dict[str, Any]:
    start_s, end_s = float(start_s), float(end_s)
    return {
        "label": label,
        "cls": cls,
        "submit": start_s,
        "start": start_s,
        "end": end_s,
        "tip": f"{what}: {seconds(start_s)} to {seconds(end_s)}",
        "held": [],
    }
