"""IPv6 on a testbed's network, whose hosts have none of their own."""

from __future__ import annotations

from typing import Any

from examples.testbed import netns
from examples.testbed.layout import Host, Layout


def address6(host: Host) -> str:
    """Its data-plane IPv6 address."""
    return f"fd00:10::{host.number}"


def address_of(host: Host, version: int) -> str:
    """Its IPv4 or IPv6 address."""
    return address6(host) if version == 6 else host.address


def with_ipv6(layout: Layout) -> dict[str, Any]:
    """The layout's topology, with the sites' IPv6 addresses."""
    data = layout.topology()
    by_name = {site.name: site for site in layout.sites}
    for node in data["nodes"]:
        site = by_name.get(node["name"])
        if site is not None:
            node["hosts"] = [*node.get("hosts", ()), {"address": address6(site), "mac": site.mac}]
    return data


def add_ipv6(layout: Layout) -> None:
    """Give the sites' hosts their addresses, and each the others' as neighbours."""
    for site in layout.sites:
        netns.sysctl(site.netns, {"net.ipv6.conf.dp0.disable_ipv6": "0"})
        others = (other for other in layout.sites if other != site)
        netns.batch(
            site.netns,
            [
                f"addr add {address6(site)}/64 dev dp0 nodad",
                *(
                    f"neigh replace {address6(other)} lladdr {other.mac} dev dp0"
                    for other in others
                ),
            ],
        )
