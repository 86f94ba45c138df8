"""What fits nowhere now goes to the scheduler's queue, with the reason (thesis, Algorithm 2)."""

from __future__ import annotations

import math
from collections.abc import Sequence

from site_selector.estimates.beliefs import World
from site_selector.problem import NEVER_S, Problem


def queued(problem: Problem, world: World, assignment: Sequence[int]) -> dict[int, str]:
    """By job what lacks: no site that could run it has a worker now, its own never will as far as
    anyone knows, or nothing is left of the bandwidth of a path that it needs."""
    sites = [world.sites[name] for name in problem.places[: problem.n_sites]]
    blocked = bool((problem.seconds_per_byte >= NEVER_S).any())
    found = {}
    for job, site in enumerate(assignment):
        never = math.isinf(sites[site].queue_wait.value)
        if sites[site].lacks and (never or all(sites[s].lacks for s in problem.allowed[job])):
            found[job] = sites[site].lacks
        elif blocked and (why := _no_bandwidth(problem, world, job, assignment)):
            found[job] = why
    return found


def _no_bandwidth(problem: Problem, world: World, job: int, assignment: Sequence[int]) -> str:
    per_byte, site = problem.seconds_per_byte, assignment[job]
    moves = []
    for file in problem.reads[job]:
        maker = problem.producer[file]
        held = problem.holders[file] if maker < 0 else (assignment[maker],)
        moves.append((file, min(held, key=lambda place: per_byte[place, site]), site))
    if problem.output >= 0:
        moves += [(f, site, problem.output) for f in problem.writes[job] if problem.returns[f]]
    for file, src, dst in moves:
        if src != dst and problem.size[file] > 0 and per_byte[src, dst] >= NEVER_S:
            ends = problem.places[src], problem.places[dst]
            note = world.paths[ends].gamma_a.note
            return f"bandwidth {'>'.join(ends)}: nothing is left{f' ({note})' if note else ''}"
    return ""
