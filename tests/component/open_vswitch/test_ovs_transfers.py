"""Transfers on real Open vSwitch: told apart by ports, split over paths, sharing queues."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator

import pytest
from ovs_rig import BACKGROUND, L2, MBPS, RATE_BPS, OvsRig, load, sink
from packet_suite import WAYS, split, to_port

from examples.soykb.scenario import LAYOUT
from network_provisioner.base.controller import Circuit, Queue

pytestmark = [pytest.mark.component, pytest.mark.root]

STREAMS = 48


@pytest.fixture
def rig(up: OvsRig) -> OvsRig:
    up.controller.apply([])
    return up


@contextlib.contextmanager
def busy(src: str, dst: str, port: int, streams: int = 4) -> Iterator[None]:
    """Streams that send for as long as the block runs."""
    with sink(dst, port):
        sender = load(src, "send", LAYOUT.host(dst).address, port, streams, 600)
        try:
            yield
        finally:
            sender.kill()
            sender.wait()


def reaches(ports: Iterable[int]) -> dict[int, float]:
    """Goodput to each port, in b/s, of transfers from mu to tacc that run at the same time."""
    with contextlib.ExitStack() as stack:
        results = {port: stack.enter_context(sink("tacc", port)) for port in ports}
        address = LAYOUT.host("tacc").address
        senders = [load("mu", "send", address, port, 1, 10.0) for port in results]
        assert all(sender.wait(120) == 0 for sender in senders)
        reports = {port: result() for port, result in results.items()}
    return {port: 8 * report["bytes"] / report["seconds"] for port, report in reports.items()}


@pytest.mark.long
def test_two_transfers_between_the_same_hosts_have_rates_of_their_own(rig: OvsRig) -> None:
    wanted = {5001: 30 * MBPS, 5002: 15 * MBPS}
    crowd = rig.circuit(BACKGROUND, "crowd", max_bps=RATE_BPS)
    circuits = [
        rig.circuit(L2, f"to-{port}", flows=to_port(port), min_bps=rate, max_bps=rate)
        for port, rate in wanted.items()
    ]
    rig.controller.apply([crowd, *circuits])
    with busy("local", "iplant", 5009):
        got = reaches(wanted)
    print("b/s by port:", got)
    for port, rate in wanted.items():
        assert 0.75 * rate < got[port] < 1.05 * rate


@pytest.mark.long
def test_a_transfer_is_split_over_two_paths(rig: OvsRig) -> None:
    """Each stream goes one way; a fast path and a slow one carry more than either."""
    rig.controller.apply([split(rig, flows=to_port(5001))])
    assert rig.controller.installed() == ["split"]
    before = rig.sent()
    # Which way a stream goes, its ports say: of so many, never nearly all the same.
    with sink("tacc", 5001) as received:
        sender = load("mu", "send", LAYOUT.host("tacc").address, 5001, STREAMS, 10.0)
        assert sender.wait(120) == 0
        streams = [received() for _ in range(STREAMS)]
    after = rig.sent()
    ways = {h: after[h] - before[h] for h in WAYS}
    total = sum(s["bytes"] for s in streams)
    goodput = 8 * total / max(s["seconds"] for s in streams)
    print("b/s over both:", goodput, "bytes by way:", ways)
    assert min(ways.values()) / total > 0.1
    # More than the overlay link alone carries.
    assert goodput > 1.05 * RATE_BPS
    rig.counted("split", total)


def members(rig: OvsRig) -> list[Circuit]:
    """Transfers between the same hosts: those to port 5001 in one queue, to 5002 in another."""
    return [
        rig.circuit(
            L2, f"to-{port}", flows=to_port(port), min_bps=0.0, max_bps=RATE_BPS, queue=queue
        )
        for port, queue in ((5001, "one"), (5002, "two"))
    ]


def queues(hop: tuple[str, str], *shares: tuple[str, float, float, int, str]) -> list[Queue]:
    return [Queue(name, hop, r * RATE_BPS, c * RATE_BPS, p, up) for name, r, c, p, up in shares]


HOP = ("s1", "s2")
SEVEN_THREE = queues(HOP, ("one", 0.7, 0.7, 0, ""), ("two", 0.3, 0.3, 0, ""))
TEN_THREE = queues(HOP, ("one", 1.0, 1.0, 0, ""), ("two", 0.05, 0.3, 1, "one"))


def test_queues_are_classes_of_the_device_and_change_in_place(rig: OvsRig) -> None:
    rig.controller.apply(members(rig), SEVEN_THREE)
    qdiscs = rig.tc("qdisc", "s1-a")
    assert {(0.693 * RATE_BPS, 0.7 * RATE_BPS), (0.297 * RATE_BPS, 0.3 * RATE_BPS)} <= set(
        rig.classes("s1-a").values()
    )
    rig.controller.apply(members(rig), TEN_THREE)
    # What is new is the second queue's place; nothing else was laid anew.
    lost = [line for line in qdiscs if line not in rig.tc("qdisc", "s1-a")]
    assert not any("root" in line for line in lost)
    rig.controller.apply([])
    assert set(rig.classes("s1-a")) == {"7ad0:1", "7ad0:2"}


@pytest.mark.long
def test_queues_share_a_link_and_change_under_load(rig: OvsRig) -> None:
    rig.controller.apply(members(rig), SEVEN_THREE)
    shared = reaches((5001, 5002))
    alone = reaches((5002,))
    rig.controller.apply(members(rig), TEN_THREE)
    after = reaches((5001, 5002))
    print("7-3:", shared, alone, "10-3:", after)
    assert 0.52 * RATE_BPS < shared[5001] < 0.72 * RATE_BPS
    assert 0.22 * RATE_BPS < shared[5002] < 0.31 * RATE_BPS
    # A hard ceiling: what the other leaves idle is lost.
    assert alone[5002] < 0.31 * RATE_BPS
    assert after[5001] > 0.7 * RATE_BPS


@pytest.mark.long
def test_a_guaranteed_rate_is_kept_within_its_queue(rig: OvsRig) -> None:
    sure = rig.circuit(
        L2, "sure", flows=to_port(5003), min_bps=12 * MBPS, max_bps=12 * MBPS, queue="two"
    )
    rig.controller.apply([*members(rig), sure], SEVEN_THREE)
    with busy("mu", "tacc", 5001), busy("mu", "tacc", 5002):
        got = reaches((5003,))
    print("b/s within the queue:", got, json.dumps(rig.classes("s1-a")))
    assert 0.75 * 12 * MBPS < got[5003] < 1.05 * 12 * MBPS
