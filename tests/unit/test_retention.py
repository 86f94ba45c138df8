"""Roll-ups and retention as values: what is merged is what would have been made of everything."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitors.archive.retention.horizons import (
    ACCURACY,
    DAY_S,
    HOUR_S,
    Keep,
    Point,
    Retention,
    Sketch,
    retention_from_dict,
    roll_up,
    start_of,
    wider_rollups,
)
from network_provisioner.base.errors import InputError

numbers = st.floats(-1e300, 1e300) | st.floats(-10, 10) | st.just(0.0)
points = st.lists(
    st.builds(
        Point,
        st.just("rtt"),
        st.sampled_from(("a>b", "b>a")),
        st.sampled_from(("s", "ms")),
        numbers,
        st.floats(0, 4.0 * DAY_S),
        st.sampled_from(("ping", "agent")),
    ),
    max_size=60,
)


def close(estimate: float, true: float) -> bool:
    return abs(estimate - true) <= ACCURACY * abs(true) * (1 + 1e-9) + 1e-300


@given(st.lists(numbers, min_size=1, max_size=100), st.floats(0, 1))
def test_a_quantile_is_within_one_percent_of_that_value(values: list[float], q: float) -> None:
    ordered = sorted(values)
    rank = math.floor(q * (len(ordered) - 1))
    assert close(Sketch.of(values).quantile(q), ordered[rank])


@given(st.lists(numbers), st.lists(numbers))
def test_sketches_add_up(some: list[float], others: list[float]) -> None:
    both = Sketch.of(some) + Sketch.of(others)
    assert both == Sketch.of(others + some)
    assert Sketch.loads(both.dumps()) == both
    assert sum(n for _, n in both.counts()) == len(some) + len(others)


@given(points)
def test_a_roll_up_says_what_was_in_its_time(sent: list[Point]) -> None:
    rollups = roll_up(sent, HOUR_S)
    assert sum(rollup.number for rollup in rollups) == len(sent)
    keys = [(rollup.metric, rollup.subject, rollup.unit, rollup.start) for rollup in rollups]
    assert keys == sorted(set(keys))
    for rollup in rollups:
        inside = [
            p
            for p in sent
            if (p.subject, p.unit, start_of(p.at, HOUR_S))
            == (rollup.subject, rollup.unit, rollup.start)
        ]
        values = sorted(p.value for p in inside)
        assert (rollup.low, rollup.high, rollup.number) == (values[0], values[-1], len(values))
        assert rollup.low <= rollup.mean <= rollup.high
        assert rollup.start <= rollup.first_at <= rollup.last_at < rollup.start + HOUR_S
        assert (rollup.first_at, rollup.last_at) == (
            min(p.at for p in inside), max(p.at for p in inside)
        )  # fmt: skip
        assert close(rollup.quantile(0.5), values[(len(values) - 1) // 2])
        assert (rollup.quantile(0), rollup.quantile(1)) == (rollup.low, rollup.high)


@given(points)
def test_days_of_hours_are_days_of_measurements(sent: list[Point]) -> None:
    of_hours, at_once = wider_rollups(roll_up(sent, HOUR_S), DAY_S), roll_up(sent, DAY_S)
    for rollup, expected in zip(of_hours, at_once, strict=True):
        assert (rollup.subject, rollup.unit, rollup.start, rollup.width_s, rollup.number) == (
            expected.subject, expected.unit, expected.start, DAY_S, expected.number
        )  # fmt: skip
        assert (rollup.low, rollup.high, rollup.first_at, rollup.last_at, rollup.sketch) == (
            expected.low, expected.high, expected.first_at, expected.last_at, expected.sketch
        )  # fmt: skip
        largest = max(abs(rollup.low), abs(rollup.high))
        assert math.isclose(rollup.mean, expected.mean, rel_tol=1e-6, abs_tol=1e-6 * largest)
    assert wider_rollups(of_hours, DAY_S) == of_hours


def test_sums_beyond_all_numbers_stay_numbers() -> None:
    sent = [Point("x", "s", "1", 1.7e308, float(n), "t") for n in range(10)]
    (rollup,) = roll_up(sent, HOUR_S)
    assert math.isfinite(rollup.total)
    assert rollup.mean == 1.7e308
    assert close(rollup.quantile(0.5), 1.7e308)


# ---------------------------------------------------------------- configuration


def test_without_a_word_everything_is_kept_for_ever() -> None:
    assert retention_from_dict({}) == Retention()
    assert retention_from_dict({}).of("rtt") == Keep(math.inf, math.inf, math.inf)


def test_what_an_entry_does_not_say_the_default_says() -> None:
    retention = retention_from_dict(
        {
            "default": {"raw": "90 d", "hourly": "2 y"},
            "custom:*": {"raw": "1 h", "hourly": 0, "daily": "forever"},
            "custom:depth": {"raw": "1 d"},
            "status": {"raw": "3 y"},
        }
    )
    year = 365.0 * DAY_S
    assert retention.of("rtt") == Keep(90.0 * DAY_S, 2 * year, math.inf)
    assert retention.of("custom:x") == Keep(HOUR_S, 0.0, math.inf)
    assert retention.of("custom:depth") == Keep(DAY_S, 2 * year, math.inf)
    assert retention.of("status") == Keep(3 * year, 3 * year, math.inf)
    assert retention.of("notice") == Keep()


def test_what_others_rely_on_stays_unless_it_is_named() -> None:
    retention = retention_from_dict({"*": {"raw": "1 d"}, "anomaly": {"raw": "2 d"}})
    assert retention.of("rtt").raw_s == DAY_S
    assert retention.of("notice") == retention.of("workflow") == Keep()
    assert retention.of("anomaly").raw_s == 2 * DAY_S


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"default": "90 d"}, "monitoring.retention.default: found '90 d', expected raw, hourly"),
        ({"rtt": {"row": "1 d"}}, "monitoring.retention.rtt: unknown key 'row', expected raw"),
        ({"defaults": {"raw": "1 d"}}, "unknown key 'defaults', did you mean 'default'"),
        ({"rtt": {"raw": "long"}}, "rtt.raw: found 'long', expected a time such as '90 d'"),
        ({"rtt": {"raw": "1 min"}}, "rtt.raw: found '1 min', expected an hour or more"),
    ],
)
def test_what_cannot_be_meant_is_told(section: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        retention_from_dict(section)
