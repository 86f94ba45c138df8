"""Links that fail on real Open vSwitch: ports, LLDP, counters, and links that are only full."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from ovs_rig import L2, RATE_BPS, OvsRig, in_netns, load, sink, transfer

from examples.soykb.scenario import LAYOUT
from examples.testbed.network import Network
from network_provisioner.base.flows import Flow

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


@pytest.fixture(scope="module")
def watching(network: Network) -> Iterator[OvsRig]:
    made = OvsRig(network)
    made.controller = made.openflow = made.new_controller(watch=True)
    made.controller.start(60.0)
    made.controller.apply([])
    links = made.openflow._links
    made.wait_for("probes every way", lambda: len(links.heard) == len(links.segments) == 4)
    yield made
    made.controller.clear()
    made.controller.stop()


@pytest.fixture
def rig(watching: OvsRig, network: Network) -> Iterator[OvsRig]:
    """One for all, without circuits and with links that work."""
    watching.controller.apply([])
    try:
        yield watching
    finally:
        network.link("l2", up=True, loss=0.0)
        network.link("l3", up=True, loss=0.0)
        watching.wait_for("links that work", lambda: failed(watching) == set())


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
