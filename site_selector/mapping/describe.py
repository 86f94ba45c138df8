"""An assignment of sites as placements: each job with all its alternatives and the reason, and what
fits nowhere now (thesis, Algorithm 2)."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from network_provisioner.base.units import format_size
from site_selector.catalogs.workflow import Job
from site_selector.estimates.world import ComputeEstimate, PathEstimate, World
from site_selector.inputs import Inputs
from site_selector.mapping.estimator import Schedule
from site_selector.mapping.kernels.data import shape_of
from site_selector.mapping.kernels.room import Room
from site_selector.mapping.placement import Alternative, Move, Placement
from site_selector.mapping.reasons import no_room_sentence, why_least, why_not_least
from site_selector.mapping.terms import JobTerms, job_terms
from site_selector.problem import NEVER_S, Problem


def describe(
    inputs: Inputs,
    world: World,
    problem: Problem,
    assignment: Sequence[int],
    schedule: Schedule,
    tried: Mapping[int, float] | None = None,
    *,
    later: Mapping[int, int] | None = None,
    worlds: int = 0,
    alternatives: bool = True,
    places: Collection[int] | None = None,
    priority: Sequence[int] | None = None,
) -> tuple[Placement, ...]:
    """The placements of an assignment, in the order of the problem's jobs.

    ``tried``: by job, the makespan in seconds with this job alone moved to where its own T_t is
    least; ``later``: in how many of ``worlds`` that were drawn around the estimates that ends
    later. ``alternatives=False`` leaves out terms and reasons, which cost time for large workflows;
    of many sites only those among ``places`` are alternatives. ``priority``: that of each job,
    which those get to which the user gave none.
    """
    maker = _Describer(
        inputs, world, problem, assignment, schedule, tried or {}, later or {}, worlds,
        None if places is None else {*places}, priority,
    )  # fmt: skip
    return tuple(maker.placements(alternatives))


@dataclass(slots=True)
class _Describer:
    """Turns an assignment into placements with terms and reasons. What many jobs share is written
    down once."""

    inputs: Inputs
    world: World
    problem: Problem
    assignment: Sequence[int]
    schedule: Schedule
    tried: Mapping[int, float]
    later: Mapping[int, int]
    worlds: int
    places: set[int] | None
    priority: Sequence[int] | None
    workers: list[dict[str, Any]] = field(default_factory=list)
    room: Room | None = None
    space: dict[int, dict[str, Any]] = field(default_factory=dict)
    waits: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    paths: dict[tuple[int, int], _PathInputs] = field(default_factory=dict)
    compute: dict[int, dict[str, Any]] = field(default_factory=dict)
    inputs_of: dict[tuple[str, int, float, int, float, str], dict[str, dict[str, Any]]] = field(
        default_factory=dict
    )

    def __post_init__(self) -> None:
        now = self.world.now
        for name in self.problem.places[: self.problem.n_sites]:
            self.workers.append(self.world.sites[name].workers.as_dict(now))
        if self.problem.space:
            self.room = Room(shape_of(self.problem), self.problem)
            for site, needed in enumerate(self.room.needs(self.assignment).tolist()):
                known = self.world.sites[self.problem.places[site]].space
                if known is not None:
                    self.space[site] = {**known.as_dict(now), "needed": needed}

    def placements(self, alternatives: bool) -> list[Placement]:
        terms = None
        if alternatives:
            terms = job_terms(self.problem, self.assignment, self.schedule)
        out, waiting = [], queue_reasons(self.problem, self.world, self.assignment)
        for j, name in enumerate(self.problem.jobs):
            site = self.problem.places[self.assignment[j]]
            options = () if terms is None else self._alternatives(j, terms)
            out.append(
                Placement(
                    name,
                    self.inputs.workflow.jobs[name].transformation,
                    site,
                    self._reason(j, site, options) if options else "",
                    options,
                    float(self.schedule.start_s[j]),
                    float(self.schedule.end_s[j]),
                    waiting.get(j, ""),
                    self._priority(j, self.inputs.workflow.jobs[name]),
                    self.inputs.configuration(name, site),
                )
            )
        return out

    def _priority(self, number: int, job: Job) -> int | None:
        """What is handed over, also the user's own, so that DAGMan's and HTCondor's are the same;
        nothing of sub-workflows, of which Pegasus decides."""
        if self.priority is None or self.problem.by_level or job.kind != "job":
            return None
        return int(self.priority[number])

    def _alternatives(self, job: int, job_terms: JobTerms) -> tuple[Alternative, ...]:
        problem, terms = self.problem, job_terms.terms
        options = []
        for s in problem.allowed[job]:
            if self.places is not None and s not in self.places:
                continue
            moved_files = [
                (size * float(problem.seconds_per_byte[ends]), ends, size)
                for ends, size in sorted(job_terms.moves(job, s).items())
            ]
            slowest = self._path(max(moved_files)[1]) if moved_files else None
            options.append(
                Alternative(
                    problem.places[s],
                    float(terms.queue[job, s]),
                    float(terms.compute[job, s]),
                    float(terms.network[job, s]),
                    float(terms.total[job, s]),
                    slowest.bound if slowest else "",
                    slowest.name if slowest else "",
                    float(problem.input_bytes[job]),
                    float(job_terms.s_t_bytes[job, s]),
                    self._inputs(job, s, float(job_terms.share[job, s]), slowest),
                    tuple(self._path(ends).move(size) for _, ends, size in moved_files),
                )
            )
        return tuple(sorted(options, key=lambda a: (a.t_t_s, a.site)))

    def _path(self, ends: tuple[int, int]) -> _PathInputs:
        if ends not in self.paths:
            src, dst = (self.problem.places[place] for place in ends)
            self.paths[ends] = _PathInputs(f"{src}>{dst}", self.world.paths[src, dst], self.world)
        return self.paths[ends]

    def _inputs(
        self, job: int, s: int, share: float, slowest: _PathInputs | None
    ) -> dict[str, dict[str, Any]]:
        problem = self.problem
        estimate = problem.compute[job][s]
        if estimate is None:  # a site of ``allowed`` always has one
            raise AssertionError(f"no compute estimate for {problem.jobs[job]}")
        rate = float(problem.input_bytes[job]) / max(float(problem.compute_s[job, s]), 1e-12)
        path = slowest.name if slowest is not None else ""
        name = self.inputs.workflow.jobs[problem.jobs[job]].transformation
        key = (name, s, share, id(estimate), rate, path)
        inputs = self.inputs_of.get(key)
        if inputs is None:
            n, where = self.workers[s], (name, problem.places[s])
            if where not in self.waits:
                self.waits[where] = self.world.wait(*where).as_dict(self.world.now)
            t_q = self.waits[where]
            inputs = {
                "t_q": t_q,
                "n": {**n, "used": share},
                "gamma_c": self._gamma_c(estimate, rate),
            }
            if slowest is not None:
                inputs["gamma_a"], inputs["gamma_t"] = slowest.gamma_a, slowest.gamma_t
            if s in self.space:
                inputs["space"] = self.space[s]
            self.inputs_of[key] = inputs
        return inputs

    def _gamma_c(self, estimate: ComputeEstimate, rate: float) -> dict[str, Any]:
        """The estimate as a rate of this job, with its deviation in proportion."""
        known = estimate.estimated
        if id(estimate) not in self.compute:
            self.compute[id(estimate)] = known.as_dict(self.world.now)
        out = {**self.compute[id(estimate)], "value": rate}
        if known.spread:
            out["spread"] = rate * known.spread / known.value
        return out

    def _reason(self, job: int, site: str, options: tuple[Alternative, ...]) -> str:
        spec = self.inputs.workflow.jobs[self.problem.jobs[job]]
        if spec.site_hint is not None:
            return f"the workflow asks for {site} (selector profile execution.site)"
        if spec.kind != "job":
            return f"a sub-workflow is planned and run at {site}, the submit host"
        if len(options) == 1:
            return f"only {site} can run {spec.transformation}"
        chosen = next(a for a in options if a.site == site)
        least = options[0]
        if chosen.t_t_s <= least.t_t_s:
            second = next(a for a in options if a.site != site)
            return why_least(chosen, second)
        makespan, new_makespan = self.schedule.makespan_s, self.tried.get(job)
        if self.room is not None and new_makespan is not None and new_makespan >= NEVER_S:
            there = self.problem.places.index(least.site)
            alone = [*self.assignment[:job], there, *self.assignment[job + 1 :]]
            if lacks := no_room(self.problem, self.room, alone):
                return no_room_sentence(chosen, least, lacks[0])
        return why_not_least(
            chosen, least, makespan, new_makespan, self.later.get(job), self.worlds
        )


class _PathInputs:
    """What the moves of many jobs over one path have in common."""

    def __init__(self, name: str, path: PathEstimate, world: World) -> None:
        self.name, self.bound = name, path.bound
        self.gamma_a = path.gamma_a.as_dict(world.now)
        self.gamma_t = path.gamma_t.as_dict(world.now)
        self._rates = path.gamma_a.value, path.gamma_t.value

    def move(self, s_t_bytes: float) -> Move:
        return Move(self.name, s_t_bytes, *self._rates)


def no_room(problem: Problem, room: Room | None, assignment: Sequence[int]) -> list[str]:
    """A line for each site whose disk the files of a mapping do not fit on."""
    needs = [] if room is None else room.needs(assignment).tolist()
    return [
        f"space at {name}: {format_size(needed)} needed, {format_size(free)} free"
        for name, needed, free in zip(problem.places, needs, problem.space, strict=False)
        if needed >= free + 1
    ]


def queue_reasons(problem: Problem, world: World, assignment: Sequence[int]) -> dict[int, str]:
    """By job what lacks: no site that could run it has a worker now, its own never will as far as
    anyone knows, or nothing is left of the bandwidth of a path that it needs."""
    sites = [world.sites[name] for name in problem.places[: problem.n_sites]]
    blocked = bool((problem.seconds_per_byte >= NEVER_S).any())
    reasons = {}
    for job, site in enumerate(assignment):
        never = math.isinf(sites[site].queue_wait.value)
        if sites[site].lacks and (never or all(sites[s].lacks for s in problem.allowed[job])):
            reasons[job] = sites[site].lacks
        elif blocked and (why := _no_bandwidth(problem, world, job, assignment)):
            reasons[job] = why
    return reasons


def _no_bandwidth(problem: Problem, world: World, job: int, assignment: Sequence[int]) -> str:
    per_byte, site = problem.seconds_per_byte, assignment[job]
    at, moves = problem.shared_at(job, site), []
    own = problem.bypassed[job] if problem.bypassed else ()
    for file in problem.reads[job]:
        to = site if file in own else at
        maker = problem.producer[file]
        held = (
            problem.holders[file] if maker < 0 else (problem.shared_at(maker, assignment[maker]),)
        )
        moves.append((file, min(held, key=lambda place: per_byte[place, to]), to))
        moves.append((file, to, site))
    moves += [(file, site, at) for file in problem.writes[job]]
    if problem.output >= 0:
        moves += [(f, at, problem.output) for f in problem.writes[job] if problem.returns[f]]
    for file, src, dst in moves:
        if src != dst and problem.size[file] > 0 and per_byte[src, dst] >= NEVER_S:
            ends = problem.places[src], problem.places[dst]
            note = world.paths[ends].gamma_a.note
            return f"bandwidth {'>'.join(ends)}: nothing is left{f' ({note})' if note else ''}"
    return ""
