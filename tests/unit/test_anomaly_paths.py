"""The synthetic paths that detectors are measured on, how they are scored, and that ours is good on
a few of them. The figures are those of ``make bench ONLY=P8``."""

from __future__ import annotations

import math

import pytest

from tests.anomaly_paths import (
    APART_S,
    DAY_S,
    DAYS,
    DIP_SAMPLES,
    EPOCH,
    LEAD_DAYS,
    OUTAGE_SAMPLES,
    Event,
    Path,
    path,
)
from tests.anomaly_peers import fixed, plateau, zscore
from tests.anomaly_scores import Score, limit_s, score
from tests.bench.bench_p8_anomalies import HELD_OUT, TRAINING, notice

SEEDS = range(1000, 1012)  # of those that were tuned on


@pytest.mark.parametrize("seed", range(40))
def test_paths_are_as_they_are_described(seed: int) -> None:
    one = path(seed)
    assert one == path(seed)
    assert list(one.at) == sorted(one.at)
    assert all(value > 0 and math.isfinite(value) for value in one.values)
    free = EPOCH + LEAD_DAYS * DAY_S
    for event in one.events:
        assert event.start >= free
        lasted = event.end - event.start
        free = APART_S + (event.start if event.kind == "level" else event.end)
        if event.kind == "level":
            assert event.end == EPOCH + DAYS * DAY_S
            assert event.factor <= 0.8 or event.factor >= 1.2
        elif event.kind == "dip":
            assert DIP_SAMPLES * one.period_s <= lasted <= 12 * 3600
            worse = event.factor if one.metric == "tcp_throughput" else 1 / event.factor
            assert worse <= 0.7 + 1e-9
        else:
            assert OUTAGE_SAMPLES * one.period_s <= lasted <= 12 * 3600
            assert not any(event.start <= at - 0.2 * one.period_s < event.end - one.period_s
                           for at in one.at)  # fmt: skip


def test_nobody_was_tuned_on_what_is_reported() -> None:
    assert not set(TRAINING) & set(HELD_OUT)


def made(*events: Event) -> Path:
    at = tuple(EPOCH + 600.0 * n for n in range(100))
    return Path("rtt", 600.0, at, (0.05,) * 100, events)


def test_each_event_takes_one_alarm_in_time() -> None:
    start = EPOCH + 20 * DAY_S
    one = made(Event("level", start, start + 9 * DAY_S, 2.0))
    limit = limit_s(one)
    assert limit == 6 * 3600
    for alarms, told, false in (
        ([], 0, 0),
        ([start], 1, 0),
        ([start - 600, start + 1], 1, 1),  # a second one about the same
        ([start + limit], 1, 0),
        ([start + limit + 1], 0, 1),  # late
        ([start - 601], 0, 1),  # before anything happened
    ):
        got = Score()
        got.count(one, alarms)
        assert (got.told, got.false, len(got.missed)) == (told, false, 1 - told)


def test_peers_notice_what_cannot_be_missed() -> None:
    values = [0.05 + 0.001 * (n % 7) for n in range(4000)]
    values[3000:] = [0.2 + value for value in values[3000:]]
    at = tuple(EPOCH + 600.0 * n for n in range(4000))
    start = at[3000]
    one = Path("rtt", 600.0, at, tuple(values), (Event("level", start, at[-1], 5.0),))
    for alarms in (fixed(0.5, 4), zscore(3, 4), plateau()):
        got = score(alarms, [one])
        assert (got.told, got.false) == (1, 0), alarms


def test_ours_on_some_paths() -> None:
    got = Score()
    for seed in SEEDS:
        one = path(seed)
        got.count(one, [first.at for first, _ in notice(one)])
    assert got.events >= 10
    assert got.recall >= 0.95
    assert got.false_per_month < 1
