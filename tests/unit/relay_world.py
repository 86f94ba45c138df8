"""The demo's network with a relay at each switch, and agents that ask when they are told to."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from broker_rig import Rig
from network_world import LAYOUT

from network_provisioner.base.controller import Circuit
from network_provisioner.controllers.plan import make_plan
from network_provisioner.relay.agents import RelayAgents
from network_provisioner.relay.sessions import AgentStatus
from network_provisioner.topology.data import topology_from_dict
from network_provisioner.topology.graph import Topology

RATES = {"qspec": {"min_throughput": "50 Mb/s"}, "rspec": {"max_throughput": "150 Mb/s"}}
TEMPLATES = {
    "always": {**RATES, "relay": "always"},
    "auto": {**RATES, "relay": "auto"},
    "plain": RATES,
}
RELAYS = {"ra": "s1", "rb": "s2"}
SECOND = {"ra2": "s1"}


def relay_network(*relays: str, capacity: str = "200 Mb/s", **nodes: dict[str, Any]) -> Topology:
    """``relays`` are names in RELAYS (by default) and SECOND; ``nodes`` say more of nodes."""
    data = LAYOUT.topology()
    for link in data["links"]:
        link["capacity"] = {"l2": "200 Mb/s", "l3": "20 Mb/s"}.get(link["layer"], link["capacity"])
    for number, name in enumerate(relays or RELAYS, 1):
        address, mac = f"10.10.0.10{number}", f"02:00:00:00:01:0{number}"
        data["nodes"].append({"name": name, "kind": "relay", "address": address, "mac": mac})
        switch = (RELAYS | SECOND)[name]
        ports = {switch: 100 + number}
        data["links"].append({"a": name, "b": switch, "capacity": capacity, "ports": ports})
    for node in data["nodes"]:
        node.update(nodes.get(node["name"], {}))
    return topology_from_dict(data)


class RelayRig(Rig):
    """A broker whose agents' clock is its own."""

    def __init__(
        self, file: Path, topology: Topology | None = None, with_agents: bool = True, **more: Any
    ) -> None:
        """``with_agents``: its agents have found it."""
        topology = topology or relay_network()
        super().__init__(file, topology, **{"templates": TEMPLATES, "matches": True} | more)
        self.simple_check = self.controller.check
        self.controller.check = self.check  # type: ignore[method-assign]
        self.relaying = self.broker.relaying
        self.agents = self.relaying.agents = RelayAgents(self.clock)
        if with_agents:
            self.let_pass(3)
            self.poll()

    def check(self, circuits: Sequence[Circuit]) -> None:
        """Raises Impossible, or what the planner of switches' rules raises."""
        self.simple_check(circuits)
        if self.controller.can.matches:
            make_plan(self.topology, circuits, self.clock())

    def poll(self, *names: str, **status: Any) -> None:
        """Agents ask."""
        for name in names or RELAYS:
            self.agents.heard(name, AgentStatus(**status))

    def pass_polled(self, seconds: int, **status: Any) -> None:
        """Time passes, and agents ask each second."""
        for _ in range(seconds):
            self.clock.now += 1
            self.poll(**status)
            self.let_pass(0)
