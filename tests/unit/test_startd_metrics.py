"""Host metrics: what is read, and what becomes of two readings."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from condor_plugins import startd_metrics
from condor_plugins.startd_metrics import (
    attributes,
    load_state,
    parse_cpu,
    parse_interface,
    render,
)

counters = st.fixed_dictionaries(
    {"at": st.floats(1, 1e10)},
    optional={
        "cpu_total": st.floats(0, 1e12),
        "cpu_iowait": st.floats(0, 1e12),
        "rx_bytes": st.floats(0, 1e15),
        "tx_bytes": st.floats(0, 1e15),
        "load": st.floats(0, 1e4),
    },
)


@given(counters, counters)
def test_any_two_readings_give_possible_values(
    before: dict[str, float], now: dict[str, float]
) -> None:
    found = attributes(before, now)
    assert 0.0 <= found.get("AdonIoWait", 0.0) <= 1.0
    assert min(found.get("AdonNetRxBps", 0.0), found.get("AdonNetTxBps", 0.0)) >= 0.0
    assert found["AdonMetricsAt"] == now["at"]
    if now["at"] <= before["at"]:
        assert "AdonNetRxBps" not in found


@given(st.floats(1, 1e6), st.integers(0, 10**12), st.integers(0, 10**12))
def test_rates_are_bits_per_second(seconds: float, rx: int, tx: int) -> None:
    before = {"at": 1000.0, "rx_bytes": 7.0, "tx_bytes": 9.0}
    now = {"at": 1000.0 + seconds, "rx_bytes": 7.0 + rx, "tx_bytes": 9.0 + tx}
    found = attributes(before, now)
    elapsed = now["at"] - before["at"]
    assert found["AdonNetRxBps"] == 8 * rx / elapsed
    assert found["AdonNetTxBps"] == 8 * tx / elapsed


def test_the_first_reading_gives_no_rates() -> None:
    assert attributes({}, {"at": 5.0, "load": 0.5, "rx_bytes": 1.0}) == {
        "AdonLoad": 0.5,
        "AdonMetricsAt": 5.0,
    }


def test_a_counter_that_began_anew_gives_no_rate() -> None:
    before, now = {"at": 1.0, "rx_bytes": 100.0}, {"at": 2.0, "rx_bytes": 10.0}
    assert "AdonNetRxBps" not in attributes(before, now)


@given(st.lists(st.integers(0, 10**9), min_size=8, max_size=10))
def test_io_wait_is_a_share_of_all_ticks(ticks: list[int]) -> None:
    found = parse_cpu("intr 1 2\ncpu  " + " ".join(map(str, ticks)) + "\ncpu0 1 1 1 1 1 1 1 1\n")
    assert found == {"cpu_total": float(sum(ticks[:8])), "cpu_iowait": float(ticks[4])}


@given(st.integers(0, 2**63), st.integers(0, 2**63))
def test_an_interface_is_found_by_its_whole_name(rx: int, tx: int) -> None:
    text = (
        "Inter-|   Receive   |  Transmit\n face |bytes packets|bytes packets\n"
        "   adp0: 1 0 0 0 0 0 0 0 2 0 0 0 0 0 0 0\n"
        f"  dp0:{rx} 9 0 0 0 0 0 0 {tx} 9 0 0 0 0 0 0\n"
    )
    assert parse_interface(text, "dp0") == {"rx_bytes": float(rx), "tx_bytes": float(tx)}
    assert parse_interface(text, "dp") == {}


@given(st.text())
def test_a_spoilt_state_is_no_state_and_never_an_error(text: str) -> None:
    assert all(isinstance(v, float) for v in load_state(text).values())


@settings(max_examples=25)
@given(counters)
def test_a_state_can_be_read_back(reading: dict[str, float]) -> None:
    assert load_state(json.dumps(reading)) == reading


@given(counters)
def test_every_line_is_a_classad_attribute_and_a_dash_ends_it(reading: dict[str, float]) -> None:
    *lines, end, last = render(reading).split("\n")
    assert (end, last) == ("-", "")
    assert {line.split(" = ")[0] for line in lines} == set(reading)
    assert all(float(line.split(" = ")[1]) >= 0 for line in lines)


def test_the_program_runs_alone_and_knows_more_the_second_time(tmp_path: Path) -> None:
    command = [sys.executable, "-I", "-S", startd_metrics.__file__, "lo", str(tmp_path / "state")]
    outputs = [
        subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in range(2)
    ]
    assert "AdonLoad = " in outputs[0]
    assert "AdonNetRxBps" not in outputs[0]
    assert "AdonNetRxBps = " in outputs[1]
    assert [p.name for p in tmp_path.iterdir()] == ["state"]


def test_wrong_arguments_are_told(tmp_path: Path) -> None:
    command = [sys.executable, "-I", "-S", startd_metrics.__file__]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 2
    assert "usage:" in done.stderr
