from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise, product

import pytest
from controller_worlds import MBPS, Pipeline, circuit_sets, site, topologies, two_switches
from hypothesis import given, settings
from hypothesis import strategies as st

from network_provisioner.base.controller import Circuit
from network_provisioner.base.errors import InputError
from network_provisioner.base.flows import Flow
from network_provisioner.controllers.dscp import MARKS
from network_provisioner.controllers.groups import by_hop
from network_provisioner.controllers.plan import Planner, make_plan
from network_provisioner.controllers.routes import shaped_hops
from network_provisioner.controllers.rules import ROUTE_OWNER, FlowRule, diff
from network_provisioner.controllers.shaping.shapes import DeviceShape
from network_provisioner.topology.graph import Link, Node, Topology

NOW = 1000.0
# Each example is a whole network with all its paths.
FEW = settings(max_examples=30, deadline=None)
L2 = ("mu", "s1", "s2", "tacc")
L3 = ("mu", "s1", "r1", "s2", "tacc")


def circuit(name: str = "a", path: tuple[str, ...] = L2, **more: float) -> Circuit:
    fields = {"min_bps": 50 * MBPS, "max_bps": 100 * MBPS, "lease_until": NOW + 60, **more}
    return Circuit(name, path, **fields)


def plan_rules(topology: Topology, circuits: Iterable[Circuit]) -> list[FlowRule]:
    plan = make_plan(topology, list(circuits), NOW)
    return [*plan.routes, *plan.rules]


def shape_of(shapes: Iterable[DeviceShape], device: str) -> DeviceShape:
    return next(shape for shape in shapes if shape.device == device)


@FEW
@given(st.data())
def test_every_packet_follows_its_circuit_or_the_default_route(data: st.DataObject) -> None:
    topology = data.draw(topologies())
    circuits = data.draw(circuit_sets(topology))
    network = Pipeline(topology, plan_rules(topology, circuits))
    data_paths = {(c.path[0], c.path[-1]): c.path for c in circuits}
    ack_paths = {(c.path[-1], c.path[0]): c.path[::-1] for c in circuits}
    for src in topology.sites:
        for dst in topology.sites:
            if src == dst:
                continue
            arrival = network.send(src, dst, dscp=data.draw(st.sampled_from([0, 1, 46])))
            wanted = data_paths.get((src, dst)) or ack_paths.get((src, dst))
            if wanted:
                assert arrival.nodes == wanted
            assert arrival.eth_dst == topology.site(dst).mac


@FEW
@given(st.data())
def test_a_host_cannot_mark_itself_into_a_class(data: st.DataObject) -> None:
    topology = data.draw(topologies())
    circuits = data.draw(circuit_sets(topology))
    plan = make_plan(topology, circuits, NOW)
    network = Pipeline(topology, plan_rules(topology, circuits))
    reserved = {(g.src, g.dst): g.branches[0].mark for g in plan.groups}
    shaped = shaped_hops(topology)
    for src in topology.sites:
        for dst in topology.sites:
            if src == dst:
                continue
            arrival = network.send(src, dst, dscp=data.draw(st.integers(0, 63)))
            hops = zip(arrival.nodes, arrival.nodes[1:], strict=False)
            for hop, mark in zip(hops, arrival.marks, strict=True):
                if hop in shaped:
                    assert mark == reserved.get((src, dst), 0)


@FEW
@given(st.data(), st.sampled_from(["dscp-htb", "queue", "meter"]))
def test_a_host_elsewhere_on_a_path_gets_nothing_of_it(data: st.DataObject, keep: str) -> None:
    topology = data.draw(topologies())
    plan = make_plan(topology, data.draw(circuit_sets(topology)), NOW, keep=keep)
    network = Pipeline(topology, [*plan.routes, *plan.rules], plan.entries)
    shaped, metered = shaped_hops(topology), keep == "meter"
    for group in plan.groups:
        marks = {group.branches[0].mark, 1, data.draw(st.integers(0, 63))}
        for before, switch in pairwise(group.path[:-1]):
            if topology.nodes[switch].kind != "switch":
                continue
            way_in = (topology.link(before, switch).ports or {})[switch]
            for port, dscp in product({*network.ports_of(switch), 99} - {way_in}, marks):
                for rule, mark in network.forge(switch, port, group.src, group.dst, dscp):
                    leaves = topology.nodes[network.leaves_to(rule)]
                    if leaves.kind == "router":
                        break  # that sends it where it should
                    if keep == "dscp-htb":
                        hop = (network.switch_of(rule), leaves.name)
                        assert mark == 0 or hop not in shaped
                    else:
                        assert rule.owner == ROUTE_OWNER and (metered or rule.queue == 0)


