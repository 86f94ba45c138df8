"""Networks that exist only in memory, for tests of what is decided about them."""

from __future__ import annotations

from typing import Any

from network_provisioner.topology.data import topology_from_dict
from network_provisioner.topology.graph import Topology

SITES = ("mu", "tacc", "iplant", "local")


def star(*sites: str, capacity: str = "1 Gb/s") -> dict[str, Any]:
    """Sites around one switch, as ``topology`` in adon.yml has them."""
    numbered = list(enumerate(sites, 1))
    return {
        "nodes": [
            {"name": "s1", "kind": "switch", "dpid": 1},
            *(
                {
                    "name": name,
                    "kind": "site",
                    "address": f"10.10.0.{number}",
                    "mac": f"02:00:00:00:00:0{number}",
                }
                for number, name in numbered
            ),
        ],
        "links": [
            {"a": name, "b": "s1", "capacity": capacity, "ports": {"s1": number}}
            for number, name in numbered
        ],
    }


def demo_network(l2: str = "200 Mb/s", l3: str = "20 Mb/s") -> Topology:
    """The demo's network: mu and local on s1, tacc and iplant on s2, an L2 and an L3 path."""
    nodes: list[dict[str, Any]] = [
        {
            "name": name,
            "kind": "site",
            "address": f"10.10.0.{number}",
            "mac": f"02:00:00:00:00:0{number}",
        }
        for number, name in enumerate(SITES, 1)
    ]
    nodes += [{"name": "s1", "kind": "switch", "dpid": 1}]
    nodes += [{"name": "s2", "kind": "switch", "dpid": 2}]
    macs = {"s1": "02:00:00:00:0b:01", "s2": "02:00:00:00:0b:02"}
    nodes += [{"name": "r1", "kind": "router", "macs": macs}]
    at = {"mu": ("s1", 1), "local": ("s1", 4), "tacc": ("s2", 2), "iplant": ("s2", 3)}
    links: list[dict[str, Any]] = [
        {"a": site, "b": switch, "capacity": "1 Gb/s", "ports": {switch: port}}
        for site, (switch, port) in at.items()
    ]
    links += [
        {
            "a": "s1",
            "b": "s2",
            "capacity": l2,
            "delay": "26.5 ms",
            "layer": "l2",
            "ports": {"s1": 10, "s2": 10},
            "devices": {"s1": "s1-a", "s2": "s2-a"},
        },
        {
            "a": "s1",
            "b": "r1",
            "capacity": l3,
            "delay": "26.5 ms",
            "layer": "l3",
            "ports": {"s1": 11},
            "devices": {"s1": "s1-b"},
        },
        {
            "a": "r1",
            "b": "s2",
            "capacity": l3,
            "layer": "l3",
            "ports": {"s2": 11},
            "devices": {"s2": "s2-b"},
        },
    ]
    return topology_from_dict({"nodes": nodes, "links": links})
