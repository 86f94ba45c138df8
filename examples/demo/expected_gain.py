"""What ADON gains: when a run would have ended with Pegasus alone, by the mapping's model.

``make compare`` runs it both ways; this takes no time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from random import Random
from statistics import fmean

import numpy as np

from adon.planning.placement import site_pools
from examples.demo.facts import MakespanWithoutAdon
from monitors.base.estimates import Estimate
from network_provisioner.controllers.routes import default_paths
from network_provisioner.topology.graph import Topology
from site_selector.estimates.estimating import estimate_world
from site_selector.estimates.running import Live
from site_selector.estimates.world import MeasurementSource
from site_selector.inputs import Inputs
from site_selector.mapping.estimator import Estimator
from site_selector.mapping.policies import VARIANTS, list_schedule, random_sites
from site_selector.problem import build_problem

_DRAWS = 40  # of Random's dice
_OF_CIRCUITS = ("throughput", "transfer_rate")


class _BestEffort:
    """Measurements, but for what transfers got on paths of their own."""

    def __init__(self, source: MeasurementSource) -> None:
        self._source = source

    def estimate(self, metric: str, subject: str, now: float) -> Estimate | None:
        """As the source has it."""
        return None if metric in _OF_CIRCUITS else self._source.estimate(metric, subject, now)


def best_effort_only(topology: Topology) -> Topology:
    """The links that transfers without a circuit take."""
    routes = {hop for path in default_paths(topology) for hop in path.hops}
    left = [k for k in topology.links if {(k.a, k.b), (k.b, k.a)} & routes]
    # A router's addresses are given by link, and some links are gone.
    return Topology([replace(node, macs=None) for node in topology.nodes.values()], left)


def makespan_without_adon(
    inputs: Inputs,
    source: MeasurementSource,
    topology: Topology,
    slots: Mapping[str, int],
    output_site: str,
    now: float,
) -> MakespanWithoutAdon:
    """What the model says with what was measured until ``now`` (Unix seconds); ``slots`` by site,
    all of them idle. Raises InputError."""
    world = estimate_world(
        inputs,
        _BestEffort(source),
        now=now,
        live=Live(site_pools(slots, slots, now), best_effort_only(topology)),
        output_site=output_site,
    )
    problem = build_problem(inputs, world, output_site)
    run, dice = Estimator(problem), Random(0)
    heft = list_schedule(problem, np.zeros(len(problem.jobs)), VARIANTS["pegasus-heft"])
    return MakespanWithoutAdon(
        fmean(run.makespan(random_sites(problem, dice)) for _ in range(_DRAWS)), run.makespan(heft)
    )
