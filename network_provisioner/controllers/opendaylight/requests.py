"""What OpenDaylight is asked: about switches, to change them, and how they are joined.

Rules, groups and counters come from the switch itself and now (``opendaylight-direct-statistics``),
not from the operational datastore, which is some seconds behind.

OpenDaylight sends frames out of every port by itself (IEEE 802.1AB), but its switches give them
back only where a rule says so. That rule is on the switches for some seconds only, with a lease
and a cookie of its own. A link that OpenDaylight has found it remembers for about a minute.
"""

from __future__ import annotations

import base64
import logging
import secrets
import threading
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from network_provisioner.base.controller import ControllerError
from network_provisioner.controllers.match import OtherRule
from network_provisioner.controllers.opendaylight import model
from network_provisioner.controllers.restconf import RequestRefusedError, Restconf
from network_provisioner.controllers.rules import (
    EVERY_BIT,
    PROBE_COOKIE,
    PROBE_RULE_S,
    ROUTE_OWNER,
    FlowRule,
    SeenRule,
    SelectGroup,
    TableEntry,
    contents,
    is_our_cookie,
    is_our_number,
    is_probe_cookie,
    item_text,
)
from network_provisioner.topology.discovery import Discovered, End, Port, said_bps

LOG = logging.getLogger(__name__)
Origin = tuple[str, str]
"""Where a switch's connection comes from: another place is another connection."""

_NODES = (
    "opendaylight-inventory:nodes?content=nonconfig"
    "&fields=node(id;flow-node-inventory:ip-address;flow-node-inventory:port-number)"
)
_STATISTICS = "opendaylight-direct-statistics"
# More rules than this are read together.
_ONE_BY_ONE = 4
# An operation ends with the next barrier, so what counts is how many wait for the same one.
_AT_ONCE = 16
_BARRIER_AFTER_S = 0.05

# OpenDaylight sends its frames every five seconds.
DISCOVER_S = 6.5
_LOOK_EVERY_S = 0.5
_LEASE_S = 30
_ETH_TYPE = 0x88CC
_PUNT_PRIORITY = 65000
_PORTS = (
    "opendaylight-inventory:nodes?content=nonconfig&fields=node(id;node-connector(id;"
    "flow-node-inventory:name;flow-node-inventory:state;flow-node-inventory:configuration;"
    "flow-node-inventory:current-speed;flow-node-inventory:maximum-speed))"
)
_LINKS = "network-topology:network-topology/topology=flow%3A1?content=nonconfig&fields=link"


