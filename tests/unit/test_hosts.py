"""Sites with more than one host: what rules carry, and which packets a transit means."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from broker_rig import Rig, demo_network
from controller_worlds import Pipeline, two_switches

from network_provisioner.base.controller import Circuit
from network_provisioner.controllers.plan import make_plan
from network_provisioner.topology.data import topology_from_dict, topology_to_dict
from network_provisioner.topology.graph import Host, Topology

L2 = ("mu", "s1", "s2", "tacc")
L3 = ("mu", "s1", "r1", "s2", "tacc")
SECOND, WORKERS = Host("10.10.1.2", "02:00:00:00:01:02", "dtn2.mu"), Host("10.10.1.64/26")
THERE, SIX = Host("10.10.2.0/24", "02:00:00:00:02:fe"), Host("2001:db8:2::/64")
MORE = {"mu": (SECOND, WORKERS, Host("2001:db8:1::7")), "tacc": (THERE, SIX)}


def with_hosts(topology: Topology) -> Topology:
    """The same network with more hosts at two sites."""
    nodes = [replace(n, others=MORE.get(n.name, ())) for n in topology.nodes.values()]
    return Topology(nodes, topology.links)


@pytest.fixture
def topology() -> Topology:
    return with_hosts(two_switches())


def circuit(name: str, path: tuple[str, ...], *hosts: str) -> Circuit:
    return Circuit(name, path, 5e6, 10e6, 60.0, hosts=hosts)


def network(topology: Topology, *circuits: Circuit) -> Pipeline:
    plan = make_plan(topology, list(circuits), 0.0)
    return Pipeline(topology, [*plan.routes, *plan.rules])


def test_a_network_is_written_as_it_was_read(topology: Topology) -> None:
    assert topology_from_dict(topology_to_dict(topology)).nodes == topology.nodes


@pytest.mark.parametrize(
    ("src", "dst", "mac"),
    [
        ("10.10.1.2", "10.10.2.9", "02:00:00:00:02:fe"),
        ("10.10.1.65", "10.10.2.9", "02:00:00:00:02:fe"),
        ("2001:db8:1::7", "2001:db8:2::8", ""),
    ],
)
def test_all_hosts_of_a_site_are_carried(topology: Topology, src: str, dst: str, mac: str) -> None:
    site = topology.nodes["tacc"].address
    assert site not in (src, dst)
    for circuits, nodes in (((), L3), ((circuit("a", L2),), L2)):
        arrival = network(topology, *circuits).send("mu", "tacc", hosts=(src, dst))
        assert arrival.nodes == nodes
        assert arrival.eth_dst == (mac or ("from the host" if circuits else ""))
        back = network(topology, *circuits).send("tacc", "mu", hosts=(dst, src))
        assert back.nodes == nodes[::-1]


def test_a_circuit_for_two_hosts_leaves_all_others_alone(topology: Topology) -> None:
    two = ("10.10.1.2", "10.10.2.9")
    alone = network(topology, circuit("a", L2, *two))
    both = network(topology, circuit("a", L2, *two), circuit("b", L3))
    for pipeline in (alone, both):
        assert pipeline.send("mu", "tacc", hosts=two).nodes == L2
        assert pipeline.send("tacc", "mu", hosts=two[::-1]).nodes == L2[::-1]
        assert pipeline.send("mu", "tacc", hosts=("10.10.1.2", "10.10.2.8")).nodes == L3


def test_a_transit_is_for_the_hosts_it_names(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "s", topology=with_hosts(demo_network()), matches=True)
    named = {"src_host": "dtn2.mu", "dst_host": "10.10.2.9"}
    first = rig.ask("a", "mu", "tacc", min_bps=170e6, **named)
    assert first.request.hosts == ("10.10.1.2", "10.10.2.9")
    assert rig.controller.circuits["a"].hosts == tuple(first.request.hosts)
    # Others between the same sites are told apart, and may have a path of their own.
    other = rig.ask("b", "mu", "tacc", min_bps=15e6)
    assert (other.request.hosts, other.grant.layer) == ((), "l3")
    # Who is not known may be anybody of the site.
    stranger = rig.ask("c", "mu", "tacc", min_bps=1e6, src_host="nobody", dst_host="10.10.2.9")
    assert (stranger.request.hosts, stranger.grant.layer) == ((), "l3")
