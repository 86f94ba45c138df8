"""The network with what is reserved on it: at an instant, or over a while. JSON-ready."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from itertools import pairwise
from types import MappingProxyType
from typing import Any

from network_provisioner.base.errors import BrokerError
from network_provisioner.base.model import Transit
from network_provisioner.state.circuits import granted_rates
from network_provisioner.state.ledger import Ledger
from network_provisioner.topology.graph import Hop, Link, Node, Topology

_LATE_S = 5.0  # an instant no longer ago than this is now: a question takes its time


def describe_load(
    topology: Topology,
    ledger: Ledger,
    at: float,
    until: float | None = None,
    live: Iterable[Transit] = (),
    failed: Mapping[Hop, str] = MappingProxyType({}),
    unknown: Collection[Hop] = (),
    drained: Collection[Hop] = (),
) -> dict[str, Any]:
    """Nodes, and links with what is reserved in each direction at one instant.

    With ``until`` each direction also has its ``holders`` during [``at``, ``until``): who, how much
    and from when to when. ``live`` are the transits on the switches: what they are granted now,
    minima and what they share above, is ``granted_bps``. ``failed``: directed links that carry
    nothing now, and why; ``unknown``: those of which nobody knows whether they do; ``drained``:
    those out of service for maintenance.
    """
    rates = granted_on_links(live)
    held = _holders(ledger, at, until) if until is not None else {}

    def load(hop: Hop) -> dict[str, Any]:
        limit, free = ledger.capacity(hop), ledger.residual(hop, at, at)
        described = {
            "from": hop[0],
            "to": hop[1],
            "reservable_bps": limit,
            "reserved_bps": limit - free,
            "granted_bps": rates.get(hop, 0.0),
            "transits": list(ledger.holders(hop, at, math.nextafter(at, math.inf))),
        }
        return described if until is None else {**described, "holders": held.get(hop, [])}

    links = [
        {
            **_link(item),
            "failed": next((failed[hop] for hop in item.hops if hop in failed), ""),
            "unknown": any(hop in unknown for hop in item.hops),
            "drained": any(hop in drained for hop in item.hops),
            "load": [load((item.a, item.b)), load((item.b, item.a))],
        }
        for item in topology.links
    ]
    nodes = [_node(node) for node in topology.nodes.values()]
    window = {"at": at} if until is None else {"at": at, "until": until}
    return {**window, "nodes": nodes, "links": links, "warnings": topology.warnings}


def check_window(at: float, until: float | None, now: float) -> None:
    """Raises BrokerError ``bad_time`` for a window that is past or ends before it begins: what was
    reserved once is not kept."""
    if not now - _LATE_S <= at < math.inf:
        raise BrokerError(f"at {at!r}, expected Unix seconds that are not past", "bad_time")
    if until is not None and not at < until < math.inf:
        raise BrokerError(f"until {until!r}, expected Unix seconds after {at!r}", "bad_time")


def granted_on_links(live: Iterable[Transit]) -> dict[Hop, float]:
    """What transits are granted together on each directed link, b/s."""
    granted_bps: dict[Hop, float] = {}
    for transit in live:
        for nodes, rate_bps in granted_rates(transit):
            for hop in pairwise(nodes):
                granted_bps[hop] = granted_bps.get(hop, 0.0) + rate_bps
    return granted_bps


def _holders(ledger: Ledger, at: float, until: float) -> Mapping[Hop, list[dict[str, Any]]]:
    holders: dict[Hop, list[dict[str, Any]]] = {}
    overlapping = [r for r in ledger.reservations.values() if r.start < until and at < r.end]
    for r in sorted(overlapping, key=lambda r: (r.start, r.id)):
        for hop, rate in r.rates().items():
            holder = {"id": r.id, "reserved_bps": rate, "start": r.start, "end": r.end}
            holders.setdefault(hop, []).append(holder)
    return holders


def _node(node: Node) -> dict[str, Any]:
    more = {"dtn": node.dtn, "dmz": node.dmz, "dpid": node.dpid}
    return {"name": node.name, "kind": node.kind} | {k: v for k, v in more.items() if v}


def _link(link: Link) -> dict[str, Any]:
    return {
        "a": link.a,
        "b": link.b,
        "layer": link.layer,
        "capacity_bps": link.capacity_bps,
        "delay_s": link.delay_s,
        "jitter_s": link.jitter_s,
        "loss": link.loss,
        "vlan": link.vlan,
    }
