"""Rules, groups and meters as OpenFlow messages and back."""

from __future__ import annotations

import struct

import pytest
from controller_worlds import RULES_AT as NOW
from controller_worlds import flow_rules
from hypothesis import given
from hypothesis import strategies as st

from network_provisioner.controllers.openflow import wire
from network_provisioner.controllers.openflow.wire import FlowReply
from network_provisioner.controllers.rules import (
    TRANSIT_OWNER,
    Bucket,
    FlowRule,
    Meter,
    SelectGroup,
    same_rule,
    stamp_rule,
)


def reply(rule: FlowRule, data: bytes, n_bytes: int = 77) -> bytes:
    """The statistics of a rule that was added by ``data`` (OpenFlow 1.3 §A.3.4.1, §A.3.5.2)."""
    hard, priority = struct.unpack_from("!HH", data, 28)
    contents = data[48:]
    entry = struct.pack(
        "!HBxIIHHHH4xQQQ", 48 + len(contents), 0, 5, 500_000_000, priority, 0, hard, 1,
        rule.cookie, 3, n_bytes,
    )  # fmt: skip
    body = struct.pack("!HH4x", 1, 0) + entry + contents
    return struct.pack("!BBHI", 4, 19, 8 + len(body), 1) + body


@given(flow_rules())
def test_what_is_read_is_what_was_sent(rule: FlowRule) -> None:
    data = wire.encode(wire.add_rule(rule, NOW), 1)
    answer = wire.decode(reply(rule, data))
    assert isinstance(answer, FlowReply)
    (entry,) = answer.body
    state = wire.read_rule(1, entry, NOW + 5.5)
    assert state is not None and state.bytes == 77
    assert state.rule.key == rule.key and same_rule(state.rule, rule, NOW)


def test_a_stamp_is_read_back() -> None:
    rule = stamp_rule(1, 0x12345678_9ABC)
    (entry,) = wire.decode(reply(rule, wire.encode(wire.add_rule(rule, NOW), 1))).body
    seen = wire.read_rule(1, entry, NOW)
    assert seen is not None and same_rule(seen.rule, rule, NOW)


@given(st.binary(min_size=16, max_size=200))
def test_flow_replies_that_are_none_are_refused(garbage: bytes) -> None:
    """They are read to their end, or refused; nothing else comes of them."""
    data = struct.pack("!BBHI", 4, 19, 16 + len(garbage), 1) + b"\0\1\0\0\0\0\0\0" + garbage
    try:
        entries = wire.decode(data).body
    except (ValueError, struct.error):
        return
    for entry in entries:
        wire.read_rule(1, entry, NOW)


def as_described(data: bytes) -> bytes:
    """A group or meter modification as the entry of a description."""
    _, middle, number = struct.unpack_from("!HHI", data, 8)
    return struct.pack("!HHI", len(data) - 8, middle, number) + data[16:]


def test_groups_and_meters_are_read_back() -> None:
    buckets = (Bucket(3, 5, 10), Bucket(1, 6, 11, "02:00:00:00:0b:01", 6))
    group = SelectGroup(1, TRANSIT_OWNER << 16 | 1, buckets)
    meter = Meter(1, TRANSIT_OWNER << 16 | 2, 20_000, 2_000)
    for entry, kind, read in (
        (group, 7, wire.read_group),
        (meter, 10, wire.read_meter),
    ):
        for there in (False, True):
            data = wire.encode(wire.add_entry(entry, there=there), 1)
            body = struct.pack("!HH4x", kind, 0) + as_described(data)
            message = wire.decode(struct.pack("!BBHI", 4, 19, 8 + len(body), 1) + body)
            assert read(1, message.body[0]) == entry
    strange = SelectGroup(1, 5, buckets)
    body = as_described(wire.encode(wire.add_entry(strange, there=False), 1))
    data = struct.pack("!HH4x", 7, 0) + body
    message = wire.decode(struct.pack("!BBHI", 4, 19, 8 + len(data), 1) + data)
    assert wire.read_group(1, message.body[0]) is None  # somebody else's


