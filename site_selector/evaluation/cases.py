"""One trace on one platform: what every policy's mapping comes to, in every regime."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

from site_selector.evaluation.bounds import lower_bound
from site_selector.evaluation.contenders import OURS, adon, knowing, peers
from site_selector.evaluation.platform import Platform
from site_selector.evaluation.reference import best_known
from site_selector.evaluation.simulator import Simulator
from site_selector.evaluation.trace import Trace
from site_selector.evaluation.worlds import Regime, Staging, World, draw_worlds, true_problem
from site_selector.mapping.estimator import Assignment
from site_selector.problem import Problem

_ROUNDING = 1e-9  # of a makespan: what adding in another order may change


@dataclass(frozen=True, slots=True)
class Setting:
    """What all cases of an evaluation have in common. ``effort`` scales the reference's search."""

    seed: int = 0
    error: float = 0.5
    staging: Staging = "per-site"
    effort: float = 1.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """One regime of a case: seconds of makespan by policy, of the best known, and the bound."""

    regime: Regime
    makespan_s: Mapping[str, float]
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
    mappings = [_mappings(world, trace, setting, name) for world in worlds]
    # All but the last regime have one truth, so whatever is good in one is known to the others.
    out: list[Outcome] = []
    for group in ((0, 1, 2), (3,)):
        judged = worlds[group[0]].truth
        out += _judged(judged, [worlds[i] for i in group], mappings, group, trace, setting, name)
    return out


def _mappings(world: World, trace: Trace, setting: Setting, name: str) -> dict[str, Assignment]:
    ours = adon(world.believed, trace.kinds, world.regime, setting.error, setting.seed)
    return {OURS: ours} | peers(world.believed, name)


def _judged(
    truth: Problem,
    worlds: list[World],
    mappings: list[dict[str, Assignment]],
    group: tuple[int, ...],
    trace: Trace,
    setting: Setting,
    name: str,
) -> list[Outcome]:
    simulator = Simulator(truth)
    bound = lower_bound(truth)
    candidates = [(who, found) for made in mappings for who, found in made.items()]
    candidates += list(knowing(truth, trace.kinds, setting.seed).items())
    best = best_known(simulator, trace.kinds, candidates, f"{name} {group}", setting.effort)
    if not bound <= best.makespan_s * (1 + _ROUNDING):
        raise AssertionError(
            f"{name}: the lower bound {bound} s is above a mapping of {best.makespan_s} s"
        )
    return [
        Outcome(
            world.regime,
            {who: simulator.makespan(sites) for who, sites in mappings[i].items()},
            best.makespan_s,
            best.source,
            bound,
        )
        for world, i in zip(worlds, group, strict=True)
    ]