def test_parallel_links_of_a_site_and_a_router_are_ways_in_and_those_between_switches_are_not() -> (
    None
):
    base = two_switches()
    more = [
        replace(base.link("mu", "s1"), ports={"s1": 21}, name="mu-2"),
        replace(base.link("r1", "s2"), ports={"s2": 22}, name="r1-2"),
        replace(base.link("s1", "s2"), ports={"s1": 23, "s2": 23}, name="s1-s2.b"),
    ]
    topology = Topology(base.nodes.values(), [*base.whole_links, *more])
    entries = {}
    for path in (L2, L3):
        rules = make_plan(topology, [circuit(path=path, min_bps=MBPS)], NOW).rules
        entries[path] = {(r.dpid, r.in_port) for r in rules if r.src == "10.10.0.1"}
    assert entries[L2] == {(1, 1), (1, 21), (2, 10)}
    assert entries[L3] == {(1, 1), (1, 21), (2, 11), (2, 22)}


@FEW
@given(st.data())
def test_no_packet_is_lost_between_two_plans(data: st.DataObject) -> None:
    topology = data.draw(topologies())
    before = plan_rules(topology, data.draw(circuit_sets(topology)))
    after = plan_rules(topology, data.draw(circuit_sets(topology)))
    network = Pipeline(topology, before)
    for step in diff(before, after, NOW).stages():
        network.change(step)
        for src in topology.sites:
            for dst in topology.sites:
                if src != dst:
                    assert network.send(src, dst).nodes[-1] == dst
    assert diff(network.rules.values(), after, NOW).stages() == []


@FEW
@given(st.data())
def test_classes_never_promise_more_than_the_link(data: st.DataObject) -> None:
    topology = data.draw(topologies())
    plan = make_plan(topology, data.draw(circuit_sets(topology)), NOW)
    crossing = by_hop(plan.groups)
    for shape in plan.shapes:
        rates = [c.rate_bps for c in shape.classes]
        assert sum(rates) + shape.best_effort_bps <= shape.capacity_bps * (1 + 1e-9)
        assert shape.best_effort_bps > 0
        marks = [c.mark for c in shape.classes]
        assert len(set(marks)) == len(marks) and 0 not in marks
        for c in shape.classes:
            assert c.rate_bps <= c.ceil_bps <= shape.capacity_bps
    assert sum(len(s.classes) for s in plan.shapes) == sum(
        sum(branch.mark > 0 for _, branch in there)
        for hop, there in crossing.items()
        if hop in shaped_hops(topology)
    )


@FEW
@given(st.data())
def test_the_order_of_circuits_does_not_matter(data: st.DataObject) -> None:
    topology = data.draw(topologies())
    circuits = data.draw(circuit_sets(topology))
    shuffled = data.draw(st.permutations(circuits))
    assert make_plan(topology, circuits, NOW) == make_plan(topology, shuffled, NOW)


def test_circuits_of_one_pair_become_one_group() -> None:
    first = circuit("a", min_bps=50 * MBPS, max_bps=90 * MBPS, lease_until=NOW + 10)
    second = circuit("b", min_bps=30 * MBPS, max_bps=80 * MBPS, lease_until=NOW + 20)
    plan = make_plan(two_switches(), [first, second], NOW)
    assert len(plan.rules) == 4
    assert {rule.expires_at for rule in plan.rules} == {NOW + 20}
    there = next(group for group in plan.groups if group.src == "mu")
    assert there.data == ("a", "b")
    (shaped,) = shape_of(plan.shapes, "s1-a").classes
    assert (shaped.rate_bps, shaped.ceil_bps) == (80 * MBPS, 170 * MBPS)


def test_acknowledgements_get_a_class_of_their_own() -> None:
    plan = make_plan(two_switches(), [circuit(max_bps=100 * MBPS)], NOW)
    (acks,) = shape_of(plan.shapes, "s2-a").classes
    assert acks.rate_bps == pytest.approx(3 * MBPS)
    assert acks.ceil_bps == 200 * MBPS


def test_routed_paths_address_the_router_and_then_the_destination() -> None:
    rules = make_plan(two_switches(), [circuit(path=L3, min_bps=1e6)], NOW).rules
    there = [rule for rule in rules if rule.src == "10.10.0.1"]
    assert [(r.dpid, r.out_port, r.eth_dst) for r in there] == [
        (1, 11, "02:00:00:00:0b:01"),
        (2, 2, "02:00:00:00:00:02"),
    ]
    assert there[0].dscp and there[1].dscp == 0


def test_where_both_directions_differ_data_decides() -> None:
    back = circuit("back", ("tacc", "s2", "r1", "s1", "mu"), min_bps=1e6)
    plan = make_plan(two_switches(), [circuit("there"), back], NOW)
    assert {(g.src, g.dst): g.path for g in plan.groups} == {
        ("mu", "tacc"): L2,
        ("tacc", "mu"): back.path,
    }


