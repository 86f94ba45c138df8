"""Bandwidth on real Open vSwitch without ``tc``: by meters, and by queues of its own.

Its userspace datapath polices by meters, and ignores queues: of those, what the switch and its
database hold is all that can be seen here.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import replace

import pytest
from ovs_rig import L2, L3, MBPS, RATE_BPS, OvsRig, load, sink, transfer

from adon.machine import box, packages
from examples.soykb.scenario import LAYOUT
from examples.testbed.layout import IN_SWITCHES
from examples.testbed.network import Network
from network_provisioner.base.controller import ControllerError, Queue
from network_provisioner.controllers.openflow.driver import OpenFlowController
from network_provisioner.controllers.shaping.htb import TcShaper
from network_provisioner.controllers.shaping.ovsdb import VsctlShaper
from network_provisioner.controllers.shaping.shapes import CommandRunner

pytestmark = [pytest.mark.component, pytest.mark.root]


@pytest.fixture(scope="module")
def up(network: Network) -> OvsRig:
    return OvsRig(network)


@pytest.fixture
def metered(up: OvsRig) -> Iterator[OvsRig]:
    up.controller = up.openflow = up.new_controller(shaper=None)
    up.controller.start(60.0)
    yield up
    up.controller.clear()
    up.controller.stop()


def records(rig: OvsRig, table: str, column: str) -> list[str]:
    """One column of every row in the switches' database."""
    text = rig.network.switches.vsctl("--bare", f"--columns={column}", "list", table)
    return [row for row in text.splitlines() if row.strip()]


def devices(rig: OvsRig) -> int:
    """How many the topology names; each has one queue for best effort."""
    return sum(len(link.devices or {}) for link in rig.topology.links)


@pytest.mark.long
def test_a_meter_holds_a_circuit_to_its_rate(metered: OvsRig) -> None:
    got = {}
    for rate in (20 * MBPS, 40 * MBPS):
        metered.controller.apply([metered.circuit(L2, min_bps=rate / 2, max_bps=rate)])
        got[rate] = transfer("mu", "tacc", 10.0)["bps"]
    print("b/s by meter's rate:", got)
    for rate, bps in got.items():
        assert 0.65 * rate < bps < 1.15 * rate


@pytest.mark.long
def test_best_effort_is_held_to_what_circuits_leave(metered: OvsRig) -> None:
    ours = metered.circuit(L3, min_bps=14 * MBPS, max_bps=14 * MBPS)
    metered.controller.apply([ours])
    with sink("iplant", 5002):
        crowd = load("local", "send", LAYOUT.host("iplant").address, 5002, 8, 600)
        try:
            got = transfer("mu", "tacc", 10.0)["bps"]
        finally:
            crowd.kill()
            crowd.wait()
    print("b/s beside eight streams of best effort:", got)
    assert got > 0.65 * 14 * MBPS


def test_meters_where_nobody_shapes_devices_go_with_their_circuits(metered: OvsRig) -> None:
    can = metered.controller.capabilities()
    assert (can.bandwidth, can.queues) == ("meter", False)
    with pytest.raises(ControllerError, match="1 queues were asked for, but bandwidth is kept"):
        metered.controller.apply([], [Queue("q", ("s1", "s2"), MBPS, MBPS)])
    ofctl = metered.network.switches.ofctl
    metered.controller.apply([metered.circuit(L3)])
    assert ofctl("s1", "dump-meters").count("meter=") >= 2
    metered.controller.apply([])
    assert "meter=" not in ofctl("s1", "dump-meters")
    assert "meter:" not in ofctl("s1", "dump-flows")


def test_a_changed_rate_changes_the_meter_and_leaves_the_rules(metered: OvsRig) -> None:
    def meters() -> dict[str, str]:
        """Number and rate of each."""
        text = metered.network.switches.ofctl("s1", "dump-meters")
        return dict(re.findall(r"meter=(\d+).*?rate=(\d+)", text, re.S))

    circuit = metered.circuit(L3, min_bps=5 * MBPS, max_bps=10 * MBPS)
    metered.controller.apply([circuit])
    before = meters()
    assert "10000" in before.values()
    transfer("mu", "tacc", 0.3)
    metered.counted("a", 1000)
    metered.controller.apply([replace(circuit, min_bps=8 * MBPS, max_bps=12 * MBPS)])
    after = meters()
    assert after.keys() == before.keys() and "12000" in after.values()
    # A rule that was laid anew would count from 0.
    (data,) = [f for f in metered.flows("s1") if "nw_dst=10.10.0.2" in f and "meter:" in f]
    assert "n_packets=0," not in data


def test_meters_that_somebody_deletes_come_back_with_their_rules(metered: OvsRig) -> None:
    def seen() -> tuple[str, list[str]]:
        text = metered.network.switches.ofctl("s1", "dump-flows", "--no-stats")
        text = re.sub(r"hard_timeout=\d+, ", "", text)
        rules = sorted(line.strip() for line in text.splitlines() if "meter:" in line)
        return metered.network.switches.ofctl("s1", "dump-meters").partition("\n")[2], rules

    metered.controller.apply([metered.circuit(L3)])
    before = seen()
    assert before[1]
    metered.network.switches.ofctl("s1", "del-meters")
    metered.wait_for("meters and rules", lambda: seen() == before)
    metered.wait_for("the count", lambda: "rules" in metered.openflow.switches()[0].repairs)


