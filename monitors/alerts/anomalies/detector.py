"""Adaptive plateau detection for one series of measurements, as they come, and its outages:
measurements that are missing, or that say that nothing gets through.

Plateau detection (McGregor and Braun, PAM 2000; OnTimeDetect, Calyam et al., MASCOTS 2010, the
thesis's [8]) compares new samples with the mean and deviation of a *summary window*; samples beyond
a first threshold go to a *trigger buffer*, and when that is full, a plateau is reported and
thresholds are elevated, so that it is reported once. Its adaptive form raises the sensitivity
factor with the variance of the newest samples.

The same parts are here, made robust: medians for means, the daily and weekly cycle taken off before
(:mod:`~.baseline`), the trigger buffer judged at several lengths by how far its
median is from the level in units of what such a median varies by anyway, and after a plateau the
level moves, with all that was learnt.

Memory is bounded, nothing is random, and nothing depends on when a sample arrives: the same samples
in the same order give the same anomalies.
"""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from monitors.alerts.anomalies.baseline import HOUR_S, LEAST, Baseline
from monitors.alerts.anomalies.model import (
    Anomaly,
    Scale,
    SeriesLimits,
    scale_of,
    why_dead,
    why_dip,
    why_level,
    why_missing,
)
from monitors.alerts.anomalies.settings import Sensitivity

TRIGGER = 24
"""Longest trigger buffer, in samples."""

_BEFORE = 12  # samples before it that are kept as well, to see whether there is a step
_STEP = 0.6  # share of the change that must be a step where it began: a cycle comes and goes slowly

_LENGTHS = (1, 1.25, 1.5, 2, 2.5, 3, 4, 5, 6)  # of the trigger buffer, times Sensitivity.samples
_BEYOND = 0.75  # share of the trigger buffer beyond the first threshold, which is half the second
_BACK = 0.4  # a level is back where it was when at most this share of the change is left
_SURE = 4.0  # and so many times the noise of the samples that say so

_GAPS = 33
_LEAST = 8
_REGULAR = 0.75  # so many of the gaps must be about the usual one


