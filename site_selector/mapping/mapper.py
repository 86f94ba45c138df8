"""Mapping a whole workflow: a portfolio of policies, the best of them improved, and hedged.

Every policy's mapping is evaluated by the same estimator. Where estimates may be wrong, the best is
that over many worlds as they may turn out to be (``robust.py``), among what is never worse under
the estimates than the simple policies. Of those that end within 2 % of the best, which no forecast
tells apart, the one that moves the fewest files is taken. So under the model the result is never
worse than any policy by more than these 2 %, with doubts than any simple one. The same inputs,
estimates and seed give the same mapping.
"""

from __future__ import annotations

from collections.abc import Mapping as MappingType
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

import numpy as np

from site_selector.estimates.world import World, estimates_dict
from site_selector.inputs import Inputs
from site_selector.mapping.describe import describe, no_room
from site_selector.mapping.estimator import Assignment, Estimator, Schedule
from site_selector.mapping.kernels.data import shape_of
from site_selector.mapping.kernels.room import room_of
from site_selector.mapping.narrow import narrowed_problem, worthwhile_sites
from site_selector.mapping.placement import Forecast, Mapping, Withstands, shown_seconds
from site_selector.mapping.policies import VARIANTS, baselines, list_schedule, optimistic_costs
from site_selector.mapping.robust import SEARCHED, Worlds, comparison, forecast_of, hedged_mapping
from site_selector.mapping.search import Moves, PointJudge, anneal, log_seconds, moved_files, score
from site_selector.mapping.terms import job_terms
from site_selector.mapping.uncertainty import Uncertainty, scenarios, uncertainty_of
from site_selector.problem import NEVER_S, Problem, build_problem

# The simple ways, than none of which the answer is ever worse under the estimates by more than
# NEARLY.
SIMPLE = ("random", "round-robin", "group", "heft", "pegasus-heft", "greedy")
# Of makespans: what is less apart ends at the same time, as far as a forecast can say.
NEARLY = 0.02

# Effort in jobs and files looked at, beside which a simulation costs a fixed amount: about two
# seconds.
_EFFORT = 25_000_000
_FIXED = 600
# What does not fit into the processor's cache takes longer, up to this many times.
_CACHED = 25_000
_SLOWEST = 5
# Small workflows need no more: tries for every job and site it could go to.
_TRIES_PER_CHOICE = 40
_FEWEST_TRIES = 60
_EFFORT_PER_TRY = 8
_FEWEST = 8
_STARTS = 3
# List schedules made on purpose from wrong numbers, for a start in other places.
_SCATTERED = 32
_BUDGET_PER_SCATTERED = 50
_SCATTERING = ("data", "lookahead")
_MISLED_BY = 0.7
_KEPT = 6
_SETTLE_SHARE = 0.15
# Worlds that the forecast is made of: below twenty, their 5 % quantile is unknown.
_FEWEST_DRAWN, _MOST_DRAWN = 20, 96
_BUDGET_PER_DRAWN = 16
# Share of the effort that goes into hedging, where there is something to hedge against.
_HEDGE_SHARE = 0.6


@dataclass(frozen=True, slots=True)
class Chosen:
    """The answer for a problem, under the estimates, and what led to it.

    ``assignment`` is a site index for each job, ``schedule`` when everything happens, ``policy``
    where the mapping came from, ``portfolio`` each policy's makespan in seconds. ``tried``: the
    makespan with one job moved alone to where its own T_t is least; ``later``: where that would be
    sooner, in how many of the ``drawn`` worlds it ends later. ``hedge`` is None if the mapping
    is the best under the estimates or was taken because it moves less, ``drawn`` 0 if estimates
    were trusted. ``priority`` is that of each job, ``places`` are those that were looked at.
    """

    assignment: Assignment
    schedule: Schedule
    policy: str
    portfolio: MappingType[str, float]
    tried: MappingType[int, float]
    later: MappingType[int, int]
    hedge: Withstands | None
    drawn: int
    forecast: Forecast | None
    priority: tuple[int, ...]
    places: tuple[int, ...]


