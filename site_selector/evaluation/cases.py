"""One trace on one platform: what every policy's mapping comes to, in every regime.

Compared are ADON and what people use otherwise. Each gets the problem as it is assumed, and nothing
else, but for ADON, which is also told how far off estimates may be: an installation has that from
the spread of its measurements.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random

import numpy as np

from site_selector.evaluation.bounds import best_known, lower_bound
from site_selector.evaluation.traces import Trace
from site_selector.evaluation.worlds import (
    Platform,
    Regime,
    Staging,
    Trial,
    draw_worlds,
    simulator,
    true_problem,
)
from site_selector.mapping.estimator import Assignment, Estimator, upward_rank
from site_selector.mapping.mapper import Chosen, map_problem
from site_selector.mapping.placement import Forecast
from site_selector.mapping.policies import (
    VARIANTS,
    by_level,
    greedy,
    group,
    list_schedule,
    one_site,
    optimistic_costs,
    random_sites,
    round_robin,
)
from site_selector.mapping.uncertainty import Uncertainty
from site_selector.problem import Problem

OURS = "adon"
BUILT_IN = ("random", "round-robin", "group", "pegasus-heft", "heft")
PEERS = (*BUILT_IN, "greedy", "insertion", "peft")
POLICIES = (OURS, *PEERS)
_ROUNDING = 1e-9  # of a makespan: what adding in another order may change


def peers(estimated: Problem, seed: str) -> dict[str, Assignment]:
    """The mappings of the others, by policy."""
    rank = upward_rank(estimated)
    return {
        "random": random_sites(estimated, Random(f"{seed} random")),
        "round-robin": round_robin(estimated),
        "group": group(estimated, Random(f"{seed} group")),
        "pegasus-heft": list_schedule(estimated, rank, VARIANTS["pegasus-heft"]),
        "heft": list_schedule(estimated, rank, VARIANTS["heft"]),
        "greedy": greedy(estimated),
        "insertion": list_schedule(estimated, rank, VARIANTS["insertion"]),
        "peft": list_schedule(estimated, rank, VARIANTS["peft"]),
    }


def adon(
    estimated: Problem, kinds: Sequence[str], regime: Regime, error: float, seed: int
) -> Chosen:
    """ADON's mapping, with the priorities it hands over and its forecast."""
    known = None
    if regime == "errors":
        known = replace(Uncertainty.everywhere(error), wait=np.array(0.0))
    elif regime == "wrong-waits":
        known = Uncertainty.everywhere(error)
    elif regime == "unknown-waits":
        known = Uncertainty.everywhere(error, random_waits=True)
    return map_problem(estimated, kinds, seed, known)


def knowing(truth: Problem, kinds: Sequence[str], seed: int) -> dict[str, Assignment]:
    """Mappings by those who know the truth: candidates for the best known."""
    rank, after = upward_rank(truth), optimistic_costs(truth)
    mappings = {
        name: list_schedule(truth, rank, knows, after if knows.lookahead else None)
        for name, knows in VARIANTS.items()
    }
    mappings |= {f"one-site:{truth.places[s]}": one_site(truth, s) for s in range(truth.n_sites)}
    mappings |= {"greedy": greedy(truth), "level": by_level(truth)}
    mappings[OURS] = list(map_problem(truth, kinds, seed).assignment)
    return mappings


@dataclass(frozen=True, slots=True)
class Setting:
    """What all cases of an evaluation have in common. ``effort`` scales the reference's search."""

    seed: int = 0
    error: float = 0.5
    staging: Staging = "per-site"
    effort: float = 1.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """One regime of a case: seconds of makespan by policy, of the best known, and the bound.

    ``makespan_s`` has all jobs start by urgency, under any mapping. ``as_run_s`` has them start
    as HTCondor does: ADON's by the priorities that it hands over, the others' as Pegasus has them.
    ``forecast`` is what ADON shows, None if estimates are taken for right.
    """

    regime: Regime
    makespan_s: Mapping[str, float]
    as_run_s: Mapping[str, float]
    forecast: Forecast | None
    best_known_s: float
    best_known_by: str
    lower_bound_s: float


def run_case(trace: Trace, platform: Platform, number: int, setting: Setting) -> list[Outcome]:
    """All regimes of one trace on one platform, which has a ``number`` among those of the seed.

    The same arguments give the same outcomes, wherever and in whatever order cases are run.
    """
    truth = true_problem(trace, platform, setting.staging)
    name = f"{setting.seed} {number} {trace.name}"
    worlds = draw_worlds(truth, trace.kinds, setting.error, Random(f"{name} errors"))
    ours = [
        adon(world.estimated, trace.kinds, world.regime, setting.error, setting.seed)
        for world in worlds
    ]
    mappings = [
        {OURS: assignments.assignment} | peers(world.estimated, name)
        for world, assignments in zip(worlds, ours, strict=True)
    ]
    # All but the last regime have one truth, so whatever is good in one is known to the others.
    out: list[Outcome] = []
    for some in ((0, 1, 2), (3,)):
        judged = worlds[some[0]].truth
        here = [(worlds[i], mappings[i], ours[i]) for i in some]
        out += _judged(judged, here, trace, setting, f"{name} {some}")
    return out


def _judged(
    truth: Problem,
    worlds: list[tuple[Trial, dict[str, Assignment], Chosen]],
    trace: Trace,
    setting: Setting,
    name: str,
) -> list[Outcome]:
    judge, pegasus = simulator(truth), Estimator(replace(truth, by_level=True))
    bound = lower_bound(truth)
    candidates = [(who, assignment) for _, made, _ in worlds for who, assignment in made.items()]
    candidates += list(knowing(truth, trace.kinds, setting.seed).items())
    best = best_known(judge, trace.kinds, candidates, name, setting.effort)
    if not bound <= best.makespan_s * (1 + _ROUNDING):
        raise AssertionError(
            f"{name}: the lower bound {bound} s is above a mapping of {best.makespan_s} s"
        )
    return [
        Outcome(
            world.regime,
            {who: judge.makespan(sites) for who, sites in mappings.items()},
            {who: pegasus.makespan(sites) for who, sites in mappings.items()}
            | {OURS: Estimator(truth, np.array(ours.priority)).makespan(ours.assignment)},
            ours.forecast,
            best.makespan_s,
            best.source,
            bound,
        )
        for world, mappings, ours in worlds
    ]
