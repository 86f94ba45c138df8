"""What people and accidents do to real switches is found, repaired and reported."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from ovs_rig import L2, MBPS, OvsRig, transfer, vswitchd

from examples.soykb.scenario import LAYOUT
from examples.testbed.layout import OPENFLOW_LISTEN
from examples.testbed.network import Network
from network_provisioner.base.controller import SwitchStatus
from network_provisioner.base.model import Transit, TransitRequest, TransitState
from network_provisioner.broker import Broker
from network_provisioner.stores.sqlite import SqliteStore
from network_provisioner.templates.data import templates_from_dict

pytestmark = [pytest.mark.component, pytest.mark.root]
OURS = "cookie=0xad0"


class Served(OvsRig):
    """The network with a broker on it."""

    def __init__(self, network: Network, state: Path) -> None:
        super().__init__(network)
        self._state = state
        self.start()

    def start(self) -> None:
        """Start a broker on what the last one left."""
        self.controller = self.openflow = self.new_controller(watch=True)
        store = SqliteStore(self._state)
        self.broker = Broker(self.topology, templates_from_dict(None), self.openflow, store)
        self.broker.start(60.0)
        links = self.openflow._links
        self.wait_for("probes every way", lambda: len(links.heard) == len(links.segments))

    def ask(self, name: str) -> Transit:
        return self.broker.request(
            TransitRequest(name, "mu", "tacc", min_bps=5 * MBPS, lease_s=600.0)
        )

    def until(self, what: str, state: TransitState, name: str = "a") -> Transit:
        def looks() -> bool:
            self.broker.sweep()
            return self.broker.get(name).state is state

        self.wait_for(what, looks)
        return self.broker.get(name)

    def status(self, switch: str) -> SwitchStatus:
        return next(s for s in self.openflow.switches() if s.name == switch)

    def ours(self, switch: str) -> set[str]:
        """Our rules, without counters, what is left of leases, and the stamp."""
        text = self.network.switches.ofctl(switch, "dump-flows", "--no-stats")
        text = re.sub(r"hard_timeout=\d+, ", "", text)
        lines = (line.strip() for line in text.splitlines())
        return {line for line in lines if OURS in line and "0x88b6" not in line}


@pytest.fixture
def rig(network: Network, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    made = Served(network, tmp_path_factory.mktemp("broker") / "state.sqlite")
    try:
        yield made
    finally:
        made.openflow.clear()
        made.broker.stop()


@pytest.mark.parametrize("policy", ["refuse", "evict"])
def test_a_table_without_room_is_reported_and_nothing_new_needs_it(
    rig: Served, policy: str
) -> None:
    rig.ask("a")
    before = rig.ours("s2")
    limit = len(before) - 1
    vsctl = rig.network.switches.vsctl
    table = [f"flow_limit={limit}", f"overflow_policy={policy}"]
    vsctl(
        "--id=@t", "create", "Flow_Table", *table, "--", "set", "bridge", "s2", "flow_tables:0=@t"
    )
    try:
        if policy == "refuse":  # nothing happens but to what is added
            rig.network.switches.ofctl(
                "s2", "del-flows", "cookie=0xad0f000000000000/0xffff000000000000"
            )
        rig.wait_for("the news", lambda: "in its flow table" in rig.status("s2").problem)
        refused = rig.broker.request(TransitRequest("b", "local", "tacc", min_bps=MBPS))
        assert refused.state is TransitState.FAILED and "in its flow table" in refused.reason
        rig.broker.sweep()
        assert "in its flow table" in rig.broker.health()["problem"]
    finally:
        vsctl("clear", "bridge", "s2", "flow_tables")
    rig.wait_for("the end of it", lambda: rig.status("s2").problem == "")
    rig.wait_for("all as before", lambda: rig.ours("s2") == before)


def test_switches_that_say_nothing_are_reported_until_they_answer(
    rig: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.ask("a")
    monkeypatch.setattr(rig.openflow._switches, "_silent_after_s", 1.0)
    pid = vswitchd()
    os.kill(pid, signal.SIGSTOP)
    try:
        rig.wait_for("the news", lambda: rig.status("s2").problem == "does not answer")
        rig.broker.sweep()
        assert "does not answer" in rig.broker.health()["problem"]
    finally:
        os.kill(pid, signal.SIGCONT)
    rig.wait_for("the end of it", lambda: rig.openflow.installed() == ["a"])
    rig.wait_for("health", lambda: rig.status("s2").problem == "")
    assert tuple(rig.broker.get("a").grant.path) == L2


def test_a_port_that_bounces_costs_no_more_than_that(rig: Served) -> None:
    until = rig.ask("a").grant.lease_until
    port = str(LAYOUT.host("mu").number)
    rig.network.switches.ofctl("s1", "mod-port", port, "down")
    assert rig.until("the loss", TransitState.QUEUED).grant.path == []
    rig.network.switches.ofctl("s1", "mod-port", port, "up")
    back = rig.until("its return", TransitState.INSTALLED)
    assert tuple(back.grant.path) == L2 and back.grant.lease_until == until


def test_a_restart_stops_no_traffic(rig: Served) -> None:
    rig.ask("a")
    before = rig.ours("s1"), rig.ours("s2")
    rig.broker.stop()
    assert (rig.ours("s1"), rig.ours("s2")) == before
    assert transfer("mu", "tacc", 0.5)["bytes"] > 0
    rig.start()
    assert rig.openflow.installed() == ["a"]
    assert (rig.ours("s1"), rig.ours("s2")) == before


def test_what_an_earlier_broker_left_is_cleared(rig: Served) -> None:
    rig.ask("a")
    device = LAYOUT.device(LAYOUT.link("l2"), "s1")
    rig.broker.stop()
    other = rig.new_controller(watch=True)
    other.start(60.0)
    other.clear()
    other.stop()
    for switch in LAYOUT.switches:
        assert "cookie=0xad" not in rig.network.switches.ofctl(switch, "dump-flows")
    assert rig.classes(device) == {}
    rig.start()
    rig.wait_for("all rules", lambda: rig.openflow.installed() == ["a"])


def test_a_switch_without_its_controller_is_named_until_it_is_back(rig: Served) -> None:
    rig.ask("a")
    rig.network.switches.vsctl("del-controller", "s2")
    try:
        rig.wait_for("the news", lambda: not rig.status("s2").connected)
        rig.broker.sweep()
        assert rig.broker.health()["problem"].startswith("switch s2 (dpid")
        over = rig.broker.request(TransitRequest("b", "local", "tacc", min_bps=MBPS))
        assert over.state is TransitState.QUEUED and "is not connected" in over.reason
        here = rig.broker.request(TransitRequest("c", "local", "mu", min_bps=MBPS))
        assert here.state is TransitState.INSTALLED
        assert rig.broker.get("a").state is not TransitState.QUEUED
    finally:
        rig.point("s2", f"tcp:{OPENFLOW_LISTEN}")
    rig.until("a path", TransitState.INSTALLED, "b")
    rig.wait_for("all rules", lambda: rig.openflow.installed() == ["a", "b", "c"])
    rig.wait_for("the end of the news", lambda: rig.openflow.switches()[1].problem == "")
