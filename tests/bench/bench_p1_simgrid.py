"""P1 again, judged by SimGrid: the same mappings, executed by a simulator that is not ADON's.

Jobs start as HTCondor starts them (ADON's by the priorities that it hands over, the others' by
level and first come), with files wherever Pegasus stages them. Estimates are off by up to 50 %.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from itertools import islice
from random import Random
from statistics import median

import numpy as np

from adon.machine.parallel import each
from site_selector.evaluation.cases import OURS, adon, peers
from site_selector.evaluation.report import geometric_mean
from site_selector.evaluation.traces import Trace
from site_selector.evaluation.worlds import draw_platform, draw_worlds, true_problem
from site_selector.mapping.estimator import Estimator
from site_selector.problem import Problem
from tests.bench import Figure, Input, Tell, bench
from tests.bench.bench_p1 import digests, traces
from tests.bench.simgrid_judge import AS_IT_COMES, FLUID, case, executed, installed

PLATFORMS = 4
ERROR = 0.5
PEERS = ("greedy", "heft", "pegasus-heft")
WORDS = {
    "sharedfs": "stage jobs",
    "own": "files as soon as they are written",
    "condorio": "files through the submit host",
    "staging site": "files through a staging site",
}

Judged = dict[str, tuple[float, ...]]
"""Seconds by policy: ADON's simulator, then SimGrid in each of :data:`WAYS`."""
WAYS = {
    "SimGrid, the same jobs first among equals": (True, FLUID),
    "SimGrid": (False, FLUID),
    "SimGrid, payload 97 % of a link": (False, AS_IT_COMES),
}


def staged(trace: Trace, number: int, staging: str) -> Problem:
    """One trace on one platform. The submit host has the inputs and wants the results."""
    truth = true_problem(
        trace, draw_platform(0, number), "per-job" if staging == "own" else "per-site"
    )
    if staging in ("sharedfs", "own"):
        return truth
    place = truth.output if staging == "condorio" else (truth.output + 1) % truth.n_sites
    row = tuple((site, place) for site in range(truth.n_sites) if site != place)
    return replace(truth, staged=(row,) * len(truth.jobs))


def judged(work: tuple[Trace, int, str]) -> Judged:
    """One trace on one platform, in a process of its own."""
    trace, number, staging = work
    truth = staged(trace, number, staging)
    name = f"0 {number} {trace.name}"
    world = draw_worlds(truth, trace.kinds, ERROR, Random(f"{name} errors"))[1]
    chosen = adon(world.estimated, trace.kinds, world.regime, ERROR, 0)
    by_level = Estimator(replace(truth, by_level=True))
    others = peers(world.estimated, name)
    runs = {OURS: (chosen.assignment, Estimator(truth, np.array(chosen.priority)))}
    runs |= {peer: (others[peer], by_level) for peer in PEERS}
    cases = [
        case(run, sites, our_turns=our_turns, options=options)
        for sites, run in runs.values()
        for our_turns, options in WAYS.values()
    ]
    seconds = iter(executed(cases, print))
    return {
        who: (run.makespan(sites), *islice(seconds, len(WAYS)))
        for who, (sites, run) in runs.items()
    }


@bench("P1")
def judged_by_simgrid(tell: Tell) -> Iterable[Figure | Input]:
    """How far the two simulators are apart, and whose mapping SimGrid prefers."""
    installed(tell)
    known = traces(os.environ.get("TRACES", ""))
    yield from digests(known)
    for staging, words in WORDS.items():
        cases = [(file.trace, number, staging) for file in known for number in range(PLATFORMS)]
        cases.sort(key=lambda one: -len(one[0].tasks))
        tell(f"{len(cases)} cases, {words}")
        rows = each(cases, judged, len(os.sched_getaffinity(0)), lambda _: None)
        for at, way in enumerate(WAYS, 1):
            apart = [100 * abs(times[at] / times[0] - 1) for row in rows for times in row.values()]
            line = f"{way}, {words}"
            goal = 3.0 if at == 1 else None
            yield Figure(f"{line}: differs at most", max(apart), "%", "lower", goal)
            yield Figure(f"{line}: median difference", median(apart), "%", "lower")
        shares = {
            who: geometric_mean(
                row[who][2] / min(times[2] for times in row.values()) for row in rows
            )
            for who in rows[0]
        }
        name = f"makespan by SimGrid ÷ the least of all, {words}, geometric mean"
        yield Figure(name, shares.pop(OURS), "ratio", "lower", None, shares)
