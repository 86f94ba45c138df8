"""List scheduling: HEFT as in the literature, as in Pegasus, and with data in view.

Jobs are taken in order of upward rank and go where they finish first (Topcuoglu, Hariri, Wu 2002).
The variants differ in what they know:

    heft           costs of computing and of moving a job's results to its children
    pegasus-heft   Pegasus's own: jobs in order of their distance from the start (downward rank),
                   and one constant for every edge between sites, whatever is moved
    data           T_q, where inputs lie, files that are at a site already, and busy paths
    lookahead      data, plus the least that must follow at best (optimistic cost table of PEFT,
                   Arabnejad, Barbosa 2014), results on their way back included
    chains         lookahead, but a job stays with an only parent that has no other child
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from site_selector import kernel, kernel_list
from site_selector.cost import Array
from site_selector.kernel_arrays import (
    IntArray,
    by_urgency,
    given,
    moved_bytes,
    prepared,
    returned_bytes,
    shape_of,
    sources,
    vector,
)
from site_selector.kernel_data import Shape
from site_selector.kernel_list import Growing, Knows
from site_selector.kernel_rank import follow_at_best, rank_downward
from site_selector.problem import NEVER_S, Problem
from site_selector.simulate import Assignment, mean_compute

# Pegasus's Heft assumes 2 MB between any two jobs and 5 MB/s between any two sites.
PEGASUS_MOVE_S = 2 / 5


@dataclass(frozen=True, slots=True)
class Knowledge:
    """What a variant knows. ``constant_move_s`` replaces the cost of moves where it is given;
    ``downward`` takes jobs by downward rank."""

    data: bool = False
    lookahead: bool = False
    chains: bool = False
    constant_move_s: float | None = None
    downward: bool = False


VARIANTS = {
    "heft": Knowledge(),
    "pegasus-heft": Knowledge(constant_move_s=PEGASUS_MOVE_S, downward=True),
    "data": Knowledge(data=True),
    "lookahead": Knowledge(data=True, lookahead=True),
    "chains": Knowledge(data=True, lookahead=True, chains=True),
}


def optimistic_costs(problem: Problem) -> Array:
    """Least seconds that must follow job j when it runs at site s, shape (jobs, sites).

    Every child goes where it is best, without waiting for workers or paths; final results move to
    the output site.
    """
    n_jobs, n = len(problem.jobs), problem.n_sites
    shape = shape_of(problem)
    moved, back = moved_bytes(shape, problem), returned_bytes(shape, problem)
    fast = kernel.worthwhile((n_jobs + len(moved) * n) * n // 4)
    shape, numbers = prepared(problem, fast)
    best, after = (vector(n_jobs * n, float, fast) for _ in range(2))
    run = kernel.compiled(follow_at_best) if fast else follow_at_best
    run(shape, numbers, NEVER_S, given(back, fast), given(moved, fast), best, after)
    return np.asarray(after, dtype=np.float64).reshape(n_jobs, n)


def downward_rank(problem: Problem, move_s: float) -> Array:
    """Seconds on the longest way from the start to each job, every edge taking ``move_s``.

    Topcuoglu, Hariri, Wu 2002, equation 9; means are taken over the sites that may run a job.
    """
    n_jobs = len(problem.jobs)
    fast = kernel.worthwhile(n_jobs)
    shape, _ = prepared(problem, fast)
    rank = vector(n_jobs, float, fast)
    run = kernel.compiled(rank_downward) if fast else rank_downward
    run(shape, given(mean_compute(problem), fast), move_s, rank)
    return np.asarray(rank, dtype=np.float64)


def list_schedule(
    problem: Problem, rank: Array, knows: Knowledge, after: Array | None = None
) -> Assignment:
    """One site per job. ``after`` are the optimistic costs where they are known already."""
    if knows.downward:
        rank = -downward_rank(problem, knows.constant_move_s or 0.0)
    shape = shape_of(problem)
    source = sources(shape, problem.seconds_per_byte)
    if knows.lookahead and after is None:
        after = optimistic_costs(problem)
    jobs = _parents_first(shape, by_urgency(rank))
    fast = kernel.worthwhile((shape.n_jobs + shape.n_slots) * shape.n_sites)
    shape, numbers = prepared(problem, fast)
    free_at = np.concatenate(([0], np.cumsum(problem.workers)))
    growing = Growing(
        vector(shape.n_jobs, int, fast),
        vector(shape.n_jobs, float, fast),
        given(free_at, fast),
        vector(int(free_at[-1]), float, fast),
        vector(shape.n_files * shape.n_sites if knows.data else 0, float, fast),
        vector(shape.n_places**2, float, fast),
        vector(shape.n_places, float, fast),
    )
    run = kernel.compiled(kernel_list.list_schedule) if fast else kernel_list.list_schedule
    run(
        shape,
        numbers,
        given(source, fast),
        given(jobs, fast),
        Knows(
            knows.data,
            knows.lookahead,
            knows.chains,
            -1.0 if knows.constant_move_s is None else knows.constant_move_s,
        ),
        given(np.zeros(0) if after is None else after, fast),
        growing,
    )
    return [int(site) for site in growing.site]


def _parents_first(shape: Shape, order: IntArray) -> IntArray:
    """``order`` with every parent before its children (ranks may tie where jobs cost nothing)."""
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    child = np.repeat(np.arange(len(order)), np.diff(np.asarray(shape.parents_at)))
    if (place[np.asarray(shape.parents)] < place[child]).all():
        return order
    return np.lexsort((place, np.asarray(shape.level)))
