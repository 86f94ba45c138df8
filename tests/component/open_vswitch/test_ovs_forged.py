"""A host at a middle switch that forges a site's address and the mark of its circuit."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import pytest
from ovs_rig import OvsRig, in_netns

from adon.machine import packages
from examples.soykb.scenario import LAYOUT
from examples.testbed.layout import Host, Link
from examples.testbed.network import Network
from network_provisioner.topology.data import topology_from_dict

pytestmark = [pytest.mark.component, pytest.mark.root]

FORGER = Host("ev", 5, "s2")
SIX = {"mu": "fd00:0:0:1::5", "tacc": "fd00:0:0:2::7"}
LINE = replace(
    LAYOUT,
    sites=tuple(
        replace(site, switch={"mu": "s1", "tacc": "s3"}.get(site.name, "s1"))
        for site in LAYOUT.sites
        if site.name in ("mu", "tacc", "local")
    ),
    links=(Link("one", "s1", "s2", 60e6, 0.001), Link("two", "s2", "s3", 60e6, 0.001)),
    others=(FORGER,),
)
PATH = ("mu", "s1", "s2", "s3", "tacc")
ENDS = {"four": ("10.10.0.1", "10.10.0.2"), "six": (SIX["mu"], SIX["tacc"])}
BYTES = 10 * 1000
# Ten datagrams of a kilobyte in somebody's name, with a DSCP value, as frames.
FRAMES = """
import socket, struct, sys
src, dst, mark = sys.argv[1], sys.argv[2], int(sys.argv[3])
family = socket.AF_INET6 if ":" in src else socket.AF_INET
src, dst = socket.inet_pton(family, src), socket.inet_pton(family, dst)
device = next(name for _, name in socket.if_nameindex() if name.startswith("dp"))
frames = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
frames.bind((device, 0))
udp = struct.pack("!HHHH", 5000, 5001, 1008, 0) + bytes(1000)
if family == socket.AF_INET6:
    kind, ip = 0x86DD, struct.pack("!IHBB", 6 << 28 | mark << 22, len(udp), 17, 64) + src + dst
else:
    ip = struct.pack("!BBHHHBBH", 0x45, mark << 2, 20 + len(udp), 0, 0, 64, 17, 0) + src + dst
    total = sum(struct.unpack("!10H", ip))
    total = ~(total + (total >> 16)) & 0xFFFF
    kind, ip = 0x0800, ip[:10] + struct.pack("!H", total) + ip[12:]
for _ in range(10):
    frames.send(bytes.fromhex("020000000002020000000001") + struct.pack("!H", kind) + ip + udp)
"""


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OvsRig]:
    programs = packages.ensure("openvswitch", progress=print) / "wrap"
    data = LINE.topology()
    for node in data["nodes"]:
        if node["name"] in SIX:
            node["hosts"] = [{"address": SIX[node["name"]], "mac": node["mac"]}]
    with Network(LINE, programs, tmp_path_factory.mktemp("line")) as network:
        yield OvsRig(network, topology_from_dict(data))


def send(host: str, ends: tuple[str, str], mark: int) -> None:
    site = FORGER if host == FORGER.name else host
    words = [sys.executable, "-c", FRAMES, *ends, str(mark)]
    subprocess.run([*in_netns(site), *words], check=True)  # type: ignore[arg-type]


def carried(rig: OvsRig, switch: str, ends: tuple[str, str]) -> int:
    """Bytes that the circuit's rules at a switch have forwarded from one address to the other."""
    match = re.compile(f"_src={ends[0]},\\w+_dst={ends[1]}[, ]")
    there = [line for line in rig.flows(switch) if match.search(line)]
    assert there
    return sum(int(re.search(r"n_bytes=(\d+)", line)[1]) for line in there)  # type: ignore[index]


@pytest.mark.parametrize("bandwidth", ["dscp-htb", "meter"])
def test_it_gets_none_of_a_reservation(line: OvsRig, bandwidth: str) -> None:
    """Of one by IPv4 and one by IPv6."""
    controller = line.new_controller(bandwidth=bandwidth)
    line.controller = controller
    controller.start(60.0)
    try:
        # A ceiling below the link's rate gives each a class, or a meter.
        controller.apply([line.circuit(PATH, name, hosts=ends) for name, ends in ENDS.items()])
        switches = ("s1", "s2", "s3")

        def counted() -> list[list[int]]:  # each switch counts for itself, sooner or later
            return [[carried(line, at, ends) for at in switches] for ends in ENDS.values()]

        def crossed() -> bool:
            for ends in ENDS.values():
                send("mu", ends, 0)  # the first may still go by flows that a switch has cached
            return min(map(min, counted())) >= BYTES

        line.wait_for("the circuits' own", crossed)
        own = line.at_rest("the rules' counters", counted, 1.5)
        device = LINE.device(LINE.link("two"), "s2")
        by_class = line.shaped_bytes(device) if bandwidth == "dscp-htb" else {}
        rest_before = line.sent()["s2", "s3"]
        written = re.findall(r"set_field:(\d+)->ip_dscp", "".join(line.flows("s1")))
        marks = {0, *map(int, written)}
        assert len(marks) > 1
        for ends, mark in product(ENDS.values(), marks):
            send(FORGER.name, ends, mark)
        forged = len(ENDS) * len(marks) * BYTES
        # Best effort carries it; then all counters have been brought up to date twice.
        line.wait_for("the forged", lambda: line.sent()["s2", "s3"] - rest_before >= forged)
        now = line.at_rest("the rules' counters", counted, 1.5)
        if bandwidth == "dscp-htb":
            after = line.shaped_bytes(device)
            assert {n: b for n, b in after.items() if n != "7ad0:2"} == {
                n: b for n, b in by_class.items() if n != "7ad0:2"
            }
            assert after["7ad0:2"] - by_class["7ad0:2"] >= forged
        assert [at[1] for at in now] == [at[1] for at in own]
        if bandwidth == "meter":
            assert [at[2] for at in now] == [at[2] for at in own]
    finally:
        controller.clear()
        controller.stop()
