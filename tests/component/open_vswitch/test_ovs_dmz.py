"""A Science DMZ on real Open vSwitch: its DTN is reached while a transit lives, and not otherwise.

The site's neighbour entries are removed, so hosts have to ask for addresses, as on a real network.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from ovs_rig import L2, OvsRig, controlled, host_of, in_netns, slow_topology, transfer

from examples.soykb.scenario import LAYOUT
from examples.testbed import netns
from examples.testbed.layout import Host
from examples.testbed.network import Network
from network_provisioner.base.flows import Flow
from network_provisioner.topology.graph import Topology

pytestmark = [pytest.mark.component, pytest.mark.root]

DTN = "iplant"
RETRANSMIT = "net.ipv4.neigh.dp0.retrans_time_ms"
PATH = ("mu", "s1", "s2", DTN)
KNOCK = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], 5001), timeout=float(sys.argv[2])).close()
except OSError as error:
    print(type(error).__name__, error)
else:
    print("connected")
"""

# Not even that nobody listens. On a busy machine the neighbour may have to be asked for anew.
NO_ANSWER = ("TimeoutError timed out", "OSError [Errno 113] No route to host")


@pytest.fixture(scope="module")
def up(network: Network) -> Iterator[OvsRig]:
    whole = slow_topology()
    nodes = [replace(node, dmz=node.name == DTN) for node in whole.nodes.values()]
    with controlled(network, Topology(nodes, whole.links)) as made:
        yield made
    for site, other in strangers():
        words = ["ip", "neigh", "replace", other.address, "lladdr", other.mac, "dev", "dp0"]
        subprocess.run([*in_netns(site), *words], check=True)


@pytest.fixture
def rig(up: OvsRig) -> OvsRig:
    up.controller.apply([])
    forget_neighbours()
    return up


def strangers() -> list[tuple[str, Host]]:
    """The DTN's site and every other, both ways round."""
    others = [site.name for site in LAYOUT.sites if site.name != DTN]
    pairs = [(name, DTN) for name in others] + [(DTN, name) for name in others]
    return [(site, LAYOUT.host(other)) for site, other in pairs]


def forget_neighbours() -> None:
    """Hosts know nobody to or from the DTN; between the others the testbed's entries stay."""
    for site, other in strangers():
        words = ["ip", "neigh", "flush", "to", other.address, "dev", "dp0", "nud", "all"]
        subprocess.run([*in_netns(site), *words], check=True, capture_output=True)


def knock(site: str, at: str = DTN, seconds: float = 60.0) -> str:
    """What becomes of a connection: without an answer to ARP, no route to host, after 3 s."""
    words = [sys.executable, "-c", KNOCK, LAYOUT.host(at).address, str(seconds)]
    done = subprocess.run([*in_netns(site), *words], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def unreachable(*pairs: tuple[str, str]) -> None:
    """All at once: each takes the time of ARP's three questions, here less than three seconds."""
    for site, _ in pairs:
        netns.sysctl(host_of(site).netns, {RETRANSMIT: "200"})
    try:
        with ThreadPoolExecutor() as pool:
            for said in pool.map(lambda pair: knock(*pair), pairs):
                assert "No route to host" in said
    finally:
        for site, _ in pairs:
            netns.sysctl(host_of(site).netns, {RETRANSMIT: "1000"})


def neighbours(site: str, other: str) -> str:
    """What a site knows of another's address."""
    words = ["ip", "neigh", "show", "to", LAYOUT.host(other).address, "dev", "dp0"]
    done = subprocess.run([*in_netns(site), *words], check=True, capture_output=True, text=True)
    return done.stdout


def through(rig: OvsRig) -> int:
    """Bytes that switches have sent to the DTN so far."""
    return rig.sent()["s2", DTN]


def at_rest(rig: OvsRig) -> int:
    """The same, once nothing is on its way any more."""
    return rig.at_rest("the bytes", lambda: through(rig), 0.5)


def test_without_a_transit_not_even_arp_passes(rig: OvsRig) -> None:
    before = at_rest(rig)
    # From the other switch, from the DTN's own, and from the DTN.
    unreachable(("mu", DTN), ("tacc", DTN), (DTN, "mu"))
    assert through(rig) == before
    assert transfer("mu", "tacc", 0.3)["bytes"] > 0  # others are not concerned


def test_a_transit_opens_the_way_to_its_two_ends_only(rig: OvsRig) -> None:
    rig.controller.apply([rig.circuit(PATH, "open", min_bps=0.0)])
    assert rig.controller.installed() == ["open"]
    before = through(rig)
    moved = transfer("mu", DTN, 0.5)["bytes"]
    assert through(rig) - before >= moved
    rig.counted("open", moved)
    unreachable(("tacc", DTN), ("local", DTN))
    assert neighbours(DTN, "tacc") == neighbours(DTN, "local") == ""
    assert "lladdr" in neighbours(DTN, "mu")
    for bridge in ("s1", "s2"):
        rules = rig.flows(bridge)
        assert len(rules) == 4 and all("hard_timeout=" in rule for rule in rules)
        assert sum("arp_spa" in rule for rule in rules) == 2


def test_the_way_is_closed_when_the_transit_ends(rig: OvsRig) -> None:
    rig.controller.apply([rig.circuit(PATH, "open")])
    assert transfer("mu", DTN, 0.3)["bytes"] > 0
    rig.controller.apply([])
    # Both ends know each other's address now; packets are dropped all the same.
    before = at_rest(rig)
    assert knock("mu", seconds=1.0) in NO_ANSWER
    assert through(rig) == before


@pytest.mark.long
def test_the_way_is_closed_by_the_switch_when_the_lease_ends(rig: OvsRig) -> None:
    rig.controller.apply([rig.circuit(PATH, "open")])
    assert transfer("mu", DTN, 0.3)["bytes"] > 0
    # Not from the start: it could end before the transfer.
    rig.controller.apply([rig.circuit(PATH, "open", lease_until=rig.now() + 4)])
    rig.wait_for("end of the lease", lambda: not rig.flows("s1") and not rig.flows("s2"))
    before = at_rest(rig)
    assert knock("mu", seconds=1.0) in NO_ANSWER
    assert through(rig) == before


def test_a_transit_of_named_ports_opens_no_others(rig: OvsRig) -> None:
    flows = (Flow("tcp", None, (5001, 5001)),)
    rig.controller.apply([rig.circuit(PATH, "open", flows=flows)])
    assert transfer("mu", DTN, 0.3, 5001)["bytes"] > 0
    rig.controller.apply([rig.circuit(PATH, "open", flows=(Flow("tcp", None, (5002, 5002)),))])
    assert knock("mu", seconds=1.0) in NO_ANSWER
    # The overlay is there for others as before.
    rig.controller.apply([rig.circuit(L2, "other")])
    assert transfer("mu", "tacc", 0.3)["bytes"] > 0
