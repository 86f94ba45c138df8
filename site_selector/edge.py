"""Edge optimisation: where at the campus edge a new application gets its resources.

Algorithm 2 of the thesis on SoyKB (§3.2), with T_t of Algorithm 4 as its cost:

    R = total - sum of what running applications hold
    does the new application fit locally, remotely (over layer 2 or layer 3)?
        yes  the cheaper by T_t is taken, and its resources are subtracted from R
        no   it goes to the scheduler's queue, with the reason

Everything here is a pure function of values. An application never gets more than is free, nor more
than it can use.

A way is to run a whole workflow at one site, Algorithm 4 for a workflow as one application: S_c/Γ_c
is the sum over its jobs, S_t its inputs that are not at the site and its results that go back, N
the workers that it gets.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from network_provisioner.topology.graph import Path, Topology
from site_selector.catalogs.entries import legs_of
from site_selector.cost import network_time, tuned_throughput
from site_selector.estimates.running import Amounts, Holding, bandwidth_of, workers_of
from site_selector.estimates.world import World
from site_selector.inputs import Inputs
from site_selector.problem import NEVER_S, Problem, build_problem

L2 = "l2"


def throughput_of(path: str) -> str:
    """What TCP and hosts reach on a path. It is no resource that anyone holds, but it can lack."""
    return f"throughput {path}"


@dataclass(frozen=True, slots=True)
class Needs:
    """RSpec, QSpec and priority of a new application.

    It needs ``least_workers`` and can use ``most_workers``; each of its transfers needs
    ``least_bps`` (QSpec) and may have ``most_bps`` (RSpec), which is above zero.
    """

    application: str
    priority: int = 0
    least_workers: int = 1
    most_workers: int = 1
    least_bps: float = 0.0
    most_bps: float = math.inf


@dataclass(frozen=True, slots=True)
class Leg:
    """Bytes that must move over the links ``resources``, at no more than ``gamma_bps`` (what TCP
    and hosts reach there: Γ_t, and Γ_a where it was measured)."""

    name: str
    resources: tuple[str, ...]
    s_t_bytes: float
    gamma_bps: float = math.inf


@dataclass(frozen=True, slots=True)
class SiteOption:
    """One way to run an application: a site, and a layer for its transfers.

    ``worker_s`` is S_c/Γ_c: seconds that one worker would compute. ``t_q_s`` is infinite where the
    site has no resources.
    """

    site: str
    local: bool
    layer: str
    t_q_s: float
    worker_s: float
    legs: tuple[Leg, ...] = ()

    @property
    def name(self) -> str:
        """``remote at tacc over l2``."""
        side = "local" if self.local else "remote"
        return f"{side} at {self.site}" + (f" over {self.layer}" if self.layer else "")


@dataclass(frozen=True, slots=True)
class Shortage:
    """A resource of which a way needs more than is free; who holds it, least important first."""

    resource: str
    needed: float
    free: float
    total: float
    holders: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Offer:
    """What a way would give: the amounts that it takes, and T_t with its terms in seconds. Where
    ``lacks`` has entries the way is not open, and the terms are infinite."""

    way: SiteOption
    amounts: Amounts = field(default_factory=dict)
    workers: int = 0
    t_c_s: float = math.inf
    t_n_s: float = math.inf
    t_t_s: float = math.inf
    lacks: tuple[Shortage, ...] = ()

    @property
    def fits(self) -> bool:
        """Whether all that the application needs is free."""
        return not self.lacks


@dataclass(frozen=True, slots=True)
class Decision:
    """``taken`` is the cheapest way that is open, None if the application is queued.

    ``offers`` has all ways, the cheapest first. ``left`` is R after the decision. ``give_way``:
    where it is queued, running applications of lower priority in layer 2 without which it would
    fit, none of which could stay; empty if no such set exists. ``lowest_priority`` is P_min of
    Algorithm 2, the lowest among the applications in layer 2.
    """

    needs: Needs
    taken: Offer | None
    offers: tuple[Offer, ...]
    left: Amounts
    give_way: tuple[Holding, ...] = ()
    lowest_priority: int | None = None

    def holding(self) -> Holding | None:
        """What the application holds from now on; None if it is queued."""
        if self.taken is None:
            return None
        way = self.taken.way
        return Holding(self.needs.application, self.taken.amounts, self.needs.priority, way.layer)


def residual(total: Amounts, running: Iterable[Holding]) -> dict[str, float]:
    """R = total - sum of holdings, by resource. Zero where more is held than there is, as where a
    site lost workers; what is held of an unknown resource is nobody's concern here."""
    left = dict(total)
    for holding in running:
        for name, amount in holding.amounts.items():
            if name in left:
                left[name] -= amount
    return {name: max(0.0, amount) for name, amount in left.items()}


