"""Networks that exist only in memory, for tests of what is decided about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from examples.scenario import template_of
from examples.soykb.scenario import LAYOUT
from examples.testbed.layout import HUB, Host, Layout, Link, Relay, Site, Traffic
from network_provisioner.topology.data import topology_from_dict
from network_provisioner.topology.graph import Topology

Items = Sequence[dict[str, Any]]
SITES = tuple(site.name for site in LAYOUT.sites)
TEMPLATES = {name: template_of(name) for name in ("soykb", "montage")}
"""Those of the examples, beside the built-in one."""


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


def demo_network(
    l2: str = "200 Mb/s", l3: str = "20 Mb/s", *, nodes: Items = (), links: Items = ()
) -> Topology:
    """The demo's network: mu and local on s1, tacc and iplant on s2, an L2 and an L3 path; with
    more ``nodes`` and ``links``."""
    data = LAYOUT.topology()
    for link in data["links"]:
        link["capacity"] = {"l2": l2, "l3": l3}.get(link["layer"], link["capacity"])
    data["nodes"] += nodes
    data["links"] += links
    return topology_from_dict(data)


def slower(l2_bps: float) -> Layout:
    """The demo's testbed with another rate on its overlay link."""
    l2, *others = LAYOUT.links
    return replace(LAYOUT, links=(replace(l2, rate_bps=l2_bps), *others))


RELAYED = replace(LAYOUT, relays=(Relay("ra", 7, "s1"), Relay("rb", 8, "s2")))
"""The demo's testbed with a relay at each switch."""

LINE = Layout(
    sites=(Site("near", 1, "s1"), Site(HUB, 2, "s1"), Site("mid", 3, "s2"), Site("far", 4, "s3")),
    links=(
        Link("shared", "s1", "s2", 20e6, 0.02, routed=True),
        Link("overlay", "s1", "s3", 200e6, 0.01),
        Link("campus", "s2", "s3", 100e6, 0.001),
        Link("other", "s1", "s3", 10e6, 0.03, routed=True),
    ),
    others=(Host("they", 5, "s1"), Host("them", 6, "s3", access_bps=1e8)),
    traffic=(Traffic("they", "them", 5e6),),
)
"""A testbed of three switches and two routers, with two hosts of others."""
