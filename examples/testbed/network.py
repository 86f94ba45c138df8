"""The testbed's network, made real: namespaces, two switches, two paths between them.

Only inside a box (:mod:`adon.machine.box`), where names are private and the kernel cleans up::

    with Network(bin_dir, run_dir) as network:
        network.switches.ofctl("s1", "dump-flows")

``python -m examples.testbed.network --bin-dir B --run-dir D -- COMMAND …`` makes the box and the
network, runs the command in it, and removes both.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from adon.machine import box
from examples.testbed import delaylink, netns, plan
from examples.testbed.procs import Daemon, wait_ready
from examples.testbed.switches import Switches
from network_provisioner.base.errors import AdonError, MissingError
from network_provisioner.base.units import bytes_of

_READY_S = 60.0  # of a busy machine, for what takes a tenth of a second
# Open vSwitch tells the kernel to cut what it has not segmented into pieces of the device's MTU
# less 54 bytes of headers; with timestamps they are 66, and hosts send 1448 bytes in a segment. At
# an MTU of 1500 every frame would end in a packet of a few bytes: 1 to 2 % of a link.
_SWITCH_MTU = 1502
_ROOT = Path(__file__).resolve().parents[2]

LINKS = {
    # name: (TAP ends, rate). The far end of the layer-3 link moves into the router.
    "l2": (("s1-a", "s2-a"), plan.L2_BPS),
    "l3": (("s1-b", "r1-a"), plan.L3_BPS),
}


class Network:
    """That of :mod:`examples.testbed.plan`. ``up`` and ``down`` may be called in any order."""

    def __init__(self, bin_dir: Path, run_dir: Path) -> None:
        """``bin_dir``: Open vSwitch's programs; ``run_dir`` gets the logs."""
        self._dir = run_dir / "network"
        self._undo = ExitStack()
        self._up = False
        self.switches = Switches(bin_dir, box.private_dir() / "ovs", self._dir, plan.SWITCH_NETNS)

    def up(self) -> None:
        """Make everything; nothing happens where it is up.

        Raises MissingError outside a box or without a program, AdonError where the system refuses;
        what was made until then is removed.
        """
        if self._up:
            return
        if not box.inside():
            raise MissingError(
                "the testbed network can only be made inside a box: "
                "start the command with adon.machine.box"
            )
        self._dir.mkdir(parents=True, exist_ok=True)
        try:
            self._make()
        except BaseException:
            self._undo.close()
            raise
        self._up = True

    def down(self) -> None:
        """Remove everything, last first; nothing happens where it is down."""
        self._up = False
        self._undo.close()

    def link(self, name: str, **settings: float | bool) -> dict[str, Any]:
        """Change or look at link ``l2`` or ``l3``, as :func:`delaylink.control` does."""
        return delaylink.control(_control(name), **settings)

    @staticmethod
    def topology() -> dict[str, Any]:
        """The network as ``topology_from_dict`` and adon.yml describe it."""
        return plan.topology()

    def __enter__(self) -> Self:
        self.up()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.down()

    def _make(self) -> None:
        box.name_hosts(plan.hosts_lines())
        self._namespaces()
        self._management()
        for site in plan.SITES.values():
            self._site(site)
        for name, (ends, rate_bps) in LINKS.items():
            self._delay_link(name, ends, rate_bps)
        self._router()
        self._undo.callback(self.switches.stop)
        self.switches.start()
        controller = f"tcp:{plan.OPENFLOW_LISTEN}"
        for name, dpid in plan.SWITCHES.items():
            ports = {s.number: s.port_device for s in plan.SITES.values() if s.switch == name}
            ports |= {plan.L2_PORT: f"{name}-a", plan.L3_PORT: f"{name}-b"}
            self.switches.add_bridge(name, dpid, ports, controller)
            self.switches.widen_buffers(name)

    def _namespaces(self) -> None:
        names = [s.netns for s in plan.SITES.values() if s.netns]
        for name in (*names, plan.SWITCH_NETNS, plan.ROUTER_NETNS):
            netns.add(name)
            self._undo.callback(netns.delete, name)
            netns.sysctl(name, netns.QUIET | netns.TCP_BUFFERS)
        netns.sysctl(None, netns.QUIET | netns.TCP_BUFFERS)

    def _management(self) -> None:
        """A /30 from the hub to each site and to the switches; the router needs none."""
        netns.batch(None, [f"addr add {plan.HUB_ADDRESS}/32 dev lo"])
        self._undo.callback(netns.batch, None, [f"addr del {plan.HUB_ADDRESS}/32 dev lo"])
        far = {s.netns: s.number for s in plan.SITES.values() if s.netns}
        for name, number in {**far, plan.SWITCH_NETNS: plan.SWITCH_NUMBER}.items():
            hub = plan.hub_management_address(number)
            netns.batch(
                None,
                [
                    f"link add mgmt{number} type veth peer name mgmt0 netns {name}",
                    f"addr add {hub}/30 dev mgmt{number}",
                    f"link set mgmt{number} up",
                ],
            )
            # Its far end may be held by a process that outlives the namespace's name.
            self._undo.callback(netns.batch, None, [f"link del mgmt{number}"])
            netns.batch(
                name,
                [
                    f"addr add {plan.management_address(number)}/30 dev mgmt0",
                    "link set mgmt0 up",
                    f"route add {plan.HUB_ADDRESS}/32 via {hub}",
                ],
            )

    def _site(self, site: plan.Site) -> None:
        """The access link: ``dp0`` at the site, a port device at its switch, both shaped."""
        others = [s for s in plan.SITES.values() if s is not site]
        peer = f"type veth peer name {site.port_device} netns {plan.SWITCH_NETNS}"
        netns.batch(
            site.netns,
            [
                f"link add dp0 address {site.mac} {peer}",
                f"addr add {site.address}/24 dev dp0",
                "link set dp0 up",
                *(f"neigh replace {o.address} lladdr {o.mac} dev dp0" for o in others),
            ],
        )
        self._undo.callback(netns.batch, site.netns, ["link del dp0"])
        netns.batch(plan.SWITCH_NETNS, [f"link set {site.port_device} mtu {_SWITCH_MTU} up"])
        shape = f"root tbf rate {plan.ACCESS_BPS:.0f}bit burst 256kb limit 4mb"
        netns.traffic_control(site.netns, [f"qdisc replace dev dp0 {shape}"])
        netns.traffic_control(plan.SWITCH_NETNS, [f"qdisc replace dev {site.port_device} {shape}"])

    def _delay_link(self, name: str, ends: tuple[str, str], rate_bps: float) -> None:
        ready_read, ready_write = os.pipe()
        # The queue of a well-run router: one bandwidth-delay product.
        limit_bytes = bytes_of(rate_bps * 2 * plan.WAN_DELAY_S)
        words = [*netns.execute(plan.SWITCH_NETNS), sys.executable, "-m", delaylink.__name__, *ends]
        words += ["--rate-bps", f"{rate_bps:.0f}", "--delay-s", str(plan.WAN_DELAY_S)]
        words += ["--limit-bytes", f"{limit_bytes:.0f}", "--ready-fd", str(ready_write)]
        words += ["--control", str(_control(name))]
        daemon = Daemon(
            words,
            self._dir / f"{name}.log",
            env={**os.environ, "PYTHONPATH": str(_ROOT)},
            pass_fds=(ready_write,),
        )
        os.close(ready_write)
        self._undo.callback(daemon.stop)
        wait_ready(ready_read, daemon, _READY_S)

    def _router(self) -> None:
        """r1: forwards by address between its two sides, each site's address behind its switch."""
        sides = {"s1": "r1-a", "s2": "r1-b"}
        setup = []
        for switch, device in sides.items():
            setup += [
                f"link set {device} address {plan.ROUTER_MACS[switch]}",
                f"link set {device} up",
            ]
        for site in plan.SITES.values():
            device = sides[site.switch]
            setup += [
                f"route add {site.address}/32 dev {device}",
                f"neigh replace {site.address} lladdr {site.mac} dev {device}",
            ]
        netns.batch(
            plan.SWITCH_NETNS,
            [
                f"link set r1-a netns {plan.ROUTER_NETNS}",
                f"link add s2-b type veth peer name r1-b netns {plan.ROUTER_NETNS}",
                *(
                    # The emulated link has the queue; the device before it must not lose packets.
                    f"link set {device} mtu {_SWITCH_MTU} txqueuelen 10000 up"
                    for device in ("s1-a", "s2-a", "s1-b", "s2-b")
                ),
            ],
        )
        netns.batch(plan.ROUTER_NETNS, setup)
        netns.sysctl(
            plan.ROUTER_NETNS,
            {
                "net.ipv4.ip_forward": "1",
                "net.ipv4.conf.all.rp_filter": "0",
                "net.ipv4.conf.all.send_redirects": "0",
            },
        )


def _control(link: str) -> Path:
    return box.private_dir() / f"{link}.ctl"


def run_with_network(bin_dir: Path, run_dir: Path, argv: list[str]) -> int:
    """Inside a box: run ``argv`` while the network is up; its exit code."""
    with Network(bin_dir, run_dir):
        return subprocess.run(argv, check=False).returncode


def main() -> int:
    """See the module's description."""
    parser = argparse.ArgumentParser(description="run a command in the testbed's network")
    parser.add_argument("--bin-dir", type=Path, required=True)
    parser.add_argument("--run-dir", type=Path, required=True)
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    try:
        if not box.inside():
            return box.run([*sys.orig_argv], tied=True)
        return run_with_network(options.bin_dir, options.run_dir, options.command)
    except AdonError as err:
        print(err, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
