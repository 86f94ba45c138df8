"""The ways to run a whole workflow at one site, for :mod:`site_selector.edge`.

Algorithm 4 for a workflow as one application: S_c/Γ_c is the sum over its jobs, S_t its inputs that
are not at the site and its results that go back, N the workers that it gets.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from network_provisioner.topology import Path, Topology
from site_selector.cost import tuned_throughput
from site_selector.edge import Leg, Way, bandwidth_of, workers_of
from site_selector.estimates.beliefs import World
from site_selector.inputs import Inputs
from site_selector.problem import NEVER_S, Problem, build_problem


@dataclass(frozen=True, slots=True)
class Edge:
    """``ways`` to run a workflow, the ``total`` of every resource that they use, ``cannot``: the
    sites where some job cannot run, with the reason. ``width`` is how many of its jobs can run at
    once."""

    ways: tuple[Way, ...]
    total: dict[str, float]
    cannot: dict[str, str]
    width: int


def edge_of(
    inputs: Inputs,
    world: World,
    output_site: str | None,
    local: Sequence[str],
    remote: Sequence[str],
    topology: Topology | None = None,
) -> Edge:
    """Every way to run the workflow at one of the sites ``local`` and ``remote``.

    With a ``topology`` each layer that leads to a site is a way of its own, and the resources are
    its links; without, each path is a resource of its own, with what is believed to be available.
    """
    problem = build_problem(inputs, world, output_site)
    place = {name: i for i, name in enumerate(problem.places)}
    maker = _Maker(world, topology)
    ways: list[Way] = []
    cannot: dict[str, str] = {}
    for site, near in [*((s, True) for s in local), *((s, False) for s in remote)]:
        stuck = [job for job, at in inputs.candidates.items() if site not in at]
        if stuck:
            name = inputs.workflow.jobs[stuck[0]].transformation
            more = f" and {len(stuck) - 1} more jobs" if len(stuck) > 1 else ""
            cannot[site] = f"{site} cannot run {stuck[0]} ({name}){more}"
            continue
        s = place[site]
        worker_s = float(
            np.where(problem.compute_s < NEVER_S, problem.compute_s, np.inf)[:, s].sum()
        )
        belief = world.sites[site]
        maker.total[workers_of(site)] = max(0.0, math.floor(belief.workers.value))
        for layer, legs in maker.legs(_moves(problem, s)):
            ways.append(Way(site, near, layer, belief.queue_wait.value, worker_s, legs))
    counts = np.bincount(np.asarray(problem.level, dtype=np.int64))
    return Edge(tuple(ways), maker.total, cannot, int(counts.max()))


def _moves(problem: Problem, site: int) -> dict[tuple[str, str], float]:
    """Bytes from place to place where all jobs run at ``site``."""
    out: dict[tuple[str, str], float] = {}

    def add(src: int, dst: int, size: float) -> None:
        if src != dst and size > 0:
            key = problem.places[src], problem.places[dst]
            out[key] = out.get(key, 0.0) + size

    for file, producer in enumerate(problem.producer):
        size = problem.size[file]
        if producer >= 0 and problem.returns[file] and problem.output >= 0:
            add(site, problem.output, size)
        elif producer < 0 and site not in problem.holders[file]:
            held = problem.holders[file]
            add(min(held, key=lambda h: problem.seconds_per_byte[h, site]), site, size)
    return out


class _Maker:
    """Legs over layers, and the total of every resource they name."""

    def __init__(self, world: World, topology: Topology | None) -> None:
        self.world, self.topology = world, topology
        self.total: dict[str, float] = {}

    def legs(self, moves: dict[tuple[str, str], float]) -> Iterable[tuple[str, tuple[Leg, ...]]]:
        """One entry per layer that all the moves can take; a path that has no choice takes what
        there is. One entry with layer "" where nothing moves or no topology tells."""
        if not moves:
            return [("", ())]
        found = {ends: self._by_layer(*ends) for ends in moves}
        layers = sorted({layer for paths in found.values() for layer in paths})
        out = []
        for layer in layers:
            if layer == "lan" and len(layers) > 1:
                continue  # the way there of some moves, beside a layer that others choose
            legs = []
            for (src, dst), size in moves.items():
                paths = found[src, dst]
                path = paths.get(layer) or next(iter(paths.values()))
                legs.append(self._leg(src, dst, size, path))
            out.append(("" if layer == "lan" else layer, tuple(legs)))
        return out

    def _by_layer(self, src: str, dst: str) -> dict[str, Path | None]:
        """The path with the least delay of each layer."""
        topology = self.topology
        out: dict[str, Path | None] = {}
        if topology is not None and src in topology.sites and dst in topology.sites:
            for path in topology.candidate_paths(src, dst):
                out.setdefault(path.layer, path)
        return out or {"lan": None}

    def _leg(self, src: str, dst: str, size: float, path: Path | None) -> Leg:
        belief = self.world.paths[src, dst]
        name = f"{src}>{dst}"
        if path is None:
            resource = bandwidth_of(src, dst)
            self.total[resource] = belief.gamma_a.value
            return Leg(name, (resource,), size, belief.gamma_t.value)
        resources = []
        for a, b in path.hops:
            resource = bandwidth_of(a, b)
            resources.append(resource)
            if self.topology is not None:
                self.total[resource] = self.topology.link(a, b).capacity_bps
        gamma = float(
            tuned_throughput(
                path.capacity_bps, path.rtt_s, belief.streams, belief.buffer_bytes, path.loss
            )
        )
        return Leg(name, tuple(resources), size, gamma)
