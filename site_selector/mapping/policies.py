"""The simple ways to map a workflow: Pegasus's built-ins, one site for all, greedy by T_t.

Each returns one site index per job. They are what ADON is compared with, and part of its portfolio.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import numpy as np

from site_selector.mapping import kernel
from site_selector.mapping.estimator import Assignment
from site_selector.mapping.kernel_arrays import prepared, returned_bytes
from site_selector.mapping.kernel_data import Numbers, Shape
from site_selector.mapping.kernel_greedy import Placed, place_by_level, place_one_by_one
from site_selector.problem import Problem


def random_sites(problem: Problem, rng: Random) -> Assignment:
    """Pegasus's Random: every job anywhere it can run."""
    return [rng.choice(allowed) for allowed in problem.allowed]


def round_robin(problem: Problem) -> Assignment:
    """Pegasus's RoundRobin: the jobs of a level take the sites in turn."""
    turn: dict[int, int] = {}
    out = []
    for allowed, level in zip(problem.allowed, problem.level, strict=True):
        count = turn.get(level, 0)
        out.append(allowed[count % len(allowed)])
        turn[level] = count + 1
    return out


def group(problem: Problem, rng: Random) -> Assignment:
    """Pegasus's Group without group profiles: one random site for all that can run there."""
    favourite = rng.randrange(problem.n_sites)
    return [
        favourite if favourite in allowed else rng.choice(allowed) for allowed in problem.allowed
    ]


def one_site(problem: Problem, site: int) -> Assignment:
    """Everything that can run at ``site`` there, the rest greedily by T_t."""
    return _greedy(problem, site)


def greedy(problem: Problem) -> Assignment:
    """Each job, parents first, where its own T_t is least given what is placed already."""
    return _greedy(problem, -1)


def by_level(problem: Problem) -> Assignment:
    """Each level of the workflow as a whole where the sum of its jobs' T_t is least."""
    shape, numbers, placed, steps = _start(problem)
    jobs = np.lexsort((np.arange(shape.n_jobs), np.array(problem.level)))
    kernel.run(steps, place_by_level, shape, numbers, placed, jobs)
    return [int(site) for site in placed.site]


def _greedy(problem: Problem, favourite: int) -> Assignment:
    shape, numbers, placed, steps = _start(problem)
    kernel.run(steps, place_one_by_one, shape, numbers, placed, favourite)
    return [int(site) for site in placed.site]


def _start(problem: Problem) -> tuple[Shape, Numbers, Placed, int]:
    """Nothing is placed yet; and about how much there is to do."""
    shape, numbers = prepared(problem)
    levels = 1 + max(problem.level, default=0)
    placed: Any = Placed(
        np.zeros(shape.n_jobs, np.int64),
        np.zeros(shape.n_files * shape.n_places, np.int64),
        np.zeros(levels * shape.n_sites, np.int64),
        returned_bytes(shape, problem),
    )
    return shape, numbers, placed, (shape.n_jobs + shape.n_slots) * shape.n_sites


Policy = Callable[[Problem, Random], Assignment]


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
