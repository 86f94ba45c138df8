"""Jobs that have to share a site: clusters, which run as one job, and groups, which do not.

A cluster (label-based clustering) becomes one job of the problem: it waits in the queue once, takes
one worker for the sum of its jobs, and needs the files of all of them. A group (Pegasus's profile
``group``) keeps its jobs apart, so its site is chosen for the whole group and the rest is mapped
around it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from site_selector.catalogs.workflow import children_of, topological_order
from site_selector.problem import Problem

Assignment = Sequence[int]
Score = Callable[[Assignment], tuple[float, float]]
MapIt = Callable[[Problem], tuple[Assignment, str]]

# Mappings that are judged to find the groups' sites; then those with most work have been placed.
MOST_TRIALS = 400


@dataclass(frozen=True, slots=True)
class MergedProblem:
    """A problem whose clusters are single jobs. ``part[j]`` is the job of ``problem`` that job j of
    the original one is part of."""

    problem: Problem
    part: tuple[int, ...]

    def expand(self, assignment: Assignment) -> list[int]:
        """The site of every job of the original problem."""
        return [assignment[i] for i in self.part]


def merge(problem: Problem, cluster: Mapping[str, str]) -> MergedProblem | None:
    """Every cluster (by job name) as one job, which has the name of its first one.

    None if the clusters could not run as single jobs: two of them wait for each other, or no
    site can run all jobs of one.
    """
    if not cluster:
        return MergedProblem(problem, tuple(range(len(problem.jobs))))
    by_cluster: dict[str | int, list[int]] = {}
    for job, name in enumerate(problem.jobs):
        by_cluster.setdefault(cluster.get(name, job), []).append(job)
    members = list(by_cluster.values())
    number = {job: at for at, jobs in enumerate(members) for job in jobs}
    part = [number[job] for job in range(len(problem.jobs))]
    above = [
        sorted({part[p] for job in jobs for p in problem.parents[job]} - {at})
        for at, jobs in enumerate(members)
    ]
    waits_for = dict(enumerate(above))
    order, _ = topological_order(waits_for, children_of(waits_for))
    if len(order) < len(members):
        return None
    place = {old: new for new, old in enumerate(order)}
    allowed = [_common(problem, members[old]) for old in order]
    if not all(allowed):
        return None
    return MergedProblem(
        _merged(
            problem,
            [members[old] for old in order],
            [sorted(place[a] for a in above[old]) for old in order],
            allowed,
            [place[at] for at in part],
        ),
        tuple(place[at] for at in part),
    )


def _own_priority(problem: Problem, jobs: Sequence[int]) -> int | None:
    """Of a cluster: the last that the user gave, as Pegasus takes it."""
    own = [problem.own_priority[job] for job in jobs] if problem.own_priority else []
    return next((value for value in reversed(own) if value is not None), None)


def _common(problem: Problem, jobs: Sequence[int]) -> tuple[int, ...]:
    others = [set(problem.allowed[job]) for job in jobs[1:]]
    return tuple(s for s in problem.allowed[jobs[0]] if all(s in o for o in others))


def _merged(
    problem: Problem,
    members: Sequence[Sequence[int]],
    parents: Sequence[Sequence[int]],
    allowed: Sequence[tuple[int, ...]],
    part: Sequence[int],
) -> Problem:
    level: list[int] = []
    for above in parents:
        level.append(1 + max((level[a] for a in above), default=-1))
    writes = [tuple(f for job in jobs for f in problem.writes[job]) for jobs in members]
    reads = []
    for at, jobs in enumerate(members):
        own = set(writes[at])
        reads.append(
            tuple(dict.fromkeys(f for job in jobs for f in problem.reads[job] if f not in own))
        )
    readers: list[list[int]] = [[] for _ in problem.files]
    for at, files in enumerate(reads):
        for file in files:
            readers[file].append(at)
    size, queue = np.array(problem.size), problem.queue_s
    return replace(
        problem,
        jobs=tuple(problem.jobs[jobs[0]] for jobs in members),
        parents=tuple(map(tuple, parents)),
        children=tuple(children_of(dict(enumerate(parents))).values()),
        reads=tuple(reads),
        writes=tuple(writes),
        readers=tuple(map(tuple, readers)),
        producer=tuple(-1 if p < 0 else part[p] for p in problem.producer),
        allowed=tuple(allowed),
        staged=tuple(
            tuple(dict(pair for job in jobs for pair in problem.staged[job]).items())
            for jobs in members
        )
        if problem.staged
        else (),
        bypassed=tuple(
            tuple({f for job in jobs for f in problem.bypassed[job]}.intersection(files))
            for files, jobs in zip(reads, members, strict=True)
        )
        if problem.bypassed
        else (),
        level=tuple(level),
        own_priority=tuple(_own_priority(problem, jobs) for jobs in members),
        input_bytes=np.array([max(1.0, float(size[list(numbers)].sum())) for numbers in reads]),
        compute_s=np.array([problem.compute_s[list(jobs)].sum(axis=0) for jobs in members]),
        queue_s=queue
        if queue.ndim < 2
        else np.array([queue[list(jobs)].max(axis=0) for jobs in members]),
        compute=tuple(problem.compute[jobs[0]] for jobs in members),
        kept={},
    )


@dataclass(frozen=True, slots=True)
class SharedSite:
    """A problem with its clusters merged, and the jobs of ``merged.problem`` that have to share a
    site. ``loose``: the clusters could not be merged and are among those groups."""

    merged: MergedProblem
    groups: tuple[tuple[int, ...], ...]
    loose: bool


def bind(problem: Problem, names: Mapping[str, tuple[str | None, str | None]]) -> SharedSite:
    """What has to stay together. ``names`` are each job's group and cluster, None without one."""
    clusters = {job: cluster for job, (_, cluster) in names.items() if cluster is not None}
    merged = merge(problem, clusters)
    whole = merged or MergedProblem(problem, tuple(range(len(problem.jobs))))
    pairs = [names[job] if merged is None else (names[job][0], None) for job in problem.jobs]
    groups = [sorted({whole.part[job] for job in jobs}) for jobs in connected_jobs(pairs)]
    return SharedSite(whole, tuple(tuple(jobs) for jobs in groups if len(jobs) > 1), merged is None)


