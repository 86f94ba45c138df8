"""Rules of switches, and rates kept by meters and queues."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from controller_worlds import MBPS, circuit_sets, topologies, two_switches
from hypothesis import given, settings
from hypothesis import strategies as st

from network_provisioner.base.controller import Circuit
from network_provisioner.base.errors import InputError
from network_provisioner.controllers.groups import Grouper, by_hop
from network_provisioner.controllers.plan import Planner, caps, make_plan
from network_provisioner.controllers.routes import hop_key
from network_provisioner.controllers.rules import (
    MAX_HARD_TIMEOUT_S,
    Changes,
    FlowRule,
    Meter,
    SelectGroup,
    diff,
    hard_timeout,
    is_our_number,
    our_numbers,
)

FAR = 1_700_000_000.0
RULE = FlowRule(1, 200, "10.10.0.1", "10.10.0.2", 10, cookie=7, dscp=3, expires_at=FAR + 60)


@given(st.floats(-1e9, 1e9))
def test_a_rule_ends_with_its_lease_or_within_a_second_after(left_s: float) -> None:
    timeout = hard_timeout(FAR + left_s, FAR)
    assert 1 <= timeout <= MAX_HARD_TIMEOUT_S
    if 1 <= left_s <= MAX_HARD_TIMEOUT_S:
        assert 0 <= timeout - left_s <= 1.001


def test_no_lease_is_no_timeout() -> None:
    assert hard_timeout(math.inf, FAR) == 0


def test_the_same_rule_is_left_alone() -> None:
    assert not diff([RULE], [RULE], FAR)
    seen = replace(RULE, expires_at=FAR + 60.9)
    assert not diff([seen], [RULE], FAR)


def test_another_lease_action_or_content_is_sent_anew() -> None:
    for seen in (
        replace(RULE, expires_at=FAR + 30),
        replace(RULE, expires_at=math.inf),
        replace(RULE, out_port=11),
        replace(RULE, dscp=None),
        replace(RULE, eth_dst="02:00:00:00:00:01"),
        replace(RULE, cookie=8),
    ):
        assert diff([seen], [RULE], FAR).add == (RULE,)
        assert diff([seen], [RULE], FAR).delete == ()


def test_a_lease_longer_than_openflow_can_say_is_renewed_on_the_way() -> None:
    long = replace(RULE, expires_at=FAR + 10 * MAX_HARD_TIMEOUT_S)
    assert not diff([replace(RULE, expires_at=FAR + MAX_HARD_TIMEOUT_S)], [long], FAR)
    assert diff([replace(RULE, expires_at=FAR + 100)], [long], FAR).add == (long,)


def test_what_is_not_wanted_is_deleted_last() -> None:
    other = replace(RULE, dst="10.10.0.3")
    inner = replace(RULE, dpid=2, hop=1)
    changes = diff([other], [RULE, inner], FAR)
    assert [(s.add, s.delete) for s in changes.stages()] == [
        ((inner,), ()),
        ((RULE,), ()),
        ((), (other,)),
    ]


def test_what_rules_refer_to_comes_before_them_and_goes_after_them() -> None:
    group = SelectGroup(1, 5, ())
    changes = Changes((RULE,), (replace(RULE, group=4),), (group,), (), (replace(group, number=4),))
    told = [what for wave in changes.waves() for what, _ in wave]
    assert told == ["add_entry", "add", "delete", "delete_entry"]


def test_no_two_groups_have_one_number() -> None:
    numbers = our_numbers(map(str, range(2000)))  # of 65,536: some hashes are the same
    assert len(set(numbers.values())) == 2000 and all(map(is_our_number, numbers.values()))


NOW = 1000.0
FEW = settings(max_examples=30, deadline=None)
L3 = ("mu", "s1", "r1", "s2", "tacc")
OURS = Circuit("a", L3, 14 * MBPS, 14 * MBPS, NOW + 60)


@FEW
@given(st.data())
def test_a_circuit_is_held_to_its_own_ceiling_alone(data: st.DataObject) -> None:
    topology = data.draw(topologies())
    groups = Grouper(topology).group(data.draw(circuit_sets(topology)), NOW)
    rates = caps(topology, groups)
    for group in groups:
        fits = sum(topology.path(branch.path).capacity_bps for branch in group.branches)
        held = group.data and group.max_bps < fits
        assert rates.get(group.key) == (max(group.max_bps, 1000.0) if held else None)
    for hop, there in by_hop(groups).items():
        capacity = topology.link(*hop).capacity_bps
        sure = sum(branch.min_bps for _, branch in there)
        beside = rates.get(hop_key(hop), capacity)
        assert beside >= 0.01 * capacity and beside + sure <= 1.01 * capacity * (1 + 1e-9)


def test_without_a_ceiling_no_packet_of_a_circuit_is_dropped() -> None:
    circuits = [replace(OURS, id=str(n), min_bps=MBPS, max_bps=20 * MBPS) for n in range(3)]
    plan = make_plan(two_switches(), circuits, NOW, keep="meter")
    assert {rule.meter for rule in plan.rules} == {0}
    # What is idle belongs to best effort, too: it is held to what minima leave.
    router = next(r for r in plan.routes if (r.dpid, r.out_port, r.src) == (1, 11, "10.10.0.4"))
    meters = {entry.number: entry for entry in plan.entries if isinstance(entry, Meter)}
    assert meters[router.meter].rate_kbps == 17_000


def test_a_circuit_and_what_it_leaves_are_metered_where_they_enter() -> None:
    plan = make_plan(two_switches(), [OURS], NOW, keep="meter")
    meters = {entry.number: entry for entry in plan.entries if isinstance(entry, Meter)}
    first = next(rule for rule in plan.rules if rule.hop == 0 and rule.src == "10.10.0.1")
    assert meters[first.meter].rate_kbps == 14_000
    assert {r.meter for r in plan.rules if r.hop > 0} == {0}
    # Best effort leaves s1 for the router through what the circuit leaves free.
    beside = next(r for r in plan.routes if (r.dpid, r.out_port, r.src) == (1, 11, "10.10.0.4"))
    assert 5_000 < meters[beside.meter].rate_kbps <= 6_000
    assert plan.shapes == () and all(r.dscp is None for r in plan.rules)
    assert all(m.burst_kbit == m.rate_kbps // 10 for m in meters.values())


def test_meters_are_changed_in_place_when_rates_change() -> None:
    planner = Planner(two_switches(), "meter")
    before = planner.plan([OURS], NOW)
    after = planner.plan([replace(OURS, min_bps=5 * MBPS, max_bps=5 * MBPS)], NOW)
    assert {a.key for a in before.entries} == {a.key for a in after.entries}
    assert before.rules == after.rules and before.routes == after.routes
    assert planner.plan([], NOW).entries == ()


def test_queues_are_numbered_like_marks_and_nothing_is_marked() -> None:
    plan = make_plan(two_switches(), [OURS], NOW, keep="queue")
    (there,) = [g for g in plan.groups if g.data]
    rules = plan.rules_of(there)
    assert [(r.queue, r.dscp) for r in rules] == [(there.branches[0].mark, None), (0, None)]
    shape = next(s for s in plan.shapes if s.device == "s1-b")
    assert [c.mark for c in shape.classes] == [there.branches[0].mark]
    assert {r.dscp for r in plan.routes} == {None}


def test_other_ways_are_refused() -> None:
    with pytest.raises(InputError, match="bandwidth is 'magic', expected one of dscp-htb, queue"):
        make_plan(two_switches(), [], NOW, keep="magic")
