"""P1 beside the schedulers of the literature, where their model holds: estimates are right, sites
are nodes of different speed, nobody waits in a queue, and inputs of the workflow lie everywhere.

All see the same estimates. Their jobs start in the order of their own schedules, ADON's by its
priorities, files move as soon as they are written, and the simulator is the one that SimGrid agrees
with. The annealing is that of PISA (Coleman, Krishnamachari 2024): problems are changed until ADON
loses most.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random

import numpy as np

from adon.machine.parallel import each
from site_selector.evaluation.adversary import Puzzle, changed_puzzle, draw_puzzle
from site_selector.evaluation.cases import OURS, adon
from site_selector.evaluation.report import geometric_mean
from site_selector.evaluation.traces import Trace, TraceFile
from site_selector.evaluation.worlds import LINK_BPS, SPEED, Platform, log_uniform, true_problem
from site_selector.mapping.estimator import Estimator, upward_rank
from site_selector.mapping.policies import VARIANTS, list_schedule
from site_selector.problem import Problem
from tests.bench import Figure, Input, Tell, bench
from tests.bench.bench_p1 import digests, traces
from tests.bench.saga_peers import environment, lookahead_heft, saga
from tests.bench.shapes import montage, soykb

PLATFORMS = 2
MOST_TASKS = 60  # SAGA's schedulers take minutes on more
NEAREST = 6  # peers that are shown
AHEAD = 0.05
SEARCHES, STEPS = 6, 150
_BY_NAME = {"insertion": "HEFT with insertion", "peft": "PEFT", "lookahead": "lookahead (ADON's)"}


def small_platform(number: int) -> Platform:
    """Two to four sites with one to four workers."""
    rng = Random(f"small {number}")
    n = rng.randint(2, 4)
    links = [[0.0] * n for _ in range(n)]
    for a in range(n):
        for b in range(a):
            links[a][b] = links[b][a] = log_uniform(rng, *LINK_BPS)
    return Platform(
        tuple(f"site{i}" for i in range(n)),
        tuple(rng.randint(1, 4) for _ in range(n)),
        tuple(log_uniform(rng, *SPEED) for _ in range(n)),
        (0.0,) * n,
        tuple(tuple(row) for row in links),
        0,
    )


def as_in_the_literature(trace: Trace, platform: Platform) -> Problem:
    """Without inputs of the workflow to move, results to bring back, and queues."""
    problem = true_problem(
        trace, replace(platform, queue_s=(0.0,) * len(platform.sites)), "per-job"
    )
    made = [producer >= 0 for producer in problem.producer]
    size = tuple(s if m else 0.0 for s, m in zip(problem.size, made, strict=True))
    return replace(problem, size=size, returns=(False,) * len(size), output=-1)


def own(problem: Problem, kinds: Sequence[str]) -> dict[str, float]:
    """Makespans of ADON and of the peers that need no environment of their own."""
    chosen = adon(problem, kinds, "exact", 0.0, 0)
    run = Estimator(problem)
    out = {OURS: Estimator(problem, np.array(chosen.priority)).makespan(chosen.assignment)}
    rank = upward_rank(problem)
    for variant, name in _BY_NAME.items():
        out[name] = run.makespan(list_schedule(problem, rank, VARIANTS[variant]))
    out["lookahead HEFT"] = run.makespan(lookahead_heft(problem))
    return out


def compared(home: Path, work: tuple[Trace, int]) -> dict[str, float]:
    """Makespans by policy of one trace on one platform."""
    trace, number = work
    problem = as_in_the_literature(trace, small_platform(number))
    out = own(problem, trace.kinds)
    for name, (sites, starts) in saga(problem, home).items():
        out[f"SAGA's {name}"] = Estimator(problem, -np.array(starts)).makespan(sites)
    return out


@bench("P1")
def literature(tell: Tell) -> Iterable[Figure | Input]:
    """Makespans beside the least that any policy reaches."""
    home = environment(tell)
    folder = os.environ.get("TRACES", "")
    if folder:
        every = [file for file in traces(folder) if len(file.trace.tasks) <= MOST_TASKS]
        known = list({file.trace.family: file for file in every}.values())
    else:
        made = (soykb(2, 2), soykb(3, 2), soykb(3, 6), montage(3), montage(5), montage(6))
        known = [TraceFile(trace.name, "", trace) for trace in made]
    yield from digests(known)
    cases = [(file.trace, number) for file in known for number in range(PLATFORMS)]
    rows = each(cases, partial(compared, home), len(os.sched_getaffinity(0)), lambda _: None)
    everywhere = set.intersection(*map(set, rows))
    tell(f"{len(rows)} cases; in time on all: {', '.join(sorted(everywhere))}")
    ratios = {
        who: [row[who] / min(row[name] for name in everywhere) for row in rows]
        for who in everywhere
    }
    mean = {who: geometric_mean(values) for who, values in ratios.items()}
    nearest = sorted(set(mean) - {OURS}, key=mean.__getitem__)[:NEAREST]
    of = f"of {len(rows)} cases and {len(everywhere) - 1} peers, in the literature's model"
    yield Figure(
        f"makespan ÷ the least, geometric mean {of}",
        mean[OURS], "ratio", "lower", 1.01, {who: mean[who] for who in nearest},
    )  # fmt: skip
    yield Figure(
        f"worst {of}",
        max(ratios[OURS]), "ratio", "lower", None, {who: max(ratios[who]) for who in nearest},
    )  # fmt: skip
    ahead = sum(value > 1 + AHEAD for value in ratios[OURS])
    yield Figure(f"cases with a peer more than 5 % ahead, {of}", ahead / len(rows), "share",
                 "lower", 0.05)  # fmt: skip


def lost(puzzle: Puzzle) -> float:
    """ADON's makespan ÷ the best peer's."""
    trace = puzzle.trace()
    seconds = own(as_in_the_literature(trace, puzzle.platform), trace.kinds)
    ours = seconds.pop(OURS)
    least = min(seconds.values())
    return ours / least if least > 0 else 1.0


def worst(seed: int) -> float:
    """What one annealing comes to."""
    rng = Random(f"pisa {seed}")
    here = draw_puzzle(rng)
    loss = most = lost(here)
    for step in range(STEPS):
        trial = changed_puzzle(here, rng)
        other = lost(trial)
        if other >= loss or rng.random() < np.exp((other - loss) / (0.1 * (1 - step / STEPS))):
            here, loss = trial, other
        most = max(most, loss)
    return most


@bench("P1")
def adversary(tell: Tell) -> Iterable[Figure]:
    """Small problems changed until ADON loses most against HEFT with insertion, PEFT, lookahead."""
    tell(f"{SEARCHES} searches of {STEPS} steps")
    values = each(list(range(SEARCHES)), worst, len(os.sched_getaffinity(0)), lambda _: None)
    name = f"PISA's search: ADON ÷ the best peer, worst of {SEARCHES} × {STEPS} problems"
    yield Figure(name, max(values), "ratio", "lower", 1.2)