def by_queues() -> VsctlShaper:
    programs = packages.ensure("openvswitch", progress=print) / "wrap"
    database = f"OVS_RUNDIR={box.private_dir() / 'ovs'}"
    return VsctlShaper(CommandRunner(("env", f"PATH={programs}:{os.environ['PATH']}", database)))


def with_queues(rig: OvsRig) -> OpenFlowController:
    """A controller that keeps rates by the switches' own queues, started."""
    made = rig.new_controller(shaper=by_queues(), bandwidth="queue")
    made.start(60.0)
    return made


def test_queues_of_the_switch_are_changed_in_place_taken_over_and_leave_nothing(up: OvsRig) -> None:
    up.controller = dead = with_queues(up)
    circuit = up.circuit(L2, min_bps=10 * MBPS, max_bps=30 * MBPS)
    up.controller.apply([circuit])
    assert up.controller.installed() == ["a"]
    assert up.controller.capabilities().bandwidth == "queue"
    data = next(f for f in up.flows("s1") if "nw_dst=10.10.0.2" in f)
    assert "set_queue:" in data and "set_field:1->ip_dscp" in data  # the tag of circuits
    number = data.split("set_queue:")[1].split(",")[0]
    uuid = up.network.switches.vsctl("get", "port", "s1-a", "qos").strip()
    queues = up.network.switches.vsctl("get", "qos", uuid, "queues")
    assert f"{number}=" in queues and "0=" in queues
    queue_rows = records(up, "queue", "other_config")
    assert any(f"max-rate={30 * MBPS:.0f} min-rate={10 * MBPS:.0f}" in row for row in queue_rows)
    assert any(f"max-rate={RATE_BPS:.0f} min-rate={50 * MBPS:.0f}" in row for row in queue_rows)
    # What Open vSwitch makes of it on the device.
    assert any("rate 10Mbit ceil 30Mbit" in line for line in up.tc("class", "s1-a"))
    assert transfer("mu", "tacc", 0.3)["bytes"] > 0

    before = set(records(up, "queue", "_uuid"))
    more = up.circuit(("local", *L2[1:]), "b")
    up.controller.apply([replace(circuit, min_bps=20 * MBPS), more])
    assert before < set(records(up, "queue", "_uuid"))
    assert any("min-rate=20000000" in row for row in records(up, "queue", "other_config"))

    dead._running = False  # as if it had been killed
    dead._disconnect()
    up.controller = with_queues(up)
    up.controller.apply([circuit])
    assert len(records(up, "qos", "_uuid")) == devices(up)
    assert len(records(up, "queue", "_uuid")) == devices(up) + 4  # two devices each way
    up.controller.apply([])
    assert len(records(up, "queue", "_uuid")) == len(records(up, "qos", "_uuid")) == devices(up)
    up.controller.stop()
    theirs = [*IN_SWITCHES, "tc", "qdisc", "add", "dev", "lo", "root", "handle", "1:", "htb"]
    subprocess.run(theirs, check=True)  # of no device of the topology

    # The configuration changes: what rates were kept by goes, and comes back where it is wanted.
    up.controller = up.new_controller(unused=[by_queues()])
    up.controller.start(60.0)
    up.controller.apply([circuit])
    assert records(up, "queue", "_uuid") == records(up, "qos", "_uuid") == []
    assert "7ad0:2" in up.classes("s1-a")
    up.controller.stop()
    tc = TcShaper(CommandRunner(IN_SWITCHES))
    up.controller = up.new_controller(shaper=None, bandwidth="none", unused=[tc, by_queues()])
    up.controller.start(60.0)
    up.controller.apply([circuit])
    assert not any("htb" in line for line in up.tc("qdisc", "s1-a"))
    up.controller.clear()
    up.controller.stop()
    assert any("htb 1:" in line for line in up.tc("qdisc", "lo"))


def test_queues_that_the_kernel_has_lost_come_back(up: OvsRig) -> None:
    up.controller = queued = with_queues(up)
    up.controller.apply([up.circuit(L2, min_bps=10 * MBPS, max_bps=30 * MBPS)])

    def there() -> bool:
        return any("rate 10Mbit ceil 30Mbit" in line for line in up.tc("class", "s1-a"))

    up.wait_for("a look at the queues", lambda: "s1-a" in queued._reconciler._queued)
    assert there()
    subprocess.run([*IN_SWITCHES, "tc", "qdisc", "del", "dev", "s1-a", "root"], check=True)
    up.wait_for("the queues", there)
    repaired = queued.switches()[0].repairs
    up.controller.clear()
    up.controller.stop()
    assert repaired == {"devices' classes": 1}
