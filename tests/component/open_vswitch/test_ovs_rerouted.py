"""Transfers on real Open vSwitch whose link fails or is drained."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from ovs_rig import L2, L3, MBPS, OvsRig, load, sink
from test_ovs_links import OVERLAY, failed, port

from examples.soykb.scenario import LAYOUT
from examples.testbed.network import Network
from network_provisioner.base.model import TransitRequest
from network_provisioner.broker import Broker
from network_provisioner.stores.sqlite import SqliteStore
from network_provisioner.templates.data import templates_from_dict
from network_provisioner.topology.drains import Drain

pytestmark = [pytest.mark.component, pytest.mark.root]


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
    assert broker.has_news()
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
