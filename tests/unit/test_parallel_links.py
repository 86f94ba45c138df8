"""Several links between the same two nodes: each has its own room, rules, name and failures."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import networkx as nx
import pytest
from broker_rig import Rig
from controller_worlds import MBPS, two_switches
from test_broker_ways import port

from network_provisioner.base.controller import Circuit
from network_provisioner.base.errors import InputError
from network_provisioner.controllers.openflow.driver import OpenFlowController
from network_provisioner.controllers.plan import make_plan
from network_provisioner.topology.data import topology_from_dict, topology_to_dict
from network_provisioner.topology.discovery import Discovered, Port, differences
from network_provisioner.topology.files import graphml_of, json_of, read_topology
from network_provisioner.topology.graph import Topology

FIRST = ("mu", "s1", "s2", "tacc")
SECOND = ("mu", "s1", "s1-s2.2", "s2", "tacc")


def twins(**more: Any) -> Topology:
    """The two switches with a second link between them."""
    base = two_switches()
    link = base.link("s1", "s2")
    other = replace(
        link, delay_s=0.03, ports={"s1": 12, "s2": 12}, devices={"s1": "s1-c", "s2": "s2-c"}, **more
    )
    nodes = [n for n in base.nodes.values() if n.kind != "link"]
    return Topology(nodes, [*base.whole_links, other])


def test_each_is_a_path_of_its_own() -> None:
    topology = twins()
    paths = topology.candidate_paths("mu", "tacc")
    assert [p.nodes for p in paths][:2] == [FIRST, ("mu", "s1", "r1", "s2", "tacc")]
    second = paths[2]
    assert (second.nodes, second.layer, second.rtt_s) == (SECOND, "l2", 0.06)
    assert topology.path(SECOND[::-1]).rtt_s == 0.06
    assert [link.label for link in topology.whole_links][-1] == "s1-s2.2"
    assert len(topology.links) == len(topology.whole_links) + 1
    assert twins(name="blue").path(("mu", "s1", "blue", "s2", "tacc")).capacity_bps == 200 * MBPS


@pytest.mark.parametrize("name", ["s1", "mu", "s1-s2.2"])
def test_a_name_is_nobody_elses(name: str) -> None:
    taken = twins(name="s1-s2.2") if name == "s1-s2.2" else twins()
    link = replace(taken.link("s1", "s2"), name=name, ports=None)
    nodes = [n for n in taken.nodes.values() if n.kind != "link"]
    with pytest.raises(InputError, match=f"name '{name}' is taken"):
        Topology(nodes, [*taken.whole_links, link])


def test_files_keep_them_apart(tmp_path: Path) -> None:
    for name in ("", "blue"):
        topology = twins(name=name)
        for file, text in (("n.json", json_of(topology)), ("n.graphml", graphml_of(topology))):
            (tmp_path / file).write_text(text)
            again = topology_from_dict(read_topology(tmp_path / file))
            assert again.whole_links == topology.whole_links
            assert list(again.nodes) == list(topology.nodes)
        assert topology_from_dict(topology_to_dict(topology)).links == topology.links
        graph = nx.node_link_graph(json.loads(json_of(topology)), edges="edges")
        assert graph.number_of_edges("s1", "s2") == 2
    (tmp_path / "theirs.json").write_text(json.dumps(nx.node_link_data(graph, edges="edges")))
    assert len(topology_from_dict(read_topology(tmp_path / "theirs.json")).whole_links) == 7


def test_rules_classes_and_counters_of_each() -> None:
    topology = twins()
    circuits = [
        Circuit("a", FIRST, 60 * MBPS, 60 * MBPS, 2000.0),
        Circuit("b", ("local", *SECOND[1:]), 70 * MBPS, 70 * MBPS, 2000.0),
    ]
    plan = make_plan(topology, circuits, 1000.0)
    forward = {c.id: plan.rules_of(g) for c in circuits for g in [plan.carrier(c.id)] if g}
    assert [(r.dpid, r.out_port) for r in forward["a"]] == [(1, 10), (2, 2)]
    assert [(r.dpid, r.out_port) for r in forward["b"]] == [(1, 12), (2, 2)]
    assert forward["b"][-1].eth_dst == "02:00:00:00:00:02"
    marked = {shape.device: [c.rate_bps for c in shape.classes] for shape in plan.shapes}
    assert 60 * MBPS in marked["s1-a"] and 70 * MBPS not in marked["s1-a"]
    assert 70 * MBPS in marked["s1-c"] and 60 * MBPS not in marked["s1-c"]


def test_two_links_to_one_router() -> None:
    base = two_switches()
    again = replace(base.link("s1", "r1"), ports={"s1": 12}, devices=None, name="up2")
    topology = Topology(base.nodes.values(), [*base.whole_links, again])
    path = ("mu", "s1", "up2", "r1", "s2", "tacc")
    plan = make_plan(topology, [Circuit("a", path, MBPS, MBPS, 2000.0)], 1000.0)
    first = plan.rules_of(plan.carrier("a"))[0]  # type: ignore[arg-type]
    assert (first.out_port, first.eth_dst) == (12, "02:00:00:00:0b:01")


def test_the_room_of_each_and_the_failure_of_one(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "s", twins(), matches=True)
    got = [
        rig.ask(name, "mu", "tacc", min_bps=150e6, flows=port(n)) for n, name in enumerate("ab", 1)
    ]
    assert [tuple(t.grant.path) for t in got] == [FIRST, SECOND]
    reserved = rig.reserved()
    assert reserved["s1>s2"] == reserved["s1>s1-s2.2"] == reserved["s1-s2.2>s2"] == 150e6
    rig.broker.release("a")
    rig.controller.failed = dict.fromkeys(pairwise(SECOND[1:4]), "port 12 of s1 is down")
    rig.let_pass(1)
    assert tuple(rig.broker.get("b").grant.path) == FIRST
    assert rig.broker.health()["links_failed"][0]["link"] == "s1-s2.2"
    again = Rig(rig.file, twins(), clock=rig.clock, matches=True)
    assert tuple(again.broker.get("b").grant.path) == FIRST


def test_discovery_knows_both() -> None:
    topology = twins()
    ports = {
        node.dpid: {n: Port((link.devices or {}).get(node.name, ""), True)
                    for link in topology.whole_links
                    for name, n in (link.ports or {}).items() if name == node.name}
        for node in topology.nodes.values() if node.kind == "switch"
    }  # fmt: skip
    both = frozenset({((1, 10), (2, 10)), ((1, 12), (2, 12))})
    assert differences(topology, Discovered(ports, both)) == []
    network = Discovered(ports, frozenset({((1, 10), (2, 10))}))
    assert differences(topology, network) == [
        "link s1-s2.2: nothing came through from port to port"
    ]


def test_the_port_of_one_fails_that_one_alone() -> None:
    controller = OpenFlowController(twins(), "127.0.0.1:0", bandwidth="none")
    controller._switches._down[1, 12] = "port 12 of s1 is down"
    assert set(controller.failed_links()) == {
        ("s1", "s1-s2.2"), ("s1-s2.2", "s1"), ("s1-s2.2", "s2"), ("s2", "s1-s2.2"),
    }  # fmt: skip
