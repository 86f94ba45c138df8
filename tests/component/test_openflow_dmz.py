"""A Science DMZ on real Open vSwitch: its DTN is reached while a transit lives, and not otherwise.

The site's neighbour entries are removed, so hosts have to ask for addresses, as on a real network.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from ovs_rig import L2, OvsRig, in_netns, rig_up, run_inside, slow_topology, transfer

from adon.machine import box
from examples.testbed import plan
from network_provisioner.flows import Flow
from network_provisioner.topology import Topology

# Outside, one test is all of them.
pytestmark = [pytest.mark.component, pytest.mark.root, pytest.mark.timeout(900)]

DTN = "iplant"
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

if not box.inside():

    def test_a_science_dmz_on_open_vswitch(tmp_path: Path) -> None:
        run_inside(__file__, tmp_path)

else:

    @pytest.fixture(scope="module")
    def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OvsRig]:
        whole = slow_topology()
        nodes = [replace(node, dmz=node.name == DTN) for node in whole.nodes.values()]
        with rig_up(tmp_path_factory.mktemp("network"), Topology(nodes, whole.links)) as made:
            yield made

    @pytest.fixture
    def rig(up: OvsRig) -> OvsRig:
        up.controller.apply([])
        for name in plan.SITES:
            forget_neighbours(name)
        return up

    def forget_neighbours(site: str) -> None:
        """Hosts know nobody to or from the DTN; between the others the testbed's entries stay."""
        known = [plan.SITES[n] for n in plan.SITES if n != site and DTN in (n, site)]
        for other in known:
            words = ["ip", "neigh", "flush", "to", other.address, "dev", "dp0", "nud", "all"]
            subprocess.run([*in_netns(site), *words], check=True, capture_output=True)

    def knock(site: str, at: str = DTN, seconds: float = 60.0) -> str:
        """What becomes of a connection: without an answer to ARP, no route to host, after 3 s."""
        words = [sys.executable, "-c", KNOCK, plan.SITES[at].address, str(seconds)]
        done = subprocess.run([*in_netns(site), *words], check=True, capture_output=True, text=True)
        return done.stdout.strip()

    def neighbours(site: str, other: str) -> str:
        """What a site knows of another's address."""
        words = ["ip", "neigh", "show", "to", plan.SITES[other].address, "dev", "dp0"]
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
        assert "No route to host" in knock("mu")
        assert "No route to host" in knock("tacc")  # on the DTN's own switch
        assert "No route to host" in knock(DTN, "mu")
        assert through(rig) == before
        assert transfer("mu", "tacc", 0.3)["bytes"] > 0  # others are not concerned

    def test_a_transit_opens_the_way_to_its_two_ends_only(rig: OvsRig) -> None:
        rig.controller.apply([rig.circuit(PATH, "open", min_bps=0.0)])
        assert rig.controller.installed() == ["open"]
        before = through(rig)
        moved = transfer("mu", DTN, 0.5)["bytes"]
        assert through(rig) - before >= moved
        rig.counted("open", moved)
        for stranger in ("tacc", "local"):
            assert "No route to host" in knock(stranger)
            assert neighbours(DTN, stranger) == ""
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
        assert knock("mu", seconds=2.0) in NO_ANSWER
        for name in plan.SITES:
            forget_neighbours(name)
        assert "No route to host" in knock("mu")
        assert through(rig) == before

    def test_the_way_is_closed_by_the_switch_when_the_lease_ends(rig: OvsRig) -> None:
        rig.controller.apply([rig.circuit(PATH, "open")])
        assert transfer("mu", DTN, 0.3)["bytes"] > 0
        # Not from the start: on a busy machine it could end before the transfer.
        rig.controller.apply([rig.circuit(PATH, "open", lease_until=rig.now() + 10)])
        rig.wait_for("end of the lease", lambda: not rig.flows("s1") and not rig.flows("s2"))
        before = at_rest(rig)
        assert knock("mu", seconds=2.0) in NO_ANSWER
        assert through(rig) == before

    def test_a_transit_of_named_ports_opens_no_others(rig: OvsRig) -> None:
        flows = (Flow("tcp", None, (5001, 5001)),)
        rig.controller.apply([rig.circuit(PATH, "open", flows=flows)])
        assert transfer("mu", DTN, 0.3, 5001)["bytes"] > 0
        rig.controller.apply([rig.circuit(PATH, "open", flows=(Flow("tcp", None, (5002, 5002)),))])
        assert knock("mu", seconds=2.0) in NO_ANSWER
        # The overlay is there for others as before.
        rig.controller.apply([rig.circuit(L2, "other")])
        assert transfer("mu", "tacc", 0.3)["bytes"] > 0
