"""From what size on a circuit pays, and what is tried when it does not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from network_provisioner.selection.breakeven import (
    HOOK_S,
    REMEMBERED,
    BreakEven,
    SetupTimes,
    largest_small,
)

rates = st.floats(1e3, 1e12)
setups = st.floats(1e-3, 1e3)
sizes = st.integers(0, 10**15)


def test_by_hand() -> None:
    # 0.2 s + 8 S / 200 Mb/s < 8 S / 100 Mb/s  from  S = 0.2 / (80 ns - 40 ns) = 5 MB on.
    even = BreakEven(0.2, 200e6, 100e6)
    assert even.size_bytes == pytest.approx(5e6)
    assert not even.pays(4_999_000) and even.pays(5_001_000)
    assert even.explanation(1_000_000) == (
        "1 MB is below 5 MB, from where on a circuit pays off: 0.2 s of set-up and 0.04 s at "
        "200 Mb/s, against 0.08 s at 100 Mb/s (measured)"
    )


def test_what_nobody_measured_is_half_the_circuit() -> None:
    even = BreakEven(0.2, 200e6)
    assert even.size_bytes == pytest.approx(5e6)
    assert even.explanation(6_000_000).startswith("6 MB reaches 5 MB")
    assert "(taken for" in even.explanation(1)
    assert BreakEven(0.2, 200e6, 0.0).size_bytes == even.size_bytes


@given(setups, rates, rates, sizes)
def test_a_circuit_pays_where_it_is_sooner(
    setup_s: float, circuit: float, slow: float, size: int
) -> None:
    even = BreakEven(setup_s, circuit, slow)
    with_it, without = setup_s + 8 * size / circuit, 8 * size / slow
    if abs(with_it - without) <= 1e-9 * max(with_it, without):
        return
    sooner = with_it < without
    assert even.pays(size) == (sooner or size >= largest_small(setup_s, circuit))


@given(st.lists(st.floats(-1, 1e4), max_size=3 * REMEMBERED))
def test_setting_up_takes_what_the_latest_took(seconds: list[float]) -> None:
    times = SetupTimes()
    assert times.setup_s() == HOOK_S
    for duration_s in seconds:
        times.note(duration_s)
    latest = sorted(max(0.0, s) for s in seconds[-REMEMBERED:])
    if latest:
        assert HOOK_S + latest[0] <= times.setup_s() <= HOOK_S + latest[-1]
        below = sum(s <= times.setup_s() - HOOK_S + 1e-9 for s in latest)
        assert below >= len(latest) / 2