def map_problem(
    problem: Problem,
    kinds: Sequence[str],
    seed: int = 0,
    uncertainty: Uncertainty | None = None,
    evaluations: int | None = None,
) -> Chosen:
    """Place every job of a problem.

    ``kinds`` is what sort of job each is (its transformation): jobs of a kind are moved together
    and are misjudged together. Without ``uncertainty`` the estimates are taken unchanged.
    ``evaluations`` bounds the simulations besides those of the portfolio, by default so that it
    takes a few seconds.
    """
    whole = estimator = Estimator(problem)
    sites = worthwhile_sites(problem)
    problem, places = narrowed_problem(problem, sites)
    if problem is not whole.problem:
        estimator = Estimator(problem, whole.rank)
        uncertainty = None if uncertainty is None else uncertainty.among(sites, places)
    budget = _budget(problem) if evaluations is None else evaluations
    doubt = uncertainty if uncertainty is not None and uncertainty.matters else None
    assignments = _portfolio(problem, estimator, seed)
    scores = {name: estimator.score(assignment) for name, assignment in assignments.items()}
    portfolio = {name: makespan for name, (makespan, _) in scores.items()}
    _scatter(estimator, kinds, assignments, scores, budget, seed)
    settling = round(_SETTLE_SHARE * budget)
    hedging = 0 if doubt is None else round(_HEDGE_SHARE * budget)
    _search(estimator, kinds, assignments, scores, budget - settling - hedging, seed)
    best = min(scores, key=lambda name: (scores[name], name))
    point = assignment = assignments[best]
    hedge = worlds = forecast = None
    if doubt is not None:
        limit = min(portfolio[name] for name in SIMPLE)
        best, assignment, worlds = hedged_mapping(
            estimator, kinds, doubt, assignments, best, limit, hedging, seed
        )
    best, assignment = _least_moved(estimator, {**assignments, best: assignment}, best, worlds)
    settled, tried, later = _settle(estimator, assignment, worlds, settling)
    if settled != assignment:
        best, assignment = best.removesuffix(SEARCHED) + SEARCHED, settled
    if worlds is not None and worlds.prefer(point, assignment):
        makespan = shown_seconds(estimator.makespan(point))
        hedge = comparison(worlds, point, makespan, assignment)
    if doubt is not None:
        count = worlds_to_draw(problem)
        forecast = forecast_of(estimator, kinds, doubt, assignment, count, seed)
    assignment = [int(sites[site]) for site in assignment]
    schedule, drawn = whole(assignment), 0 if worlds is None else len(worlds)
    ids = tuple(whole.priority.tolist()), tuple(places.tolist())
    return Chosen(assignment, schedule, best, portfolio, tried, later, hedge, drawn, forecast, *ids)


def map_workflow(
    inputs: Inputs,
    world: World,
    output_site: str | None = None,
    seed: int = 0,
    *,
    evaluations: int | None = None,
    alternatives: bool = True,
) -> Mapping:
    """Place every job of a workflow.

    ``output_site`` is where results go (None: they stay). ``evaluations`` bounds the search, by
    default so that it takes a few seconds. ``alternatives=False`` leaves out terms and reasons.
    Raises InputError for an unknown output site.
    """
    problem = build_problem(inputs, world, output_site)
    kinds = [inputs.workflow.jobs[job].transformation for job in problem.jobs]
    doubt = uncertainty_of(inputs, world, problem)
    chosen = map_problem(problem, kinds, seed, doubt, evaluations)
    estimates = estimates_dict(world, {problem.places[place] for place in chosen.places})
    if lacks := no_room(problem, room_of(shape_of(problem), problem), chosen.assignment):
        estimates["note"] = "; ".join([*filter(None, [world.note]), *lacks])
    placements = describe(
        inputs,
        world,
        problem,
        chosen.assignment,
        chosen.schedule,
        chosen.tried,
        later=chosen.later,
        worlds=chosen.drawn,
        alternatives=alternatives,
        places=chosen.places,
        priority=chosen.priority,
    )
    return Mapping(
        inputs.workflow.name,
        chosen.policy,
        shown_seconds(chosen.schedule.makespan_s),
        {name: shown_seconds(makespan) for name, makespan in chosen.portfolio.items()},
        placements,
        estimates,
        output_site,
        seed,
        chosen.hedge,
        chosen.forecast,
    )


