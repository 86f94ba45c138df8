"""What ``adon init`` makes of what it found."""

from __future__ import annotations

import stat
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from cli_world import adon

from adon.cli import init
from adon.config.adon_yml import load_config, parse_config
from adon.config.security import check_exposure, keyring_of, tls_context
from adon.config.yamltext import with_appended
from adon.init.files import config_edits, secret_edits
from adon.init.merge import updated
from adon.init.plan import Choices, Facts, default_names, rendered, topology_section
from adon.init.sites import Dtn, given_routers, given_sites, hosts_of_urls, read_neighbours
from network_provisioner.base.errors import InputError
from network_provisioner.controllers import frames
from network_provisioner.controllers.openflow import scan, wire
from network_provisioner.controllers.openflow.scan import HostPort
from network_provisioner.topology.data import topology_from_dict
from network_provisioner.topology.discovery import Discovered, Port
from pegasus_hooks.install.edits import carry_out

FOUND = Discovered(
    {
        1: {1: Port("s1-mu", True, 1e9), 10: Port("s1-a", True, 4e9)},
        2: {2: Port("s2-tacc", True), 10: Port("s2-a", True, 2e9)},
    },
    frozenset({((1, 10), (2, 10))}),
)
FACTS = Facts(
    {
        "mu": [Dtn("10.0.0.1", "dtn.mu.edu", 0.02), Dtn("10.0.0.3")],
        "tacc": [Dtn("10.0.0.2")],
        "off": [Dtn("10.0.0.9")],
    },
    FOUND,
    {
        "10.0.0.1": HostPort("02:00:00:00:00:01", (1, 1)),
        "10.0.0.3": HostPort("02:00:00:00:00:03", (1, 1)),
        "10.0.0.2": HostPort("02:00:00:00:00:02", (2, 2)),
    },
)
CHOICES = Choices({1: "s1", 2: "s2"}, "0.0.0.0:6653", devices=frozenset({"s1-a", "s2-a"}))


def test_a_configuration_of_what_was_found() -> None:
    text = rendered(FACTS, replace(CHOICES, shared=frozenset({"s1-s2"})))
    network = topology_from_dict(parse_config(yaml.safe_load(text), "adon.yml").topology)
    assert network.sites == ["mu", "tacc"]  # the third answered at no port
    assert [host.address for host in network.nodes["mu"].hosts] == ["10.0.0.1", "10.0.0.3"]
    between, access, unknown = network.whole_links
    assert between.capacity_bps == 1e9  # half of what the slower port reports
    assert (between.ports, between.devices) == ({"s1": 10, "s2": 10}, {"s1": "s1-a", "s2": "s2-a"})
    assert (access.ports, access.devices) == ({"s1": 1}, None)
    assert unknown.capacity_bps == 1e9
    assert "  state: adon-broker.sqlite\n" in text
    assert "# link tacc-s2: no port reports its speed, 1 Gb/s assumed" in text
    assert "# round trip from here: 20 ms" in text


def test_a_host_whose_first_answer_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "_ANSWER_S", 0.0)
    search = scan.Scan("127.0.0.1:0")
    requests = []

    def tell(messages: Mapping[int, Sequence[Any]]) -> dict[int, list[Any]]:
        requests.extend(m for m, _ in messages[1] if isinstance(m, wire.PARSER.OFPPacketOut))
        if len(requests) > 1 and search._listeners:
            answer = frames.arp_reply(requests[0].data, bytes.fromhex("020000000001"))
            search._listeners[0](1, SimpleNamespace(data=answer, match={"in_port": 7}))
        return {}

    monkeypatch.setattr(search, "_tell", tell)
    network = Discovered({1: {7: Port("", True)}}, frozenset())
    place = HostPort("02:00:00:00:00:01", (1, 7))
    assert search.find_ports(network, ["10.0.0.1"]) == {"10.0.0.1": {place}}


def test_why_a_node_is_left_out() -> None:
    first, second = (HostPort("02:00:00:00:00:01", (dpid, 1)) for dpid in (1, 2))
    assert init._misplaced([]) == "answers at no port of a switch"
    assert "another port" in init._misplaced([first])
    assert "0x1:1, 0x2:1, expected one" in init._misplaced({second, first})


def test_switches_keep_the_names_that_they_have() -> None:
    assert default_names(FOUND, {}) == {1: "s1", 2: "s2"}
    before = {"nodes": [{"name": "s1", "kind": "switch", "dpid": 2}], "links": []}
    assert default_names(FOUND, before) == {1: "s2", 2: "s1"}


