"""Synthetic measurements of network paths with known anomalies: what detectors are measured with.

Nothing here knows any detector. A path has a base value, a daily cycle that is weaker on weekends
(in a time zone of its own, no day quite like another), a slow drift, noise with heavy tails that is
correlated from one sample to the next, single samples far off, and samples that are missing. Two
weeks without events come first; in the thirty days after them up to three things happen:

``level``   from one moment on all values are multiplied by a factor, until the end
``dip``     the same for at least :data:`DIP_SAMPLES` samples and at most 12 h
``outage``  no values for at least :data:`OUTAGE_SAMPLES` samples and at most 12 h

A level changes by 20 % or more and by three times the noise or more, a dip by 30 % and four times:
the noise is the standard deviation of the logarithm in its regular part, without tails and cycle.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

DAY_S = 86_400.0
LEAD_DAYS = 14
DAYS = 44
DIP_SAMPLES = 6
OUTAGE_SAMPLES = 8
APART_S = 2 * DAY_S  # from the end of one event to the start of the next, and to the end of all
EPOCH = 1_790_000_000.0 - 1_790_000_000.0 % DAY_S

Kind = Literal["level", "dip", "outage"]
Metric = Literal["tcp_throughput", "rtt"]


@dataclass(frozen=True)
class Event:
    """What happened, from ``start`` to ``end`` (Unix seconds). Values were multiplied by
    ``factor``; of an outage it is 0."""

    kind: Kind
    start: float
    end: float
    factor: float


@dataclass(frozen=True)
class Path:
    """All samples of a path in order of their times, and what happened on it."""

    metric: Metric
    period_s: float
    at: tuple[float, ...]
    values: tuple[float, ...]
    events: tuple[Event, ...]


def path(seed: int) -> Path:
    """The path of a seed, always the same."""
    rng = np.random.default_rng([seed, 20_100_817])
    metric: Metric = "tcp_throughput" if seed % 2 else "rtt"
    minutes = (10, 20, 30) if metric == "tcp_throughput" else (5, 10)
    period_s = 60.0 * float(rng.choice(minutes))
    count = int(DAYS * DAY_S / period_s)
    at = EPOCH + period_s * np.arange(count)
    noise = float(rng.uniform(0.02, 0.07))
    events = _events(rng, metric, period_s, noise)

    logs = _cycle(rng, at, metric) + _drift(rng, at) + _noise(rng, count, noise, metric)
    for event in events:
        if event.kind != "outage":
            logs[(at >= event.start) & (at < event.end)] += math.log(event.factor)
    base = math.exp(
        rng.uniform(math.log(1e8), math.log(1e10))
        if metric == "tcp_throughput"
        else rng.uniform(math.log(0.002), math.log(0.15))
    )
    kept = _kept(rng, at, period_s, events)
    times = at + rng.uniform(0, 0.2 * period_s, count)  # nobody measures at the very instant
    return Path(
        metric,
        period_s,
        tuple(times[kept].tolist()),
        tuple((base * np.exp(logs[kept])).tolist()),
        events,
    )


def _events(
    rng: np.random.Generator, metric: Metric, period_s: float, noise: float
) -> tuple[Event, ...]:
    events: list[Event] = []
    free = EPOCH + LEAD_DAYS * DAY_S
    end_of_all = EPOCH + DAYS * DAY_S
    count = int(rng.integers(0, 4))
    for number in range(count):
        room = end_of_all - APART_S - free
        if room < APART_S:
            break
        start = free + float(rng.uniform(0, room / (count - number)))
        kind: Kind = ("level", "dip", "outage")[int(rng.choice(3, p=(0.45, 0.35, 0.2)))]
        end, factor = end_of_all, 0.0
        if kind == "level":
            size = max(math.log(1.2), 3 * noise) + float(rng.exponential(0.25))
            up = bool(rng.random() < 0.5)
            # 20 % down is more than 20 % up on the logarithm's scale
            factor = math.exp(size) if up else min(0.8, math.exp(-size))
        else:
            least = (DIP_SAMPLES if kind == "dip" else OUTAGE_SAMPLES) * period_s
            end = start + math.exp(rng.uniform(math.log(least), math.log(12 * 3600)))
        if kind == "dip":
            size = max(-math.log(0.7), 4 * noise) + float(rng.exponential(0.3))
            # less throughput, more delay: a dip is for the worse
            factor = math.exp(-size if metric == "tcp_throughput" else size)
        events.append(Event(kind, start, end, factor))
        free = (end if kind != "level" else start) + APART_S
    return tuple(events)


def _cycle(rng: np.random.Generator, at: np.ndarray, metric: Metric) -> np.ndarray:
    """Busy hours: worse by up to 30 % at their peak on a usual day, one of two shapes, less on
    weekends."""
    depth = float(rng.uniform(0, 0.3))
    zone_s = 3600.0 * float(rng.integers(-10, 11))
    local = at + zone_s
    hour = local % DAY_S / 3600
    day = (local // DAY_S).astype(int) - int(local[0] // DAY_S)
    # no day is quite like another: its depth, and when its peak is
    depths = depth * np.exp(rng.normal(0, 0.25, day[-1] + 1))[day]
    peak = (float(rng.uniform(11, 20)) + rng.normal(0, 0.5, day[-1] + 1))[day]
    width = float(rng.uniform(2.5, 5))
    if rng.random() < 0.5:
        shape = 0.5 + 0.5 * np.cos(2 * np.pi * (hour - peak) / 24)
    else:
        away = np.minimum(np.abs(hour - peak), 24 - np.abs(hour - peak))
        shape = np.exp(-0.5 * (away / width) ** 4)
    # 1970-01-01 was a Thursday
    weekend = ((local // DAY_S + 3) % 7) >= 5
    shape = np.where(weekend, shape * float(rng.uniform(0.2, 1)), shape)
    worse = -1.0 if metric == "tcp_throughput" else 1.0
    return np.asarray(worse * depths * shape)


def _drift(rng: np.random.Generator, at: np.ndarray) -> np.ndarray:
    """Up to 1 % a day in one direction, and a slow walk of 0.5 % a day."""
    days = (at - at[0]) / DAY_S
    per_day = at.size / DAYS
    walk = np.cumsum(rng.normal(0, 0.005 / math.sqrt(per_day), at.size))
    return np.asarray(days * float(rng.uniform(-0.01, 0.01)) + walk)


def _noise(rng: np.random.Generator, count: int, size: float, metric: Metric) -> np.ndarray:
    """Correlated noise of a standard deviation, and single samples that are far off for the worse:
    Pareto-distributed, up to 5 % of all."""
    follow = float(rng.uniform(0, 0.5))
    fresh = rng.normal(0, 1, count) if rng.random() < 0.5 else rng.standard_t(3, count) / 1.5
    regular = np.empty(count)
    before = 0.0
    scale = math.sqrt(1 - follow**2)
    for n in range(count):
        before = follow * before + scale * fresh[n]
        regular[n] = before
    regular *= size
    hit = rng.random(count) < rng.uniform(0.0, 0.05)
    tail = np.minimum(rng.pareto(float(rng.uniform(1.2, 2.5)), count) * 3 * size, 3.0)
    worse = -1.0 if metric == "tcp_throughput" else 1.0
    return np.asarray(regular + worse * np.where(hit, tail, 0.0))


def _kept(
    rng: np.random.Generator, at: np.ndarray, period_s: float, events: tuple[Event, ...]
) -> np.ndarray:
    """Which samples there are: single ones are missing, and now and then two or three together."""
    kept = rng.random(at.size) >= rng.uniform(0, 0.03)
    for first in rng.integers(0, at.size - 3, int(rng.integers(0, 12))):
        kept[first : first + int(rng.integers(2, 4))] = False
    for event in events:
        if event.kind == "outage":
            kept &= (at < event.start) | (at >= event.end)
    return np.asarray(kept)
