"""What transfers are tuned to by what is known of their path."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from network_provisioner.templates.advice import (
    ONE_IN,
    STREAMS,
    HostTcp,
    PathFigures,
    TriedSetting,
    advise,
    varied_advice,
)

LARGE = HostTcp((4096, 131072, 16 << 20), (4096, 16384, 16 << 20), 1 << 24, 1 << 24)
WAN = PathFigures(200e6, 0.053, src=LARGE, dst=LARGE, measured=True)

hosts = st.none() | st.builds(
    HostTcp,
    st.tuples(st.just(4096), st.just(8192), st.integers(8192, 1 << 31)),
    st.tuples(st.just(4096), st.just(8192), st.integers(8192, 1 << 31)),
    st.integers(0, 1 << 31),
    st.integers(0, 1 << 31),
    st.sampled_from(("cubic", "reno", "bbr")),
)
paths = st.builds(
    PathFigures,
    st.floats(1e3, 1e12),
    st.floats(0, 10),
    st.floats(0, 0.999),
    hosts,
    hosts,
    st.floats(0, 1),
    st.floats(0, 1),
    st.lists(
        st.builds(
            TriedSetting, st.integers(1, 100), st.integers(0, 1 << 24), st.floats(1e3, 1e12),
            st.floats(0, 9),
        ),
        max_size=9,
    ).map(tuple),
)  # fmt: skip
settings = st.tuples(st.sampled_from(STREAMS), st.integers(0, 1 << 26))


def tried(setting: tuple[int, int], share: float, times: int = 3) -> tuple[TriedSetting, ...]:
    return (TriedSetting(*setting, WAN.rate_bps, share),) * times


@given(paths, st.none() | st.integers(1, 10**15), st.text(max_size=9))
def test_advice_stays_within_bounds(path: PathFigures, size: int | None, name: str) -> None:
    for advice in (first := advise(path, size), varied_advice(first, path, name)):
        assert 1 <= advice.streams <= 100 and advice.buffer_bytes >= 0
        assert 0 <= advice.expected_bps <= path.rate_bps * (1 + 1e-9)
        assert advice.bottleneck in ("disk", "host", "window", "path")
        assert advice.why and advice.why.isprintable()
    if not path.tried:
        assert advice.buffer_bytes <= path.largest_buffer


@given(paths, settings, st.floats(1, 100))
def test_loss_and_small_windows_never_help(
    path: PathFigures, setting: tuple[int, int], times: float
) -> None:
    lossless = replace(path, loss=path.loss / times)
    assert path.expected_bps(*setting) <= lossless.expected_bps(*setting) * (1 + 1e-9)
    host = path.dst or HostTcp()
    small = replace(path, dst=replace(host, rmem=(4096, 8192, int(host.rmem[2] / times))))
    least = small.window(0) * 8 / path.rtt_s if path.rtt_s else math.inf
    assert small.expected_bps(1, 0) <= least * (1 + 1e-9)


def test_the_peak_of_the_sos_thesis() -> None:
    """Table 4.3.1: 10 Gb/s and 53 ms, buffers of 16 MiB: four streams, and more are slower."""
    path = replace(WAN, rate_bps=10e9)
    assert advise(path, 862 * 10**9).setting == (4, 1 << 24)
    best = path.seconds((4, 1 << 24), 862 * 10**9)
    assert all(path.seconds((n, 1 << 24), 862 * 10**9) > best for n in STREAMS if n not in (4, 6))


def test_more_streams_past_the_peak_are_slower() -> None:
    times = [WAN.seconds((n, 0), 10**8) for n in STREAMS]
    peak = times.index(min(times))
    assert 0 < peak < len(STREAMS) - 1
    assert times[peak:] == sorted(times[peak:])


@pytest.mark.parametrize(
    ("path", "size", "bottleneck"),
    [
        (WAN, 10**8, "path"),
        (replace(WAN, rate_bps=1e12), 10**12, "window"),
        (replace(WAN, loss=0.05), 10**9, "path"),
        (replace(WAN, io_wait=0.95), 10**9, "disk"),
        (replace(WAN, cpu_use=0.95), 10**9, "host"),
        (replace(WAN, tried=tried(advise(WAN).setting, 0.5)), None, "host"),
    ],
)
def test_the_bottleneck_has_a_name(path: PathFigures, size: int | None, bottleneck: str) -> None:
    assert advise(path, size).bottleneck == bottleneck


def test_limits_in_the_way_come_with_their_remedy() -> None:
    assert advise(WAN).limits == ()
    small = replace(LARGE, rmem=(4096, 131072, 1 << 19), wmem=(4096, 16384, 1 << 20))
    assert advise(replace(WAN, src=small, dst=small, loss=1e-3)).limits == (
        "source: tcp_wmem allows 524 kB under way: "
        'sysctl -w net.ipv4.tcp_wmem="4096 16384 4194304"',
        "destination: tcp_rmem allows 262 kB under way: "
        'sysctl -w net.ipv4.tcp_rmem="4096 131072 4194304"',
        "source: cubic slows down with each loss: sysctl -w net.ipv4.tcp_congestion_control=bbr",
    )


def test_what_transfers_reached_goes_before_the_model() -> None:
    usual, other = advise(WAN).setting, (16, 1 << 20)
    tuned_path = replace(WAN, tried=tried(usual, 0.7) + tried(other, 0.9))
    assert advise(tuned_path).setting == other
    assert advise(tuned_path).why.startswith("transfers so tuned reached 90%, with ")
    assert advise(tuned_path).expected_bps == pytest.approx(0.9 * WAN.rate_bps)
    few = replace(WAN, tried=tried(usual, 0.7) + tried(other, 0.9, 2))
    assert advise(few).setting == usual
    elsewhere = tuple(replace(trial, given_bps=1e6) for trial in tuned_path.tried)
    assert advise(replace(WAN, tried=elsewhere)).setting == usual


def test_few_vary_and_only_where_there_is_something_to_gain() -> None:
    usual = advise(WAN)
    names = [f"w:job{n}:0:mu-tacc" for n in range(1000)]

    def others(path: PathFigures) -> list[tuple[int, int]]:
        advice = advise(path)
        return [s for n in names if (s := varied_advice(advice, path, n).setting) != advice.setting]

    assert not others(WAN)  # nobody knows yet what the usual setting reaches
    assert not others(replace(WAN, tried=tried(usual.setting, 0.95)))
    short = replace(WAN, tried=tried(usual.setting, 0.6))
    assert 0 < len(others(short)) < 1.5 * len(names) / ONE_IN
    streams, size = usual.setting
    beside = {(streams * 2, size), (streams // 2, size), (streams, size * 2), (streams, size // 2)}
    seen: set[tuple[int, int]] = set()
    for _ in beside:  # each in its turn, and then no more
        now = others(replace(short, tried=short.tried + sum((tried(s, 0.6) for s in seen), ())))
        seen |= set(now)
    assert seen and seen <= beside
    assert not others(replace(short, tried=short.tried + sum((tried(s, 0.6) for s in seen), ())))
