"""Links that fail on real Open vSwitch: ports, LLDP, counters, and links that are only full."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from ovs_rig import L2, L3, MBPS, RATE_BPS, OvsRig, load, sink, transfer

from examples.soykb.scenario import LAYOUT
from examples.testbed.network import Network
from network_provisioner.base.flows import Flow
from network_provisioner.base.model import TransitRequest
from network_provisioner.broker import Broker
from network_provisioner.stores.sqlite import SqliteStore
from network_provisioner.templates.data import templates_from_dict

pytestmark = [pytest.mark.component, pytest.mark.root]
OVERLAY = {("s1", "s2"), ("s2", "s1")}


@pytest.fixture
def rig(network: Network) -> Iterator[OvsRig]:
    made = OvsRig(network)
    made.controller = made.openflow = made.new_controller(watch=True)
    made.controller.start(60.0)
    made.controller.apply([])
    switches = made.openflow._switches
    made.wait_for("LLDP both ways", lambda: len(switches._silence._missed) == 2)
    try:
        yield made
    finally:
        network.link("l2", up=True, loss=0.0)
        network.link("l3", up=True, loss=0.0)
        made.controller.stop()


def failed(rig: OvsRig) -> set[tuple[str, str]]:
    return set(rig.openflow.failed_links())


def port(switch: str, link: str) -> str:
    return str(LAYOUT.port(LAYOUT.link(link), switch))


def test_a_port_that_goes_down_and_comes_back(rig: OvsRig) -> None:
    rig.network.switches.ofctl("s1", "mod-port", port("s1", "l2"), "down")
    try:
        rig.wait_for("news of the port", lambda: failed(rig) == OVERLAY)
        assert "is down" in rig.openflow.failed_links()["s1", "s2"]
    finally:
        rig.network.switches.ofctl("s1", "mod-port", port("s1", "l2"), "up")
    rig.wait_for("its return", lambda: failed(rig) == set())


def test_a_link_that_lets_nothing_through(rig: OvsRig) -> None:
    rig.network.link("l2", up=False)
    rig.wait_for("silence", lambda: failed(rig) == OVERLAY)
    rig.network.link("l2", up=True)
    rig.wait_for("its return", lambda: failed(rig) == set())


def test_a_link_that_is_full_is_not_taken_for_dead(rig: OvsRig) -> None:
    rig.controller.apply([rig.circuit(L2, min_bps=RATE_BPS / 2, max_bps=RATE_BPS)])
    seen: set[tuple[str, str]] = set()
    with sink("tacc", 5001):
        streams = load("mu", "send", LAYOUT.host("tacc").address, 5001, 8, 600)
        try:
            end = time.monotonic() + 10
            while time.monotonic() < end:
                seen |= failed(rig)
                time.sleep(0.1)
        finally:
            streams.kill()
            streams.wait()
    assert seen == set()


def test_packets_that_enter_a_routed_path_and_never_leave_it(rig: OvsRig) -> None:
    rig.controller.apply([rig.circuit(L3, min_bps=MBPS, max_bps=20 * MBPS)])
    with sink("tacc", 5001):
        sender = load("mu", "send", LAYOUT.host("tacc").address, 5001, 1, 600)
        try:
            rig.wait_for("bytes", lambda: rig.controller.circuit_bytes("a") > 10**6)
            rig.network.link("l3", loss=1.0)
            rig.wait_for("what is lost", lambda: bool(failed(rig)))
        finally:
            sender.kill()
            sender.wait()
    assert failed(rig) <= {("s1", "r1"), ("r1", "s1"), ("r1", "s2"), ("s2", "r1")}
    # Best effort goes round it with the next change.
    rig.controller.apply([])
    rig.network.link("l3", up=False)
    assert transfer("mu", "tacc", 1.0)["bytes"] > 0


def test_packets_of_a_port_are_held_to_a_path(rig: OvsRig) -> None:
    flows = (Flow("tcp", None, (5001, 5001)),)
    probe = rig.circuit(L2, "probe", min_bps=0.0, max_bps=RATE_BPS, flows=flows)
    rig.controller.apply([probe])
    before = rig.sent()
    assert transfer("mu", "tacc", 1.0, 5001)["bytes"] > 0
    held = rig.sent()
    assert held["s1", "s2"] - before["s1", "s2"] > held["s1", "r1"] - before["s1", "r1"]
    assert transfer("mu", "tacc", 1.0, 5002)["bytes"] > 0
    others = rig.sent()
    assert others["s1", "r1"] - held["s1", "r1"] > others["s1", "s2"] - held["s1", "s2"]


def test_a_transfer_goes_on_over_another_path(
    network: Network, tmp_path_factory: pytest.TempPathFactory
) -> None:
    rig = OvsRig(network)
    rig.controller = rig.openflow = rig.new_controller(watch=True)
    store = SqliteStore(tmp_path_factory.mktemp("broker") / "state.sqlite")
    broker = Broker(rig.topology, templates_from_dict(None), rig.controller, store)
    broker.start(60.0)
    try:
        got = broker.request(TransitRequest("a", "mu", "tacc", min_bps=5 * MBPS, lease_s=600.0))
        assert tuple(got.path) == L2
        with sink("tacc", 5001):
            sender = load("mu", "send", LAYOUT.host("tacc").address, 5001, 1, 600)
            try:
                rig.wait_for("bytes", lambda: rig.controller.circuit_bytes("a") > 10**6)
                network.switches.ofctl("s1", "mod-port", port("s1", "l2"), "down")
                rig.wait_for("news", broker.links_changed)
                broker.sweep()
                moved = broker.get("a")
                assert tuple(moved.path) == L3 and "port" in moved.reason
                assert broker.health()["links_failed"][0]["link"] == "s1-s2"
                sent = rig.sent()["s1", "r1"]
                rig.wait_for("bytes", lambda: rig.sent()["s1", "r1"] > sent + 10**6)
            finally:
                sender.kill()
                sender.wait()
    finally:
        network.switches.ofctl("s1", "mod-port", port("s1", "l2"), "up")
        broker.stop()