def decide(
    needs: Needs, ways: Sequence[SiteOption], total: Amounts, running: Sequence[Holding] = ()
) -> Decision:
    """Algorithm 2 for one new application. Where two ways cost the same the local one is taken,
    then the one that is named first."""
    free = residual(total, running)
    offers = sorted(
        (offer(needs, way, free, total, running) for way in ways),
        key=lambda o: (not o.fits, o.t_t_s, not o.way.local),
    )
    in_l2 = [h for h in running if h.layer == L2]
    lowest = min((h.priority for h in in_l2), default=None)
    taken = offers[0] if offers and offers[0].fits else None
    if taken is None:
        sacrifice = _give_way(needs, ways, total, running)
        return Decision(needs, None, tuple(offers), free, sacrifice, lowest)
    left = {name: max(0.0, n - taken.amounts.get(name, 0.0)) for name, n in free.items()}
    return Decision(needs, taken, tuple(offers), left, (), lowest)


def offer(
    needs: Needs, way: SiteOption, free: Amounts, total: Amounts, running: Sequence[Holding] = ()
) -> Offer:
    """What ``way`` would give of what is ``free``, or what lacks.

    Workers: all that are free and of use. Bandwidth of each leg: what the RSpec allows, its links
    have free, and TCP can use. Legs over the same link do not move at the same time (inputs before
    results), so the larger of them is held.
    """
    lacks = []
    pool = workers_of(way.site)
    there = int(free.get(pool, 0.0))
    if there < needs.least_workers or not math.isfinite(way.t_q_s):
        lacks.append(_lack(pool, needs.least_workers, free, total, running))
    amounts: dict[str, float] = {}
    t_n_s = 0.0
    for leg in way.legs:
        if leg.s_t_bytes <= 0:
            continue
        if leg.gamma_bps < needs.least_bps or leg.gamma_bps <= 0:
            # Free bandwidth does not help where TCP cannot fill it.
            reach = leg.gamma_bps
            lacks.append(Shortage(throughput_of(leg.name), needs.least_bps, reach, reach))
            continue
        room = min((free.get(name, 0.0) for name in leg.resources), default=math.inf)
        short = [n for n in leg.resources if free.get(n, 0.0) < needs.least_bps or not free.get(n)]
        lacks += [_lack(name, needs.least_bps, free, total, running) for name in short]
        rate = min(room, needs.most_bps, leg.gamma_bps)
        t_n_s += float(network_time(leg.s_t_bytes, leg.gamma_bps, rate))
        for name in leg.resources:
            amounts[name] = max(amounts.get(name, 0.0), rate)
    if lacks:
        unique = tuple({lack.resource: lack for lack in lacks}.values())
        return Offer(way, lacks=unique)
    workers = max(1, min(there, needs.most_workers))
    amounts[pool] = float(workers)
    t_c_s = way.worker_s / workers
    return Offer(way, amounts, workers, t_c_s, t_n_s, way.t_q_s + t_c_s + t_n_s)


def _lack(
    resource: str, needed: float, free: Amounts, total: Amounts, running: Sequence[Holding]
) -> Shortage:
    held = sorted(
        (h for h in running if h.amounts.get(resource, 0.0) > 0),
        key=lambda h: (h.priority, h.application),
    )
    return Shortage(
        resource,
        float(needed),
        free.get(resource, 0.0),
        total.get(resource, 0.0),
        tuple(h.application for h in held),
    )


def _give_way(
    needs: Needs, ways: Sequence[SiteOption], total: Amounts, running: Sequence[Holding]
) -> tuple[Holding, ...]:
    """Applications in layer 2 of lower priority without which ``needs`` would fit.

    The least important are asked first, and none is asked needlessly: each is taken back if the
    others are enough.
    """
    lower = sorted(
        (h for h in running if h.layer == L2 and h.priority < needs.priority),
        key=lambda h: (h.priority, h.application),
    )

    def fits(freed: Sequence[Holding]) -> bool:
        stay = [h for h in running if not any(h is gone for gone in freed)]
        free = residual(total, stay)
        return any(offer(needs, way, free, total).fits for way in ways)

    if not fits(lower):
        return ()
    candidates: list[Holding] = []
    for holding in lower:
        candidates.append(holding)
        if fits(candidates):
            break
    for holding in tuple(reversed(candidates)):
        others = [h for h in candidates if h is not holding]
        if fits(others):
            candidates = others
    return tuple(candidates)


