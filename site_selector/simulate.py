"""When a whole mapping would end, under the model.

A deterministic list-scheduling estimator. Its rules:

- A site runs at most N jobs at once, the most urgent first (upward rank). A job enters the site's
  queue when its parents are done and its files are there, waits T_q, then takes a free worker.
- A file moves once to each site that needs it, from its producer's site or, for an input of the
  workflow, from the replica with the fastest path. Inputs are asked for at the start, the most
  urgent first; results of a job as soon as it ends, those that the workflow wants back too.
- All transfers from one site to another share that path: they pass one after the other at
  min(Γ_t, Γ_a), in the order they are asked for. The last of them ends when it would under fair
  sharing. Where Γ_a is what single transfers were measured to get and the link carries more, they
  overlap until the link is full. Paths between different pairs of sites, and computing, go on at
  the same time.
- A file is there the path's set-up time after its last byte. That does not occupy the path: what
  moves together sets up together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import NamedTuple

import numpy as np

from site_selector.cost import Array
from site_selector.problem import Problem

Assignment = list[int]


class Transfer(NamedTuple):
    """A file's move between two places, in seconds from the start."""

    file: int
    src: int
    dst: int
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Schedule:
    """What the estimator found: the makespan, each job's start and end, every transfer.

    ``work_s`` is the sum of all computing and moving, which tells two mappings of equal makespan
    apart. ``ready_s`` is when a job's parents were done and its files there.
    """

    makespan_s: float
    work_s: float
    ready_s: list[float]
    start_s: list[float]
    end_s: list[float]
    transfers: list[Transfer]


def upward_rank(problem: Problem) -> Array:
    """HEFT's upward rank in seconds, means taken over the sites that may run a job.

    Topcuoglu, Hariri, Wu 2002, equation 7.
    """
    sites = problem.n_sites
    mask = np.zeros((len(problem.jobs), sites), dtype=bool)
    for j, allowed in enumerate(problem.allowed):
        mask[j, list(allowed)] = True
    compute = (problem.compute_s * mask).sum(axis=1) / mask.sum(axis=1)
    between = problem.seconds_per_byte[:sites, :sites]
    mean_byte = float(between.sum()) / (sites * sites)
    rank = np.zeros(len(problem.jobs))
    for j in range(len(problem.jobs) - 1, -1, -1):
        below = max((rank[c] for c in problem.children[j]), default=0.0)
        for f in problem.writes[j]:
            cost = problem.size[f] * mean_byte
            for c in problem.readers[f]:
                below = max(below, rank[c] + cost)
        rank[j] = compute[j] + below
    return rank


