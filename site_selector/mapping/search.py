"""Improving a mapping by moving jobs, alone and in groups: simulated annealing.

What is made small is up to the caller: a :class:`Judge` gives every mapping a value, such as the
logarithm of its makespan. Deterministic for a seed: the budget is a number of tries, not a time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import product
from random import Random
from typing import Protocol

from site_selector.mapping.estimator import Assignment, Estimator, Schedule
from site_selector.problem import Problem

# How much worse than what it has the search may step, in the judge's logarithmic scale: 2 % at
# first, in the end next to nothing.
_WARM = 0.02
_COLD = 0.0003
# Share of the tries that move a job which the makespan hangs on.
_CRITICAL_SHARE = 0.3
# Ways to choose what moves, with how often they are taken.
_WAYS = {
    "job": 0.26,
    "group": 0.16,
    "part": 0.12,
    "sharing": 0.10,
    "level": 0.09,
    "family": 0.09,
    "swap": 0.05,
    "site": 0.04,
    "after": 0.05,
    "before": 0.04,
}
_MANY = 1 << 40  # more mappings than are ever tried
_MOST_SHARING = 64  # jobs that move together for the data that they share


class Judge(Protocol):
    """Gives values to mappings."""

    def value(self, assignment: Assignment) -> float:
        """The lower the better; a difference of 0.01 is one percent of the makespan."""

    def below(self, assignment: Assignment, limit: float) -> float | None:
        """The value, or None if it is above ``limit``, which may be told with less work."""


class PointJudge:
    """The makespan under the estimates; of two that are equal, the one with less work to do."""

    def __init__(self, estimator: Estimator) -> None:
        self._estimator = estimator

    def value(self, assignment: Assignment) -> float:
        """log makespan, and a hint of the sum of computing and moving."""
        makespan, work = self._estimator.score(assignment)
        return log_seconds(makespan) + 1e-7 * log_seconds(work)

    def below(self, assignment: Assignment, limit: float) -> float | None:
        """See :class:`Judge`."""
        value = self.value(assignment)
        return value if value <= limit else None


def log_seconds(value: float) -> float:
    """Natural logarithm of seconds; what takes no time counts as a nanosecond."""
    return math.log(max(value, 1e-9))


def score(schedule: Schedule) -> tuple[float, float]:
    """What is made small: the makespan, then the sum of computing and moving."""
    return schedule.makespan_s, schedule.work_s


def moved_files(problem: Problem, schedule: Schedule) -> tuple[int, float]:
    """How many files move to another place, and their bytes."""
    files = schedule.moves[0]
    return len(files), sum(problem.size[file] for file in files)


def critical_jobs(problem: Problem, schedule: Schedule) -> list[int]:
    """The chain of latest parents that ends last: what the makespan hangs on, roughly."""
    last = schedule.last_transfer()
    job = max(range(len(problem.jobs)), key=schedule.end_s.__getitem__)
    if last is not None and last.end_s > schedule.end_s[job] and problem.producer[last.file] >= 0:
        job = problem.producer[last.file]
    path = [job]
    while problem.parents[job]:
        job = max(problem.parents[job], key=schedule.end_s.__getitem__)
        path.append(job)
    return path


def movable_groups(problem: Problem, kinds: Sequence[str]) -> list[tuple[int, ...]]:
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
    alike: dict[tuple[str, int], list[int]] = {}
    for job, name in enumerate(kinds):
        alike.setdefault((name, problem.level[job]), []).append(job)
    for jobs in alike.values():
        if len(jobs) > 1:
            groups[tuple(jobs)] = None
    return list(groups)


def sharing_groups(problem: Problem) -> list[tuple[int, ...]]:
    """Sets of jobs that share much data: those that use the largest file first, then those sets
    joined that use the next one, and so on (clusters by single linkage)."""
    members: dict[int, tuple[int, ...]] = {}
    groups: dict[tuple[int, ...], None] = {}
    for file in sorted(range(len(problem.files)), key=lambda file: -problem.size[file]):
        writer = problem.producer[file]
        users = [*problem.readers[file], *([writer] if writer >= 0 else [])]
        joined = {job for user in users for job in members.get(user, (user,))}
        if problem.size[file] > 0 and 2 <= len(joined) <= _MOST_SHARING:
            group = tuple(sorted(joined))
            groups[group] = None
            members.update(dict.fromkeys(group, group))
    return list(groups)


class Moves:
    """The neighbours of a mapping. ``mappings`` is how many there are of all."""

    def __init__(self, problem: Problem, kinds: Sequence[str]) -> None:
        self._problem = problem
        self.free = [j for j, allowed in enumerate(problem.allowed) if len(allowed) > 1]
        free = set(self.free)
        self.mappings = 1
        for allowed in problem.allowed:
            self.mappings = min(_MANY, self.mappings * len(allowed))
        self._groups = [g for g in movable_groups(problem, kinds) if not free.isdisjoint(g)]
        self._sharing = [g for g in sharing_groups(problem) if not free.isdisjoint(g)]
        levels: dict[int, list[int]] = {}
        for job in self.free:
            levels.setdefault(problem.level[job], []).append(job)
        self._level = levels
        self._ways = list(_WAYS)
        self._odds = [sum(list(_WAYS.values())[: i + 1]) for i in range(len(_WAYS))]

    def all(self) -> Iterator[Assignment]:
        """Every mapping there is."""
        return map(list, product(*self._problem.allowed))

    def neighbour(
        self, current: Assignment, critical: Sequence[int], rng: Random
    ) -> Assignment | None:
        """Another mapping near ``current``; None if the dice moved nothing."""
        problem = self._problem
        hot = critical and rng.random() < _CRITICAL_SHARE
        job = rng.choice(critical if hot else self.free)
        way = rng.choices(self._ways, cum_weights=self._odds)[0]
        if way == "swap":
            return self._swapped(current, job, rng.choice(self.free))
        target = rng.choice(problem.allowed[job])
        trial = list(current)
        changed = False
        for j in self._chosen(way, job, current, rng):
            if trial[j] != target and target in problem.allowed[j]:
                trial[j] = target
                changed = True
        return trial if changed else None

    def _chosen(self, way: str, job: int, current: Assignment, rng: Random) -> Sequence[int]:
        problem, here = self._problem, current[job]
        if way in ("group", "part") and self._groups:
            group = rng.choice(self._groups)
            if way == "group":
                return group
            size, at = rng.randint(1, len(group)), rng.randrange(len(group))
            return [group[(at + i) % len(group)] for i in range(size)]
        chosen: Sequence[int] = (job,)
        if way == "sharing" and self._sharing:
            chosen = rng.choice(self._sharing)
        elif way == "level":  # what is at one site on one level
            chosen = [j for j in self._level[problem.level[job]] if current[j] == here]
        elif way == "family":
            around = problem.parents[job] if rng.random() < 0.5 else problem.children[job]
            chosen = (job, *around)
        elif way in ("site", "after", "before"):  # what is there, or that part of it
            first = job if way == "after" else 0
            last = job if way == "before" else len(current)
            chosen = [j for j in self.free if current[j] == here and first <= j <= last]
        return chosen

    def _swapped(self, current: Assignment, first: int, other: int) -> Assignment | None:
        a, b = current[first], current[other]
        allowed = self._problem.allowed
        if a == b or b not in allowed[first] or a not in allowed[other]:
            return None
        trial = list(current)
        trial[first], trial[other] = b, a
        return trial


def anneal(
    judge: Judge,
    moves: Moves,
    start: Assignment,
    tries: int,
    rng: Random,
    critical_of: Estimator | None = None,
) -> tuple[Assignment, float]:
    """The best mapping met on a walk of ``tries`` steps from ``start``, and its value; the best of
    all where there are no more than that.

    ``critical_of`` tells which jobs the makespan hangs on, from the best mapping so far. Never
    worse than ``start``.
    """
    here, at = list(start), judge.value(start)
    best, least = here, at
    if not moves.free:
        return best, least
    if moves.mappings <= tries:
        for candidate in moves.all():
            score = judge.below(candidate, least)
            if score is not None and score < least:
                best, least = candidate, score
        return best, least
    free = set(moves.free)
    critical = _critical(critical_of, best, free)
    cooling = (_COLD / _WARM) ** (1 / max(1, tries))
    warmth = _WARM
    for _ in range(tries):
        warmth *= cooling
        trial = moves.neighbour(here, critical, rng)
        if trial is None:
            continue
        score = judge.below(trial, at - warmth * math.log(1.0 - rng.random()))
        if score is None:
            continue
        here, at = trial, score
        if at < least:
            best, least = here, at
            critical = _critical(critical_of, best, free)
    return best, least


def _critical(estimator: Estimator | None, assignment: Assignment, free: set[int]) -> list[int]:
    if estimator is None:
        return []
    path = critical_jobs(estimator.problem, estimator(assignment))
    return [job for job in path if job in free]
