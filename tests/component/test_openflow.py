"""The embedded controller on real Open vSwitch, in the testbed's network.

The network's names and addresses belong to a box (:mod:`adon.testbed.box`), and a process is in one
or it is not. So there is one test outside, which runs this same file inside.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from adon.testbed import box, packages, plan
from adon.testbed.network import Network
from network_provisioner.controllers.base import Circuit, Controller, ControllerError
from network_provisioner.controllers.conformance import ControllerConformance
from network_provisioner.controllers.openflow import OpenFlowController
from network_provisioner.controllers.shaper import CommandRunner, TcShaper
from network_provisioner.topology import Topology, topology_from_dict

pytestmark = [pytest.mark.component, pytest.mark.root]

HERE = Path(__file__).resolve()
L2 = ("mu", "s1", "s2", "tacc")
L3 = ("mu", "s1", "r1", "s2", "tacc")
BACKGROUND = ("local", "s1", "s2", "iplant")
IN_SWITCHES = ("ip", "netns", "exec", plan.SWITCH_NETNS)
TRANSIT = "cookie=0xad0e"
MBPS = 1e6
# The overlay link's rate in these tests: little enough for a busy machine to fill it.
RATE_BPS = 60 * MBPS

if not box.inside():

    def test_the_controller_on_open_vswitch(tmp_path: Path) -> None:
        reason = box.can_box()
        if reason is not None:
            pytest.skip(reason)
        # Downloads need the host's network, so before the box is made.
        packages.ensure("openvswitch", progress=print)
        words = [*box.command(), sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        words += [f"--basetemp={tmp_path / 'inside'}", str(HERE)]
        done = subprocess.run(
            words, cwd=HERE.parents[2], capture_output=True, text=True, check=False
        )
        print(done.stdout, done.stderr)
        assert done.returncode == 0, done.stdout[-8000:]

else:

    class OvsRig:
        """The testbed's network and the controller that runs in this process."""

        def __init__(self, network: Network) -> None:
            self.network = network
            whole = topology_from_dict(plan.topology())
            links = [
                replace(link, capacity_bps=RATE_BPS) if link.layer == "l2" else link
                for link in whole.links
            ]
            self.topology = Topology(whole.nodes.values(), links)
            self.openflow = self.new_controller()
            self.controller: Controller = self.openflow

        def new_controller(self, reply_timeout_s: float = 5.0) -> OpenFlowController:
            return OpenFlowController(
                self.topology,
                plan.OPENFLOW_LISTEN,
                TcShaper(CommandRunner(IN_SWITCHES)),
                reply_timeout_s=reply_timeout_s,
            )

        def now(self) -> float:
            return time.time()

        def wait_for(self, what: str, check: Callable[[], bool]) -> None:
            end = time.monotonic() + 120
            while not check():
                if time.monotonic() > end:
                    raise TimeoutError(what)
                time.sleep(0.05)

        def restart_switches(self) -> None:
            pid = vswitchd()
            words = Path(f"/proc/{pid}/cmdline").read_text().rstrip("\0").split("\0")
            env = dict(
                item.partition("=")[::2]
                for item in Path(f"/proc/{pid}/environ").read_text().rstrip("\0").split("\0")
            )
            os.kill(pid, signal.SIGKILL)
            self.wait_for("death of the switches", lambda: vswitchd(pid) != pid)
            subprocess.run([*IN_SWITCHES, *words], env=env, check=True, capture_output=True)
            for bridge in plan.SWITCHES:
                # New sockets have small buffers again, and lose packets.
                self.network.switches.widen_buffers(bridge)

        def circuit(self, path: tuple[str, ...] = L2, name: str = "a", **more: float) -> Circuit:
            fields = {"min_bps": MBPS, "max_bps": 20 * MBPS, "lease_until": self.now() + 300}
            return Circuit(name, path, **(fields | more))

        def flows(self, bridge: str) -> list[str]:
            """The circuits' rules, as the switch's own tool prints them."""
            text = self.network.switches.ofctl(bridge, "dump-flows")
            return [line for line in text.splitlines() if TRANSIT in line]

        def classes(self, device: str) -> dict[str, tuple[float, float]]:
            """Rate and ceiling of every HTB class, in b/s, as the kernel has them."""
            done = subprocess.run(
                [*IN_SWITCHES, "tc", "class", "show", "dev", device],
                check=True,
                capture_output=True,
                text=True,
            )
            words = [line.split() for line in done.stdout.splitlines()]
            values = {w[2]: dict(pairwise(w)) for w in words}
            return {k: (tc_rate(v["rate"]), tc_rate(v["ceil"])) for k, v in values.items()}

        def counted(self, name: str, n_bytes: float) -> None:
            """Open vSwitch brings a rule's counter up to date about twice a second."""
            self.wait_for(
                f"count of {n_bytes} bytes",
                lambda: self.controller.circuit_bytes(name) >= n_bytes,
            )

        def sent(self) -> dict[tuple[str, str], int]:
            """Bytes sent on every link direction."""
            return {(c.a, c.b): c.bytes for c in self.controller.counters()}

    def tc_rate(text: str) -> float:
        """``10Mbit`` in b/s."""
        number, unit = text.removesuffix("bit"), 1.0
        for suffix, scale in (("K", 1e3), ("M", 1e6), ("G", 1e9)):
            if number.endswith(suffix):
                number, unit = number[:-1], scale
        return float(number) * unit

    def vswitchd(pid: int = 0) -> int:
        """The process of the switches (``pid`` while it lives); 0 where there is none."""
        for entry in [Path(f"/proc/{pid}")] if pid else Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                name, _, rest = (entry / "stat").read_text().partition("(")[2].rpartition(")")
                if name == "ovs-vswitchd" and rest.split()[0] != "Z":
                    return int(entry.name)
        return 0

    @pytest.fixture(scope="module")
    def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OvsRig]:
        programs = packages.ensure("openvswitch", progress=print) / "wrap"
        with Network(programs, tmp_path_factory.mktemp("network")) as network:
            made = OvsRig(network)
            made.controller.start(60.0)
            yield made
            made.controller.stop()

    @pytest.fixture
    def rig(up: OvsRig) -> OvsRig:
        up.controller.start(60.0)
        up.controller.apply([])
        assert up.controller.installed() == []
        return up

    class TestOpenVSwitch(ControllerConformance):
        """Everything that every driver has to do."""

    def in_netns(site: str) -> list[str]:
        netns = plan.SITES[site].netns
        return ["ip", "netns", "exec", netns] if netns else []

    def load(site: str, *words: object) -> subprocess.Popen[str]:
        """Start tcp_load.py at a site."""
        argv = [*in_netns(site), sys.executable, str(HERE.parent / "tcp_load.py")]
        return subprocess.Popen([*argv, *map(str, words)], stdout=subprocess.PIPE, text=True)

    @contextlib.contextmanager
    def sink(site: str, port: int) -> Iterator[Callable[[], dict[str, Any]]]:
        """Receive at a site; what is yielded waits for the end of one stream."""
        process = load(site, "sink", plan.SITES[site].address, port)
        try:
            assert process.stdout is not None and process.stdout.readline() == "ready\n"
            yield lambda: json.loads(process.stdout.readline())  # type: ignore[union-attr]
        finally:
            process.kill()
            process.communicate()

    def transfer(src: str, dst: str, seconds: float, port: int = 5001) -> dict[str, float]:
        """One stream between two sites: bytes, seconds and bits per second."""
        with sink(dst, port) as received:
            sender = load(src, "send", plan.SITES[dst].address, port, 1, seconds)
            assert sender.wait(seconds + 60) == 0
            found = received()
        return {**found, "bps": 8 * found["bytes"] / found["seconds"]}

    def test_traffic_takes_the_path_it_was_given(rig: OvsRig) -> None:
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
            assert after["s2", "tacc"] - before["s2", "tacc"] >= moved
            assert after[other] - before[other] < moved / 10
            if circuits:
                rig.counted("a", counted + moved)

    def test_a_reserved_rate_is_kept_and_changed_under_load(rig: OvsRig) -> None:
        crowd = rig.circuit(BACKGROUND, "crowd", max_bps=RATE_BPS)
        rig.controller.apply([crowd])
        with sink("iplant", 5002):
            streams = load("local", "send", plan.SITES["iplant"].address, 5002, 8, 600)
            try:
                unreserved = transfer("local", "iplant", 4.0, port=5003)["bps"]
                kept = {}
                for reserved in (40 * MBPS, 20 * MBPS):
                    ours = rig.circuit(L2, min_bps=reserved, max_bps=reserved)
                    rig.controller.apply([crowd, ours])
                    # A machine that is busy elsewhere makes a sender slower, never faster.
                    tries = (transfer("mu", "tacc", 4.0)["bps"] for _ in range(4))
                    kept[reserved] = next((bps for bps in tries if bps > 0.75 * reserved), 0.0)
            finally:
                streams.kill()
                streams.wait()
        print("b/s among nine:", unreserved, "by reserved b/s:", kept)
        for reserved, got in kept.items():
            assert 0.75 * reserved < got < 1.05 * reserved
        assert unreserved < kept[40 * MBPS] / 2

    def test_classes_are_what_was_reserved(rig: OvsRig) -> None:
        rig.controller.apply([rig.circuit(min_bps=10 * MBPS, max_bps=30 * MBPS)])
        ours = {v for k, v in rig.classes("s1-a").items() if k not in ("1:1", "1:2")}
        assert ours == {(10 * MBPS, 30 * MBPS)}
        assert rig.classes("s1-a")["1:2"] == (50 * MBPS, RATE_BPS)
        rig.controller.apply([])
        assert rig.classes("s1-a") == {"1:1": (RATE_BPS,) * 2, "1:2": (RATE_BPS,) * 2}

    def test_classes_come_back_when_somebody_removed_them(rig: OvsRig) -> None:
        subprocess.run([*IN_SWITCHES, "tc", "qdisc", "del", "dev", "s1-a", "root"], check=True)
        rig.controller.apply([rig.circuit(min_bps=10 * MBPS, max_bps=10 * MBPS)])
        assert (10 * MBPS, 10 * MBPS) in rig.classes("s1-a").values()

    def test_rates_survive_a_restart_of_the_switches(rig: OvsRig) -> None:
        rig.controller.apply([rig.circuit(min_bps=10 * MBPS, max_bps=10 * MBPS)])
        rig.restart_switches()
        rig.wait_for("resync", lambda: rig.controller.installed() == ["a"])
        assert (10 * MBPS, 10 * MBPS) in rig.classes("s1-a").values()
        assert transfer("mu", "tacc", 0.5)["bytes"] > 0

    def test_a_refusal_leaves_the_circuits_as_they_were(rig: OvsRig) -> None:
        before = rig.circuit(L2, "before", min_bps=10 * MBPS, max_bps=10 * MBPS)
        rig.controller.apply([before])
        vsctl = rig.network.switches.vsctl
        rules = len(rig.flows("s2"))
        routes = 12  # between four sites
        limit = f"flow_limit={routes - 2 + rules}"
        vsctl(
            *("--", "--id=@full", "create", "Flow_Table", limit, "overflow_policy=refuse"),
            *("--", "set", "bridge", "s2", "flow_tables:0=@full"),
        )
        try:
            with pytest.raises(ControllerError, match=r"switch s2 \(dpid 2\) refused") as caught:
                rig.controller.apply([before, rig.circuit(BACKGROUND, "more")])
            assert "OFPFMFC_TABLE_FULL" in str(caught.value)
            assert rig.controller.installed() == ["before"]
            assert len(rig.flows("s1")) == len(rig.flows("s2")) == rules
            assert len(rig.classes("s1-a")) == 3
        finally:
            vsctl("clear", "bridge", "s2", "flow_tables")
        rig.controller.apply([before, rig.circuit(BACKGROUND, "more")])
        assert rig.controller.installed() == ["before", "more"]

    def test_byte_counters_go_on_when_a_circuit_is_changed(rig: OvsRig) -> None:
        rig.controller.apply([rig.circuit(lease_until=rig.now() + 100)])
        moved = transfer("mu", "tacc", 0.5)["bytes"]
        rig.controller.apply([rig.circuit(lease_until=rig.now() + 200, max_bps=30 * MBPS)])
        moved += transfer("mu", "tacc", 0.5)["bytes"]
        rig.counted("a", moved)

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
from test_openflow import OvsRig, L2
rig = OvsRig(None)
rig.controller.start(60)
rig.controller.apply([rig.circuit(L2, lease_until=time.time() + float(sys.argv[1]))])
print(*rig.controller.installed(), flush=True)
if sys.argv[2] == "crash":
    os.kill(os.getpid(), 9)
