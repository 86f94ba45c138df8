"""Transfers between the same two hosts, told apart by their ports, and split over paths."""

from __future__ import annotations

from dataclasses import replace

import pytest
from controller_worlds import MBPS, Pipeline, topologies, two_switches
from hypothesis import given, settings
from hypothesis import strategies as st

from network_provisioner.base.controller import Circuit, Part
from network_provisioner.base.errors import InputError
from network_provisioner.base.flows import Flow, Ports
from network_provisioner.controllers.groups import matches, overlap, port_masks, reverse
from network_provisioner.controllers.plan import Planner, SwitchPlan, make_plan
from network_provisioner.controllers.rules import (
    FLOW_ACK_PRIORITY,
    FLOW_PRIORITY,
    SelectGroup,
    diff,
    diff_entries,
)
from network_provisioner.controllers.switched import ByteLedger
from network_provisioner.topology.graph import Topology

NOW = 1000.0
FEW = settings(max_examples=30, deadline=None)
L2 = ("mu", "s1", "s2", "tacc")
L3 = ("mu", "s1", "r1", "s2", "tacc")
WEB = (Flow("tcp", None, (5001, 5001)),)
GRID = (Flow("tcp", None, (50000, 51000)),)


def circuit(name: str, path: tuple[str, ...] = L2, flows: tuple[Flow, ...] = ()) -> Circuit:
    return Circuit(name, path, 5 * MBPS, 10 * MBPS, NOW + 60, flows=flows)


def split(name: str = "a", flows: tuple[Flow, ...] = ()) -> Circuit:
    parts = (Part(L2, 30 * MBPS, 60 * MBPS), Part(L3, 10 * MBPS, 20 * MBPS))
    return Circuit(name, L2, 40 * MBPS, 80 * MBPS, NOW + 60, flows=flows, parts=parts)


def network(plan: SwitchPlan, topology: Topology) -> Pipeline:
    return Pipeline(topology, [*plan.routes, *plan.rules], plan.entries)


ports = st.tuples(st.integers(1, 65535), st.integers(1, 65535)).map(lambda p: (min(p), max(p)))


@given(ports)
def test_blocks_cover_a_range_exactly(ports: Ports) -> None:
    masks = port_masks(ports)
    assert len(masks) <= 30
    sizes = [0x10000 - mask for _, mask in masks]
    assert sum(sizes) == ports[1] - ports[0] + 1
    at = ports[0]
    for (value, mask), size in zip(masks, sizes, strict=True):
        assert value == at and value & mask == value
        at += size


flow_strategy = st.builds(
    Flow, st.sampled_from(["tcp", "udp"]), st.none() | ports, st.none() | ports
)


@given(flow_strategy, flow_strategy)
def test_overlap_is_what_reversing_keeps(first: Flow, second: Flow) -> None:
    assert overlap(first, second) == overlap(second, first)
    assert overlap(first, second) == overlap(reverse(first), reverse(second))
    assert overlap(first, first) and reverse(reverse(first)) == first


@FEW
@given(st.data())
def test_every_transfer_takes_its_own_path_both_ways(data: st.DataObject) -> None:
    topology = data.draw(topologies())
    src, dst = data.draw(st.permutations(topology.sites))[:2]
    paths = topology.candidate_paths(src, dst)
    circuits = [
        circuit(f"c{i}", data.draw(st.sampled_from(paths)).nodes, (Flow("tcp", None, given),))
        for i, given in enumerate([(100, 163), (200, 200), (300, 1000)])
    ]
    circuits = [replace(c, min_bps=MBPS) for c in circuits]
    plan = make_plan(topology, circuits, NOW)
    world = network(plan, topology)
    for c, port in zip(circuits, (163, 200, 555), strict=True):
        client = data.draw(st.integers(1, 65535))
        there = world.send(src, dst, protocol="tcp", ports=(client, port))
        back = world.send(dst, src, protocol="tcp", ports=(port, client))
        assert there.nodes == c.path and back.nodes == c.path[::-1]
    routes = Pipeline(topology, make_plan(topology, [], NOW).routes)
    for protocol, port in (("tcp", 99), ("tcp", 1001), ("udp", 200), ("icmp", 0)):
        other = world.send(src, dst, protocol=protocol, ports=(5, port))
        assert other.nodes == routes.send(src, dst).nodes


def test_each_transfer_has_a_mark_a_class_and_a_rate_of_its_own() -> None:
    plan = make_plan(two_switches(), [circuit("web", L2, WEB), circuit("grid", L2, GRID)], NOW)
    data = [group for group in plan.groups if group.data]
    assert len({group.branches[0].mark for group in data}) == 2
    shape = next(s for s in plan.shapes if s.device == "s1-a")
    assert [c.rate_bps for c in shape.classes] == [5 * MBPS] * 2
    grid = next(group for group in data if group.data == ("grid",))
    assert len(plan.rules_of(grid)) == 2 * len(matches(GRID[0])) == 18


