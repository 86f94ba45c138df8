"""``adon topology``: load in a table and a picture, later times, other formats."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import networkx as nx
import pytest
import yaml
from broker_rig import Rig
from cli_world import CONFIG, adon, config_file, refusal, values_of
from topology_world import demo, same

from adon.config.adon_yml import load_config, parse_config
from adon.dashboard.layout import places
from network_provisioner.base.controller import SwitchStatus
from network_provisioner.base.errors import InputError
from network_provisioner.base.instants import local_time
from network_provisioner.topology.data import topology_from_dict
from network_provisioner.topology.files import graphml_of, read_topology


def ask(*more: str) -> None:
    ran = adon("transit", "request", "mu", "tacc", "--id", "a", "--min", "90 Mb/s", *more)
    assert ran.code == 0, ran


def rows_of(*words: object) -> dict[tuple[str, ...], list[str]]:
    ran = adon("topology", "show", *words)
    assert (ran.code, ran.err) == (0, ""), ran
    rows = [line.split("  ") for line in ran.out.splitlines()[1:]]
    return {tuple(row[0].split(" > ")): [c.strip() for c in row[1:] if c] for row in rows}


def test_show_and_doctor_say_which_switch_is_away_since_when_and_what_passes_it(
    service: Rig, tmp_path: Path
) -> None:
    rig = service
    ask("--max", "90 Mb/s")
    since = 1e9
    rig.controller.statuses = [
        SwitchStatus("s1", "switch s1 (dpid 0x1)", True, 0.0, "", {}),
        SwitchStatus("s2", "switch s2 (dpid 0x2)", False, since, "is not connected", {"rules": 1}),
    ]
    shown = adon("topology", "show")
    assert shown.out.endswith("degraded: switch s2 (dpid 0x2) is not connected\n"), shown
    said = adon("doctor", "--config", config_file(tmp_path))
    assert said.code == 1
    what = f"is not connected since {local_time(since)}, transits that pass it: 1"
    assert f"MISSING  switch s2 (dpid 0x2): {what}\n" in said.out, said
    assert "switch s1" not in said.out
    rig.controller.statuses = []
    assert "degraded" not in adon("topology", "show").out
    assert "the broker at" in adon("doctor", "--config", config_file(tmp_path)).out


def test_check_says_what_the_broker_would_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    network = demo()
    network["nodes"].append({"name": "far", "kind": "site"})
    file = tmp_path / "adon.yml"
    tokens = [{"name": "ada", "role": "engineer", "token": "a" * 20}]
    security = {"security": {"tokens": tokens}}
    file.write_text(yaml.safe_dump({"topology": network, **security}))
    ran = adon("topology", "check", "adon.yml")
    assert (ran.code, ran.err) == (0, "")
    accepted, warning = ran.out.splitlines()
    assert accepted.startswith("adon.yml: the broker accepts it: site 3, switch 2")
    assert warning == "topology: site 'far' has no link"
    report = json.loads(adon("topology", "check", "adon.yml", "--json").out)
    assert (report["counts"]["switch"], report["warnings"]) == (2, [warning])
    file.write_text(yaml.safe_dump({"topology": network}))
    assert "site tacc is in a Science DMZ" in refusal("topology", "check", "adon.yml")
    (tmp_path / "net.json").write_text(adon("topology", "export", "--format", "json").out)
    assert adon("topology", "check", "net.json").out.startswith("net.json: the broker accepts it")
    # A driver of switches needs datapath ids.
    del network["nodes"][2]["dpid"]
    section = {
        "topology": network,
        **security,
        "controller": {"driver": "openflow", "bandwidth": "none"},
    }
    file.write_text(yaml.safe_dump(section))
    message = refusal("topology", "check", "adon.yml")
    assert message.startswith(
        "adon.yml: topology: switches have the datapath ids 0x0, 0x2, expected"
    )
    network["nodes"][2]["kind"] = "hub"
    file.write_text(yaml.safe_dump({"topology": network}))
    assert "has kind 'hub', expected one of" in refusal("topology", "check", "adon.yml")


def test_load_now_and_later(service: Rig) -> None:
    start = round(service.clock.now + 3600)
    ask("--start", str(start), "--end", str(start + 600))
    assert rows_of()["s1", "s2"][2:4] == ["0 b/s", "0 %"]
    later = rows_of("--at", str(start + 10))
    expected = "l2|200 Mb/s|90 Mb/s|45 %|90 Mb/s|0 b/s|26.5 ms|a"
    assert "|".join(later["s1", "s2"]) == expected
    assert later["s2", "s1"][2] == "0 b/s"
    held = rows_of("--at", str(start - 60), "--end", str(start + 60))
    assert set(held) == {("mu", "s1"), ("s1", "s2"), ("s2", "tacc")}
    assert {row[-1].strip() for row in held.values()} == {"a"}
    ran = adon("topology", "show", "--end", str(start))
    assert ran.out.startswith("nothing is reserved from")


def test_times_that_cannot_be(service: Rig) -> None:
    for words, said in (
        (("--at", "yesterday"), "--at is 'yesterday', expected ISO 8601"),
        (("--at", "5"), "expected Unix seconds that are not past"),
        (("--end", "5"), "expected Unix seconds after"),
        (("--at", "+fast"), "expected a number with a unit"),
    ):
        assert said in refusal("topology", "show", *words)


def test_a_page_with_the_whole_answer(service: Rig, tmp_path: Path) -> None:
    ask()
    file = tmp_path / "a.html"
    start = round(service.clock.now)
    assert adon("topology", "show", "--end", str(start + 60), "--plot", file).code == 0
    (network,) = values_of(file)["network"]
    topology = network["topology"]
    assert len(topology["links"]) == len(service.topology.links)
    assert {n["name"] for n in network["layout"]["nodes"]} == set(service.topology.nodes)
    ids = [h["id"] for link in topology["links"] for load in link["load"] for h in load["holders"]]
    assert ids == ["a"] * 3
    assert "found 'a.svg', expected a name that ends in .html" in refusal(
        "topology", "show", "--plot", "a.svg"
    )


@pytest.mark.parametrize("nodes", [1, 2, 3, 30])
def test_every_node_has_a_place_of_its_own(nodes: int) -> None:
    names = [str(n) for n in range(nodes)]
    for graph in (nx.path_graph(nodes), nx.star_graph(nodes - 1), nx.empty_graph(nodes)):
        positions = places(names, [(str(a), str(b)) for a, b in graph.edges])
        assert set(positions) == set(names)
        apart = [
            abs(complex(*positions[a]) - complex(*positions[b]))
            for a in names
            for b in names
            if a < b
        ]
        assert min(apart, default=1) > 0.05


# -- files -------------------------------------------------------------------------------------


def config_of(tmp_path: Path, topology: Any) -> Path:
    file = tmp_path / "adon.yml"
    file.write_text(json.dumps({**CONFIG, "topology": topology}), encoding="utf-8")
    return file


@pytest.mark.parametrize("kind", ["json", "graphml"])
def test_a_network_in_a_file_of_its_own(tmp_path: Path, kind: str) -> None:
    whole = topology_from_dict(demo())
    config = config_of(tmp_path, demo())
    net = tmp_path / f"net.{kind}"
    ran = adon("topology", "export", "--config", config, "--format", kind, "--output", net)
    assert (ran.code, ran.out, ran.err) == (0, "", "")
    assert same(topology_from_dict(read_topology(net)), whole)
    loaded = load_config(config_of(tmp_path, {"file": net.name}))
    assert same(topology_from_dict(loaded.topology), whole)


def test_the_section_itself_with_units(tmp_path: Path) -> None:
    ran = adon("topology", "export", "--config", config_of(tmp_path, demo()), "--format", "yaml")
    section = yaml.safe_load(ran.out)["topology"]
    assert section["links"][2]["capacity"] == "200 Mb/s"
    assert section["links"][2]["delay"] == "26.5 ms"
    assert same(topology_from_dict(section), topology_from_dict(demo()))


def test_what_looks_like_a_slip_is_said(tmp_path: Path) -> None:
    data = demo()
    data["nodes"].append({"name": "osu", "kind": "site"})
    config = config_of(tmp_path, data)
    ran = adon("topology", "export", "--config", config)
    assert ran.code == 0 and ran.out == graphml_of(topology_from_dict(data))
    assert ran.err == "adon: topology: site 'osu' has no link\n"


LOOP = {
    "nodes": [{"id": "a", "kind": "switch"}],
    "edges": [{"source": "a", "target": "a", "capacity": 1}],
}


def test_bad_files_name_both_files(tmp_path: Path) -> None:
    for name, content, said in (
        ("loop.json", LOOP, "joins a node with itself"),
        ("none.json", None, "cannot be read: No such file"),
        ("again.yml", None, "expected a file named .json (node-link) or .graphml"),
    ):
        if content is not None:
            (tmp_path / name).write_text(json.dumps(content), encoding="utf-8")
        words = refusal("topology", "export", "--config", config_of(tmp_path, {"file": name}))
        assert words.startswith(f"{tmp_path / 'adon.yml'}: {tmp_path / name}: ") and said in words


def test_a_file_is_looked_for_beside_adon_yml(tmp_path: Path) -> None:
    (tmp_path / "net.graphml").write_text(graphml_of(topology_from_dict(demo())), encoding="utf-8")
    config = parse_config({"topology": {"file": "net.graphml"}}, str(tmp_path / "adon.yml"))
    assert same(topology_from_dict(config.topology), topology_from_dict(demo()))
    with pytest.raises(InputError, match=r"elsewhere/net\.graphml: cannot be read"):
        parse_config({"topology": {"file": "net.graphml"}}, "elsewhere/adon.yml")


def test_who_goes_where_and_why(service: Rig) -> None:
    ask()
    rows = [
        line.split("  ") for line in adon("topology", "show", "--routes", "mu").out.splitlines()
    ]
    by_key = {tuple(c.strip() for c in row if c)[:3]: [c.strip() for c in row if c] for row in rows}
    assert by_key["from", "to", "who"][3:] == ["path", "rtt", "rate", "state", "why"]
    routed = by_key["mu", "tacc", "best effort"]
    assert routed[3:7] == ["mu > s1:11 > r1 > s2:2 > tacc", "53 ms", "20 Mb/s", "up"]
    assert routed[7] == "layer l3 comes first, and costs little more"
    own = by_key["mu", "tacc", "a"]
    assert own[3] == "mu > s1:10 > s2:2 > tacc" and own[6] == "installed"
    assert "has the highest score" in own[7]
    assert not any({"local", "tacc"} == {a, b} for a, b, _ in by_key)
    every = json.loads(adon("topology", "show", "--routes", "--json").out)
    sites = {row["src"] for row in every}
    assert sum(row["who"] == "best effort" for row in every) == len(sites) * (len(sites) - 1)
    hop = next(row for row in every if row["who"] == "a")["next_hops"][0]
    assert hop == {"switch": "s1", "in_ports": [1], "out_port": 10, "to": "s2", "link": "s1-s2"}
    assert "unknown site 'nowhere'" in refusal("topology", "show", "--routes", "nowhere")
