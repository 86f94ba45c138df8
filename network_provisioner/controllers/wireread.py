"""What switches answer about rules, groups and meters, back as values."""

from __future__ import annotations

import logging
import math
from functools import lru_cache
from typing import Any

from network_provisioner.controllers.aids import Bucket, Meter, SelectGroup, is_our_number
from network_provisioner.controllers.blocks import Masked
from network_provisioner.controllers.flowstats import FlowEntry
from network_provisioner.controllers.rules import (
    FlowRule,
    SeenRule,
)
from network_provisioner.controllers.wire import (
    ALL_BITS,
    ETH_TYPES,
    IP_PROTOCOLS,
    PARSER,
)

LOG = logging.getLogger(__name__)


def read_rule(dpid: int, entry: FlowEntry, now: float) -> SeenRule | None:
    """One entry of a flow statistics reply; None for one that is not shaped like ours."""
    try:
        contents = _contents(entry.contents)
    except Exception as error:
        # The library's decoders raise whatever a wrong length or number leads them to.
        LOG.warning("a rule of switch %d cannot be read: %s", dpid, type(error).__name__)
        return None
    if contents is None or entry.table_id:
        return None
    rule = FlowRule(
        dpid=dpid,
        priority=entry.priority,
        cookie=entry.cookie,
        expires_at=now - entry.age_s + entry.hard_timeout if entry.hard_timeout else math.inf,
        **contents,
    )
    return SeenRule(rule, entry.byte_count)


@lru_cache(maxsize=100_000)
def _contents(data: bytes) -> dict[str, Any] | None:
    """A match and what is done with what it meets, as a rule's fields."""
    match = PARSER.OFPMatch.parser(data, 0)
    at = -(-match.length // 8) * 8
    steps = {}
    while at < len(data):
        step = PARSER.OFPInstruction.parser(data, at)
        steps[type(step)] = step
        at += step.len
    matched = _read_match(dict(match.items()))
    done = steps.pop(PARSER.OFPInstructionActions, None)
    metered = steps.pop(PARSER.OFPInstructionMeter, None)
    does = _read_actions(done.actions if done is not None else [])
    if matched is None or does is None or steps:
        return None
    return {**matched, **does, "meter": metered.meter_id if metered is not None else 0}


def _read_match(fields: dict[str, Any]) -> dict[str, Any] | None:
    kind = fields.pop("eth_type", None)
    number = fields.pop("ip_proto", None)
    protocol = next(
        (
            name
            for name, eth_type in ETH_TYPES.items()
            if eth_type == kind and IP_PROTOCOLS.get(name) == number
        ),
        None,
    )
    if protocol is None:
        return None
    ends = ("arp_spa", "arp_tpa") if protocol == "arp" else ("ipv4_src", "ipv4_dst")
    found = {
        "protocol": protocol,
        "src": str(fields.pop(ends[0], "")),
        "dst": str(fields.pop(ends[1], "")),
        "in_port": fields.pop("in_port", 0),
        "mark": fields.pop("ip_dscp", None),
        "src_port": _masked(fields.pop(f"{protocol}_src", None)),
        "dst_port": _masked(fields.pop(f"{protocol}_dst", None)),
    }
    return None if fields else found


def _read_actions(actions: list[Any]) -> dict[str, Any] | None:
    found: dict[str, Any] = {"out_port": 0}
    for action in actions:
        if isinstance(action, PARSER.OFPActionSetField) and action.key == "ip_dscp":
            found["dscp"] = action.value
        elif isinstance(action, PARSER.OFPActionSetField) and action.key == "eth_dst":
            found["eth_dst"] = str(action.value)
        elif isinstance(action, PARSER.OFPActionSetQueue):
            found["queue"] = action.queue_id
        elif isinstance(action, PARSER.OFPActionGroup):
            found["group"] = action.group_id
        elif isinstance(action, PARSER.OFPActionOutput) and not found["out_port"]:
            found["out_port"] = action.port
        else:
            return None
    return found


def _masked(value: Any) -> Masked | None:
    """A port as it was matched; switches leave out a mask that has all bits."""
    return (value, ALL_BITS) if isinstance(value, int) else value


def read_group(dpid: int, entry: Any) -> SelectGroup | None:
    """One entry of a group description reply; None for one that is not ours."""
    if not is_our_number(entry.group_id):
        return None
    buckets = []
    for bucket in entry.buckets:
        does = _read_actions(bucket.actions) or {"out_port": 0}
        buckets.append(
            Bucket(
                weight=bucket.weight,
                mark=does.get("dscp", 0),
                out_port=does["out_port"],
                eth_dst=does.get("eth_dst", ""),
                queue=does.get("queue", 0),
            )
        )
    return SelectGroup(dpid, entry.group_id, tuple(buckets))


def read_meter(dpid: int, entry: Any) -> Meter | None:
    """One entry of a meter configuration reply; None for one that is not ours."""
    if not is_our_number(entry.meter_id):
        return None
    band = entry.bands[0] if len(entry.bands) == 1 else None
    return Meter(dpid, entry.meter_id, getattr(band, "rate", 0), getattr(band, "burst_size", 0))