"""

    def child(lease_s: float, end: str) -> int:
        """A process that installs a circuit and ends without stopping its controller."""
        path = os.pathsep.join([str(HERE.parent), str(HERE.parents[2])])
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
        assert child(8.0, "crash") == -signal.SIGKILL
        rig.wait_for("end of the lease", lambda: not rig.flows("s1") and not rig.flows("s2"))

    def test_a_process_with_a_running_controller_can_exit(rig: OvsRig) -> None:
        rig.controller.stop()
        assert child(8.0, "return") == 0

    def test_a_restarted_broker_does_not_disturb_running_transfers(rig: OvsRig) -> None:
        rig.controller.stop()
        child(100.0, "crash")
        cookies = [line.split(",")[0] for line in rig.flows("s1")]
        rig.controller.start(60.0)
        assert [line.split(",")[0] for line in rig.flows("s1")] == cookies
        rig.controller.apply([])
        assert rig.flows("s1") == rig.flows("s2") == []

    def test_switches_that_hang_are_an_error_and_come_back(rig: OvsRig) -> None:
        rig.controller.stop()
        impatient = rig.new_controller(reply_timeout_s=5.0)
        impatient.start(60.0)
        try:
            impatient.apply([rig.circuit(L2, "before")])
            pid = vswitchd()
            os.kill(pid, signal.SIGSTOP)
            try:
                with pytest.raises(ControllerError, match="no answer within 5 s"):
                    impatient.apply([])
            finally:
                os.kill(pid, signal.SIGCONT)
            rig.wait_for("resync", lambda: impatient.installed() == ["before"])
        finally:
            impatient.stop()

    def test_stop_leaves_no_rule_and_no_class(rig: OvsRig) -> None:
        rig.controller.apply([rig.circuit()])
        rig.controller.stop()
        for bridge in plan.SWITCHES:
            assert "cookie" not in rig.network.switches.ofctl(bridge, "dump-flows")
        for device in ("s1-a", "s2-a", "s1-b", "s2-b"):
            assert rig.classes(device) == {}
