"""What is normal for a series: its level, its noise, and its cycle, in bounded memory.

The summary window of plateau detection, made robust: medians instead of means, so that single
values far off change nothing; the cycle is taken off first; and how much neighbouring samples
follow each other counts as noise as well, because a mean of such samples is no better than of
fewer.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from statistics import median

import numpy as np
import numpy.typing as npt

LEAST, MOST = 24, 288  # samples of the summary window, a day's as far as possible
_MAD = 1.4826  # of normally distributed values the standard deviation over the median deviation
_MOST_IN_HOUR = 720  # one every five seconds: the median of more is no better
_MEDIAN = 1.57  # variance of a median over that of a mean, for normal values

HOUR_S = 3600.0
DAY_H, WEEK_H = 24, 168
KEEP_H = 4 * WEEK_H

_Floats = npt.NDArray[np.float64]


class Baseline:
    """Fed with samples that are old enough not to belong to an anomaly that just begins."""

    def __init__(self, floor: float) -> None:
        """``floor``: noise is never taken for less."""
        self._floor = floor
        # Arrays: there may be thousands of series. The summary window, in three columns,
        self._at, self._numbers, self._flats = array("d"), array("d"), array("d")
        # and the hours with their medians.
        self._hours, self._medians = array("q"), array("d")
        self._hour: int | None = None
        self._in_hour: list[float] = []
        self._hours_learnt = 0
        self._stale = 0
        self.season = Season()
        self.level = 0.0
        self.noise = math.inf
        self.follow = 0.0
        self.first: float | None = None
        self.measured = 0

    def add(self, at: float, number: float, period_s: float | None) -> None:
        """One sample. ``period_s``: how far apart samples are, which says how many make a day."""
        if self.first is None:
            self.first = at
        self.measured += 1
        self._count_hour(at, number)
        self._take(at, number)
        surplus = len(self._at) - _window_samples(period_s)
        if surplus > 0:
            for column in (self._at, self._numbers, self._flats):
                del column[:surplus]
        self._stale += 1
        if self._stale * 24 >= len(self._at):
            self._refresh()

    def expected(self, at: float) -> float:
        """The number that a moment should have."""
        return self.level + self.season.at(at)

    def own_noise(self, samples: int) -> float:
        """The standard deviation of a median of so many samples in a row, by their noise alone."""
        inflation = (1 + self.follow) / (1 - self.follow)
        return self.noise * math.sqrt(_MEDIAN * inflation / samples)

    def noise_of(self, samples: int, period_s: float | None, at: float) -> float:
        """How far a median of so many samples in a row, about ``at``, is off by itself (standard
        deviation): their own noise, what the level is not known to, and what the cycle does not
        explain."""
        single = self.own_noise(1) ** 2
        known = max(1, len(self._at))
        in_hour = max(1.0, HOUR_S / period_s) if period_s else 1.0
        misfit = max(0.0, self.season.misfit_at(at) ** 2 - single / in_hour)
        return math.sqrt(single / samples + single / known + misfit)

    def learnt_s(self, now: float) -> float:
        """Since when it learns."""
        return now - self.first if self.first is not None else 0.0

    def move(self, shift: float, samples: Sequence[tuple[float, float]]) -> None:
        """The level changed: all that was learnt holds at the new level. ``samples`` are those
        since then."""
        self._medians = array("d", [n + shift for n in self._medians])
        self._in_hour = []  # it has values of both
        self.level += shift
        for column in (self._at, self._numbers, self._flats):
            del column[:]
        for at, number in samples:
            self._count_hour(at, number)
            self._take(at, number)
        self._stale = 0

    @property
    def short(self) -> bool:
        """Whether the window has too few samples to do without the newest."""
        return len(self._at) < LEAST

    def _take(self, at: float, number: float) -> None:
        self._at.append(at)
        self._numbers.append(number)
        self._flats.append(number - self.season.at(at))

    def _refresh(self) -> None:
        self._stale = 0
        flats = self._flats
        self.level = median(flats)
        away = [flat - self.level for flat in flats]
        far = sorted(map(abs, away))
        # The larger of two: by the middle of the deviations, and by their 90th percentile, which
        # knows of a path that has two values and takes turns.
        noise = max(_MAD * far[len(far) // 2], far[int(0.9 * (len(far) - 1))] / 1.645)
        if len(flats) < LEAST and math.isfinite(self.noise):
            return  # after a change: the noise is what it was until there is enough to tell
        self.noise = max(noise, self._floor)
        self.follow = _follow(away, self.noise)

    def _count_hour(self, at: float, number: float) -> None:
        hour = int(at // HOUR_S)
        if self._hour is not None and hour < self._hour:
            return  # counted before the level moved
        if hour != self._hour:
            if self._in_hour and self._hour is not None:
                self._hours.append(self._hour)
                self._medians.append(median(self._in_hour))
                self._hours_learnt += 1
                while self._hours[0] <= self._hour - KEEP_H:
                    del self._hours[0], self._medians[0]
            self._in_hour = []
            self._hour = hour
            if self._hours and self._hours_learnt >= DAY_H // 2:
                self._hours_learnt = 0
                self._learn()
        if len(self._in_hour) < _MOST_IN_HOUR:
            self._in_hour.append(number)

    def _learn(self) -> None:
        self.season = learn(self._hours, self._medians)
        samples = zip(self._at, self._numbers, strict=True)
        self._flats = array("d", [number - self.season.at(at) for at, number in samples])
        if self._flats:
            self._refresh()


def _window_samples(period_s: float | None) -> int:
    if period_s is None:
        return LEAST
    return int(min(MOST, max(LEAST, 86_400.0 / period_s)))


def _follow(away: Sequence[float], noise: float) -> float:
    """How much a sample follows the one before, 0 to 0.9; values far off are cut to three times the
    noise."""
    cut = np.clip(np.asarray(away), -3 * noise, 3 * noise)
    if cut.size < LEAST:
        return 0.0
    power = float(np.dot(cut, cut))
    return min(0.9, max(0.0, float(np.dot(cut[1:], cut[:-1])) / power)) if power > 0 else 0.0


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
        before, after = profile[whole % size], profile[(whole + 1) % size]
        return before + part * (after - before)

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
    is_known = np.isfinite(levels)
    levels = levels[is_known]
    return np.asarray(flat - np.interp(np.arange(flat.size), places[is_known], levels))


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
