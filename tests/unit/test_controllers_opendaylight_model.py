from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from controller_worlds import RULES_AT as NOW
from controller_worlds import flow_rules
from hypothesis import given, settings
from hypothesis import strategies as st

from network_provisioner.controllers.opendaylight import model
from network_provisioner.controllers.rules import (
    Bucket,
    FlowRule,
    SelectGroup,
    same_but_lease,
    stamp_rule,
)


def answered(rule: FlowRule, **more: Any) -> dict[str, Any]:
    """A rule as OpenDaylight prints it, right after it was laid."""
    flow = model.flow_of(rule, NOW)
    if not flow["instructions"]["instruction"]:
        del flow["instructions"]
    counted = {"duration": {"second": 0, "nanosecond": 0}, "byte-count": "17", "flags": ""}
    whole: dict[str, Any] = json.loads(json.dumps(flow | counted | more))
    return whole | {"cookie": str(whole["cookie"])}


@given(flow_rules())
def test_a_rule_comes_back_as_it_was(rule: FlowRule) -> None:
    seen = model.read_flow(rule.dpid, answered(rule), NOW)
    assert seen is not None and seen.rule == rule and seen.bytes == 17


# Few values, so that two rules often differ in little.
alike = st.builds(
    FlowRule,
    dpid=st.just(1),
    priority=st.sampled_from([1, 11]),
    src=st.sampled_from(["10.0.0.1", "10.0.0.11"]),
    dst=st.sampled_from(["10.0.0.1", "10.0.0.11"]),
    out_port=st.integers(1, 2),
    cookie=st.just(1),
    protocol=st.sampled_from(["ip", "tcp", "udp"]),
    src_port=st.sampled_from([None, (1, 0xFFFF), (1, 0xFFF1), (11, 0xFFFF)]),
    dst_port=st.sampled_from([None, (1, 0xFFFF), (1, 0xFFF1), (11, 0xFFFF)]),
    in_port=st.sampled_from([0, 1, 11]),
    mark=st.sampled_from([None, 0, 1, 11]),
)


@given(alike, alike)
def test_rules_share_an_id_only_where_they_overwrite_each_other(a: FlowRule, b: FlowRule) -> None:
    assert (model.flow_id(a) == model.flow_id(b)) == (a.key == b.key)


@given(flow_rules())
def test_an_id_needs_no_escapes_in_an_address(rule: FlowRule) -> None:
    assert set(model.flow_id(rule)) <= set("abcdefghijklmnopqrstuvwxyz0123456789.-_")


@given(flow_rules(), st.integers(0, 60), st.integers(0, 999_999_999))
def test_age_counts_against_the_lease(rule: FlowRule, seconds: int, nanoseconds: int) -> None:
    aged = answered(rule, duration={"second": seconds, "nanosecond": nanoseconds})
    seen = model.read_flow(rule.dpid, aged, NOW)
    assert seen is not None and same_but_lease(seen.rule, rule)
    assert seen.rule.expires_at == pytest.approx(rule.expires_at - seconds - nanoseconds / 1e9)


def test_a_stamp_comes_back() -> None:
    stamp = stamp_rule(7, 4711)
    seen = model.read_flow(7, answered(stamp), NOW)
    assert seen is not None and seen.rule == stamp


def actions(*listed: dict[str, Any]) -> dict[str, Any]:
    numbered = [{"order": i, **action} for i, action in enumerate(listed)]
    apply = {"order": 0, "apply-actions": {"action": numbered}}
    return {"instructions": {"instruction": [apply]}}


@pytest.mark.parametrize(
    "more",
    [
        {"table_id": 1},
        {"match": {}},
        {"match": {"ethernet-match": {"ethernet-type": {"type": 0x86DD}}}},
        {"match": {"vlan-match": {}, **answered(stamp_rule(1, 1))["match"]}},
        {"instructions": {"instruction": [{"order": 0, "go-to-table": {"table_id": 2}}]}},
        actions({"output-action": {"output-node-connector": "CONTROLLER"}}),
        actions(*({"output-action": {"output-node-connector": port}} for port in "12")),
        actions({"set-field": {"vlan-match": {}}}),
        actions({"push-vlan-action": {}}),
    ],
)
def test_what_we_would_not_make_is_not_ours(more: dict[str, Any]) -> None:
    rule = FlowRule(1, 200, "10.0.0.1", "10.0.0.2", 3, 4)
    assert model.read_flow(1, answered(rule) | more, NOW) is None


def test_ports_with_their_node_before_them_are_read() -> None:
    rule = FlowRule(1, 200, "10.0.0.1", "10.0.0.2", 3, 4, in_port=9)
    flow = (
        json.dumps(answered(rule)).replace('"3"', '"openflow:1:3"').replace('"9"', '"openflow:1:9"')
    )
    seen = model.read_flow(1, json.loads(flow), NOW)
    assert seen is not None and seen.rule == rule


json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=30)
@given(flow_rules(), st.data())
def test_garbage_is_not_ours_or_unreadable(rule: FlowRule, data: st.DataObject) -> None:
    flow = answered(rule)
    flow[data.draw(st.sampled_from(sorted(flow)))] = data.draw(json_values)
    with contextlib.suppress(*model.UNREADABLE):
        model.read_flow(1, flow, NOW)


def test_a_group_in_its_words() -> None:
    group = SelectGroup(1, 7, (Bucket(73, 4, 10), Bucket(27, 5, 11, "02:00:00:00:0b:01", 3)))
    mac = {"ethernet-destination": {"address": "02:00:00:00:0b:01"}}
    first = [
        {"order": 0, "set-field": {"ip-match": {"ip-dscp": 4}}},
        {"order": 1, "output-action": {"output-node-connector": "10", "max-length": 65535}},
    ]
    second = [
        {"order": 0, "set-field": {"ip-match": {"ip-dscp": 5}}},
        {"order": 1, "set-field": {"ethernet-match": mac}},
        {"order": 2, "set-queue-action": {"queue-id": 3}},
        {"order": 3, "output-action": {"output-node-connector": "11", "max-length": 65535}},
    ]
    buckets = [
        {"bucket-id": 0, "weight": 73, "action": first},
        {"bucket-id": 1, "weight": 27, "action": second},
    ]
    assert model.group_of(group) == {
        "group-id": 7, "group-type": "group-select", "buckets": {"bucket": buckets},
    }  # fmt: skip
