"""The best mapping known: whoever knows the truth, has every policy's mapping, and searches long.

It is clairvoyant, not optimal; the true best may be below it, the proven bound is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from random import Random

from site_selector.evaluation.simulator import Simulator
from site_selector.mapping.estimator import Assignment
from site_selector.problem import Problem

# Steps of search in tasks and files looked at, so that it takes about as long for any workflow.
_WORK = 4_000_000
_STEPS = (200, 4000)
_PER_CHOICE = 50  # small workflows need no more: steps for every site that every task could go to
_STARTS = 4
_WARMTH = 0.02  # of the makespan: how much worse a step may be at first


@dataclass(frozen=True, slots=True)
class Known:
    """A mapping, what it comes to in seconds, and whose it was before the search."""

    assignment: Assignment
    makespan_s: float
    source: str


def best_known(
    simulator: Simulator,
    kinds: Sequence[str],
    candidates: Iterable[tuple[str, Assignment]],
    seed: str,
    effort: float = 1.0,
) -> Known:
    """The best of the candidates, and of simulated annealing from the best few of them.

    Every step is judged by the simulator itself. ``effort`` multiplies the number of steps.
    """
    tried: dict[tuple[int, ...], tuple[float, str]] = {}
    for name, assignment in candidates:
        key = tuple(assignment)
        if key not in tried:
            tried[key] = simulator.makespan(assignment), name
    ranked = sorted(tried, key=lambda key: tried[key])
    best = Known(list(ranked[0]), *tried[ranked[0]])
    groups = groups_of(simulator.truth, kinds)
    steps = round(effort * steps_for(simulator.truth) / _STARTS)
    for number, key in enumerate(ranked[:_STARTS]):
        rng = Random(f"{seed} {number}")
        found, makespan = anneal(
            simulator.makespan, simulator.truth, groups, key, tried[key][0], steps, rng
        )
        if makespan < best.makespan_s:
            best = Known(found, makespan, f"{tried[key][1]}+search")
    return best


def steps_for(problem: Problem) -> int:
    """How many mappings a search tries."""
    size = len(problem.jobs) + sum(map(len, problem.reads)) + sum(map(len, problem.writes))
    choices = sum(map(len, problem.allowed))
    return max(_STEPS[0], min(_STEPS[1], _PER_CHOICE * choices, _WORK // max(1, size)))


def groups_of(problem: Problem, kinds: Sequence[str]) -> list[tuple[int, ...]]:
    """Jobs worth moving together: chains; those of one kind on one level; parents with children."""
    groups: dict[tuple[int, ...], None] = {}
    same: dict[tuple[str, int], list[int]] = {}
    for job, kind in enumerate(kinds):
        same.setdefault((kind, problem.level[job]), []).append(job)
        children = problem.children[job]
        if children:
            groups[(job, *children)] = None
        if len(problem.parents[job]) > 1:
            groups[(*problem.parents[job], job)] = None
        if len(problem.parents[job]) != 1 or len(problem.children[problem.parents[job][0]]) != 1:
            chain = [job]
            while len(below := problem.children[chain[-1]]) == 1:
                if len(problem.parents[below[0]]) != 1:
                    break
                chain.append(below[0])
            groups[tuple(chain)] = None
    groups.update(dict.fromkeys(tuple(jobs) for jobs in same.values()))
    return [group for group in groups if len(group) > 1]


def anneal(
    judge: Callable[[Assignment], float],
    problem: Problem,
    groups: Sequence[Sequence[int]],
    start: Sequence[int],
    makespan: float,
    steps: int,
    rng: Random,
) -> tuple[Assignment, float]:
    """Simulated annealing from a mapping of that makespan; the best that was met on the way."""
    here, at = list(start), makespan
    best, least = here, at
    free = [j for j, allowed in enumerate(problem.allowed) if len(allowed) > 1]
    if not free:
        return best, least
    for step in range(steps):
        trial = _moved(problem, here, free, groups, rng)
        found = judge(trial)
        warmth = _WARMTH * least * (1 - step / steps)
        if found <= at or (warmth > 0 and rng.random() < math.exp((at - found) / warmth)):
            here, at = trial, found
            if at < least:
                best, least = here, at
    return best, least


def _moved(
    problem: Problem,
    current: Assignment,
    free: Sequence[int],
    groups: Sequence[Sequence[int]],
    rng: Random,
) -> Assignment:
    """The mapping with some jobs at another site."""
    trial = list(current)
    job = rng.choice(free)
    target = rng.choice(problem.allowed[job])
    choice = rng.random()
    jobs: Sequence[int] = (job,)
    if choice < 0.4 and groups:
        jobs = rng.choice(groups)
        if rng.random() < 0.4:
            jobs = rng.sample(list(jobs), rng.randint(1, len(jobs)))
    elif choice < 0.5:  # two jobs change places
        other = rng.choice(free)
        if current[other] in problem.allowed[job] and current[job] in problem.allowed[other]:
            trial[job], trial[other] = current[other], current[job]
            return trial
    elif choice < 0.6:  # everything at one site, or from one level on
        here, level = current[job], problem.level[job] if rng.random() < 0.5 else 0
        jobs = [j for j in free if current[j] == here and problem.level[j] >= level]
    for j in jobs:
        if target in problem.allowed[j]:
            trial[j] = target
    return trial
