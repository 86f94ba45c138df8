from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from network_provisioner.base import units
from network_provisioner.base.errors import InputError


@pytest.mark.parametrize(
    ("text", "bps"),
    [
        ("200 Mb/s", 200e6),
        ("200Mbps", 200e6),
        ("10 Gbit/s", 10e9),
        ("10G", 10e9),
        ("100GE", 100e9),
        ("100 GbE", 100e9),
        ("10 GigE", 10e9),
        ("9.41 Gbits/sec", 9.41e9),
        ("10gbit", 10e9),
        ("5 b/s", 5.0),
        ("1.5 kb/s", 1500.0),
        (64000, 64000.0),
        ("0", 0.0),
    ],
)
def test_rates(text: object, bps: float) -> None:
    assert units.parse_rate(text) == bps


@pytest.mark.parametrize(
    "text",
    [
        "200 MB/s",
        "200 MBps",
        "10 GB",
        "10E",
        "10 GiB/s",
        "OC-192",
        "fast",
        "-1 Mb/s",
        "1 Xb/s",
        None,
        True,
        "nan",
        "1e999",
    ],
)
def test_bad_rates_name_what_was_found(text: object) -> None:
    with pytest.raises(InputError) as caught:
        units.parse_rate(text, "capacity")
    assert "capacity" in str(caught.value)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize(
    ("text", "size"), [("1.5 GB", 1_500_000_000), ("64 KiB", 65536), (12, 12), ("3M", 3_000_000)]
)
def test_sizes(text: object, size: int) -> None:
    assert units.parse_size(text) == size


@pytest.mark.parametrize(
    ("text", "seconds"), [("53 ms", 0.053), ("2 min", 120.0), (3, 3.0), ("1 h", 3600.0)]
)
def test_durations(text: object, seconds: float) -> None:
    assert units.parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["1 fortnight", "x", "", "-2 s"])
def test_bad_durations(text: str) -> None:
    with pytest.raises(InputError):
        units.parse_duration(text)


@given(st.floats(min_value=1, max_value=1e15), st.floats(min_value=1, max_value=1e12))
def test_goodput_undoes_transfer_time(size: float, rate: float) -> None:
    assert units.goodput(size, units.transfer_time(size, rate)) == pytest.approx(rate)


@given(st.floats(min_value=0, max_value=1e15))
def test_bits_and_bytes(size: float) -> None:
    assert units.bytes_of(units.bits(size)) == size


def test_nothing_to_move_takes_no_time_and_no_rate_takes_for_ever() -> None:
    assert units.transfer_time(0, 0) == 0
    assert units.transfer_time(1, 0) == float("inf")
    assert units.goodput(1, 0) == 0


def test_formats_are_for_people() -> None:
    assert units.format_rate(200e6) == "200 Mb/s"
    assert units.format_size(1_500_000_000) == "1.5 GB"
    assert units.format_rate(999.9e6) == "1 Gb/s"


@pytest.mark.parametrize(
    ("text", "size"),
    [("0", 0), ("13500000", 13_500_000), ("9" * 18, 10**18 - 1), ("9" * 19, None), ("", None)]
    + [(text, None) for text in ("-1", "1.5", " 1", "1k", "٣", "9" * 5000)],
)
def test_sizes_in_digits_alone(text: str, size: int | None) -> None:
    assert units.whole_bytes(text) == size
