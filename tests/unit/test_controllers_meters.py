"""Rates kept by meters, and by queues of the switch."""

from __future__ import annotations

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
from network_provisioner.controllers.rules import Meter

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
