"""The sites worth a search, of many: a mapping of a few jobs uses few of hundreds of sites.

For each job its sites are put in the order of T_t while nothing else is placed. Kept are those that
come first for some job, and so many that twice as many jobs can run at once as ever could. With
fewer sites than that, and for a workflow as wide as its sites, all are kept.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from site_selector.cost import Array
from site_selector.mapping.kernels.data import (
    IntArray,
    allowed_mask,
    busy_seconds,
    returned_bytes,
    shape_of,
    shared_places,
)
from site_selector.problem import Problem

_FEWEST = 16
_ROOM = 2  # workers for each job of the widest level


def worthwhile_sites(problem: Problem) -> IntArray:
    """Indices of the sites that are kept, in their order."""
    if problem.n_sites <= _FEWEST:
        return np.arange(problem.n_sites)
    cost = _alone(problem)
    # The place of each site in the list of the job for which it is best, then of jobs on the whole.
    place = np.argsort(np.argsort(cost, axis=1, kind="stable"), axis=1)
    place[~np.isfinite(cost)] = problem.n_sites
    order = np.lexsort((place.mean(axis=0), place.min(axis=0)))
    width = int(np.bincount(np.asarray(problem.level)).max())
    room = np.cumsum(np.asarray(problem.workers)[order])
    wide_enough = 1 + int(np.searchsorted(room, _ROOM * width))
    first = int(np.count_nonzero(place.min(axis=0) == 0))  # of each job the best is kept
    return np.sort(order[: max(_FEWEST, first, wide_enough)])


def narrowed_problem(problem: Problem, sites: IntArray) -> tuple[Problem, IntArray]:
    """The problem with these of its sites, and with the other places that files come from or go
    to; and the indices of all places that are left."""
    if len(sites) == problem.n_sites:
        return problem, np.arange(len(problem.places))
    others = {problem.output} if problem.output >= 0 else set()
    chosen = set(sites.tolist())
    staging = {at for row in set(problem.staged) for site, at in row if site in chosen}
    others.update(staging)
    destinations = chosen | staging
    holders: dict[tuple[int, ...], tuple[int, ...]] = {}
    for held in set(problem.holders):
        if held:
            nearest = problem.seconds_per_byte[np.ix_(held, sorted(destinations))].argmin(axis=0)
            used = {held[file] for file in nearest}
            holders[held] = tuple(place for place in held if place in used or place in destinations)
            others.update(holders[held])
    places = [*sites.tolist(), *sorted(others - chosen)]
    number = {place: at for at, place in enumerate(places)}
    square = np.ix_(places, places)
    left = {
        group: tuple(number[s] for s in group if s in number and number[s] < len(sites))
        for group in {*problem.allowed, *problem.fetches}
    }
    staged = {
        row: tuple((number[site], number[at]) for site, at in row if site in chosen)
        for row in set(problem.staged)
    }
    fewer = replace(
        problem,
        places=tuple(problem.places[place] for place in places),
        n_sites=len(sites),
        holders=tuple(
            tuple(number[place] for place in holders.get(held, ())) for held in problem.holders
        ),
        allowed=tuple(left[group] for group in problem.allowed),
        fetches=tuple(left[group] for group in problem.fetches),
        staged=tuple(staged[row] for row in problem.staged),
        compute_s=problem.compute_s[:, sites],
        queue_s=problem.queue_s[..., sites],
        workers=tuple(problem.workers[site] for site in sites),
        space=tuple(problem.space[site] for site in sites) if problem.space else (),
        seconds_per_byte=problem.seconds_per_byte[square],
        occupied_per_byte=problem.occupied_per_byte[square],
        setup_s=problem.setup_s[square],
        file_s=None if problem.file_s is None else problem.file_s[square],
        first_s=None if problem.first_s is None else problem.first_s[square],
        bottleneck=None if problem.bottleneck is None else problem.bottleneck[square],
        output=-1 if problem.output < 0 else number[problem.output],
        compute=tuple(tuple(row[site] for site in sites) for row in problem.compute),
        planned=tuple(
            (at_s, number[site], by)
            for at_s, site, by in problem.planned
            if site in number and number[site] < len(sites)
        ),
        kept={},
    )
    return fewer, np.array(places)


def _alone(problem: Problem) -> Array:
    """(jobs, sites): T_t of each job with the inputs of the workflow that it reads and the results
    that it sends back, infinite where it cannot run."""
    shape, shared = shape_of(problem), shared_places(problem)
    cost = busy_seconds(problem) + problem.queue_s
    size, places = np.array(problem.size), np.arange(len(problem.places))
    nearest = {
        held: problem.seconds_per_byte[list(held)].min(axis=0) * ~np.isin(places, held)
        for held in set(problem.holders)
        if held
    }
    for job, file, own in zip(shape.slot_job, shape.slot_file, shape.own, strict=True):
        if problem.producer[file] < 0 and not own:
            cost[job] += size[file] * nearest[problem.holders[file]][shared[job]]
    if problem.output >= 0:
        back = returned_bytes(shape, problem)
        cost += back[:, None] * problem.seconds_per_byte[shared, problem.output]
    return np.where(allowed_mask(shape), cost, np.inf)
