"""The daily and weekly cycle of a series, learnt from the medians of its hours."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

HOUR_S = 3600.0
DAY_H, WEEK_H = 24, 168
KEEP_H = 4 * WEEK_H

_Floats = npt.NDArray[np.float64]


class Season:
    """What a moment's value differs from the level by, for its place in the week.

    ``spread`` is how far it goes from its lowest to its highest. No day is quite like another, and
    busy hours differ most: :meth:`misfit_at` is the standard deviation, robust, of what an hour
    differs from it.
    """

    def __init__(self, profile: Sequence[float] = (), misfit: Sequence[float] = (0.0,)) -> None:
        self._profile = tuple(profile)
        self._misfit = tuple(misfit)
        self.spread = max(profile) - min(profile) if profile else 0.0

    def at(self, moment: float) -> float:
        """The difference at a moment (Unix seconds), straight from one hour's middle to the
        next."""
        profile = self._profile
        if not profile:
            return 0.0
        hours = moment / HOUR_S - 0.5
        whole = math.floor(hours)
        part = hours - whole
        size = len(profile)
        here, there = profile[whole % size], profile[(whole + 1) % size]
        return here + part * (there - here)

    def misfit_at(self, moment: float) -> float:
        """How far an hour about a moment may be off."""
        return self._misfit[math.floor(moment / HOUR_S) % len(self._misfit)]


def learn(hours: Sequence[int], medians: Sequence[float]) -> Season:
    """From the medians of hours (numbered from 1970 on, in order).

    By hours of the day from two days on, by hours of the week from two weeks on: weekends differ.
    A trend is taken off first, for it would look like a part of the cycle. Less than two days give
    no cycle, and all that hours differ by is misfit.
    """
    if not hours:
        return Season()
    first = hours[0]
    days = (hours[-1] - first + 1) / DAY_H
    series = np.full(hours[-1] - first + 1, math.nan)
    series[np.asarray(hours) - first] = medians
    if days < 2:
        return Season(misfit=[_spread(series - np.nanmedian(series))])
    cycle = WEEK_H if days >= 2 * 7 else DAY_H
    flat = _without_trend(series, cycle)
    profile = _profile(flat, first, cycle)
    rest = flat - profile[(np.arange(flat.size) + first) % cycle]
    least = 0.5 * _spread(rest)
    if cycle == DAY_H:  # nobody knows yet what a weekend will do to it
        least = max(least, 0.25 * float(np.ptp(profile)))
    misfit = np.maximum(least, _spreads(_by_place(rest, first, DAY_H)))
    return Season(profile.tolist(), misfit.tolist())


def _without_trend(series: _Floats, cycle: int) -> _Floats:
    """Minus the trend, which is the median of what changed from one cycle to the next, and minus a
    running median over a cycle for what is no straight line."""
    step = series[cycle:] - series[:-cycle]
    known = np.isfinite(step)
    # of few, the noise of one would be taken for a trend over weeks
    slope = float(np.median(step[known])) / cycle if known.sum() >= cycle // 4 else 0.0
    flat = series - slope * np.arange(series.size)
    half = cycle // 2
    padded = np.concatenate([np.full(half, math.nan), flat, np.full(half, math.nan)])
    every = 6  # a median over a day or a week changes slowly
    places = np.arange(0, flat.size, every)
    windows = np.lib.stride_tricks.sliding_window_view(padded, 2 * half + 1)[places]
    levels = _quantiles(windows.T, 0.5)
    there = np.isfinite(levels)
    levels = levels[there]
    return np.asarray(flat - np.interp(np.arange(flat.size), places[there], levels))


def _profile(flat: _Floats, first: int, cycle: int) -> _Floats:
    """The median of each hour of the cycle and its two neighbours; an hour that was never measured
    lies between those that were."""
    medians = _quantiles(_by_place(flat, first, cycle), 0.5)
    at = np.flatnonzero(np.isfinite(medians))
    profile = np.interp(np.arange(cycle), at, medians[at], period=cycle)
    return np.asarray(profile - np.median(profile))


def _by_place(series: _Floats, first: int, cycle: int) -> _Floats:
    """A column for each hour of the cycle: all its values, and those of its neighbours."""
    hours = np.arange(series.size) + first
    rounds = hours // cycle
    table = np.full((rounds[-1] - rounds[0] + 1, cycle), math.nan)
    table[rounds - rounds[0], hours % cycle] = series
    return np.concatenate([np.roll(table, -1, axis=1), table, np.roll(table, 1, axis=1)])


def _quantiles(table: _Floats, share: float) -> _Floats:
    """Of each column, without what is not known, straight from one value to the next; NaN where
    nothing is known. (numpy's own for this is a hundred times slower on tables of this size.)"""
    ordered = np.sort(table, axis=0)  # what is not a number comes last
    known = np.isfinite(table).sum(axis=0)
    columns = np.arange(table.shape[1])
    place = share * np.maximum(known - 1, 0)
    low = np.floor(place).astype(int)
    below = ordered[low, columns]
    above = ordered[np.minimum(low + 1, np.maximum(known - 1, 0)), columns]
    return np.asarray(np.where(known > 0, below + (place - low) * (above - below), math.nan))


def _spreads(rest: _Floats) -> _Floats:
    """The standard deviation of each column about nothing, by the 90th percentile: of normal values
    the same, and heavy tails count."""
    return np.nan_to_num(_quantiles(np.abs(rest), 0.9)) / 1.645


def _spread(rest: _Floats) -> float:
    """The same of all values together."""
    return float(_spreads(rest.reshape(-1, 1))[0])
