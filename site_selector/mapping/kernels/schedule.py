"""Greedy placement, list scheduling and ranks as kernels; ``policies.py`` tells the policies.

Jobs come in topological order, so whatever follows a job has been seen before it.
"""

from __future__ import annotations

from typing import NamedTuple

from site_selector.mapping.kernels.compiled import kernel
from site_selector.mapping.kernels.data import FETCHES, Floats, Ints, Numbers, Shape

NEVER = 1e300
MOST_GAPS = 64  # that are looked at; the latest


class Placed(NamedTuple):
    """Where jobs were put so far, and which files lie where.

    ``at`` is 1 where a file is at a place (file * n_places + place). ``copy`` is the last copy of a
    file, -1 without one; each copy knows its ``place`` and the one ``before``, ``copies`` counts
    them. ``crowd`` counts the jobs of a level at a site (level * n_sites + site); ``back`` is
    what of a job's results is wanted back.
    """

    site: Ints
    at: Ints
    copy: Ints
    place: Ints
    before: Ints
    copies: Ints
    crowd: Ints
    back: Floats


@kernel
def lay_inputs_out(shape: Shape, placed: Placed) -> None:
    """Input files lie where they are held."""
    for file in range(shape.n_files):
        placed.copy[file] = -1
        group = shape.group[file]
        if group >= 0:
            for k in range(shape.holders_at[group], shape.holders_at[group + 1]):
                lay(shape, placed, file, shape.holders[k])


@kernel
def lay(shape: Shape, placed: Placed, file: int, place: int) -> None:
    """A file is at a place from now on."""
    if not placed.at[file * shape.n_places + place]:
        placed.at[file * shape.n_places + place] = 1
        copy = placed.copies[0]
        placed.place[copy], placed.before[copy] = place, placed.copy[file]
        placed.copy[file] = copy
        placed.copies[0] = copy + 1


@kernel
def cost(shape: Shape, numbers: Numbers, placed: Placed, job: int, s: int) -> float:
    """T_t in seconds, workers shared with the jobs of the same level that are there already, and
    the set-up of a transfer where there is one."""
    places, at = shape.n_places, shape.shared[job * shape.n_sites + s]
    crowd = placed.crowd[shape.level[job] * shape.n_sites + s] + 1
    turns = max(1.0, crowd / numbers.workers[s])
    moving = setup = 0.0
    for slot in range(shape.slots_at[job], shape.slots_at[job + 1]):
        file = shape.slot_file[slot]
        if not placed.at[file * places + at] and not shape.own[slot]:
            nearest = soonest = -1.0
            copy = placed.copy[file]
            while copy >= 0:
                path = placed.place[copy] * places + at
                per_byte, wait = numbers.per_byte[path], numbers.setup[path]
                nearest = per_byte if nearest < 0 else min(nearest, per_byte)
                soonest = wait if soonest < 0 else min(soonest, wait)
                copy = placed.before[copy]
            moving += numbers.size[file] * nearest
            setup = max(setup, soonest)
    if shape.output >= 0:
        moving += placed.back[job] * numbers.per_byte[at * places + shape.output]
    own = numbers.busy[job * shape.n_sites + s] * turns
    return numbers.queue[job * numbers.queue_row + s] + own + moving + setup


@kernel
def cheapest(shape: Shape, numbers: Numbers, placed: Placed, job: int) -> int:
    """The site of least T_t among those that can run the job."""
    chosen, least = -1, 0.0
    for s in range(shape.n_sites):
        if shape.allowed[job * shape.n_sites + s]:
            seconds = cost(shape, numbers, placed, job, s)
            if chosen < 0 or seconds < least:
                chosen, least = s, seconds
    return chosen


