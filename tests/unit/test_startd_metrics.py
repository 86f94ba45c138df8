"""HTCondor's daemons: what they measure, and what is cleared away in their folders."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import classad2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from waiting import until

from condor_plugins.jobs.sites import site_word
from condor_plugins.pool.cloud.startd import StartdCloud
from condor_plugins.pool.cloud.workerconfig import StartdSettings
from condor_plugins.pool.scaling import Flavour
from condor_plugins.startd import metrics
from condor_plugins.startd.metrics import (
    attributes,
    default_interface,
    load_state,
    parse_cpu,
    parse_disk,
    parse_interface,
    render,
    sustained,
)
from condor_plugins.startd.paths import available, data_seconds
from network_provisioner.base.errors import InputError


@pytest.fixture
def cloud(tmp_path: Path) -> StartdCloud:
    master = tmp_path / "condor/sbin/condor_master"
    master.parent.mkdir(parents=True)
    master.write_text("#!/bin/sh\n")
    master.chmod(0o755)
    flavours = [Flavour("small", 1, 512)]
    return StartdCloud(StartdSettings(tmp_path / "home", "c:1", flavours, tmp_path / "condor"))


@pytest.mark.parametrize("name", ["draft", "last-ended", "thesis"])
def test_folders_of_others_stay(cloud: StartdCloud, tmp_path: Path, name: str) -> None:
    theirs = tmp_path / "home" / name / "chapter-1"
    theirs.parent.mkdir(parents=True)
    theirs.write_text("once")
    cloud.check()
    cloud.start("small", "w1")

    def gone() -> bool:
        cloud.delete("w1")
        cloud.delete(name)
        names = [machine.name for machine in cloud.machines()]
        assert names in ([], ["w1"])
        return not names

    until(gone, "the machine's end")
    assert theirs.read_text() == "once"


def test_the_last_one_that_ended_is_kept_and_no_more(cloud: StartdCloud, tmp_path: Path) -> None:
    for name in ("w1", "w2"):
        cloud.start("small", name)
        (tmp_path / "home" / name / "mark").write_text(name)
        while cloud.machines():
            cloud.delete(name)
    assert (tmp_path / "home/last-ended/mark").read_text() == "w2"


counters = st.fixed_dictionaries(
    {"at": st.floats(1, 1e10)},
    optional={
        "cpu_total": st.floats(0, 1e12),
        "cpu_iowait": st.floats(0, 1e12),
        "rx_bytes": st.floats(0, 1e15),
        "tx_bytes": st.floats(0, 1e15),
        "written_bytes": st.floats(0, 1e15),
        "io_wait_sustained": st.floats(0, 1),
        "load": st.floats(0, 1e4),
    },
)


@given(counters, counters)
def test_any_two_readings_give_possible_values(
    before: dict[str, float], now: dict[str, float]
) -> None:
    ad = attributes(before, now)
    assert 0.0 <= ad.get("AdonIoWaitFraction", 0.0) <= 1.0
    assert ad.get("AdonIoWait") == ad.get("AdonIoWaitFraction")
    assert 0.0 <= sustained(before, now)["io_wait_sustained"] <= 1.0
    assert min(ad.get(f"Adon{rate}Bps", 0.0) for rate in ("NetRx", "NetTx", "DiskWrite")) >= 0.0
    assert ad["AdonMetricsAt"] == now["at"]
    if now["at"] <= before["at"]:
        assert "AdonNetRxBps" not in ad


@given(st.floats(1, 1e6), st.integers(0, 10**12), st.integers(0, 10**12))
def test_rates_are_bits_per_second(seconds: float, rx: int, tx: int) -> None:
    before = {"at": 1000.0, "rx_bytes": 7.0, "tx_bytes": 9.0}
    now = {"at": 1000.0 + seconds, "rx_bytes": 7.0 + rx, "tx_bytes": 9.0 + tx}
    ad = attributes(before, now)
    elapsed = now["at"] - before["at"]
    assert ad["AdonNetRxBps"] == 8 * rx / elapsed
    assert ad["AdonNetTxBps"] == 8 * tx / elapsed


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
    cpu_times = parse_cpu(
        "intr 1 2\ncpu  " + " ".join(map(str, ticks)) + "\ncpu0 1 1 1 1 1 1 1 1\n"
    )
    assert cpu_times == {"cpu_total": float(sum(ticks[:8])), "cpu_iowait": float(ticks[4])}


@given(st.integers(0, 2**63), st.integers(0, 2**63))
def test_an_interface_is_found_by_its_whole_name(rx: int, tx: int) -> None:
    text = (
        "Inter-|   Receive   |  Transmit\n face |bytes packets|bytes packets\n"
        "   adp0: 1 0 0 0 0 0 0 0 2 0 0 0 0 0 0 0\n"
        f"  dp0:{rx} 9 0 0 0 0 0 0 {tx} 9 0 0 0 0 0 0\n"
    )
    assert parse_interface(text, "dp0") == {"rx_bytes": float(rx), "tx_bytes": float(tx)}
    assert parse_interface(text, "dp") == {}


def test_a_disk_is_found_by_its_number() -> None:
    text = "  8  0 sda 5 0 7 9 5 0 8 9\n 254 0 vda 11 12 100 10 79 60 3 50 0 17 15 51 2 4 5 19\n"
    assert parse_disk(text, 254, 0) == {"read_bytes": 51200.0, "written_bytes": 1536.0}
    assert parse_disk(text, 0, 42) == {}  # a file system that is on none
    before, now = {"at": 10.0, "read_bytes": 0.0}, {"at": 12.0, "read_bytes": 51200.0}
    assert attributes(before, now)["AdonDiskReadBps"] == 8 * 51200 / 2


def test_the_default_routes_interface_is_found() -> None:
    text = (
        "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\n"
        "eth1\t0000000A\t00000000\t0001\t0\t0\t0\t000000FF\t0\n"
        "eth0\t00000000\t0100000A\t0003\t0\t0\t0\t00000000\t0\n"
    )
    assert default_interface(text) == "eth0"
    assert default_interface("Iface\n") == ""
    anything = "0" * 32
    ipv6 = (
        f"{anything} 00 {anything} 00 {anything} ffffffff 00000001 00000000 00200200       lo\n"
        f"{anything} 00 {anything} 00 fe800000000000000000000000000001 00000400 00000001 0 3 ens3\n"
    )
    assert default_interface("Iface\n", ipv6) == "ens3"
    assert default_interface(text, ipv6) == "eth0"


def test_sustained_io_wait_takes_minutes_to_rise_and_to_fall() -> None:
    reading: dict[str, float] = {"at": 0.0, "cpu_total": 0.0, "cpu_iowait": 0.0}
    seen = []
    for minute in range(1, 41):
        waited = reading["cpu_iowait"] + (100.0 if minute <= 20 else 0.0)
        now = {"at": 60.0 * minute, "cpu_total": 100.0 * minute, "cpu_iowait": waited}
        reading = {**now, **sustained(reading, now)}
        seen.append(attributes({}, reading)["AdonIoWaitSustainedFraction"])
    assert seen[0] < 0.2
    assert 0.6 < seen[4] < 0.7
    assert seen[19] > 0.95
    assert 0.3 < seen[24] < 0.4
    assert seen[39] < 0.05


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
    command = [sys.executable, "-I", "-S", metrics.__file__, "lo", str(tmp_path / "state")]
    outputs = [
        subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in range(2)
    ]
    assert "AdonLoad = " in outputs[0]
    assert "AdonNetRxBps" not in outputs[0]
    assert "AdonNetRxBps = " in outputs[1]
    assert "AdonIoWaitFraction = " in outputs[1]
    assert [p.name for p in tmp_path.iterdir()] == ["state"]


def test_wrong_arguments_are_told(tmp_path: Path) -> None:
    command = [sys.executable, "-I", "-S", metrics.__file__]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 2
    assert "usage:" in done.stderr


def network(*links: tuple[str, str, str, float, float], failed: str = "") -> dict[str, Any]:
    """Sites mu, a.b and a-b around switches, as the broker tells; of each link its ends, layer, and
    what may be and is reserved each way."""
    ends = dict.fromkeys(end for link in links for end in link[:2])
    return {
        "nodes": [
            {"name": end, "kind": "switch" if end.startswith("s") else "site"} for end in ends
        ],
        "links": [
            {
                "a": a, "b": b, "layer": layer, "delay_s": 0.01,
                "failed": "it is down" if f"{a}-{b}" == failed else "",
                "load": [
                    {"from": x, "to": y, "reservable_bps": most, "reserved_bps": used}
                    for x, y in ((a, b), (b, a))
                ],
            }
            for a, b, layer, most, used in links
        ],
    }  # fmt: skip


LINKS = (
    ("mu", "s1", "lan", 9e8, 1e8),
    ("s1", "s2", "l2", 2e8, 5e7),
    ("s1", "s3", "l3", 2e7, 0.0),
    ("s3", "s2", "l3", 2e7, 5e6),
    ("s2", "a.b", "lan", 9e8, 0.0),
)


def test_the_best_path_of_each_layer_tells_what_is_left() -> None:
    assert available(network(*LINKS), "mu") == {
        "AdonAvailL2From_a_b_Bps": 1.5e8,
        "AdonAvailL2To_a_b_Bps": 1.5e8,
        "AdonAvailL3From_a_b_Bps": 1.5e7,
        "AdonAvailL3To_a_b_Bps": 1.5e7,
    }
    down = available(network(*LINKS, failed="s1-s2"), "mu")
    assert (down["AdonAvailL2From_a_b_Bps"], down["AdonAvailL3From_a_b_Bps"]) == (0.0, 1.5e7)
    only = available(network(*(link for link in LINKS if link[2] != "l3")), "a.b")
    assert set(only) == {"AdonAvailL2From_mu_Bps", "AdonAvailL2To_mu_Bps"}
    with pytest.raises(InputError, match="not in the broker's network"):
        available(network(*LINKS), "mars")


def test_of_sites_with_one_word_the_least_is_told() -> None:
    twins = network(*LINKS, ("s1", "A-b", "lan", 3e7, 2e7))
    assert available(twins, "mu")["AdonAvailL2To_a_b_Bps"] == 1e7


@pytest.mark.parametrize(
    ("job", "seconds"),
    [
        ("", 0),
        ("AdonBytesAt_mu = 5000000000", 0),  # it is here
        ("AdonBytesAt_a_b = 1000000000", 80 + 2),  # a.b and a-b have one word: the slower counts
        ("AdonBytesAt_a_b = 1000000000; AdonBytesAt_tacc = 1000000000", 82 + 8),
        ("AdonBytesAt_isi = 1", classad2.Value.Undefined),
    ],
)
def test_the_data_of_a_job_take_what_transfers_took(job: str, seconds: object) -> None:
    known = {
        ("throughput", "a.b>mu"): 2e9,
        ("transfer_rate", "a.b>mu"): 1e8,
        ("transfer_start", "a.b>mu"): 2.0,
        ("throughput", "a-b>mu"): 1e9,
    }
    rates = {"AdonAvailL2From_tacc_Bps": 1e9, "AdonAvailL2From_a_b_Bps": 1.0}
    expression = data_seconds(["mu", "tacc", "a.b", "a-b", "isi"], "mu", rates, known)
    # As in a match, where the job is the slot's TARGET.
    ad = classad2.ClassAd(f"[TARGET = [{job}]; AdonDataSeconds = {expression}]")
    assert ad.eval("AdonDataSeconds") == seconds


@given(st.text(max_size=30))
def test_any_site_has_a_name_that_classads_take(site: str) -> None:
    ad = classad2.ClassAd(f"[AdonAvailL2From_{site_word(site)}_Bps = 5]")
    assert list(ad.values()) == [5]
