"""Who goes where, and why: best effort between every two sites, and what transits take. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from network_provisioner.base.errors import InputError
from network_provisioner.base.model import Transit
from network_provisioner.controllers.groups import Pair
from network_provisioner.controllers.routes import default_route, switch_hops
from network_provisioner.state.circuits import granted_rates
from network_provisioner.topology.graph import Hop, Path, Topology

BEST_EFFORT = "best effort"


def route_table(
    topology: Topology, failed: Mapping[Hop, str], live: Iterable[Transit], site: str = ""
) -> list[dict[str, Any]]:
    """A row for each path, JSON-ready, by site pair, best effort first; with ``site`` of those
    from and to it. ``failed``: directed links that carry nothing, and why.

    Rates are b/s: what a circuit is granted, and the capacity of best effort's path. Raises
    InputError for an unknown site.
    """
    if site:
        topology.site(site)
    rows = []
    for src in topology.sites:
        for dst in topology.sites:
            if src != dst and (not site or site in (src, dst)):
                closed = [name for name in (src, dst) if topology.nodes[name].dmz]
                path, why = (
                    (None, f"{closed[0]} is in a Science DMZ: only transits reach it")
                    if closed
                    else default_route(topology, src, dst, failed)
                )
                rate = path.capacity_bps if path is not None else 0.0
                rows.append(_row(topology, failed, (src, dst), path, BEST_EFFORT, rate, "", why))
    for transit in live:
        ends, state = (transit.request.src, transit.request.dst), transit.state.value
        for nodes, rate in granted_rates(transit) if not site or site in ends else ():
            path = topology.path(nodes)
            rows.append(_row(topology, failed, ends, path, transit.id, rate, state, transit.reason))
    rows.sort(key=lambda row: (row["src"], row["dst"], row["who"] != BEST_EFFORT, row["who"]))
    return rows


def _row(
    topology: Topology,
    failed: Mapping[Hop, str],
    ends: Pair,
    path: Path | None,
    who: str,
    rate_bps: float,
    state: str,
    why: str,
) -> dict[str, Any]:
    broken = next((failed[hop] for hop in path.hops if hop in failed), "") if path else ""
    return {
        "src": ends[0],
        "dst": ends[1],
        "who": who,
        "path": list(path.nodes) if path else [],
        "next_hops": _next_hops(topology, path.nodes) if path else [],
        "layer": path.layer if path else "",
        "rtt_s": path.rtt_s if path else None,
        "rate_bps": rate_bps,
        "state": state or ("none" if path is None else "up"),
        "failed": broken,
        "why": why,
    }


def _next_hops(topology: Topology, path: Sequence[str]) -> list[dict[str, Any]]:
    """Where each switch sends what it gets; nothing where the topology lacks ports."""
    try:
        return [
            {
                "switch": step.switch.name,
                "in_ports": [port for port in step.in_ports if port],
                "out_port": step.out_port,
                "to": topology.beyond(*step.hop).name,
                "link": topology.label_of(*step.hop),
            }
            for step in switch_hops(topology, path)
        ]
    except InputError:
        return []
