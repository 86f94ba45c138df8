"""The network as a controller sees it, beside the network as it was said to be.

A controller can find out which switches there are, their ports, and how these are joined. It cannot
know names, delays, layers or what is behind a router: so what it finds is compared with the
topology, and can begin one.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from network_provisioner.base.controller import Controller, ControllerError
from network_provisioner.base.errors import BrokerError
from network_provisioner.base.fields import format_dpid
from network_provisioner.base.units import format_rate
from network_provisioner.topology.graph import Link, Topology

End = tuple[int, int]
"""A port: the datapath id of its switch, and its number there."""
ASSUMED_BPS = 1e9  # of a link whose ports do not say how fast they are
_UNSAID_BPS = 1e7  # Linux, before 6.2, says so of the port of each virtual machine


def said_bps(speed_bps: float) -> float:
    """A speed that a port reports, 0 for one that says nothing of it."""
    return speed_bps if speed_bps > _UNSAID_BPS else 0.0


@dataclass(frozen=True, slots=True)
class Port:
    """A port of a switch as it describes itself. ``speed_bps`` and ``most_bps``, what it could do
    at most, are 0 where it does not say. ``drops``: it is up, and set to drop packets."""

    name: str
    up: bool
    speed_bps: float = 0.0
    most_bps: float = 0.0
    drops: bool = False

    @property
    def trouble(self) -> str:
        """Why nothing passes, "" where something may."""
        return "is set to drop packets" if self.drops else "" if self.up else "is down"


@dataclass(frozen=True, slots=True)
class Discovered:
    """All ports by switch, and the links between two of them, each once with its lower end
    first."""

    ports: Mapping[int, Mapping[int, Port]]
    links: frozenset[tuple[End, End]]


@runtime_checkable
class Discovers(Protocol):
    """A controller that can look around."""

    def discover(self) -> Discovered:
        """What there is now. Takes seconds. Raises ControllerError."""
        ...


def report(topology: Topology, controller: Controller) -> dict[str, Any]:
    """What a controller finds now, and the differences; JSON-ready. Raises BrokerError
    ``conflict`` for a controller that cannot look around, ``controller_unavailable``."""
    if not isinstance(controller, Discovers):
        name = controller.capabilities().name
        raise BrokerError(
            f"the {name} controller cannot discover links, expected openflow or opendaylight",
            "conflict",
        )
    try:
        discovered = controller.discover()
    except ControllerError as error:
        raise BrokerError(str(error), "controller_unavailable") from error
    return {**as_dict(discovered, topology), "differences": differences(topology, discovered)}


def as_dict(discovered: Discovered, topology: Topology) -> dict[str, Any]:
    """A JSON-ready copy, with the names that the topology has for switches."""
    names = _names(topology)
    return {
        "switches": [
            {
                "dpid": dpid,
                "name": names.get(dpid) or _new_name(dpid, topology),
                "ports": [
                    {"number": n, "name": p.name, "up": p.up, "speed_bps": p.speed_bps}
                    for n, p in sorted(ports.items())
                ],
            }
            for dpid, ports in sorted(discovered.ports.items())
        ],
        "links": [
            {"a": {"dpid": a, "port": m}, "b": {"dpid": b, "port": n}}
            for (a, m), (b, n) in sorted(discovered.links)
        ],
    }


def section_of(described: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The beginning of a ``topology`` section out of what :func:`as_dict` gave: the switches and
    the links between them; and in words what it had to assume or to leave out: a link joins two
    ports of two switches, and no other. Sites, routers and delays are for people to add."""
    names = {s["dpid"]: s["name"] for s in described["switches"]}
    speed = {
        (s["dpid"], p["number"]): p["speed_bps"] for s in described["switches"] for p in s["ports"]
    }
    joined = [
        [(link[e]["dpid"], link[e]["port"]) for e in ("a", "b")] for link in described["links"]
    ]
    uses = Counter(end for ends in joined for end in set(ends))
    links, notes = [], []
    for ends in joined:
        left_out = f"{' and '.join(_port(names, end) for end in ends)} are joined, left out: "
        shared = [_port(names, end) for end in ends if uses[end] > 1]
        unknown = [format_dpid(dpid) for dpid, _ in ends if dpid not in names]
        (first, _), (second, _) = ends
        if first == second:
            notes.append(f"{left_out}both are of one switch")
        elif shared:
            notes.append(f"{left_out}{shared[0]} reaches several ports, as by a hub")
        elif unknown:
            notes.append(f"{left_out}no switch with dpid {unknown[0]} was found")
        else:
            a, b = names[first], names[second]
            speeds = (speed.get(end, 0) for end in ends)
            capacity = min((bps for bps in speeds if 0 < bps < math.inf), default=0)
            if not capacity:
                capacity = ASSUMED_BPS
                words = f"no port reports its speed, {format_rate(capacity)} assumed"
                notes.append(f"link {a}-{b}: {words}")
            ports = dict(zip((a, b), (port for _, port in ends), strict=True))
            links.append({"a": a, "b": b, "layer": "l2", "capacity": capacity, "ports": ports})
    nodes = [{"name": name, "kind": "switch", "dpid": dpid} for dpid, name in names.items()]
    return {"nodes": nodes, "links": links}, notes


