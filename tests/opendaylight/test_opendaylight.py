"""The driver, OpenDaylight and Open vSwitch together, with packets."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ovs_rig import (
    BACKGROUND,
    IN_SWITCHES,
    L2,
    L3,
    MBPS,
    OvsRig,
    load,
    sink,
    transfer,
    vswitchd,
)

from examples.testbed import plan
from examples.testbed.opendaylight import PASSWORD, URL, USER
from examples.testbed.ports import free_port
from network_provisioner.client import BrokerClient
from network_provisioner.controllers.base import ControllerError, Part
from network_provisioner.controllers.conformance import ControllerConformance
from network_provisioner.controllers.opendaylight.driver import OpenDaylightController
from network_provisioner.controllers.restconf import Access, Restconf
from network_provisioner.controllers.shaping.htb import TcShaper
from network_provisioner.controllers.shaping.shapes import CommandRunner
from network_provisioner.errors import BrokerError
from network_provisioner.flows import Flow
from network_provisioner.model import TransitRequest, TransitState
from network_provisioner.topologies.discovery import Discovers, differences

# A busy machine starts an OpenDaylight in minutes.
pytestmark = [pytest.mark.opendaylight, pytest.mark.root, pytest.mark.timeout(1800)]

HERE = Path(__file__).resolve()
ROUTE = "cookie=0xad0f"


class OdlRig(OvsRig):
    """The testbed's network under OpenDaylight."""

    def new_controller(self, **options: Any) -> Any:
        shaper = TcShaper(CommandRunner(IN_SWITCHES))
        access = Access(URL, USER, PASSWORD, timeout_s=30.0)
        return OpenDaylightController(self.topology, access, **({"shaper": shaper} | options))

    def routes(self, bridge: str) -> list[str]:
        """The best-effort rules, as the switch's own tool prints them."""
        text = self.network.switches.ofctl(bridge, "dump-flows")
        return [line for line in text.splitlines() if ROUTE in line]

    def configured(self) -> list[str]:
        """The ids of all flows in OpenDaylight's configuration."""
        rest = Restconf("OpenDaylight", Access(URL, USER, PASSWORD))
        found = rest.get("opendaylight-inventory:nodes?content=config") or {}
        nodes = found.get("opendaylight-inventory:nodes", {}).get("node", [])
        tables = [t for node in nodes for t in node.get("flow-node-inventory:table", [])]
        return [flow["id"] for table in tables for flow in table.get("flow", [])]


@pytest.fixture(scope="module")
def up(world: Any) -> Iterator[OdlRig]:
    made = OdlRig(world.network)
    made.controller.start(120.0)
    yield made
    made.controller.stop()


@pytest.fixture
def rig(up: OdlRig) -> OdlRig:
    up.controller.start(120.0)
    up.controller.apply([])
    assert up.controller.installed() == []
    return up


class TestRealOpenDaylight(ControllerConformance):
    """Everything that every driver has to do."""


def test_traffic_takes_the_path_it_was_given(rig: OdlRig) -> None:
    for circuits, hop, other in (
        ([], ("s1", "r1"), ("s1", "s2")),
        ([rig.circuit(L2)], ("s1", "s2"), ("s1", "r1")),
        ([rig.circuit(L3)], ("s1", "r1"), ("s1", "s2")),
    ):
        rig.controller.apply(circuits)
        before = rig.sent()
        counted = rig.controller.circuit_bytes("a")
        moved = transfer("mu", "tacc", 0.5)["bytes"]
        after = rig.sent()
        assert after[hop] - before[hop] >= moved
        assert after[other] - before[other] < moved / 10
        if circuits:
            rig.counted("a", counted + moved)


def test_transfers_between_the_same_hosts_take_paths_of_their_own(rig: OdlRig) -> None:
    # A range of ports becomes masks, which OpenDaylight passes on to Open vSwitch.
    fast = rig.circuit(L2, "fast", flows=(Flow("tcp", None, (5001, 5010)),))
    slow = rig.circuit(L3, "slow", flows=(Flow("tcp", None, (5020, 5020)),))
    rig.controller.apply([fast, slow])
    assert rig.controller.installed() == ["fast", "slow"]
    for port, hop, other, name in (
        (5003, ("s1", "s2"), ("s1", "r1"), "fast"),
        (5020, ("s1", "r1"), ("s1", "s2"), "slow"),
    ):
        before, counted = rig.sent(), rig.controller.circuit_bytes(name)
        moved = transfer("mu", "tacc", 0.5, port)["bytes"]
        after = rig.sent()
        assert after[hop] - before[hop] >= moved
        assert after[other] - before[other] < moved / 10
        rig.counted(name, counted + moved)


