"""A testbed's network, made real: namespaces, switches, the paths between them.

Only inside a box (:mod:`adon.machine.box`), where names are private and the kernel cleans up::

    with Network(layout, bin_dir, run_dir) as network:
        network.switches.ofctl("s1", "dump-flows")

``python -m examples.testbed.network --bin-dir B --run-dir D [--example E] -- COMMAND …`` makes the
box and the network of an example, runs the command in it, and removes both.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Self

from adon.machine import box
from examples import scenario
from examples.testbed import delaylink, netns, traffic
from examples.testbed.layout import (
    HUB_ADDRESS,
    OPENFLOW_LISTEN,
    SWITCH_NETNS,
    Host,
    LanHost,
    Layout,
    Link,
    Relay,
    Router,
    Site,
    Traffic,
    hub_management_address,
    management_address,
)
from examples.testbed.procs import Daemon
from examples.testbed.switches import Switches
from network_provisioner.base.errors import AdonError, MissingError
from network_provisioner.base.units import bytes_of

# Open vSwitch tells the kernel to cut what it has not segmented into pieces of the device's MTU
# less 54 bytes of headers; with timestamps they are 66, and hosts send 1448 bytes in a segment. At
# an MTU of 1500 every frame would end in a packet of a few bytes: 1 to 2 % of a link.
_SWITCH_MTU = 1502
_FIRST_TRAFFIC_PORT = 7000
_ROOT = Path(__file__).resolve().parents[2]


class Network:
    """That of a layout. ``up`` and ``down`` may be called in any order."""

    def __init__(self, layout: Layout, bin_dir: Path, run_dir: Path) -> None:
        """``bin_dir``: Open vSwitch's programs; ``run_dir`` gets the logs."""
        self.layout = layout
        self._dir = run_dir / "network"
        self._undo = ExitStack()
        self._up = False
        self.switches = Switches(bin_dir, box.private_dir() / "ovs", self._dir, SWITCH_NETNS)

    def up(self) -> None:
        """Make everything; nothing happens where it is up.

        Raises MissingError outside a box or without a program, AdonError if the system refuses;
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
        """Change or look at a link, as :func:`delaylink.control` does."""
        return delaylink.control(_control(name), **settings)

    def __enter__(self) -> Self:
        self.up()
        return self

    def __exit__(self, *_: object) -> None:
        self.down()

    def _make(self) -> None:
        box.name_hosts(self.layout.hosts_lines())
        self._namespaces()
        self._management()
        for host in self.layout.hosts:
            self._access(host)
        for site in self.layout.sites:
            if site.more:
                self._lan(site)
        for link in self.layout.links:
            self._wide(link)
        for router in self.layout.routers:
            self._router(router)
        self._undo.callback(self.switches.stop)
        self.switches.start()
        for name, dpid in self.layout.switches.items():
            ports = self.layout.ports(name)
            self.switches.add_bridge(name, dpid, ports, f"tcp:{OPENFLOW_LISTEN}")
            self.switches.widen_buffers(name)
        for number, stream in enumerate(self.layout.traffic, 1):
            self._traffic(number, stream)

    def _namespaces(self) -> None:
        names = [host.netns for host in self.layout.stations if host.netns]
        for name in (*names, SWITCH_NETNS, *(r.netns for r in self.layout.routers)):
            netns.add(name)
            self._undo.callback(netns.delete, name)
            netns.sysctl(name, netns.QUIET | netns.TCP_BUFFERS)
        netns.sysctl(None, netns.QUIET | netns.TCP_BUFFERS)

    def _management(self) -> None:
        """A /30 from the hub to each site, to relays and to the switches; nobody else needs one."""
        netns.batch(None, [f"addr add {HUB_ADDRESS}/32 dev lo"])
        self._undo.callback(netns.batch, None, [f"addr del {HUB_ADDRESS}/32 dev lo"])
        for name, number in self.layout.managed().items():
            hub = hub_management_address(number)
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
                    f"addr add {management_address(number)}/30 dev mgmt0",
                    "link set mgmt0 up",
                    f"route add {HUB_ADDRESS}/32 via {hub}",
                ],
            )

    def _access(self, host: Host) -> None:
        """The access link: ``dp0`` at the host, a port device at its switch, both shaped. At a site
        with a LAN the bridge is between them. A relay reaches any address by its own."""
        lan = isinstance(host, Site) and bool(host.more)
        self._plug(host, f"{host.port_device}-h" if lan else host.port_device)
        if lan:
            peer = f"{host.port_device} type veth peer name {host.port_device}-l"
            netns.batch(SWITCH_NETNS, [f"link add {peer}"])
        netns.batch(SWITCH_NETNS, [f"link set {host.port_device} mtu {_SWITCH_MTU} up"])
        shape = _shape(host.access_bps)
        netns.traffic_control(SWITCH_NETNS, [f"qdisc replace dev {host.port_device} {shape}"])
        if isinstance(host, Relay):
            netns.batch(host.netns, ["route add default dev dp0"])

    def _plug(self, host: Host | LanHost, port_device: str) -> None:
        """``dp0`` at a host, shaped, and its other end among the switches."""
        peer = f"type veth peer name {port_device} netns {SWITCH_NETNS}"
        netns.batch(
            host.netns,
            [
                f"link add dp0 address {host.mac} {peer}",
                f"addr add {host.address}/24 dev dp0",
                "link set dp0 up",
                *(
                    f"neigh replace {other.address} lladdr {other.mac} dev dp0"
                    for other in self.layout.stations
                    if other != host
                ),
            ],
        )
        self._undo.callback(netns.batch, host.netns, ["link del dp0"])
        rate_bps = host.site.access_bps if isinstance(host, LanHost) else host.access_bps
        netns.traffic_control(host.netns, [f"qdisc replace dev dp0 {_shape(rate_bps)}"])

    def _lan(self, site: Site) -> None:
        """The bridge of a site, between its hosts and its port at the switch."""
        for host in site.lan_hosts:
            self._plug(host, host.port_device)
        devices = [f"{site.port_device}-l", f"{site.port_device}-h"]
        devices += [host.port_device for host in site.lan_hosts]
        netns.batch(
            SWITCH_NETNS,
            [
                f"link add {site.lan} type bridge",
                f"link set {site.lan} up",
                *(
                    f"link set {device} mtu {_SWITCH_MTU} master {site.lan} up"
                    for device in devices
                ),
            ],
        )

    def _wide(self, link: Link) -> None:
        """The emulated link between two switches, or from a switch to the router behind which a
        veth pair leads to the other one."""
        ends = [self.layout.device(link, switch) for switch in (link.a, link.b)]
        for router in (r for r in self.layout.routers if r.link is link):
            netns.batch(
                SWITCH_NETNS,
                [
                    f"link add {ends[1]} type veth peer name {router.device(link.b)} "
                    f"netns {router.netns}"
                ],
            )
            self._delay_link(link, ends[0], router.device(link.a))
            netns.batch(SWITCH_NETNS, [f"link set {router.device(link.a)} netns {router.netns}"])
        if not link.routed:
            self._delay_link(link, *ends)
        # The emulated link has the queue; the device before it must not lose packets.
        up = [f"link set {device} mtu {_SWITCH_MTU} txqueuelen 10000 up" for device in ends]
        netns.batch(SWITCH_NETNS, up)

    def _delay_link(self, link: Link, *devices: str) -> None:
        # The queue of a well-run router: one bandwidth-delay product.
        limit_bytes = bytes_of(link.rate_bps * 2 * link.delay_s)
        command = [*netns.execute(SWITCH_NETNS), sys.executable, "-m", delaylink.__name__]
        command += [*devices, "--rate-bps", f"{link.rate_bps:.0f}", "--delay-s", str(link.delay_s)]
        command += ["--limit-bytes", f"{limit_bytes:.0f}", "--control", str(_control(link.name))]
        daemon = Daemon(
            command,
            self._dir / f"{link.name}.log",
            name=f"link {link.name}",
            env={**os.environ, "PYTHONPATH": str(_ROOT)},
        )
        self._undo.callback(daemon.stop)
        daemon.wait(partial(delaylink.answers, _control(link.name)))

    def _router(self, router: Router) -> None:
        """It forwards by address between its two sides, each host's behind the nearer switch."""
        setup = []
        for switch, mac in router.macs.items():
            device = router.device(switch)
            setup += [f"link set {device} address {mac}", f"link set {device} up"]
        for host in self.layout.stations:
            near = host.site if isinstance(host, LanHost) else host
            device = router.device(self.layout.side_of(router, near))
            setup += [
                f"route add {host.address}/32 dev {device}",
                f"neigh replace {host.address} lladdr {host.mac} dev {device}",
            ]
        netns.batch(router.netns, setup)
        netns.sysctl(
            router.netns,
            {
                "net.ipv4.ip_forward": "1",
                "net.ipv4.conf.all.rp_filter": "0",
                "net.ipv4.conf.all.send_redirects": "0",
            },
        )

    def _traffic(self, number: int, stream: Traffic) -> None:
        """Both ends of a stream of others. It begins when the switches are told to carry it."""
        src, dst = self.layout.host(stream.src), self.layout.host(stream.dst)
        netns.sysctl(src.netns, netns.LARGE_FRAMES)
        where = [dst.address, str(_FIRST_TRAFFIC_PORT + number), *(["--udp"] * stream.udp)]
        pace = ["--bytes-per-s", f"{bytes_of(stream.rate_bps):.0f}"]
        pace += ["--on", str(stream.on_s), "--off", str(stream.off_s)]
        pace += ["--streams", str(stream.streams)]
        for host, words in ((dst, ["sink", *where]), (src, ["send", *where, *pace])):
            command = [*netns.execute(host.netns), sys.executable, traffic.__file__, *words]
            daemon = Daemon(command, self._dir / f"traffic{number}-{words[0]}.log")
            self._undo.callback(daemon.stop)


def _shape(rate_bps: float) -> str:
    return f"root tbf rate {rate_bps:.0f}bit burst 256kb limit 4mb"


def _control(link: str) -> Path:
    return box.private_dir() / f"{link}.ctl"


def main() -> int:
    """See the module's description."""
    parser = argparse.ArgumentParser(description="run a command in the testbed's network")
    parser.add_argument("--bin-dir", type=Path, required=True)
    parser.add_argument("--run-dir", type=Path, required=True)
    parser.add_argument("--example", default=scenario.DEFAULT, help="whose (%(default)s)")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    try:
        if not box.inside():
            return box.run([*sys.orig_argv], tied=True)
        with Network(scenario.load(options.example).layout, options.bin_dir, options.run_dir):
            return subprocess.run(options.command, check=False).returncode
    except AdonError as err:
        print(err, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
