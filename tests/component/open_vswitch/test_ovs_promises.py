"""Promises on real Open vSwitch: a link that gives less, bytes that go another way, and a sender
that has no more to send."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ovs_rig import L2, MBPS, OvsRig, in_netns, load, sink
from waiting import until

from examples.soykb.scenario import LAYOUT
from examples.testbed import traffic
from examples.testbed.network import Network
from monitors.measurements.agent.sockets import SS, SocketReporter, parse_ss
from network_provisioner.base.flows import Flow
from network_provisioner.base.model import KeptPromise, TransitRequest
from network_provisioner.broker import Broker
from network_provisioner.selection.promise import BROKEN, KEPT, LESS
from network_provisioner.state.sockets import SocketPeriod
from network_provisioner.stores.sqlite import SqliteStore
from network_provisioner.templates.data import templates_from_dict
from network_provisioner.topology.link_failures import News

pytestmark = [pytest.mark.component, pytest.mark.root]

PROMISED_BPS = 5 * MBPS


class Promised:
    """A broker with a transit of 5 Mb/s from mu to tacc, and an agent at mu."""

    def __init__(self, network: Network, folder: Path) -> None:
        self.rig = OvsRig(network)
        self.rig.controller = self.rig.openflow = self.rig.new_controller()
        store = SqliteStore(folder / "state.sqlite")
        self.broker = Broker(
            self.rig.topology, templates_from_dict(None), self.rig.controller, store
        )
        self.news: list[News] = []
        self.broker.link_listeners.append(self.news.append)
        self.agent = SocketReporter(lambda: parse_ss(self._ss()))

    @staticmethod
    def _ss() -> str:
        words = [*in_netns("mu"), *SS]
        return subprocess.run(words, check=True, capture_output=True, text=True).stdout

    def _report(self, body: Any) -> None:
        periods = [SocketPeriod((s[0], s[1]), (s[2], s[3]), *s[4:]) for s in body["sockets"]]
        self.broker.report_sockets("mu", periods)

    def start(self) -> None:
        self.broker.start(60.0)
        flows = (Flow("tcp", dst_ports=(5001, 5001)),)
        transit = self.broker.request(
            TransitRequest(
                "a",
                "mu",
                "tacc",
                min_bps=PROMISED_BPS,
                max_bps=PROMISED_BPS,
                flows=flows,
                lease_s=600.0,
            )
        )
        assert tuple(transit.grant.path) == L2

    def until(self, state: str) -> KeptPromise:
        """Second by second, until the promise is in a state."""
        kept = KeptPromise()

        def reached() -> bool:
            nonlocal kept
            time.sleep(1.0)
            self.agent.look(self._report)
            self.broker.sweep()
            kept = self.broker.get("a").usage.kept or kept
            return kept.state == state

        until(reached, f"a promise that is {state}")
        return kept


@pytest.fixture
def promised(network: Network, tmp_path: Path) -> Iterator[Promised]:
    made = Promised(network, tmp_path)
    try:
        made.start()
        yield made
    finally:
        network.link("l2", rate_bps=LAYOUT.link("l2").rate_bps)
        made.rig.controller.clear()
        made.broker.stop()


def test_a_link_that_gives_less_breaks_its_promise_and_a_slow_sender_does_not(
    promised: Promised, network: Network
) -> None:
    address = LAYOUT.host("tacc").address
    with sink("tacc", 5001):
        words = ["send", address, "5001", "--bytes-per-s", "100000"]
        slow = subprocess.Popen([*in_netns("mu"), sys.executable, traffic.__file__, *words])
        try:
            assert "sends 800 kb/s at most" in promised.until(LESS).why
        finally:
            slow.kill()
            slow.wait()
        greedy = load("mu", "send", address, 5001, 1, 600)
        try:
            promised.until(KEPT)
            network.link("l2", rate_bps=2 * MBPS)
            broken = promised.until(BROKEN)
            assert "its sender wants more" in broken.why or "was lost" in broken.why
            assert [news.at for news in promised.news] == [0.0]
            network.link("l2", rate_bps=LAYOUT.link("l2").rate_bps)
            promised.until(KEPT)
            assert len(promised.news) == 2
        finally:
            greedy.kill()
            greedy.wait()
