"""Sites with more than one host on real switches: a LAN of data transfer and worker nodes."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from ovs_rig import L2, OvsRig, controlled, in_netns, transfer

from adon.machine import packages
from examples.soykb.scenario import LAYOUT
from examples.testbed.network import Network
from network_provisioner.topology.data import topology_from_dict

pytestmark = [pytest.mark.component, pytest.mark.root]

MORE = {"mu": ("dtn2", "w1", "w2"), "tacc": ("dtn2", "w1", "w2")}
LANS = replace(LAYOUT, sites=tuple(replace(s, more=MORE.get(s.name, ())) for s in LAYOUT.sites))

# Twenty IPv6 datagrams of a kilobyte, sent as frames: the hosts have no IPv6 of their own.
DATAGRAMS = """
import socket, struct, sys
src, dst = (socket.inet_pton(socket.AF_INET6, a) for a in sys.argv[1:])
device = next(name for _, name in socket.if_nameindex() if name.startswith("dp"))
frames = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
frames.bind((device, 0))
udp = struct.pack("!HHHH", 5000, 5001, 1008, 0) + bytes(1000)
ip = struct.pack("!IHBB", 6 << 28, len(udp), 17, 64) + src + dst
for _ in range(20):
    frames.send(bytes.fromhex("020000000002020000000001") + struct.pack("!H", 0x86DD) + ip + udp)
"""


def marked_bytes(rig: OvsRig, device: str) -> int:
    """What all classes of circuits sent on a device: all but that of best effort."""
    return sum(n for name, n in rig.shaped_bytes(device).items() if name != "7ad0:2")


def sent(rig: OvsRig, path: tuple[str, ...]) -> int:
    return rig.sent()[path[1], path[2]]


def test_every_host_of_a_site_is_reached_and_two_may_have_a_circuit(tmp_path: Path) -> None:
    programs = packages.ensure("openvswitch", progress=print) / "wrap"
    mu, tacc = LANS.sites[:2]
    with (
        Network(LANS, programs, tmp_path) as network,
        controlled(network, topology_from_dict(LANS.topology())) as rig,
    ):
        rig.controller.apply([])
        for src, dst in zip(mu.lan_hosts, tacc.lan_hosts, strict=True):
            before = sent(rig, L2)
            moved = transfer(src, dst, 0.0)["bytes"]
            assert sent(rig, L2) - before < moved  # best effort is routed
        first, second = mu.lan_hosts[0], tacc.lan_hosts[0]
        rig.controller.apply([rig.circuit(L2, hosts=(first.address, second.address))])
        before = sent(rig, L2)
        moved = transfer(first, second, 0.0)["bytes"]
        rig.counted("a", moved)
        assert sent(rig, L2) - before >= moved
        before = sent(rig, L2)
        moved = transfer(mu.lan_hosts[1], second, 0.0)["bytes"]
        assert sent(rig, L2) - before < moved
        rig.controller.apply([rig.circuit(L2)])  # of all hosts
        counted = rig.controller.circuit_bytes("a")
        moved = transfer(mu.lan_hosts[1], second, 0.0)["bytes"]
        rig.counted("a", counted + moved)


def test_hosts_with_ipv6_have_rules_of_their_own(tmp_path: Path) -> None:
    programs = packages.ensure("openvswitch", progress=print) / "wrap"
    data = LAYOUT.topology()
    addresses = {"mu": "fd00:0:0:1::/64", "tacc": "fd00:0:0:2::/64"}
    for node in data["nodes"]:
        if node["name"] in addresses:
            node["hosts"] = [{"address": addresses[node["name"]], "mac": node["mac"]}]
    with (
        Network(LAYOUT, programs, tmp_path) as network,
        controlled(network, topology_from_dict(data)) as rig,
    ):
        rig.controller.apply([rig.circuit(L2, hosts=("fd00:0:0:1::5", "fd00:0:0:2::7"))])
        assert rig.controller.installed() == ["a"]
        named = [rule for rule in rig.flows("s1") if "ipv6_src=fd00:0:0:1::5" in rule]
        assert named and "ipv6_dst=fd00:0:0:2::7" in named[0]
        rig.controller.apply([rig.circuit(L2)])  # of all hosts
        assert any("ipv6_src=fd00:0:0:1::/64" in rule for rule in rig.flows("s1"))
        # Its packets are in the circuit's class, as those of IPv4 are.
        device = LAYOUT.device(LAYOUT.link("l2"), "s1")
        words = [sys.executable, "-c", DATAGRAMS, "fd00:0:0:1::5", "fd00:0:0:2::7"]
        subprocess.run([*in_netns("mu"), *words], check=True)
        rig.wait_for("packets in a class of the circuit", lambda: marked_bytes(rig, device) > 10**4)
