"""The embedded controller on real Open vSwitch: circuits, refusals, leases, restarts."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from ovs_rig import (
    BACKGROUND,
    L2,
    L3,
    MBPS,
    RATE_BPS,
    TRANSIT,
    OvsRig,
    load,
    sink,
    transfer,
    vswitchd,
)
from packet_suite import CircuitsWithPackets

from examples.soykb.scenario import LAYOUT
from examples.testbed.layout import IN_SWITCHES, OPENFLOW_LISTEN
from network_provisioner.base.controller import ControllerError, Part
from network_provisioner.base.flows import Flow
from network_provisioner.controllers.conformance import ControllerConformance
from network_provisioner.controllers.openflow.driver import OpenFlowController

pytestmark = [pytest.mark.component, pytest.mark.root]

HERE = Path(__file__).resolve()


@pytest.fixture
def rig(up: OvsRig) -> OvsRig:
    up.controller.start(60.0)
    up.controller.apply([])
    assert up.controller.installed() == []
    return up


@pytest.mark.long
class TestOpenVSwitch(ControllerConformance):
    """Everything that every driver has to do."""


class TestPackets(CircuitsWithPackets):
    """What packets do, whichever driver it is."""


@pytest.mark.long
def test_a_reserved_rate_is_kept_and_changed_under_load(rig: OvsRig) -> None:
    crowd = rig.circuit(BACKGROUND, "crowd", max_bps=RATE_BPS)
    rig.controller.apply([crowd])
    with sink("iplant", 5002):
        streams = load("local", "send", LAYOUT.host("iplant").address, 5002, 8, 600)
        try:
            unreserved = transfer("local", "iplant", 10.0, port=5003)["bps"]
            kept = {}
            for reserved in (40 * MBPS, 20 * MBPS):
                ours = rig.circuit(L2, min_bps=reserved, max_bps=reserved)
                rig.controller.apply([crowd, ours])
                kept[reserved] = transfer("mu", "tacc", 10.0)["bps"]
        finally:
            streams.kill()
            streams.wait()
    print("b/s among nine:", unreserved, "by reserved b/s:", kept)
    for reserved, got in kept.items():
        assert 0.75 * reserved < got < 1.05 * reserved
    assert unreserved < kept[40 * MBPS] / 2


def test_classes_are_what_was_reserved(rig: OvsRig) -> None:
    rig.controller.apply([rig.circuit(min_bps=10 * MBPS, max_bps=30 * MBPS)])
    ours = {v for k, v in rig.classes("s1-a").items() if k not in ("7ad0:1", "7ad0:2")}
    assert ours == {(10 * MBPS, 30 * MBPS)}
    assert rig.classes("s1-a")["7ad0:2"] == (50 * MBPS, RATE_BPS)
    rig.controller.apply([])
    assert rig.classes("s1-a") == {"7ad0:1": (RATE_BPS,) * 2, "7ad0:2": (RATE_BPS,) * 2}


def test_classes_come_back_when_somebody_removed_them(rig: OvsRig) -> None:
    subprocess.run([*IN_SWITCHES, "tc", "qdisc", "del", "dev", "s1-a", "root"], check=True)
    rig.controller.apply([rig.circuit(min_bps=10 * MBPS, max_bps=10 * MBPS)])
    assert (10 * MBPS, 10 * MBPS) in rig.classes("s1-a").values()


def test_rules_classes_and_groups_survive_a_restart_of_the_switches(rig: OvsRig) -> None:
    parts = (Part(L2, 10 * MBPS, 10 * MBPS), Part(L3, MBPS, MBPS))
    flows = (Flow("tcp", None, (5001, 5001)),)
    split = rig.circuit(L2, "split", flows=flows, min_bps=11e6, max_bps=11e6, parts=parts)
    rig.controller.apply([rig.circuit(min_bps=20 * MBPS, max_bps=20 * MBPS), split])
    rig.restart_switches()
    rig.wait_for("resync", lambda: rig.controller.installed() == ["a", "split"])
    assert (20 * MBPS, 20 * MBPS) in rig.classes("s1-a").values()
    assert "type=select" in rig.network.switches.ofctl("s1", "dump-groups")
    assert transfer("mu", "tacc", 0.3)["bytes"] > 0
    assert transfer("mu", "tacc", 0.3, 5002)["bytes"] > 0
    # A circuit that is joined again leaves no group.
    rig.controller.apply([rig.circuit(L2, "split")])
    assert "group_id" not in rig.network.switches.ofctl("s1", "dump-groups")


def test_a_refusal_leaves_the_circuits_as_they_were(rig: OvsRig) -> None:
    before = rig.circuit(L2, "before", min_bps=10 * MBPS, max_bps=10 * MBPS)
    rig.controller.apply([before])
    vsctl = rig.network.switches.vsctl
    rules = len(rig.flows("s2"))
    # Ten of the twelve routes between four sites lead over it, and a stamp is on it.
    limit = f"flow_limit={10 + 1 + rules}"
    vsctl(
        *("--", "--id=@full", "create", "Flow_Table", limit, "overflow_policy=refuse"),
        *("--", "set", "bridge", "s2", "flow_tables:0=@full"),
    )
    try:
        # A check in between has seen that the table is full, and nothing is tried.
        refused = r"switch s2 \(dpid 0x2\) (refused.*OFPFMFC_TABLE_FULL|has room for)"
        with pytest.raises(ControllerError, match=refused):
            rig.controller.apply([before, rig.circuit(BACKGROUND, "more")])
        assert rig.controller.installed() == ["before"]
        assert len(rig.flows("s1")) == len(rig.flows("s2")) == rules
        assert len(rig.classes("s1-a")) == 3
    finally:
        vsctl("clear", "bridge", "s2", "flow_tables")
    rig.controller.apply([before, rig.circuit(BACKGROUND, "more")])
    assert rig.controller.installed() == ["before", "more"]


def test_marks_do_not_leave_the_network_as_a_class_for_others(rig: OvsRig) -> None:
    """A host that marks its own packets stays in the best-effort class."""
    rig.controller.apply([rig.circuit(min_bps=40 * MBPS, max_bps=40 * MBPS)])
    line = next(f for f in rig.flows("s1") if "nw_dst=10.10.0.2" in f)
    assert "set_field" in line and "ip_dscp" in line
    routes = rig.network.switches.ofctl("s1", "dump-flows")
    others = [r for r in routes.splitlines() if TRANSIT not in r and "nw_src=10.10.0.4" in r]
    assert others and all("set_field:0->ip_dscp" in r for r in others if "output:11" in r)


CHILD = """
import os, sys, time
from ovs_rig import OvsRig, L2
rig = OvsRig(None)
rig.controller.start(60)
while not (there := rig.controller.installed()):  # a short lease may end before it is seen
    rig.controller.apply([rig.circuit(L2, lease_until=time.time() + float(sys.argv[1]))])
