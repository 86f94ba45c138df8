"""Plateau detection on one series: what it reports, once, and what it does not."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitors.alerts.anomalies.baseline import DAY_H, HOUR_S, KEEP_H, learn
from monitors.alerts.anomalies.detector import TRIGGER, Detector
from monitors.alerts.anomalies.model import Anomaly
from monitors.alerts.anomalies.settings import Sensitivity
from tests.bench.anomaly_paths import EPOCH, path
from tests.bench.anomaly_scores import Score
from tests.bench.bench_p8_anomalies import notice

DAY_S = 86_400.0
PERIOD_S = 600.0
T0 = 1_700_000_000.0 - 1_700_000_000.0 % DAY_S
Shape = Callable[[float], float]
Samples = Sequence[tuple[float, float]]


def samples(shape: Shape, days: float, noise: float = 0.02, seed: int = 1) -> Samples:
    """One value every ten minutes, with noise of a normal distribution on the logarithm."""
    draw = random.Random(seed)
    count = int(days * DAY_S / PERIOD_S)
    times = [T0 + n * PERIOD_S for n in range(count)]
    return [(at, shape((at - T0) / DAY_S) * math.exp(draw.gauss(0, noise))) for at in times]


def told(series: Samples, metric: str = "tcp_throughput", **changes: float) -> list[Anomaly]:
    """Everything a detector says."""
    detector = Detector(metric, "mu>tacc", Sensitivity(**changes))  # type: ignore[arg-type]
    return [anomaly for at, value in series for anomaly in detector.add(at, value)]


def step(day: float, before: float, after: float) -> Shape:
    return lambda now: before if now < day else after


@pytest.mark.parametrize(
    ("metric", "before", "after"),
    [("tcp_throughput", 9e8, 6e8), ("tcp_throughput", 9e8, 1.2e9), ("rtt", 0.05, 0.08)],
)
def test_a_change_of_level_is_told_once(metric: str, before: float, after: float) -> None:
    (anomaly,) = told(samples(step(7.5, before, after), 15), metric)
    assert (anomaly.kind, anomaly.until) == ("level", None)
    assert anomaly.since == T0 + 7.5 * DAY_S
    assert (
        anomaly.noticed == anomaly.since + 3 * PERIOD_S
    )  # the last five, of which four are beyond
    assert anomaly.before == pytest.approx(before, rel=0.03)
    assert anomaly.after == pytest.approx(after, rel=0.05)
    assert anomaly.change == pytest.approx(after / before - 1, abs=0.05)
    assert anomaly.confidence > 0.95
    assert anomaly.id == f"anomaly:{metric}:mu>tacc:{int(anomaly.since)}"
    assert "median of 4 measurements" in anomaly.why


def test_what_comes_back_soon_was_a_dip() -> None:
    begun, ended = told(
        samples(lambda day: 4e8 if 9.5 <= day < 9.6 else 9e8, 12)
    )  # 2 h 24 min, 15 samples
    assert (begun.kind, begun.until) == ("level", None)  # nobody could know
    assert (ended.kind, ended.id) == ("dip", begun.id)
    assert ended.until == pytest.approx(T0 + 9.6 * DAY_S, abs=PERIOD_S)
    assert ended.why.endswith("it was back after 2 h")


def test_what_comes_back_late_is_two_changes_of_level() -> None:
    down, up = told(samples(lambda day: 4e8 if 8 <= day < 10 else 9e8, 14))
    assert [down.kind, up.kind] == ["level", "level"]
    assert up.change > 0 > down.change
    assert up.until is None


def test_one_change_after_the_other() -> None:
    down, further = told(samples(lambda day: 9e8 if day < 8 else 6e8 if day < 8.2 else 3e8, 11))
    assert (down.kind, further.kind) == ("level", "level")
    assert further.before == pytest.approx(6e8, rel=0.1)


def test_an_outage_that_nobody_watched_is_found_afterwards_under_the_same_id() -> None:
    before = samples(lambda _: 0.05, 2)
    later = [(at + 3 * DAY_S, value) for at, value in before]
    begun, ended = told([*before, *later], "rtt")
    assert begun.id == ended.id == f"anomaly:rtt:mu>tacc:{int(before[-1][0])}"
    assert (begun.until, ended.until) == (None, later[0][0])


def test_transfers_that_come_when_they_come_are_never_missing() -> None:
    draw = random.Random(3)
    at, irregular = T0, []
    for _ in range(400):
        at += draw.expovariate(1 / 3600)
        irregular.append((at, 5e8 * math.exp(draw.gauss(0, 0.1))))
    assert told(irregular, "throughput") == []


@pytest.mark.parametrize(("metric", "dead"), [("tcp_throughput", 0.0), ("loss", 1.0)])
def test_measurements_that_say_that_nothing_gets_through(metric: str, dead: float) -> None:
    alive = 1e9 if metric == "tcp_throughput" else 0.0
    times = [T0 + n * PERIOD_S for n in range(60)]
    values = [(at, dead if 20 <= n < 40 else alive) for n, at in enumerate(times)]
    begun, ended = told(values, metric)
    assert (begun.kind, begun.since, begun.noticed) == ("outage", times[20], times[24])
    assert ended.until == times[40]


def test_loss_is_compared_by_difference() -> None:
    draw = random.Random(5)

    def lossy(day: float) -> float:
        return (0.02 if day >= 8 else 0.0) + (0.001 if draw.random() < 0.1 else 0.0)

    times = [T0 + n * PERIOD_S for n in range(int(12 * DAY_S / PERIOD_S))]
    (anomaly,) = told([(at, lossy((at - T0) / DAY_S)) for at in times], "loss", min_change=0.01)
    assert (anomaly.kind, anomaly.before) == ("level", pytest.approx(0, abs=1e-9))
    assert anomaly.change == pytest.approx(0.02, abs=0.002)
    assert "2 points higher" in anomaly.why


def cycle(depth: float) -> Shape:
    """Busy at three in the afternoon, less so on weekends."""

    def shape(day: float) -> float:
        weekday = (math.floor(day) + math.floor(T0 / DAY_S) + 3) % 7
        part = 0.4 if weekday >= 5 else 1.0
        return 9e8 * math.exp(-depth * part * (0.5 + 0.5 * math.cos(2 * math.pi * (day - 0.625))))

    return shape


@pytest.mark.parametrize("depth", [0.1, 0.3, 0.6])
def test_a_daily_cycle_is_no_anomaly(depth: float) -> None:
    assert told(samples(cycle(depth), 40)) == []


def test_a_slow_drift_is_no_anomaly() -> None:
    assert told(samples(lambda day: 9e8 * math.exp(-0.02 * day), 40)) == []


def test_single_values_far_off_are_no_anomaly() -> None:
    draw = random.Random(7)
    rough = [
        (at, value * (draw.paretovariate(1.2) if draw.random() < 0.1 else 1))
        for at, value in samples(lambda _: 0.05, 40)
    ]
    assert told(rough, "rtt") == []


def test_changes_show_through_a_cycle() -> None:
    shape = cycle(0.4)
    (anomaly,) = told(samples(lambda day: shape(day) * (0.7 if day >= 20.3 else 1), 24))
    assert anomaly.since == pytest.approx(T0 + 20.3 * DAY_S, abs=2 * PERIOD_S)
    assert anomaly.change == pytest.approx(-0.3, abs=0.05)
    assert "cycle" in anomaly.why


def test_nothing_is_said_of_levels_before_anything_was_learnt() -> None:
    assert told(samples(step(1.0, 9e8, 3e8), 2.9)) == []


def test_the_more_noise_the_larger_a_change_must_be() -> None:
    small = step(8, 1e9, 0.83e9)
    assert len(told(samples(small, 12, noise=0.01))) == 1
    assert told(samples(small, 12, noise=0.3)) == []


# ---------------------------------------------------------------- properties


def test_the_scale_of_values_does_not_matter() -> None:
    for seed in (1, 2):
        series = path(seed)
        values = list(zip(series.at, series.values, strict=True))
        plain = told(values, "rtt")
        thousand = told([(at, 1000 * value) for at, value in values], "rtt")
        assert [a.id for a in plain] == [a.id for a in thousand]


def test_seeing_a_measurement_again_or_an_older_one_changes_nothing() -> None:
    series = path(2)
    values = list(zip(series.at, series.values, strict=True))
    again = [sample for pair in pairwise(values) for sample in (*pair, pair[0])]
    assert told([*again], "rtt") == told(values, "rtt")


Value = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from([0.0, 1.0, 1e9])


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(st.floats(0, 20_000) | st.just(1e9), Value), max_size=300),
    st.sampled_from(["tcp_throughput", "rtt", "loss", "custom:anything"]),
)
def test_any_values_at_any_times_are_taken(steps: Samples, metric: str) -> None:
    detector = Detector(metric, "a>b", Sensitivity(learn_s=3600.0, samples=2))
    at, open_ids = EPOCH, set()
    for wait, value in steps:
        at += wait
        for anomaly in [*detector.tick(at), *detector.add(at, value)]:
            assert anomaly.since <= at
            assert 0 <= anomaly.confidence <= 1
            if anomaly.until is None:
                assert anomaly.id not in open_ids
                open_ids.add(anomaly.id)
            else:
                assert anomaly.id in open_ids
    detector.limits(at)


def test_memory_is_bounded() -> None:
    detector = Detector("rtt", "a>b")
    for at, value in samples(lambda _: 0.05, 60):
        detector.add(at, value)
    baseline = detector._baseline
    assert len(detector._recent) <= TRIGGER + 12
    assert len(baseline._at) == len(baseline._numbers) == len(baseline._flats) <= 288
    assert len(baseline._hours) == len(baseline._medians) == KEEP_H


def test_of_known_events_nearly_all_are_told_and_little_else() -> None:
    tally = Score()
    for seed in range(1000, 1012):  # of those that were tuned on
        series = path(seed)
        tally.count(series, [first.noticed for first, _ in notice(series)])
    assert tally.events >= 10
    assert tally.recall >= 0.95
    assert tally.false_per_month < 1


def test_the_cycle_that_there_is_is_found() -> None:
    def wave(hour: int) -> float:
        return 0.2 * math.sin(2 * math.pi * hour / DAY_H)

    hours = range(21 * DAY_H)
    season = learn(hours, [5 + 0.001 * hour + wave(hour) for hour in hours])
    for hour in range(DAY_H):
        middle = (hour + 0.5) * HOUR_S
        assert season.at(middle) == pytest.approx(wave(hour), abs=0.03)
    assert season.spread == pytest.approx(0.4, abs=0.05)
