"""A mapping over time: every job and move once, where and when the mapping has it."""

from __future__ import annotations

import json

import pytest
from site_world import inputs_from, resequencing

from site_selector.estimates.estimating import estimate_world
from site_selector.explain.gantt import gantt_of, title_of
from site_selector.mapping.mapper import map_workflow
from site_selector.problem import build_problem


def test_a_mapped_workflow() -> None:
    sites: dict[str, dict[str, object]] = {
        name: {"adon.workers": 2, "adon.queue_wait": "1 s"} for name in ("mu", "tacc")
    }
    inputs = inputs_from(*resequencing(2, 2, sites, "mu"))
    world = estimate_world(inputs, now=0.0, output_site="tacc")
    mapping = map_workflow(inputs, world, "tacc")
    problem = build_problem(inputs, world, "tacc")
    names = [inputs.workflow.jobs[job].transformation for job in problem.jobs]
    chart = json.loads(json.dumps(gantt_of(problem, names, mapping), allow_nan=False))
    groups = dict(chart["groups"])
    jobs = {bar["label"]: site for site in mapping.sites.values() for bar in groups[site]}
    assert jobs == mapping.sites
    assert chart["end"] == pytest.approx(mapping.makespan_s - problem.overhead_s)
    assert all(
        0 <= bar["start"] <= bar["end"] <= chart["end"] for g in groups.values() for bar in g
    )
    for site in set(mapping.sites.values()):  # of two workers no more than two are busy at once
        for bar in groups[site]:
            at = bar["start"]
            assert sum(b["start"] <= at < b["end"] - 1e-9 for b in groups[site]) <= 2
    moved = {
        label for path in groups if " > " in path for label in (b["label"] for b in groups[path])
    }
    assert moved and moved <= set(problem.files)
    labels = {words for _, words in chart["key"]}
    assert {"t::align:1.0", "transfer"} <= labels
    assert title_of(mapping).startswith(
        f"{mapping.workflow}: {len(mapping.placements)} jobs, expected"
    )