def test_a_transfer_is_split_over_two_paths_and_leaves_no_group(rig: OdlRig) -> None:
    parts = (Part(L2, 40 * MBPS, 60 * MBPS), Part(L3, 15 * MBPS, 20 * MBPS))
    split = rig.circuit(L2, "split", min_bps=55 * MBPS, max_bps=80 * MBPS, parts=parts)
    rig.controller.apply([split])
    groups = rig.network.switches.ofctl("s1", "dump-groups")
    assert "type=select" in groups and "weight:73" in groups and "weight:27" in groups
    before = rig.sent()
    with sink("tacc", 5001) as received:
        sender = load("mu", "send", plan.SITES["tacc"].address, 5001, 24, 3.0)
        assert sender.wait(120) == 0
        total = sum(received()["bytes"] for _ in range(24))
    after = rig.sent()
    ways = {hop: after[hop] - before[hop] for hop in (("s1", "s2"), ("s1", "r1"))}
    assert min(ways.values()) > 0.05 * total
    rig.controller.apply([rig.circuit(L2, "split")])
    assert rig.controller.installed() == ["split"]
    assert "group_id" not in rig.network.switches.ofctl("s1", "dump-groups")


def test_a_reserved_rate_is_kept(rig: OdlRig) -> None:
    rig.controller.apply([rig.circuit(min_bps=20 * MBPS, max_bps=20 * MBPS)])
    assert (20 * MBPS, 20 * MBPS) in rig.classes("s1-a").values()
    tries = (transfer("mu", "tacc", 4.0)["bps"] for _ in range(4))
    got = next((bps for bps in tries if bps > 15 * MBPS), 0.0)
    assert 15 * MBPS < got < 21 * MBPS


def test_bytes_are_counted_on_over_a_renewed_lease(rig: OdlRig) -> None:
    rig.controller.apply([rig.circuit(lease_until=rig.now() + 100)])
    moved = transfer("mu", "tacc", 0.5)["bytes"]
    rig.controller.apply([rig.circuit(lease_until=rig.now() + 200)])
    moved += transfer("mu", "tacc", 0.5)["bytes"]
    rig.counted("a", moved)


def test_it_finds_how_the_switches_are_joined(rig: OdlRig) -> None:
    rig.controller.apply([rig.circuit()])
    assert isinstance(rig.controller, Discovers)
    found = rig.controller.discover()
    assert differences(rig.topology, found) == []
    assert found.links == {((1, 10), (2, 10))}  # the routed path lets no such frame through
    for bridge in plan.SWITCHES:
        assert "0x88cc" not in rig.network.switches.ofctl(bridge, "dump-flows")
    assert rig.controller.installed() == ["a"]


def test_a_refusal_of_the_switch_is_told_and_changes_nothing(rig: OdlRig) -> None:
    before = rig.circuit(L2, "before")
    rig.controller.apply([before])
    rules, routes = len(rig.flows("s2")), len(rig.routes("s2"))
    vsctl = rig.network.switches.vsctl
    limit = f"flow_limit={routes - 2 + rules}"
    vsctl(
        *("--", "--id=@full", "create", "Flow_Table", limit, "overflow_policy=refuse"),
        *("--", "set", "bridge", "s2", "flow_tables:0=@full"),
    )
    try:
        with pytest.raises(ControllerError, match=r"switch s2 \(dpid 2\) refused") as caught:
            rig.controller.apply([before, rig.circuit(BACKGROUND, "more")])
        assert "TABLEFULL" in str(caught.value) and "\n" not in str(caught.value)
        assert rig.controller.installed() == ["before"]
        assert len(rig.flows("s1")) == len(rig.flows("s2")) == rules
    finally:
        vsctl("clear", "bridge", "s2", "flow_tables")
    rig.controller.apply([before, rig.circuit(BACKGROUND, "more")])
    assert rig.controller.installed() == ["before", "more"]


def test_a_switch_that_hangs_is_an_error_and_comes_back(rig: OdlRig) -> None:
    rig.controller.apply([rig.circuit(L2, "before")])
    pid = vswitchd()
    os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(ControllerError) as caught:
            rig.controller.apply([])
        assert "\n" not in str(caught.value)
    finally:
        os.kill(pid, signal.SIGCONT)
    rig.wait_for("resync", lambda: rig.controller.installed() == ["before"])


