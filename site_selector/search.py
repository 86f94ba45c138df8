"""Improving a mapping by moving jobs, alone and in groups, as long as the estimate gets better.

Deterministic for a seed: the budget is a number of evaluations, not a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from site_selector.problem import Problem
from site_selector.simulate import Assignment, Estimator, Schedule

# Half of the moves try a job that the makespan hangs on; the rest is spread wide.
_CRITICAL_SHARE = 0.5


def score(schedule: Schedule) -> tuple[float, float]:
    """What is made small: the makespan, then the sum of computing and moving."""
    return schedule.makespan_s, schedule.work_s


def movable_groups(problem: Problem, transformations: Sequence[str]) -> list[tuple[int, ...]]:
    """Sets of jobs worth moving together: chains, and jobs of one kind on one level."""
    groups: dict[tuple[int, ...], None] = {}
    seen: set[int] = set()
    for job in range(len(problem.jobs)):
        if job in seen:
            continue
        chain = [job]
        while True:
            children = problem.children[chain[-1]]
            if len(children) != 1 or len(problem.parents[children[0]]) != 1:
                break
            chain.append(children[0])
        seen.update(chain)
        if len(chain) > 1:
            groups[tuple(chain)] = None
    kinds: dict[tuple[str, int], list[int]] = {}
    for job, name in enumerate(transformations):
        kinds.setdefault((name, problem.level[job]), []).append(job)
    for jobs in kinds.values():
        if len(jobs) > 1:
            groups[tuple(jobs)] = None
    return list(groups)


def critical_jobs(problem: Problem, schedule: Schedule) -> list[int]:
    """The chain of latest parents that ends last: what the makespan hangs on, roughly."""
    last = max(schedule.transfers, key=lambda t: t.end_s, default=None)
    job = max(range(len(problem.jobs)), key=schedule.end_s.__getitem__)
    if last is not None and last.end_s > schedule.end_s[job] and problem.producer[last.file] >= 0:
        job = problem.producer[last.file]
    path = [job]
    while problem.parents[job]:
        job = max(problem.parents[job], key=schedule.end_s.__getitem__)
        path.append(job)
    return path


def improve(
    estimator: Estimator,
    start: Assignment,
    groups: Sequence[tuple[int, ...]],
    budget: int,
    rng: Random,
) -> tuple[Assignment, Schedule]:
    """Hill climbing from ``start`` with ``budget`` evaluations; never worse than ``start``."""
    problem = estimator.problem
    best, schedule = list(start), estimator(start)
    free = [j for j, allowed in enumerate(problem.allowed) if len(allowed) > 1]
    if not free:
        return best, schedule
    critical = [j for j in critical_jobs(problem, schedule) if len(problem.allowed[j]) > 1]
    for _ in range(budget):
        trial = _neighbour(problem, best, free, critical, groups, rng)
        if trial is None:
            continue
        found = estimator(trial)
        if score(found) < score(schedule):
            best, schedule = trial, found
            critical = [j for j in critical_jobs(problem, found) if len(problem.allowed[j]) > 1]
    return best, schedule


def _neighbour(
    problem: Problem,
    current: Assignment,
    free: Sequence[int],
    critical: Sequence[int],
    groups: Sequence[tuple[int, ...]],
    rng: Random,
) -> Assignment | None:
    job = rng.choice(critical if critical and rng.random() < _CRITICAL_SHARE else free)
    target = rng.choice(problem.allowed[job])
    kind = rng.random()
    if kind < 0.5 or not groups:
        moved: Sequence[int] = (job,)
    elif kind < 0.8:
        moved = next((g for g in rng.sample(groups, min(8, len(groups))) if job in g), (job,))
        moved = moved if len(moved) > 1 else rng.choice(groups)
    elif kind < 0.9:  # the job with all it feeds alone, where it stands now
        moved = [j for j in free if current[j] == current[job] and j >= job]
    else:  # half a group, so that a wide level can be split between sites
        picked = rng.choice(groups)
        moved = picked[: max(1, len(picked) // 2)] if rng.random() < 0.5 else picked[1::2]
    trial = list(current)
    for j in moved:
        if target in problem.allowed[j]:
            trial[j] = target
    return None if trial == current else trial
