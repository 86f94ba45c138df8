"""A whole workflow as one application: what it computes, what it moves, over which layers."""

from __future__ import annotations

import pytest
from site_world import (
    inputs_of,
    job,
)

from network_provisioner.topology.data import topology_from_dict
from network_provisioner.topology.graph import Topology
from site_selector.edge import Edge, Needs, bandwidth_of, decide, edge_of, workers_of
from site_selector.estimates.believe import believe
from site_selector.explain.edgewords import decision_dict, decision_text, reason
from site_selector.inputs import Inputs

MB = 1_000_000
SITES: dict[str, dict[str, object]] = {
    "mu": {"adon.workers": 2, "adon.rate": "10 MB/s", "adon.bandwidth.tacc": "80 Mb/s"},
    "tacc": {"adon.workers": 8, "adon.rate": "20 MB/s", "adon.queue_wait": "5 s"},
    "data": {"adon.bandwidth.mu": "160 Mb/s", "adon.bandwidth.tacc": "400 Mb/s"},
}


def three_jobs() -> Inputs:
    """Two jobs read 100 MB each at data; a third brings their 50 MB together into 10 MB."""
    sizes = {"g0": 50 * MB, "g1": 50 * MB, "h": 10 * MB}
    jobs = [job(f"x{i}", "a", [f"f{i}"], [f"g{i}"], sizes=sizes, keep=[f"g{i}"]) for i in range(2)]
    jobs.append(job("y", "b", ["g0", "g1"], ["h"], sizes=sizes))
    return inputs_of(
        jobs,
        SITES,
        {f"f{i}": ("data", 100 * MB) for i in range(2)},
        {"a": ["mu", "tacc", "data"], "b": ["mu", "tacc"]},
    )


def network() -> Topology:
    """data and tacc reach mu over a fast layer 2 and a slow layer 3."""
    links = [
        {"a": "mu", "b": "s1", "capacity": "1 Gb/s"},
        {"a": "data", "b": "s2", "capacity": "1 Gb/s"},
        {"a": "tacc", "b": "s2", "capacity": "1 Gb/s"},
        {"a": "s1", "b": "s2", "capacity": "200 Mb/s", "layer": "l2"},
        {"a": "s1", "b": "r1", "capacity": "20 Mb/s", "layer": "l3"},
        {"a": "r1", "b": "s2", "capacity": "20 Mb/s", "layer": "l3"},
    ]
    nodes = [{"name": n, "kind": "site"} for n in ("mu", "tacc", "data")]
    nodes += [{"name": n, "kind": "switch"} for n in ("s1", "s2")]
    nodes.append({"name": "r1", "kind": "router"})
    return topology_from_dict({"nodes": nodes, "links": links})


def edge(topology: Topology | None = None) -> Edge:
    inputs = three_jobs()
    world = believe(inputs, now=0.0, topology=topology, output_site="mu")
    return edge_of(inputs, world, "mu", ["mu"], ["tacc", "data"], topology)


def test_the_terms_by_hand() -> None:
    found = edge()
    mu, tacc = found.ways
    assert (mu.site, mu.local, tacc.site, tacc.local) == ("mu", True, "tacc", False)
    # 300 MB in all to compute: 30 s for one worker of mu, 15 s for one of tacc.
    assert mu.worker_s == pytest.approx(30)
    assert tacc.worker_s == pytest.approx(15)
    assert (mu.t_q_s, tacc.t_q_s) == (0, 5)
    assert {leg.name: leg.s_t_bytes for leg in mu.legs} == {"data>mu": 200 * MB}
    assert {leg.name: leg.s_t_bytes for leg in tacc.legs} == {
        "data>tacc": 200 * MB, "tacc>mu": 10 * MB,
    }  # fmt: skip
    assert found.total == {
        workers_of("mu"): 2, workers_of("tacc"): 8, bandwidth_of("data", "mu"): 160e6,
        bandwidth_of("data", "tacc"): 400e6, bandwidth_of("tacc", "mu"): 80e6,
    }  # fmt: skip
    assert found.width == 2
    assert found.cannot == {"data": "data cannot run y (t::b:1.0)"}


def test_the_decision_by_hand() -> None:
    found = edge()
    decision = decide(Needs("w", 0, 1, 2, 1e6, 1e9), found.ways, found.total)
    # mu: 30/2 + 1600/160 = 25 s. tacc: 5 + 15/2 + 1600/400 + 80/80 = 17.5 s.
    assert [o.t_t_s for o in decision.offers] == pytest.approx([17.5, 25])
    assert reason(decision, found) == "T_t 17.5 s against 25 s local at mu"
    text = decision_text(decision, found, None)
    assert "* remote at tacc" in text
    assert "data cannot run y (t::b:1.0)" in text
    assert decision_dict(decision, found, None)["taken"]["t_t_s"] == pytest.approx(17.5)


def test_each_layer_is_a_way_of_its_own() -> None:
    found = edge(network())
    assert [way.name for way in found.ways] == [
        "local at mu over l2", "local at mu over l3",
        "remote at tacc over l2", "remote at tacc over l3",
    ]  # fmt: skip
    l2, l3 = found.ways[2:]
    # The data lies beside tacc whatever layer the results take.
    for way in (l2, l3):
        assert way.legs[0].resources == (bandwidth_of("data", "s2"), bandwidth_of("s2", "tacc"))
    assert bandwidth_of("s2", "s1") in l2.legs[1].resources
    assert bandwidth_of("s2", "r1") in l3.legs[1].resources
    assert found.total[bandwidth_of("s2", "s1")] == 200e6


def test_where_no_site_can_run_all_of_it() -> None:
    inputs = three_jobs()
    world = believe(inputs, now=0.0, output_site="mu")
    found = edge_of(inputs, world, "mu", [], ["data"])
    decision = decide(Needs("w"), found.ways, found.total)
    assert decision.taken is None
    assert reason(decision, found) == "data cannot run y (t::b:1.0)"
    assert "waits in the scheduler's queue (place 1)" in decision_text(decision, found, 1)