print(*there, flush=True)
if sys.argv[2] == "crash":
    os.kill(os.getpid(), 9)
"""


def child(lease_s: float, end: str) -> int:
    """A process that installs a circuit and ends without stopping its controller."""
    path = os.pathsep.join([str(HERE.parents[1]), str(HERE.parents[3])])
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(lease_s), end],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.stdout == "a\n", done.stderr
    return done.returncode


def test_a_lease_ends_in_the_switch_when_nobody_is_left(rig: OvsRig) -> None:
    rig.controller.stop()
    assert child(3.0, "return") == 0  # no thread of the controller holds its process up
    rig.wait_for("end of the lease", lambda: not rig.flows("s1") and not rig.flows("s2"))


def test_a_restarted_broker_does_not_disturb_running_transfers(rig: OvsRig) -> None:
    rig.controller.stop()
    child(300.0, "crash")
    cookies = [line.split(",")[0] for line in rig.flows("s1")]
    assert transfer("mu", "tacc", 1.0)["bytes"] > 0
    (shaped,) = [v for v in rig.shaped_bytes("s1-a").values() if v > 100_000]
    rig.controller.start(60.0)
    same = rig.circuit(L2, lease_until=time.time() + 290)
    rig.controller.apply([same])
    # Its class was not laid anew; the last packets may have been on their way.
    assert max(rig.shaped_bytes("s1-a").values()) >= shaped
    assert [line.split(",")[0] for line in rig.flows("s1")] == cookies
    rig.controller.apply([])
    assert rig.flows("s1") == rig.flows("s2") == []


@pytest.mark.long
def test_switches_that_hang_are_an_error_and_come_back(rig: OvsRig) -> None:
    rig.controller.stop()
    impatient = rig.new_controller(reply_timeout_s=30.0)
    impatient.start(60.0)
    try:
        impatient.apply([rig.circuit(L2, "before")])
        pid = vswitchd()
        os.kill(pid, signal.SIGSTOP)
        try:
            with pytest.raises(ControllerError, match="no answer within 30 s"):
                impatient.apply([])
        finally:
            os.kill(pid, signal.SIGCONT)
        rig.wait_for("resync", lambda: impatient.installed() == ["before"])
    finally:
        impatient.clear()
        impatient.stop()


def test_clear_leaves_no_rule_and_no_class(rig: OvsRig) -> None:
    rig.controller.apply([rig.circuit()])
    rig.controller.clear()
    for bridge in LAYOUT.switches:
        assert "cookie" not in rig.network.switches.ofctl(bridge, "dump-flows")
    for device in ("s1-a", "s2-a", "s1-b", "s2-b"):
        assert rig.classes(device) == {}


TERMS = itertools.count(1)  # switches remember the latest
LEADS = threading.Event()  # whether the first of two controllers takes itself for the leader's


@pytest.fixture
def two(rig: OvsRig) -> Iterator[tuple[OpenFlowController, OpenFlowController]]:
    """Two brokers' controllers, both of which the switches are connected to; the first leads."""
    rig.controller.stop()
    LEADS.set()
    address, port = OPENFLOW_LISTEN.rsplit(":", 1)
    other = f"{address}:{int(port) + 1}"
    targets = [f"tcp:{OPENFLOW_LISTEN}", f"tcp:{other}"]
    for bridge in LAYOUT.switches:
        rig.point(bridge, *targets)
    pair = rig.new_controller(), rig.new_controller(listen=other)
    try:
        pair[0].lead(next(TERMS), LEADS.is_set)
        pair[0].start(60.0)
        pair[1].stand_by()
        rig.wait_for(
            "the follower's switches", lambda: all(s.connected for s in pair[1].switches())
        )
        yield pair
    finally:
        for controller in pair:
            controller.stop()
        for bridge in LAYOUT.switches:
            rig.point(bridge, targets[0])
        rig.controller.start(60.0)


