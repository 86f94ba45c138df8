"""List scheduling as kernels; ``schedule.py`` tells what the variants know."""

from __future__ import annotations

from typing import NamedTuple

from site_selector.mapping.kernel import kernel
from site_selector.mapping.kernel_data import Floats, Ints, Numbers, Shape

NEVER = 1e300


class Knows(NamedTuple):
    """What a variant looks at. ``move_s`` below zero: what moves takes depends on path and size."""

    data: bool
    lookahead: bool
    chains: bool
    move_s: float


class Growing(NamedTuple):
    """A schedule that grows job by job.

    ``free_at[s]`` to ``free_at[s + 1]`` is the range in ``free`` of a heap of the times at which a
    site's workers are free. ``there`` is when a file is at a site (file * n_sites + site), NEVER
    where it is not. ``busy`` is how long a path is taken (from * n_places + to), ``line`` room for
    the same of the paths to one site.
    """

    site: Ints
    end: Floats
    free_at: Ints
    free: Floats
    there: Floats
    busy: Floats
    line: Floats


@kernel
def list_schedule(
    shape: Shape,
    numbers: Numbers,
    source: Ints,
    jobs: Ints,
    knows: Knows,
    after: Floats,
    growing: Growing,
) -> None:
    """Jobs, in the order of ``jobs``, go where they finish first; ``growing.site`` tells where."""
    n = shape.n_sites
    if knows.data:
        lay_out(shape, growing)
    for k in range(shape.n_jobs):
        job = jobs[k]
        ready = 0.0
        for i in range(shape.parents_at[job], shape.parents_at[job + 1]):
            ready = max(ready, growing.end[shape.parents[i]])
        chosen, least, ends = -1, 0.0, 0.0
        stay = only_parent(shape, growing, job) if knows.chains else -1
        if stay >= 0 and not shape.allowed[job * n + stay]:
            stay = -1
        for s in range(n):
            if not shape.allowed[job * n + s] or (stay >= 0 and s != stay):
                continue
            if knows.data:
                start = max(data_ready(shape, numbers, source, growing, job, s), ready)
                start = start + numbers.queue[s]
            elif knows.move_s >= 0:
                start = max(constant_ready(shape, growing, knows.move_s, job, s), ready)
            else:
                start = max(results_ready(shape, numbers, growing, job, s), ready)
            finish = max(start, growing.free[growing.free_at[s]]) + numbers.compute[job * n + s]
            score = finish + after[job * n + s] if knows.lookahead else finish
            if chosen < 0 or score < least:
                chosen, least, ends = s, score, finish
        growing.site[job] = chosen
        growing.end[job] = ends
        take_worker(growing.free, growing.free_at[chosen], growing.free_at[chosen + 1], ends)
        if knows.data:
            commit(shape, numbers, source, growing, job)


@kernel
def lay_out(shape: Shape, growing: Growing) -> None:
    """Input files are at the start where they are held, results nowhere."""
    for file in range(shape.n_files):
        group = shape.group[file]
        for s in range(shape.n_sites):
            held = group >= 0 and shape.held[group * shape.n_places + s] > 0
            growing.there[file * shape.n_sites + s] = 0.0 if held else NEVER


@kernel
def only_parent(shape: Shape, growing: Growing, job: int) -> int:
    """The site of a job's only parent if that has no other child, else -1."""
    if shape.parents_at[job + 1] - shape.parents_at[job] != 1:
        return -1
    parent = shape.parents[shape.parents_at[job]]
    if shape.children_at[parent + 1] - shape.children_at[parent] != 1:
        return -1
    return growing.site[parent]


@kernel
def constant_ready(shape: Shape, growing: Growing, move_s: float, job: int, s: int) -> float:
    """When a job could start at a site where every move between two jobs takes the same."""
    out = 0.0
    for k in range(shape.parents_at[job], shape.parents_at[job + 1]):
        parent = shape.parents[k]
        move = 0.0 if growing.site[parent] == s else move_s
        out = max(out, growing.end[parent] + move)
    return out


@kernel
def results_ready(shape: Shape, numbers: Numbers, growing: Growing, job: int, s: int) -> float:
    """When results of parents could be at a site; inputs of the workflow cost nothing."""
    out = 0.0
    for slot in range(shape.slots_at[job], shape.slots_at[job + 1]):
        file = shape.slot_file[slot]
        producer = shape.producer[file]
        if producer >= 0:
            path = growing.site[producer] * shape.n_places + s
            out = max(out, growing.end[producer] + numbers.size[file] * numbers.per_byte[path])
    return out


@kernel
def origin(shape: Shape, source: Ints, growing: Growing, file: int, s: int) -> tuple[int, float]:
    """Where a site gets a file from, its producer or a replica, and when it is there."""
    producer = shape.producer[file]
    if producer >= 0:
        return growing.site[producer], growing.end[producer]
    return source[shape.group[file] * shape.n_places + s], 0.0


@kernel
def data_ready(
    shape: Shape, numbers: Numbers, source: Ints, growing: Growing, job: int, s: int
) -> float:
    """When all inputs could be at a site, the job's own transfers in line on each path."""
    n, places = shape.n_sites, shape.n_places
    out = 0.0
    for place in range(places):
        growing.line[place] = growing.busy[place * places + s]
    for slot in range(shape.slots_at[job], shape.slots_at[job + 1]):
        file = shape.slot_file[slot]
        arrival = growing.there[file * n + s]
        if arrival >= NEVER:
            src, made = origin(shape, source, growing, file, s)
            path = src * places + s
            begin = max(made, growing.line[src])
            growing.line[src] = begin + numbers.size[file] * numbers.occupied[path]
            arrival = begin + numbers.size[file] * numbers.per_byte[path] + numbers.setup[path]
        out = max(out, arrival)
    return out


@kernel
def commit(shape: Shape, numbers: Numbers, source: Ints, growing: Growing, job: int) -> None:
    """The job goes to its site, and so do its inputs."""
    n, places, s = shape.n_sites, shape.n_places, growing.site[job]
    for slot in range(shape.slots_at[job], shape.slots_at[job + 1]):
        file = shape.slot_file[slot]
        if growing.there[file * n + s] >= NEVER:
            src, made = origin(shape, source, growing, file, s)
            path = src * places + s
            begin = max(made, growing.busy[path])
            growing.busy[path] = begin + numbers.size[file] * numbers.occupied[path]
            if not shape.per_job:
                moved = begin + numbers.size[file] * numbers.per_byte[path]
                growing.there[file * n + s] = moved + numbers.setup[path]
    for k in range(shape.writes_at[job], shape.writes_at[job + 1]):
        growing.there[shape.writes[k] * n + s] = growing.end[job]


@kernel
def take_worker(free: Floats, first: int, last: int, until: float) -> None:
    """The worker that is free first is taken: ``until`` replaces the least of the heap."""
    at, below = first, first + 1
    while below < last:
        if below + 1 < last and free[below + 1] < free[below]:
            below += 1
        if until <= free[below]:
            break
        free[at] = free[below]
        at = below
        below = 2 * (at - first) + 1 + first
    free[at] = until
