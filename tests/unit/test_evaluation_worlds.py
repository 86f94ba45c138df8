"""Platforms, and what is believed of them."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from evaluation_rig import platform, random_platform, random_trace, task
from hypothesis import given
from hypothesis import strategies as st

from site_selector.evaluation.traces import build_trace
from site_selector.evaluation.worlds import (
    LINK_BPS,
    LONG_QUEUE_S,
    SPEED,
    WORKERS,
    draw_platform,
    draw_worlds,
    true_problem,
)


@given(st.integers(0, 10**9), st.integers(0, 10**4))
def test_platforms_are_as_wide_as_they_are_said_to_be(seed: int, number: int) -> None:
    found = draw_platform(seed, number)
    assert found == draw_platform(seed, number)
    n = len(found.sites)
    assert 2 <= n <= 8
    assert 0 <= found.store <= n
    assert len(found.link_bps) == len(found.places) == max(n, found.store + 1)
    assert all(WORKERS[0] <= workers <= WORKERS[1] for workers in found.workers)
    assert all(SPEED[0] <= speed <= SPEED[1] for speed in found.speed)
    assert all(0 <= wait <= LONG_QUEUE_S[1] for wait in found.queue_s)
    for a, row in enumerate(found.link_bps):
        for b, link in enumerate(row):
            assert link == found.link_bps[b][a]
            assert link == 0 if a == b else LINK_BPS[0] <= link <= LINK_BPS[1]


def test_a_problem_has_the_trace_scaled_to_the_sites() -> None:
    trace = build_trace("t", [task("a", 12, ["x"], ["y", "z"]), task("b", 3, ["y"])], {"x": 5.0})
    truth = true_problem(trace, platform([1, 2], link_mbps=8, speed=[1, 4], store=2))
    assert truth.compute_s.tolist() == [[12, 3], [3, 0.75]]
    assert truth.seconds_per_byte.tolist() == [[0, 1e-6, 1e-6], [1e-6, 0, 1e-6], [1e-6, 1e-6, 0]]
    files = {name: i for i, name in enumerate(truth.files)}
    assert truth.holders[files["x"]] == (2,)
    assert [truth.returns[files[name]] for name in "xyz"] == [False, False, True]
    assert truth.output == 2
    assert truth.places == ("s0", "s1", "store")


SEEDS = st.integers(0, 10**9)


@given(SEEDS, st.floats(0, 0.99))
def test_beliefs_are_off_by_no_more_than_said(seed: int, error: float) -> None:
    rng = Random(seed)
    trace = random_trace(rng)
    truth = true_problem(trace, random_platform(rng))
    exact, errors, waits, unknown = draw_worlds(truth, trace.kinds, error, rng)
    assert exact.truth is exact.believed is errors.truth is waits.truth is truth
    believed = waits.believed
    assert unknown.believed is believed
    assert errors.believed.queue_s is truth.queue_s
    assert errors.believed.compute_s is believed.compute_s

    def close(said: object, true: object) -> None:
        said, true = np.asarray(said, dtype=float), np.asarray(true, dtype=float)
        assert (said >= true * (1 - error) * (1 - 1e-9)).all()
        assert (said <= true * (1 + error) * (1 + 1e-9)).all()

    close(believed.compute_s, truth.compute_s)
    close(believed.size, truth.size)
    close(believed.queue_s, truth.queue_s)
    with np.errstate(invalid="ignore"):
        close(np.nan_to_num(truth.seconds_per_byte / believed.seconds_per_byte, nan=1.0), 1.0)
    for site in range(truth.n_sites):
        by_kind: dict[str, set[float]] = {}
        for job, kind in enumerate(trace.kinds):
            if truth.compute_s[job, site] > 0:
                factor = believed.compute_s[job, site] / truth.compute_s[job, site]
                by_kind.setdefault(kind, set()).add(round(float(factor), 9))
        assert all(len(factors) == 1 for factors in by_kind.values())
    assert unknown.truth.compute_s is truth.compute_s


def test_unknown_waits_are_exponential_about_what_is_believed() -> None:
    trace = build_trace("t", [task("a", 1)], {})
    truth = true_problem(trace, platform([1] * 8, queue_s=[100.0] * 8))
    drawn = []
    for seed in range(400):
        unknown = draw_worlds(truth, trace.kinds, 0.5, Random(seed))[3]
        drawn += list(unknown.truth.queue_s / unknown.believed.queue_s)
    assert np.mean(drawn) == pytest.approx(1, abs=0.06)
    assert np.mean(np.array(drawn) > 1) == pytest.approx(np.exp(-1), abs=0.03)