class OpenDaylightReader:
    """Reads. Every method raises ControllerError."""

    def __init__(self, rest: Restconf) -> None:
        self._rest = rest

    def switches(self) -> dict[int, Origin]:
        """The OpenFlow switches that are connected to it, by datapath id."""
        origins: dict[int, Origin] = {}
        for node in _nodes(self._rest, _NODES):
            kind, _, number = str(node.get("id")).partition(":")
            if kind == "openflow" and number.isdecimal():
                address = node.get("flow-node-inventory:ip-address")
                port = node.get("flow-node-inventory:port-number")
                origins[int(number)] = (str(address), str(port))
        return origins

    def rules(
        self, dpid: int, cookie: int, mask: int, now: float
    ) -> tuple[list[SeenRule], set[int]]:
        """The rules in a switch under a cookie mask, and the cookies of those we would not make."""
        under = {"cookie": cookie & mask, "cookie_mask": mask} if mask else {}
        seen: list[SeenRule] = []
        odd: set[int] = set()
        with _reading(self._rest, "a flow"):
            for flow in self._flows(dpid, **under):
                if int(flow["cookie"]) & mask != cookie & mask:
                    continue  # it answers what was not asked
                rule = model.read_flow(dpid, flow, now)
                if rule is None:
                    odd.add(int(flow["cookie"]))
                else:
                    seen.append(rule)
        return seen, odd

    def table(self, dpid: int) -> tuple[set[Hashable], list[OtherRule]]:
        """What our rules in a switch do, and the rules of others in the table of ours."""
        ours: set[Hashable] = set()
        others = []
        with _reading(self._rest, "a flow"):
            for flow in self._flows(dpid):
                cookie, match = int(flow["cookie"]), flow.get("match") or {}
                if is_our_cookie(cookie):
                    rule = model.read_flow(dpid, flow, 0.0)
                    ours.add(cookie if rule is None else contents(rule.rule))
                elif not is_probe_cookie(cookie) and int(flow["table_id"]) == model.TABLE:
                    others.append(OtherRule(int(flow["priority"]), cookie, match))
        return ours, others

    def rules_of(self, dpid: int, cookies: Sequence[int], now: float) -> Iterator[SeenRule]:
        """The rules with exactly these cookies."""
        if len(cookies) > _ONE_BY_ONE:
            wanted = set(cookies)
            seen, _ = self.rules(dpid, 0, 0, now)
            yield from (rule for rule in seen if rule.rule.cookie in wanted)
            return
        for cookie in cookies:
            seen, _ = self.rules(dpid, cookie, EVERY_BIT, now)
            yield from seen

    def groups(self, dpid: int) -> list[SelectGroup]:
        """Our groups in a switch, without buckets: only that they are there is known at once."""
        with _reading(self._rest, "a group"):
            statistics = self._direct(dpid, "group", "group-stats")
            numbers = [int(group["group-id"]) for group in statistics]
        return [SelectGroup(dpid, number, ()) for number in numbers if is_our_number(number)]

    def port_bytes(self, dpid: int) -> dict[int, tuple[int, int]]:
        """Bytes sent out of every port of a switch, and come in there."""
        name = "node-connector-statistics-and-port-number-map"
        counted = {}
        with _reading(self._rest, "a port"):
            for port in self._direct(dpid, "node-connector", name):
                number = str(port["node-connector-id"]).rpartition(":")[2]
                if number.isdecimal():  # not LOCAL
                    both = port["bytes"]
                    counted[int(number)] = int(both["transmitted"]), int(both["received"])
        return counted

    def probes(self, dpid: int) -> dict[int, int]:
        """How many bytes of the probes of each segment, by its number, have come to a switch."""
        with _reading(self._rest, "a flow"):
            return {
                int(flow["match"]["udp-source-port"]): int(flow["byte-count"])
                for flow in self._flows(dpid, cookie=PROBE_COOKIE, cookie_mask=EVERY_BIT)
            }

    def configured(self, dpid: int, cookie: int, mask: int) -> list[str]:
        """The ids of the flows in a switch's configuration under a cookie mask."""
        body = self._rest.get(f"{table_path(dpid)}?content=config") or {}
        with _reading(self._rest, "a configured flow"):
            return [
                str(flow["id"])
                for table in _objects(body, "flow-node-inventory:table")
                for flow in _objects(table, "flow")
                if int(flow.get("cookie", 0)) & mask == cookie & mask
            ]

    def _flows(self, dpid: int, **filters: int) -> list[dict[str, Any]]:
        return self._direct(dpid, "flow", "flow-and-statistics-map-list", **filters)

    def _direct(self, dpid: int, what: str, name: str, **filters: int) -> list[dict[str, Any]]:
        question = {"node": node_path(dpid), "store-stats": False, **filters}
        return _objects(self._rest.call(f"{_STATISTICS}:get-{what}-statistics", question), name)


@contextmanager
def _reading(rest: Restconf, what: str) -> Iterator[None]:
    """Raises ControllerError for an answer in JSON that is not what was asked for."""
    try:
        yield
    except model.UNREADABLE as error:
        raise ControllerError(
            f"{rest.label} answered with {what} that cannot be read: {error!r}"
        ) from error


