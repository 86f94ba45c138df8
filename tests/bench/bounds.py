"""How well a workflow could be mapped at all: a proven lower bound, and the best known mapping."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

import numpy as np

from site_selector.problem import NEVER_S, Problem
from site_selector.schedule import VARIANTS, list_schedule, optimistic_costs
from site_selector.search import improve, movable_groups, score
from site_selector.simulate import Assignment, Estimator

_ROUNDS = 60  # of the search for weights of sites; any weights give a valid bound


def lower_bound(problem: Problem) -> float:
    """Seconds that no mapping can go below in the model of ``site_selector.simulate``.

    The larger of two: the longest chain of jobs, each at its best site with nobody else there; and
    the work of all jobs spread over all workers without a gap.
    """
    return max(_chain_bound(problem), _work_bound(problem))


def _chain_bound(p: Problem) -> float:
    """Data of a job passes one path file by file, so what it needs over each path adds up, and is
    there a set-up time later."""
    n = p.n_sites
    spb = p.seconds_per_byte
    after = optimistic_costs(p)
    end = np.full((len(p.jobs), n), NEVER_S)
    longest = 0.0
    for j, allowed in enumerate(p.allowed):
        from_parent: dict[int, float] = {parent: 0.0 for parent in p.parents[j]}
        raw: list[int] = []
        for f in p.reads[j]:
            if p.producer[f] >= 0:
                from_parent[p.producer[f]] += p.size[f]
            else:
                raw.append(f)
        for s in allowed:
            ready = _stage_in(p, raw, s)
            for parent, moved in from_parent.items():
                move = moved * spb[:n, s] + (p.setup_s[:n, s] if moved else 0.0)
                ready = max(ready, float((end[parent] + move).min()))
            end[j, s] = ready + p.queue_s[s] + p.compute_s[j, s]
        longest = max(longest, float((end[j] + after[j]).min()))
    return longest


def _stage_in(p: Problem, raw: list[int], site: int) -> float:
    busy: dict[int, float] = {}
    for f in raw:
        if site not in p.holders[f]:
            src = min(p.holders[f], key=lambda h: p.seconds_per_byte[h, site])
            before = busy.get(src, float(p.setup_s[src, site]))
            busy[src] = before + p.size[f] * float(p.seconds_per_byte[src, site])
    return max(busy.values(), default=0.0)


def _work_bound(p: Problem) -> float:
    """For weights w_s ≥ 0 with Σ w_s·N_s = 1: T = Σ w_s·N_s·T ≥ Σ w_s·load_s ≥ Σ_j min_s w_s·c_js.

    The weights are those of a fluid mapping: sites that would be overloaded get more.
    """
    workers = np.array(p.workers, dtype=np.float64)
    cost = np.full((len(p.jobs), p.n_sites), np.inf)
    for j, allowed in enumerate(p.allowed):
        cost[j, list(allowed)] = p.compute_s[j, list(allowed)]
    weights = np.ones(p.n_sites) / workers.sum()
    best = 0.0
    for number in range(1, _ROUNDS + 1):
        weighed = cost * weights
        best = max(best, float(weighed.min(axis=1).sum()))
        load = np.zeros(p.n_sites)
        np.add.at(load, weighed.argmin(axis=1), cost[np.arange(len(cost)), weighed.argmin(axis=1)])
        time = load / workers
        weights = weights * np.exp(time / max(float(time.max()), 1e-12) / number**0.5)
        weights /= float((weights * workers).sum())
    return best


def best_known(
    problem: Problem,
    transformations: list[str],
    starts: Iterable[Assignment],
    evaluations: int,
    seed: int,
) -> float:
    """The makespan of the best mapping found by whoever knows the problem as it is.

    The best of ``starts`` and of all list schedules, and then ``evaluations`` steps of search from
    each of the best three of them.
    """
    estimator = Estimator(problem)
    after = optimistic_costs(problem)
    candidates = [list(start) for start in starts]
    candidates += [
        list_schedule(problem, estimator.rank, knows, after) for knows in VARIANTS.values()
    ]
    unique = {tuple(c): score(estimator(c)) for c in candidates}
    ranked = sorted(unique, key=lambda c: unique[c])
    groups = movable_groups(problem, transformations)
    best = unique[ranked[0]][0]
    for number, start in enumerate(ranked[:3]):
        _, found = improve(
            estimator, list(start), groups, evaluations // 3, Random(1000 * seed + number)
        )
        best = min(best, found.makespan_s)
    return best
