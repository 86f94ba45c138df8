"""OpenFlow 1.3 messages, by os-ken's protocol library.

Only ``os_ken.ofproto`` is used: the encoders and decoders. os-ken's application framework keeps
process-wide state and threads that cannot be ended, so it has no place inside a broker. Flow
statistics (§A.3.5.2) are taken apart here: os-ken needs a quarter of a millisecond for each rule,
and of thousands most were read before.
"""

from __future__ import annotations

import logging
import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from ipaddress import ip_address, ip_network
from typing import Any

from os_ken.exception import OFPTruncatedMessage
from os_ken.ofproto import ofproto_protocol

from network_provisioner.base.fields import format_dpid
from network_provisioner.controllers.match import ENDS, PORTS, match_of, rule_fields
from network_provisioner.controllers.rules import (
    EVERY_BIT,
    PORT_BITS,
    Bucket,
    FlowRule,
    Meter,
    SeenRule,
    SelectGroup,
    TableEntry,
    hard_timeout,
    is_our_number,
)

# Version, type, length and transaction id of a message.
header = struct.Struct("!BBHI").unpack_from
_TABLE_FEATURES = struct.Struct("!2xB57xI")  # what comes before its properties
_FLOW_ENTRY = struct.Struct("!2xBxIIHHHH4xQQQ")
_BODY = 16  # where that of a multipart reply begins
# Of the items of a list: where each says its length, and how long its head is.
_Form = tuple[int, int]
_INSTRUCTION = _ACTION = (2, 8)
_ENTRY, _BUCKET, _BAND = (0, 8), (0, 16), (2, 12)
_UNNAMED = "Unknown"  # what os-ken calls an error of a later version, or of a vendor
_PACKET_IN_MATCH = 24  # where its match begins
VERSION = 0x04
HEADER_BYTES = 8
HELLO = 0

# os-ken's messages ask a "datapath" only for the protocol they are written in.
_PROTOCOL: Any = ofproto_protocol.ProtocolDesc(VERSION)
OFP: Any = _PROTOCOL.ofproto
PARSER: Any = _PROTOCOL.ofproto_parser

LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FlowEntry:
    """One rule of a flow statistics reply; ``contents`` are its match and instructions."""

    table_id: int
    priority: int
    hard_timeout: int
    age_s: float
    cookie: int
    byte_count: int
    contents: bytes


class ReplyPart:
    """A part of a reply that is taken apart here."""

    body: list[Any]

    def __init__(self, data: bytes, xid: int) -> None:
        """Raises struct.error or ValueError for what is none."""
        self.xid = xid
        (self.flags,) = struct.unpack_from("!H", data, 10)
        self.body = []


class TableReply(ReplyPart):
    """A part of a table features reply: the number of each table, and how many rules it takes.
    What else a table can do, hundreds of bytes, is left out."""

    def __init__(self, data: bytes, xid: int) -> None:
        super().__init__(data, xid)
        for at, _ in _items(data, _BODY, len(data), (0, _TABLE_FEATURES.size)):
            self.body.append(_TABLE_FEATURES.unpack_from(data, at))


class FlowReply(ReplyPart):
    """A part of a flow statistics reply."""

    def __init__(self, data: bytes, xid: int) -> None:
        super().__init__(data, xid)
        for at, end in _items(data, _BODY, len(data), (0, _FLOW_ENTRY.size)):
            table, *ages, priority, _, hard, _, cookie, _, count = _FLOW_ENTRY.unpack_from(data, at)
            contents = data[at + _FLOW_ENTRY.size : end]
            age_s = ages[0] + ages[1] / 1e9
            self.body.append(FlowEntry(table, priority, hard, age_s, cookie, count, contents))


def _items(data: bytes, at: int, end: int, form: _Form) -> Iterator[tuple[int, int]]:
    """Where each item of a list begins and ends. Raises ValueError for one that says it is shorter
    than its head, over which os-ken would go on forever, or longer than what is left."""
    length_at, head = form
    while at < end:
        (size,) = struct.unpack_from("!H", data, at + length_at)
        if not head <= size <= end - at:
            raise ValueError(f"an item of {size} bytes")
        yield at, at + size
        at += size


def _check_lengths(data: bytes, at: int, form: _Form, *inner: _Form, end: int = 0) -> None:
    """Raises ValueError for a list whose items, or the items in them, have wrong lengths."""
    for first, last in _items(data, at, end or len(data), form):
        if inner:
            _check_lengths(data, first + form[1], *inner, end=last)


