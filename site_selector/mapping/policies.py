"""The simple ways to map a workflow: Pegasus's built-ins, one site for all, greedy by T_t.

Each returns one site index per job. They are what ADON is compared with, and part of its portfolio.

In list scheduling, jobs are taken in order of upward rank and go where they finish first
(Topcuoglu, Hariri, Wu 2002). The variants differ in what they know:

    heft           costs of computing and of moving a job's results to its children
    pegasus-heft   Pegasus's own: jobs in order of their distance from the start (downward rank),
                   and one constant for every edge between sites, whatever is moved
    data           T_q, where inputs lie, files that are at a site already, and busy paths
    lookahead      data, plus the least that must follow at best (optimistic cost table of PEFT,
                   Arabnejad, Barbosa 2014), results on their way back included
    chains         lookahead, but a job stays with an only parent that has no other child
    insertion      heft, and a job may start while a worker waits for the next one, as in the paper
    peft           lookahead with insertion, jobs in order of what must follow at best (rank_oct)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from random import Random
from typing import Any

import numpy as np

from site_selector.cost import Array
from site_selector.mapping.estimator import Assignment, mean_compute
from site_selector.mapping.kernels import compiled, schedule
from site_selector.mapping.kernels.data import (
    IntArray,
    Numbers,
    Shape,
    allowed_mask,
    by_urgency,
    edge_bytes,
    kernel_arguments,
    returned_bytes,
    shape_of,
    sources,
)
from site_selector.mapping.kernels.schedule import (
    Growing,
    Knows,
    Placed,
    follow_at_best,
    place_by_level,
    place_one_by_one,
    rank_downward,
)
from site_selector.problem import NEVER_S, Problem

Policy = Callable[[Problem, Random], Assignment]
# Pegasus's Heft assumes 2 MB between any two jobs and 5 MB/s between any two sites.
PEGASUS_MOVE_S = 2 / 5


def random_sites(problem: Problem, rng: Random) -> Assignment:
    """Pegasus's Random: every job anywhere it can run."""
    return [rng.choice(allowed) for allowed in problem.allowed]


def round_robin(problem: Problem) -> Assignment:
    """Pegasus's RoundRobin: the jobs of a level take the sites in turn."""
    next_site: dict[int, int] = {}
    out = []
    for allowed, level in zip(problem.allowed, problem.level, strict=True):
        count = next_site.get(level, 0)
        out.append(allowed[count % len(allowed)])
        next_site[level] = count + 1
    return out


def group(problem: Problem, rng: Random) -> Assignment:
    """Pegasus's Group without group profiles: one random site for all that can run there."""
    favourite = rng.randrange(problem.n_sites)
    return [
        favourite if favourite in allowed else rng.choice(allowed) for allowed in problem.allowed
    ]


def one_site(problem: Problem, site: int) -> Assignment:
    """Everything that can run at ``site`` (-1: nothing) there, the rest greedily by T_t."""
    shape, numbers, placed, steps = _start(problem)
    compiled.run(steps, place_one_by_one, shape, numbers, placed, site)
    return [int(site) for site in placed.site]


def greedy(problem: Problem) -> Assignment:
    """Each job, parents first, where its own T_t is least given what is placed already."""
    return one_site(problem, -1)


def by_level(problem: Problem) -> Assignment:
    """Each level of the workflow as a whole where the sum of its jobs' T_t is least."""
    shape, numbers, placed, steps = _start(problem)
    jobs = np.lexsort((np.arange(shape.n_jobs), np.array(problem.level)))
    compiled.run(steps, place_by_level, shape, numbers, placed, jobs)
    return [int(site) for site in placed.site]


def _start(problem: Problem) -> tuple[Shape, Numbers, Placed, int]:
    """Nothing is placed yet; and about how much there is to do."""
    shape, numbers = kernel_arguments(problem)
    levels = 1 + max(problem.level, default=0)
    copies = shape.n_slots + shape.n_files + sum(map(len, problem.holders))
    lengths = (
        shape.n_jobs, shape.n_files * shape.n_places, shape.n_files, copies, copies, 1,
        levels * shape.n_sites,
    )  # fmt: skip
    vectors: list[Any] = [np.zeros(length, np.int64) for length in lengths]
    vectors.append(returned_bytes(shape, problem))
    placed = Placed(*vectors)
    return shape, numbers, placed, (shape.n_jobs + shape.n_slots) * shape.n_sites


def baselines(problem: Problem) -> Iterator[tuple[str, Policy]]:
    """The simple policies by name."""
    yield "random", random_sites
    yield "round-robin", lambda p, _: round_robin(p)
    yield "group", group
    yield "greedy", lambda p, _: greedy(p)
    yield "level", lambda p, _: by_level(p)
    for site in range(problem.n_sites):
        name = f"one-site:{problem.places[site]}"
        yield name, lambda p, _, site=site: one_site(p, site)  # type: ignore[misc]