def test_without_a_shaper_nothing_is_marked() -> None:
    plan = make_plan(two_switches(), [circuit()], NOW, keep="none")
    assert plan.shapes == ()
    assert {rule.dscp for rule in (*plan.routes, *plan.rules)} == {None}


def star(count: int) -> tuple[Topology, list[Circuit]]:
    """Sites around one switch, and a circuit from each to each other."""
    names = [f"h{i}" for i in range(count)]
    links = [Link(n, "s1", 1000 * MBPS, ports={"s1": i + 1}) for i, n in enumerate(names)]
    sites = [site(n, i + 1) for i, n in enumerate(names)]
    topology = Topology([*sites, Node("s1", "switch", dpid=1)], links)
    circuits = [
        circuit(f"{a}{b}", (a, "s1", b), min_bps=1 * MBPS) for a in names for b in names if a != b
    ]
    return topology, circuits


def test_marks_that_run_out_are_shared_and_so_are_the_guarantees() -> None:
    topology, _ = star(12)
    one_link = [
        Link("s1", "s2", 1000 * MBPS, ports={"s1": 99, "s2": 99}, devices={"s1": "dev"}),
        Link("far", "s2", 1000 * MBPS, ports={"s2": 1}),
    ]
    more = [Node("s2", "switch", dpid=2), site("far", 99)]
    topology = Topology([*topology.nodes.values(), *more], [*topology.links, *one_link])
    named = [
        replace(
            circuit(f"c{i}", ("h0", "s1", "s2", "far"), min_bps=2 * MBPS, max_bps=4 * MBPS),
            flows=(Flow("tcp", None, (5000 + i, 5000 + i)),),
        )
        for i in range(200)
    ]
    plan = make_plan(topology, named, NOW)
    (shape,) = plan.shapes
    assert len(shape.classes) == MARKS
    assert sum(c.rate_bps for c in shape.classes) == pytest.approx(400 * MBPS)
    marks = {g.data[0]: g.branches[0].mark for g in plan.groups if g.data}
    for c in shape.classes:
        users = [i for i, mark in marks.items() if mark == c.mark]
        assert 3 <= len(users) <= 4
        assert c.rate_bps == pytest.approx(2 * MBPS * len(users))


@pytest.mark.parametrize(
    ("circuits", "message"),
    [
        ([circuit("a"), circuit("a")], "'a' is listed twice"),
        ([circuit("a"), circuit("b", L3)], "expected one path for what"),
        ([circuit("a", min_bps=150e6, max_bps=150e6), circuit("b", min_bps=60e6)], "210 Mb/s"),
        ([circuit("", L2)], "empty id"),
        ([circuit("a", ("mu",))], "expected two sites with switches"),
        ([circuit("a", ("mu", "s1", "s2"))], "unknown site 's2'"),
        ([circuit("a", ("mu", "s2", "tacc"))], "no link between"),
        ([circuit("a", ("mu", "s1", "local", "s1", "mu"))], "no node twice"),
        ([circuit("a", min_bps=float("nan"))], "min_bps nan"),
        ([circuit("a", min_bps=2.0, max_bps=1.0)], "max_bps 1.0"),
        ([circuit("a", min_bps=0.0, max_bps=0.0)], "more than 0 b/s"),
        ([circuit("a", lease_until=float("nan"))], "lease_until"),
    ],
)
def test_what_cannot_be_carried_is_refused(circuits: list[Circuit], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        make_plan(two_switches(), circuits, NOW)
    assert "\n" not in str(caught.value)


def test_a_site_on_the_way_is_refused() -> None:
    topology = Topology(
        [site("a", 1), site("b", 2), site("c", 3)]
        + [Node(name, "switch", dpid=i + 1) for i, name in enumerate(("s", "t"))],
        [Link("a", "s", 1e9, ports={"s": 1}), Link("s", "b", 1e9, ports={"s": 2}),
         Link("b", "t", 1e9, ports={"t": 1}), Link("t", "c", 1e9, ports={"t": 2})],
    )  # fmt: skip
    with pytest.raises(InputError, match="leads through the site 'b'"):
        make_plan(topology, [circuit("x", ("a", "s", "b", "t", "c"))], NOW)


def test_what_the_topology_lacks_is_named() -> None:
    whole = two_switches()
    links = [replace(link, ports={}) if link.layer == "l3" else link for link in whole.links]
    with pytest.raises(InputError, match="link s1-r1 has no port at the switch 's1'"):
        Planner(Topology(whole.nodes.values(), links))
    nodes = [replace(node, macs=None) for node in whole.nodes.values()]
    with pytest.raises(InputError, match="router 'r1' has no MAC address towards 's1'"):
        Planner(Topology(nodes, whole.links))
    nodes = [replace(node, address="") for node in whole.nodes.values()]
    with pytest.raises(InputError, match="site 'mu' has no address"):
        Planner(Topology(nodes, whole.links))
