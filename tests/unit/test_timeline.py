"""How many jobs ran and waited over time."""

from __future__ import annotations

import pytest
from dashboard_world import job, measured
from hypothesis import given
from hypothesis import strategies as st

from monitors.workflows.progress import Timeline, timeline


def test_bins_have_means_by_site() -> None:
    jobs = [
        job("w", "a", "k", "mu", 100.0, 50.0, submitted_at=100.0),
        job("w", "b", "k", "mu", 125.0, 75.0, submitted_at=100.0),
        job("w", "c", "k", "tacc", 150.0, 50.0, submitted_at=150.0),
        measured("job", "k@mu", 5.0, 120.0, started_at="soon"),  # anybody may record anything
    ]
    histogram = timeline(jobs, 2)
    assert (histogram.start, histogram.width_s, histogram.attempts) == (100.0, 50.0, 3)
    mu, tacc = histogram.sites
    assert (mu.site, mu.running, mu.waiting) == ("mu", [1.5, 1.0], [0.5, 0.0])
    assert (tacc.running, tacc.waiting) == ([0.0, 1.0], [0.0, 0.0])
    assert timeline([], 5) == Timeline()


@given(
    st.lists(st.tuples(st.floats(0, 1e4), st.floats(0, 1e3), st.floats(0, 1e3)), min_size=1),
    st.integers(1, 50),
)
def test_no_second_is_lost(spans: list[tuple[float, float, float]], bins: int) -> None:
    jobs = [
        job("w", str(n), "k", "mu", at + waited, ran, submitted_at=at)
        for n, (at, waited, ran) in enumerate(spans)
    ]
    histogram = timeline(jobs, bins)
    (mu,) = histogram.sites
    exact = {"abs": 0.002 * bins * histogram.width_s + 1e-6}
    assert sum(mu.running) * histogram.width_s == pytest.approx(sum(r for *_, r in spans), **exact)
    assert sum(mu.waiting) * histogram.width_s == pytest.approx(
        sum(w for _, w, _ in spans), **exact
    )