def _objects(body: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    """A list of objects out of an answer, empty where it is left out. Raises TypeError."""
    items = body.get(name, [])
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise TypeError(f"{name} is no list of objects")
    return items


def _nodes(rest: Restconf, query: str) -> list[dict[str, Any]]:
    """The nodes of its inventory. Raises ControllerError."""
    with _reading(rest, "an inventory"):
        return _objects((rest.get(query) or {}).get("opendaylight-inventory:nodes", {}), "node")


def node_path(dpid: int) -> str:
    """A switch as the arguments of operations name it."""
    node = f"opendaylight-inventory:node[opendaylight-inventory:id='openflow:{dpid}']"
    return f"/opendaylight-inventory:nodes/{node}"


def table_path(dpid: int) -> str:
    """The flow table of a switch below ``/rests/data``."""
    # RFC 8040 §3.5.3: a colon in a key value is written as %3A.
    node = f"opendaylight-inventory:nodes/node=openflow%3A{dpid}"
    return f"{node}/flow-node-inventory:table={model.TABLE}"


def flow_path(dpid: int, flow_id: str) -> str:
    """A flow of that table."""
    return f"{table_path(dpid)}/flow={flow_id}"


@dataclass(frozen=True, slots=True)
class SwitchRequest:
    """One request that concerns one switch. ``label`` and ``what`` are for messages."""

    dpid: int
    label: str
    what: str
    run: Callable[[], object]


def run_wave(steps: Sequence[SwitchRequest], barrier: Callable[[int], None]) -> None:
    """Run all steps; returns when every switch has confirmed.

    ``barrier`` is called with a switch that is being waited for, again and again. Raises
    ControllerError that names what was refused, when all others are through.
    """
    if not steps:
        return
    problems: list[str] = []
    with ThreadPoolExecutor(min(_AT_ONCE, len(steps)), "adon-odl") as pool:
        running = {pool.submit(step.run): step for step in steps}
        waiting = set(running)
        while waiting:
            done, waiting = wait(waiting, timeout=_BARRIER_AFTER_S)
            for future in done:
                error = future.exception()
                if isinstance(error, RequestRefusedError):
                    step = running[future]
                    problems.append(f"{step.label} refused {step.what}: {error.reason}")
                elif isinstance(error, ControllerError):
                    problems.append(str(error))
                elif error is not None:
                    raise error
            for dpid in {running[future].dpid for future in waiting if future.running()}:
                barrier(dpid)
    if problems:
        raise ControllerError("; ".join(dict.fromkeys(problems)))


class OpenDaylightWriter:
    """Makes steps. ``label`` names a switch in messages."""

    def __init__(self, rest: Restconf, label: Callable[[int], str]) -> None:
        self._rest = rest
        self._label = label

    def add(self, rule: FlowRule, now: float) -> SwitchRequest:
        """Adds a rule, or overwrites the one with the same match."""
        flow = model.flow_of(rule, now)
        what = item_text(rule)
        if rule.owner != ROUTE_OWNER:
            return self.add_flow(rule.dpid, what, flow)
        name = model.flow_id(rule)
        body = {"flow-node-inventory:flow": [{"id": name, "flow-name": name, **flow}]}
        path = flow_path(rule.dpid, name)
        return self._step(rule.dpid, what, partial(self._rest.put, path, body))

    def add_flow(self, dpid: int, what: str, flow: dict[str, Any]) -> SwitchRequest:
        """Hands a flow to a switch."""
        return self._call(dpid, what, "sal-flow:add-flow", flow)

    def delete(self, rule: FlowRule) -> SwitchRequest:
        """Deletes exactly this rule; done where it is not there."""
        what = f"to forget {item_text(rule)}"
        called = self._call(rule.dpid, what, "sal-flow:remove-flow", model.exactly(rule))
        if rule.owner != ROUTE_OWNER:
            return called
        path = flow_path(rule.dpid, model.flow_id(rule))

        def run() -> None:
            # What is not configured (any more) may still be on the switch.
            if not self._rest.delete(path):
                called.run()

        return self._step(rule.dpid, what, run)

    def delete_by_cookie(self, dpid: int, cookie: int, mask: int) -> SwitchRequest:
        """Deletes every rule on the switch whose cookie agrees under the mask."""
        arguments = {"table_id": model.ALL_TABLES, "cookie": cookie & mask, "cookie_mask": mask}
        return self._call(dpid, "to forget our rules", "sal-flow:remove-flow", arguments)

    def forget(self, dpid: int, flow_id: str) -> SwitchRequest:
        """Takes a flow out of the configuration."""
        run = partial(self._rest.delete, flow_path(dpid, flow_id))
        return self._step(dpid, f"to forget {flow_id}", run)

    def add_group(self, entry: TableEntry, *, there: bool) -> SwitchRequest:
        """Adds a select group; changes it where it is ``there`` already."""
        if not isinstance(entry, SelectGroup):
            raise ControllerError(f"{self._label(entry.dpid)} cannot have a meter by OpenDaylight")
        group = model.group_of(entry)
        if not there:
            return self._call(entry.dpid, "a group", "sal-group:add-group", group)
        both = {"original-group": group, "updated-group": group}
        return self._call(entry.dpid, "a group", "sal-group:update-group", both)

    def delete_group(self, entry: TableEntry) -> SwitchRequest:
        """Deletes a group, and with it the rules that refer to it."""
        named = {"group-id": entry.number, "group-type": "group-select"}
        return self._call(entry.dpid, "to forget a group", "sal-group:remove-group", named)

    def expect_probe(self, end: End, eth_type: int, ports: tuple[int, int]) -> SwitchRequest:
        """Has a switch count the UDP packets from and to these ports that come in at a port, and
        drop them."""
        dpid, number = end
        flow = {
            "table_id": model.TABLE,
            "priority": _PUNT_PRIORITY,
            "cookie": PROBE_COOKIE,
            "hard-timeout": PROBE_RULE_S,
            "match": {
                "in-port": f"openflow:{dpid}:{number}",
                "ethernet-match": {"ethernet-type": {"type": eth_type}},
                "ip-match": {"ip-protocol": 17},
                "udp-source-port": ports[0],
                "udp-destination-port": ports[1],
            },
        }
        return self.add_flow(dpid, "the rule to watch by", flow)

    def send_packet(self, end: End, frame: bytes) -> SwitchRequest:
        """Sends a frame out of a port."""
        dpid, number = end
        inventory = "opendaylight-inventory"
        connector = f"{inventory}:node-connector[{inventory}:id='openflow:{dpid}:{number}']"
        arguments = {
            "egress": f"{node_path(dpid)}/{connector}",
            "payload": base64.b64encode(frame).decode(),
        }
        return self._call(dpid, "a probe", "packet-processing:transmit-packet", arguments)

    def barrier(self, dpid: int) -> None:
        """OpenDaylight sends one twice a second; this one is sooner, and only a kindness."""
        try:
            self._rest.call("flow-capable-transaction:send-barrier", {"node": node_path(dpid)})
        except ControllerError as error:
            LOG.debug("no barrier: %s", error)

    def _call(
        self, dpid: int, what: str, operation: str, arguments: dict[str, Any]
    ) -> SwitchRequest:
        whole = {"node": node_path(dpid), **arguments}
        return self._step(dpid, what, partial(self._rest.call, operation, whole))

    def _step(self, dpid: int, what: str, run: Callable[[], object]) -> SwitchRequest:
        return SwitchRequest(dpid, self._label(dpid), what, run)


def discover(
    rest: Restconf, steps: OpenDaylightWriter, dpids: Iterable[int], seconds: float
) -> Discovered:
    """Look around for ``seconds``. Raises ControllerError."""
    dpids = set(dpids)
    cookie = PROBE_COOKIE | secrets.randbits(48)
    links: set[tuple[End, End]] = set()
    over = threading.Event()
    punt = [steps.add_flow(dpid, "the rule to find links by", _punt(cookie)) for dpid in dpids]
    try:
        run_wave(punt, steps.barrier)
        for _ in range(round(seconds / _LOOK_EVERY_S)):
            over.wait(_LOOK_EVERY_S)  # nobody says that no more will come
            links |= _links(rest, dpids)
    finally:
        forget = [steps.delete_by_cookie(dpid, cookie, EVERY_BIT) for dpid in dpids]
        run_wave(forget, steps.barrier)
    return Discovered(ports_of(rest, dpids), frozenset(links))


def _punt(cookie: int) -> dict[str, Any]:
    out = {"output-node-connector": "CONTROLLER", "max-length": 0xFFFF}
    actions = {"apply-actions": {"action": [{"order": 0, "output-action": out}]}}
    return {
        "table_id": model.TABLE,
        "priority": _PUNT_PRIORITY,
        "cookie": cookie,
        "hard-timeout": _LEASE_S,
        "match": {"ethernet-match": {"ethernet-type": {"type": _ETH_TYPE}}},
        "instructions": {"instruction": [{"order": 0, **actions}]},
    }


def _links(rest: Restconf, dpids: set[int]) -> set[tuple[End, End]]:
    links = set()
    body = rest.get(_LINKS) or {}
    with _reading(rest, "a link"):
        for topology in _objects(body, "network-topology:topology"):
            for link in _objects(topology, "link"):
                a, b = _end(link["source"]["source-tp"]), _end(link["destination"]["dest-tp"])
                if a is not None and b is not None and {a[0], b[0]} <= dpids:
                    links.add((min(a, b), max(a, b)))
    return links


def ports_of(rest: Restconf, dpids: set[int]) -> dict[int, dict[int, Port]]:
    """The ports of these switches, by number. Raises ControllerError."""
    ports: dict[int, dict[int, Port]] = {dpid: {} for dpid in dpids}
    nodes = _nodes(rest, _PORTS)
    with _reading(rest, "a port"):
        for port in (port for node in nodes for port in _objects(node, "node-connector")):
            end = _end(port["id"])
            if end is not None and end[0] in dpids:
                ports[end[0]][end[1]] = _port(port)
    return ports


def _port(port: dict[str, Any]) -> Port:
    def said(what: str) -> Any:
        return port.get(f"flow-node-inventory:{what}")

    config = str(said("configuration")).split()
    down = "PORT-DOWN" in config or (said("state") or {}).get("link-down")
    drops = not down and not {"NO-RECV", "NO-FWD"}.isdisjoint(config)
    # OpenFlow 1.3 section 7.2.1: in kb/s.
    speed, most = (
        said_bps(1000.0 * int(said(f"{which}-speed") or 0)) for which in ("current", "maximum")
    )
    return Port(str(said("name") or ""), not down and not drops, speed, most, drops)


def _end(text: object) -> End | None:
    """``openflow:1:10``; None for a switch's own port, or something that is no port."""
    kind, _, rest = str(text).partition(":")
    dpid, _, number = rest.partition(":")
    if kind != "openflow" or not dpid.isdecimal() or not number.isdecimal():
        return None
    return int(dpid), int(number)