def worlds_to_draw(problem: Problem) -> int:
    """For a forecast, in proportion to what the search may cost."""
    return max(_FEWEST_DRAWN, min(_MOST_DRAWN, _budget(problem) // _BUDGET_PER_DRAWN))


def _budget(problem: Problem) -> int:
    steps = len(problem.jobs) + sum(map(len, problem.reads)) + len(problem.files)
    choices = sum(len(allowed) - 1 for allowed in problem.allowed)
    small = (_FEWEST_TRIES + _TRIES_PER_CHOICE * choices) * _EFFORT_PER_TRY
    slower = min(_SLOWEST, 1 + steps / _CACHED)
    return max(_FEWEST, min(small, round(_EFFORT / (_FIXED + steps * slower))))


def _portfolio(problem: Problem, estimator: Estimator, seed: int) -> dict[str, Assignment]:
    after = optimistic_costs(problem)
    out = {name: policy(problem, Random(seed)) for name, policy in baselines(problem)}
    for name, knows in VARIANTS.items():
        out[name] = list_schedule(problem, estimator.rank, knows, after)
    return out


def _scatter(
    estimator: Estimator,
    kinds: Sequence[str],
    assignments: dict[str, Assignment],
    scores: dict[str, tuple[float, float]],
    budget: int,
    seed: int,
) -> None:
    """Add the best of the list schedules that one would make if one were misled about everything:
    they begin in places that no policy would look at."""
    count = min(_SCATTERED, budget // _BUDGET_PER_SCATTERED)
    if count < 1:
        return
    misled = Uncertainty.everywhere(_MISLED_BY)
    draw = np.random.default_rng([seed, len(kinds), count])
    made: dict[str, Assignment] = {}
    for number, world in enumerate(scenarios(estimator.problem, kinds, misled, count, draw)):
        for variant in _SCATTERING:
            name = f"{variant} misled {number + 1}"
            made[name] = list_schedule(world, estimator.rank, VARIANTS[variant])
    judged = {name: estimator.score(assignment) for name, assignment in made.items()}
    for name in sorted(judged, key=lambda name: (judged[name], name))[:_KEPT]:
        assignments[name], scores[name] = made[name], judged[name]


def _search(
    estimator: Estimator,
    kinds: Sequence[str],
    assignments: dict[str, Assignment],
    scores: dict[str, tuple[float, float]],
    evaluations: int,
    seed: int,
) -> None:
    """Add to ``assignments`` and ``scores`` what a search from the best few leads to."""
    moves, judge = Moves(estimator.problem, kinds), PointJudge(estimator)
    count = 1 if moves.mappings <= evaluations else _STARTS
    tries = evaluations // count
    if tries < _FEWEST:
        return
    starts: dict[tuple[int, ...], str] = {}
    for name in sorted(scores, key=lambda name: (scores[name], name)):
        starts.setdefault(tuple(assignments[name]), name)
    for number, name in enumerate(list(starts.values())[:count]):
        rng = Random(1000 * seed + number)
        better, _ = anneal(judge, moves, assignments[name], tries, rng, estimator)
        if better != assignments[name]:
            assignments[name + SEARCHED] = better
            scores[name + SEARCHED] = estimator.score(better)


def _least_moved(
    estimator: Estimator,
    assignments: MappingType[str, Assignment],
    best: str,
    worlds: Worlds | None,
) -> tuple[str, Assignment]:
    """Of what ends within NEARLY of the ``best``, under the estimates and over the worlds, what
    moves the fewest files to other sites, then the fewest bytes."""
    makespan_s = {name: estimator.makespan(assignment) for name, assignment in assignments.items()}
    latest_s = makespan_s[best] * (1 + NEARLY)
    if latest_s >= NEVER_S:
        return best, assignments[best]
    near = [name for name in assignments if makespan_s[name] <= latest_s]
    moves = {name: moved_files(estimator.problem, estimator(assignments[name])) for name in near}
    for name in sorted(near, key=lambda name: (moves[name], makespan_s[name], name)):
        if moves[name] >= moves[best]:
            break
        if worlds is None or worlds.gain(assignments[best], assignments[name]) >= -NEARLY:
            return name, assignments[name]
    return best, assignments[best]


def _settle(
    estimator: Estimator, assignment: Assignment, worlds: Worlds | None, budget: int
) -> tuple[Assignment, dict[int, float], dict[int, int]]:
    """Try every job that is not where its own T_t is least at that place, alone.

    Takes what is better (over the worlds, where there are some), by NEARLY at least where it moves
    more, so that no such job is left without need. Returns also the makespan that each of the tries
    which did not help would have led to, and in how many worlds it would end later.
    """
    problem = estimator.problem
    best = list(assignment)
    tried: dict[int, float] = {}
    later: dict[int, int] = {}
    changed = True
    while budget > 0 and changed:
        tried, later, changed = {}, {}, False
        schedule = estimator(best)
        now, moves = score(schedule), moved_files(problem, schedule)
        terms = job_terms(problem, best, schedule).terms.total
        for job, allowed in enumerate(problem.allowed):
            cheapest = min(allowed, key=lambda s: (terms[job, s], s))
            if terms[job, cheapest] >= terms[job, best[job]] or budget <= 0:
                continue
            trial = list(best)
            trial[job] = cheapest
            budget -= 1
            result = estimator.score(trial)
            better = result < now
            gain = log_seconds(now[0]) - log_seconds(result[0])
            if better and worlds is not None:
                budget -= len(worlds)
                gain, better = worlds.gain(best, trial), worlds.prefer(best, trial)
                if not better:
                    later[job] = int((worlds.logs(trial) > worlds.logs(best)).sum())
            tried_moves = moved_files(problem, estimator(trial)) if better else moves
            if better and (gain >= NEARLY or tried_moves <= moves):
                best, now, moves, changed = trial, result, tried_moves, True
            else:
                tried[job] = result[0]
    return best, {} if changed else tried, {} if changed else later