def test_switches_obey_the_leader_of_the_latest_term(
    rig: OvsRig, two: tuple[OpenFlowController, OpenFlowController]
) -> None:
    old, new = two
    x, y = rig.circuit(L2, "x"), rig.circuit(BACKGROUND, "y")
    old.apply([x])
    new.lead(next(TERMS), lambda: True)
    new.start(60.0)
    new.apply([x, y])
    # The one before was asleep all the time, and goes on where it was.
    with pytest.raises(ControllerError, match="IS_SLAVE"):
        old.apply([])
    assert new.installed() == ["x", "y"]
    LEADS.clear()
    old.stop()
    assert new.installed() == ["x", "y"]
    new.apply([])
    assert rig.flows("s1") == rig.flows("s2") == []


def test_who_may_not_lead_any_more_changes_nothing(
    rig: OvsRig, two: tuple[OpenFlowController, OpenFlowController]
) -> None:
    leads = [True]
    old, new = two
    old.apply([rig.circuit(L2, "x")])
    new.lead(next(TERMS), lambda: leads[0])
    new.start(60.0)
    leads[0] = False
    before = [rig.network.switches.ofctl(name, "dump-flows") for name in LAYOUT.switches]
    classes = rig.classes("s1-a")
    with pytest.raises(ControllerError, match="another broker leads"):
        new.apply([])
    new.stop()
    assert rig.classes("s1-a") == classes
    assert [_rules(text) for text in before] == [
        _rules(rig.network.switches.ofctl(name, "dump-flows")) for name in LAYOUT.switches
    ]


def _rules(text: str) -> list[str]:
    """What ofctl prints, without counters."""
    return sorted(line[line.find("priority") :] for line in text.splitlines() if "cookie" in line)
