"""Those whose mappings are compared: ADON, and what people use otherwise.

Each gets the problem as it is believed, and nothing else, but for ADON, which is also told how far
off beliefs may be: an installation has that from the spread of its measurements.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import numpy as np

from site_selector.estimates.uncertainty import Uncertainty
from site_selector.evaluation.worlds import Regime
from site_selector.mapping.estimator import Assignment, upward_rank
from site_selector.mapping.mapper import map_problem
from site_selector.mapping.policies import (
    by_level,
    greedy,
    group,
    one_site,
    random_sites,
    round_robin,
)
from site_selector.mapping.schedule import VARIANTS, list_schedule, optimistic_costs
from site_selector.problem import Problem

OURS = "adon"
BUILT_IN = ("random", "round-robin", "group", "pegasus-heft", "heft")
PEERS = (*BUILT_IN, "greedy")
POLICIES = (OURS, *PEERS)


def peers(believed: Problem, seed: str) -> dict[str, Assignment]:
    """The mappings of the others, by policy."""
    rank = upward_rank(believed)
    return {
        "random": random_sites(believed, Random(f"{seed} random")),
        "round-robin": round_robin(believed),
        "group": group(believed, Random(f"{seed} group")),
        "pegasus-heft": list_schedule(believed, rank, VARIANTS["pegasus-heft"]),
        "heft": list_schedule(believed, rank, VARIANTS["heft"]),
        "greedy": greedy(believed),
    }


def adon(
    believed: Problem, kinds: Sequence[str], regime: Regime, error: float, seed: int
) -> Assignment:
    """ADON's mapping."""
    known = None
    if regime == "errors":
        known = replace(Uncertainty.everywhere(error), wait=np.array(0.0))
    elif regime == "wrong-waits":
        known = Uncertainty.everywhere(error)
    elif regime == "unknown-waits":
        known = Uncertainty.everywhere(error, random_waits=True)
    return list(map_problem(believed, kinds, seed, known).assignment)


def knowing(truth: Problem, kinds: Sequence[str], seed: int) -> dict[str, Assignment]:
    """Mappings by those who know the truth: candidates for the best known."""
    rank, after = upward_rank(truth), optimistic_costs(truth)
    found = {
        name: list_schedule(truth, rank, knows, after if knows.lookahead else None)
        for name, knows in VARIANTS.items()
    }
    found |= {f"one-site:{truth.places[s]}": one_site(truth, s) for s in range(truth.n_sites)}
    found |= {"greedy": greedy(truth), "level": by_level(truth)}
    found[OURS] = list(map_problem(truth, kinds, seed).assignment)
    return found
