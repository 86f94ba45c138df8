"""OpenFlow 1.3 messages, by os-ken's protocol library.

Only ``os_ken.ofproto`` is used: the encoders and decoders. os-ken's application framework keeps
process-wide state and threads that cannot be ended, so it has no place inside a broker.
"""

from __future__ import annotations

import math
from typing import Any

from os_ken.ofproto import ofproto_parser, ofproto_protocol

from network_provisioner.controllers.rules import FlowRule, SeenRule, hard_timeout

VERSION = 0x04
HEADER_BYTES = 8
HELLO = 0

# os-ken's messages ask a "datapath" only for the protocol they are written in.
_PROTOCOL: Any = ofproto_protocol.ProtocolDesc(VERSION)
OFP: Any = _PROTOCOL.ofproto
PARSER: Any = _PROTOCOL.ofproto_parser

# What a flow rule of ours may match; anything else under our cookie was not made by us.
_MATCH_FIELDS = {"eth_type", "ipv4_src", "ipv4_dst"}
_ETH_TYPE_IPV4 = 0x0800


def header(data: bytes) -> tuple[int, int, int, int]:
    """Version, type, length and transaction id of a message."""
    version, kind, length, xid = ofproto_parser.header(data)
    return version, kind, length, xid


def decode(data: bytes) -> Any:
    """A message object, or None for one that os-ken cannot read."""
    version, kind, length, xid = header(data)
    return ofproto_parser.msg(_PROTOCOL, version, kind, length, xid, data)


def encode(message: Any, xid: int) -> bytes:
    """The bytes of a message under a transaction id."""
    message.xid = xid
    message.serialize()
    return bytes(message.buf)


def hello() -> Any:
    """The first message of both sides."""
    return PARSER.OFPHello(_PROTOCOL)


def features_request() -> Any:
    """Asks a switch who it is."""
    return PARSER.OFPFeaturesRequest(_PROTOCOL)


def echo_reply(request: Any) -> Any:
    """The answer to a switch that asks whether we are there."""
    return PARSER.OFPEchoReply(_PROTOCOL, data=request.data)


def barrier() -> Any:
    """Asks a switch to answer when it has done everything before."""
    return PARSER.OFPBarrierRequest(_PROTOCOL)


def add_rule(rule: FlowRule, now: float) -> Any:
    """Adds a rule, or overwrites the one with the same match; byte counters go on."""
    actions = []
    if rule.dscp is not None:
        actions.append(PARSER.OFPActionSetField(ip_dscp=rule.dscp))
    if rule.eth_dst:
        actions.append(PARSER.OFPActionSetField(eth_dst=rule.eth_dst))
    actions.append(PARSER.OFPActionOutput(rule.out_port))
    leased = math.isfinite(rule.expires_at)
    return PARSER.OFPFlowMod(
        _PROTOCOL,
        cookie=rule.cookie,
        command=OFP.OFPFC_ADD,
        priority=rule.priority,
        hard_timeout=hard_timeout(rule.expires_at, now),
        flags=OFP.OFPFF_SEND_FLOW_REM if leased else 0,
        match=_match(rule),
        instructions=[PARSER.OFPInstructionActions(OFP.OFPIT_APPLY_ACTIONS, actions)],
    )


def delete_rule(rule: FlowRule) -> Any:
    """Deletes exactly this rule."""
    return PARSER.OFPFlowMod(
        _PROTOCOL,
        cookie=rule.cookie,
        cookie_mask=2**64 - 1,
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


def ports_request() -> Any:
    """Asks for the counters of every port."""
    return PARSER.OFPPortStatsRequest(_PROTOCOL, 0, OFP.OFPP_ANY)


def read_rule(dpid: int, entry: Any, now: float) -> SeenRule | None:
    """One entry of a flow statistics reply; None for one that is not shaped like ours."""
    fields = dict(entry.match.items())
    actions = [action for step in entry.instructions for action in getattr(step, "actions", ())]
    if fields.keys() != _MATCH_FIELDS or fields["eth_type"] != _ETH_TYPE_IPV4 or entry.table_id:
        return None
    sets = {a.key: a.value for a in actions if isinstance(a, PARSER.OFPActionSetField)}
    ports = [a.port for a in actions if isinstance(a, PARSER.OFPActionOutput)]
    if len(ports) != 1 or not sets.keys() <= {"ip_dscp", "eth_dst"}:
        return None
    age_s = entry.duration_sec + entry.duration_nsec / 1e9
    rule = FlowRule(
        dpid=dpid,
        priority=entry.priority,
        src=str(fields["ipv4_src"]),
        dst=str(fields["ipv4_dst"]),
        out_port=ports[0],
        cookie=entry.cookie,
        dscp=sets.get("ip_dscp"),
        eth_dst=str(sets.get("eth_dst", "")),
        expires_at=now - age_s + entry.hard_timeout if entry.hard_timeout else math.inf,
    )
    return SeenRule(rule, entry.byte_count)


def more_follows(message: Any) -> bool:
    """Whether this is one part of a longer answer."""
    return isinstance(message, PARSER.OFPMultipartReply) and bool(
        message.flags & OFP.OFPMPF_REPLY_MORE
    )


def error_text(message: Any) -> str:
    """An OFPT_ERROR in the specification's own words."""
    kind = OFP.ofp_error_type_to_str(message.type)
    code = OFP.ofp_error_code_to_str(message.type, message.code)
    return f"{kind.partition('(')[0]} {code.partition('(')[0]}"


def _match(rule: FlowRule) -> Any:
    return PARSER.OFPMatch(eth_type=_ETH_TYPE_IPV4, ipv4_src=rule.src, ipv4_dst=rule.dst)