@kernel
def put(shape: Shape, placed: Placed, job: int, s: int) -> None:
    """The job goes there, and so do its files."""
    placed.site[job] = s
    placed.crowd[shape.level[job] * shape.n_sites + s] += 1
    place = shape.shared[job * shape.n_sites + s]
    if shape.allowed[job * shape.n_sites + s] != FETCHES:
        for slot in range(shape.slots_at[job], shape.slots_at[job + 1]):
            if not shape.own[slot]:
                lay(shape, placed, shape.slot_file[slot], place)
    for k in range(shape.writes_at[job], shape.writes_at[job + 1]):
        lay(shape, placed, shape.writes[k], place)


@kernel
def place_one_by_one(shape: Shape, numbers: Numbers, placed: Placed, favourite: int) -> None:
    """Each job at ``favourite`` if it can run there, else where its own T_t is least."""
    lay_inputs_out(shape, placed)
    for job in range(shape.n_jobs):
        if favourite >= 0 and shape.allowed[job * shape.n_sites + favourite]:
            put(shape, placed, job, favourite)
        else:
            put(shape, placed, job, cheapest(shape, numbers, placed, job))


@kernel
def place_by_level(shape: Shape, numbers: Numbers, placed: Placed, jobs: Ints) -> None:
    """Each level as a whole where the sum of its jobs' T_t is least; ``jobs`` come by level."""
    lay_inputs_out(shape, placed)
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


class Knows(NamedTuple):
    """What a variant looks at. ``move_s`` below zero: what moves takes depends on path and size.
    ``insertion``: a job may start while a worker waits for the next one."""

    data: bool
    lookahead: bool
    chains: bool
    move_s: float
    insertion: bool


class Growing(NamedTuple):
    """A schedule that grows job by job.

    ``free_at[s]`` to ``free_at[s + 1]`` is the range in ``free`` of a heap of the times at which a
    site's workers are free. ``there`` is when a file is at a place (file * n_places + place), NEVER
    where it is not. ``busy`` is how long a line is taken (see ``Shape``), ``queue_end`` the same
    with the transfers of one job that may come. ``gap`` is the last of the times in which a worker
    of a site waits, -1 without one; each ``opens`` and ``closes``, and knows the one ``before``;
    ``gaps`` counts them.
    """

    site: Ints
    end: Floats
    free_at: Ints
    free: Floats
    there: Floats
    busy: Floats
    queue_end: Floats
    gap: Ints
    before: Ints
    opens: Floats
    closes: Floats
    gaps: Ints


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
        chosen, least, ends, starts, into = -1, 0.0, 0.0, 0.0, -1
        stay = only_parent(shape, growing, job) if knows.chains else -1
        if stay >= 0 and not shape.allowed[job * n + stay]:
            stay = -1
        for s in range(n):
            if not shape.allowed[job * n + s] or (stay >= 0 and s != stay):
                continue
            start = could_start(shape, numbers, source, knows, growing, job, s, ready)
            seconds = numbers.busy[job * n + s]
            begin = max(start, growing.free[growing.free_at[s]])
            gap = fitting(growing, s, start, seconds, begin) if knows.insertion else -1
            if gap >= 0:
                begin = max(start, growing.opens[gap])
            finish = begin + seconds
            score = finish + after[job * n + s] if knows.lookahead else finish
            if chosen < 0 or score < least:
                chosen, least, ends, starts, into = s, score, finish, begin, gap
        growing.site[job] = chosen
        growing.end[job] = ends
        if into >= 0:
            add_gap(growing, chosen, ends, growing.closes[into])
            growing.closes[into] = starts
        else:
            first = growing.free_at[chosen]
            if knows.insertion:
                add_gap(growing, chosen, growing.free[first], starts)
            take_worker(growing.free, first, growing.free_at[chosen + 1], ends)
        if knows.data:
            commit(shape, numbers, source, growing, job, ready)


@kernel
def lay_out(shape: Shape, growing: Growing) -> None:
    """Input files are at the start where they are held, results nowhere."""
    for file in range(shape.n_files):
        group = shape.group[file]
        for place in range(shape.n_places):
            held = group >= 0 and shape.held[group * shape.n_places + place] > 0
            growing.there[file * shape.n_places + place] = 0.0 if held else NEVER


