"""The testbed's network with the embedded controller on it, for tests that run in a box.

The network's names and addresses belong to a box (:mod:`adon.machine.box`), and a process is in one
or it is not: a test outside runs others inside.
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
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import pytest

from adon.machine import box, packages
from examples.soykb.scenario import LAYOUT
from examples.testbed import netns
from examples.testbed.layout import IN_SWITCHES, OPENFLOW_LISTEN, Host, LanHost
from examples.testbed.network import Network
from network_provisioner.base.controller import Circuit, Controller
from network_provisioner.controllers.openflow.driver import OpenFlowController
from network_provisioner.controllers.shaping.htb import TcShaper
from network_provisioner.controllers.shaping.shapes import CommandRunner
from network_provisioner.topology.data import topology_from_dict
from network_provisioner.topology.graph import Topology
from tests.ipv6_world import address6
from tests.network_world import slower
from tests.waiting import until

HERE = Path(__file__).resolve().parent
L2 = ("mu", "s1", "s2", "tacc")
L3 = ("mu", "s1", "r1", "s2", "tacc")
BACKGROUND = ("local", "s1", "s2", "iplant")
TRANSIT = "cookie=0xad0e"
MBPS = 1e6
# The overlay link's rate in these tests: little enough for a busy machine to fill it.
RATE_BPS = 60 * MBPS
_LOOK_S = 0.05
T = TypeVar("T")


def run_inside(tests: Path, tmp_path: Path, marked: str = "") -> None:
    """Run a file or folder of tests in a box of its own; skips the calling test where none can be
    made.

    ``marked`` is pytest's expression for the tests to run: "" is all of them.
    """
    reason = box.can_box()
    if reason is not None:
        pytest.skip(reason)
    # Downloads need the host's network, so before the box is made.
    packages.ensure("openvswitch", progress=print)
    words = [*box.command(), sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    words += [f"--basetemp={tmp_path / 'inside'}", "-m", marked, str(tests)]
    words += ["--durations=25", "--durations-min=0.5"]
    done = subprocess.run(words, cwd=HERE.parents[1], capture_output=True, text=True, check=False)
    print(done.stdout, done.stderr)
    assert done.returncode == 0, done.stdout[-8000:]


@contextlib.contextmanager
def network_up(directory: Path) -> Iterator[Network]:
    """The network, up."""
    programs = packages.ensure("openvswitch", progress=print) / "wrap"
    with Network(LAYOUT, programs, directory) as network:
        yield network


def slow_topology() -> Topology:
    """The testbed's, with RATE_BPS on the overlay link."""
    return topology_from_dict(slower(RATE_BPS).topology())


