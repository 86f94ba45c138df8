from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from topology_world import demo

from adon.config.adon_yml import load_config
from network_provisioner.base.errors import InputError
from network_provisioner.topology.data import sources_of, topology_from_dict, topology_to_dict
from network_provisioner.topology.graph import Node, Topology
from network_provisioner.topology.renames import Renames


def test_two_paths_with_their_bottleneck_rtt_loss_and_layer() -> None:
    l2, l3 = topology_from_dict(demo()).candidate_paths("mu", "tacc")
    assert (l2.nodes, l2.capacity_bps, l2.layer) == (("mu", "s1", "s2", "tacc"), 200e6, "l2")
    assert l2.rtt_s == pytest.approx(0.053)
    assert (l3.nodes, l3.capacity_bps, l3.layer) == (("mu", "s1", "r1", "s2", "tacc"), 20e6, "l3")
    assert l3.loss == pytest.approx(0.01)
    assert l2.hops == (("mu", "s1"), ("s1", "s2"), ("s2", "tacc"))


def test_no_path_leads_through_a_third_site() -> None:
    data = demo()
    data["nodes"].append({"name": "osu", "kind": "site"})
    data["links"] += [
        {"a": "osu", "b": "s1", "capacity": "1 Gb/s"},
        {"a": "osu", "b": "s2", "capacity": "1 Gb/s"},
    ]
    paths = topology_from_dict(data).candidate_paths("mu", "tacc")
    assert all("osu" not in path.nodes for path in paths)


def test_sites_that_are_not_joined_have_no_path() -> None:
    topology = Topology([Node("a", "site"), Node("b", "site")], [])
    assert topology.candidate_paths("a", "b") == []
    assert topology.candidate_paths("a", "a") == []


def with_relay(**changes: Any) -> dict[str, Any]:
    """A relay at s1; ``changes`` are of its node, or of its link where a link has them."""
    data = demo()
    node = {"name": "ra", "kind": "relay", "address": "10.0.0.7", "mac": "02:00:00:00:00:07"}
    link = {"a": "ra", "b": "s1", "capacity": "1 Gb/s", "ports": {"s1": 7}}
    for key, value in changes.items():
        (node if key in ("address", "mac") else link)[key] = value
    data["nodes"].append(node)
    data["links"].append(link)
    return data


def test_relays_are_at_switches_and_on_no_path() -> None:
    data = with_relay()
    topology = topology_from_dict(data)
    assert [node.name for node in topology.relays_at("s1")] == ["ra"]
    assert topology.relays_at("s2") == topology.relays_at("mu") == []
    assert topology.end("ra") is topology.nodes["ra"] and topology.end("mu").kind == "site"
    with pytest.raises(InputError, match="unknown site 's1'"):
        topology.end("s1")
    assert topology.sites == ["mu", "tacc"]
    plain = topology_from_dict(demo()).candidate_paths("mu", "tacc")
    assert topology.candidate_paths("mu", "tacc") == plain
    assert topology_to_dict(topology)["nodes"][-1] == data["nodes"][-1]
    assert "ra" not in sources_of(data).values()


def twice(key: str, *values: Any, of: str = "nodes", at: int = 0) -> dict[str, Any]:
    data = demo()
    for item, value in zip(data[of][at:], values, strict=False):
        item[key] = value
    return data


