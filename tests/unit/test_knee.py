"""The knee of goodput over bandwidth: found, followed, and nothing else taken for it."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from random import Random

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from network_provisioner.selection.knee import LOOK_UP, LOOKS, PROBES, Knee, KneeFinder, Probe

LEAST, MOST = 10e6, 1e9
Curve = Callable[[float], float]


def corner(knee: float) -> Curve:
    return lambda bps: min(bps, knee)


def smooth(limit: float, sharpness: float) -> Curve:
    return lambda bps: (bps**-sharpness + limit**-sharpness) ** (-1 / sharpness)


def knee_of(limit: float, sharpness: float, gain: float = 0.1) -> float:
    """By hand: where (1 + (b/D)^p)^(-1/p - 1) is the gain."""
    return limit * math.pow(math.pow(gain, -sharpness / (sharpness + 1)) - 1, 1 / sharpness)


def search(finder: KneeFinder, goodput: Curve, io_wait: float | None = None) -> int:
    """Probes until the finder is sure; how many."""
    for count in range(PROBES):
        if finder.sure:
            return count
        bps = finder.next_bps
        assert LEAST <= bps <= MOST
        finder.add(Probe(bps, goodput(bps), io_wait))
    assert finder.sure
    return PROBES


def found(finder: KneeFinder) -> Knee:
    assert finder.sure and finder.knee is not None
    return finder.knee


def at(finder: KneeFinder, goodput: Curve, periods: int) -> None:
    for _ in range(periods):
        finder.add(Probe(finder.next_bps, goodput(finder.next_bps)))


@settings(max_examples=6, deadline=None, phases=[Phase.generate])
@given(st.floats(20e6, 500e6))
def test_a_hard_corner(knee: float) -> None:
    finder = KneeFinder(LEAST, MOST)
    assert finder.knee is None and not finder.sure and finder.next_bps == MOST
    search(finder, corner(knee))
    knows = found(finder)
    assert knows.bps == pytest.approx(knee, rel=0.05)
    assert knows.low_bps <= knows.bps <= knows.high_bps
    assert knows.cause == "marginal gain"
    assert finder.next_bps == pytest.approx(1.02 * knows.bps)


@pytest.mark.parametrize("limit", [40e6, 100e6, 250e6])
@pytest.mark.parametrize("sharpness", [2.0, 4.0, 8.0])
def test_a_smooth_corner(limit: float, sharpness: float) -> None:
    finder = KneeFinder(LEAST, MOST)
    search(finder, smooth(limit, sharpness))
    assert found(finder).bps == pytest.approx(knee_of(limit, sharpness), rel=0.05)


@settings(max_examples=6, deadline=None, phases=[Phase.generate])
@given(st.floats(50e6, 500e6), st.floats(0.1, 1.0))
def test_goodput_that_falls_beyond(knee: float, slope: float) -> None:
    finder = KneeFinder(LEAST, MOST)
    search(finder, lambda bps: min(bps, knee) / (1 + slope * max(0.0, bps / knee - 1)))
    assert found(finder).bps == pytest.approx(knee, rel=0.05)


@pytest.mark.parametrize("share", [0.94, 0.96, 0.98])
def test_less_arrives_than_is_provisioned(share: float) -> None:
    finder = KneeFinder(LEAST, MOST)
    search(finder, lambda bps: share * corner(200e6)(bps))
    assert found(finder).bps == pytest.approx(200e6, rel=0.05)


def test_figure_5_of_the_montage_paper() -> None:
    # Four times as fast from 100 Mb/s to 2 Gb/s, 6 % more for 4 Gb/s: p = 0.9 or so.
    finder = KneeFinder(LEAST, 4e9)
    for _ in range(PROBES):
        finder.add(Probe(finder.next_bps, smooth(450e6, 1.0)(finder.next_bps)))
    assert found(finder).bps == pytest.approx(knee_of(450e6, 1.0), rel=0.05)


def test_more_always_helps() -> None:
    finder = KneeFinder(LEAST, MOST)
    assert search(finder, lambda bps: bps) <= PROBES
    assert finder.knee is None and finder.next_bps == MOST


def test_disks_that_are_waited_for_are_saturated() -> None:
    finder = KneeFinder(LEAST, MOST)
    search(finder, corner(200e6), io_wait=0.97)
    assert found(finder).cause == "I/O wait"
    assert found(finder).bps == pytest.approx(200e6, rel=0.05)
    finder = KneeFinder(LEAST, MOST)
    search(finder, corner(200e6), io_wait=0.2)
    assert found(finder).cause == "marginal gain"


def test_a_neighbour_comes_and_goes() -> None:
    finder = KneeFinder(LEAST, MOST)
    search(finder, corner(200e6))
    at(finder, corner(200e6), 5)
    at(finder, corner(120e6), 2)
    assert not finder.sure and finder.next_bps <= 200e6
    search(finder, corner(120e6))
    assert found(finder).bps == pytest.approx(120e6, rel=0.05)
    at(finder, corner(300e6), LOOKS[0])
    assert finder.next_bps == pytest.approx(LOOK_UP * 1.02 * 120e6, rel=0.05)
    at(finder, corner(300e6), 2)
    search(finder, corner(300e6))
    assert found(finder).bps == pytest.approx(300e6, rel=0.05)


def test_looks_up_ever_less_often() -> None:
    finder = KneeFinder(LEAST, MOST)
    search(finder, corner(200e6))
    looks = []
    for period in range(400):
        if finder.next_bps > 1.2 * found(finder).bps:
            looks.append(period)
        at(finder, corner(200e6), 1)
    assert [b - a for a, b in pairwise(looks)][:4] == [20, 40, 80, 80]


@pytest.mark.parametrize("pauses", [{1}, {0}, {3, 4}, {2, 5, 8}])
def test_pauses_between_files(pauses: set[int]) -> None:
    finder = KneeFinder(LEAST, MOST)
    period = 0
    while not finder.sure and period < 2 * PROBES:
        paused = 0.05 if period in pauses else 1.0
        finder.add(Probe(finder.next_bps, paused * corner(200e6)(finder.next_bps)))
        period += 1
    assert found(finder).bps == pytest.approx(200e6, rel=0.05)
    at(finder, lambda bps: 0.0, 20)
    at(finder, lambda bps: 1e6, 3)
    assert found(finder).bps == pytest.approx(200e6, rel=0.05)


def test_a_pause_that_persists_is_none() -> None:
    finder = KneeFinder(LEAST, MOST)
    search(finder, corner(500e6))
    at(finder, corner(50e6), 4)
    search(finder, corner(50e6))
    assert found(finder).bps == pytest.approx(50e6, rel=0.05)


@pytest.mark.parametrize("noise", [0.014, 0.035])
def test_noise(noise: float) -> None:
    """Most of the time it is found, and the interval says when it is not known so well."""
    rng = Random(1)
    near = within = 0
    for _ in range(6):
        knee = 10 ** rng.uniform(7.5, 8.5)
        finder = KneeFinder(LEAST, MOST)
        exact = corner(knee)
        search(finder, lambda bps: exact(bps) * rng.gauss(1, noise))  # noqa: B023
        knows = found(finder)
        near += abs(knows.bps / knee - 1) <= 0.05
        within += knows.low_bps / 1.01 <= knee <= knows.high_bps * 1.01
    assert near >= 3 and within >= 4


values = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True), st.floats(1e6, 2e9), st.just(0.0)
)


@settings(max_examples=15, deadline=None, phases=[Phase.generate])
@given(st.lists(st.tuples(values, values, st.none() | values), max_size=25))
def test_anything_may_come(garbage: list[tuple[float, float, float | None]]) -> None:
    finder = KneeFinder(LEAST, MOST)
    for values_ in garbage:
        finder.add(Probe(*values_))
        assert LEAST <= finder.next_bps <= MOST
        if finder.knee is not None:
            assert LEAST <= finder.knee.low_bps <= finder.knee.bps <= finder.knee.high_bps <= MOST
            assert math.isfinite(finder.knee.bps)
