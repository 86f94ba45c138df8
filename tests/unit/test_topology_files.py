"""Networks in files: node-link JSON and GraphML, NetworkX's reading of them, and bad ones."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import networkx as nx
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from template_world import plain
from topology_world import demo, same, topologies

from network_provisioner.base.errors import InputError
from network_provisioner.topology.data import topology_from_dict, topology_to_dict
from network_provisioner.topology.files import (
    MAX_BYTES,
    from_node_link,
    graphml_of,
    json_of,
    read_graphml,
    read_topology,
    resolve,
    to_node_link,
    yaml_of,
)
from network_provisioner.topology.graph import Node, Topology

DEMO = topology_from_dict(demo())


@settings(max_examples=30)
@given(topologies())
def test_what_is_written_is_read_as_the_same(topology: Topology) -> None:
    assert same(topology_from_dict(topology_to_dict(topology)), topology)
    assert same(topology_from_dict(yaml.safe_load(yaml_of(topology))["topology"]), topology)
    section = from_node_link(json.loads(json_of(topology)))
    assert same(topology_from_dict(section), topology)
    section = from_node_link(read_graphml(graphml_of(topology).encode(), "x"))
    assert same(topology_from_dict(section), topology)


def sites_and_switches(topology: Topology) -> list[Node]:
    """What NetworkX keeps in order; links it keeps in another."""
    return [node for node in topology.nodes.values() if node.kind != "link"]


@settings(max_examples=30)
@given(topologies())
def test_networkx_reads_what_is_written_and_writes_what_is_read(topology: Topology) -> None:
    graph = nx.node_link_graph(to_node_link(topology), edges="edges")
    from_graphml = nx.read_graphml(io.BytesIO(graphml_of(topology).encode()))
    nodes = {name for name, node in topology.nodes.items() if node.kind != "link"}
    assert set(from_graphml.nodes) == set(graph.nodes) == nodes
    for link in topology.whole_links:
        for where in (graph, from_graphml):
            between = where.get_edge_data(link.a, link.b)
            several = between.values() if where.is_multigraph() else [between]
            (attributes,) = [edge for edge in several if edge.get("name", "") == link.name]
            assert attributes["capacity"] == link.capacity_bps and attributes["layer"] == link.layer

    # NetworkX keeps the nodes' order, and may turn a link around.
    def links(network: Topology) -> set[Any]:
        return {
            (
                frozenset((x.a, x.b)),
                x.capacity_bps,
                x.delay_s,
                x.vlan,
                repr(sorted((x.ports or {}).items())),
            )
            for x in network.whole_links
        }

    text = "\n".join(nx.generate_graphml(from_graphml)).encode()
    by_graphml = topology_from_dict(from_node_link(read_graphml(text, "x")))
    for edges in ("edges", "links"):
        data = json.loads(json.dumps(nx.node_link_data(graph, edges=edges)))
        other = {"edges", "links"} - {edges}  # some tools write both keys
        again = topology_from_dict(from_node_link(data | {key: [] for key in other}))
        for network in (again, by_graphml):
            assert sites_and_switches(network) == sites_and_switches(topology)
            assert links(network) == links(topology)


@pytest.mark.parametrize("name", ["net.json", "net.graphml", "NET.JSON"])
def test_a_file_named_in_adon_yml(tmp_path: Path, name: str) -> None:
    text = graphml_of(DEMO) if name.endswith("graphml") else json_of(DEMO)
    (tmp_path / name).write_text(text, encoding="utf-8")
    assert same(topology_from_dict(resolve({"file": name}, tmp_path)), DEMO)
    assert resolve(demo(), tmp_path) == demo()


def test_numbers_as_text_and_with_a_point_are_numbers() -> None:
    data = to_node_link(DEMO)
    data["nodes"][2]["dpid"] = 1.0
    data["nodes"][3]["dpid"] = "2"
    data["nodes"][1]["dmz"] = "true"
    data["edges"][2] |= {
        "vlan": "100",
        "loss": "0.0001",
        "ports": '{"s1": 10, "s2": 10}',
        "delay": "0.0265",
    }
    assert same(topology_from_dict(from_node_link(data)), DEMO)


def test_what_other_programs_add_is_left_aside() -> None:
    data = to_node_link(DEMO)
    data["nodes"][0] |= {"label": "Columbia, MO", "x": 3.5, "Latitude": 38.9}
    data["edges"][0] |= {"id": "e7", "LinkLabel": "campus", "weight": 1}
    assert same(topology_from_dict(from_node_link(data)), DEMO)


def test_graphml_with_defaults_descriptions_and_drawings() -> None:
    text = """<?xml version="1.0"?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns" xmlns:y="http://www.yworks.com/xml/graphml">
  <desc>campus</desc>
  <key id="k" for="node" attr.name="kind"><default>switch</default></key>
  <key id="c" for="all" attr.name="capacity"><desc>b/s</desc><default>1e9</default></key>
  <key id="n" for="node" attr.name="id"/>
  <key id="y" for="node" yfiles.type="nodegraphics"/>
  <graph edgedefault="undirected"><data key="c">7</data>
    <node id="mu"><desc>d</desc><data key="k">site</data><data key="n">else</data>
      <data key="y"><y:ShapeNode><y:Fill color="#FF0000"/>text</y:ShapeNode></data></node>
    <node id="s1"><port name="p"/></node>
    <edge source="mu" target="s1"/>
    <edge source="s1" target="s2"><data key="c">2 Gb/s</data></edge>
    <node id="s2"/>
  </graph>
