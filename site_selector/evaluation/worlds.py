"""A trace on a platform as a problem: as it truly is, and as it is assumed to be.

Four regimes say how far the two differ:

    exact           not at all
    errors          run times per kind of task and site, sizes per file and throughput per path are
                    estimated to be what they truly are times 1 - e to 1 + e
    wrong-waits     the same, and so are waits per site
    unknown-waits   the same, but a site's true wait is exponential about what is assumed

Platforms are made up: sites with their workers, speeds and queues, and a link between every two.
They are drawn from wide ranges, every factor as likely: what a slow campus cluster behind an old
link and a large machine on a research backbone have between them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from random import Random
from typing import Literal

import numpy as np

from network_provisioner.base.units import BITS_PER_BYTE
from site_selector.cost import Array
from site_selector.evaluation.traces import Trace
from site_selector.mapping.estimator import Estimator
from site_selector.problem import Problem

SITES = (2, 8)
LINK_BPS = (10e6, 100e9)
WORKERS = (2, 64)
SPEED = (0.25, 4.0)
SHORT_QUEUE_S = (0.0, 10.0)
LONG_QUEUE_S = (10.0, 1800.0)
_LONG_QUEUES = 0.5  # share of sites that have one
_STORE_APART = 0.25  # share of platforms whose data store runs no jobs
Regime = Literal["exact", "errors", "wrong-waits", "unknown-waits"]
REGIMES: tuple[Regime, ...] = ("exact", "errors", "wrong-waits", "unknown-waits")
Staging = Literal["per-site", "per-job"]


@dataclass(frozen=True, slots=True)
class Platform:
    """Sites, and the place that has the inputs and wants the results.

    ``speed`` divides the run time on the traced machine. ``link_bps[a][b]`` is the link from place
    a to b, the same both ways, 0 to itself. Places are the sites and, where the store is not one
    of them, the store behind them.
    """

    sites: tuple[str, ...]
    workers: tuple[int, ...]
    speed: tuple[float, ...]
    queue_s: tuple[float, ...]
    link_bps: tuple[tuple[float, ...], ...]
    store: int

    @property
    def places(self) -> tuple[str, ...]:
        """Names of the sites, then of the store where it runs no jobs."""
        return self.sites if self.store < len(self.sites) else (*self.sites, "store")


def draw_platform(seed: int, number: int) -> Platform:
    """The platform with that number of those that a seed stands for."""
    rng = Random(f"platform {seed} {number}")
    n = rng.randint(*SITES)
    apart = rng.random() < _STORE_APART
    store = n if apart else rng.randrange(n)
    places = n + apart
    links = draw_links(rng, places)
    return Platform(
        tuple(f"site{i}" for i in range(n)),
        tuple(round(log_uniform(rng, *WORKERS)) for _ in range(n)),
        tuple(log_uniform(rng, *SPEED) for _ in range(n)),
        tuple(_queue(rng) for _ in range(n)),
        links,
        store,
    )


def draw_links(rng: Random, places: int) -> tuple[tuple[float, ...], ...]:
    """Bits per second between every two places, the same both ways."""
    links = [[0.0] * places for _ in range(places)]
    for a in range(places):
        for b in range(a):
            links[a][b] = links[b][a] = log_uniform(rng, *LINK_BPS)
    return tuple(map(tuple, links))


def log_uniform(rng: Random, low: float, high: float) -> float:
    """Between the two, every factor as likely."""
    return math.exp(rng.uniform(math.log(low), math.log(high)))


def _queue(rng: Random) -> float:
    if rng.random() < _LONG_QUEUES:
        return log_uniform(rng, *LONG_QUEUE_S)
    return rng.uniform(*SHORT_QUEUE_S)


@dataclass(frozen=True, slots=True)
class Trial:
    """What is true and what is assumed."""

    regime: Regime
    truth: Problem
    estimated: Problem


def true_problem(trace: Trace, platform: Platform, staging: Staging = "per-site") -> Problem:
    """The trace on the platform, nothing about it uncertain.

    Every task can run at every site. Files that no task writes lie at the store; files that a task
    writes and no other reads are wanted there.
    """
    n, jobs = len(platform.sites), len(trace.tasks)
    link_bps = np.array(platform.link_bps)
    np.fill_diagonal(link_bps, np.inf)
    per_byte = BITS_PER_BYTE / link_bps
    compute = np.array(trace.runtime_s)[:, None] / np.array(platform.speed)[None, :]
    made = [producer >= 0 for producer in trace.producer]
    return Problem(
        jobs=trace.tasks,
        places=platform.places,
        n_sites=n,
        files=trace.files,
        parents=trace.parents,
        children=trace.children,
        reads=trace.reads,
        writes=trace.writes,
        readers=trace.readers,
        producer=trace.producer,
        holders=tuple(() if made else (platform.store,) for made in made),
        returns=tuple(m and not r for m, r in zip(made, trace.readers, strict=True)),
        size=trace.size_bytes,
        guessed=(False,) * len(trace.files),
        allowed=(tuple(range(n)),) * jobs,
        level=trace.level,
        input_bytes=_input_bytes(trace.reads, trace.size_bytes),
        compute_s=compute,
        queue_s=np.array(platform.queue_s),
        workers=platform.workers,
        seconds_per_byte=per_byte,
        occupied_per_byte=per_byte.copy(),
        setup_s=np.zeros_like(per_byte),
        output=platform.store,
        compute=((None,) * n,) * jobs,
        fetches=(tuple(range(n)),) * jobs if staging == "per-job" else (),
    )


def simulator(truth: Problem) -> Estimator:
    """Executes mappings on a platform as it truly is: the estimator, given the truth.

    Jobs that wait for a worker go by :func:`urgency_of` the truth.
    """
    return Estimator(truth, urgency_of(truth))


def urgency_of(problem: Problem) -> Array:
    """Seconds of computing on the longest chain of jobs from each job on, itself included.

    The mean over sites; nothing of it depends on a mapping or on what moves.
    """
    mean = problem.compute_s.mean(axis=1)
    out = np.zeros(len(problem.jobs))
    for job in range(len(problem.jobs) - 1, -1, -1):
        below = max((out[child] for child in problem.children[job]), default=0.0)
        out[job] = mean[job] + below
    return out


def draw_worlds(truth: Problem, kinds: tuple[str, ...], error: float, rng: Random) -> list[Trial]:
    """One world for each regime. ``error`` is e, from 0 to below 1.

    The estimates of the regimes that have errors are the same but for waits; in the last, the true
    waits are drawn about what is assumed.
    """
    estimated = estimated_problem(truth, kinds, error, rng)
    waits = estimated.queue_s * np.array([rng.expovariate(1.0) for _ in estimated.queue_s])
    return [
        Trial("exact", truth, truth),
        Trial("errors", truth, replace(estimated, queue_s=truth.queue_s)),
        Trial("wrong-waits", truth, estimated),
        Trial("unknown-waits", replace(truth, queue_s=waits), estimated),
    ]


def estimated_problem(truth: Problem, kinds: tuple[str, ...], error: float, rng: Random) -> Problem:
    """What is assumed where everything is assumed to be off by a factor of 1 - e to 1 + e."""

    def factor() -> float:
        return rng.uniform(1 - error, 1 + error)

    places, n = len(truth.places), truth.n_sites
    speed = {kind: [factor() for _ in range(n)] for kind in sorted(set(kinds))}
    size = tuple(size * factor() for size in truth.size)
    rate = np.array([[factor() for _ in range(places)] for _ in range(places)])
    return replace(
        truth,
        compute_s=truth.compute_s * np.array([speed[kind] for kind in kinds]),
        size=size,
        input_bytes=_input_bytes(truth.reads, size),
        seconds_per_byte=truth.seconds_per_byte / rate,
        occupied_per_byte=truth.occupied_per_byte / rate,
        queue_s=truth.queue_s * np.array([factor() for _ in range(n)]),
    )


def _input_bytes(reads: tuple[tuple[int, ...], ...], size: tuple[float, ...]) -> Array:
    return np.array([max(1.0, sum(size[f] for f in names)) for names in reads])
