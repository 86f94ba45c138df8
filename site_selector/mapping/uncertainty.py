"""How far off estimates may be, and worlds as they may turn out to be.

A value that is assumed to within ``e`` is the truth times a factor between 1 - e and 1 + e, every
factor as likely. Seen from the estimate, which is all that is known, the truth is the estimated
value divided by such a factor.

Outlying estimates are trusted less. Run times of several programs at several sites show how
fast each site is; a program that is expected to be far faster somewhere than that site is with all
others is more likely to be misjudged than fast, and a search finds just those.

A queue's wait may be worse known than that: where jobs of others end is as good as random, so that
only the mean is known and the wait is exponential about it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from site_selector.cost import Array
from site_selector.estimates.world import ELSEWHERE, SPREADS, EstimatedValue, World, origin
from site_selector.inputs import Inputs
from site_selector.mapping.kernels.data import shape_of
from site_selector.problem import NEVER_S, Problem

# What is assumed to within ``e`` by where it comes from, before spread and age are looked at, and
# until enough of it was held against the truth (``World.errors``).
# Measured: what was once seen may be otherwise next time. Written down: the error that the thesis's
# evaluation and ours take for granted. Guessed: an order of magnitude.
_BY_SOURCE = {
    "collector": 0.1,
    "archive": 0.1,
    "schedd": 0.3,  # the jobs ahead are known, how long they run is what such jobs ran before
    "topology": 0.3,
    "catalog": 0.5,
    "default": 0.7,
    ELSEWHERE: 0.3,  # the ratio of sites is only what catalogs expect
}
_ONCE = 0.3  # measured once: its spread is unknown
_GUESSED_SIZE = 0.5
_DECLARED_SIZE = 0.1
# How firmly run times are drawn towards the speed of their sites: as if this many more were known.
_LOOSE = 2
_FIT_STEPS = 20
# A measurement's weight halves in a day for the archive; what is that old is as good as a note.
_DAY_S = 86_400.0
_MOST = 0.9
# The MAD of an exponential wait is 0.69 of its median. What spreads half as far is taken for one.
_RANDOM_SPREAD = 0.35


@dataclass(frozen=True, slots=True)
class Uncertainty:
    """The ``e`` of everything, between 0 and 0.9.

    ``compute`` broadcasts to (jobs, sites) and is one factor for all jobs of a kind at a site;
    ``size`` to (files,); ``throughput`` to (places, places); ``wait`` to (sites,). ``random_wait``
    (sites,) tells where a wait is exponential about what is assumed instead.
    """

    compute: Array
    size: Array
    throughput: Array
    wait: Array
    random_wait: NDArray[np.bool_]

    @classmethod
    def everywhere(cls, error: float, *, random_waits: bool = False) -> Uncertainty:
        """The same ``error`` for everything; all waits exponential where ``random_waits``.

        Raises ValueError if the error is not between 0 and below 1.
        """
        if not 0 <= error < 1:
            raise ValueError(f"found a relative error of {error}, expected 0 to below 1")
        e = np.array(min(error, _MOST))
        return cls(e, e, e, e, np.array(random_waits))

    def among(self, sites: NDArray[np.int64], places: NDArray[np.int64]) -> Uncertainty:
        """Of a problem with some of the sites and places only."""
        rate = self.throughput
        return Uncertainty(
            self.compute[..., sites] if self.compute.ndim else self.compute,
            self.size,
            rate[np.ix_(places, places)] if rate.ndim else rate,
            self.wait[sites] if self.wait.ndim else self.wait,
            self.random_wait[sites] if self.random_wait.ndim else self.random_wait,
        )

    @property
    def matters(self) -> bool:
        """Whether anything at all is uncertain."""
        errors = (self.compute, self.size, self.throughput, self.wait)
        return bool(self.random_wait.any()) or any(bool((e > 0).any()) for e in errors)


def uncertainty_of(inputs: Inputs, world: World, problem: Problem) -> Uncertainty:
    """How far off the estimates that a problem was made from may be.

    By source first: measured, written down, or a default. Measurements by their spread and age.
    """
    now, n = world.now, problem.n_sites
    compute = np.zeros((len(problem.jobs), n))
    of_jobs, of_paths, of_waits = (
        world.errors.get(what, {}) for what in ("runtime", "throughput", "queue_wait")
    )
    # By identity: the same estimate serves all jobs of a kind, and paths that are alike.
    known: dict[int, float] = {}
    for job, row in enumerate(problem.compute):
        for site, site_compute in enumerate(row):
            if site_compute is not None:
                key = id(site_compute.estimated)
                if key not in known:
                    known[key] = relative_error(site_compute.estimated, now, of_jobs)
                compute[job, site] = known[key]
    size = np.array(
        [
            _GUESSED_SIZE if guessed else 0.0 if producer < 0 else _DECLARED_SIZE
            for producer, guessed in zip(problem.producer, problem.guessed, strict=True)
        ]
    )
    throughput = np.zeros((len(problem.places), len(problem.places)))
    for a, src in enumerate(problem.places):
        for b, dst in enumerate(problem.places):
            if a != b:
                estimate = world.paths[src, dst].gamma_a
                if id(estimate) not in known:
                    known[id(estimate)] = relative_error(estimate, now, of_paths)
                throughput[a, b] = known[id(estimate)]
    waits = [world.sites[site].queue_wait for site in problem.places[:n]]
    return Uncertainty(
        compute,
        size,
        throughput,
        np.array([relative_error(wait, now, of_waits) for wait in waits]),
        np.array([_is_random(wait) for wait in waits]),
    )


def relative_error(
    estimate: EstimatedValue, now: float, learned: Mapping[str, float] | None = None
) -> float:
    """The ``e`` of one estimate: by source, as ``learned`` or taken for granted, and for
    measurements by spread and age."""
    by_source = {**_BY_SOURCE, **(learned or {})}
    source = origin(estimate.as_dict(now))
    error = by_source.get(source, by_source["default"])
    known = estimate.value > 0 and math.isfinite(estimate.value)
    spread = SPREADS * estimate.spread / estimate.value if known else 0.0
    if source in ("catalog", "topology") and spread > 0 and source not in (learned or {}):
        error = spread  # of measured to written
    if estimate.source == "schedd" and source not in (learned or {}):
        error = max(error, spread)
    if estimate.source == "archive":
        error = max(error, spread, _ONCE if estimate.count == 1 else 0.0)
        if estimate.at is not None:
            days = max(0.0, now - estimate.at) / _DAY_S
            error += max(0.0, by_source["catalog"] - error) * (1 - 0.5**days)
    return min(error, _MOST)


def _is_random(wait: EstimatedValue) -> bool:
    if wait.source in ("archive", "schedd"):
        return wait.spread > _RANDOM_SPREAD * wait.value
    return wait.source == "catalog"


def scenarios(
    problem: Problem,
    kinds: Sequence[str],
    uncertainty: Uncertainty,
    count: int,
    rng: np.random.Generator,
) -> list[Problem]:
    """``count`` worlds as they may turn out to be, which share the problem's structure.

    Every single factor takes its range evenly over the worlds (a Latin hypercube), so that a few
    dozen of them tell nearly as much as many drawn blindly.
    """

    def even(columns: int) -> Array:
        """Numbers between 0 and 1, one row for each world, each column spread evenly."""
        rows = np.tile(np.arange(count, dtype=np.float64)[:, None], (1, columns))
        rows = rng.permuted(rows, axis=0)
        return (rows + rng.random((count, columns))) / count

    names = sorted(set(kinds))
    kind = np.array([names.index(name) for name in kinds], dtype=np.int64)
    n, places, files = problem.n_sites, len(problem.places), len(problem.files)
    compute_e = np.broadcast_to(uncertainty.compute, (len(kinds), n))
    kind_u, size_u = even(len(names) * n), even(files)
    rate_u, wait_u = even(places * places), even(n)
    rate_u = rate_u[:, np.asarray(shape_of(problem).line)]  # what paths share is misjudged once
    size = np.array(problem.size)
    power = np.log(_middle(problem, kind, compute_e)) / math.log(0.5)
    out = []
    for k in range(count):
        by_kind = kind_u[k].reshape(len(names), n) ** power
        slower = 1.0 / _factor(compute_e, by_kind[kind])
        rate = 1.0 / _factor(uncertainty.throughput, rate_u[k].reshape(places, places))
        known = 1.0 / _factor(uncertainty.wait, wait_u[k])
        wait = np.where(uncertainty.random_wait, -np.log1p(-wait_u[k]), known)
        sizes = size / _factor(uncertainty.size, size_u[k])
        out.append(
            replace(
                problem,
                compute_s=_scaled(problem.compute_s, slower),
                queue_s=_scaled(problem.queue_s, wait),
                size=tuple(sizes.tolist()),
                seconds_per_byte=_scaled(problem.seconds_per_byte, 1 / rate),
                occupied_per_byte=_scaled(problem.occupied_per_byte, 1 / rate),
            )
        )
    return out


def _middle(problem: Problem, kind: NDArray[np.int64], error: Array) -> Array:
    """(kinds, sites): the median of what is drawn from 0 to 1 for the run times of each kind at
    each site; 0.5 for those that fit with the others.

    The logarithm of a run time is that of the kind and that of the site, and an error. As far as
    such errors are no larger than expected they are taken for misjudgement (empirical Bayes), and
    what is larger for how the program and the site are.
    """
    count, n = int(kind.max(initial=-1)) + 1, problem.n_sites
    jobs = np.bincount(kind, minlength=count)[:, None]

    def mean(of_jobs: Array) -> Array:
        sums = [np.bincount(kind, column, minlength=count) for column in of_jobs.T]
        return np.stack(sums, axis=1) / jobs

    known = (problem.compute_s > 0) & (problem.compute_s < NEVER_S) & (error > 0)
    use = mean(known.astype(float)) == 1.0
    free = int(use.sum() - use.any(axis=1).sum() - use.any(axis=0).sum() + 1)
    if free < 1 or not use.any():
        return np.full((count, n), 0.5)
    e = mean(np.broadcast_to(error, known.shape))
    value = mean(np.log(np.where(known, problem.compute_s, 1.0)))
    weight = np.where(use, 1 / np.maximum(e, 1e-3) ** 2, 0.0)
    rest = np.where(use, value, 0.0)
    for _ in range(_FIT_STEPS):
        for axis in (1, 0):
            total = weight.sum(axis=axis, keepdims=True)
            part = (weight * rest).sum(axis=axis, keepdims=True) / np.where(total > 0, total, 1.0)
            rest = rest - part
    noise = np.where(use, e**2, 1.0) / 3  # the variance of what is as likely everywhere
    excess = max(0.0, float((rest[use] ** 2).sum()) / free - float(noise[use].mean()))
    share = free / (free + _LOOSE) * noise / (noise + excess)
    stands_out = (np.exp(share * rest) - 1) / np.where(use, 2 * e, 1.0)
    return np.where(use, np.clip(0.5 + stands_out, 0.05, 0.95), 0.5)


def _factor(error: ArrayLike, u: Array) -> Array:
    return np.asarray(1.0 + np.asarray(error) * (2.0 * u - 1.0))


def _scaled(value: Array, factor: Array) -> Array:
    """Times the factor, but what never happens never happens in any world."""
    return np.where(value >= NEVER_S, NEVER_S, np.minimum(value * factor, NEVER_S))
