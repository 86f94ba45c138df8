"""Transfers tuned by what was measured of their path: archive, broker, API and command."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from api_rig import application, serving
from broker_rig import BIG, Clock, Rig, demo_network
from cli_world import adon, refusal

from adon.service.wiring import measured_figures
from monitors.archive.archive import Archive, Measurement
from monitors.archive.transfers import transfer_facts
from monitors.archive.tuning import host_tcp
from monitors.measurements.probes.hostload import tcp_limits
from network_provisioner.base.model import RequestAnswer, TransitRequest, TuningSettings
from network_provisioner.templates.advice import ENOUGH, HostTcp, TriedSetting

TCP = {
    "rmem": [4096, 131072, 262144], "wmem": [4096, 16384, 262144],
    "core_rmem_max": 0, "core_wmem_max": 0, "congestion": "cubic",
}  # fmt: skip
RATES = {"qspec": {"min_throughput": "25 Mb/s"}, "rspec": {"max_throughput": "150 Mb/s"}}
TEMPLATES = {"soykb": RATES, "own": RATES | {"tuning": {"streams": 8}}}
ADVISED = 8  # streams of half of the largest buffer, for 150 Mb/s and 53 ms


@pytest.fixture
def rig(tmp_path: Path, archive: Archive) -> Rig:
    network, clock = demo_network(), Clock()
    figures = measured_figures(archive, network, clock)
    return Rig(tmp_path / "s.sqlite", network, TEMPLATES, clock=clock, figures_of=figures)


def measure(archive: Archive, clock: Clock) -> None:
    """A round-trip time, and what agents of both sites say of their hosts."""
    archive.record(Measurement("r", "rtt", "mu>tacc", 0.053, "s", clock.now, "agent"))
    for site in ("mu", "tacc/dtn1"):
        measurement = Measurement(
            site, "cpu_use", site, 0.1, "1", clock.now, "agent", details={"tcp": TCP}
        )
        archive.record(measurement)


def ask(rig: Rig, transit_id: str = "a", **more: Any) -> RequestAnswer:
    request = TransitRequest(transit_id, "mu", "tacc", BIG, **{"template": "soykb"} | more)
    return rig.broker.ask([request])[0]


def test_a_path_that_was_measured_says_how_its_transfers_are_tuned(
    rig: Rig, archive: Archive
) -> None:
    assert ask(rig).service.streams == 0  # nobody has measured anything
    measure(archive, rig.clock)
    assert ask(rig).service.streams == 0  # and what was answered once stays so
    rig.let_pass(10)
    answer = ask(rig, "b")
    service, transit = answer.service, rig.broker.get("b")
    assert (service.streams, service.buffer_bytes, service.threads) == (ADVISED, 0, 0)
    assert service.why.startswith("150 Mb/s times 53 ms are 994 kB under way")
    assert transit.grant.tuning == TuningSettings(ADVISED, 0, 0, service.why)
    own = ask(rig, "c", template="own").service
    assert (own.streams, own.why) == (8, "as the template says")
    rig.broker.release("b", BIG, 60.0, "success", streams=ADVISED)
    assert rig.broker.get("b").grant.tuning == transit.grant.tuning


def test_an_archive_that_fails_costs_its_opinion_alone(tmp_path: Path) -> None:
    def broken(*_: object) -> Any:
        raise OSError("the disk is gone")

    answer = ask(Rig(tmp_path / "s.sqlite", templates=TEMPLATES, figures_of=broken))
    assert answer.error is None and answer.service.streams == 0


def test_what_transfers_used_and_reached_is_remembered_by_path(rig: Rig, archive: Archive) -> None:
    measure(archive, rig.clock)
    for number in range(ENOUGH):
        ask(rig, f"t{number}")
        done = rig.broker.release(f"t{number}", BIG, 80.0, "success", streams=16)
        archive.record_many(transfer_facts(done))
        rig.let_pass(10)
    path = rig.topology.path(["mu", "s1", "s2", "tacc"])
    figures = measured_figures(archive, rig.topology, rig.clock)(path, "")
    assert figures.tried == (TriedSetting(16, 0, 150e6, pytest.approx(1e8 / 150e6)),) * ENOUGH
    assert (figures.rtt_s, figures.measured) == (0.053, True)
    assert figures.dst == HostTcp((4096, 131072, 262144), (4096, 16384, 262144), 0, 0)


@pytest.mark.parametrize(
    "report",
    [None, [], {}, TCP | {"rmem": [1]}, TCP | {"wmem": "abc"}, TCP | {"core_wmem_max": None}],
)
def test_what_an_agent_says_may_be_anything(report: object) -> None:
    assert host_tcp(report) is None


@pytest.fixture
def broker(rig: Rig, archive: Archive, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    measure(archive, rig.clock)
    with serving(application(rig)) as port:
        monkeypatch.setenv("ADON_BROKER", f"http://127.0.0.1:{port}")
        yield rig


def test_transfer_advise(broker: Rig) -> None:
    ran = adon("transfer", "advise", "mu", "tacc", "--template", "soykb")
    assert (ran.code, ran.err) == (0, "")
    said = {line[:12].strip(): line[12:] for line in ran.out.splitlines()}
    assert said["advice"] == f"{ADVISED} streams, buffers by the system"
    assert (said["expected"], said["bottleneck"]) == ("150 Mb/s", "path")
    assert said["path"] == "mu-s1-s2-tacc: 150 Mb/s, 53 ms, loss 0"
    assert said["source"].startswith("tcp_rmem up to 262 kB") and "given now" not in said
    assert said["in the way"].endswith('sysctl -w net.ipv4.tcp_rmem="4096 131072 4194304"')
    faster = json.loads(adon("transfer", "advise", "mu", "tacc", "--rate", "1 Gb/s", "--json").out)
    assert faster["figures"]["rate_bps"] == 1e9 and faster["advice"]["streams"] > ADVISED
    own = adon("transfer", "advise", "mu", "tacc", "--template", "own").out
    assert (
        own.splitlines()[-1]
        == "given now   8 streams, buffers by the system, as the template says (own)"
    )


def test_transfer_advise_where_little_is_known(
    broker: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rows(src: str, dst: str) -> list[str]:
        return [line[12:] for line in adon("transfer", "advise", src, dst).out.splitlines()]

    *_, path, source, destination = rows("iplant", "local")
    assert "as the topology has it" in path
    assert source.startswith("unknown") and destination.startswith("unknown")
    address = broker.topology.site("iplant").hosts[0].address
    here = SimpleNamespace(address=address)
    monkeypatch.setattr(psutil, "net_if_addrs", lambda: {"eth0": [here]})
    assert f"; {tcp_limits()['congestion']}" in rows("iplant", "local")[5]


def test_transfer_advise_refuses_what_cannot_be(broker: Rig) -> None:
    assert "unknown site" in refusal("transfer", "advise", "mu", "mars")
    assert "no path joins mu and mu" in refusal("transfer", "advise", "mu", "mu")
    assert "unknown template" in refusal("transfer", "advise", "mu", "tacc", "--template", "x")
    assert "--rate: found" in refusal("transfer", "advise", "mu", "tacc", "--rate", "0")


def test_transit_explain_says_how_a_transfer_is_tuned(broker: Rig) -> None:
    ask(broker)
    out = adon("transit", "explain", "a").out
    assert f"\ntuning: streams {ADVISED}: 150 Mb/s times 53 ms are 994 kB under way" in out


def test_the_system_tells_its_limits(tmp_path: Path) -> None:
    for name, text in {
        "ipv4/tcp_rmem": "4096\t131072\t6291456\n", "ipv4/tcp_wmem": "4096 16384 4194304\n",
        "ipv4/tcp_congestion_control": "cubic\n", "core/rmem_max": "212992\n",
    }.items():  # fmt: skip
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert tcp_limits(tmp_path) == {
        "rmem": [4096, 131072, 6291456], "wmem": [4096, 16384, 4194304],
        "core_rmem_max": 212992, "core_wmem_max": 0, "congestion": "cubic",
    }  # fmt: skip
    assert tcp_limits(tmp_path / "none") == {}
