"""What the runs prove: ratios with their bounds, and how true the forecasts were. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import fmean, median, stdev

from scipy.stats import t as student  # type: ignore[import-untyped] # for its quantiles

from examples.compare.record import Run
from examples.compare.ways import FIRST, LEARNED, PARTS, PEERS

Rounds = Mapping[int, Mapping[str, Run]]
"""Runs by round and way."""

_BOUND = 0.95
_MOST_EXACT = 14  # rounds of which every exchange of signs is tried
# Makespan of the one way over that of the other, at most: goals of the comparison.
GOALS = {"busy": 0.80, "idle": 0.95}
LEARNED_GOAL, LEARNED_BOUND = 1.00, 1.03
FORECAST_GOALS = (0.15, 0.30)  # median and 95th percentile of |true ÷ expected − 1|


@dataclass(frozen=True, slots=True)
class Ratio:
    """Geometric mean over rounds of one way's makespan over another's. ``low`` and ``high``: in
    between lies the true one, each with 95 % (one-sided t of the logarithms; infinite for a single
    round); ``p``: how often chance alone would favour the one way as much (signs exchanged)."""

    of: str
    to: str
    rounds: int
    mean: float
    low: float
    high: float
    p: float


def ratio(rounds: Rounds, of: str, to: str) -> Ratio | None:
    """``of`` ÷ ``to``, of rounds in which both may be counted; None if there is none."""
    logs = [
        math.log(round_[of].makespan / round_[to].makespan)
        for round_ in rounds.values()
        if of in round_ and to in round_ and round_[of].good and round_[to].good
    ]
    if not logs:
        return None
    n, mean = len(logs), fmean(logs)
    wide = math.inf if n < 2 else student.ppf(_BOUND, n - 1) * stdev(logs) / math.sqrt(n)
    high = math.inf if wide == math.inf else math.exp(mean + wide)
    return Ratio(of, to, n, math.exp(mean), math.exp(mean - wide), high, _by_chance(logs))


def _by_chance(logs: Sequence[float]) -> float:
    """One-sided p of the sum of ``logs`` being as low, were each sign as likely as the other."""
    if len(logs) > _MOST_EXACT:
        sigma = math.sqrt(sum(x * x for x in logs)) or 1.0
        return 0.5 * math.erfc(-sum(logs) / sigma / math.sqrt(2))
    total = sum(logs) + 1e-12
    sums = [
        sum(s * abs(x) for s, x in zip(signs, logs, strict=True))
        for signs in product((-1, 1), repeat=len(logs))
    ]
    return sum(value <= total for value in sums) / len(sums)


def mean_makespan(rounds: Rounds, way: str) -> float:
    """Geometric mean of a way's runs that may be counted; 0 where there is none."""
    logs = [math.log(r[way].makespan) for r in rounds.values() if way in r and r[way].good]
    return math.exp(fmean(logs)) if logs else 0.0


def best_peer(rounds: Rounds) -> str:
    """Which of Pegasus's own ways took less time in the geometric mean."""
    return min((way.name for way in PEERS), key=lambda w: mean_makespan(rounds, w) or math.inf)


def forecast_errors(rounds: Rounds) -> tuple[float, float] | None:
    """Median and 95th percentile of how far the true end of ADON's runs was off the expected one,
    where it had learned; None if there is no such run."""
    errors = sorted(
        abs(run.makespan / run.expected - 1)
        for round_ in rounds.values()
        for way, run in round_.items()
        if way == LEARNED.name and run.good and run.expected > 0
    )
    if not errors:
        return None
    return median(errors), errors[min(len(errors) - 1, math.ceil(0.95 * len(errors)) - 1)]


def verdicts(network: str, rounds: Rounds) -> list[str]:
    """Each goal with what was found, a line each."""
    best = best_peer(rounds)
    lines = []
    for way in (LEARNED, FIRST, *PARTS):
        result = ratio(rounds, way.name, best)
        if result is not None:
            most = None if way in PARTS else GOALS.get(network)
            verdict = "" if most is None else f"; goal ≤ {most:.2f}: {_met(result.mean <= most)}"
            lines.append(_words(result) + verdict)
    learned = ratio(rounds, LEARNED.name, FIRST.name)
    if learned is not None:
        met = learned.mean <= LEARNED_GOAL and learned.high <= LEARNED_BOUND
        goal = f"goal ≤ {LEARNED_GOAL:.2f}, its upper bound ≤ {LEARNED_BOUND:.2f}: {_met(met)}"
        lines.append(f"{_words(learned)}; {goal}")
    errors = forecast_errors(rounds)
    if errors is not None:
        middle, most = FORECAST_GOALS
        met = errors[0] <= middle and errors[1] <= most
        off = f"{errors[0]:.0%} (median), {errors[1]:.0%} (95th percentile)"
        lines.append(
            f"expected end of {LEARNED.name} off by {off}; goal ≤ {middle:.0%}, ≤ {most:.0%}: "
            f"{_met(met)}"
        )
    return lines


def curve(by_network: Mapping[str, Rounds]) -> list[str]:
    """Where ADON stops paying: by the share of moving, but for the busy network, the largest first.
    Nothing for a single network."""
    rows = []
    for network, rounds in by_network.items():
        best = best_peer(rounds)
        runs = [r[best] for r in rounds.values() if best in r and r[best].good]
        result = ratio(rounds, LEARNED.name, best)
        if result is not None and network != "busy":
            share = fmean(run.split.moving / run.makespan for run in runs)
            rows.append((share, f"moving {share:.0%} of {best} ({network}): {result.mean:.2f}"))
    return [row for _, row in sorted(rows, reverse=True)] if len(rows) > 1 else []


def left_out(rounds: Rounds) -> list[Run]:
    """Runs that are not counted."""
    return [run for round_ in rounds.values() for run in round_.values() if not run.good]


def mean_of(values: Iterable[float]) -> float:
    """Arithmetic mean, 0 of nothing."""
    numbers = list(values)
    return fmean(numbers) if numbers else 0.0


def _words(result: Ratio) -> str:
    rounds = f"{result.rounds} round{'s' * (result.rounds != 1)}"
    return (
        f"{result.of} ÷ {result.to}: {result.mean:.2f} (95 % bounds {result.low:.2f} to "
        f"{result.high:.2f}, p = {result.p:.3f}, {rounds})"
    )


def _met(met: bool) -> str:
    return "met" if met else "MISSED"