def spoil(key: str, index: int, **changes: Any) -> dict[str, Any]:
    data = demo()
    data[key][index].update(changes)
    return data


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (spoil("nodes", 0, kind="host"), ["mu", "host", "site"]),
        (spoil("nodes", 0, name="tacc"), ["tacc", "twice"]),
        (spoil("nodes", 0, colour="red"), ["mu", "colour"]),
        (spoil("links", 0, b="s9", ports={}), ["s9", "no node"]),
        (spoil("links", 0, b="mu", ports={}), ["mu", "itself"]),
        (spoil("links", 0, capacity="1 GB/s"), ["mu-s1", "1 GB/s"]),
        (spoil("links", 0, capacity=0), ["mu-s1", "capacity"]),
        (spoil("links", 0, loss=1.5), ["loss", "1.5"]),
        (spoil("links", 0, layer="l7"), ["layer", "l7"]),
        (spoil("links", 0, capacity=float("nan")), ["mu-s1", "capacity", "nan"]),
        (spoil("links", 0, capacity=float("inf")), ["mu-s1", "capacity", "inf"]),
        (spoil("links", 0, capacity=None), ["mu-s1", "capacity"]),
        (spoil("links", 0, delay="-1 s"), ["mu-s1", "delay"]),
        (spoil("links", 2, rtt="53 ms"), ["s1-s2", "delay and rtt", "one of both"]),
        (spoil("links", 0, jitter="fast"), ["mu-s1", "jitter"]),
        (spoil("links", 0, vlan=4095), ["mu-s1", "vlan", "4094"]),
        (spoil("links", 0, vlan=True), ["mu-s1", "vlan"]),
        (spoil("links", 3, vlan=7), ["s1-r1", "vlan 7 of layer l3"]),
        (spoil("links", 0, ports={"s2": 1}), ["mu-s1", "ports", "s2"]),
        (spoil("nodes", 3, dpid=1), ["dpid 0x1", "'s1'", "'s2'"]),
        (spoil("nodes", 2, dmz=True), ["s1", "dmz of a switch"]),
        (spoil("nodes", 2, dtn="x"), ["s1", "dtn of a switch"]),
        (spoil("nodes", 0, dmz=1), ["mu", "dmz: found 1", "true or false"]),
        (spoil("nodes", 4, macs={"mu": "02:00:00:00:00:01"}), ["r1", "macs names 'mu'"]),
        (twice("address", *["10.0.0.1"] * 2), ["address 10.0.0.1 is that of 'mu' and of 'tacc'"]),
        (
            spoil("nodes", 0, hosts=[{"address": "10.0.0.1"}, {"address": "10.0.0.1"}]),
            ["address 10.0.0.1 is that of 'mu' and of 'mu'"],
        ),
        (
            twice("hosts", [{"address": f"10.9.0.{n}"} for n in ("0/24", "5", "5")], []),
            ["address 10.9.0.5 is that of 'mu' and of 'mu'"],
        ),
        (
            twice("hosts", [{"address": "10.0.0.0/8"}], [{"address": "10.1.2.3"}]),
            ["address 10.1.2.3 is that of 'mu' and of 'tacc'"],
        ),
        (spoil("nodes", 2, hosts=[{"address": "10.9.0.1"}]), ["s1", "hosts of a switch"]),
        *(
            (spoil("nodes", 0, address=it), [f"'mu': address: found '{it}'", "of a host"])
            for it in (
                "127.0.0.1",
                "0.0.0.0",
                "224.0.0.5",
                "255.255.255.255",
                "::1",
                "fe80::1%eth0",
                "fe80::1",
                "::ffff:127.0.0.1",
            )
        ),
        (spoil("nodes", 0, hosts=[{"address": "169.254.0.0/16"}]), ["'mu'", "host 1", "of a host"]),
        (spoil("nodes", 0, hosts=[{"address": "10.9"}]), ["'mu'", "host 1", "a prefix such"]),
        (
            spoil("nodes", 0, dmz=True, hosts=[{"address": "2001:db8::1"}]),
            ["'mu'", "Science DMZ", "expected IPv4"],
        ),
        (twice("mac", *["02:00:00:00:00:01"] * 2), ["mac 02:00:00:00:00:01 is that of 'mu'"]),
        (
            twice("ports", *[{"s1": 10}] * 2, of="links", at=2),
            ["switch s1 port 10 is that of 's1-s2' and of 's1-r1'"],
        ),
        (with_relay(address=""), ["'ra': address ''", "expected an IPv4 address"]),
        (with_relay(address="2001:db8::1"), ["'ra'", "2001:db8::1", "IPv4"]),
        (with_relay(mac=""), ["'ra'", "mac '' of a relay"]),
        (with_relay(address="10.0.0.1"), ["address 10.0.0.1 is that of 'mu' and of 'ra'"]),
        (with_relay(b="mu", ports={}), ["relay 'ra' has links to site", "one, to a switch"]),
        (with_relay(devices={"s1": "s1-ra"}), ["links to switch", "without name or devices"]),
        (with_relay(name="blue"), ["links to switch", "without name or devices"]),
        (spoil("nodes", 3, kind="relay"), ["'s2'", "of a relay, expected an IPv4 address"]),
        ({"nodes": []}, ["links"]),
        ({"nodes": [{"kind": "site"}], "links": []}, ["name"]),
    ],
)
def test_bad_topologies_name_the_place(data: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        topology_from_dict(data)
    for word in words:
        assert word in str(caught.value)


def test_rtt_jitter_and_vlan_are_understood() -> None:
    data = spoil("links", 3, jitter="2 ms")
    data["links"][4]["loss"] = "1e-5"  # a text for YAML
    assert topology_from_dict(data).links[4].loss == 1e-5
    data["links"][4]["jitter"] = "1 ms"
    topology = topology_from_dict(data)
    l2, l3 = topology.candidate_paths("mu", "tacc")
    assert l2.jitter_s == pytest.approx(0.001)
    assert l3.jitter_s == pytest.approx(0.003)
    assert l3.rtt_s == pytest.approx(0.053)
    assert topology.link("s2", "s1").vlan == 100


def test_what_is_most_likely_a_slip_is_said() -> None:
    assert topology_from_dict(demo()).warnings == []
    data = demo()
    data["nodes"] += [
        {"name": "osu", "kind": "site"},
        {"name": "far", "kind": "site"},
        {"name": "s9", "kind": "switch"},
    ]
    data["links"].append({"a": "far", "b": "s9", "capacity": 10})
    assert topology_from_dict(data).warnings == [
        "topology: site 'osu' has no link",
        "topology: no path joins 'far' with 'mu'",
        "topology: link far-s9 carries 10 b/s: a number without a unit is bits per second",
    ]


def test_unknown_sites_are_named_with_what_there_is() -> None:
    with pytest.raises(InputError, match=r"unknown site 'osu'.*mu, tacc"):
        topology_from_dict(demo()).candidate_paths("mu", "osu")


def read_from(tmp_path: Path, dpid: str, vlan: str = "7", port: str = "9", mac: str = "") -> Any:
    """The switch and the link of an adon.yml in which identifiers are written like this."""
    file, mac = tmp_path / "adon.yml", mac or "00:00:00:00:00:01"
    file.write_text(
        "topology:\n"
        f"  nodes: [{{name: s1, kind: switch, dpid: {dpid}}},\n"
        f"          {{name: mu, kind: site, address: 10.0.0.1, mac: {mac}}}]\n"
        f"  links: [{{a: mu, b: s1, capacity: 01000, vlan: {vlan}, ports: {{s1: {port}}}}}]\n"
    )
    network = topology_from_dict(load_config(file).topology)
    return network.nodes["s1"], network.nodes["mu"], network.links[0]


@pytest.mark.parametrize(
    "written",
    [
        '"00005e0a53bd7f10"', "00005e0a53bd7f10", '"00:00:5e:0a:53:bd:7f:10"', "0x5e0a53bd7f10",
        '"0x5E0A53BD7F10"', "of:00005e0a53bd7f10", "openflow:103398447611664", "103398447611664",
        "5e0a53bd7f10", "00-00-5E-0A-53-BD-7F-10", "5e:0a:53:bd:7f:10", "0:0:5e:a:53:bd:7f:10",
        "0000.5e0a.53bd.7f10", "dpid:00005e0a53bd7f10",
        "00 00 5e 0a 53 bd 7f 10", "'\"00005e0a53bd7f10\"'",
    ],
)  # fmt: skip
def test_datapath_ids_as_switches_and_controllers_print_them(tmp_path: Path, written: str) -> None:
    assert read_from(tmp_path, written)[0].dpid == 0x5E0A53BD7F10


@pytest.mark.parametrize(
    ("written", "dpid"),
    [
        ("0000000000000021", 0x21), ("021", 0x21), ('"0000000000000010"', 0x10), ("16", 16),
        ("20:00:00:00:00:00:00:07", 0x2000000000000007), ("0b101", 0b101), ('"7"', 7),
        ('"1000000000000021"', 0x1000000000000021), ("ffffffffffffffff", 2**64 - 1),
        ("openflow:16", 16), ('"0x16"', 0x16),
    ],
)  # fmt: skip
def test_yaml_changes_no_datapath_id(tmp_path: Path, written: str, dpid: int) -> None:
    switch, *_ = read_from(tmp_path, written)
    assert switch.dpid == dpid


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("1000000000000021", "0x1000000000000021"), ('"16"', "0x16"), ("1:30", "'1:30'"),
        ("switch-1", "'switch-1', expected a datapath id such as '00005e0a53bd7f10'"),
    ],
)  # fmt: skip
def test_datapath_ids_that_may_be_meant_two_ways_are_refused(
    tmp_path: Path, written: str, words: str
) -> None:
    with pytest.raises(InputError, match=re.escape(words)):
        read_from(tmp_path, written)