def test_routers_and_delays() -> None:
    """Passages that share a port are through the same router."""
    ports = {d: {1: Port("", True, 1e9), 11: Port("", True, 2e9)} for d in (1, 2, 3)}
    network = Discovered(ports, frozenset({((1, 1), (2, 1))}))
    macs = {d: f"02:00:00:00:0b:0{d}" for d in (1, 2, 3)}
    ways = [
        scan.Passage({(a, 11): macs[a], (b, 11): macs[b]}, delay_s)
        for a, b, delay_s in ((1, 2, 0.02), (2, 3, 0.03))
    ]
    facts = Facts({}, network, {}, {((1, 1), (2, 1)): 0.0265}, ways)
    names = {1: "s1", 2: "s2", 3: "s3"}
    made = topology_from_dict(topology_section(facts, Choices(names, ""))[0])
    assert made.nodes["r1"].macs == {f"s{d}": mac for d, mac in macs.items()}
    delays = {link.label: (link.delay_s, link.layer) for link in made.whole_links}
    assert delays.pop("s1-s2") == (0.0265, "l2")
    assert delays == {"r1-s1": (0.01, "l3"), "r1-s2": (0.01, "l3"), "r1-s3": (0.015, "l3")}
    here = {((d, 0), (d, 0)): 0.002 * d for d in (1, 2)}
    times = {((1, 1), (2, 1)): 0.013, ((2, 1), (1, 1)): 0.015, ((3, 1), (1, 1)): 1.0}
    assert scan.delays(here | times) == {((1, 1), (2, 1)): pytest.approx(0.011)}


OLD = """\
topology:
  nodes:
  - {name: mu, kind: site, address: 10.0.0.1, mac: "0200.0000.0001"}  # the campus
  - name: old
    kind: site
    address: 10.0.0.8
  - {name: s1, kind: switch, dpid: 1}
  links:
  - {a: s1, b: mu, capacity: 500 Mb/s, ports: {s1: 4}}   # half is ours
  - {a: s1, b: old, capacity: 1 Gb/s}

controller: {driver: openflow, listen: "0.0.0.0:6653"}
limits: {max_paths: 3}
"""


def test_a_configuration_gets_what_is_new_and_keeps_the_rest(tmp_path: Path) -> None:
    before = parse_config(yaml.safe_load(OLD), "adon.yml")
    choices = replace(CHOICES, before=before.topology, tokens=[{"name": "mu", "role": "agent"}])
    choices = replace(choices, broker_listen=before.broker.listen)
    text = updated(OLD, before, FACTS, choices)
    changed = [line for line in text.splitlines() if line not in OLD.splitlines()]
    assert changed == [
        '  - {name: mu, kind: site, address: 10.0.0.1, mac: "0200.0000.0001", '
        "hosts: [{address: 10.0.0.3, mac: '02:00:00:00:00:03'}]}  # the campus",
        "  - {name: tacc, kind: site, address: 10.0.0.2, mac: '02:00:00:00:00:02'}",
        "  - {name: s2, kind: switch, dpid: '0x2'}",
        "  - {a: s1, b: mu, capacity: 500 Mb/s, ports: {s1: 1}}   # half is ours",
        "  - {a: s1, b: s2, layer: l2, capacity: 2 Gb/s, ports: {s1: 10, s2: 10}, "
        "devices: {s1: s1-a, s2: s2-a}}",
        "  - {a: tacc, b: s2, capacity: 1 Gb/s, ports: {s2: 2}, layer: lan}",
        "security:",
        "  tls: {certificate: broker.pem, key: broker.key}",
        "  tokens:",
        "    - {name: mu, role: agent}",
        "monitoring:",
        "  agents:",
        "    - {name: mu, address: 10.0.0.1}",
        "    - {name: tacc, address: 10.0.0.2}",
    ]
    again = parse_config(yaml.safe_load(text), "adon.yml")
    assert updated(text, again, FACTS, replace(choices, before=again.topology)) == text
    network = replace(FOUND, ports={**FOUND.ports, 1: {**FOUND.ports[1], 7: Port("", True)}})
    hosts = {**FACTS.hosts, "10.0.0.2": HostPort("02:00:00:00:00:02", (1, 7))}
    moved = replace(FACTS, network=network, hosts=hosts)
    text = updated(text, again, moved, replace(choices, before=again.topology))
    assert "  - {a: tacc, b: s1, capacity: 1 Gb/s, ports: {s1: 7}, layer: lan}\n" in text


@pytest.mark.parametrize(
    ("text", "changed"),
    [
        ("a:\n  b: 1 # c\n", "a:\n  b: 1 # c\n  x: [1]\n"),
        ("a: {b: 1,}\nc: 2", "a: {b: 1, x: [1],}\nc: 2"),
        ("a: {}\n", "a: {x: [1]}\n"),
        ("a:\n# end\n", "a:\n  x: [1]\n# end\n"),
        ("a: {x: [0]}\n", "a: {x: [0, 1]}\n"),
        ("a:\n  x:\n    - |\n      0\n\nb: 1\n", "a:\n  x:\n    - |\n      0\n    - 1\n\nb: 1\n"),
        ("b: 1", "b: 1\na:\n  x: [1]"),
    ],
)  # fmt: skip
def test_a_change_of_yaml_leaves_the_rest(text: str, changed: str) -> None:
    assert with_appended(text, ("a", "x"), 1) == changed


