"""When each job of a mapping runs and each file moves, as the estimator has it, for drawing."""

from __future__ import annotations

from collections.abc import Sequence

from site_selector.explain.gantt import Chart, job_bar, move_bar
from site_selector.explain.reasons import seconds
from site_selector.mapping.placement import Mapping
from site_selector.mapping.sharing import SharingEstimator
from site_selector.problem import NEVER_S, Problem


def chart_of(problem: Problem, names: Sequence[str], mapping: Mapping) -> Chart:
    """Jobs by site and moves by path of a mapping of ``problem``, with each job's transformation.

    Jobs that wait for a site without resources have no place in time and are left out.
    """
    place = {name: i for i, name in enumerate(problem.places)}
    sites = mapping.sites
    schedule = SharingEstimator(problem)([place[sites[job]] for job in problem.jobs])
    jobs = tuple(
        job_bar(job, name, sites[job], start, end)
        for job, name, start, end in zip(
            problem.jobs, names, schedule.start_s, schedule.end_s, strict=True
        )
        if end < NEVER_S
    )
    moves = tuple(
        move_bar(
            problem.files[move.file],
            f"{problem.places[move.src]}>{problem.places[move.dst]}",
            problem.size[move.file],
            move.start_s,
            move.end_s,
        )
        for move in schedule.transfers
        if move.end_s < NEVER_S
    )
    title = (
        f"{mapping.workflow}: {len(mapping.placements)} jobs, expected to end after "
        f"{seconds(mapping.makespan_s)} ({mapping.policy})"
    )
    return Chart(title, jobs, moves)
