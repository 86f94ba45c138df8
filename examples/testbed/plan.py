"""The testbed's network on paper: names, addresses, ports, rates. No effects.

::

      mu ──1─┐                 ┌─10═════ L2, 200 Mb/s, 53 ms ═════10─┐              ┌─2── tacc
              s1 (dpid 1) ─────┤                                     ├───── s2 (dpid 2)
    local ──4─┘                └─11───── r1, L3, 20 Mb/s, 53 ms ──11─┘              └─3── iplant

The two paths between s1 and s2 are the two of the thesis (Figure 6): a fast layer-2 overlay and the
shared, routed layer-3 network, here with a tenth of the bandwidth. ``local`` is the submit host.
Beside this data plane every namespace has a management link to the hub, for HTCondor and OpenFlow,
so that control never competes with the transfers that are measured.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

HUB = "local"
"""The site that is the submit host; it lives in the box's own network namespace."""

HUB_ADDRESS = "10.254.0.1"
"""Where the hub's daemons listen: reachable from every namespace over the management network."""

SWITCH_NETNS = "adon-sw"
ROUTER_NETNS = "adon-r"
SWITCH_NUMBER = 9
OPENFLOW_PORT = 6653

ACCESS_BPS = 1e9
L2_BPS = 200e6
L3_BPS = 20e6
WAN_DELAY_S = 0.0265
"""One way; 53 ms there and back, as between the thesis's sites."""

ROUTER_MACS = {"s1": "02:00:00:00:0b:01", "s2": "02:00:00:00:0b:02"}
SWITCHES = {"s1": 1, "s2": 2}
L2_PORT, L3_PORT = 10, 11


@dataclass(frozen=True, slots=True)
class Site:
    """One site: its number gives its addresses, its MAC and its switch port."""

    name: str
    number: int
    switch: str

    @property
    def address(self) -> str:
        """Data-plane IPv4 address."""
        return f"10.10.0.{self.number}"

    @property
    def mac(self) -> str:
        """Data-plane Ethernet address."""
        return f"02:00:00:00:00:{self.number:02x}"

    @property
    def netns(self) -> str | None:
        """The site's named network namespace; None for the hub, which has the box's own."""
        return None if self.name == HUB else f"adon-{self.name}"

    @property
    def port_device(self) -> str:
        """The device of the site's access link at its switch."""
        return f"{self.switch}-{self.name}"

    @property
    def dtn(self) -> str:
        """The host name of the site's data transfer node."""
        return f"dtn.{self.name}.adon.test"


SITES = {
    s.name: s
    for s in (
        Site("mu", 1, "s1"),
        Site("tacc", 2, "s2"),
        Site("iplant", 3, "s2"),
        Site(HUB, 4, "s1"),
    )
}


def hub_management_address(number: int) -> str:
    """The hub's end of management link ``number``."""
    return f"10.254.{number}.1"


def management_address(number: int) -> str:
    """The far end of management link ``number``."""
    return f"10.254.{number}.2"


OPENFLOW_LISTEN = f"{hub_management_address(SWITCH_NUMBER)}:{OPENFLOW_PORT}"
"""Where the OpenFlow controller has to listen."""


def hosts_lines() -> list[str]:
    """Lines for /etc/hosts: every address of the testbed has a name, so no lookup leaves the box.

    Servers look up the names of their peers; without these each connection would wait for DNS.
    """
    lines = [f"{s.address} {s.dtn}" for s in SITES.values()]
    lines.append(f"{HUB_ADDRESS} hub.adon.test")
    numbers = {s.name: s.number for s in SITES.values() if s.netns} | {"sw": SWITCH_NUMBER}
    for name, number in numbers.items():
        lines.append(f"{hub_management_address(number)} hub-{name}.adon.test")
        lines.append(f"{management_address(number)} {name}.adon.test")
    return lines


def topology() -> dict[str, Any]:
    """The network as ``network_provisioner.topology.graph.topology_from_dict`` reads it."""
    nodes: list[dict[str, Any]] = [
        {"name": s.name, "kind": "site", "address": s.address, "mac": s.mac} for s in SITES.values()
    ]
    nodes += [{"name": name, "kind": "switch", "dpid": dpid} for name, dpid in SWITCHES.items()]
    nodes.append({"name": "r1", "kind": "router", "macs": dict(ROUTER_MACS)})
    links: list[dict[str, Any]] = [
        {
            "a": s.name,
            "b": s.switch,
            "layer": "lan",
            "capacity": _mbps(ACCESS_BPS),
            "ports": {s.switch: s.number},
            "devices": {s.switch: s.port_device},
        }
        for s in SITES.values()
    ]
    delay = f"{WAN_DELAY_S * 1e3:g} ms"
    links += [
        {
            "a": "s1",
            "b": "s2",
            "layer": "l2",
            "capacity": _mbps(L2_BPS),
            "delay": delay,
            "ports": {"s1": L2_PORT, "s2": L2_PORT},
            "devices": {"s1": "s1-a", "s2": "s2-a"},
        },
        {
            "a": "s1",
            "b": "r1",
            "layer": "l3",
            "capacity": _mbps(L3_BPS),
            "delay": delay,
            "ports": {"s1": L3_PORT},
            "devices": {"s1": "s1-b"},
        },
        {
            "a": "r1",
            "b": "s2",
            "layer": "l3",
            "capacity": _mbps(L3_BPS),
            "ports": {"s2": L3_PORT},
            "devices": {"s2": "s2-b"},
        },
    ]
    return {"nodes": nodes, "links": links}


def _mbps(rate_bps: float) -> str:
    return f"{rate_bps / 1e6:g} Mb/s"