def differences(topology: Topology, discovered: Discovered) -> list[str]:
    """In words, what the topology and the network do not agree on; empty where they do."""
    names = _names(topology)
    return [
        *_switches(names, discovered),
        *_ports(topology, discovered),
        *_links(topology, names, discovered),
    ]


def _port(names: Mapping[int, str], end: End) -> str:
    dpid, number = end
    return f"{names.get(dpid) or f'dpid {format_dpid(dpid)}'} port {number}"


def _new_name(dpid: int, topology: Topology) -> str:
    name = f"switch-{dpid:x}"
    return f"switch-{dpid:016x}" if name in topology.nodes else name


def _names(topology: Topology) -> dict[int, str]:
    return {node.dpid: node.name for node in topology.nodes.values() if node.dpid}


def _switches(names: Mapping[int, str], discovered: Discovered) -> Iterator[str]:
    for dpid, name in names.items():
        if dpid not in discovered.ports:
            yield f"switch {name} (dpid {format_dpid(dpid)}) was not found"
    for dpid in sorted(discovered.ports):
        if dpid not in names:
            yield f"a switch with dpid {format_dpid(dpid)} was found, and the topology has none"


def _ports(topology: Topology, discovered: Discovered) -> Iterator[str]:
    for link in topology.whole_links:
        for name, number in (link.ports or {}).items():
            ports = discovered.ports.get(topology.nodes[name].dpid)
            if ports is None:
                continue
            what = f"link {link.label}: {name} port {number}"
            port = ports.get(number)
            if port is None:
                yield f"{what} is not there"
            elif port.trouble:
                yield f"{what} {port.trouble}"
            elif 0 < port.speed_bps < link.capacity_bps:
                speed, capacity = format_rate(port.speed_bps), format_rate(link.capacity_bps)
                yield f"{what} has {speed}, and the link {capacity}"
            device = (link.devices or {}).get(name, "")
            if port is not None and device not in ("", port.name):
                yield f"{what} is {port.name}, and the topology says {device}"


def _links(topology: Topology, names: Mapping[int, str], discovered: Discovered) -> Iterator[str]:
    declared = {
        ends: link
        for link in topology.whole_links
        if (ends := joined_ports(topology, link)) is not None
    }
    for ends, link in declared.items():
        if ends not in discovered.links and all(dpid in discovered.ports for dpid, _ in ends):
            yield f"link {link.label}: nothing came through from port to port"
    for ends in sorted(discovered.links - set(declared)):
        words = " and ".join(_port(names, end) for end in ends)
        yield f"{words} are joined, and the topology has no such link"


def joined_ports(topology: Topology, link: Link) -> tuple[End, End] | None:
    """The two ports of a link between switches; None where one end is none, or says no port."""
    ends = []
    for name in (link.a, link.b):
        dpid, port = topology.nodes[name].dpid, (link.ports or {}).get(name)
        if not dpid or port is None:
            return None
        ends.append((dpid, port))
    first, second = sorted(ends)
    return first, second
