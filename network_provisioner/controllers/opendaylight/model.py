"""Flow rules and groups in the words of OpenDaylight's models: ``flow-node-inventory``. Pure.

OpenDaylight prints 64 bit numbers as text, addresses with their prefix length, and leaves out what
is empty.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from ipaddress import ip_network
from typing import Any

from network_provisioner.controllers.match import ENDS, PORTS, match_of, rule_fields
from network_provisioner.controllers.rules import (
    EVERY_BIT,
    PORT_BITS,
    FlowRule,
    SeenRule,
    SelectGroup,
    hard_timeout,
)

TABLE = 0
ALL_TABLES = 255
UNREADABLE = (KeyError, TypeError, ValueError, AttributeError, OverflowError)
"""What comes of reading something else than was asked for."""

# What our rules look at, by OpenFlow's names, but for the Ethernet type.
_NAMES = {
    "in_port": "in-port", "ip_dscp": "ip-dscp", "ip_proto": "ip-protocol",
    "ipv4_src": "ipv4-source", "ipv4_dst": "ipv4-destination",
    "ipv6_src": "ipv6-source", "ipv6_dst": "ipv6-destination",
    "arp_spa": "arp-source-transport-address", "arp_tpa": "arp-target-transport-address",
    "tcp_src": "tcp-source-port", "tcp_dst": "tcp-destination-port",
    "udp_src": "udp-source-port", "udp_dst": "udp-destination-port",
}  # fmt: skip
_FIELDS = {name: field for field, name in _NAMES.items()}


def flow_of(rule: FlowRule, now: float) -> dict[str, Any]:
    """A rule as a ``flow``, without an id."""
    return {
        "table_id": TABLE,
        "priority": rule.priority,
        "cookie": rule.cookie,
        "hard-timeout": hard_timeout(rule.expires_at, now),
        "idle-timeout": 0,
        "match": _match(rule),
        "instructions": {"instruction": _instructions(rule)},
    }


def exactly(rule: FlowRule) -> dict[str, Any]:
    """What names one rule in order to remove it, and no other."""
    return {
        "table_id": TABLE,
        "priority": rule.priority,
        "cookie": rule.cookie,
        "cookie_mask": EVERY_BIT,
        "strict": True,
        "match": _match(rule),
    }


def group_of(group: SelectGroup) -> dict[str, Any]:
    """A select group."""
    buckets = [
        {
            "bucket-id": i,
            "weight": b.weight,
            "action": _ordered(_forward(b.mark, b.eth_dst, b.queue, b.out_port)),
        }
        for i, b in enumerate(group.buckets)
    ]
    return {
        "group-id": group.number,
        "group-type": "group-select",
        "buckets": {"bucket": buckets},
    }


def flow_id(rule: FlowRule) -> str:
    """The id of a rule in the configuration datastore: one for each key, so none is there twice."""
    ends = [address.replace("/", "_").replace(":", ".") for address in (rule.src, rule.dst)]
    words = ["adon", str(rule.priority), *ends, rule.protocol]
    for letter, part in (("s", rule.src_port), ("d", rule.dst_port)):
        if part is not None:
            words.append(f"{letter}{part[0]}.{part[1]:x}")
    if rule.in_port:
        words.append(f"p{rule.in_port}")
    if rule.mark is not None:
        words.append(f"m{rule.mark}")
    return "-".join(words)


def read_flow(dpid: int, flow: Mapping[str, Any], now: float) -> SeenRule | None:
    """A flow with statistics, as read; None for one that is not shaped like ours.

    Raises one of :data:`UNREADABLE` for what is no flow at all.
    """
    if int(flow["table_id"]) != TABLE:
        return None
    match = _read_match(flow.get("match") or {})
    matched = None if match is None else rule_fields(match)
    done = _read_instructions(flow.get("instructions") or {})
    if matched is None or done is None:
        return None
    duration = flow["duration"]
    age_s = int(duration["second"]) + int(duration["nanosecond"]) / 1e9
    lease_s = int(flow.get("hard-timeout", 0))
    rule = FlowRule(
        dpid=dpid,
        priority=int(flow["priority"]),
        cookie=int(flow["cookie"]),
        expires_at=now - age_s + lease_s if lease_s else math.inf,
        **matched,
        **done,
    )
    return SeenRule(rule, int(flow["byte-count"]))


def match_fields(match: Mapping[str, Any]) -> dict[str, Any] | None:
    """What a flow of somebody else looks at (see :mod:`network_provisioner.controllers.match`);
    None for something that our rules do not look at, or that cannot be read."""
    try:
        return _read_match(match)
    except UNREADABLE:
        return None


def _match(rule: FlowRule) -> dict[str, Any]:
    fields = match_of(rule)
    match: dict[str, Any] = {"ethernet-match": {"ethernet-type": {"type": fields.pop("eth_type")}}}
    for field, value in fields.items():
        name = _NAMES[field]
        if field in ("ip_proto", "ip_dscp"):
            match.setdefault("ip-match", {})[name] = value
        elif field in ENDS:
            match[name] = str(ip_network(value))
        elif field in PORTS:
            match[name], mask = value
            if mask != PORT_BITS:
                # OpenFlow 1.3 has no mask for ports; Open vSwitch takes one, others need not.
                match[f"{name}-mask"] = mask
        else:
            match[name] = str(value)
    return match


def _read_match(match: Mapping[str, Any]) -> dict[str, Any] | None:
    """None for something that our rules do not look at. Raises one of :data:`UNREADABLE`."""
    rest = dict(match)
    fields: dict[str, Any] = {}
    if ethernet := rest.pop("ethernet-match", {}):
        if ethernet.keys() != {"ethernet-type"}:
            return None
        fields["eth_type"] = int(ethernet["ethernet-type"]["type"])
    rest |= rest.pop("ip-match", {})
    masks = {name: rest.pop(f"{name}-mask", PORT_BITS) for name in _FIELDS}
    for name, value in rest.items():
        field = _FIELDS.get(name)
        if field is None:
            return None
        if field in ENDS:
            fields[field] = value
        elif field in PORTS:
            fields[field] = int(value), int(masks[name])
        else:  # a port may have its node before it: "openflow:1:1"
            fields[field] = int(str(value).rpartition(":")[2])
    return fields


def _instructions(rule: FlowRule) -> list[dict[str, Any]]:
    steps: list[dict[str, Any]] = []
    if rule.meter:
        steps.append({"meter": {"meter-id": rule.meter}})
    actions: list[dict[str, Any]] = []
    if rule.group:
        actions.append({"group-action": {"group-id": rule.group}})
    elif rule.out_port:
        actions += _forward(rule.dscp, rule.eth_dst, rule.queue, rule.out_port)
    if actions:
        steps.append({"apply-actions": {"action": _ordered(actions)}})
    return _ordered(steps)


def _forward(dscp: int | None, eth_dst: str, queue: int, port: int) -> list[dict[str, Any]]:
    actions: list[dict[str, Any]] = []
    if dscp is not None:
        actions.append({"set-field": {"ip-match": {"ip-dscp": dscp}}})
    if eth_dst:
        address = {"ethernet-destination": {"address": eth_dst}}
        actions.append({"set-field": {"ethernet-match": address}})
    if queue:
        actions.append({"set-queue-action": {"queue-id": queue}})
    out = {"output-node-connector": str(port), "max-length": 0xFFFF}
    return [*actions, {"output-action": out}]


def _ordered(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"order": i, **item} for i, item in enumerate(items)]


def _read_instructions(instructions: Mapping[str, Any]) -> dict[str, Any] | None:
    result: dict[str, Any] = {"out_port": 0}
    for step in sorted(instructions.get("instruction", ()), key=lambda s: int(s["order"])):
        if "meter" in step:
            result["meter"] = int(step["meter"]["meter-id"])
        elif "apply-actions" not in step:
            return None
        else:
            listed = step["apply-actions"].get("action", ())
            for action in sorted(listed, key=lambda a: int(a["order"])):
                if not _read_action(action, result):
                    return None
    return result


def _read_action(action: Mapping[str, Any], result: dict[str, Any]) -> bool:
    """Take one action into ``result``; False for one that is none of ours."""
    if "set-field" in action:
        fields = action["set-field"]
        if "ip-dscp" in fields.get("ip-match", {}):
            result["dscp"] = int(fields["ip-match"]["ip-dscp"])
        elif "ethernet-destination" in fields.get("ethernet-match", {}):
            result["eth_dst"] = str(fields["ethernet-match"]["ethernet-destination"]["address"])
        else:
            return False
    elif "set-queue-action" in action:
        result["queue"] = int(action["set-queue-action"]["queue-id"])
    elif "group-action" in action:
        result["group"] = int(action["group-action"]["group-id"])
    elif "output-action" in action:
        port = str(action["output-action"]["output-node-connector"]).rpartition(":")[2]
        if not port.isdecimal() or result["out_port"]:
            return False
        result["out_port"] = int(port)
    else:
        return False
    return True