@dataclass(frozen=True, slots=True)
class Variant:
    """What a variant knows. ``constant_move_s`` replaces the cost of moves where it is given;
    ``downward`` takes jobs by downward rank, ``by_what_follows`` by PEFT's."""

    data: bool = False
    lookahead: bool = False
    chains: bool = False
    constant_move_s: float | None = None
    downward: bool = False
    insertion: bool = False
    by_what_follows: bool = False


VARIANTS = {
    "heft": Variant(),
    "pegasus-heft": Variant(constant_move_s=PEGASUS_MOVE_S, downward=True),
    "data": Variant(data=True),
    "lookahead": Variant(data=True, lookahead=True),
    "chains": Variant(data=True, lookahead=True, chains=True),
    "insertion": Variant(insertion=True),
    "peft": Variant(data=True, lookahead=True, insertion=True, by_what_follows=True),
}


def optimistic_costs(problem: Problem) -> Array:
    """Least seconds that must follow job j when it runs at site s, shape (jobs, sites).

    Every child goes where it is best, without waiting for workers or paths; final results move to
    the output site.
    """
    n_jobs, n = len(problem.jobs), problem.n_sites
    shape, numbers = kernel_arguments(problem)
    moved, back = edge_bytes(shape, problem), returned_bytes(shape, problem)
    best, after = np.zeros(n_jobs * n), np.zeros(n_jobs * n)
    steps = (n_jobs + len(moved) * n) * n // 4
    compiled.run(steps, follow_at_best, shape, numbers, NEVER_S, back, moved, best, after)
    return after.reshape(n_jobs, n)


def downward_rank(problem: Problem, move_s: float) -> Array:
    """Seconds on the longest way from the start to each job, every edge taking ``move_s``.

    Topcuoglu, Hariri, Wu 2002, equation 9; means are taken over the sites that may run a job.
    """
    rank = np.zeros(len(problem.jobs))
    shape, mean = shape_of(problem), mean_compute(problem)
    compiled.run(len(rank), rank_downward, shape, mean, move_s, rank)
    return rank


def list_schedule(
    problem: Problem, rank: Array, knows: Variant, after: Array | None = None
) -> Assignment:
    """One site per job. ``after`` are the optimistic costs where they are known already."""
    if knows.downward:
        rank = -downward_rank(problem, knows.constant_move_s or 0.0)
    shape, numbers = kernel_arguments(problem)
    if after is None:
        after = optimistic_costs(problem) if knows.lookahead else np.zeros(0)
    if knows.by_what_follows:
        allowed = allowed_mask(shape)
        rank = (after * allowed).sum(axis=1) / allowed.sum(axis=1)
    free_at = np.concatenate(([0], np.cumsum(problem.workers))).astype(np.int64)
    vectors: Sequence[Any] = (
        np.zeros(shape.n_jobs, np.int64),
        np.zeros(shape.n_jobs),
        free_at,
        np.zeros(free_at[-1]),
        np.zeros(shape.n_files * shape.n_places if knows.data else 0),
        np.zeros(shape.n_places**2),
        np.zeros(shape.n_places**2),
        np.full(shape.n_sites, -1, np.int64),
        np.zeros(shape.n_jobs, np.int64),
        np.zeros(shape.n_jobs),
        np.zeros(shape.n_jobs),
        np.zeros(1, np.int64),
    )
    growing = Growing(*vectors)
    move_s = -1.0 if knows.constant_move_s is None else knows.constant_move_s
    compiled.run(
        (shape.n_jobs + shape.n_slots) * shape.n_sites,
        schedule.list_schedule,
        shape,
        numbers,
        sources(shape, problem.seconds_per_byte),
        _parents_first(shape, by_urgency(rank)),
        Knows(knows.data, knows.lookahead, knows.chains, move_s, knows.insertion),
        np.ascontiguousarray(after.ravel()),
        growing,
    )
    return [int(site) for site in growing.site]


def _parents_first(shape: Shape, order: IntArray) -> IntArray:
    """``order`` with every parent before its children: of what is ready, the first."""
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    child = np.repeat(np.arange(len(order)), np.diff(np.asarray(shape.parents_at)))
    if (place[np.asarray(shape.parents)] < place[child]).all():
        return order
    waiting = np.diff(np.asarray(shape.parents_at)).tolist()
    ready = [int(at) for at, job in enumerate(order) if not waiting[job]]
    out = []
    while ready:
        job = int(order[heappop(ready)])
        out.append(job)
        for k in range(shape.children_at[job], shape.children_at[job + 1]):
            below = shape.children[k]
            waiting[below] -= 1
            if not waiting[below]:
                heappush(ready, int(place[below]))
    return np.array(out, dtype=np.int64)
