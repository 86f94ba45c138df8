"""Greedy placement by T_t as kernels; ``policies.py`` tells the policies."""

from __future__ import annotations

from typing import NamedTuple

from site_selector.mapping.kernel import kernel
from site_selector.mapping.kernel_data import Floats, Ints, Numbers, Shape


class Placed(NamedTuple):
    """Where jobs were put so far, and which files lie where.

    ``at`` is 1 where a file is at a place (file * n_places + place); ``crowd`` counts the jobs of a
    level at a site (level * n_sites + site); ``back`` is what of a job's results is wanted back.
    """

    site: Ints
    at: Ints
    crowd: Ints
    back: Floats


@kernel
def lay_out(shape: Shape, placed: Placed) -> None:
    """Input files lie where they are held."""
    for file in range(shape.n_files):
        if shape.group[file] >= 0:
            for place in range(shape.n_places):
                held = shape.held[shape.group[file] * shape.n_places + place]
                placed.at[file * shape.n_places + place] = held


@kernel
def cost(shape: Shape, numbers: Numbers, placed: Placed, job: int, s: int) -> float:
    """T_t in seconds, workers shared with the jobs of the same level that are there already, and
    the set-up of a transfer where there is one."""
    places = shape.n_places
    crowd = placed.crowd[shape.level[job] * shape.n_sites + s] + 1
    turns = max(1.0, crowd / numbers.workers[s])
    moving = setup = 0.0
    for slot in range(shape.slots_at[job], shape.slots_at[job + 1]):
        file = shape.slot_file[slot]
        if not placed.at[file * places + s]:
            nearest = soonest = -1.0
            for place in range(places):
                if placed.at[file * places + place]:
                    per_byte = numbers.per_byte[place * places + s]
                    wait = numbers.setup[place * places + s]
                    nearest = per_byte if nearest < 0 else min(nearest, per_byte)
                    soonest = wait if soonest < 0 else min(soonest, wait)
            moving += numbers.size[file] * nearest
            setup = max(setup, soonest)
    if shape.output >= 0:
        moving += placed.back[job] * numbers.per_byte[s * places + shape.output]
    own = numbers.compute[job * shape.n_sites + s] * turns
    return numbers.queue[s] + own + moving + setup


@kernel
def cheapest(shape: Shape, numbers: Numbers, placed: Placed, job: int) -> int:
    """The site of least T_t among those that can run the job."""
    chosen, least = -1, 0.0
    for s in range(shape.n_sites):
        if shape.allowed[job * shape.n_sites + s]:
            found = cost(shape, numbers, placed, job, s)
            if chosen < 0 or found < least:
                chosen, least = s, found
    return chosen


@kernel
def put(shape: Shape, placed: Placed, job: int, s: int) -> None:
    """The job goes there, and so do its files."""
    placed.site[job] = s
    placed.crowd[shape.level[job] * shape.n_sites + s] += 1
    if not shape.per_job:
        for slot in range(shape.slots_at[job], shape.slots_at[job + 1]):
            placed.at[shape.slot_file[slot] * shape.n_places + s] = 1
    for k in range(shape.writes_at[job], shape.writes_at[job + 1]):
        placed.at[shape.writes[k] * shape.n_places + s] = 1


@kernel
def place_one_by_one(shape: Shape, numbers: Numbers, placed: Placed, favourite: int) -> None:
    """Each job at ``favourite`` if it can run there, else where its own T_t is least."""
    lay_out(shape, placed)
    for job in range(shape.n_jobs):
        if favourite >= 0 and shape.allowed[job * shape.n_sites + favourite]:
            put(shape, placed, job, favourite)
        else:
            put(shape, placed, job, cheapest(shape, numbers, placed, job))


@kernel
def place_by_level(shape: Shape, numbers: Numbers, placed: Placed, jobs: Ints) -> None:
    """Each level as a whole where the sum of its jobs' T_t is least; ``jobs`` come by level."""
    lay_out(shape, placed)
    n = shape.n_sites
    first = 0
    while first < shape.n_jobs:
        last = first
        while last < shape.n_jobs and shape.level[jobs[last]] == shape.level[jobs[first]]:
            last += 1
        chosen, least = -1, 0.0
        for s in range(n):
            total, able = 0.0, 0
            for k in range(first, last):
                if shape.allowed[jobs[k] * n + s]:
                    total += cost(shape, numbers, placed, jobs[k], s)
                    able += 1
            if able and (chosen < 0 or total < least):
                chosen, least = s, total
        for k in range(first, last):
            job = jobs[k]
            fits = shape.allowed[job * n + chosen]
            put(shape, placed, job, chosen if fits else cheapest(shape, numbers, placed, job))
        first = last