def other_versions(hello: bytes) -> str:
    """The versions that a switch says it speaks, where 1.3 is none of them; "" where it is."""
    version, *_ = header(hello)
    versions = {version} if version < VERSION else {VERSION}
    if version >= VERSION and len(hello) >= 16:
        kind, _, bits = struct.unpack_from("!HHI", hello, HEADER_BYTES)
        if kind == OFP.OFPHET_VERSIONBITMAP:
            versions = {number for number in range(1, 32) if bits >> number & 1}
    return "" if VERSION in versions else ", ".join(f"1.{number - 1}" for number in versions)


# What is read: os-ken goes on forever over some others that have a wrong length.
_READ = {
    OFP.OFPT_ERROR, OFP.OFPT_ECHO_REQUEST, OFP.OFPT_ECHO_REPLY, OFP.OFPT_FEATURES_REPLY,
    OFP.OFPT_PACKET_IN, OFP.OFPT_FLOW_REMOVED, OFP.OFPT_PORT_STATUS, OFP.OFPT_BARRIER_REPLY,
    OFP.OFPT_ROLE_REPLY,
}  # fmt: skip
_PARTS = {OFP.OFPMP_FLOW: FlowReply, OFP.OFPMP_TABLE_FEATURES: TableReply}
_NESTED = {
    OFP.OFPMP_GROUP_DESC: (_ENTRY, _BUCKET, _ACTION),
    OFP.OFPMP_METER_CONFIG: (_ENTRY, _BAND),
}
_FLAT = {
    OFP.OFPMP_TABLE, OFP.OFPMP_PORT_STATS, OFP.OFPMP_QUEUE, OFP.OFPMP_METER_FEATURES,
    OFP.OFPMP_PORT_DESC,
}  # fmt: skip


def decode(data: bytes) -> Any:
    """A message object, or None for one that is not read: what OpenFlow leaves to vendors, or has
    since 1.4, or what nobody asked for. Raises for a part of a reply that is none, and for another
    version."""
    version, kind, length, xid = header(data)
    if version != VERSION:
        raise ValueError(f"OpenFlow version {version:#x}")
    if kind == OFP.OFPT_MULTIPART_REPLY:
        (part,) = struct.unpack_from("!H", data, HEADER_BYTES)
        if part in _PARTS:
            return _PARTS[part](data, xid)
        if part in _NESTED:
            _check_lengths(data, _BODY, *_NESTED[part])
        elif part not in _FLAT:
            return None
    elif kind not in _READ:
        return None
    try:  # ofproto_parser.msg logs a traceback for each
        return PARSER.msg_parser(_PROTOCOL, version, kind, length, xid, data)
    except OFPTruncatedMessage:
        raise
    except Exception:  # the library's decoders raise whatever a number leads them to
        if kind == OFP.OFPT_ERROR and len(data) >= 12:  # still a refusal
            error = PARSER.OFPErrorMsg(_PROTOCOL, *struct.unpack_from("!HH", data, 8))
            error.xid = xid
            return error
        return _packet_in(data, xid) if kind == OFP.OFPT_PACKET_IN else None