@kernel
def could_start(
    shape: Shape,
    numbers: Numbers,
    source: Ints,
    knows: Knows,
    growing: Growing,
    job: int,
    s: int,
    ready: float,
) -> float:
    """When a job whose parents are done at ``ready`` could start at a site with a free worker."""
    if knows.data:
        start = max(data_ready(shape, numbers, source, growing, job, s, ready), ready)
        return start + numbers.queue[job * numbers.queue_row + s]
    if knows.move_s >= 0:
        return max(constant_ready(shape, growing, knows.move_s, job, s), ready)
    return max(results_ready(shape, numbers, growing, job, s), ready)


@kernel
def fitting(growing: Growing, s: int, start: float, seconds: float, latest: float) -> int:
    """The gap in which a job would begin soonest, and before ``latest``; -1 without one."""
    best, soonest, looked, gap = -1, latest, 0, growing.gap[s]
    while gap >= 0 and looked < MOST_GAPS:
        begin = max(start, growing.opens[gap])
        if begin + seconds <= growing.closes[gap] and begin < soonest:
            best, soonest = gap, begin
        gap = growing.before[gap]
        looked += 1
    return best


@kernel
def add_gap(growing: Growing, s: int, opens: float, closes: float) -> None:
    """A worker of a site waits meanwhile."""
    if closes > opens:
        gap = growing.gaps[0]
        growing.opens[gap], growing.closes[gap] = opens, closes
        growing.before[gap] = growing.gap[s]
        growing.gap[s] = gap
        growing.gaps[0] = gap + 1


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
            src = shared_by(shape, growing, producer)
            path = src * shape.n_places + shape.shared[job * shape.n_sites + s]
            out = max(out, growing.end[producer] + numbers.size[file] * numbers.per_byte[path])
    return out


@kernel
def shared_by(shape: Shape, growing: Growing, job: int) -> int:
    """The place where all get the files of a job that is placed."""
    return shape.shared[job * shape.n_sites + growing.site[job]]


@kernel
def origin(
    shape: Shape, source: Ints, growing: Growing, file: int, job: int, s: int, ready: float
) -> tuple[int, float]:
    """Where a job at a site gets a file from, its producer or a replica, and when it can go;
    ``ready`` is when the job's parents have ended: results move together unless it fetches."""
    producer = shape.producer[file]
    if producer >= 0:
        fetched = shape.allowed[job * shape.n_sites + s] == FETCHES
        src = shared_by(shape, growing, producer)
        return src, growing.end[producer] if fetched else ready
    place = shape.shared[job * shape.n_sites + s]
    return source[shape.group[file] * shape.n_places + place], 0.0


@kernel
def data_ready(
    shape: Shape,
    numbers: Numbers,
    source: Ints,
    growing: Growing,
    job: int,
    s: int,
    ready: float,
) -> float:
    """When all inputs could be at a site, the job's own transfers in line on each path."""
    places, place = shape.n_places, shape.shared[job * shape.n_sites + s]
    out = 0.0
    for slot in range(shape.slots_at[job], shape.slots_at[job + 1]):
        src = origin(shape, source, growing, shape.slot_file[slot], job, s, ready)[0]
        line = shape.line[src * places + place]
        growing.queue_end[line] = growing.busy[line]
    for slot in range(shape.slots_at[job], shape.slots_at[job + 1]):
        file = shape.slot_file[slot]
        arrival = growing.there[file * places + place]
        if arrival >= NEVER and shape.own[slot]:
            arrival = 0.0
        elif arrival >= NEVER:
            src, made = origin(shape, source, growing, file, job, s, ready)
            path = src * places + place
            line = shape.line[path]
            begin = max(made, growing.queue_end[line])
            growing.queue_end[line] = begin + numbers.size[file] * numbers.occupied[path]
            arrival = begin + numbers.size[file] * numbers.per_byte[path] + numbers.setup[path]
        out = max(out, arrival)
    return out


