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
from ovs_rig import BACKGROUND, L2, MBPS, OvsRig, transfer, vswitchd
from packet_suite import CircuitsWithPackets

from examples.soykb.scenario import LAYOUT
from examples.testbed.layout import IN_SWITCHES
from examples.testbed.opendaylight import PASSWORD, URL, USER
from examples.testbed.ports import free_port
from network_provisioner.base.controller import ControllerError
from network_provisioner.base.errors import BrokerError
from network_provisioner.base.model import TransitRequest, TransitState
from network_provisioner.client.broker import BrokerClient
from network_provisioner.controllers.conformance import ControllerConformance
from network_provisioner.controllers.opendaylight.driver import OpenDaylightController
from network_provisioner.controllers.restconf import Access, Restconf
from network_provisioner.controllers.shaping.htb import TcShaper
from network_provisioner.controllers.shaping.shapes import CommandRunner

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
        config = rest.get("opendaylight-inventory:nodes?content=config") or {}
        nodes = config.get("opendaylight-inventory:nodes", {}).get("node", [])
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


class TestPackets(CircuitsWithPackets):
    """What packets do, whichever driver it is."""


def test_a_reserved_rate_is_a_class_of_the_device(rig: OdlRig) -> None:
    rig.controller.apply([rig.circuit(min_bps=20 * MBPS, max_bps=20 * MBPS)])
    assert (20 * MBPS, 20 * MBPS) in rig.classes("s1-a").values()


def test_rules_of_others_and_missing_rules_for_probes_are_seen(rig: OdlRig) -> None:
    ofctl = rig.network.switches.ofctl
    ofctl("s1", "add-flow", "cookie=0x77,priority=60000,tcp,nw_src=10.10.0.0/24,actions=drop")
    try:
        said = "cookie 0x77, priority 60000"
        rig.wait_for("the report", lambda: said in rig.controller.switches()[0].problem)
    finally:
        ofctl("s1", "del-flows", "cookie=0x77/-1")
    rig.wait_for("its end", lambda: rig.controller.switches()[0].problem == "")


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
        with pytest.raises(ControllerError, match=r"switch s2 \(dpid 0x2\) refused") as caught:
            rig.controller.apply([before, rig.circuit(BACKGROUND, "more")])
        assert "TABLEFULL" in str(caught.value) and "\n" not in str(caught.value)
        assert rig.controller.installed() == ["before"]
        assert len(rig.flows("s1")) == len(rig.flows("s2")) == rules
    finally:
        vsctl("clear", "bridge", "s2", "flow_tables")
    rig.controller.apply([before, rig.circuit(BACKGROUND, "more")])
    assert rig.controller.installed() == ["before", "more"]


def test_a_switch_that_hangs_is_an_error_and_comes_back(rig: OdlRig) -> None:
    before = rig.circuit(L2, "before")
    rig.controller.apply([before])
    pid = vswitchd()
    os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(ControllerError) as caught:
            rig.controller.apply([before, rig.circuit(BACKGROUND, "more")])
        assert "\n" not in str(caught.value)
    finally:
        os.kill(pid, signal.SIGCONT)
    rig.wait_for("resync", lambda: rig.controller.installed() == ["before"])


def test_circuits_are_carried_on_while_opendaylight_is_away(rig: OdlRig, world: Any) -> None:
    # OpenDaylight takes minutes to start on a busy machine.
    before = rig.circuit(lease_until=rig.now() + 3600)
    rig.controller.apply([before])
    world.opendaylight.kill()
    try:
        with pytest.raises(ControllerError):
            rig.controller.apply([before, rig.circuit(BACKGROUND, "more")])
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


def test_a_link_that_lets_nothing_through(rig: OdlRig) -> None:
    rig.controller.stop()  # or there would be two
    controller = rig.controller = rig.new_controller(watch=True)
    controller.start(120.0)
    try:
        links = controller._links
        rig.wait_for("probes every way", lambda: len(links.heard) == len(links.segments) == 4)
        rig.network.link("l3", loss=1.0)
        routed = {("s1", "r1"), ("r1", "s1"), ("r1", "s2"), ("s2", "r1")}
        rig.wait_for("what is lost", lambda: set(controller.failed_links()) == routed)
        rig.network.link("l3", loss=0.0)
        rig.wait_for("its return", lambda: not controller.failed_links())
    finally:
        rig.network.link("l3", loss=0.0)
        controller.stop()


def test_clear_leaves_nothing_behind(rig: OdlRig) -> None:
    rig.controller.apply([rig.circuit()])
    assert rig.configured()
    rig.controller.clear()
    rig.controller.stop()
    for bridge in LAYOUT.switches:
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
        "topology": LAYOUT.topology(),
        "controller": controller | {"password_file": str(tmp_path / "password")},
        "broker": {
            "listen": address,
            "state": str(tmp_path / "broker.sqlite"),
            "archive": str(tmp_path / "archive.sqlite"),
        },
    }
    (tmp_path / "adon.yml").write_text(json.dumps(config))
    words = [sys.executable, "-m", "adon.service.serve", "--config", str(tmp_path / "adon.yml")]
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
        request = TransitRequest("t1", "mu", "tacc", min_bps=20 * MBPS, max_bps=20 * MBPS)
        transit = client.request(request)
        assert (transit.state, transit.grant.layer) == (TransitState.INSTALLED, "l2"), (
            transit.reason
        )
        assert rig.flows("s1") and rig.flows("s2")
        assert transfer("mu", "tacc", 0.5)["bytes"] > 0
        client.release("t1", 0, 0.5, "done")
        assert rig.flows("s1") == rig.flows("s2") == []
    finally:
        broker.terminate()
        _, output = broker.communicate(timeout=120)
    assert broker.returncode == 0, output
    assert rig.configured()  # best effort goes on
    adon = str(Path(sys.executable).with_name("adon"))
    clear = [adon, "broker", "clear", "--config", str(tmp_path / "adon.yml")]
    subprocess.run(clear, check=True, timeout=120)
    assert rig.configured() == []