@pytest.mark.parametrize(
    ("number", "middle", "rest"),
    [
        (7, 0, b""),  # a group of type ALL
        (10, 2 | 4, struct.pack("!HHII4x", 1, 16, 20_000, 2_000)),  # packets, not kb
        (10, 1 | 4, struct.pack("!HHIIB3x", 2, 16, 20_000, 2_000, 1)),  # DSCP, not drops
    ],
)
def test_a_group_or_meter_of_another_kind_is_not_the_one_that_was_sent(
    number: int, middle: int, rest: bytes
) -> None:
    ours = TRANSIT_OWNER << 16 | 1
    group = SelectGroup(1, ours, (Bucket(3, 5, 10),))
    rest = rest or as_described(wire.encode(wire.add_entry(group, there=False), 1))[8:]
    middle_part = struct.pack("!BxI" if number == 7 else "!HI", middle, ours)
    body = struct.pack("!HH4xH", number, 0, 8 + len(rest)) + middle_part + rest
    (entry,) = wire.decode(struct.pack("!BBHI", 4, 19, 8 + len(body), 1) + body).body
    if number == 7:
        assert wire.read_group(1, entry) != group
    else:
        assert wire.read_meter(1, entry) == Meter(1, ours, 0, 0)


def packet_in(*fields: bytes) -> bytes:
    body = b"".join(fields)
    match = struct.pack("!HH", 1, 4 + len(body)) + body + bytes(-(4 + len(body)) % 8)
    head = struct.pack("!IHBBQ", 0xFFFFFFFF, 5, 1, 0, 0)
    data = head + match + b"\0\0frame"
    return struct.pack("!BBHI", 4, 10, 8 + len(data), 7) + data


def test_a_frame_with_fields_of_a_vendor_has_its_port_all_the_same() -> None:
    port = struct.pack("!HBBI", 0x8000, 0, 4, 11)
    vendor = struct.pack("!HBBIB", 0xFFFF, 3 << 1, 5, 0x4FDA, 1)
    for fields in ((port,), (vendor, port), (port, vendor)):
        message = wire.decode(packet_in(*fields))
        assert (message.match["in_port"], bytes(message.data)) == (11, b"frame")
    assert wire.decode(packet_in(vendor)) is None


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (struct.pack("!HHI", 0xFFFF, 5, 0x2320), "OFPET_EXPERIMENTER 0x2320 type 5"),
        (struct.pack("!HH", 0xFFFF, 5), "OFPET_EXPERIMENTER code 5"),  # cut short
        (struct.pack("!HHI", 5, 99, 0), "OFPET_FLOW_MOD_FAILED code 99"),
        (struct.pack("!HH", 77, 3), "type 77 code 3"),
    ],
)
def test_a_refusal_in_words_of_others_is_one_and_told_by_its_numbers(
    body: bytes, words: str
) -> None:
    message = wire.decode(struct.pack("!BBHI", 4, 1, 8 + len(body), 1) + body)
    assert (wire.error_text(message), message.xid) == (words, 1)


NO_LENGTH = struct.pack("!HH4x", 0xFFFF, 0)
GROUP = struct.pack("!HH4xHBxI", 7, 0, 40, 1, TRANSIT_OWNER << 16 | 1)
BUCKET = struct.pack("!HHII4x", 32, 1, 0, 0)


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (0, struct.pack("!HH4x", 1, 0)),  # a second hello
        (14, bytes(64)),  # what only a controller sends
        (23, bytes(24)),
        (19, struct.pack("!HH4x", 6, 0) + bytes(40)),
        (19, GROUP + bytes(32)),
        (19, GROUP + BUCKET + NO_LENGTH + bytes(8)),
        (19, struct.pack("!HH4xHHI", 10, 0, 24, 1, 5) + NO_LENGTH + bytes(8)),
    ],
)
def test_nobody_is_kept_busy_by_what_says_that_it_has_no_length(kind: int, body: bytes) -> None:
    data = struct.pack("!BBHI", 4, kind, 8 + len(body), 1) + body
    try:
        assert wire.decode(data) is None
    except ValueError as error:
        assert "an item of 0 bytes" in str(error)


@pytest.mark.parametrize(
    "steps", [struct.pack("!HH4x", 4, 0), struct.pack("!HH4x", 4, 16) + NO_LENGTH]
)
def test_a_rule_with_steps_of_no_length_is_none_of_ours(steps: bytes) -> None:
    match = struct.pack("!HHIH", 1, 10, 0x80000A02, 0x0800).ljust(16, b"\0")
    assert wire.read_rule(1, wire.FlowEntry(0, 1, 0, 0.0, 5, 0, match + steps), NOW) is None
