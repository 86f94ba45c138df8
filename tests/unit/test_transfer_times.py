"""Set-up and rate of transfers, told apart."""

from __future__ import annotations

from random import Random

import pytest

from monitors.archive.transfers import TransferSample, transfer_times


def line(
    setup_s: float, rate_bps: float, sizes: list[float], noise: float = 0.0
) -> list[TransferSample]:
    rng = Random(1)
    return [
        TransferSample(size, (setup_s + size * 8 / rate_bps) * (1 + rng.uniform(-noise, noise)))
        for size in sizes
    ]


def test_hand_shakes_are_not_taken_for_a_slow_path() -> None:
    times = transfer_times(line(4.0, 200e6, [6e5, 7e5, 6e5, 5e6, 2e7, 9e6]))
    assert times is not None
    assert times.setup_s == pytest.approx(4.0)
    assert times.rate_bps == pytest.approx(200e6)
    assert times.spread == pytest.approx(0.0, abs=1e-9)


def test_a_few_that_stalled_change_little() -> None:
    sizes = [1e6 * (1 + n % 17) for n in range(60)]
    moved = line(3.0, 50e6, sizes, noise=0.05)
    for slow in range(0, 60, 9):
        moved[slow] = TransferSample(moved[slow].n_bytes, moved[slow].seconds * 10)
    times = transfer_times(moved)
    assert times is not None
    assert times.setup_s == pytest.approx(3.0, rel=0.15)
    assert times.rate_bps == pytest.approx(50e6, rel=0.15)


def test_the_newest_weigh_most() -> None:
    sizes = [1e6 * (1 + n % 7) for n in range(64)]
    times = transfer_times(line(1.0, 80e6, sizes) + line(1.0, 8e6, sizes))
    assert times is not None
    assert times.rate_bps == pytest.approx(80e6, rel=0.05)


@pytest.mark.parametrize(
    "moved",
    [
        [],
        line(2.0, 1e8, [1e6]),
        line(2.0, 1e8, [1e6, 1.2e6, 1.4e6, 1.1e6, 1.3e6]),
        [TransferSample(0.0, 1.0)] * 9,
    ],
)
def test_too_few_or_too_much_alike_tell_nothing(moved: list[TransferSample]) -> None:
    assert transfer_times(moved) is None


def test_larger_ones_that_took_no_longer_leave_a_rate_that_is_finite() -> None:
    times = transfer_times([TransferSample(size, 5.0) for size in (1e6, 2e6, 4e6, 8e6)])
    assert times is not None
    assert 0 < times.rate_bps < 1e12
    assert times.setup_s < 5.0