def test_others_reach_the_broker_by_tokens_and_certificate(tmp_path: Path) -> None:
    url = "https://192.0.2.1:8470"
    edits, tokens = secret_edits(tmp_path, FACTS.attached, url, "192.0.2.1")
    choices = replace(CHOICES, broker_listen="192.0.2.1:8470", tokens=tokens)
    file = tmp_path / "adon.yml"
    carry_out([*edits, *config_edits(file, rendered(FACTS, choices))])
    config = load_config(file)
    check_exposure(config, keyring_of(config))
    assert config.security.tls is not None and tls_context(config.security.tls)
    agent = tmp_path / "agents" / "mu"
    for secret in ("engineer.token", "broker.key", "agents/mu/token"):
        assert stat.S_IMODE((tmp_path / secret).stat().st_mode) == 0o600
    assert yaml.safe_load((agent / "agent.yml").read_text())["broker"] == url
    again, same = secret_edits(tmp_path, FACTS.attached, url, "192.0.2.1")
    assert same == tokens and not any(edit.needed for edit in again)


def test_a_configuration_that_is_there_is_kept_as_a_copy(tmp_path: Path) -> None:
    file = tmp_path / "adon.yml"
    file.write_text("old\n")
    copy, edit = config_edits(file, "new\n", clock=lambda: 0.0)
    carry_out([copy, edit])
    assert file.read_text() == "new\n"
    assert (tmp_path / "adon.yml.19700101-000000").read_text() == "old\n"


def test_hosts_of_catalogs_and_options() -> None:
    pairs = [
        ("mu", "gsiftp://dtn.mu.edu:2811/a"), ("mu", "https://dtn.mu.edu/b"), ("local", "file:///c"),
        ("mu", "scp://ada@io.mu.edu/d"), *given_sites(["tacc=192.0.2.7", "tacc=2001:db8::7"]),
        ("bad", "http://[x"),
        ("bad", "s3://ada@amazon/bucket/e"),
    ]  # fmt: skip
    assert hosts_of_urls(pairs) == {
        "mu": ["dtn.mu.edu", "io.mu.edu"], "local": [], "tacc": ["192.0.2.7", "2001:db8::7"],
        "bad": [],
    }  # fmt: skip
    with pytest.raises(InputError, match="'r1', expected an IPv4 address"):
        given_routers(["r1"])
    with pytest.raises(InputError, match="--dtn: found 'mu', expected SITE=HOST"):
        list(given_sites(["mu"]))


def test_neighbours_as_ip_prints_them() -> None:
    text = (
        "192.168.1.1 dev eth0 lladdr 52:54:00:12:35:02 REACHABLE\n"
        "172.17.0.2 dev docker0 lladdr 02:42:ac:11:00:02 router STALE\n"
        "193.233.7.85 dev eth0 lladdr 00:e0:1e:63:39:00 nud stale\n"
        "fe80::200:cff:fe76:3f85 dev eth0 lladdr 00:00:0c:76:3f:85 router nud stale\n"
        "10.0.2.3 dev enp0s3  FAILED\n"
        "10.0.2.4 dev enp0s3 INCOMPLETE\n"
    )
    assert read_neighbours(text) == {
        "192.168.1.1": "52:54:00:12:35:02",
        "172.17.0.2": "02:42:ac:11:00:02",
        "193.233.7.85": "00:e0:1e:63:39:00",
    }


def test_an_answer_counts_only_to_who_asked() -> None:
    us, them = bytes.fromhex("02aaaaaaaaaa"), bytes.fromhex("020000000001")
    request = frames.arp_request(us, "10.0.0.1")
    assert len(request) == 42 and request[28:32] == bytes(4)  # as a probe: no sender address
    reply = us + them + request[12:20] + b"\0\2" + them + bytes([10, 0, 0, 1]) + us + bytes(4)
    assert (
        frames.read_arp_request(request) == "10.0.0.1" and frames.arp_reply(request, them) == reply
    )
    assert frames.read_arp_reply(reply, us) == ("10.0.0.1", "02:00:00:00:00:01")
    assert frames.read_arp_reply(reply, them) is None
    assert (
        frames.read_arp_reply(request, us) is None and frames.read_arp_reply(reply[:30], us) is None
    )
    assert frames.read_arp_request(reply) == frames.read_arp_request(request[:30]) == ""


def test_whether_links_join_all_hosts() -> None:
    assert scan.joins(FOUND, FACTS.hosts)
    assert not scan.joins(Discovered(FOUND.ports, frozenset()), FACTS.hosts)
    assert not scan.joins(Discovered({}, frozenset()), {})


def test_one_site_is_too_few(tmp_path: Path) -> None:
    ran = adon("init", "--config", tmp_path / "adon.yml", "--dry-run", "--dtn", "mu=127.0.0.2")
    assert (ran.code, "found 1 sites with a data transfer node" in ran.err) == (2, True)
