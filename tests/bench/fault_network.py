"""Inside a box, for the bench P21: six Open vSwitch switches with a broker, and packets across.

    python -m tests.bench.fault_network FILE        send and receive, until it is killed

Each switch is a process of its own, in a namespace of its own. A link is two
pairs of veth with a bridge between, so that it can lose its carrier at both ends, or let nothing
through while its ports are up.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Self

import numpy as np
import yaml

from adon.machine import box, syscalls
from examples.testbed import netns
from examples.testbed.procs import Daemon
from examples.testbed.switches import Switches
from network_provisioner.base.errors import AdonError
from network_provisioner.base.flows import Flow
from network_provisioner.base.model import ON_SWITCHES, Transit, TransitRequest
from network_provisioner.client.broker import BrokerClient
from network_provisioner.controllers.routes import default_path
from network_provisioner.topology.data import topology_from_dict

API, OPENFLOW_PORT = "127.0.0.1:8470", 6653
RATE = "50 Mb/s"
SWITCHES = {f"s{n}": n for n in range(1, 7)}
LINKS = {
    "upper": ("s1", "s2"), "lower": ("s1", "s2"), "east23": ("s2", "s3"), "east34": ("s3", "s4"),
    "west45": ("s4", "s5"), "west51": ("s5", "s1"), "branch": ("s3", "s6"),
}  # fmt: skip
"""A ring whose first side is two parallel links, and a branch."""
_PAST = "is changed again and again"  # by the faults before: health says so for a minute


@dataclass(frozen=True, slots=True)
class Station:
    """A host of a site at a switch; a site's first is its data transfer node."""

    name: str
    site: str
    switch: str
    address: str
    number: int

    @property
    def mac(self) -> str:
        """Its Ethernet address."""
        return f"02:00:00:00:00:{self.number:02x}"


STATIONS = {
    station.name: station
    for station in (
        Station("west", "west", "s1", "10.10.0.1", 1),
        Station("dtn1", "east", "s3", "10.10.0.2", 2),
        Station("dtn2", "east", "s3", "10.10.0.3", 3),
        Station("north", "north", "s4", "10.10.0.4", 4),
        Station("end", "end", "s6", "10.10.0.5", 5),
        Station("lake", "lake", "s2", "fd00::6", 6),
        Station("hill", "hill", "s4", "fd00::7", 7),
    )
}
TRANSITS = {
    "split": ("west", "dtn1", 6001),
    "plain": ("west", "north", 6002),
    "only": ("dtn2", "end", 6003),
    "ipv6": ("lake", "hill", 6004),
}
"""Those with a path of their own: between which hosts, to which port."""
FLOWS = {
    **TRANSITS,
    "split, again": ("west", "dtn1", 6001),
    "best 1": ("west", "dtn1", 7001),
    "best 2": ("north", "end", 7002),
    "best 3": ("dtn2", "west", 7003),
    "best ipv6": ("lake", "hill", 7004),
}
TEMPLATES = {
    "split": {
        "qspec": {"min_throughput": "60 Mb/s"}, "rspec": {"max_throughput": "80 Mb/s"},
        "paths": 2, "patience": "10 min", "break_even": "0 B",
    },
    "plain": {
        "qspec": {"min_throughput": "5 Mb/s"}, "rspec": {"max_throughput": "20 Mb/s"},
        "patience": "10 min", "break_even": "0 B",
    },
}  # fmt: skip
PACKETS_S = 100
_MOST = 400_000  # packets of a flow
_QUIET_BRIDGE = "mcast_snooping 0 ageing_time 0 group_fwd_mask 16384"  # a wire, that passes LLDP on
_LEASE = re.compile(r"hard_timeout=\d+, ")
# What differs between two states that are alike: numbers that are made of names, and marks.
_PLAIN = (
    (re.compile(r"cookie=(0xad..)\w+"), r"cookie=\1"),
    (re.compile(r"set_field:[1-9]\d*->ip_dscp"), "set_field:M->ip_dscp"),
    (re.compile(r"nw_tos=\d+"), "nw_tos=M"),
    (re.compile(r"(group|group_id|meter)([:=])\d+"), r"\1\2N"),
    (re.compile(r"(htb|parent|leaf|flowid|pref|fh|match) \S+"), r"\1 N"),
)
_OURS = ("cookie=0xad", "type=select", "kbps", "type=drop")
State = dict[str, Counter[str]]