def test_acknowledgements_give_way_to_data_that_looks_like_them() -> None:
    back = Circuit("back", L3[::-1], MBPS, MBPS, NOW + 60, flows=(Flow("tcp", (5000, 5010), None),))
    plan = make_plan(two_switches(), [circuit("web", L2, WEB), back], NOW)
    world = network(plan, two_switches())
    # From port 5001: acknowledgements of `web`, and data of `back`.
    assert world.send("tacc", "mu", protocol="tcp", ports=(5001, 9)).nodes == L3[::-1]
    assert {r.priority for r in plan.rules} == {FLOW_PRIORITY, FLOW_ACK_PRIORITY}


@pytest.mark.parametrize(
    ("flows", "message"),
    [
        ((Flow("tcp", None, (5000, 5002)),), "both name packets of tcp destination port"),
        ((Flow("tcp", (7, 7), None),), "both name packets of tcp"),
        (
            (Flow("tcp", (1, 40000), (1, 40000)),),
            r"need \d+ rules on each switch, expected at most 128",
        ),
    ],
)
def test_what_switches_cannot_tell_apart_is_refused(flows: tuple[Flow, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make_plan(two_switches(), [circuit("web", L2, WEB), circuit("other", L3, flows)], NOW)


def test_a_split_transfer_is_dealt_out_by_its_rates() -> None:
    topology = two_switches()
    plan = make_plan(topology, [split()], NOW)
    (select,) = plan.entries
    assert isinstance(select, SelectGroup)
    assert [(b.weight, b.out_port) for b in select.buckets] == [(75, 10), (25, 11)]
    world = network(plan, topology)
    for deal, path in ((0, L2), (1, L3)):
        arrival = world.send("mu", "tacc", deal=deal)
        assert arrival.nodes == path
        assert arrival.eth_dst == topology.site("tacc").mac
        assert arrival.marks[1] == select.buckets[deal].mark and arrival.marks[-1] == 0
        assert world.send("tacc", "mu", deal=deal).nodes == L2[::-1]
    rates = {s.device: [c.rate_bps for c in s.classes] for s in plan.shapes}
    assert rates["s1-a"] == [30 * MBPS] and rates["s1-b"] == [10 * MBPS]


def test_split_transfers_beside_others_between_the_same_hosts() -> None:
    topology = two_switches()
    plan = make_plan(topology, [split("all"), split("web", WEB), circuit("grid", L2, GRID)], NOW)
    assert len(plan.entries) == 2
    world = network(plan, topology)
    for deal, path in ((0, L2), (1, L3)):
        assert world.send("mu", "tacc", protocol="tcp", ports=(1, 5001), deal=deal).nodes == path
        assert world.send("mu", "tacc", protocol="tcp", ports=(1, 50001), deal=deal).nodes == L2
        assert world.send("mu", "tacc", deal=deal).nodes == path


def test_no_packet_is_lost_when_a_transfer_is_split_and_joined() -> None:
    topology = two_switches()
    planner = Planner(topology)
    sets = [[circuit("a", L2)], [split()], [circuit("a", L3)], [split(), circuit("b", L3, WEB)], []]
    plan = planner.plan([], NOW)
    world = network(plan, topology)
    for circuits in sets:
        plan = planner.plan(circuits, NOW)
        wanted = [*plan.routes, *plan.rules]
        changes = diff(world.rules.values(), wanted, NOW)
        changes |= diff_entries(world.entries.values(), plan.entries)
        for step in changes.stages():
            world.change(step)
            for deal in (0, 1):
                for port in (80, 5001):
                    sent = world.send("mu", "tacc", protocol="tcp", ports=(1, port), deal=deal)
                    assert sent.nodes[-1] == "tacc"
                    world.send("tacc", "mu", protocol="tcp", ports=(port, 1), deal=deal)
        assert not diff(world.rules.values(), wanted, NOW)
        assert not diff_entries(world.entries.values(), plan.entries)


def test_a_broker_that_starts_anew_keeps_the_marks_that_are_on_the_switches() -> None:
    planner = Planner(two_switches())
    several = [circuit(f"c{i}", L2, (Flow("tcp", None, (5000 + i, 5000 + i)),)) for i in range(9)]
    for count in (9, 3, 6):  # marks depend on what was there before
        before = planner.plan([*several[:count], split()], NOW)
    again = Planner(two_switches())
    again.plan([circuit("other", L2, WEB)], NOW)
    again.recall(before.rules, before.entries)
    after = again.plan([*several[:count], split()], NOW)
    assert set(after.rules) == set(before.rules) and after.entries == before.entries
    assert after.shapes == before.shapes


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"path": L3}, "a path that is not its first part's"),
        ({"parts": (Part(L2, 1, 2), Part(L2, 1, 2))}, "two parts on one path"),
        ({"parts": (Part(L2, 1, 2), Part(("local", *L3[1:]), 1, 2))}, "parts that begin with"),
        ({"parts": (Part(L2, 2, 1),)}, "a part has max_bps 1"),
    ],
)
def test_parts_that_make_no_sense_are_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make_plan(two_switches(), [replace(split(), **change)], NOW)


def test_a_counter_that_begins_anew_takes_no_bytes_back() -> None:
    """As where a switch has restarted."""
    ledger = ByteLedger()
    for counter, shares in ((100, {"a": 1.0}), (30, {"a": 1.0}), (70, {"a": 0.25, "b": 0.75})):
        ledger.observe("rule", counter, shares)
    assert (ledger.bytes_of("a"), ledger.bytes_of("b")) == (140, 30)
