"""List scheduling: HEFT as in the literature, as in Pegasus, and with data in view.

Jobs are taken in order of upward rank and go where they finish first (Topcuoglu, Hariri, Wu 2002).
The variants differ in what they know:

    heft           costs of computing and of moving a job's results to its children
    pegasus-heft   the same with Pegasus's one constant for every move (Pegasus ranks downward; that
                   difference is not kept)
    data           T_q, where inputs lie, files that are at a site already, and busy paths
    lookahead      data, plus the least that must follow at best (optimistic cost table of PEFT,
                   Arabnejad, Barbosa 2014), results on their way back included
    chains         lookahead, but a job stays with an only parent that has no other child
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heapreplace

import numpy as np

from site_selector.cost import Array
from site_selector.problem import NEVER_S, Problem
from site_selector.simulate import Assignment

# Pegasus's Heft assumes 2 MB between any two jobs and 5 MB/s between any two sites.
PEGASUS_MOVE_S = 2 / 5


@dataclass(frozen=True, slots=True)
class Knowledge:
    """What a variant knows. ``constant_move_s`` replaces the cost of moves where it is given."""

    data: bool = False
    lookahead: bool = False
    chains: bool = False
    constant_move_s: float | None = None


VARIANTS = {
    "heft": Knowledge(),
    "pegasus-heft": Knowledge(constant_move_s=PEGASUS_MOVE_S),
    "data": Knowledge(data=True),
    "lookahead": Knowledge(data=True, lookahead=True),
    "chains": Knowledge(data=True, lookahead=True, chains=True),
}


def optimistic_costs(problem: Problem) -> Array:
    """Least seconds that must follow job j when it runs at site s, shape (jobs, sites).

    Every child goes where it is best, without waiting for workers or paths; final results move to
    the output site.
    """
    n = problem.n_sites
    spb = problem.seconds_per_byte[:n, :n]
    setup = problem.setup_s[:n, :n]
    allowed = _mask(problem)
    after = np.zeros((len(problem.jobs), n))
    best = np.zeros((len(problem.jobs), n))  # after + own time, never where not allowed
    for j in range(len(problem.jobs) - 1, -1, -1):
        moved: dict[int, float] = {}
        for f in problem.writes[j]:
            for c in problem.readers[f]:
                moved[c] = moved.get(c, 0.0) + problem.size[f]
        for c in problem.children[j]:
            move = spb * moved[c] + setup if c in moved else 0.0
            reach = (best[c][None, :] + move).min(axis=1)
            np.maximum(after[j], reach, out=after[j])
        if problem.output >= 0:
            back = sum(problem.size[f] for f in problem.writes[j] if problem.returns[f])
            np.maximum(after[j], back * problem.seconds_per_byte[:n, problem.output], out=after[j])
        own = problem.compute_s[j] + problem.queue_s + after[j]
        best[j] = np.where(allowed[j], own, NEVER_S)
    return after


def list_schedule(
    problem: Problem, rank: Array, knows: Knowledge, after: Array | None = None
) -> Assignment:
    """One site per job. ``after`` are the optimistic costs where they are known already."""
    order = np.lexsort((np.arange(len(problem.jobs)), -rank))
    builder = _Builder(problem, knows)
    if knows.lookahead:
        builder.after = optimistic_costs(problem) if after is None else after
    for job in _parents_first(problem, [int(j) for j in order]):
        builder.place(job)
    return builder.site


def _parents_first(problem: Problem, order: list[int]) -> list[int]:
    """``order`` with every parent before its children (ranks may tie where jobs cost nothing)."""
    place = {job: i for i, job in enumerate(order)}
    if all(place[p] < place[j] for j in order for p in problem.parents[j]):
        return order
    return sorted(order, key=lambda job: (problem.level[job], place[job]))


def _mask(problem: Problem) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    mask = np.zeros((len(problem.jobs), problem.n_sites), dtype=bool)
    for j, allowed in enumerate(problem.allowed):
        mask[j, list(allowed)] = True
    return mask


class _Builder:
    """A schedule that grows job by job. All vectors run over places, the sites being first."""

    def __init__(self, problem: Problem, knows: Knowledge) -> None:
        self.p, self.knows = problem, knows
        self.mask = _mask(problem)
        self.spb = problem.seconds_per_byte
        self.site: Assignment = [-1] * len(problem.jobs)
        self.end = [0.0] * len(problem.jobs)
        self.free = [[0.0] * n for n in problem.workers]
        self.after: Array | None = None
        n = len(problem.places)
        self.columns = np.arange(n)
        self.channel = np.zeros((n, n))
        self.here: dict[int, Array] = {}  # when a file is at each place, inf where it is not
        self.source: dict[int, Array] = {}  # where each place fetches it from

    def place(self, job: int) -> None:
        p, n = self.p, self.p.n_sites
        ready = max((self.end[parent] for parent in p.parents[job]), default=0.0)
        data = self._data_ready(job) if self.knows.data else self._plain_ready(job)
        start = np.maximum(data[:n], ready)
        if self.knows.data:
            start = start + p.queue_s
        start = np.maximum(start, [free[0] for free in self.free])
        finish = start + p.compute_s[job]
        score = finish if self.after is None else finish + self.after[job]
        site = int(np.where(self.mask[job], score, np.inf).argmin())
        parents = p.parents[job]
        if self.knows.chains and len(parents) == 1 and len(p.children[parents[0]]) == 1:
            stay = self.site[parents[0]]
            site = stay if self.mask[job, stay] else site
        self.site[job] = site
        self.end[job] = float(finish[site])
        heapreplace(self.free[site], self.end[job])
        if self.knows.data:
            self._commit(job, site)

    def _plain_ready(self, job: int) -> Array:
        """When results of parents could be at each place; inputs of the workflow cost nothing."""
        p = self.p
        out = np.zeros(len(p.places))
        for f in p.reads[job]:
            producer = p.producer[f]
            if producer >= 0:
                src = self.site[producer]
                if self.knows.constant_move_s is None:
                    move = p.size[f] * self.spb[src]
                else:
                    move = np.where(self.columns == src, 0.0, self.knows.constant_move_s)
                np.maximum(out, self.end[producer] + move, out=out)
        return out

    def _known(self, file: int) -> tuple[Array, Array]:
        if file not in self.here:
            p = self.p
            here = np.full(len(p.places), np.inf)
            producer = p.producer[file]
            if producer >= 0:
                here[self.site[producer]] = self.end[producer]
                source = np.full(len(p.places), self.site[producer])
            else:
                holders = np.array(p.holders[file])
                here[holders] = 0.0
                source = holders[self.spb[holders].argmin(axis=0)]
            self.here[file], self.source[file] = here, source
        return self.here[file], self.source[file]

    def _data_ready(self, job: int) -> Array:
        """When all inputs could be at each place, the job's own transfers in line on each path."""
        p = self.p
        out = np.zeros(len(p.places))
        channel = self.channel.copy()
        for f in p.reads[job]:
            here, source = self._known(f)
            path = (source, self.columns)
            begin = np.maximum(here[source], channel[path])
            there = np.isfinite(here)
            kept = begin + p.size[f] * p.occupied_per_byte[path]
            channel[path] = np.where(there, channel[path], kept)
            arrival = begin + p.size[f] * self.spb[path] + p.setup_s[path]
            np.maximum(out, np.where(there, here, arrival), out=out)
        return out

    def _commit(self, job: int, site: int) -> None:
        p = self.p
        for f in p.reads[job]:
            here, source = self._known(f)
            if not np.isfinite(here[site]):
                src = int(source[site])
                begin = max(float(here[src]), float(self.channel[src, site]))
                self.channel[src, site] = begin + p.size[f] * float(p.occupied_per_byte[src, site])
                moved = begin + p.size[f] * float(self.spb[src, site])
                here[site] = moved + float(p.setup_s[src, site])
