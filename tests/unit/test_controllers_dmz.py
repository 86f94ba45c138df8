"""Science DMZ (precision-medicine paper, §2): nothing passes without a circuit, not even ARP."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from controller_worlds import MBPS, Pipeline, circuit_sets, topologies, two_switches
from hypothesis import given, settings
from hypothesis import strategies as st

from network_provisioner.base.controller import Circuit
from network_provisioner.controllers.plan import make_plan
from network_provisioner.topology.graph import Topology

NOW = 1000.0
FEW = settings(max_examples=30, deadline=None)
L2 = ("mu", "s1", "s2", "tacc")
L3 = ("mu", "s1", "r1", "s2", "tacc")


def with_dmz(topology: Topology, *names: str) -> Topology:
    nodes = [replace(node, dmz=node.name in names) for node in topology.nodes.values()]
    return Topology(nodes, topology.links)


@FEW
@given(st.data())
def test_only_the_ends_of_circuits_reach_a_dmz(data: st.DataObject) -> None:
    plain = data.draw(topologies())
    closed = data.draw(st.sampled_from(plain.sites))
    topology = with_dmz(plain, closed)
    circuits = data.draw(circuit_sets(topology))
    plan = make_plan(topology, circuits, NOW)
    world = Pipeline(topology, [*plan.routes, *plan.rules], plan.entries)
    joined = {frozenset((c.path[0], c.path[-1])) for c in circuits}
    for src, dst in itertools.permutations(topology.sites, 2):
        opened = closed not in (src, dst) or frozenset((src, dst)) in joined
        if opened:
            assert world.send(src, dst).nodes[-1] == dst
        else:
            for protocol in ("arp", "tcp", "icmp"):
                with pytest.raises(LookupError, match="no rule at"):
                    world.send(src, dst, protocol=protocol)


def test_packets_enter_only_from_the_port_of_who_they_say_they_are_from() -> None:
    topology = with_dmz(two_switches(), "tacc")
    plan = make_plan(topology, [Circuit("a", L2, 0.0, 200 * MBPS, NOW + 60)], NOW)
    assert {(r.dpid, r.src, r.in_port) for r in plan.rules if r.hop == 0} == {
        (1, "10.10.0.1", 1),
        (2, "10.10.0.2", 2),
    }


def test_arp_takes_a_way_without_routers() -> None:
    topology = with_dmz(two_switches(), "tacc")
    plan = make_plan(topology, [Circuit("a", L3, MBPS, MBPS, NOW + 60)], NOW)
    world = Pipeline(topology, plan.rules)
    assert world.send("mu", "tacc").nodes == L3
    assert world.send("mu", "tacc", protocol="arp").nodes == L2
    links = [link for link in topology.links if link.layer != "l2"]
    routed = Topology(topology.nodes.values(), links)
    rules = make_plan(routed, [Circuit("a", L3, MBPS, MBPS, NOW + 60)], NOW).rules
    assert {rule.protocol for rule in rules} == {"ip"}


def test_circuits_of_one_pair_share_the_rules_for_arp() -> None:
    topology = with_dmz(two_switches(), "mu")
    both = [
        Circuit("a", L2, MBPS, MBPS, NOW + 60),
        Circuit("b", L2[::-1], MBPS, MBPS, NOW + 90),
    ]
    plan = make_plan(topology, both, NOW)
    arp = [rule for rule in plan.rules if rule.protocol == "arp"]
    assert len(arp) == 4 and {rule.expires_at for rule in arp} == {NOW + 90}
    for group in plan.groups:
        assert sum(rule.protocol == "arp" for rule in plan.rules_of(group)) == 2
