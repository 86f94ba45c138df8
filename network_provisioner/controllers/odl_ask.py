"""What OpenDaylight can be asked about switches, read into values.

Rules, groups and counters come from the switch itself and now (``opendaylight-direct-statistics``),
not from the operational datastore, which is some seconds behind.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from network_provisioner.controllers import odl_flows
from network_provisioner.controllers.aids import SelectGroup, is_our_number
from network_provisioner.controllers.base import ControllerError
from network_provisioner.controllers.restconf import Restconf
from network_provisioner.controllers.rules import (
    SeenRule,
)

Origin = tuple[str, str]
"""Where a switch's connection comes from: another place is another connection."""

_NODES = (
    "opendaylight-inventory:nodes?content=nonconfig"
    "&fields=node(id;flow-node-inventory:ip-address;flow-node-inventory:port-number)"
)
_STATISTICS = "opendaylight-direct-statistics"
_EVERY_BIT = 2**64 - 1
# More rules than this are read together.
_ONE_BY_ONE = 4


class OdlAsk:
    """Reads. Every method raises ControllerError."""

    def __init__(self, rest: Restconf) -> None:
        self._rest = rest

    def switches(self) -> dict[int, Origin]:
        """The OpenFlow switches that are connected to it, by datapath id."""
        body = self._rest.get(_NODES) or {}
        inventory = body.get("opendaylight-inventory:nodes")
        found: dict[int, Origin] = {}
        for node in listed(self._rest, inventory if isinstance(inventory, dict) else {}, "node"):
            kind, _, number = str(node.get("id")).partition(":")
            if kind == "openflow" and number.isdecimal():
                address = node.get("flow-node-inventory:ip-address")
                port = node.get("flow-node-inventory:port-number")
                found[int(number)] = (str(address), str(port))
        return found

    def rules(
        self, dpid: int, cookie: int, mask: int, now: float
    ) -> tuple[list[SeenRule], set[int]]:
        """The rules in a switch under a cookie mask, and the cookies of those we would not make."""
        under = {"cookie": cookie & mask, "cookie_mask": mask} if mask else {}
        seen: list[SeenRule] = []
        odd: set[int] = set()
        for flow in self._direct(dpid, "flow", "flow-and-statistics-map-list", **under):
            try:
                rule = odl_flows.read_flow(dpid, flow, now)
                if rule is None:
                    odd.add(int(flow["cookie"]))
                else:
                    seen.append(rule)
            except odl_flows.UNREADABLE as error:
                raise garbled(self._rest, "a flow", error) from error
        return seen, odd

    def rules_of(self, dpid: int, cookies: Sequence[int], now: float) -> Iterator[SeenRule]:
        """The rules with exactly these cookies."""
        if len(cookies) > _ONE_BY_ONE:
            wanted = set(cookies)
            seen, _ = self.rules(dpid, 0, 0, now)
            yield from (rule for rule in seen if rule.rule.cookie in wanted)
            return
        for cookie in cookies:
            seen, _ = self.rules(dpid, cookie, _EVERY_BIT, now)
            yield from seen

    def groups(self, dpid: int) -> list[SelectGroup]:
        """Our groups in a switch, without buckets: only that they are there is known at once."""
        found = self._direct(dpid, "group", "group-stats")
        try:
            numbers = [int(group["group-id"]) for group in found]
        except odl_flows.UNREADABLE as error:
            raise garbled(self._rest, "a group", error) from error
        return [SelectGroup(dpid, number, ()) for number in numbers if is_our_number(number)]

    def sent_bytes(self, dpid: int) -> dict[int, int]:
        """Bytes sent out of every port of a switch."""
        name = "node-connector-statistics-and-port-number-map"
        counted = {}
        for port in self._direct(dpid, "node-connector", name):
            try:
                number = str(port["node-connector-id"]).rpartition(":")[2]
                if number.isdecimal():  # not LOCAL
                    counted[int(number)] = int(port["bytes"]["transmitted"])
            except odl_flows.UNREADABLE as error:
                raise garbled(self._rest, "a port", error) from error
        return counted

    def configured(self, dpid: int, cookie: int, mask: int) -> list[str]:
        """The ids of the flows in a switch's configuration under a cookie mask."""
        body = self._rest.get(f"{table_path(dpid)}?content=config") or {}
        found = []
        for table in listed(self._rest, body, "flow-node-inventory:table"):
            for flow in listed(self._rest, table, "flow"):
                try:
                    if int(flow.get("cookie", 0)) & mask == cookie & mask:
                        found.append(str(flow["id"]))
                except odl_flows.UNREADABLE as error:
                    raise garbled(self._rest, "a configured flow", error) from error
        return found

    def _direct(self, dpid: int, what: str, name: str, **filters: int) -> list[dict[str, Any]]:
        asked = {"node": node_path(dpid), "store-stats": False, **filters}
        output = self._rest.call(f"{_STATISTICS}:get-{what}-statistics", asked)
        return listed(self._rest, output, name)


def listed(rest: Restconf, body: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    """A list of objects out of an answer, empty where it is left out. Raises ControllerError."""
    found = body.get(name, [])
    if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
        raise garbled(rest, name, "no list of objects")
    return found


def garbled(rest: Restconf, what: str, why: object) -> ControllerError:
    """For an answer in JSON that is not what was asked for."""
    return ControllerError(f"{rest.label} answered with {what} that cannot be read: {why!r}")


def node_path(dpid: int) -> str:
    """A switch as the arguments of operations name it."""
    node = f"opendaylight-inventory:node[opendaylight-inventory:id='openflow:{dpid}']"
    return f"/opendaylight-inventory:nodes/{node}"


def table_path(dpid: int) -> str:
    """The flow table of a switch below ``/rests/data``."""
    # RFC 8040 §3.5.3: a colon in a key value is written as %3A.
    node = f"opendaylight-inventory:nodes/node=openflow%3A{dpid}"
    return f"{node}/flow-node-inventory:table={odl_flows.TABLE}"


def flow_path(dpid: int, flow_id: str) -> str:
    """A flow of that table."""
    return f"{table_path(dpid)}/flow={flow_id}"