class Detector:
    """Watches one series: a metric of a subject."""

    def __init__(self, metric: str, subject: str, sensitivity: Sensitivity | None = None) -> None:
        self.metric, self.subject = metric, subject
        self.sensitivity = sensitivity or Sensitivity()
        self._scale: Scale = scale_of(metric)
        self._least_shift = self._scale.shift(self.sensitivity.min_change)
        self._rhythm = Rhythm()
        self._baseline = Baseline(self._scale.floor)
        self._outages = Outages(metric, subject, self.sensitivity, self._rhythm)
        self._recent: deque[tuple[float, float]] = deque()  # at, number
        self._measured = 0
        self._counted = 0  # so many of them, the oldest, the baseline has already
        self._moved: tuple[Anomaly, float, float] | None = None  # its shift, the level before
        lengths = (max(1, round(part * self.sensitivity.samples)) for part in _LENGTHS)
        self._lengths = sorted({min(TRIGGER, length) for length in lengths})
        self._thresholds: dict[tuple[int, int], float] = {}
        self._thresholds_age = 0

    def add(self, at: float, value: float) -> list[Anomaly]:
        """The next measurement. Returns what begins with it, and what ends with it: the same
        anomaly again, with ``until`` and its last ``kind``.

        A measurement that is not newer than the last one changes nothing.
        """
        if self._rhythm.last is not None and at <= self._rhythm.last:
            return []
        number = self._scale.of(value)
        anomalies = self._outages.add(at, number is not None, self._level_value(at))
        self._rhythm.add(at)
        if number is not None:
            anomalies += self._judge(at, number)
        return anomalies

    def tick(self, now: float, awake: float = -math.inf) -> list[Anomaly]:
        """Time passed, and perhaps measurements are missing. ``awake``: since when they could be
        taken."""
        return self._outages.tick(now, self._level_value(now), awake)

    def limits(self, now: float) -> SeriesLimits:
        """What a measurement at ``now`` would be judged by."""
        baseline, scale = self._baseline, self._scale
        samples = self._lengths[-1]
        threshold = self._threshold(samples, now)
        expected = baseline.expected(now)
        return SeriesLimits(
            at=now,
            expected=self._level_value(now),
            lower=scale.value(expected - threshold) if self._ready(now) else 0.0,
            upper=scale.value(expected + threshold) if self._ready(now) else 0.0,
            samples=samples,
            threshold=threshold,
            noise=baseline.noise if baseline.measured else 0.0,
            noise_factor=self.sensitivity.noise,
            min_change=self.sensitivity.min_change,
            cycle=baseline.season.spread,
            measured=self._measured,
            learnt_s=baseline.learnt_s(now),
            ready=self._ready(now),
            period_s=self._rhythm.period_s,
        )

    # ---------------------------------------------------------------- changes of level

    def _judge(self, at: float, number: float) -> list[Anomaly]:
        recent = self._recent
        recent.append((at, number))
        self._measured += 1
        if len(recent) > TRIGGER + _BEFORE:
            oldest = recent.popleft()
            if self._counted:
                self._counted -= 1
            else:
                self._learn(*oldest)
        if self._counted == len(recent) - 1 and self._baseline.short:
            self._learn(at, number)
            self._counted += 1
        if self._moved is not None and (back := self._returned(at)) is not None:
            return [back]
        away = number - self._baseline.expected(at)
        if abs(away) < self._least_shift / 2 or not self._ready(at):
            return []
        return self._triggered(at)

    def _ready(self, at: float) -> bool:
        baseline = self._baseline
        return baseline.measured >= LEAST and baseline.learnt_s(at) >= self.sensitivity.learn_s

    def _threshold(self, samples: int, at: float) -> float:
        """Second threshold, for a median of so many samples up to ``at``."""
        if self._thresholds_age > LEAST // 4:
            self._thresholds.clear()
            self._thresholds_age = 0
        key = samples, int(at // HOUR_S)
        known = self._thresholds.get(key)
        if known is None:
            noise = self._baseline.noise_of(samples, self._rhythm.period_s, at)
            known = max(self._least_shift, self.sensitivity.noise * noise)
            self._thresholds[key] = known
        return known

    def _triggered(self, at: float) -> list[Anomaly]:
        """What the newest samples say, by the shortest trigger buffer that says anything."""
        flats = [number - self._baseline.expected(when) for when, number in self._recent]
        for length in self._lengths:
            if length > len(flats):
                break
            newest = flats[-length:]
            shift = median(newest)
            threshold = self._threshold(length, at)
            if abs(shift) < threshold:
                continue
            beyond = sum(1 for flat in newest if flat * shift > 0 and abs(flat) > threshold / 2)
            if beyond >= _BEYOND * length:
                begin = _begin(flats, 1 if shift > 0 else -1, threshold, self._lengths[0])
                if begin is not None:
                    return [self._changed(at, begin, median(flats[begin:]), threshold)]
        return []

    def _changed(self, at: float, begin: int, shift: float, threshold: float) -> Anomaly:
        """A change was seen: the level moves."""
        baseline = self._baseline
        samples = list(self._recent)[begin:]
        since = samples[0][0]
        noise = baseline.noise_of(len(samples), self._rhythm.period_s, at)
        before = baseline.level
        expected = self._scale.value(baseline.expected(since))
        self._move(shift, samples)
        change = self._scale.change(shift)
        anomaly = Anomaly(
            self.metric, self.subject, "level", since, at, expected,
            self._scale.value(baseline.expected(since)), change, _confidence(shift, noise),
            why_level(self.metric, change, len(samples), abs(shift) / noise,
                      baseline.season.spread),
            limits=_limits(threshold, noise, self.sensitivity),
        )  # fmt: skip
        self._moved = (anomaly, shift, before)
        return anomaly

    def _move(self, shift: float, samples: list[tuple[float, float]]) -> None:
        """The level is another one with these samples, the newest ones."""
        for when, number in list(self._recent)[self._counted : -len(samples)]:
            self._learn(when, number)
        self._recent = deque(samples)
        self._counted = len(samples)
        self._baseline.move(shift, samples)
        self._thresholds.clear()

    def _learn(self, at: float, number: float) -> None:
        self._baseline.add(at, number, self._rhythm.period_s)
        self._thresholds_age += 1

    def _returned(self, at: float) -> Anomaly | None:
        """Where the newest samples are at the level before the last change, and it was not long
        ago: that change, as the dip it was. The level moves back."""
        assert self._moved is not None
        change, shift, level = self._moved
        soon = max(self.sensitivity.dip_within_s, TRIGGER * (self._rhythm.period_s or 0.0))
        if at - change.since > soon:
            self._moved = None
            return None
        baseline = self._baseline
        for length in self._lengths:
            if _SURE * baseline.own_noise(length) <= (1 - _BACK) * abs(shift):
                break
        else:
            return None
        newest = list(self._recent)[-length:]
        flats = [number - baseline.season.at(when) - level for when, number in newest]
        if len(newest) < length or abs(median(flats)) > _BACK * abs(shift):
            return None
        if abs(flats[-1]) > abs(flats[-1] - shift) or newest[0][0] <= change.since:
            return None
        until = next(w for (w, _), flat in zip(newest, flats, strict=True)
                     if abs(flat) < abs(flat - shift))  # fmt: skip
        back = [(when, number) for when, number in self._recent if when >= until]
        self._move(level - baseline.level, back)
        self._moved = None
        return replace(change, kind="dip", until=until, why=why_dip(change, until))

    def _level_value(self, at: float) -> float:
        baseline = self._baseline
        return self._scale.value(baseline.expected(at)) if baseline.measured else 0.0


def _onset(flats: Sequence[float], sign: int, drift: float) -> int:
    """Where the change began: from there on the sum of what is beyond the first threshold is
    largest (the CUSUM's estimate)."""
    sums = list(itertools.accumulate(sign * flat - drift for flat in reversed(flats)))
    best = max(range(len(sums)), key=lambda n: (sums[n], -n))
    return len(flats) - 1 - best


def _begin(flats: Sequence[float], sign: int, threshold: float, least: int) -> int | None:
    """Where a change of at least ``threshold`` began at once; None where it came slowly.

    That is its onset, unless something slow went before it in the same direction: then it is where
    the largest step is.
    """
    onset = _onset(flats, sign, threshold / 2)
    if _step(flats, onset, sign) >= _STEP * abs(median(flats[onset:])):
        return onset if abs(median(flats[onset:])) >= threshold else None
    places = range(onset + 1, len(flats) - math.ceil(_BEYOND * least) + 1)
    best = max(places, key=lambda place: _step(flats, place, sign), default=None)
    if best is None:
        return None
    needed = max(threshold, _STEP * abs(median(flats[best:])))
    return best if _step(flats, best, sign) >= needed else None


def _step(flats: Sequence[float], place: int, sign: int) -> float:
    """By how much the samples from a place on differ from those before; nothing where there are too
    few of these to say."""
    before = flats[max(0, place - _BEFORE // 2) : place]
    if len(before) < _BEFORE // 4:
        return 0.0
    return sign * (median(flats[place : place + _BEFORE // 2]) - median(before))


def _confidence(shift: float, noise: float) -> float:
    return max(0.0, 1 - (noise / shift) ** 2) if shift else 0.0


def _limits(threshold: float, noise: float, sensitivity: Sensitivity) -> dict[str, float]:
    return {
        "threshold": threshold,
        "noise": noise,
        "noise_factor": sensitivity.noise,
        "min_change": sensitivity.min_change,
    }


class Rhythm:
    """Learns the period from the times between measurements.

    Transfers come when they come; only what is measured regularly can be missing.
    """

    def __init__(self) -> None:
        self._gaps: deque[float] = deque(maxlen=_GAPS)
        self._news = 0
        self.last: float | None = None
        self.period_s: float | None = None
        """Usual seconds between two measurements, None where not yet known."""
        self.regular = False
        """Whether it is kept."""

    def add(self, at: float) -> None:
        """A measurement at ``at``, not before the last one."""
        if self.last is not None and at > self.last:
            self._gaps.append(at - self.last)
            self._news += 1
            if len(self._gaps) >= _LEAST and (self.period_s is None or self._news >= _LEAST):
                self._news = 0
                self._learn()
        self.last = at

    def missing(self, now: float, after: int, awake: float = -math.inf) -> bool:
        """Whether at ``now`` more than ``after`` measurements in a row are missing. ``awake``: what
        should have come before could not be taken, and says nothing."""
        if self.last is None or self.period_s is None or not self.regular:
            return False
        return now - max(self.last, awake) > (after + 1) * self.period_s

    def _learn(self) -> None:
        usual = median(self._gaps)
        near = sum(1 for gap in self._gaps if 0.5 * usual <= gap <= 1.5 * usual)
        self.period_s = usual
        self.regular = near >= _REGULAR * len(self._gaps)


class Outages:
    """Tells when one begins, once, and when it is over."""

    def __init__(self, metric: str, subject: str, sensitivity: Sensitivity, rhythm: Rhythm) -> None:
        """``rhythm`` is the series's own; it learns of a measurement after :meth:`add`."""
        self._metric, self._subject = metric, subject
        self._after = sensitivity.outage_after
        self._rhythm = rhythm
        self._open: Anomaly | None = None
        self._dead_since: float | None = None
        self._dead = 0

    def add(self, at: float, alive: bool, before: float) -> list[Anomaly]:
        """A measurement, and whether anything got through. ``before``: the level until then."""
        anomalies = self.tick(at, before)
        if not alive:
            self._dead += 1
            if self._dead_since is None:
                self._dead_since = at
            if self._open is None and self._dead >= self._after:
                why = why_dead(self._metric, self._dead)
                anomalies.append(self._begin(self._dead_since, at, before, why))
            return anomalies
        self._dead, self._dead_since = 0, None
        if self._open is not None:
            anomalies.append(replace(self._open, until=at))
            self._open = None
        return anomalies

    def tick(self, now: float, before: float, awake: float = -math.inf) -> list[Anomaly]:
        """Time passed without a measurement; ``awake``: see :meth:`Rhythm.missing`."""
        if self._open is not None or not self._rhythm.missing(now, self._after, awake):
            return []
        last, period_s = self._rhythm.last, self._rhythm.period_s
        assert last is not None
        assert period_s is not None
        return [self._begin(last, now, before, why_missing(period_s, self._after))]

    def _begin(self, since: float, now: float, before: float, why: str) -> Anomaly:
        self._open = Anomaly(
            self._metric, self._subject, "outage", since, now, before, None, -1.0, 1.0, why
        )
        return self._open