# What stands before the broker's commands: ``tc -batch -`` goes to the devices' namespaces, line by
# line in its order; what ovs-vsctl lists comes from all databases.
_EXEC = """#!/bin/sh
if [ "$1" = ovs-vsctl ]; then
    shift
    rows=$(for switch in s1 s2 s3 s4 s5 s6; do
        {programs}/ovs-vsctl --db=unix:{run}/$switch/db.sock "$@" &
    done | sed 's/^{"data":.//; s/.,"headings.*//' | paste -sd,)
    printf '{"data":[%s]}\\n' "$rows"
    exit
fi
awk -v tc="$*" '
    BEGIN { here = "s1" }
    match($0, /dev s[0-9]-/) { if (substr($0, RSTART + 4, 2) != here) {
        if (run != "") status = close(run) || status
        here = substr($0, RSTART + 4, 2)
    } }
    { run = "ip netns exec p21-" here " " tc; print | run }
    END { if (run != "") status = close(run) || status; exit status }
'
"""


class Plant:
    """The network, its broker and its packets. ``bandwidth`` as in adon.yml."""

    def __init__(self, programs: Path, folder: Path, bandwidth: str) -> None:
        self._programs = programs
        self.folder = folder
        self.bandwidth = bandwidth
        self.data = _topology()
        self.topology = topology_from_dict(self.data)
        self.switches = {
            name: Switches(programs, box.private_dir() / name, folder / name, place(name))
            for name in SWITCHES
        }
        self.client = BrokerClient(f"http://{API}", 20.0)
        self.ids: dict[str, str] = {}
        self.log = folder / "broker.log"
        self._undo = ExitStack()
        self._numbers = count(1)
        self._broker: Daemon | None = None
        self._packets = np.memmap(
            folder / "packets", np.float64, "w+", shape=(len(FLOWS), _MOST, 2)
        )

    def __enter__(self) -> Self:
        try:
            self._make()
        except BaseException:
            self._undo.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._undo.close()

    def _make(self) -> None:
        netns.sysctl(None, netns.QUIET)
        for name, number in SWITCHES.items():
            netns.add(place(name))
            self._undo.callback(netns.delete, place(name))
            netns.sysctl(place(name), netns.QUIET)
            netns.batch(
                None,
                [
                    f"link add m-{name} type veth peer name mgmt netns {place(name)}",
                    f"addr add 10.254.{number}.1/30 dev m-{name}",
                    f"link set m-{name} up",
                ],
            )
            netns.batch(
                place(name), [f"addr add 10.254.{number}.2/30 dev mgmt", "link set mgmt up"]
            )
            self._undo.callback(netns.batch, None, [f"link del m-{name}"])
        for name, ends in LINKS.items():
            self._join(f"wire-{name}", [f"{switch}-{name}" for switch in ends])
        self._join("lan", ["s3-east"])
        for station in STATIONS.values():
            self._plug(station)
        for name, dpid in SWITCHES.items():
            self._undo.callback(self.switches[name].stop)
            self.switches[name].start()
            self.switches[name].add_bridge(name, dpid, ports(name), target(name))
        store = self.folder / "store"
        store.mkdir(exist_ok=True)
        syscalls.mount("adon", str(store), "tmpfs", data="size=16m")
        self._undo.callback(subprocess.run, ["umount", "-l", str(store)], check=False)
        content = {
            "topology": self.data,
            "templates": TEMPLATES,
            "controller": {
                "driver": "openflow",
                "listen": f"0.0.0.0:{OPENFLOW_PORT}",
                "bandwidth": self.bandwidth,
                "exec": [str(self.folder / "exec.sh")],
            },
            "broker": {
                "listen": API,
                "state": str(store / "broker.sqlite"),
                "archive": str(self.folder / "archive.sqlite"),
            },
        }
        script = _EXEC.replace("{programs}", str(self._programs))
        run = self.folder / "exec.sh"
        run.write_text(script.replace("{run}", str(box.private_dir())))
        run.chmod(0o755)
        (self.folder / "adon.yml").write_text(yaml.safe_dump(content))
        self._undo.callback(self.stop_broker, signal.SIGKILL)
        self.start_broker()
        self.request()
        words = [sys.executable, "-m", __spec__.name, str(self.folder / "packets")]
        daemon = Daemon(words, self.folder / "packets.log", cwd=Path(__file__).parents[2])
        self._undo.callback(daemon.stop)
        daemon.wait(lambda: all(self._packets[n, :, 1].any() for n in range(len(FLOWS))))

    def _join(self, bridge: str, devices: list[str]) -> None:
        lines = [f"link add {bridge} type bridge {_QUIET_BRIDGE}", f"link set {bridge} up"]
        for device in devices:
            lines += [
                f"link add {device}.w type veth peer name {device} netns {place(device)}",
                f"link set {device}.w master {bridge} up",
            ]
        netns.batch(None, lines)
        for device in devices:
            netns.batch(place(device), [f"link set {device} up"])
        gone = [f"link del {device}" for device in (*(f"{d}.w" for d in devices), bridge)]
        self._undo.callback(netns.batch, None, gone)

    def _plug(self, station: Station) -> None:
        """A host in a namespace of its own, with ``dp0``."""
        own, lan = place(station.name), station.site == "east"
        device = f"lan-{station.name}" if lan else f"{station.switch}-{station.site}"
        where = None if lan else place(station.switch)
        netns.add(own)
        self._undo.callback(netns.delete, own)
        bits, nodad = (64, " nodad") if ":" in station.address else (24, "")
        up = f"link set {device} up" + " master lan" * lan
        netns.batch(where, [f"link add {device} type veth peer name dp0 netns {own}", up])
        self._undo.callback(netns.batch, own, ["link del dp0"])
        netns.sysctl(own, {"net.ipv6.conf.dp0.disable_ipv6": "0"})
        neighbours = [
            f"neigh replace {other.address} lladdr {other.mac} dev dp0"
            for other in STATIONS.values()
            if other is not station and (":" in other.address) == (":" in station.address)
        ]
        netns.batch(
            own,
            [
                f"link set dp0 address {station.mac} up",
                f"addr add {station.address}/{bits} dev dp0{nodad}",
                *neighbours,
            ],
        )

    # -- the broker --------------------------------------------------------------------------

    def start_broker(self) -> None:
        """Start it, and wait until it answers. Raises AdonError."""
        adon = Path(sys.executable).with_name("adon")
        words = [str(adon), "broker", "--config", str(self.folder / "adon.yml")]
        self._broker = Daemon(words, self.log)
        self._broker.wait(self.answers)

    def stop_broker(self, number: signal.Signals) -> None:
        """End it by a signal."""
        if self._broker is not None:
            self._broker.stop(20.0, number)

    def answers(self) -> bool:
        """Whether the broker does."""
        with contextlib.suppress(AdonError):
            return bool(BrokerClient(f"http://{API}", 1.0).health())
        return False

    def request(self, names: tuple[str, ...] = tuple(TRANSITS)) -> None:
        """Ask for these transits."""
        for name in names:
            src, dst, port = TRANSITS[name]
            self.ids[name] = f"{name}-{next(self._numbers)}"
            request = TransitRequest(
                self.ids[name],
                STATIONS[src].site,
                STATIONS[dst].site,
                template="split" if name == "split" else "plain",
                lease_s=3000.0,
                flows=(Flow("udp", None, (port, port)),),
            )
            self.client.request(request)

    def request_another(self) -> None:
        """Ask for one more, from s1 by s5 to s4, and give it back. Raises AdonError if it gets
        no path."""
        name = f"another-{next(self._numbers)}"
        request = TransitRequest(name, "west", "north", template="plain", lease_s=60.0)
        got = self.client.request(request)
        self.client.release(name)
        if got.state not in ON_SWITCHES:
            raise AdonError(f"a request for another transit: {got.state}: {got.reason}")

    def release(self) -> None:
        """Give all transits back."""
        for name in self.ids.values():
            self.client.release(name)

    def transits(self) -> dict[str, Transit]:
        """Those of now, by their flow."""
        return {name: self.client.get(transit_id) for name, transit_id in self.ids.items()}

    def problem(self) -> str:
        """What health says is wrong now, or which transit lacks its path or its minimum; "" for
        nothing."""
        try:
            problem = str(self.client.health()["problem"])
            if problem and _PAST not in problem:
                return problem
            for name, transit in self.transits().items():
                if transit.state not in ON_SWITCHES:
                    return f"{name} is {transit.state}: {transit.reason}"
                if transit.grant.granted_bps < transit.request.min_bps:
                    return f"{name} has {transit.grant.granted_bps:g} b/s"
        except AdonError as error:
            return str(error)
        return ""

    # -- what is there -----------------------------------------------------------------------

    def paths(self) -> dict[str, set[str]]:
        """What each flow passes: its own name, its site, switches and links."""
        nodes_by_path: dict[str, set[str]] = {}
        transits = self.transits()
        for name, (src, dst, _) in FLOWS.items():
            transit = transits.get(name.partition(",")[0])
            if transit is not None:
                nodes = {n for part in transit.grant.parts for n in part.path} | {
                    *transit.grant.path
                }
            else:
                path = default_path(self.topology, STATIONS[src].site, STATIONS[dst].site)
                nodes = set() if path is None else set(path.nodes)
            nodes_by_path[name] = {name.partition(",")[0], *nodes}
        return nodes_by_path

    def state(self) -> State:
        """What is on every switch and device, but for leases."""
        state: State = {}
        for name, switch in self.switches.items():
            text = switch.ofctl(name, "dump-flows", "--no-stats")
            text += switch.ofctl(name, "dump-groups") + switch.ofctl(name, "dump-meters")
            lines = [_LEASE.sub("", line.strip()) for line in text.splitlines()]
            lines = [line for line in lines if any(mark in line for mark in _OURS)]
            state[name] = Counter(line for line in lines if "0x88b6" not in line)
            for device in ports(name).values():
                state[device] = Counter(classes(device))
        return state

    def lost(self, since: float, until: float) -> dict[str, tuple[int, float]]:
        """How many packets of each flow were lost between two monotonic seconds, and over how many
        seconds at most none came through."""
        losses = {}
        for number, name in enumerate(FLOWS):
            times = self._packets[number, :, 0]
            there = np.flatnonzero((times >= since) & (times <= until))
            arrivals = there[self._packets[number, there, 1] > 0]
            ends = [since, *(float(times[i]) for i in arrivals), until]
            runs = [0, *(int(i) for i in arrivals - there[0] + 1), len(there) + 1]
            gaps = [
                ends[i + 1] - ends[i] for i in range(len(ends) - 1) if runs[i + 1] - runs[i] > 1
            ]
            losses[name] = len(there) - len(arrivals), max(gaps, default=0.0)
        return losses


