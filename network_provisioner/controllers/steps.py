"""A path as its switches see it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from network_provisioner.errors import InputError
from network_provisioner.topology import Node, Topology


@dataclass(frozen=True, slots=True)
class Step:
    """One switch on a path: where packets come in (0: not known) and where they leave."""

    switch: Node
    after: str
    in_port: int
    out_port: int
    eth_dst: str

    @property
    def hop(self) -> tuple[str, str]:
        """The link direction that it sends into."""
        return (self.switch.name, self.after)


def steps(topology: Topology, path: Sequence[str]) -> list[Step]:
    """The switches of a path. Raises InputError where the topology lacks something."""
    src, dst = topology.site(path[0]), topology.site(path[-1])
    for site in (src, dst):
        if not site.address:
            raise InputError(f"topology: site {site.name!r} has no address, expected an IPv4 one")
    triples = list(zip(path, path[1:], path[2:], strict=False))
    switches = [t for t in triples if topology.nodes[t[1]].kind == "switch"]
    if not switches:
        raise InputError(f"path {'>'.join(path)} has no switch, expected at least one")
    found = []
    for i, (before, name, after) in enumerate(switches):
        switch = topology.nodes[name]
        at_last = dst.mac if i == len(switches) - 1 else ""
        found.append(
            Step(
                switch,
                after,
                (topology.link(before, name).ports or {}).get(name, 0),
                _port(topology, switch, after),
                _next_mac(topology, switch, after, at_last),
            )
        )
    return found


def _port(topology: Topology, switch: Node, after: str) -> int:
    link = topology.link(switch.name, after)
    port = (link.ports or {}).get(switch.name)
    if port is None:
        raise InputError(
            f"topology: link {link.a}-{link.b} has no port at the switch {switch.name!r}, "
            f"expected ports: {{{switch.name}: <number>}}"
        )
    return port


def _next_mac(topology: Topology, switch: Node, after: str, at_last: str) -> str:
    node = topology.nodes[after]
    if node.kind != "router":
        return at_last
    mac = (node.macs or {}).get(switch.name)
    if mac is None:
        raise InputError(
            f"topology: router {after!r} has no MAC address towards {switch.name!r}, "
            f"expected macs: {{{switch.name}: <address>}}"
        )
    return mac