class OvsRig:
    """The testbed's network and the controller that runs in this process."""

    def __init__(self, network: Network, topology: Topology | None = None) -> None:
        self.network = network
        self.topology = topology or slow_topology()
        self.openflow = self.new_controller()
        self.controller: Controller = self.openflow

    def new_controller(self, **options: Any) -> OpenFlowController:
        shaper = TcShaper(CommandRunner(IN_SWITCHES))
        # A busy machine stops the switches for seconds, which is not a refusal.
        given = {"shaper": shaper, "listen": OPENFLOW_LISTEN, "reply_timeout_s": 120.0}
        given["silent_after_s"] = 120.0
        given |= options
        return OpenFlowController(self.topology, **given)

    def now(self) -> float:
        return time.time()

    def wait_for(self, what: str, check: Callable[[], bool]) -> None:
        until(check, what)

    def at_rest(self, what: str, look: Callable[[], T], quiet_s: float) -> T:
        """What ``look`` finds once that has not changed for ``quiet_s``.

        Those are seconds of looking: while this process is stopped, so are the threads of its
        controllers, and nothing has been quiet.
        """
        seen, quiet, before = look(), 0.0, time.monotonic()

        def still() -> bool:
            nonlocal seen, quiet, before
            now, at = look(), time.monotonic()
            quiet = quiet + min(at - before, 4 * _LOOK_S) if now == seen else 0.0
            seen, before = now, at
            return quiet >= quiet_s

        self.wait_for(f"rest of {what}", still)
        return seen

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
        for bridge in LAYOUT.switches:
            # New sockets have small buffers again, and lose packets.
            self.network.switches.widen_buffers(bridge)

    def point(self, bridge: str, *targets: str) -> None:
        """Give a switch these controllers, which it is as patient with as with its first."""
        vsctl = self.network.switches.vsctl
        vsctl("set-controller", bridge, *targets)
        controllers = vsctl("--bare", "get", "bridge", bridge, "controller").strip(" []\n")
        for controller in controllers.split(","):
            vsctl(
                "set", "controller", controller.strip(),
                "max_backoff=1000", "connection-mode=out-of-band", "inactivity_probe=60000",
            )  # fmt: skip

    def circuit(self, path: tuple[str, ...] = L2, name: str = "a", **more: Any) -> Circuit:
        fields: dict[str, Any] = {
            "min_bps": MBPS,
            "max_bps": 20 * MBPS,
            "lease_until": self.now() + 300,
        }
        return Circuit(name, path, **(fields | more))

    def flows(self, bridge: str) -> list[str]:
        """The circuits' rules, as the switch's own tool prints them."""
        text = self.network.switches.ofctl(bridge, "dump-flows")
        return [line for line in text.splitlines() if TRANSIT in line]

    def tc(self, what: str, device: str) -> list[str]:
        """Every class, qdisc or filter of a device, as the kernel prints it."""
        done = subprocess.run(
            [*IN_SWITCHES, "tc", *what.split(), "show", "dev", device],
            check=True,
            capture_output=True,
            text=True,
        )
        return done.stdout.splitlines()

    def classes(self, device: str) -> dict[str, tuple[float, float]]:
        """Rate and ceiling of every HTB class, in b/s, as the kernel has them."""
        words = [line.split() for line in self.tc("class", device)]
        values = {w[2]: dict(pairwise(w)) for w in words}
        return {k: (tc_rate(v["rate"]), tc_rate(v["ceil"])) for k, v in values.items()}

    def shaped_bytes(self, device: str) -> dict[str, int]:
        """Bytes sent by every leaf class since it was made."""
        lines = iter(self.tc("-s class", device))
        sent = {}
        for line in lines:
            if line.startswith("class htb") and " leaf " in line:
                sent[line.split()[2]] = int(next(lines).split()[1])
        return sent

    def counted(self, name: str, n_bytes: float) -> None:
        """Open vSwitch brings a rule's counter up to date about twice a second."""
        self.wait_for(
            f"count of {n_bytes} bytes",
            lambda: self.controller.circuit_bytes(name) >= n_bytes,
        )

    def sent(self) -> dict[tuple[str, str], int]:
        """Bytes sent on every link direction."""
        return {(c.a, c.b): c.bytes for c in self.controller.counters()}


@contextlib.contextmanager
def controlled(network: Network, topology: Topology | None = None) -> Iterator[OvsRig]:
    """The network with its controller, started."""
    made = OvsRig(network, topology)
    made.controller.start(60.0)
    try:
        yield made
    finally:
        made.controller.clear()
        made.controller.stop()


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


def host_of(site: str | LanHost) -> Host | LanHost:
    """The data transfer node of a site; a host itself."""
    return LAYOUT.host(site) if isinstance(site, str) else site


def in_netns(site: str | LanHost) -> list[str]:
    return netns.execute(host_of(site).netns)


def load(site: str | LanHost, *words: object) -> subprocess.Popen[str]:
    """Start tcp_load.py at a site."""
    argv = [*in_netns(site), sys.executable, str(HERE / "tcp_load.py")]
    return subprocess.Popen([*argv, *map(str, words)], stdout=subprocess.PIPE, text=True)


@contextlib.contextmanager
def sink(
    site: str | LanHost, port: int, *file: Path, address: str = ""
) -> Iterator[Callable[[], dict[str, Any]]]:
    """Receive at a site, into a file where one is named; what is yielded waits for the end of one
    stream."""
    process = load(site, "sink", address or host_of(site).address, port, *file)
    try:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        yield lambda: json.loads(process.stdout.readline())  # type: ignore[union-attr]
    finally:
        process.kill()
        process.communicate()


def transfer(
    src: str | LanHost, dst: str | LanHost, seconds: float, port: int = 5001, version: int = 4
) -> dict[str, float]:
    """One stream between two sites, over IPv4 or IPv6: bytes, seconds and bits per second."""
    to = host_of(dst)
    address = to.address if version == 4 or isinstance(to, LanHost) else address6(to)
    with sink(dst, port, address=address) as received:
        sender = load(src, "send", address, port, 1, seconds)
        assert sender.wait(seconds + 240) == 0
        result = received()
    return {**result, "bps": 8 * result["bytes"] / result["seconds"]}