@kernel
def commit(
    shape: Shape, numbers: Numbers, source: Ints, growing: Growing, job: int, ready: float
) -> None:
    """The job goes to its site, and so do its inputs."""
    n, places, s = shape.n_sites, shape.n_places, growing.site[job]
    place = shared_by(shape, growing, job)
    for slot in range(shape.slots_at[job], shape.slots_at[job + 1]):
        file = shape.slot_file[slot]
        if growing.there[file * places + place] >= NEVER and not shape.own[slot]:
            src, made = origin(shape, source, growing, file, job, s, ready)
            path = src * places + place
            line = shape.line[path]
            begin = max(made, growing.busy[line])
            growing.busy[line] = begin + numbers.size[file] * numbers.occupied[path]
            if shape.allowed[job * n + s] != FETCHES:
                moved = begin + numbers.size[file] * numbers.per_byte[path]
                growing.there[file * places + place] = moved + numbers.setup[path]
    for k in range(shape.writes_at[job], shape.writes_at[job + 1]):
        growing.there[shape.writes[k] * places + place] = growing.end[job]


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


@kernel
def rank_upward(
    shape: Shape, compute: Floats, size: Floats, mean_per_byte: float, rank: Floats
) -> None:
    """``rank``, which is zero before: the longest way to the end, moves between jobs included."""
    for job in range(shape.n_jobs - 1, -1, -1):
        rank[job] = compute[job] + rank[job]
        mine = rank[job]
        for k in range(shape.parents_at[job], shape.parents_at[job + 1]):
            parent = shape.parents[k]
            rank[parent] = max(rank[parent], mine)
        for slot in range(shape.slots_at[job], shape.slots_at[job + 1]):
            file = shape.slot_file[slot]
            producer = shape.producer[file]
            if producer >= 0:
                rank[producer] = max(rank[producer], mine + size[file] * mean_per_byte)


@kernel
def rank_downward(shape: Shape, compute: Floats, move_s: float, rank: Floats) -> None:
    """``rank``, which is zero before: the longest way from the start, each edge taking the same."""
    for job in range(shape.n_jobs):
        for k in range(shape.parents_at[job], shape.parents_at[job + 1]):
            parent = shape.parents[k]
            rank[job] = max(rank[job], rank[parent] + compute[parent] + move_s)


@kernel
def follow_at_best(
    shape: Shape,
    numbers: Numbers,
    never: float,
    back: Floats,
    from_parents: Floats,
    best: Floats,
    after: Floats,
) -> None:
    """``after`` (job * n_sites + site), which is zero before: least seconds that must follow.

    ``moved`` holds what comes from each parent by ``shape.parents``, below zero where nothing does;
    ``back`` the bytes of a job's results that are wanted at the output site; ``best`` is room for
    as much as ``after``.
    """
    n, places, output = shape.n_sites, shape.n_places, shape.output
    for job in range(shape.n_jobs - 1, -1, -1):
        row = job * n
        for s in range(n):
            if output >= 0:
                home = back[job] * numbers.per_byte[shape.shared[row + s] * places + output]
                after[row + s] = max(after[row + s], home)
            if shape.allowed[row + s]:
                own = numbers.busy[row + s] + numbers.queue[job * numbers.queue_row + s]
                best[row + s] = own + after[row + s]
            else:
                best[row + s] = never
        for k in range(shape.parents_at[job], shape.parents_at[job + 1]):
            above = shape.parents[k] * n
            for s in range(n):
                reach = best[row]
                for t in range(n):
                    there = best[row + t]
                    if from_parents[k] >= 0:
                        path = shape.shared[above + s] * places + shape.shared[row + t]
                        there += numbers.per_byte[path] * from_parents[k] + numbers.setup[path]
                    reach = there if t == 0 else min(reach, there)
                after[above + s] = max(after[above + s], reach)
