"""Why the planner plug-in's jobs are where they are: a file in the submit directory, written by a
process of its own, so that no planner waits for it."""

from __future__ import annotations

import math
import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from statistics import median

from network_provisioner.base.detached import detached
from site_selector.estimates.world import World, estimates_dict
from site_selector.inputs import Inputs
from site_selector.mapping.describe import describe
from site_selector.mapping.estimator import Estimator
from site_selector.mapping.narrow import worthwhile_sites
from site_selector.mapping.placement import Forecast, Mapping, write_placements
from site_selector.mapping.policies import random_sites
from site_selector.problem import NEVER_S, Problem

_LONGEST_S = 300.0
_DRAWS = 5


def placement_reasons(
    inputs: Inputs,
    world: World,
    problem: Problem,
    sites: Sequence[int],
    policy: str,
    forecast: Forecast | None = None,
) -> Mapping:
    """An assignment of sites with the reason for each; of hundreds of sites those are alternatives
    that a search would look at."""
    estimator = Estimator(problem)
    schedule = estimator(tuple(sites))
    places = {*worthwhile_sites(problem).tolist(), *sites}
    places.update(range(problem.n_sites, len(problem.places)))
    placements = describe(inputs, world, problem, sites, schedule, places=places)
    return Mapping(
        inputs.workflow.name,
        policy,
        schedule.makespan_s,
        {"random": _random_s(problem, estimator)},
        placements,
        estimates_dict(world, {problem.places[place] for place in places}),
        forecast=forecast,
    )


def _random_s(problem: Problem, estimator: Estimator) -> float:
    """Seconds that it would take with Pegasus's own choice of sites; infinite where that lets a
    job wait for ever."""
    draws = (estimator.makespan(random_sites(problem, Random(seed))) for seed in range(_DRAWS))
    seconds = median(draws)
    return seconds if seconds < NEVER_S else math.inf


def leave(submit_dir: Path, tell: Callable[[], Mapping]) -> None:
    """Ask ``tell``, and write its answer into ``submit_dir``, by a process that outlives
    this one and has no parent. Nothing where the directory is not there."""

    def write() -> None:
        signal.setitimer(signal.ITIMER_REAL, _LONGEST_S)
        os.nice(10)
        write_placements(submit_dir, tell(), time.time())

    if submit_dir.is_dir():
        with suppress(OSError):  # too many processes: then the reasons are not recorded
            detached(write)
