"""Links that fail on real Open vSwitch: ports, LLDP, counters, and links that are only full."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from ovs_rig import L2, L3, MBPS, RATE_BPS, OvsRig, in_netns, load, sink, transfer

from examples.soykb.scenario import LAYOUT
from examples.testbed.network import Network
from network_provisioner.base.flows import Flow
from network_provisioner.base.model import TransitRequest
from network_provisioner.broker import Broker
from network_provisioner.stores.sqlite import SqliteStore
from network_provisioner.templates.data import templates_from_dict
from network_provisioner.topology.drains import Drain

pytestmark = [pytest.mark.component, pytest.mark.root]
OVERLAY = {("s1", "s2"), ("s2", "s1")}
DATAGRAMS = """
import socket, sys, time
ttl, address, pause_s = int(sys.argv[1]), sys.argv[2], float(sys.argv[3])
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sender.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, ttl)
while True:
    sender.sendto(bytes(1000), (address, 5001))
    time.sleep(pause_s)
"""
ROUTED = {("s1", "r1"), ("r1", "s1"), ("r1", "s2"), ("s2", "r1")}


@pytest.fixture
def rig(network: Network) -> Iterator[OvsRig]:
    made = OvsRig(network)
    made.controller = made.openflow = made.new_controller(watch=True)
    made.controller.start(60.0)
    made.controller.apply([])
    links = made.openflow._links
    made.wait_for("probes every way", lambda: len(links.heard) == len(links.segments) == 4)
    try:
        yield made
    finally:
        network.link("l2", up=True, loss=0.0)
        network.link("l3", up=True, loss=0.0)
        made.controller.clear()
        made.controller.stop()


def failed(rig: OvsRig) -> set[tuple[str, str]]:
    return set(rig.openflow.failed_links())


def seen_for(seconds: float, rig: OvsRig) -> set[tuple[str, str]]:
    """What fails within some time."""
    seen: set[tuple[str, str]] = set()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        seen |= failed(rig)
        time.sleep(0.1)
    return seen


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
    with sink("tacc", 5001):
        streams = load("mu", "send", LAYOUT.host("tacc").address, 5001, 8, 600)
        try:
            assert seen_for(6.0, rig) == set()
        finally:
            streams.kill()
            streams.wait()


def test_packets_that_enter_a_routed_path_and_never_leave_it(rig: OvsRig) -> None:
    rig.network.link("l3", loss=1.0)
    rig.wait_for("what is lost", lambda: failed(rig) == ROUTED)
    # Best effort goes round it with the next change.
    rig.controller.apply([])
    assert transfer("mu", "tacc", 1.0)["bytes"] > 0
    rig.network.link("l3", loss=0.0)
    rig.wait_for("its return", lambda: failed(rig) == set())


@pytest.mark.parametrize("ttl, pause_s", [(1, 0.001), (64, 0.0)], ids=["refused", "flood"])
def test_packets_of_one_user_fail_no_routed_link(rig: OvsRig, ttl: int, pause_s: float) -> None:
    sent = rig.sent()["s1", "r1"]
    words = [str(ttl), LAYOUT.host("tacc").address, str(pause_s)]
    sender = subprocess.Popen([*in_netns("mu"), sys.executable, "-c", DATAGRAMS, *words])
    try:
        # Many, however long a busy machine takes to send them.
        rig.wait_for("packets", lambda: bool(failed(rig)) or rig.sent()["s1", "r1"] > sent + 10**6)
        assert seen_for(4.0, rig) == set()
    finally:
        sender.kill()
        sender.wait()


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


@pytest.fixture
def serving(
    network: Network, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[OvsRig, Broker]]:
    """A broker with a transit on the first path, and a transfer that goes on for ever."""
    rig = OvsRig(network)
    rig.controller = rig.openflow = rig.new_controller(watch=True)
    store = SqliteStore(tmp_path_factory.mktemp("broker") / "state.sqlite")
    broker = Broker(rig.topology, templates_from_dict(None), rig.controller, store)
    broker.start(60.0)
    try:
        got = broker.request(TransitRequest("a", "mu", "tacc", min_bps=5 * MBPS, lease_s=600.0))
        assert tuple(got.grant.path) == L2
        with sink("tacc", 5001):
            sender = load("mu", "send", LAYOUT.host("tacc").address, 5001, 1, 600)
            try:
                rig.wait_for("bytes", lambda: rig.controller.circuit_bytes("a") > 10**6)
                yield rig, broker
            finally:
                sender.kill()
                sender.wait()
    finally:
        network.switches.ofctl("s1", "mod-port", port("s1", "l2"), "up")
        rig.controller.clear()
        broker.stop()


def carries(rig: OvsRig, a: str, b: str) -> None:
    sent = rig.sent()[a, b]
    rig.wait_for("bytes", lambda: rig.sent()[a, b] > sent + 10**6)


def test_a_transfer_goes_on_over_another_path(serving: tuple[OvsRig, Broker]) -> None:
    rig, broker = serving
    rig.network.switches.ofctl("s1", "mod-port", port("s1", "l2"), "down")
    rig.wait_for("the failure", lambda: failed(rig) == OVERLAY)
    assert broker.links_changed()
    broker.sweep()
    moved = broker.get("a")
    assert tuple(moved.grant.path) == L3 and "port" in moved.reason
    assert broker.health()["links_failed"][0]["link"] == "s1-s2"
    carries(rig, "s1", "r1")


def test_a_drained_link_and_a_drained_router_carry_nothing(
    serving: tuple[OvsRig, Broker],
) -> None:
    rig, broker = serving
    assert broker.drain(Drain("s1-s2", 0.0))["on"] == []
    before = rig.sent()["s1", "s2"]
    carries(rig, "s1", "r1")
    assert rig.sent()["s1", "s2"] - before < 10**5  # probes, and what was under way
    assert broker.health()["status"] == "ok"
    broker.cancel_drain("s1-s2")
    assert broker.drain(Drain("r1", 0.0))["on"] == []
    before = rig.sent()["s1", "r1"]
    carries(rig, "s1", "s2")
    broker.release("a")  # the transfer goes on as best effort
    carries(rig, "s1", "s2")
    assert rig.sent()["s1", "r1"] - before < 10**5
