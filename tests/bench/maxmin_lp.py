"""Max-min fair shares by linear programmes, which have nothing in common with filling links.

The smallest share is made as large as can be; a transit that cannot have more than that while the
others have as much is settled at it; and again for the rest (Nace and Pióro, IEEE Communications
Surveys 10, 2008, §III). A peer of :mod:`network_provisioner.state.elastic`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csr_array, eye_array, hstack, vstack

from network_provisioner.state.elastic import RateDemand
from network_provisioner.topology.graph import Hop

CLOSE = 1e-7  # of the largest capacity; below that, figures of the solver mean nothing


def maxmin(capacity: Mapping[Hop, float], demands: Sequence[RateDemand]) -> dict[str, float]:
    """The rates of all demands, their minima included, tier by tier."""
    rest = dict(capacity)
    for demand in demands:
        for hop in demand.hops:
            rest[hop] -= demand.min_bps
    rates = {d.id: d.min_bps for d in demands}
    for priority in sorted({d.priority for d in demands}, reverse=True):
        tier = [d for d in demands if d.priority == priority]
        for demand, extra in zip(tier, _Tier(rest, tier).solve(), strict=True):
            rates[demand.id] += extra
            for hop in demand.hops:
                rest[hop] -= extra
    return rates


class _Tier:
    """What each of a tier gets above its minimum. Variables: their rates, then one gain each."""

    def __init__(self, rest: Mapping[Hop, float], tier: Sequence[RateDemand]) -> None:
        self.scale = max(1.0, *rest.values())
        hops = {hop: row for row, hop in enumerate(sorted({h for d in tier for h in d.hops}))}
        where = [(hops[hop], i) for i, d in enumerate(tier) for hop in d.hops]
        rows, columns = zip(*where, strict=True)
        self.uses = csr_array((np.ones(len(rows)), (rows, columns)), (len(hops), len(tier)))
        self.room = np.array([max(0.0, rest[hop]) / self.scale for hop in hops])
        self.spans = np.array([(d.max_bps - d.min_bps) / self.scale for d in tier])
        self.rates = np.zeros(len(tier))
        self.open = np.ones(len(tier), bool)

    def solve(self) -> list[float]:
        """Bits per second for each."""
        while self.open.any():
            level = self._level()
            stuck = self._stuck(level)
            # Where rounding hides who is stuck, those with the narrowest span are.
            if not stuck.any():
                stuck = self.open & (self.spans <= self.spans[self.open].min() + CLOSE)
            self.rates[stuck] = np.minimum(level, self.spans[stuck])
            self.open &= ~stuck
        return [float(rate) for rate in self.rates * self.scale]

    def _level(self) -> float:
        """The most that all the unsettled can have at once."""
        count = len(self.spans)
        picks = eye_array(count, format="csr")[self.open]
        levels = csr_array(np.ones((int(self.open.sum()), 1)))
        table = vstack(
            [hstack([self.uses, csr_array((len(self.room), 1))]), hstack([-picks, levels])]
        )
        limit = np.concatenate([self.room, np.zeros(int(self.open.sum()))])
        aim = np.append(np.zeros(count), -1)
        bounds = [*self._bounds(0), (0, float(self.spans[self.open].min()))]
        return float(_optimum(aim, table, limit, bounds)[-1])

    def _stuck(self, level: float) -> Any:
        """Who of the unsettled cannot have more than ``level`` while all have it."""
        count, stuck = len(self.spans), self.open.copy()
        while stuck.any():
            gains = [(0, 10 * CLOSE if here else 0) for here in stuck]
            table = vstack(
                [
                    hstack([self.uses, csr_array((len(self.room), count))]),
                    hstack([-eye_array(count), eye_array(count)]),
                ]
            )
            floor = np.where(self.open, max(0.0, level - CLOSE / 100), self.rates)
            limit = np.concatenate([self.room, -floor + CLOSE / 100])
            aim = np.concatenate([np.zeros(count), -np.ones(count)])
            optimum = _optimum(aim, table, limit, [*self._bounds(level), *gains])[count:]
            rising = stuck & (optimum > CLOSE)
            if not rising.any():
                return stuck
            stuck &= ~rising
        return stuck

    def _bounds(self, level: float) -> list[tuple[float, float]]:
        low = max(0.0, level - CLOSE / 100)
        return [
            (min(low, float(span)), float(span)) if here else (float(rate), float(rate))
            for here, span, rate in zip(self.open, self.spans, self.rates, strict=True)
        ]


def _optimum(aim: Any, table: Any, limit: Any, bounds: list[tuple[float, float]]) -> Any:
    solution = linprog(aim, table.tocsr(), limit + CLOSE / 100, bounds=bounds, method="highs")
    if solution.status != 0:
        raise AssertionError(f"no optimum: {solution.message}")
    return solution.x