class Estimator:
    """Evaluates assignments (one site index per job) of one problem.

    What does not depend on the assignment is prepared once; a call costs time in proportion to jobs
    and the files they use.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.rank = upward_rank(problem)
        # Position in urgency order: ranks first, then topological order for equal ranks.
        by_rank = np.lexsort((np.arange(len(problem.jobs)), -self.rank))
        self.by_position: list[int] = [int(j) for j in by_rank]
        self.position = [0] * len(problem.jobs)
        for position, job in enumerate(self.by_position):
            self.position[job] = position
        self.n_places = len(problem.places)
        self.spb: list[list[float]] = problem.seconds_per_byte.tolist()
        self.occupied: list[list[float]] = problem.occupied_per_byte.tolist()
        self.setup: list[list[float]] = problem.setup_s.tolist()
        self.compute: list[list[float]] = problem.compute_s.tolist()
        self.queue: list[float] = problem.queue_s.tolist()
        position_of = self.position.__getitem__
        self.urgent_readers = [sorted(readers, key=position_of) for readers in problem.readers]
        self.inputs = [f for f, p in enumerate(problem.producer) if p < 0]
        self.best_source = {f: self._sources(f) for f in self.inputs}
        self.evaluations = 0

    def _sources(self, file: int) -> list[int]:
        """For each place, the holder with the fastest path to it (itself where it holds it)."""
        holders = self.problem.holders[file]
        return [min(holders, key=lambda h: self.spb[h][d]) for d in range(self.n_places)]

    def __call__(self, assignment: Sequence[int]) -> Schedule:
        """Simulate. Costs one evaluation."""
        self.evaluations += 1
        return _Run(self, assignment).go()


class _Run:
    """The state of one simulation."""

    def __init__(self, estimator: Estimator, assignment: Sequence[int]) -> None:
        self.e = estimator
        self.site = assignment
        n_jobs, n = len(assignment), estimator.n_places
        self.arrival: dict[int, float] = {}  # file * n + place
        self.channel = [0.0] * (n * n)
        self.work = 0.0
        self.transfers: list[Transfer] = []
        self.last = 0.0
        self.waiting = [len(p) for p in estimator.problem.parents]
        self.ready = [0.0] * n_jobs
        self.start = [0.0] * n_jobs
        self.end = [0.0] * n_jobs
        self.free = list(estimator.problem.workers)
        self.queued: list[list[int]] = [[] for _ in self.free]
        self.events: list[tuple[float, int]] = []

    def move(self, file: int, src: int, dst: int, now: float) -> None:
        e = self.e
        channel = src * e.n_places + dst
        begin = max(now, self.channel[channel])
        seconds = e.problem.size[file] * e.spb[src][dst]
        end = begin + seconds
        self.channel[channel] = begin + e.problem.size[file] * e.occupied[src][dst]
        there = end + e.setup[src][dst]
        self.arrival[file * e.n_places + dst] = there
        self.work += seconds
        self.last = max(self.last, there)
        self.transfers.append(Transfer(file, src, dst, begin, end))

    def stage_in(self) -> None:
        e, site, n = self.e, self.site, self.e.n_places
        wanted = []
        for file in e.inputs:
            holders = e.problem.holders[file]
            for reader in e.urgent_readers[file]:
                dst = site[reader]
                if file * n + dst not in self.arrival:
                    self.arrival[file * n + dst] = 0.0
                    if dst not in holders:
                        wanted.append((e.position[reader], file, dst))
        wanted.sort()
        for _, file, dst in wanted:
            self.move(file, e.best_source[file][dst], dst, 0.0)

    def enqueue(self, job: int, now: float) -> None:
        """Parents are done: the job is ready when its files have arrived."""
        n, here = self.e.n_places, self.site[job]
        arrival = self.arrival
        for file in self.e.problem.reads[job]:
            now = max(now, arrival[file * n + here])
        self.ready[job] = now
        code = self.e.position[job] + len(self.site)
        heappush(self.events, (now + self.e.queue[here], code))

    def finish(self, job: int, now: float) -> None:
        e, here, n = self.e, self.site[job], self.e.n_places
        self.free[here] += 1
        problem = e.problem
        wanted = []
        for file in problem.writes[job]:
            self.arrival[file * n + here] = now
            asked = {here}
            for reader in e.urgent_readers[file]:
                dst = self.site[reader]
                if dst not in asked:
                    asked.add(dst)
                    wanted.append((e.position[reader], file, dst))
            if problem.output >= 0 and problem.returns[file] and problem.output not in asked:
                wanted.append((len(self.site), file, problem.output))
        if len(wanted) > 1:
            wanted.sort()
        for _, file, dst in wanted:
            self.move(file, here, dst, now)
        for child in problem.children[job]:
            self.waiting[child] -= 1
            if self.waiting[child] == 0:
                self.enqueue(child, now)

    def dispatch(self, here: int, now: float) -> None:
        queue, compute = self.queued[here], self.e.compute
        while queue and self.free[here] > 0:
            position = heappop(queue)
            job = self.e.by_position[position]
            self.free[here] -= 1
            self.start[job] = now
            seconds = compute[job][here]
            self.work += seconds
            self.end[job] = now + seconds
            heappush(self.events, (now + seconds, position))

    def go(self) -> Schedule:
        n_jobs = len(self.site)
        self.stage_in()
        for job, count in enumerate(self.waiting):
            if count == 0:
                self.enqueue(job, 0.0)
        events, by_position = self.events, self.e.by_position
        heapify(events)
        while events:
            now = events[0][0]
            touched = set()
            # All that happens at one instant comes before any worker is given out, so that the
            # most urgent of the jobs that become eligible together goes first.
            while events and events[0][0] == now:
                _, code = heappop(events)
                if code < n_jobs:
                    job = by_position[code]
                    self.finish(job, now)
                else:
                    job = by_position[code - n_jobs]
                    heappush(self.queued[self.site[job]], code - n_jobs)
                touched.add(self.site[job])
            for here in sorted(touched):
                self.dispatch(here, now)
            self.last = max(self.last, now)
        return Schedule(self.last, self.work, self.ready, self.start, self.end, self.transfers)