def test_yaml_changes_no_vlan_port_rate_or_mac(tmp_path: Path) -> None:
    _, site, link = read_from(tmp_path, "1", "0200", "010", "12:40:00:00:00:01")
    assert (link.vlan, link.ports, link.capacity_bps) == (200, {"s1": 10}, 1000.0)
    assert site.mac == "12:40:00:00:00:01"
    for mac in (
        "12-40-00-00-00-0A", "1240.0000.000a", "12400000000A", "12:40:0:0:0:a", "124000-00000A",
        "1240-0000-000a", "124000:00000a", "' 12:40:00:00:00:0a '", "12 40 00 00 00 0a",
        "'0x12400000000A'",
    ):  # fmt: skip
        assert read_from(tmp_path, "1", mac=mac)[1].mac == "12:40:00:00:00:0a"
    for mac in (
        "01:00:5e:00:00:01",
        "ffff.ffff.ffff",
        "0:0:0:0:0:0",
        "12:40:00:00:00",
        "1240000000",
    ):
        with pytest.raises(InputError, match=r"mac: found .*, expected .* MAC address"):
            read_from(tmp_path, "1", mac=mac)
    assert read_from(tmp_path, "1", port="0xfffffffe")[2].ports == {"s1": 0xFFFFFFFE}  # LOCAL
    for port in ("0", "00", "0xffffffff", "4294967293", "6:30", "-1", "s1-eth1", "10(s1-a)"):
        with pytest.raises(InputError, match=r"ports\.s1: found .*, expected a"):
            read_from(tmp_path, "1", port=f"'{port}'" if "(" in port else port)
    for vlan in ("1:30", "0o200", "4095", "-1", "1.5"):
        with pytest.raises(InputError, match="vlan: found"):
            read_from(tmp_path, "1", vlan)


