"""A testbed on paper is whole, and the network's own code reads it: SoyKB's, and a larger one."""

from __future__ import annotations

from collections import Counter

import pytest
from network_world import LINE, RELAYED

from examples.soykb.scenario import LAYOUT
from examples.testbed.layout import Layout
from network_provisioner.topology.data import topology_from_dict

LAYOUTS = pytest.mark.parametrize(
    "layout", [LAYOUT, LINE, RELAYED], ids=["soykb", "line", "relayed"]
)


def test_both_paths_of_the_thesis_are_there():
    topology = topology_from_dict(LAYOUT.topology())
    assert topology.sites == ["mu", "tacc", "iplant", "local"]
    paths = {p.layer: p for p in topology.candidate_paths("iplant", "mu")}
    assert paths["l2"].nodes == ("iplant", "s2", "s1", "mu")
    assert paths["l3"].nodes == ("iplant", "s2", "r1", "s1", "mu")
    assert (paths["l2"].capacity_bps, paths["l3"].capacity_bps) == (200e6, 20e6)
    assert abs(paths["l2"].rtt_s - 0.053) < 1e-9
    assert abs(paths["l3"].rtt_s - 0.053) < 1e-9
    assert topology.candidate_paths("mu", "local")[0].nodes == ("mu", "s1", "local")


def test_a_larger_one_has_its_paths_too():
    topology = topology_from_dict(LINE.topology())
    paths = {path.nodes for path in topology.candidate_paths("near", "far")}
    assert {
        ("near", "s1", "s3", "far"),
        ("near", "s1", "r2", "s3", "far"),
        ("near", "s1", "r1", "s2", "s3", "far"),
    } <= paths
    assert topology.candidate_paths("they", "them")[0].capacity_bps == 1e8


def test_a_router_reaches_every_host_by_the_nearer_side():
    first, second = LINE.routers
    assert [LINE.side_of(first, host) for host in LINE.sites] == ["s1", "s1", "s2", "s2"]
    assert [LINE.side_of(second, host) for host in LINE.sites] == ["s1", "s1", "s3", "s3"]


def test_relays_are_at_their_switches_with_a_management_link():
    topology = topology_from_dict(RELAYED.topology())
    assert [node.name for node in topology.relays_at("s1")] == ["ra"]
    (relay,) = topology.relays_at("s2")
    assert (relay.address, relay.mac) == ("10.10.0.8", "02:00:00:00:00:08")
    assert topology.link("rb", "s2").ports == {"s2": 8}
    assert topology.sites == topology_from_dict(LAYOUT.topology()).sites
    assert RELAYED.managed()["adon-ra"] == 7
    assert "10.254.8.2 rb.adon.test" in RELAYED.hosts_lines()


@LAYOUTS
def test_no_port_device_or_address_is_used_twice(layout: Layout):
    links = layout.topology()["links"]
    ports = Counter((s, p) for link in links for s, p in link["ports"].items())
    devices = Counter(d for link in links for d in link.get("devices", {}).values())
    addresses = Counter(line.split()[0] for line in layout.hosts_lines())
    names = Counter(line.split()[1] for line in layout.hosts_lines())
    macs = Counter(mac for router in layout.routers for mac in router.macs.values())
    macs.update(host.mac for host in layout.hosts)
    for counted in (ports, devices, addresses, names, macs):
        assert max(counted.values()) == 1
    # IFNAMSIZ is 16 with its closing zero.
    assert all(len(device) < 16 for device in devices)
    for switch in layout.switches:
        assert set(layout.ports(switch)) == {port for name, port in ports if name == switch}
