"""A relayed circuit on real Open vSwitch, with plain transparent proxies for relays."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from network_world import RELAYED
from ovs_rig import OvsRig, controlled, in_netns

from adon.machine import packages
from examples.testbed import netns
from examples.testbed.layout import Relay
from examples.testbed.network import Network
from network_provisioner.base.flows import Flow
from network_provisioner.controllers.base import Circuit, Redirect
from network_provisioner.topology.data import topology_from_dict

pytestmark = [pytest.mark.component, pytest.mark.root]

PORT, STREAMS, TAKEN = 5001, 46001, 9999
TPROXY = f"""
table ip relay {{
  chain prerouting {{
    type filter hook prerouting priority mangle; policy accept;
    iifname "dp0" ip daddr OWN accept
    iifname "dp0" meta l4proto tcp socket transparent 1 meta mark set 1 accept
    iifname "dp0" meta l4proto tcp tproxy to :{TAKEN} meta mark set 1 accept
  }}
}}
"""
# What it takes goes to its peer with the addresses of both ends before it.
PROXY = f"""
import socket, sys
from threading import Thread
own, peer = sys.argv[1:]

def transparent(address):
    made = socket.socket()
    made.setsockopt(socket.SOL_IP, 19, 1)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind(address)
    return made

def pump(a, b):
    while data := a.recv(65536):
        b.sendall(data)
    b.shutdown(socket.SHUT_WR)

def join(a, b):
    Thread(target=pump, args=(a, b)).start()
    pump(b, a)

def take(client, address):
    stream = socket.create_connection((peer, {STREAMS}))
    ends = [*address, *client.getsockname()]
    stream.sendall(" ".join(map(str, ends)).ljust(64).encode())
    join(client, stream)

def serve(stream, address):
    a, by, b, to = stream.recv(64, socket.MSG_WAITALL).split()
    server = transparent((a.decode(), int(by)))
    server.connect((b.decode(), int(to)))
    join(stream, server)

def listen(address, work):
    listener = transparent(address)
    listener.listen()
    while True:
        Thread(target=work, args=listener.accept()).start()

Thread(target=listen, args=((own, {STREAMS}), serve)).start()
Thread(target=listen, args=(("0.0.0.0", {TAKEN}), take)).start()
print("ready", flush=True)
"""
SERVER = f"""
import socket, sys
listener = socket.create_server((sys.argv[1], {PORT}))
echo = socket.socket(type=socket.SOCK_DGRAM)
echo.bind((sys.argv[1], {PORT}))
print("ready", flush=True)
client, address = listener.accept()
count = 0
while data := client.recv(65536):
    count += len(data)
client.sendall(f"{{address[0]}} {{address[1]}} {{count}}".encode())
client.close()
data, address = echo.recvfrom(100)
echo.sendto(address[0].encode(), address)
"""
CLIENT = f"""
import socket, sys
with socket.create_connection((sys.argv[1], {PORT})) as server:
    server.sendall(bytes(int(sys.argv[2])))
    server.shutdown(socket.SHUT_WR)
    print(*server.getsockname(), sys.argv[2])
    print(server.recv(100).decode())
echo = socket.socket(type=socket.SOCK_DGRAM)
echo.sendto(b"hello", (sys.argv[1], {PORT}))
print(echo.recv(100).decode())
"""


def start(words: list[str], script: str, *arguments: str) -> subprocess.Popen[str]:
    """A script that has said that it is ready."""
    process = subprocess.Popen(
        [*words, sys.executable, "-c", script, *arguments], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    return process


@contextmanager
def relay(one: Relay, peer: Relay) -> Iterator[None]:
    words = netns.execute(one.netns)
    nft = packages.ensure("nftables", progress=print) / "wrap/nft"
    rules = TPROXY.replace("OWN", one.address)
    subprocess.run([*words, str(nft), "-f", "-"], input=rules, check=True, text=True)
    netns.batch(
        one.netns,
        ["rule add fwmark 1 lookup 100", "route add local 0.0.0.0/0 dev lo table 100"],
    )
    process = start(words, PROXY, one.address, peer.address)
    try:
        yield
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[OvsRig]:
    programs = packages.ensure("openvswitch", progress=print) / "wrap"
    with ExitStack() as stack:
        network = stack.enter_context(Network(RELAYED, programs, tmp_path))
        topology = topology_from_dict(RELAYED.topology())
        yield stack.enter_context(controlled(network, topology))


def test_a_connection_passes_two_relays_and_nothing_else_does(rig: OvsRig) -> None:
    there, n_bytes = RELAYED.host("tacc").address, 1_000_000
    circuit = Circuit(
        "r",
        ("ra", "s1", "s2", "rb"),
        10e6,
        100e6,
        rig.now() + 300,
        flows=(Flow("tcp", None, (STREAMS, STREAMS)), Flow("tcp", (STREAMS, STREAMS), None)),
        redirect=Redirect("mu", "tacc"),
    )
    rig.controller.apply([circuit])
    assert rig.controller.installed() == ["r"]
    one, other = RELAYED.relays
    with relay(one, other), relay(other, one):
        server = start(in_netns("tacc"), SERVER, there)
        client = [*in_netns("mu"), sys.executable, "-c", CLIENT, there, str(n_bytes)]
        done = subprocess.run(client, check=True, capture_output=True, text=True)
        assert server.wait() == 0
    own, seen, echoed = done.stdout.splitlines()
    assert own == seen and own.split()[::2] == [RELAYED.host("mu").address, str(n_bytes)]
    assert echoed == RELAYED.host("mu").address
    rig.counted("r", n_bytes)
    ping = packages.ensure("iperf3", progress=print) / "wrap/ping"
    subprocess.run([*in_netns("mu"), str(ping), "-c", "1", there], check=True, capture_output=True)
