"""What no mapping can go below, proven under the simulator's rules, and the best mapping known.

Two arguments, of which the greater holds:

- *Chain.* A job cannot start before its parents have ended wherever they run best, what it reads
  from each has passed the path from there (its bytes share that path, so their times add up), and
  its site's queue has taken its time; nor can the workflow end before the job's results are where
  they are wanted.
- *Work.* Take some jobs. None of them starts at site s before ``head[s]``, and after each at least
  ``tail[s]`` must follow. In a makespan T, site s gives them at most N_s·(T - head[s] - tail[s]).
  For any weights w ≥ 0 that is Σ w_s·N_s·max(0, T - head[s] - tail[s]) ≥ Σ_j min_s w_s·c_js, and
  the least T that satisfies it is a bound. Weights are sought that make it large.

The best mapping known is from every policy's mapping with the truth, and a long search. It is
clairvoyant, not optimal; the true best may be below it, the proven bound is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from random import Random

import numpy as np

from site_selector.cost import Array
from site_selector.mapping.estimator import Assignment, Estimator
from site_selector.mapping.kernels.data import allowed_mask, shape_of
from site_selector.mapping.robust import SEARCHED
from site_selector.mapping.search import Moves, PointJudge, anneal
from site_selector.problem import Problem

_ROUNDS = 40  # of the search for weights; any weights give a valid bound
_MOST_SUBSETS = 60
# Steps of search in tasks and files looked at, so that it takes about as long for any workflow.
_WORK = 4_000_000
_STEPS = (200, 4000)
_PER_CHOICE = 50  # small workflows need no more: steps for every site that every task could go to
_STARTS = 4


def lower_bound(truth: Problem) -> float:
    """Seconds that the makespan of no mapping is below."""
    start = earliest_starts(truth)
    after = least_after(truth)
    cost = np.where(allowed_mask(shape_of(truth)), truth.compute_s, np.inf)
    chain = float((start + cost + after).min(axis=1).max())
    workers = np.array(truth.workers, dtype=np.float64)
    best = chain
    for jobs in _subsets(truth):
        head, tail = start[jobs].min(axis=0), after[jobs].min(axis=0)
        best = max(best, _work_bound(cost[jobs], workers, head + tail))
    return best


def earliest_starts(p: Problem) -> Array:
    """Seconds before which job j cannot start at site s, by the chains that end in it."""
    n, spb = p.n_sites, p.seconds_per_byte
    queue = np.broadcast_to(p.queue_s, (len(p.jobs), n))
    start = np.zeros((len(p.jobs), n))
    end = np.zeros((len(p.jobs), n))
    allowed = allowed_mask(shape_of(p))
    for j in range(len(p.jobs)):
        ready = _staged(p, j)
        bytes_from = {parent: 0.0 for parent in p.parents[j]}
        for f in p.reads[j]:
            if p.producer[f] >= 0:
                bytes_from[p.producer[f]] += p.size[f]
        for parent, size in bytes_from.items():
            ready = np.maximum(ready, (end[parent][:, None] + size * spb[:n, :n]).min(axis=0))
        start[j] = ready + queue[j]
        end[j] = np.where(allowed[j], start[j] + p.compute_s[j], np.inf)
    return start


def _staged(p: Problem, job: int) -> Array:
    """When the job's inputs from outside the workflow could be at each site, alone on the paths."""
    n, spb = p.n_sites, p.seconds_per_byte
    busy = np.zeros((len(p.places), n))
    columns = np.arange(n)
    for f in p.reads[job]:
        if p.producer[f] < 0:
            held = np.array(p.holders[f])
            source = held[spb[held][:, :n].argmin(axis=0)]
            busy[source, columns] += p.size[f] * spb[source, columns]
    return np.asarray(busy.max(axis=0))


