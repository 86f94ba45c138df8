"""Mapping a whole workflow: a portfolio of policies, the best of them, improved by search.

Every policy's mapping is evaluated by the same estimator, so the result is never worse under the
model than any of them. The same inputs, beliefs and seed give the same mapping.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random
from typing import Any

from site_selector.beliefs import Belief, World
from site_selector.inputs import Inputs
from site_selector.placement import Alternative, Mapping, Placement
from site_selector.policies import baselines
from site_selector.problem import NEVER_S, Problem, build_problem
from site_selector.reasons import why_least, why_not_least
from site_selector.schedule import VARIANTS, list_schedule, optimistic_costs
from site_selector.search import improve, movable_groups, score
from site_selector.simulate import Assignment, Estimator, Schedule
from site_selector.terms import JobTerms, job_terms

# Search effort in jobs and files looked at, so that it takes about as long for any workflow.
_WORK = 2_000_000
_MOST_EVALUATIONS = 3000
_STARTS = 3


def map_workflow(
    inputs: Inputs,
    world: World,
    output_site: str | None = None,
    seed: int = 0,
    *,
    evaluations: int | None = None,
    alternatives: bool = True,
) -> Mapping:
    """Place every job.

    ``output_site`` is where results go (None: they stay). ``evaluations`` bounds the search, by
    default so that it takes a few seconds. ``alternatives=False`` leaves out terms and reasons.
    Raises InputError for an unknown output site.
    """
    problem = build_problem(inputs, world, output_site)
    estimator = Estimator(problem)
    budget = _budget(problem) if evaluations is None else evaluations
    portfolio = _portfolio(problem, estimator, seed)
    rng = Random(seed)
    ranked = sorted(portfolio, key=lambda name: (score(portfolio[name][1]), name))
    winner = ranked[0]
    best, schedule = portfolio[winner]
    names = [inputs.workflow.jobs[job].transformation for job in problem.jobs]
    groups = movable_groups(problem, names)
    for name in ranked[:_STARTS]:
        found, found_schedule = improve(
            estimator, portfolio[name][0], groups, budget // (_STARTS + 1), rng
        )
        if score(found_schedule) < score(schedule):
            best, schedule, winner = found, found_schedule, f"{name}+search"
    best, schedule, tried = _settle(estimator, best, schedule, budget // (_STARTS + 1))
    if score(schedule) < score(portfolio[winner.removesuffix("+search")][1]):
        winner = winner if winner.endswith("+search") else f"{winner}+search"
    describe = _Describer(inputs, world, problem, best, schedule, tried)
    placements = describe.placements(alternatives)
    return Mapping(
        inputs.workflow.name,
        winner,
        _shown(schedule.makespan_s),
        {name: _shown(found.makespan_s) for name, (_, found) in portfolio.items()},
        tuple(placements),
        beliefs_dict(world),
        output_site,
        seed,
    )


def beliefs_dict(world: World) -> dict[str, Any]:
    """All beliefs, JSON-ready: ``sites``, ``paths`` ("src>dst"), ``compute`` ("xform@site")."""
    now = world.now
    return {
        "now": now,
        "sites": {
            name: {"n": b.workers.as_dict(now), "t_q": b.queue_wait.as_dict(now)}
            for name, b in world.sites.items()
        },
        "paths": {
            f"{src}>{dst}": {
                "gamma_a": b.gamma_a.as_dict(now),
                "gamma_t": b.gamma_t.as_dict(now),
                "setup": b.setup.as_dict(now),
                "rtt_s": b.rtt_s,
            }
            for (src, dst), b in world.paths.items()
        },
        "compute": {
            f"{name}@{site}": {"kind": b.kind, **b.belief.as_dict(now)}
            for (name, site), b in world.compute.items()
        },
    }


def _budget(problem: Problem) -> int:
    size = len(problem.jobs) + sum(map(len, problem.reads)) + sum(map(len, problem.writes))
    return max(8, min(_MOST_EVALUATIONS, _WORK // max(1, size)))


def _shown(seconds: float) -> float:
    return seconds if seconds < NEVER_S else math.inf


def _portfolio(
    problem: Problem, estimator: Estimator, seed: int
) -> dict[str, tuple[Assignment, Schedule]]:
    after = optimistic_costs(problem)
    policies: dict[str, Callable[[], Assignment]] = {}
    for name, policy in baselines(problem):
        policies[name] = lambda policy=policy: policy(problem, Random(seed))  # type: ignore[misc]
    for name, knows in VARIANTS.items():
        policies[name] = lambda knows=knows: list_schedule(  # type: ignore[misc]
            problem, estimator.rank, knows, after
        )
    out = {}
    for name, make in policies.items():
        assignment = make()
        out[name] = (assignment, estimator(assignment))
    return out


def _settle(
    estimator: Estimator, assignment: Assignment, schedule: Schedule, budget: int
) -> tuple[Assignment, Schedule, dict[int, float]]:
    """Try every job that is not where its own T_t is least at that place, alone.

    Takes what is better, so that no such job is left without need. Returns also the makespan that
    each of the tries which did not help would have led to.
    """
    problem = estimator.problem
    best, found = list(assignment), schedule
    tried: dict[int, float] = {}
    changed = True
    while budget > 0 and changed:
        tried, changed = {}, False
        terms = job_terms(problem, best, found).terms.total
        for job, allowed in enumerate(problem.allowed):
            wish = min(allowed, key=lambda s: (terms[job, s], s))
            if terms[job, wish] < terms[job, best[job]] and budget > 0:
                budget -= 1
                trial = list(best)
                trial[job] = wish
                result = estimator(trial)
                if score(result) < score(found):
                    best, found, changed = trial, result, True
                else:
                    tried[job] = result.makespan_s
    return best, found, {} if changed else tried


class _Describer:
    """Turns an assignment into placements with terms and reasons."""

    def __init__(
        self,
        inputs: Inputs,
        world: World,
        problem: Problem,
        assignment: Assignment,
        schedule: Schedule,
        tried: dict[int, float],
    ) -> None:
        self.inputs, self.world, self.problem = inputs, world, problem
        self.assignment, self.schedule, self.tried = assignment, schedule, tried

    def placements(self, alternatives: bool) -> list[Placement]:
        terms = job_terms(self.problem, self.assignment, self.schedule) if alternatives else None
        out = []
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
                    self.schedule.start_s[j],
                    self.schedule.end_s[j],
                )
            )
        return out

    def _alternatives(self, job: int, found: JobTerms) -> tuple[Alternative, ...]:
        problem, terms = self.problem, found.terms
        options = []
        for s in problem.allowed[job]:
            move = found.slowest[job][s]
            gamma, path = "", ""
            if move is not None:
                names = problem.places[move[0]], problem.places[move[1]]
                gamma, path = self.world.paths[names].bound, ">".join(names)
            options.append(
                Alternative(
                    problem.places[s],
                    float(terms.queue[job, s]),
                    float(terms.compute[job, s]),
                    float(terms.network[job, s]),
                    float(terms.total[job, s]),
                    gamma,
                    path,
                    float(problem.input_bytes[job]),
                    float(found.s_t_bytes[job, s]),
                    self._inputs(job, s, float(found.share[job, s]), move),
                )
            )
        return tuple(sorted(options, key=lambda a: (a.t_t_s, a.site)))

    def _inputs(
        self, job: int, s: int, share: float, move: tuple[int, int] | None
    ) -> dict[str, dict[str, Any]]:
        problem, world, now = self.problem, self.world, self.world.now
        site = world.sites[problem.places[s]]
        belief = problem.compute[job][s]
        if belief is None:  # a site of ``allowed`` always has one
            raise AssertionError(f"no compute belief for {problem.jobs[job]}")
        rate = problem.input_bytes[job] / max(float(problem.compute_s[job, s]), 1e-12)
        known = belief.belief
        gamma_c = Belief(float(rate), known.source, known.at, 0.0, known.note)
        out = {
            "t_q": site.queue_wait.as_dict(now),
            "n": {**site.workers.as_dict(now), "used": share},
            "gamma_c": gamma_c.as_dict(now),
        }
        if move is not None:
            path = world.paths[problem.places[move[0]], problem.places[move[1]]]
            out["gamma_a"] = path.gamma_a.as_dict(now)
            out["gamma_t"] = path.gamma_t.as_dict(now)
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
        return why_not_least(chosen, least, self.schedule.makespan_s, self.tried.get(job))