def test_names_of_before() -> None:
    data = demo()
    data["links"].append({"a": "s1", "b": "s2", "capacity": "1 Gb/s"})
    text = json.dumps(data)
    for was, name in (("mu", "mizzou"), ("s1", "core-1")):
        text = text.replace(f'"{was}"', f'"{name}"')
        text = text.replace(f'"name": "{name}"', f'"name": "{name}", "was": "{was}"')
    topology = topology_from_dict(json.loads(text))
    assert topology_from_dict(topology_to_dict(topology)).renamed == topology.renamed
    assert topology.renamed == {"mu": "mizzou", "s1": "core-1", "s1-s2.2": "core-1-s2.2"}
    renames = Renames(topology)
    subjects = {
        "mu": "mizzou", "mu>tacc/s1-s2": "mizzou>tacc/core-1-s2", "a::b@mu": "a::b@mizzou",
        "s1>x/y": "core-1>x/y", "mu/dtn1": "mizzou/dtn1", "emu>mu2": "emu>mu2",
    }  # fmt: skip
    assert {was: renames.in_subject(was) for was in subjects} == subjects
    body = {"src": "mu", "user": "mu", "parts": [{"path": ["mu", "s1"]}], "link": "s1>s2"}
    assert renames.in_body(body) == {
        "src": "mizzou", "user": "mu", "parts": [{"path": ["mizzou", "core-1"]}],
        "link": "core-1>s2",
    }  # fmt: skip
    with pytest.raises(InputError, match="node 's2' was 'tacc', which is another node"):
        topology_from_dict(
            {"nodes": [{"name": "tacc", "kind": "switch"},
                       {"name": "s2", "kind": "switch", "was": "tacc"}], "links": []}
        )  # fmt: skip
