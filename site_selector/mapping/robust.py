"""Mappings that hold when estimates turn out wrong: judged over many worlds as they may be.

What is made small is the mean of log makespan over the worlds, which is the geometric mean of the
ratio to whatever could be reached in each of them, and a share of how bad the worst worlds are
beside the best that is known there. That hedges by itself: where two sites look alike, the one
whose numbers are known wins, and jobs that would wait for one another's data stay together.

Under the estimates the choice stays at least as good as every simple policy: a mapping that is
worse there is not looked at, however well it does in the worlds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random

import numpy as np

from site_selector.cost import Array
from site_selector.mapping.estimator import Assignment, Estimator
from site_selector.mapping.placement import Forecast, Withstands, shown_seconds
from site_selector.mapping.policies import VARIANTS, list_schedule
from site_selector.mapping.search import Moves, anneal
from site_selector.mapping.uncertainty import Uncertainty, scenarios
from site_selector.problem import Problem

# Weight of the worst eighth of the worlds beside the mean over all.
_TAIL_WEIGHT = 0.5
_TAIL_SHARE = 0.125
# Worlds for the search, and (others) for the choice between what it found: a search gets to know
# its worlds, so that it would be trusted too much in them.
_SEARCH_WORLDS = 24
_CHOICE_WORLDS = 96
_FEW_WORLDS = 8
_STARTS = 2
_SHORTLIST = 6
_TOLERANCE = 1e-12
_TIE = 1e-9
_FEWEST_KNOWN = 3
SEARCHED = "+search"


class Worlds:
    """How mappings fare in worlds as they may be; a :class:`site_selector.mapping.search.Judge`.

    Mappings whose makespan under the estimates is above ``limit_s`` are not looked at.
    """

    def __init__(
        self, estimator: Estimator, problems: Sequence[Problem], limit_s: float = float("inf")
    ) -> None:
        self._estimator = estimator
        self._worlds = [estimator.with_numbers(problem) for problem in problems]
        self._limit_s = limit_s
        self._least = np.full(len(problems), np.inf)
        self._here: Array | None = None
        self._known: dict[tuple[int, ...], Array] = {}

    def __len__(self) -> int:
        return len(self._worlds)

    def logs(self, assignment: Assignment) -> Array:
        """log makespan in every world; kept, so that it costs nothing to ask again."""
        key = tuple(assignment)
        if key not in self._known:
            self._known[key] = self._some(assignment, 0, len(self._worlds))
        return self._known[key]

    def learn(self, logs: Array) -> None:
        """Keep what was reached in each world, as a measure for what can be reached there."""
        self._least = np.minimum(self._least, logs)

    def worth(self, logs: Array) -> float:
        """The value of a mapping with these log makespans."""
        if not np.isfinite(self._least).all():  # nothing is known that could be reached
            return float(logs.mean())
        worst = np.sort(logs - self._least)[-max(1, round(_TAIL_SHARE * len(logs))) :]
        return float(logs.mean()) + _TAIL_WEIGHT * float(worst.mean())

    def gain(self, first: Assignment, other: Assignment) -> float:
        """What the other's makespan is less by on average; 0.01 is one percent."""
        return float((self.logs(first) - self.logs(other)).mean())

    def prefer(self, first: Assignment, other: Assignment) -> bool:
        """Whether the other is worth more."""
        return self.worth(self.logs(other)) < self.worth(self.logs(first))

    def value(self, assignment: Assignment) -> float:
        """See :class:`Judge`."""
        self._here = self.logs(assignment)
        return self.worth(self._here)

    def below(self, assignment: Assignment, limit: float) -> float | None:
        """See :class:`Judge`. What a third of the worlds is enough to refuse is not tried in all:
        there it is worse by more than the limit leaves room for, beyond what chance explains."""
        if self._estimator.makespan(assignment) > self._limit_s:
            return None
        first = max(_FEW_WORLDS, len(self._worlds) // 3)
        if self._here is None or first >= len(self._worlds):
            logs = self._some(assignment, 0, len(self._worlds))
        else:
            some = self._some(assignment, 0, first)
            worse = some - self._here[:first]
            room = limit - self.worth(self._here)
            if worse.mean() - 2 * worse.std() / first**0.5 > room:
                return None
            logs = np.concatenate([some, self._some(assignment, first, len(self._worlds))])
        value = self.worth(logs)
        if value > limit:
            return None
        self._here = logs
        return value

    def _some(self, assignment: Assignment, first: int, end: int) -> Array:
        ends = self._estimator.makespans(assignment, self._worlds[first:end])
        return np.log(np.maximum(ends, 1e-9))


def hedged_mapping(
    estimator: Estimator,
    kinds: Sequence[str],
    uncertainty: Uncertainty,
    candidates: Mapping[str, Assignment],
    point: str,
    limit_s: float,
    evaluations: int,
    seed: int,
) -> tuple[str, Assignment, Worlds]:
    """The mapping that does best over the worlds that the uncertainty allows.

    ``candidates`` by name, ``point`` among them the best under the estimates. Only mappings that
    reach ``limit_s`` there are chosen. Returns the name of where the search began, the mapping,
    and the worlds that it was chosen by.
    """
    limit_s *= 1 + _TOLERANCE
    draw = np.random.default_rng([seed, len(kinds)])
    share = evaluations // (4 * _SHORTLIST)
    shown, count = (max(_FEW_WORLDS, min(n, share)) for n in (_SEARCH_WORLDS, _CHOICE_WORLDS))
    drawn = scenarios(estimator.problem, kinds, uncertainty, shown, draw)
    search = Worlds(estimator, drawn, limit_s)
    known = dict(candidates)
    if share >= _FEW_WORLDS:
        known |= _perturbed(estimator, drawn[:_SHORTLIST])
    makespans = {name: estimator.makespan(assignment) for name, assignment in known.items()}
    near = sorted(
        (name for name in known if makespans[name] <= limit_s),
        key=lambda name: (makespans[name], name != point, name),
    )
    near = _distinct(near, known)[: max(_FEWEST_KNOWN, evaluations // (3 * shown))]
    for name in near:
        search.learn(search.logs(known[name]))
    ranked = sorted(near, key=lambda name: (search.worth(search.logs(known[name])), name))
    short = {name: known[name] for name in ranked[:_SHORTLIST]} | {point: known[point]}
    choice = search
    if share >= _FEW_WORLDS:
        spent = len(near) * shown + (len(short) + _STARTS) * count
        tries = max(0, evaluations - spent) // (_STARTS * shown)
        moves = Moves(estimator.problem, kinds)
        for number, name in enumerate(ranked[:_STARTS]):
            improved, _ = anneal(search, moves, known[name], tries, Random(1000 * seed + number))
            short[f"{name}{SEARCHED}"] = improved
        others = scenarios(estimator.problem, kinds, uncertainty, count, draw)
        choice = Worlds(estimator, others, limit_s)
    for assignment in short.values():
        choice.learn(choice.logs(assignment))
    # Of equals the best under the estimates: it needs no explanation.
    best = min(
        short, key=lambda name: (choice.worth(choice.logs(short[name])), name != point, name)
    )
    return best, short[best], choice


def comparison(
    worlds: Worlds, point: Assignment, makespan_s: float, chosen: Assignment
) -> Withstands:
    """What is gained over ``point``, the best mapping under the estimates: ``makespan_s`` there."""
    gained = worlds.logs(point) - worlds.logs(chosen)
    return Withstands(
        makespan_s,
        len(worlds),
        int((gained > _TIE).sum()),
        int((gained < -_TIE).sum()),
        float(1 - np.exp(-gained.mean())),
    )


def forecast_of(
    estimator: Estimator,
    kinds: Sequence[str],
    uncertainty: Uncertainty,
    assignment: Assignment,
    count: int,
    seed: int,
) -> Forecast:
    """When a mapping ends over ``count`` worlds that it was not chosen by: of many mappings that
    which looks best is the one of which the estimates are most too good."""
    draw = np.random.default_rng([seed, len(kinds), count])
    problem = replace(estimator.problem, space=())  # who has no room is told so
    drawn = scenarios(problem, kinds, uncertainty, count, draw)
    ends = estimator.makespans(assignment, [estimator.with_numbers(world) for world in drawn])
    # Weibull's: between them a further world is with 90 %, however few there were.
    quantiles = np.quantile(ends, (0.05, 0.5, 0.95), method="weibull")
    low, median, high = (shown_seconds(float(seconds)) for seconds in quantiles)
    return Forecast(median, low, high, count)


def _perturbed(estimator: Estimator, worlds: Sequence[Problem]) -> dict[str, Assignment]:
    """What a list schedule would do if it estimated in one of the worlds."""
    return {
        f"lookahead in world {number}": list_schedule(world, estimator.rank, VARIANTS["lookahead"])
        for number, world in enumerate(worlds)
    }


def _distinct(names: Sequence[str], known: Mapping[str, Assignment]) -> list[str]:
    seen: dict[tuple[int, ...], str] = {}
    for name in names:
        seen.setdefault(tuple(known[name]), name)
    return list(seen.values())