def _packet_in(data: bytes, xid: int) -> Any:
    """A frame with the port that it came in by, where its match has fields of a vendor's; None
    where it has no port. Raises struct.error for what is none."""
    length = struct.unpack_from("!H", data, _PACKET_IN_MATCH + 2)[0]
    at, end = _PACKET_IN_MATCH + 4, _PACKET_IN_MATCH + length
    while at < end:
        field, size = struct.unpack_from("!I", data, at)[0], data[at + 3]
        if field == OFP.OXM_OF_IN_PORT:
            match = {"in_port": struct.unpack_from("!I", data, at + 4)[0]}
            frame = data[_PACKET_IN_MATCH + -(-length // 8) * 8 + 2 :]
            message = PARSER.OFPPacketIn(_PROTOCOL, match=match, data=frame)
            message.xid = xid
            return message
        at += 4 + size
    return None


def encode(message: Any, xid: int) -> bytes:
    """The bytes of a message under a transaction id."""
    message.xid = xid
    message.serialize()
    return bytes(message.buf)


# Messages that say the same each time. They are made anew, as encoding writes into them.
hello = partial(PARSER.OFPHello, _PROTOCOL)
features_request = partial(PARSER.OFPFeaturesRequest, _PROTOCOL)
echo_request = partial(PARSER.OFPEchoRequest, _PROTOCOL)
barrier = partial(PARSER.OFPBarrierRequest, _PROTOCOL)
groups_request = partial(PARSER.OFPGroupDescStatsRequest, _PROTOCOL, 0)
meters_request = partial(PARSER.OFPMeterConfigStatsRequest, _PROTOCOL, 0, OFP.OFPM_ALL)
meter_features_request = partial(PARSER.OFPMeterFeaturesStatsRequest, _PROTOCOL, 0)
table_features_request = partial(PARSER.OFPTableFeaturesStatsRequest, _PROTOCOL, 0)
tables_request = partial(PARSER.OFPTableStatsRequest, _PROTOCOL, 0)
port_descriptions_request = partial(PARSER.OFPPortDescStatsRequest, _PROTOCOL, 0)
ports_request = partial(PARSER.OFPPortStatsRequest, _PROTOCOL, 0, OFP.OFPP_ANY)
queues_request = partial(PARSER.OFPQueueStatsRequest, _PROTOCOL, 0, OFP.OFPP_ANY, OFP.OFPQ_ALL)


def lead_request(term: int) -> Any:
    """Makes us a switch's master, unless one of a later term has been (OpenFlow 1.3, 6.3.6)."""
    return PARSER.OFPRoleRequest(_PROTOCOL, OFP.OFPCR_ROLE_MASTER, term)


def is_of_earlier_term(error: Any) -> bool:
    """Whether a switch refuses us for a master of a later term."""
    kind = OFP.OFPET_ROLE_REQUEST_FAILED
    return bool(error.type == kind and error.code == OFP.OFPRRFC_STALE)


def is_of_unknown_request(error: Any) -> bool:
    """Whether a switch says that it does not know what it was asked for."""
    codes = OFP.OFPBRC_BAD_TYPE, OFP.OFPBRC_BAD_MULTIPART
    return bool(error.type == OFP.OFPET_BAD_REQUEST and error.code in codes)


def echo_reply(request: Any) -> Any:
    """The answer to a switch that asks whether we are there."""
    return PARSER.OFPEchoReply(_PROTOCOL, data=request.data)


def add_rule(rule: FlowRule, now: float) -> Any:
    """Adds a rule, or overwrites the one with the same match; byte counters go on."""
    steps = [PARSER.OFPInstructionMeter(rule.meter)] if rule.meter else []
    actions = _actions(rule)
    if actions:
        steps.append(PARSER.OFPInstructionActions(OFP.OFPIT_APPLY_ACTIONS, actions))
    return PARSER.OFPFlowMod(
        _PROTOCOL,
        cookie=rule.cookie,
        command=OFP.OFPFC_ADD,
        priority=rule.priority,
        hard_timeout=hard_timeout(rule.expires_at, now),
        flags=OFP.OFPFF_SEND_FLOW_REM,
        match=_match(rule),
        instructions=steps,
    )


def _actions(rule: FlowRule) -> list[Any]:
    if rule.group:
        return [PARSER.OFPActionGroup(rule.group)]
    if not rule.out_port:
        return []
    return _forward(rule.dscp, rule.eth_dst, rule.queue, rule.out_port)


def _forward(dscp: int | None, eth_dst: str, queue: int, port: int) -> list[Any]:
    actions = []
    if dscp is not None:
        actions.append(PARSER.OFPActionSetField(ip_dscp=dscp))
    if eth_dst:
        actions.append(PARSER.OFPActionSetField(eth_dst=eth_dst))
    if queue:
        actions.append(PARSER.OFPActionSetQueue(queue))
    return [*actions, PARSER.OFPActionOutput(port)]


def add_entry(entry: TableEntry, *, there: bool) -> Any:
    """Adds a group or a meter; changes it where it is ``there`` already."""
    if isinstance(entry, Meter):
        band = PARSER.OFPMeterBandDrop(rate=entry.rate_kbps, burst_size=entry.burst_kbit)
        return PARSER.OFPMeterMod(
            _PROTOCOL,
            command=OFP.OFPMC_MODIFY if there else OFP.OFPMC_ADD,
            flags=OFP.OFPMF_KBPS | OFP.OFPMF_BURST,
            meter_id=entry.number,
            bands=[band],
        )
    buckets = [
        PARSER.OFPBucket(
            weight=b.weight,
            watch_port=OFP.OFPP_ANY,
            watch_group=OFP.OFPG_ANY,
            actions=_forward(b.mark, b.eth_dst, b.queue, b.out_port),
        )
        for b in entry.buckets
    ]
    command = OFP.OFPGC_MODIFY if there else OFP.OFPGC_ADD
    return PARSER.OFPGroupMod(_PROTOCOL, command, OFP.OFPGT_SELECT, entry.number, buckets)


def delete_entry(entry: TableEntry) -> Any:
    """Deletes a group or a meter, and with it the rules that refer to it."""
    if isinstance(entry, Meter):
        return PARSER.OFPMeterMod(
            _PROTOCOL, command=OFP.OFPMC_DELETE, flags=OFP.OFPMF_KBPS, meter_id=entry.number
        )
    return PARSER.OFPGroupMod(_PROTOCOL, OFP.OFPGC_DELETE, OFP.OFPGT_SELECT, entry.number)


def can_meter(features: Any) -> bool:
    """Whether a meter features reply promises meters that drop what exceeds a rate in kb/s."""
    drops = features.band_types >> OFP.OFPMBT_DROP & 1
    return bool(features.max_meter and drops and features.capabilities & OFP.OFPMF_KBPS)


def delete_rule(rule: FlowRule) -> Any:
    """Deletes exactly this rule."""
    return PARSER.OFPFlowMod(
        _PROTOCOL,
        cookie=rule.cookie,
        cookie_mask=EVERY_BIT,
        command=OFP.OFPFC_DELETE_STRICT,
        priority=rule.priority,
        out_port=OFP.OFPP_ANY,
        out_group=OFP.OFPG_ANY,
        match=_match(rule),
    )


def delete_by_cookie(cookie: int, mask: int) -> Any:
    """Deletes every rule whose cookie agrees under the mask."""
    return PARSER.OFPFlowMod(
        _PROTOCOL,
        cookie=cookie,
        cookie_mask=mask,
        table_id=OFP.OFPTT_ALL,
        command=OFP.OFPFC_DELETE,
        out_port=OFP.OFPP_ANY,
        out_group=OFP.OFPG_ANY,
        match=PARSER.OFPMatch(),
    )


def is_question(message: Any) -> bool:
    """Whether it changes nothing and sends nothing."""
    return isinstance(message, PARSER.OFPMultipartRequest)


def flows_request(cookie: int, mask: int) -> Any:
    """Asks for every rule whose cookie agrees under the mask."""
    return PARSER.OFPFlowStatsRequest(
        _PROTOCOL,
        0,
        OFP.OFPTT_ALL,
        OFP.OFPP_ANY,
        OFP.OFPG_ANY,
        cookie,
        mask,
        PARSER.OFPMatch(),
    )


def punt(
    eth_type: int, cookie: int, seconds: int, priority: int = 0xFFFF, **match: int | str
) -> Any:
    """A rule that sends frames of a type to the controller, whole, for some seconds."""
    send = PARSER.OFPActionOutput(OFP.OFPP_CONTROLLER, OFP.OFPCML_NO_BUFFER)
    return PARSER.OFPFlowMod(
        _PROTOCOL,
        cookie=cookie,
        command=OFP.OFPFC_ADD,
        priority=priority,
        hard_timeout=seconds,
        flags=OFP.OFPFF_SEND_FLOW_REM,
        match=PARSER.OFPMatch(eth_type=eth_type, **match),
        instructions=[PARSER.OFPInstructionActions(OFP.OFPIT_APPLY_ACTIONS, [send])],
    )


def packet_out(port: int, data: bytes) -> Any:
    """Has a switch send a frame out of a port."""
    return PARSER.OFPPacketOut(
        _PROTOCOL,
        buffer_id=OFP.OFP_NO_BUFFER,
        in_port=OFP.OFPP_CONTROLLER,
        actions=[PARSER.OFPActionOutput(port)],
        data=data,
    )


def more_follows(message: Any) -> bool:
    """Whether this is one part of a longer answer."""
    return isinstance(message, ReplyPart | PARSER.OFPMultipartReply) and bool(
        message.flags & OFP.OFPMPF_REPLY_MORE
    )


def error_text(message: Any) -> str:
    """An OFPT_ERROR in the specification's own words, or another's by numbers."""
    if message.type == OFP.OFPET_EXPERIMENTER and message.experimenter is not None:
        return f"OFPET_EXPERIMENTER {message.experimenter:#x} type {message.exp_type}"
    kind = OFP.ofp_error_type_to_str(message.type).partition("(")[0]
    code = OFP.ofp_error_code_to_str(message.type, message.code).partition("(")[0]
    named = (f"type {message.type}" if kind == _UNNAMED else kind,
             f"code {message.code}" if code == _UNNAMED else code)  # fmt: skip
    return " ".join(named)


def _match(rule: FlowRule) -> Any:
    fields = match_of(rule)
    for name in fields.keys() & ENDS:
        fields[name] = _ends(fields[name])
    for name in fields.keys() & PORTS:
        # OpenFlow 1.3 has no mask for ports; Open vSwitch takes one, others need not.
        value, mask = fields[name]
        fields[name] = value if mask == PORT_BITS else (value, mask)
    return PARSER.OFPMatch(**fields)


def _ends(address: str) -> Any:
    """An address, or a prefix as value and mask."""
    if "/" not in address:
        return address
    prefix = ip_network(address)
    return str(prefix.network_address), str(prefix.netmask)


def _prefix(value: Any) -> str:
    """An address or a prefix as it was matched. Raises ValueError, also for a mask with holes."""
    if not isinstance(value, tuple):
        return str(ip_address(value))
    address, mask = map(ip_address, value)
    prefix = ip_network((str(address), int(mask).bit_count()))
    if prefix.netmask != mask:
        raise ValueError(f"the mask {mask} has holes")
    return str(prefix)


def _fields(match: Any) -> dict[str, Any]:
    """What a match looks at: see :mod:`network_provisioner.controllers.match`. Raises
    ValueError."""
    fields = dict(match.items())
    for name in fields.keys() & ENDS:
        fields[name] = _prefix(fields[name])
    for name in fields.keys() & PORTS:
        value = fields[name]  # switches leave out a mask that has all bits
        fields[name] = (value, PORT_BITS) if isinstance(value, int) else value
    return fields


@lru_cache(maxsize=10_000)
def read_match(contents: bytes) -> dict[str, Any] | None:
    """What a rule looks at, None where that cannot be read."""
    try:
        return _fields(PARSER.OFPMatch.parser(contents, 0))
    except Exception:  # the library's decoders raise whatever a wrong length leads them to
        return None


def comes_in(entry: FlowEntry) -> tuple[int, int]:
    """The port and the Ethernet type that one entry of a flow statistics reply matches, 0 for
    any."""
    match = read_match(entry.contents) or {}
    return match.get("in_port", 0), match.get("eth_type", 0)


def read_rule(dpid: int, entry: FlowEntry, now: float) -> SeenRule | None:
    """One entry of a flow statistics reply; None for one that is not shaped like ours."""
    try:
        contents = _contents(entry.contents)
    except Exception as error:
        # The library's decoders raise whatever a wrong length or number leads them to.
        name = type(error).__name__
        LOG.warning("a rule of switch %s cannot be read: %s", format_dpid(dpid), name)
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
    begin = -(-match.length // 8) * 8
    _check_lengths(data, begin, _INSTRUCTION, _ACTION)
    places = _items(data, begin, len(data), _INSTRUCTION)
    steps = {
        type(step): step for step in (PARSER.OFPInstruction.parser(data, at) for at, _ in places)
    }
    matched = rule_fields(_fields(match))
    done = steps.pop(PARSER.OFPInstructionActions, None)
    metered = steps.pop(PARSER.OFPInstructionMeter, None)
    does = _read_actions(done.actions if done is not None else [])
    if matched is None or does is None or steps:
        return None
    return {**matched, **does, "meter": metered.meter_id if metered is not None else 0}


def _read_actions(actions: list[Any]) -> dict[str, Any] | None:
    result: dict[str, Any] = {"out_port": 0}
    for action in actions:
        if isinstance(action, PARSER.OFPActionSetField) and action.key == "ip_dscp":
            result["dscp"] = action.value
        elif isinstance(action, PARSER.OFPActionSetField) and action.key == "eth_dst":
            result["eth_dst"] = str(action.value)
        elif isinstance(action, PARSER.OFPActionSetQueue):
            result["queue"] = action.queue_id
        elif isinstance(action, PARSER.OFPActionGroup):
            result["group"] = action.group_id
        elif isinstance(action, PARSER.OFPActionOutput) and not result["out_port"]:
            result["out_port"] = action.port
        else:
            return None
    return result


def read_group(dpid: int, entry: Any) -> SelectGroup | None:
    """One entry of a group description reply; None for one that is not ours."""
    if not is_our_number(entry.group_id):
        return None
    buckets = []
    for bucket in entry.buckets:
        is_select = entry.type == OFP.OFPGT_SELECT  # any other would send copies, or all one way
        does = (is_select and _read_actions(bucket.actions)) or {"out_port": 0}
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
    if not (entry.flags & OFP.OFPMF_KBPS and isinstance(band, PARSER.OFPMeterBandDrop)):
        band = None  # so much of something else
    return Meter(dpid, entry.meter_id, getattr(band, "rate", 0), getattr(band, "burst_size", 0))
