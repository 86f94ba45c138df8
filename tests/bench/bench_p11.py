"""P11: the makespan of a workflow with ADON and as Pegasus comes, on real parts; see
docs/compare.md. Runs that ``make compare`` has kept are not run again."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from examples.compare.__main__ import ROUNDS, compare
from examples.compare.judge import (
    FORECAST_GOALS,
    GOALS,
    LEARNED_GOAL,
    best_peer,
    forecast_errors,
    mean_makespan,
    ratio,
)
from examples.compare.ways import FIRST, LEARNED, PARTS, WAYS
from examples.scenario import NETWORKS
from network_provisioner.base.errors import MissingError
from tests.bench import Figure, Tell, bench

STATE = Path(".adon/compare")


@bench("P11")
def what_adon_buys(tell: Tell) -> Iterable[Figure]:
    """A quarter of an hour for each network and round, of which ``ADON_P11_ROUNDS`` are wanted."""
    rounds = int(os.environ.get("ADON_P11_ROUNDS", str(ROUNDS)))
    try:
        by_network = compare("soykb", 1, rounds, NETWORKS, STATE, tell)
    except MissingError as error:
        tell(f"not measured: {error}")
        return
    for network, runs in by_network.items():
        means = {way.name: mean_s for way in WAYS if (mean_s := mean_makespan(runs, way.name))}
        name = f"{network} network: makespan"
        if LEARNED.name in means:
            yield Figure(name, means.pop(LEARNED.name), "s", better="lower", peers=means)
        best, first, learned = best_peer(runs), FIRST.name, LEARNED.name
        for of, to, goal in (
            (learned, best, GOALS[network]),
            (first, best, GOALS[network]),
            *((part.name, best, None) for part in PARTS),
            (learned, first, LEARNED_GOAL),
        ):
            comparison = ratio(runs, of, to)
            if comparison is not None:
                figure = f"{network} network: makespan of {of}, of {to}'s"
                yield Figure(figure, comparison.mean, "", better="lower", goal=goal)
        errors = forecast_errors(runs)
        if errors is not None:
            for name, off, goal in zip(("median", "95th percentile"), errors, FORECAST_GOALS,
                                       strict=True):  # fmt: skip
                figure = f"{network} network: expected end off by, {name}"
                yield Figure(figure, 100 * off, "%", better="lower", goal=100 * goal)
