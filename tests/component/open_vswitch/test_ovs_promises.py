"""Promises on real Open vSwitch: a sender that has no more to send, a link that gives less, and a
transit that moves away from it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from ovs_rig import L2, L3, MBPS, in_netns, load, sink
from promised_rig import PORT, Promised

from examples.soykb.scenario import LAYOUT
from examples.testbed.network import Network
from network_provisioner.selection.promise import BROKEN, KEPT, LESS

pytestmark = [pytest.mark.component, pytest.mark.root]

_PACED = """
import socket, sys
stream = socket.create_connection((sys.argv[1], int(sys.argv[2])))
stream.setsockopt(socket.SOL_SOCKET, 47, 100_000)  # SO_MAX_PACING_RATE
while True:
    stream.sendall(bytes(25_000))
"""


@pytest.fixture
def promised(network: Network, tmp_path: Path) -> Iterator[Promised]:
    made = Promised(network, tmp_path, 5 * MBPS)
    try:
        made.start()
        yield made
    finally:
        network.link("l2", rate_bps=LAYOUT.link("l2").rate_bps)
        made.stop()


def test_a_slow_sender_breaks_no_promise_and_a_slow_link_is_left(
    promised: Promised, network: Network
) -> None:
    address = LAYOUT.host("tacc").address
    assert tuple(promised.transit.grant.path) == L2
    with sink("tacc", PORT):
        words = [sys.executable, "-c", _PACED, address, str(PORT)]
        slow = subprocess.Popen([*in_netns("mu"), *words])
        try:
            promised.until("a slow sender", lambda: promised.kept.state == LESS)
            assert "sends 800 kb/s at most" in promised.kept.why
        finally:
            slow.kill()
            slow.wait()
        greedy = load("mu", "send", address, PORT, 1, 600)
        try:
            promised.until("a kept promise", lambda: promised.kept.state == KEPT)
            network.link("l2", rate_bps=2 * MBPS)
            promised.until("a broken promise", lambda: promised.kept.state == BROKEN)
            assert "its sender has more to send" in promised.kept.why or "lost" in promised.kept.why
            promised.until("a move", lambda: tuple(promised.transit.grant.path) == L3)
            assert [bool(news.at) for news in promised.news][:1] == [False]
            sent = promised.rig.sent()["s1", "r1"]
            promised.until("its bytes", lambda: promised.rig.sent()["s1", "r1"] > sent + 10**6)
        finally:
            greedy.kill()
            greedy.wait()