def test_circuits_are_carried_on_while_opendaylight_is_away(rig: OdlRig, world: Any) -> None:
    rig.controller.apply([rig.circuit()])
    world.opendaylight.kill()
    try:
        with pytest.raises(ControllerError, match="cannot be asked"):
            rig.controller.apply([])
        assert transfer("mu", "tacc", 0.5)["bytes"] > 0
        assert rig.flows("s1") and rig.flows("s2")
    finally:
        # Everything that it knew is lost.
        world.opendaylight.start()
    rig.wait_for("sight", lambda: rig.controller.installed() == ["a"])
    rig.controller.apply([])
    assert rig.flows("s1") == rig.flows("s2") == []


CHILD = """
import os, sys, time
from test_opendaylight import OdlRig
rig = OdlRig(None)
rig.controller.start(120)
rig.controller.apply([rig.circuit(lease_until=time.time() + float(sys.argv[1]))])
print(*rig.controller.installed(), flush=True)
os.kill(os.getpid(), 9)
"""


def killed_broker(lease_s: float) -> None:
    """A process that installs a circuit and is killed."""
    places = [HERE.parent, HERE.parents[1] / "component", HERE.parents[2]]
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(lease_s)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, places))},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.stdout == "a\n", done.stderr


def test_an_ended_circuit_does_not_return_with_its_switch(rig: OdlRig) -> None:
    """Nobody is left to tell OpenDaylight; best effort goes on, the circuit does not."""
    routes = len(rig.routes("s1"))
    rig.controller.stop()
    killed_broker(6.0)
    rig.wait_for("end of the lease", lambda: not rig.flows("s1") and not rig.flows("s2"))
    rig.restart_switches()
    rig.wait_for("routes", lambda: len(rig.routes("s1")) == routes)
    assert rig.flows("s1") == rig.flows("s2") == []


def test_a_restarted_broker_does_not_disturb_running_transfers(rig: OdlRig) -> None:
    rig.controller.stop()
    killed_broker(100.0)
    cookies = [line.split(",")[0] for line in rig.flows("s1")]
    rig.controller.start(120.0)
    assert [line.split(",")[0] for line in rig.flows("s1")] == cookies
    rig.controller.apply([])
    assert rig.flows("s1") == rig.flows("s2") == []


def test_stop_leaves_nothing_behind(rig: OdlRig) -> None:
    rig.controller.apply([rig.circuit()])
    assert rig.configured()
    rig.controller.stop()
    for bridge in plan.SWITCHES:
        assert "cookie=0xad" not in rig.network.switches.ofctl(bridge, "dump-flows")
    assert rig.configured() == []
    for device in ("s1-a", "s2-a"):
        assert rig.classes(device) == {}


def test_a_broker_with_opendaylight(rig: OdlRig, tmp_path: Path) -> None:
    """As an operator has it: adon.yml, a password in a file, requests over HTTP."""
    rig.controller.stop()
    (tmp_path / "password").write_text(f"{PASSWORD}\n")
    address = f"127.0.0.1:{free_port()}"
    controller = {"driver": "opendaylight", "url": URL, "user": USER, "exec": list(IN_SWITCHES)}
    config = {
        "topology": plan.topology(),
        "controller": controller | {"password_file": str(tmp_path / "password")},
        "broker": {
            "listen": address,
            "state": str(tmp_path / "broker.sqlite"),
            "archive": str(tmp_path / "archive.sqlite"),
        },
    }
    (tmp_path / "adon.yml").write_text(json.dumps(config))
    words = [sys.executable, "-m", "adon.service", "--config", str(tmp_path / "adon.yml")]
    broker = subprocess.Popen(words, cwd=HERE.parents[2], stderr=subprocess.PIPE, text=True)
    client = BrokerClient(f"http://{address}", timeout_s=60.0)

    def serves() -> bool:
        assert broker.poll() is None, broker.stderr and broker.stderr.read()
        try:
            return bool(client.health())
        except BrokerError:
            return False

    try:
        rig.wait_for("the broker", serves)
        asked = TransitRequest("t1", "mu", "tacc", min_bps=20 * MBPS, max_bps=20 * MBPS)
        given = client.request(asked)
        assert (given.state, given.layer) == (TransitState.INSTALLED, "l2"), given.reason
        assert rig.flows("s1") and rig.flows("s2")
        assert transfer("mu", "tacc", 0.5)["bytes"] > 0
        client.release("t1", 0, 0.5, "done")
        assert rig.flows("s1") == rig.flows("s2") == []
    finally:
        broker.terminate()
        _, said = broker.communicate(timeout=120)
    assert broker.returncode == 0, said
    assert rig.configured() == []
