"""What OpenDaylight finds out about its switches: their ports, and how these are joined.

OpenDaylight sends frames out of every port by itself (IEEE 802.1AB), but its switches give them
back only where a rule says so. That rule is on the switches for these seconds only, with a lease
and a cookie of its own. A link that OpenDaylight has found it remembers for about a minute.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterable
from typing import Any

from network_provisioner.controllers import odl_flows
from network_provisioner.controllers.odl_ask import garbled, listed
from network_provisioner.controllers.odl_steps import OdlSteps, run_wave
from network_provisioner.controllers.restconf import Restconf
from network_provisioner.topologies.discovery import Discovered, End, Port

# OpenDaylight sends its frames every five seconds.
SECONDS = 6.5
_LOOK_EVERY_S = 0.5
_LEASE_S = 30
_ETH_TYPE = 0x88CC
_COOKIE = 0xAD1D << 48
_PRIORITY = 65000
_PORTS = (
    "opendaylight-inventory:nodes?content=nonconfig&fields=node(id;node-connector(id;"
    "flow-node-inventory:name;flow-node-inventory:state;flow-node-inventory:configuration;"
    "flow-node-inventory:current-speed))"
)
_LINKS = "network-topology:network-topology/topology=flow%3A1?content=nonconfig&fields=link"


def discover(
    rest: Restconf, steps: OdlSteps, dpids: Iterable[int], seconds: float = SECONDS
) -> Discovered:
    """Look around for ``seconds``. Raises ControllerError."""
    dpids = set(dpids)
    cookie = _COOKIE | secrets.randbits(48)
    links: set[tuple[End, End]] = set()
    over = threading.Event()
    punt = [steps.add_flow(dpid, "the rule to find links by", _rule(cookie)) for dpid in dpids]
    try:
        run_wave(punt, steps.barrier)
        for _ in range(round(seconds / _LOOK_EVERY_S)):
            over.wait(_LOOK_EVERY_S)  # nobody says that no more will come
            links |= _links(rest, dpids)
    finally:
        forget = [steps.delete_by_cookie(dpid, cookie, 2**64 - 1) for dpid in dpids]
        run_wave(forget, steps.barrier)
    return Discovered(_ports(rest, dpids), frozenset(links))


def _rule(cookie: int) -> dict[str, Any]:
    out = {"output-node-connector": "CONTROLLER", "max-length": 0xFFFF}
    actions = {"apply-actions": {"action": [{"order": 0, "output-action": out}]}}
    return {
        "table_id": odl_flows.TABLE,
        "priority": _PRIORITY,
        "cookie": cookie,
        "hard-timeout": _LEASE_S,
        "match": {"ethernet-match": {"ethernet-type": {"type": _ETH_TYPE}}},
        "instructions": {"instruction": [{"order": 0, **actions}]},
    }


def _links(rest: Restconf, dpids: set[int]) -> set[tuple[End, End]]:
    found = set()
    topologies = listed(rest, rest.get(_LINKS) or {}, "network-topology:topology")
    for link in (link for topology in topologies for link in listed(rest, topology, "link")):
        try:
            ends = (
                _end(link["source"]["source-tp"]),
                _end(link["destination"]["dest-tp"]),
            )
        except odl_flows.UNREADABLE as error:
            raise garbled(rest, "a link", error) from error
        a, b = ends
        if a is not None and b is not None and {a[0], b[0]} <= dpids:
            first, second = sorted((a, b))
            found.add((first, second))
    return found


def _ports(rest: Restconf, dpids: set[int]) -> dict[int, dict[int, Port]]:
    body = (rest.get(_PORTS) or {}).get("opendaylight-inventory:nodes")
    ports: dict[int, dict[int, Port]] = {dpid: {} for dpid in dpids}
    nodes = listed(rest, body if isinstance(body, dict) else {}, "node")
    for port in (port for node in nodes for port in listed(rest, node, "node-connector")):
        try:
            end = _end(port["id"])
            if end is not None and end[0] in dpids:
                ports[end[0]][end[1]] = _port(port)
        except odl_flows.UNREADABLE as error:
            raise garbled(rest, "a port", error) from error
    return ports


def _port(port: dict[str, Any]) -> Port:
    def said(what: str) -> Any:
        return port.get(f"flow-node-inventory:{what}")

    down = "PORT-DOWN" in str(said("configuration")) or (said("state") or {}).get("link-down")
    # OpenFlow 1.3 section 7.2.1: in kb/s.
    return Port(str(said("name") or ""), not down, 1000.0 * int(said("current-speed") or 0))


def _end(text: object) -> End | None:
    """``openflow:1:10``; None for a switch's own port, or something that is no port."""
    kind, _, rest = str(text).partition(":")
    dpid, _, number = rest.partition(":")
    if kind != "openflow" or not dpid.isdecimal() or not number.isdecimal():
        return None
    return int(dpid), int(number)