def place(device: str) -> str:
    """The namespace of a host, of a switch, or of a switch's device."""
    return f"p21-{device.partition('-')[0]}"


def target(switch: str) -> str:
    """Where a switch has its controller."""
    return f"tcp:10.254.{SWITCHES[switch]}.1:{OPENFLOW_PORT}"


def ports(switch: str) -> dict[int, str]:
    """A switch's ports, with the device of each."""
    sites = {
        station.number: station
        for station in reversed(STATIONS.values())
        if station.switch == switch
    }
    own = {
        station.number: f"{switch}-{station.site}"
        for station in sites.values()
        if station.name != "dtn2"
    }
    joined = [name for name, ends in LINKS.items() if switch in ends]
    return own | {10 + n: f"{switch}-{name}" for n, name in enumerate(joined)}


def classes(device: str) -> list[str]:
    """The HTB classes and filters of a device."""
    output = []
    for what in ("class show dev", "filter show parent 7ad0: dev"):
        words = [*netns.execute(place(device)), "tc", *what.split(), device]
        process = subprocess.run(words, capture_output=True, text=True, check=False)
        output += process.stdout.splitlines()
    # The kernel counts filters as it likes.
    lines = [re.sub(r"fh \S+ order \d+ key ht \S+ ", "", line.strip()) for line in output]
    return [line for line in lines if " htb " in line or "flowid" in line]