def least_after(p: Problem) -> Array:
    """Seconds that must follow job j's end at site s: children, and results on their way back."""
    n, spb = p.n_sites, p.seconds_per_byte
    queue = np.broadcast_to(p.queue_s, (len(p.jobs), n))
    after = np.zeros((len(p.jobs), n))
    allowed = allowed_mask(shape_of(p))
    for j in range(len(p.jobs) - 1, -1, -1):
        bytes_to = {child: 0.0 for child in p.children[j]}
        back = 0.0
        for f in p.writes[j]:
            for reader in p.readers[f]:
                bytes_to[reader] += p.size[f]
            if p.returns[f] and p.output >= 0:
                back += p.size[f]
        if back:
            after[j] = back * spb[:n, p.output]
        for child, size in bytes_to.items():
            own = np.where(allowed[child], queue[child] + p.compute_s[child] + after[child], np.inf)
            after[j] = np.maximum(after[j], (size * spb[:n, :n] + own[None, :]).min(axis=1))
    return after


def _subsets(p: Problem) -> Iterator[np.ndarray[tuple[int, ...], np.dtype[np.intp]]]:
    """All jobs, each level, and everything from a level on."""
    level = np.array(p.level)
    yield np.arange(len(level))
    for number in range(min(int(level.max()) + 1, _MOST_SUBSETS)):
        yield np.flatnonzero(level == number)
        yield np.flatnonzero(level >= number)


def _work_bound(cost: Array, workers: Array, around: Array) -> float:
    """The best bound that was found for these jobs; weights as a fluid mapping would set them:
    sites that would end later than others get more."""
    weights = np.ones(len(workers)) / workers.sum()
    rows = np.arange(len(cost))
    best = 0.0
    for number in range(1, _ROUNDS + 1):
        weighed = cost * weights
        site = weighed.argmin(axis=1)
        best = max(best, _least_time(weights * workers, around, float(weighed[rows, site].sum())))
        load = np.zeros(len(workers))
        np.add.at(load, site, cost[rows, site])
        ends = np.where(load > 0, around + load / workers, 0.0)
        weights = weights * np.exp(ends / max(float(ends.max()), 1e-12) / number**0.5)
        weights /= float((weights * workers).sum())
    return best


def _least_time(rates: Array, around: Array, work: float) -> float:
    """The least T with Σ rates·max(0, T - around) ≥ work."""
    order = np.argsort(around, kind="stable")
    given = rate = now = 0.0
    for s in order:
        reached = given + rate * (float(around[s]) - now)
        if reached >= work:
            break
        given, now = reached, float(around[s])
        rate += float(rates[s])
    return now + (work - given) / rate if rate > 0 else now


@dataclass(frozen=True, slots=True)
class BestKnown:
    """A mapping, what it comes to in seconds, and whose it was before the search."""

    assignment: Assignment
    makespan_s: float
    source: str


def best_known(
    simulator: Estimator,
    kinds: Sequence[str],
    candidates: Iterable[tuple[str, Assignment]],
    seed: str,
    effort: float = 1.0,
) -> BestKnown:
    """The best of the candidates, and of simulated annealing from the best few of them.

    Every step is judged by the simulator itself. ``effort`` multiplies the number of steps.
    """
    tried: dict[tuple[int, ...], tuple[float, str]] = {}
    for name, assignment in candidates:
        key = tuple(assignment)
        if key not in tried:
            tried[key] = simulator.makespan(assignment), name
    ranked = sorted(tried, key=lambda key: tried[key])
    best = BestKnown(list(ranked[0]), *tried[ranked[0]])
    moves, judge = Moves(simulator.problem, kinds), PointJudge(simulator)
    steps = round(effort * search_budget(simulator.problem) / _STARTS)
    for number, key in enumerate(ranked[:_STARTS]):
        rng = Random(f"{seed} {number}")
        improved, _ = anneal(judge, moves, list(key), steps, rng, simulator)
        makespan = simulator.makespan(improved)
        if makespan < best.makespan_s:
            best = BestKnown(improved, makespan, f"{tried[key][1]}{SEARCHED}")
    return best


def search_budget(problem: Problem) -> int:
    """How many mappings a search tries."""
    size = len(problem.jobs) + sum(map(len, problem.reads)) + sum(map(len, problem.writes))
    choices = sum(map(len, problem.allowed))
    return max(_STEPS[0], min(_STEPS[1], _PER_CHOICE * choices, _WORK // max(1, size)))
