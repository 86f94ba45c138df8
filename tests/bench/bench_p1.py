"""P1: how long a workflow takes where ADON puts its jobs, beside where others would put them.

SoyKB's workflow in three sizes on made-up platforms, judged by ADON's own estimator. Two settings:
what is believed is right; and what is believed is wrong by up to half, in which case mappings are
made from beliefs and judged by the truth. The reference knows the truth and searches longer.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import tempfile
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

import numpy as np

from site_selector.estimates import believe
from site_selector.inputs import load_inputs
from site_selector.mapping import map_workflow
from site_selector.policies import greedy, group, random_sites, round_robin
from site_selector.problem import Problem, build_problem
from site_selector.schedule import VARIANTS, list_schedule
from site_selector.simulate import Assignment, Estimator
from tests.bench import Figure, Tell, bench
from tests.bench.bounds import best_known, lower_bound
from tests.bench.worlds import declare_sizes, make_platform, soykb

# (samples, chromosomes, platforms, evaluations of the reference's extra search)
SHAPES = ((3, 2, 20, 4000), (8, 5, 10, 4000), (20, 10, 2, 1500))
CHROMOSOME_BP = 20_000_000
ERROR = 0.5
OURS = "adon"
BEST = "best known"


@dataclass(frozen=True)
class Outcome:
    """Seconds of makespan by policy, with ``best known``, and a bound below which none can go."""

    exact: dict[str, float]
    bound: float
    wrong: dict[str, float]


def instance(samples: int, chromosomes: int, evaluations: int, seed: int) -> Outcome:
    """One workflow on one platform."""
    with tempfile.TemporaryDirectory(prefix="adon-bench-") as name:
        workflow = soykb(Path(name), samples, chromosomes, CHROMOSOME_BP)
        declare_sizes(workflow)
        store = make_platform(Path(name), seed)
        inputs = load_inputs(workflow)
    world = believe(inputs, now=0.0, output_site=store)
    problem = build_problem(inputs, world, store)
    kinds = [inputs.workflow.jobs[job].transformation for job in problem.jobs]
    sites = map_workflow(inputs, world, store, seed, alternatives=False).sites
    place = {site: i for i, site in enumerate(problem.places)}
    mappings = policies(problem, seed) | {OURS: [place[sites[job]] for job in problem.jobs]}
    truth = disturbed(problem, kinds, Random(seed))
    # The reference may also map from the truth with what ADON maps with.
    knowing = [*mappings.values(), *policies(truth, seed).values()]
    found = []
    for judged, starts in ((problem, list(mappings.values())), (truth, knowing)):
        estimator = Estimator(judged)
        makespans = {name: estimator(sites).makespan_s for name, sites in mappings.items()}
        makespans[BEST] = best_known(judged, kinds, starts, evaluations, seed)
        found.append(makespans)
    bound = lower_bound(problem)
    if bound > found[0][BEST] * (1 + 1e-9):
        raise AssertionError(f"seed {seed}: the lower bound {bound} is above {found[0][BEST]}")
    return Outcome(found[0], bound, found[1])


def policies(problem: Problem, seed: int) -> dict[str, Assignment]:
    """The mappings of those that ADON is compared with."""
    rank = Estimator(problem).rank
    return {
        "random": random_sites(problem, Random(seed)),
        "round-robin": round_robin(problem),
        "group": group(problem, Random(seed)),
        "pegasus-heft": list_schedule(problem, rank, VARIANTS["pegasus-heft"]),
        "heft": list_schedule(problem, rank, VARIANTS["heft"]),
        "greedy": greedy(problem),
    }


def disturbed(problem: Problem, kinds: list[str], rng: Random) -> Problem:
    """The truth behind a belief that is wrong.

    Off by a factor between 1 - ERROR and 1 + ERROR: the run time of each transformation at each
    site, the size of each result, the throughput of each path. A queue's wait is exponential
    around what was believed. Sizes of inputs are known.
    """

    def factor() -> float:
        return rng.uniform(1 - ERROR, 1 + ERROR)

    places, n = len(problem.places), problem.n_sites
    speed = {kind: [factor() for _ in range(n)] for kind in sorted(set(kinds))}
    return replace(
        problem,
        compute_s=problem.compute_s * np.array([speed[kind] for kind in kinds]),
        size=tuple(
            size * (factor() if producer >= 0 else 1.0)
            for size, producer in zip(problem.size, problem.producer, strict=True)
        ),
        seconds_per_byte=problem.seconds_per_byte
        / np.array([[factor() for _ in range(places)] for _ in range(places)]),
        queue_s=problem.queue_s * np.array([rng.expovariate(1.0) for _ in range(n)]),
    )


def geometric_mean(values: Iterable[float]) -> float:
    """The n-th root of the product."""
    logs = [math.log(value) for value in values]
    return math.exp(sum(logs) / len(logs))


@bench("P1")
def mapping_quality(tell: Tell) -> Iterable[Figure]:
    """Makespans of whole mappings, as ratios."""
    tasks = [(s, c, e, seed) for s, c, count, e in SHAPES for seed in range(count)]
    tasks.sort(key=lambda task: -task[0] * task[1])  # the long ones first, for even cores
    outcomes = []
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(len(os.sched_getaffinity(0)), mp_context=context) as pool:
        for done in as_completed([pool.submit(instance, *task) for task in tasks]):
            outcomes.append(done.result())
            if len(outcomes) % 10 == 0:
                tell(f"{len(outcomes)} of {len(tasks)} platforms")
    exact = [{k: v / o.exact[BEST] for k, v in o.exact.items()} for o in outcomes]
    wrong = [{k: v / o.wrong[BEST] for k, v in o.wrong.items()} for o in outcomes]
    above = [{k: v / o.bound for k, v in o.exact.items()} for o in outcomes]
    off = f"beliefs off by up to {ERROR:.0%}"
    yield from _figures("best known, beliefs right", exact, None)
    yield from _figures(f"best known, {off}", wrong, (1.10, 1.5))
    yield from _figures("lower bound, beliefs right", above, None)


def _figures(
    words: str, ratios: list[dict[str, float]], goals: tuple[float, float] | None
) -> Iterable[Figure]:
    for i, (summary, of) in enumerate((("geometric mean", geometric_mean), ("worst", max))):
        values = {name: of(r[name] for r in ratios) for name in ratios[0]}
        ours = values.pop(OURS)
        if values[BEST] == 1.0:
            del values[BEST]
        goal = None if goals is None else goals[i]
        name = f"makespan ÷ {words}, {summary} of {len(ratios)}"
        yield Figure(name, ours, "ratio", better="lower", goal=goal, peers=values)