</graphml>"""
    topology = topology_from_dict(from_node_link(read_graphml(text.encode(), "x")))
    assert [n.kind for n in topology.nodes.values()] == ["site", "switch", "switch"]
    assert [link.capacity_bps for link in topology.links] == [1e9, 2e9]


def test_what_a_drawing_of_the_topology_zoo_lacks_is_said_at_once() -> None:
    nodes: list[dict[str, Any]] = [{"id": n, "label": "Denver", "Longitude": 1} for n in range(3)]
    edges = [{"source": 0, "target": 1, "LinkSpeedRaw": "1e10"}, {"source": 1, "target": 2}]
    with pytest.raises(InputError, match=r"^topology: found no 'kind' at node '0' and 2 more, exp.*"
                       r" relay; no 'capacity' at link 1-2, expected it: as 10 Gb/s$"):  # fmt: skip
        from_node_link({"nodes": nodes, "edges": edges})
    edges[1]["capacity"] = "1 Gb/s"
    data = {"nodes": [node | {"kind": "router"} for node in nodes], "edges": edges}
    assert [x.capacity_bps for x in topology_from_dict(from_node_link(data)).links] == [1e10, 1e9]


BOMB = """<?xml version="1.0"?><!DOCTYPE lolz [<!ENTITY a "lol"><!ENTITY b "&a;&a;&a;&a;">]>
<graphml><graph><node id="&b;"/></graph></graphml>"""
GRAPH = '<graphml xmlns="x"><key id="k" for="node" attr.name="kind"/><graph>{}</graph></graphml>'


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("n.yaml", "", "expected a file named .json"),
        ("n.json", "", "line 1: Expecting value, expected JSON"),
        ("n.json", "{", "line 1: "),
        ("n.json", "[" * 100_000, "too many levels"),
        ("n.json", "3", "topology is 3, expected a mapping"),
        ("n.json", '{"nodes": [], "nodes": []}', "key 'nodes' is given twice"),
        ("n.json", '{"nodes": [], "edges": [{"capacity": NaN}]}', "the number NaN"),
        ("n.json", '{"nodes": [], "edges": [{"capacity": -Infinity}]}', "the number -Infinity"),
        ("n.json", f'{{"nodes": [], "x": {"9" * 5000}}}', "a number that is too long"),
        ("n.json", b"\xff\xfe", "not UTF-8"),
        ("n.json", '{"nodes": []}', "'edges' is None, expected a list"),
        ("n.json", '{"directed": true, "nodes": [], "edges": []}', "expected an undirected one"),
        ("n.json", '{"nodes": [{}], "edges": []}', "node number 1 has no 'id'"),
        (
            "n.json",
            '{"nodes": [{"id": true}], "edges": []}',
            "id is True, expected a name, in quotes",
        ),
        (
            "n.json",
            '{"nodes": [{"id": 1, "kind": "site"}, {"id": "1", "kind": "site"}], "edges": []}',
            "'1' is listed twice",
        ),
        ("n.json", '{"nodes": [{"id": "a", "knid": 1}], "edges": []}', "did you mean 'kind'?"),
        ("n.json", '{"nodes": [], "edges": [{"source": "a"}]}', "edge number 1 has no 'target'"),
        ("n.graphml", "", "line 1: no element found"),
        ("n.graphml", "<graphml>", "line 1: no element found"),
        ("n.graphml", "<html/>", "found <html>, expected <graphml>"),
        ("n.graphml", "<graphml/>", "found no <graph>"),
        (
            "n.graphml",
            "<graphml>" + "<a>" * 9999 + "</a>" * 9999 + "</graphml>",
            "found no <graph>",
        ),
        ("n.graphml", BOMB, "found a document type"),
        ("n.graphml", GRAPH.format('<hyperedge id="h"/>'), "found <hyperedge>"),
        ("n.graphml", GRAPH.format("<node/>"), "found <node> without 'id'"),
        ("n.graphml", GRAPH.format('<node id="a"><graph/></node>'), "found a second <graph>"),
        ("n.graphml", GRAPH.format('<node id="a"><data key="z"/></node>'), "found data of 'z'"),
        (
            "n.graphml",
            GRAPH.format('<node id="a"><data key="k">site</data><data key="k">x</data></node>'),
            "found 'kind' twice in one <node>",
        ),
        ("n.graphml", GRAPH.format('<node id="a"/>'), "no 'kind' at node 'a', exp"),
        (
            "n.graphml",
            GRAPH.format('<edge source="a" target="b" directed="true"/>'),
            "expected an undirected one",
        ),
        ("n.graphml", '<?xml version="1.0" encoding="x-none"?><graphml/>', "unknown encoding"),
    ],
)
def test_bad_files_are_one_clear_line(
    tmp_path: Path, name: str, content: str | bytes, words: str
) -> None:
    file = tmp_path / name
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError) as caught:
        read_topology(file)
    assert words in str(caught.value)
    assert str(file) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    for section, words in (
        ({"file": "none.json"}, "cannot be read: No such file"),
        ({"file": "."}, "expected a file named"),
        ({"file": "big.json"}, "found more than 16 MiB"),
        ({"file": ""}, "expected a name"),
        ({"file": ["a"]}, "expected a name"),
        ({"file": "x.json", "nodes": []}, "unknown key 'nodes'"),
        ({"file": "dir.json"}, "cannot be read: Is a directory"),
    ):
        (tmp_path / "dir.json").mkdir(exist_ok=True)
        with (tmp_path / "big.json").open("wb") as big:
            big.truncate(100 * 2**20)
        with pytest.raises(InputError, match=words):
            resolve(section, tmp_path)
    assert MAX_BYTES < 100 * 2**20


@given(st.data())
def test_whatever_a_file_says_is_a_network_or_one_line(data: st.DataObject) -> None:
    network = to_node_link(DEMO)
    items = data.draw(st.sampled_from([network["nodes"], network["edges"]]))
    item = data.draw(st.sampled_from(items))
    key = data.draw(st.sampled_from([*sorted(item), "macs", "ports", "dmz", "vlan", "rtt"]))
    item[key] = data.draw(plain)
    try:
        topology_from_dict(from_node_link(network))
    except InputError as error:
        assert "\n" not in str(error)


@given(st.binary(max_size=60))
def test_bytes_that_are_no_graphml(content: bytes) -> None:
    with pytest.raises(InputError):
        read_graphml(content, "f")


ZOO = """<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
<key attr.name="Longitude" for="node" id="d32"/><key attr.name="Latitude" for="node" id="d29"/>
<key attr.name="kind" for="node" id="k"/><key attr.name="capacity" for="edge" id="c"/>
<key for="node" id="d6" yfiles.type="nodegraphics"/>
<graph edgedefault="undirected">
<node id="NL"><data key="d29">52.37403</data><data key="d32">4.88969</data>
<data key="k">router</data></node>
<node id="UK"><data key="d29">None</data><data key="d32">4</data><data key="k">router</data></node>
<node id="yed"><data key="k">router</data><data key="d6"><y:ShapeNode
xmlns:y="http://www.yworks.com/xml/graphml"><y:Geometry height="20.0" width="40.0" x="-10" y="5"/>
</y:ShapeNode></data></node>
<edge source="NL" target="UK"><data key="c">10 Gb/s</data></edge>
<edge source="NL" target="yed"><data key="c">10 Gb/s</data></edge>
</graph></graphml>"""


def test_places_on_maps_and_in_drawings_stay(tmp_path: Path) -> None:
    file = tmp_path / "zoo.graphml"
    file.write_text(ZOO, encoding="utf-8")
    network = topology_from_dict(read_topology(file))
    places = {node.name: (node.x, node.y) for node in network.nodes.values()}
    assert places == {"NL": (4.88969, -61.696648), "UK": (None, None), "yed": (10.0, 15.0)}
    for suffix, text in ((".graphml", graphml_of(network)), (".json", json_of(network))):
        again = tmp_path / f"again{suffix}"
        again.write_text(text, encoding="utf-8")
        assert topology_from_dict(read_topology(again)).nodes == network.nodes
    section = topology_to_dict(network)
    assert topology_from_dict(yaml.safe_load(yaml_of(network))["topology"]).nodes == network.nodes
    del section["nodes"][0]["y"]
    with pytest.raises(InputError, match="found one of x and y, expected both"):
        topology_from_dict(section)
