"""Algorithm 4 of the thesis: hand-computed cases, and what must hold for all values."""

from __future__ import annotations

import math

import numpy as np
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
from site_selector.cost import (
    compute_time,
    network_time,
    total_time,
    tuned_throughput,
)

amount = st.floats(0, 1e15)
rate = st.floats(1e-3, 1e12)
more = st.floats(1.0, 100.0)


def test_the_thesis_equation_by_hand() -> None:
    # 100 GB computed by 10 workers at 50 MB/s: 200 s. 10 GB at 200 Mb/s: 400 s. Queue: 60 s.
    terms = total_time(60, 100e9, 10, 50e6, 10e9, 1e9, 200e6)
    assert terms.compute == pytest.approx(200)
    assert terms.network == pytest.approx(400)
    assert terms.total == pytest.approx(660)


def test_local_without_resources_is_never_and_remote_wins() -> None:
    # Thesis §4.3: no local HPC resources, T_q infinite. Site 0 is local, site 1 remote.
    terms = total_time([0, 60], 1e9, [0, 10], 50e6, [0, 1e9], 1e9, 200e6)
    assert math.isinf(terms.total[0])
    assert terms.total[1] == pytest.approx(60 + 2 + 40)


def test_a_slower_site_wins_when_only_a_tenth_must_move() -> None:
    # Thesis §4.3: results are about a tenth of the raw data. 100 GB raw, 1 Gb/s: local computing at
    # a third of the speed sends 10 GB (80 s), remote first gets 100 GB (800 s).
    local, remote = total_time(0, 100e9, 1, [100e6, 300e6], [10e9, 100e9], 1e10, 1e9).total
    assert local == pytest.approx(1000 + 80)
    assert remote == pytest.approx(1000 / 3 + 800)
    assert local < remote


def test_shapes_broadcast_to_jobs_by_sites() -> None:
    jobs = np.array([[1e9], [2e9], [3e9]])
    terms = total_time([0, 1], jobs, [1, 2], 1e6, 0, 1, 1)
    assert terms.total.shape == (3, 2)
    assert terms.total[1].tolist() == [2000, 1001]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((200e6, 0.0, 4, 1e6), 200e6),  # no RTT: the link
        ((1e9, 0.053, 1, 65536), 65536 * 8 / 0.053),  # an untuned window: 9.9 Mb/s
        ((1e9, 0.053, 4, 65536), 4 * 65536 * 8 / 0.053),  # four streams
        ((200e6, 0.053, 4, 4 << 20), 200e6),  # tuned: the link again
        ((1e10, 0.1, 1, 1e9, 1e-4), 1460 * 8 / 0.1 * math.sqrt(1.5) / 0.01),  # loss: 14.3 Mb/s
    ],
)
def test_tuned_throughput(arguments: tuple[float, ...], expected: float) -> None:
    assert tuned_throughput(*arguments) == pytest.approx(expected)


def test_nothing_to_do_takes_no_time_even_at_no_rate() -> None:
    assert compute_time(0, 0, 0) == 0
    assert network_time(0, 0, 0) == 0
    assert math.isinf(network_time(1, 0, 1e9))


@given(amount, amount, rate, st.integers(1, 1000), rate, rate, amount, more)
def test_every_term_is_monotone(
    s_c: float, s_t: float, g_c: float, n: int, g_t: float, g_a: float, t_q: float, k: float
) -> None:
    base = total_time(t_q, s_c, n, g_c, s_t, g_t, g_a).total
    slack = 1e-9 * base
    assert total_time(t_q * k, s_c, n, g_c, s_t, g_t, g_a).total >= base - slack
    assert total_time(t_q, s_c * k, n, g_c, s_t, g_t, g_a).total >= base - slack
    assert total_time(t_q, s_c, n, g_c, s_t * k, g_t, g_a).total >= base - slack
    assert total_time(t_q, s_c, n * k, g_c, s_t, g_t, g_a).total <= base + slack
    assert total_time(t_q, s_c, n, g_c * k, s_t, g_t, g_a).total <= base + slack
    assert total_time(t_q, s_c, n, g_c, s_t, g_t * k, g_a * k).total <= base + slack


@given(amount, rate, rate)
def test_only_the_smaller_gamma_counts(s_t: float, g_t: float, g_a: float) -> None:
    low = min(g_t, g_a)
    assert network_time(s_t, g_t, g_a) == network_time(s_t, low, low)


@given(rate, st.floats(1e-6, 10), st.integers(1, 64), st.floats(1, 1e9), st.floats(0, 0.5), more)
def test_gamma_t_never_beats_the_link_and_grows_with_tuning(
    link: float, rtt: float, streams: int, buffer: float, loss: float, k: float
) -> None:
    base = tuned_throughput(link, rtt, streams, buffer, loss)
    slack = 1e-9 * base
    assert 0 < base <= link
    assert tuned_throughput(link, rtt, streams * k, buffer, loss) >= base - slack
    assert tuned_throughput(link, rtt, streams, buffer * k, loss) >= base - slack
    assert tuned_throughput(link, rtt * k, streams, buffer, loss) <= base + slack
    assert tuned_throughput(link, rtt, streams, buffer, loss / k) >= base - slack


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


def test_a_circuit_pays_for_ten_times_its_set_up_however_fast_best_effort_is() -> None:
    assert BreakEven(0.2, 200e6, 300e6).size_bytes == pytest.approx(50e6)  # 2 s at 25 MB/s


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
