"""No transfer is given less than it would have without ADON, unless somebody sets a ceiling."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from api_rig import application, serving
from broker_rig import Rig
from cli_world import adon
from made_transit import made_transit

from network_provisioner.base.flows import Flow
from network_provisioner.base.model import Transit, TransitState
from network_provisioner.controllers.plan import make_plan
from network_provisioner.controllers.shaping.htb import lay
from network_provisioner.controllers.shaping.shapes import DeviceShape
from network_provisioner.selection.terms import DEFAULT_PART
from network_provisioner.topology.data import topology_from_dict
from network_provisioner.topology.graph import Topology
from tests.bench.bench_p17 import RATES, allowed_bps, fewer

FAST = {"bulk": {"qspec": {"min_throughput": "50 Mb/s"}, "rspec": {"max_throughput": "150 Mb/s"}}}


def network(*capacities: str, delay: str = "5 ms", access: str = "") -> Topology:
    """Two sites at switches, joined by links of these capacities."""
    ends = [("oak", 1), ("elm", 2)]
    nodes: list[dict[str, Any]] = [
        {"name": name, "kind": "site", "address": f"10.40.0.{n}", "mac": f"02:40:00:00:00:0{n}"}
        for name, n in ends
    ]
    nodes += [{"name": f"c{n}", "kind": "switch", "dpid": n} for _, n in ends]
    links: list[dict[str, Any]] = [
        {
            "a": name, "b": f"c{n}", "capacity": access or capacities[0], "ports": {f"c{n}": 1},
            "devices": {f"c{n}": f"c{n}-1"},
        }
        for name, n in ends
    ]  # fmt: skip
    links += [
        {
            "a": "c1", "b": "c2", "layer": "l2", "name": f"core{at}", "capacity": capacity,
            "delay": delay, "ports": {"c1": at, "c2": at},
            "devices": {"c1": f"c1-{at}", "c2": f"c2-{at}"},
        }
        for at, capacity in enumerate(capacities, 7)
    ]  # fmt: skip
    return topology_from_dict({"nodes": nodes, "links": links})


def flows(port: int) -> tuple[Flow, ...]:
    return (Flow(dst_ports=(port, port)),)


@pytest.mark.parametrize("rate_bps", RATES)
def test_no_request_is_given_less_than_without_adon(rate_bps: float) -> None:
    less, least, live = fewer(pytest.fail, rate_bps, None, 15)
    assert (less, least) == (0, 1.0) and live


@pytest.mark.parametrize("keep", ["dscp-htb", "queue", "meter"])
def test_what_others_leave_idle_is_everybodys(tmp_path: Path, keep: str) -> None:
    rig = Rig(tmp_path / "s", network("10 Gb/s"), bandwidth=keep, matches=True)
    for number in range(20):
        transit = rig.ask(f"t{number}", "oak", "elm", flows=flows(5000 + number))
        assert (
            transit.request.uncapped
            and transit.request.max_bps == 10e9
            and transit.grant.granted_bps >= 400e6
        )
    circuits = list(rig.controller.circuits.values())
    assert len(circuits) == 20
    plan = make_plan(rig.topology, circuits, rig.clock.now, keep=keep)
    for circuit in circuits:
        assert allowed_bps(rig.topology, plan, circuit) == 10e9
    for shape in plan.shapes:
        assert all(traffic_class.ceil_bps == 10e9 for traffic_class in shape.classes)
    # What is held free by dropping is idle for nobody: minima alone are.
    sure = {circuit.min_bps for circuit in circuits}
    assert sure == ({5e6} if keep == "meter" else {450e6})


def test_a_slow_and_far_network_is_no_reason_to_refuse(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "s", network("2 Mb/s", delay="300 ms"), matches=True)
    for number in range(9):  # none waits, though 5 Mb/s are usual
        got = rig.ask(f"t{number}", "oak", "elm", flows=flows(5000 + number))
        assert got.state is TransitState.INSTALLED, got.reason
        assert got.request.min_bps == DEFAULT_PART * 2e6
    # Somebody asked for more than there is: its transfer begins at once, without.
    much = rig.ask("much", "oak", "elm", template="soykb")
    assert much.state is TransitState.BEST_EFFORT and "25 Mb/s needed" in much.reason


def test_the_ceiling_is_that_of_the_path_it_is_on(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "s", network("10 Gb/s", "40 Gb/s", access="100 Gb/s"), matches=True)
    got = rig.ask("t", "oak", "elm")
    assert (got.request.max_bps, got.grant.granted_bps) == (40e9, 36e9)
    assert rig.ask("m", "oak", "elm", flows=flows(5), max_bps=7e9).request.max_bps == 7e9
    changed = rig.broker.change("t", max_bps=3e9)
    assert (changed.request.uncapped, changed.grant.granted_bps) == (False, 3e9)
    more = rig.broker.change("m", min_bps=1e9)  # its own ceiling stays
    assert (more.request.uncapped, more.request.max_bps) == (False, 7e9)
    assert rig.broker.change("t", max_bps=50e9).grant.granted_bps > 20e9


def test_a_split_request_has_all_of_its_paths(tmp_path: Path) -> None:
    templates = {"wide": {"qspec": {"min_throughput": "1 Gb/s"}, "paths": 2}}
    topology = network("10 Gb/s", "40 Gb/s", access="100 Gb/s")
    rig = Rig(tmp_path / "s", topology, templates, matches=True, multipath=True)
    got = rig.ask("t", "oak", "elm", template="wide", min_bps=40e9)
    assert sorted(part.max_bps for part in got.grant.parts) == [10e9, 40e9]
    assert (got.request.max_bps, got.grant.granted_bps) == (50e9, 45e9)


def test_a_transit_of_an_earlier_version_keeps_its_ceiling() -> None:
    kept = made_transit("t", "a", "b", TransitState.INSTALLED, max_bps=1e9).as_dict()
    del kept["uncapped"], kept["warnings"]
    assert not Transit.from_dict(kept).request.uncapped


def test_what_is_slower_than_it_could_be_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    rig = Rig(tmp_path / "s", network("10 Gb/s"), FAST, matches=True)
    small = "template 'bulk' allows at most 150 Mb/s of the 10 Gb/s that a path has"
    with caplog.at_level(logging.WARNING):
        transit = rig.ask("t", "oak", "elm", size_bytes=2 * 10**12, template="bulk", flows=flows(1))
        assert transit.grant.warnings[0].startswith(small)
        late = "ends after 86400 s, before 2 TB can have moved: at 150 Mb/s they take 106667 s"
        assert late in transit.grant.warnings[1]
        rig.ask("u", "oak", "elm", size_bytes=2 * 10**12, template="bulk", flows=flows(2))
    assert [caplog.text.count(words) for words in (small, late)] == [1, 1]  # not of each of many
    brief = rig.ask("v", "oak", "elm", size_bytes=2 * 10**12, lease_s=600, flows=flows(3))
    assert "at 10 Gb/s they take 1600 s" in " ".join(brief.grant.warnings)
    assert rig.broker.renew("v", 3600).grant.warnings == []
    more = rig.ask("w", "oak", "elm", max_bps=2e9, template="bulk", flows=flows(4))
    assert more.grant.warnings[0] == "2 Gb/s asked for: template 'bulk' allows at most 150 Mb/s"
    less = rig.ask("x", "oak", "elm", max_bps=100e6, template="bulk", flows=flows(5))
    assert less.grant.warnings == []  # its owner wants no more
    assert rig.ask("y", "oak", "elm", size_bytes=10**9, flows=flows(6)).grant.warnings == []
    config = {
        "topology": {"nodes": [], "links": []}, "templates": FAST,
        "broker": {"state": str(tmp_path / "state"), "archive": str(tmp_path / "archive")},
    }  # fmt: skip
    (tmp_path / "adon.yml").write_text(json.dumps(config), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    with serving(application(rig)) as port:
        monkeypatch.setenv("ADON_BROKER", f"http://127.0.0.1:{port}")
        assert f"warning: {small}" in adon("transit", "explain", "t").out
        command = ("transit", "request", "oak", "elm", "--template", "bulk", "--flow", "9")
        assert f"warning: {small}" in adon(*command).out
        assert f"warning: {small}" in adon("doctor", "--config", "adon.yml").out


def test_doctor_knows_it_before_anybody_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ADON_BROKER", "http://127.0.0.1:9")
    link = {"a": "a", "b": "b", "capacity": "100 Gb/s"}
    config = {
        "topology": {"nodes": [{"name": n, "kind": "site"} for n in "ab"], "links": [link]},
        "templates": FAST | {"wide": {"qspec": {"min_throughput": "1 Mb/s"}}},
    }
    (tmp_path / "adon.yml").write_text(json.dumps(config), encoding="utf-8")
    said = adon("doctor", "--config", "adon.yml").out
    assert said.count("allows at most") == 1 and "150 Mb/s of the 100 Gb/s" in said


def test_the_largest_path_of_a_network() -> None:
    assert network("10 Gb/s", "40 Gb/s", access="100 Gb/s").largest_bps == 40e9
    assert network("10 Gb/s", access="1 Gb/s").largest_bps == 1e9
    alone = topology_from_dict({"nodes": [{"name": "a", "kind": "site"}], "links": []})
    assert alone.largest_bps == 0
    kept = made_transit("t", "a", "b", TransitState.HELD, warnings=["w"])
    assert kept.copy().grant.warnings == ["w"]


def test_a_packet_queue_of_a_far_and_fast_link_is_one_that_the_kernel_takes() -> None:
    (command,) = (c for c in lay(DeviceShape("s", "s-1", 100e9, 0.3)) if "bfifo" in c)
    assert int(command.split()[-1]) < 1 << 32