def plain(state: State) -> State:
    """The same, without what differs between states that are alike."""
    plain_state: State = {}
    for where, lines in state.items():
        plain_state[where] = Counter()
        for line, number in lines.items():
            for pattern, instead in _PLAIN:
                line = pattern.sub(instead, line)  # noqa: PLW2901
            plain_state[where][line] += number
    return plain_state


def differences(before: State, after: State) -> list[str]:
    """What is missing, and what is there beside."""
    return [
        f"{place}: {sign} {line}"
        for place in before
        for sign, rest in (
            ("-", before[place] - after.get(place, Counter())),
            ("+", after.get(place, Counter()) - before[place]),
        )
        for line in rest
    ]


def _topology() -> dict[str, Any]:
    nodes: list[dict[str, Any]] = [
        {"name": name, "kind": "switch", "dpid": dpid} for name, dpid in SWITCHES.items()
    ]
    links: list[dict[str, Any]] = []
    for station in STATIONS.values():
        if station.name == "dtn2":
            continue
        node = {
            "name": station.site,
            "kind": "site",
            "address": station.address,
            "mac": station.mac,
        }
        if station.name == "dtn1":
            other = STATIONS["dtn2"]
            node["hosts"] = [{"address": other.address, "mac": other.mac}]
        nodes.append(node)
        links.append(_link(station.site, station.switch, capacity="1 Gb/s"))
    links += [
        _link(*ends, name=name, layer="l2", capacity=RATE, delay="1 ms")
        for name, ends in LINKS.items()
    ]
    return {"nodes": nodes, "links": links}