@dataclass(frozen=True, slots=True)
class Edge:
    """``ways`` to run a workflow, the ``total`` of every resource that they use, ``cannot``: the
    sites where some job cannot run, with the reason. ``width`` is how many of its jobs can run at
    once."""

    ways: tuple[SiteOption, ...]
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
    its links; without, each path is a resource of its own, with what is assumed to be available.
    """
    problem = build_problem(inputs, world, output_site)
    place = {name: i for i, name in enumerate(problem.places)}
    maker = _Maker(world, topology)
    ways: list[SiteOption] = []
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
        site_estimate = world.sites[site]
        maker.total[workers_of(site)] = max(0.0, math.floor(site_estimate.workers.value))
        for layer, legs in maker.legs(_moves(problem, s)):
            ways.append(
                SiteOption(site, near, layer, site_estimate.queue_wait.value, worker_s, legs)
            )
    counts = np.bincount(np.asarray(problem.level, dtype=np.int64))
    return Edge(tuple(ways), maker.total, cannot, int(counts.max()))


def _moves(problem: Problem, site: int) -> dict[tuple[str, str], float]:
    """Bytes from place to place where all jobs run at ``site``."""
    out: dict[tuple[str, str], float] = {}
    shared = [problem.shared_at(job, site) for job in range(len(problem.jobs))]
    own = [frozenset(row) for row in problem.bypassed] or [frozenset[int]()] * len(shared)

    def add(src: str, dst: str, size: float) -> None:
        for leg in legs_of(src, dst) if size > 0 else ():
            out[leg] = out.get(leg, 0.0) + size

    def bring(file: int, at: int) -> None:
        held = problem.holders[file]
        if at not in held:
            nearest = min(held, key=lambda h: problem.seconds_per_byte[h, at])
            add(problem.places[nearest], problem.places[at], problem.size[file])

    for file, producer in enumerate(problem.producer):
        if producer >= 0 and problem.returns[file] and problem.output >= 0:
            for output in problem.places[problem.output].split(","):
                add(problem.places[shared[producer]], output, problem.size[file])
        elif producer < 0:
            for at in {shared[job] for job in problem.readers[file] if file not in own[job]}:
                bring(file, at)
    for job, at in enumerate(shared):
        for file in own[job]:
            bring(file, site)
        if at != site:
            for file in problem.reads[job]:
                if file not in own[job]:
                    add(problem.places[at], problem.places[site], problem.size[file])
            for file in problem.writes[job]:
                add(problem.places[site], problem.places[at], problem.size[file])
    return out


class _Maker:
    """Legs over layers, and the total of every resource they name."""

    def __init__(self, world: World, topology: Topology | None) -> None:
        self.world, self.topology = world, topology
        self.total: dict[str, float] = {}

    def legs(self, moves: dict[tuple[str, str], float]) -> Iterable[tuple[str, tuple[Leg, ...]]]:
        """One entry per layer that all the moves can take; a path that has no choice takes what
        there is. One entry with layer "" if nothing moves or there is no topology."""
        if not moves:
            return [("", ())]
        by_layer = {ends: self._by_layer(*ends) for ends in moves}
        layers = sorted({layer for paths in by_layer.values() for layer in paths})
        out = []
        for layer in layers:
            if layer == "lan" and len(layers) > 1:
                continue  # the way there of some moves, beside a layer that others choose
            legs = []
            for (src, dst), size in moves.items():
                paths = by_layer[src, dst]
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
        path_estimate = self.world.paths[src, dst]
        name = f"{src}>{dst}"
        if path is None:
            resource = bandwidth_of(src, dst)
            self.total[resource] = path_estimate.gamma_a.value
            return Leg(name, (resource,), size, path_estimate.gamma_t.value)
        resources = []
        for a, b in path.hops:
            resource = bandwidth_of(a, b)
            resources.append(resource)
            if self.topology is not None:
                self.total[resource] = self.topology.link(a, b).capacity_bps
        gamma = float(
            tuned_throughput(
                path.capacity_bps,
                path.rtt_s,
                path_estimate.streams,
                path_estimate.buffer_bytes,
                path.loss,
            )
        )
        return Leg(name, tuple(resources), size, gamma)
