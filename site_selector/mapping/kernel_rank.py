"""Ranks of jobs and what must follow them at best, as kernels: one pass from the last job up.

Jobs come in topological order, so whatever follows a job has been seen before it.
"""

from __future__ import annotations

from site_selector.mapping.kernel import kernel
from site_selector.mapping.kernel_data import Floats, Numbers, Shape


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
    moved: Floats,
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
                home = back[job] * numbers.per_byte[s * places + output]
                after[row + s] = max(after[row + s], home)
            if shape.allowed[row + s]:
                own = numbers.compute[row + s] + numbers.queue[s]
                best[row + s] = own + after[row + s]
            else:
                best[row + s] = never
        for k in range(shape.parents_at[job], shape.parents_at[job + 1]):
            above = shape.parents[k] * n
            for s in range(n):
                reach = best[row]
                for t in range(n):
                    there = best[row + t]
                    if moved[k] >= 0:
                        path = s * places + t
                        there += numbers.per_byte[path] * moved[k] + numbers.setup[path]
                    reach = there if t == 0 else min(reach, there)
                after[above + s] = max(after[above + s], reach)
