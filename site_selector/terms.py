"""T_t of every job at every site, seen from a finished mapping.

A job's inputs lie where the mapping has put their producers. A file that must move to a site is
charged to the first job that needs it there, once; results that the workflow wants back are charged
to the job that writes them. N is the job's share of the site's workers: one worker, or less where
the jobs that the mapping put there on the same level outnumber the workers and take turns.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from site_selector.cost import Array, Terms, total_time
from site_selector.problem import NEVER_S, Problem
from site_selector.simulate import Assignment, Schedule

BITS_PER_BYTE = 8


@dataclass(frozen=True, slots=True)
class JobTerms:
    """Arrays of shape (jobs, sites). ``slowest[j][s]`` is the (from, to) place of the longest move,
    None where nothing moves. Terms are infinite where a job cannot run."""

    terms: Terms
    share: Array
    s_t_bytes: Array
    slowest: list[list[tuple[int, int] | None]]


def job_terms(problem: Problem, assignment: Assignment, schedule: Schedule) -> JobTerms:
    """Evaluate Algorithm 4 for all jobs and sites."""
    n_jobs, n_sites = len(problem.jobs), problem.n_sites
    moved = np.zeros((n_jobs, n_sites))
    seconds = np.zeros((n_jobs, n_sites))
    slowest: list[list[tuple[int, int] | None]] = [[None] * n_sites for _ in range(n_jobs)]
    longest = np.zeros((n_jobs, n_sites))
    spb: list[list[float]] = problem.seconds_per_byte.tolist()
    first = _first_readers(problem, assignment, schedule)

    def charge(job: int, site: int, size: float, src: int, dst: int) -> None:
        cost = size * spb[src][dst]
        moved[job, site] += size
        seconds[job, site] += cost
        if cost >= longest[job, site]:
            longest[job, site] = cost
            slowest[job][site] = (src, dst)

    for job in range(n_jobs):
        mine = (schedule.start_s[job], job)
        back = 0.0
        if problem.output >= 0:
            back = sum(problem.size[f] for f in problem.writes[job] if problem.returns[f])
        for site in problem.allowed[job]:
            for file in problem.reads[job]:
                size, producer = problem.size[file], problem.producer[file]
                at = (assignment[producer],) if producer >= 0 else problem.holders[file]
                if size > 0 and site not in at and not first.get((file, site), mine) < mine:
                    charge(job, site, size, min(at, key=lambda p, s=site: spb[p][s]), site)  # type: ignore[misc]
            if back > 0 and site != problem.output:
                charge(job, site, back, site, problem.output)
    share = _shares(problem, assignment)
    # One rate per job and site that gives the sum over all its moves.
    rate = np.divide(
        moved * BITS_PER_BYTE, seconds, out=np.full_like(moved, np.inf), where=seconds > 0
    )
    allowed = np.zeros((n_jobs, n_sites), dtype=bool)
    for job, sites in enumerate(problem.allowed):
        allowed[job, list(sites)] = True
    gamma_c = np.divide(
        problem.input_bytes[:, None],
        problem.compute_s,
        out=np.zeros_like(moved),
        where=allowed & (problem.compute_s > 0),
    )
    queue = np.where(problem.queue_s >= NEVER_S, np.inf, problem.queue_s)
    terms = total_time(queue, problem.input_bytes[:, None], share, gamma_c, moved, rate, rate)
    return JobTerms(terms, share, moved, slowest)


def _first_readers(
    problem: Problem, assignment: Assignment, schedule: Schedule
) -> dict[tuple[int, int], tuple[float, int]]:
    """For each file and site: when the first reader there starts, and which one it is."""
    first: dict[tuple[int, int], tuple[float, int]] = {}
    for job, site in enumerate(assignment):
        mine = (schedule.start_s[job], job)
        for file in problem.reads[job]:
            key = (file, site)
            if key not in first or mine < first[key]:
                first[key] = mine
    return first


def _shares(problem: Problem, assignment: Assignment) -> Array:
    crowd: dict[int, list[int]] = {}
    for job, site in enumerate(assignment):
        counts = crowd.setdefault(problem.level[job], [0] * problem.n_sites)
        counts[site] += 1
    out = np.empty((len(problem.jobs), problem.n_sites))
    for job, here in enumerate(assignment):
        for site in range(problem.n_sites):
            others = crowd[problem.level[job]][site] - (1 if site == here else 0)
            out[job, site] = min(1.0, problem.workers[site] / (others + 1))
    return out