def _link(a: str, b: str, name: str = "", **more: str) -> dict[str, Any]:
    device = name or a
    numbers = {
        switch: number
        for switch in (a, b)
        if switch in SWITCHES
        for number, there in ports(switch).items()
        if there == f"{switch}-{device}"
    }
    devices = {switch: f"{switch}-{device}" for switch in numbers}
    named = {"name": name} if name else {}
    return {**named, "a": a, "b": b, "ports": numbers, "devices": devices, **more}


def carry(file: Path) -> None:
    """Send packets of every flow, and note when each was sent and came."""
    packets = np.memmap(file, np.float64, "r+", shape=(len(FLOWS), _MOST, 2))
    poller, receivers, senders = select.poll(), {}, []
    for number, (src, dst, port) in enumerate(FLOWS.values()):
        address = STATIONS[dst].address
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with _inside(dst), contextlib.suppress(OSError):  # two flows may have one receiver
            receiver = socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
            receiver.bind((address, port))
            receivers[receiver.fileno()] = receiver
            poller.register(receiver, select.POLLIN)
        with _inside(src):
            sender = socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
            sender.bind((STATIONS[src].address, 20_000 + number))
            senders.append((sender, (address, port)))
    begun = time.monotonic()
    for place in range(_MOST):
        for number, (sender, address) in enumerate(senders):
            packets[number, place, 0] = time.monotonic()
            with contextlib.suppress(OSError):  # a port that is down
                sender.sendto(struct.pack("!II100x", number, place), address)
        due = begun + place / PACKETS_S
        while (left := due - time.monotonic()) > 0:
            for descriptor, _ in poller.poll(1000 * left):
                with contextlib.suppress(BlockingIOError):
                    while True:
                        number, at = struct.unpack("!II100x", receivers[descriptor].recv(200))
                        packets[number, at, 1] = time.monotonic()


@contextlib.contextmanager
def _inside(station: str) -> Any:
    """This process in a host's network namespace."""
    setns = ctypes.CDLL(None, use_errno=True).setns
    home = os.open("/proc/self/ns/net", os.O_RDONLY)
    there = os.open(f"/run/netns/{place(station)}", os.O_RDONLY)
    try:
        if setns(there, syscalls.CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"setns: {station}")
        yield
    finally:
        setns(home, syscalls.CLONE_NEWNET)
        os.close(home)
        os.close(there)


if __name__ == "__main__":
    carry(Path(sys.argv[1]))