def settle(
    problem: Problem,
    groups: Sequence[Sequence[int]],
    map_it: MapIt,
    score: Score,
    trials: int = MOST_TRIALS,
) -> tuple[list[int], str]:
    """A mapping in which the jobs of each group share a site, wherever one can run them all, and
    the policy it comes from.

    First without groups; then each group, that with most work first, goes where the whole ends
    soonest, or after ``trials`` of that where most of its work went; then the rest is mapped around
    them. ``score`` judges mappings of ``problem``, less is better.
    """
    first, policy = map_it(problem)
    best = list(first)
    work = problem.compute_s.min(axis=1)
    shared = [(jobs, _common(problem, jobs)) for jobs in groups if len(jobs) > 1]
    shared = [(jobs, sites) for jobs, sites in shared if sites]
    if not shared:
        return best, policy
    for jobs, sites in sorted(shared, key=lambda item: (-work[list(item[0])].sum(), item[0][0])):
        if trials >= len(sites):
            trials -= len(sites)
            tried = [_at(best, jobs, site) for site in sites]
            best = min(tried, key=score)
        else:
            best = _at(best, jobs, _most(best, jobs, sites, work))
    fixed = {job: best[job] for jobs, _ in shared for job in jobs}
    allowed = tuple(
        (fixed[job],) if job in fixed else candidate
        for job, candidate in enumerate(problem.allowed)
    )
    again, later = map_it(replace(problem, allowed=allowed, kept={}))
    return min((list(again), later), (best, policy), key=lambda candidate: score(candidate[0]))


def _at(assignment: Sequence[int], jobs: Sequence[int], site: int) -> list[int]:
    new_assignment = list(assignment)
    for job in jobs:
        new_assignment[job] = site
    return new_assignment


def _most(
    assignment: Sequence[int], jobs: Sequence[int], sites: Sequence[int], work: np.ndarray
) -> int:
    held = dict.fromkeys(sites, 0.0)
    for job in jobs:
        if assignment[job] in held:
            held[assignment[job]] += float(work[job])
    return max(sites, key=lambda site: held[site])


def connected_jobs(names: Sequence[tuple[str | None, str | None]]) -> list[list[int]]:
    """Jobs that have to share a site by one of two names each, also in chains of both."""
    leader = list(range(len(names)))

    def find(job: int) -> int:
        while leader[job] != job:
            leader[job] = leader[leader[job]]
            job = leader[job]
        return job

    first: dict[tuple[int, str], int] = {}
    for job, pair in enumerate(names):
        for kind, name in enumerate(pair):
            if name is not None:
                leader[find(job)] = find(first.setdefault((kind, name), job))
    sets: dict[int, list[int]] = {}
    for job in range(len(names)):
        sets.setdefault(find(job), []).append(job)
    return [jobs for jobs in sets.values() if len(jobs) > 1]
