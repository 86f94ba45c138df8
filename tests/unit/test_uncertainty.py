"""How far off beliefs may be, and the worlds drawn from that."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from site_world import (
    Measurements,
    estimate_of,
    inputs_of,
    job,
)

from site_selector.estimates.beliefs import Belief
from site_selector.estimates.believe import believe
from site_selector.estimates.uncertainty import (
    Uncertainty,
    relative_error,
    scenarios,
    uncertainty_of,
)
from site_selector.problem import NEVER_S, Problem, build_problem

KINDS = ("a", "a", "b")


def problem(measured: Measurements | None = None) -> Problem:
    return build_problem(*made(measured))


def made(measured: Measurements | None = None):  # type: ignore[no-untyped-def]
    inputs = inputs_of(
        [
            job("x", "a", ["f"], ["g"], sizes={"g": 1000}),
            job("y", "a", ["f"], ["h"], sizes={}),
            job("z", "b", ["g", "h"], ["i"], sizes={"i": 10}),
        ],
        {"mu": {"adon.queue_wait": "60 s"}, "tacc": {"adon.workers": 0}},
        {"f": ("mu", 100_000_000)},
        {"a": ["mu", "tacc"], "b": ["mu"]},
    )
    return inputs, believe(inputs, measured, now=1000.0)


@settings(max_examples=30)
@given(st.floats(0, 0.9), st.booleans(), st.integers(1, 20), st.integers(0, 1000))
def test_worlds_stay_within_the_errors_and_share_the_structure(
    error: float, random_waits: bool, count: int, seed: int
) -> None:
    base = problem()
    doubt = Uncertainty.everywhere(error, random_waits=random_waits)
    rng = np.random.default_rng(seed)
    for world in scenarios(base, KINDS, doubt, count, rng):
        assert world.parents is base.parents
        assert world.kept is base.kept
        low, high = 1 / (1 + error) - 1e-12, 1 / (1 - error) + 1e-12
        slower = world.compute_s[:2] / base.compute_s[:2]
        assert ((low <= slower) & (slower <= high)).all()
        assert slower[0] == pytest.approx(slower[1])  # one factor for all jobs of a kind at a site
        sizes = np.array(world.size) / np.array(base.size)
        assert ((low <= sizes) & (sizes <= high)).all()
        assert world.queue_s[1] == NEVER_S  # no workers is no guess
        if not random_waits:
            assert 60 * low <= world.queue_s[0] <= 60 * high
        # Faster links are faster in both ways of counting.
        ratio = world.seconds_per_byte[0, 1] / base.seconds_per_byte[0, 1]
        assert world.occupied_per_byte[0, 1] == pytest.approx(base.occupied_per_byte[0, 1] * ratio)


def test_random_waits_are_spread_as_an_exponential_is_and_evenly() -> None:
    doubt = Uncertainty.everywhere(0.5, random_waits=True)
    drawn = scenarios(problem(), KINDS, doubt, 100, np.random.default_rng(1))
    waits = sorted(world.queue_s[0] for world in drawn)
    assert np.mean(waits) == pytest.approx(60, rel=0.05)
    # A Latin hypercube has one wait in each hundredth.
    hundredths = [int(100 * (1 - np.exp(-wait / 60))) for wait in waits]
    assert hundredths == list(range(100))


def test_the_same_seed_draws_the_same_worlds() -> None:
    doubt = Uncertainty.everywhere(0.5)
    one, other = (scenarios(problem(), KINDS, doubt, 5, np.random.default_rng(3)) for _ in "ab")
    assert all((a.compute_s == b.compute_s).all() for a, b in zip(one, other, strict=True))
    assert [a.size for a in one] == [b.size for b in other]


def test_what_was_measured_is_known_better_than_what_was_written_down_or_assumed() -> None:
    measured, written = Belief(10.0, "archive", at=1000.0), Belief(10.0, "catalog")
    assumed = Belief(10.0, "default")
    errors = [relative_error(belief, 1000.0) for belief in (measured, written, assumed)]
    assert errors == sorted(errors)
    assert len(set(errors)) == 3
    wide = Belief(10.0, "archive", at=1000.0, spread=4.0)
    assert relative_error(wide, 1000.0) > relative_error(measured, 1000.0)
    old = relative_error(measured, 1000.0 + 30 * 86400)
    assert relative_error(measured, 1000.0) < old <= relative_error(written, 1000.0)


def test_uncertainty_follows_the_beliefs() -> None:
    measured = Measurements(
        {
            ("queue_wait", "mu"): estimate_of(60.0, spread=1.0, at=999.0),
            ("runtime", "t::a:1.0@mu"): estimate_of(10.0, spread=0.1, at=999.0),
        }
    )
    inputs, world = made(measured)
    found = uncertainty_of(inputs, world, build_problem(inputs, world))
    assert found.matters
    assert not found.random_wait[0]
    assert found.compute[0, 0] < found.compute[2, 0]
    guessed = build_problem(inputs, world).files.index("h")
    assert found.size[guessed] == max(found.size)
    inputs, world = made(None)
    assert uncertainty_of(inputs, world, build_problem(inputs, world)).random_wait[0]


@pytest.mark.parametrize("error", [-0.1, 1.0, float("nan")])
def test_errors_that_are_none(error: float) -> None:
    with pytest.raises(ValueError, match="expected 0 to below 1"):
        Uncertainty.everywhere(error)
    assert not Uncertainty.everywhere(0.0).matters
