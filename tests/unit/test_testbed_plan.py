"""The network on paper is whole, and the network's own code reads it."""

from __future__ import annotations

from collections import Counter

from examples.testbed import plan
from network_provisioner.topology.data import topology_from_dict


def test_the_topology_is_valid_and_has_both_paths_of_the_thesis():
    topology = topology_from_dict(plan.topology())
    assert topology.sites == ["mu", "tacc", "iplant", "local"]
    paths = {p.layer: p for p in topology.candidate_paths("iplant", "mu")}
    assert paths["l2"].nodes == ("iplant", "s2", "s1", "mu")
    assert paths["l3"].nodes == ("iplant", "s2", "r1", "s1", "mu")
    assert (paths["l2"].capacity_bps, paths["l3"].capacity_bps) == (200e6, 20e6)
    assert abs(paths["l2"].rtt_s - 0.053) < 1e-9
    assert abs(paths["l3"].rtt_s - 0.053) < 1e-9


def test_sites_of_one_switch_are_joined_by_it_alone():
    topology = topology_from_dict(plan.topology())
    assert topology.candidate_paths("mu", "local")[0].nodes == ("mu", "s1", "local")


def test_no_port_device_or_address_is_used_twice():
    links = plan.topology()["links"]
    ports = Counter((s, p) for link in links for s, p in link["ports"].items())
    devices = Counter(d for link in links for d in link["devices"].values())
    addresses = Counter(line.split()[0] for line in plan.hosts_lines())
    names = Counter(line.split()[1] for line in plan.hosts_lines())
    for counted in (ports, devices, addresses, names):
        assert max(counted.values()) == 1


def test_device_names_fit_the_kernel():
    # IFNAMSIZ is 16 with its closing zero.
    devices = [d for link in plan.topology()["links"] for d in link["devices"].values()]
    assert all(len(d) < 16 for d in devices)


def test_each_call_gives_a_copy():
    plan.topology()["nodes"].clear()
    assert plan.topology()["nodes"]
