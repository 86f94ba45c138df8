"""The network as its switches see it: real Open vSwitch, real frames."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from ovs_rig import OvsRig, network_up, run_inside

from adon.machine import box
from examples.testbed import plan
from network_provisioner.controllers.base import ControllerError
from network_provisioner.topologies.discovery import Discovered, Discovers, differences
from network_provisioner.topology import Topology

pytestmark = [pytest.mark.component, pytest.mark.root]
TRIES = 4

if not box.inside():

    def test_discovery_on_open_vswitch(tmp_path: Path) -> None:
        run_inside(__file__, tmp_path)

else:

    @pytest.fixture(scope="module")
    def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OvsRig]:
        with network_up(tmp_path_factory.mktemp("network")) as network:
            made = OvsRig(network)
            made.controller.start(60.0)
            yield made
            made.controller.stop()

    def discovered(rig: OvsRig) -> Discovered:
        """What is found around here: with the link between the switches, unless its frames were
        longer on the way than they are waited for, each time."""
        assert isinstance(rig.controller, Discovers)
        for _ in range(TRIES):
            found = rig.controller.discover()
            if found.links:
                break
        return found

    def test_what_was_said_is_what_is_there(rig: OvsRig) -> None:
        found = discovered(rig)
        assert differences(rig.topology, found) == []
        assert found.links == {((1, 10), (2, 10))}  # the routed path lets no such frame through
        assert {n for n, port in found.ports[1].items() if port.up} >= {1, 4, 10, 11}

    def test_nothing_is_left_on_the_switches(rig: OvsRig) -> None:
        rig.controller.apply([rig.circuit()])
        before = {bridge: rig.flows(bridge) for bridge in plan.SWITCHES}
        assert isinstance(rig.controller, Discovers)
        rig.controller.discover()
        after = {bridge: rig.flows(bridge) for bridge in plan.SWITCHES}
        assert {b: len(rules) for b, rules in after.items()} == {
            b: len(rules) for b, rules in before.items()
        }
        assert not any("0x88cc" in rule for rules in after.values() for rule in rules)
        assert rig.controller.installed() == ["a"]

    def test_what_is_not_as_it_was_said(rig: OvsRig) -> None:
        found = discovered(rig)
        links = [
            replace(link, ports={"s1": 10, "s2": 99}) if link.layer == "l2" else link
            for link in rig.topology.links
        ]
        said = differences(Topology(rig.topology.nodes.values(), links), found)
        assert said == [
            "link s1-s2: s2 port 99 is not there",
            "link s1-s2: nothing came through from port to port",
            "s1 port 10 and s2 port 10 are joined, and the topology has no such link",
        ]

    def test_switches_that_are_not_there(rig: OvsRig) -> None:
        rig.controller.stop()
        assert isinstance(rig.controller, Discovers)
        with pytest.raises(ControllerError, match="not started"):
            rig.controller.discover()
        rig.controller.start(60.0)
