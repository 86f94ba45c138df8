"""The simple ways to map a workflow: Pegasus's built-ins, one site for all, greedy by T_t.

Each returns one site index per job. They are what ADON is compared with, and part of its portfolio.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

from site_selector.problem import Problem
from site_selector.simulate import Assignment


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
    wishes = [(site,) if site in allowed else allowed for allowed in problem.allowed]
    return _greedy(problem, wishes)


def greedy(problem: Problem) -> Assignment:
    """Each job, parents first, where its own T_t is least given what is placed already."""
    return _greedy(problem, list(problem.allowed))


def by_level(problem: Problem) -> Assignment:
    """Each level of the workflow as a whole where the sum of its jobs' T_t is least."""
    state = _Placed(problem)
    levels: dict[int, list[int]] = {}
    for job, level in enumerate(problem.level):
        levels.setdefault(level, []).append(job)
    for level in sorted(levels):
        jobs = levels[level]
        totals = [
            (sum(state.cost(job, site) for job in jobs if site in problem.allowed[job]), site)
            for site in range(problem.n_sites)
            if any(site in problem.allowed[job] for job in jobs)
        ]
        _, best = min(totals)
        for job in jobs:
            allowed = problem.allowed[job]
            state.place(job, best if best in allowed else state.cheapest(job, allowed))
    return state.site


def _greedy(problem: Problem, wishes: list[tuple[int, ...]]) -> Assignment:
    state = _Placed(problem)
    for job, allowed in enumerate(wishes):
        state.place(job, allowed[0] if len(allowed) == 1 else state.cheapest(job, allowed))
    return state.site


class _Placed:
    """Where jobs were put so far, which files lie where, and what T_t the next job would have."""

    def __init__(self, problem: Problem) -> None:
        self.p = problem
        self.site: Assignment = []
        self.spb: list[list[float]] = problem.seconds_per_byte.tolist()
        self.setup: list[list[float]] = problem.setup_s.tolist()
        self.compute: list[list[float]] = problem.compute_s.tolist()
        self.queue: list[float] = problem.queue_s.tolist()
        self.at: list[set[int]] = [set(held) for held in problem.holders]
        self.crowd: dict[tuple[int, int], int] = {}

    def cost(self, job: int, site: int) -> float:
        """T_t in seconds, workers shared with the jobs of the same level that are there already,
        and the set-up of a transfer where there is one."""
        p, spb = self.p, self.spb
        crowd = self.crowd.get((p.level[job], site), 0) + 1
        turns = max(1.0, crowd / p.workers[site])
        moving = setup = 0.0
        for file in p.reads[job]:
            at = self.at[file]
            if site not in at:
                moving += p.size[file] * min(spb[place][site] for place in at)
                setup = max(setup, min(self.setup[place][site] for place in at))
        if p.output >= 0:
            moving += sum(p.size[f] for f in p.writes[job] if p.returns[f]) * spb[site][p.output]
        return self.queue[site] + self.compute[job][site] * turns + moving + setup

    def cheapest(self, job: int, allowed: tuple[int, ...]) -> int:
        return min(allowed, key=lambda site: (self.cost(job, site), site))

    def place(self, job: int, site: int) -> None:
        """Jobs come in topological order, so the next one is always ``len(self.site)``..."""
        p = self.p
        while len(self.site) <= job:
            self.site.append(-1)
        self.site[job] = site
        key = (p.level[job], site)
        self.crowd[key] = self.crowd.get(key, 0) + 1
        for file in p.reads[job]:
            self.at[file].add(site)
        for file in p.writes[job]:
            self.at[file].add(site)


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
