"""Files that hold a network: NetworkX node-link JSON and GraphML. Read, and written.

Other programs put drawings and descriptions into GraphML, which are passed over. A document type is
refused, and with it every entity that could make a small file large or bring in another.

Attributes are those of adon.yml. Where a format knows no mappings and lists (GraphML), ``ports``,
``devices``, ``macs``, ``hosts`` and ``urls`` are JSON in a text. Ports, devices and macs name the
nodes they mean, because an undirected graph may turn an edge around.

Attributes that are not ours are passed over, except those that look like one of ours misspelt.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from reprlib import repr as shown
from typing import Any
from xml.etree import ElementTree

import yaml

from network_provisioner.base import fields
from network_provisioner.base.errors import InputError
from network_provisioner.base.units import format_rate, parse_duration, parse_rate
from network_provisioner.topology.data import (
    LINK_KEYS,
    NODE_KEYS,
    topology_from_dict,
    topology_to_dict,
)
from network_provisioner.topology.graph import Topology

MAX_BYTES = 16 * 2**20  # 10,000 nodes with 30,000 links take half of it
_NAMESPACE = "http://graphml.graphdrawing.org/xmlns"
_ENDS = {"node": ("id",), "edge": ("source", "target")}
_FORMATS = "expected a file named .json (node-link) or .graphml"
_WHOLE = ("dpid", "vlan")
_DECIMAL = re.compile("[1-9][0-9]{0,14}")  # of a dpid: other texts are hexadecimal
_TRUTH = {"true": True, "True": True, "1": True, "false": False, "False": False, "0": False}
# How values that are not text are read from text.
_READERS: dict[str, Callable[[str], Any]] = {
    **dict.fromkeys(("ports", "devices", "macs", "hosts", "urls"), json.loads),
    **dict.fromkeys(_WHOLE, int),
    **dict.fromkeys(("loss", "x", "y"), float),
    **dict.fromkeys(("dmz", "guaranteed"), _TRUTH.__getitem__),
}
_ZOO_SPEED = "LinkSpeedRaw"  # the Topology Zoo's, in bits per second
_HALF, _MOST_NORTH = 180.0, 85.0  # degrees, as maps have them
_SLIP = 0.74  # how alike a foreign attribute must be to one of ours to be taken for a slip


def from_node_link(data: object) -> dict[str, Any]:
    """The ``topology`` section of adon.yml that says the same. Raises InputError for what is no
    undirected node-link graph; :func:`~.data.topology_from_dict` checks the rest."""
    if not isinstance(data, Mapping):
        raise InputError(f"topology is {shown(data)}, expected a mapping with nodes and edges")
    if data.get("directed"):
        raise InputError(
            "topology: found a directed graph, expected an undirected one: a link carries its "
            "capacity in each direction"
        )
    nodes = [_node(n + 1, item) for n, item in enumerate(fields.items(data, "nodes", "topology"))]
    key = "links" if data.get("links") or ("links" in data and "edges" not in data) else "edges"
    edges = fields.items(data, key, "topology")
    links = [_link(n + 1, item) for n, item in enumerate(edges)]
    lacking = [
        *_lacking(
            "kind", [(f"node {n['name']!r}", n) for n in nodes], "site, switch, router, relay"
        ),
        *_lacking("capacity", [(f"link {e['a']}-{e['b']}", e) for e in links], "as 10 Gb/s"),
    ]
    if lacking:
        raise InputError(f"topology: found {'; '.join(lacking)}")
    return {"nodes": nodes, "links": links}


def _lacking(key: str, items: list[tuple[str, dict[str, Any]]], expected: str) -> Iterator[str]:
    without = [label for label, item in items if key not in item]
    if without:
        more = f" and {len(without) - 1} more" if without[1:] else ""
        yield f"no {key!r} at {without[0]}{more}, expected it: {expected}"


def to_node_link(topology: Topology) -> dict[str, Any]:
    """As ``networkx.node_link_graph`` reads it; :func:`from_node_link` is the inverse."""
    section = topology_to_dict(topology)
    nodes = [{"id": node.pop("name"), **node} for node in section["nodes"]]
    edges = [
        {"source": link.pop("a"), "target": link.pop("b"), **link} for link in section["links"]
    ]
    several = any("name" in edge for edge in edges)
    for number, edge in enumerate(edges if several else ()):
        edge["key"] = number
    return {"directed": False, "multigraph": several, "graph": {}, "nodes": nodes, "edges": edges}


def _node(number: int, item: Mapping[str, Any]) -> dict[str, Any]:
    name = _name(item, "id", "name", f"topology: node number {number}")
    node = {"name": name, **_ours(item, NODE_KEYS, ("id", "name"), f"node {name!r}")}
    if all(isinstance(node.get(key), float | int) for key in ("x", "y")):
        return node
    # One of both is no place; it is another program's.
    return {k: v for k, v in node.items() if k not in ("x", "y")} | _on_a_map(item)


def _on_a_map(item: Mapping[str, Any]) -> dict[str, float]:
    """The place of a node whose file says where on earth it is, as the Topology Zoo's do."""
    said = {key.lower(): value for key, value in item.items()}
    try:
        east, north = float(said["longitude"]), float(said["latitude"])
    except (KeyError, TypeError, ValueError):
        return {}
    if not (abs(east) <= _HALF and abs(north) <= _MOST_NORTH):
        return {}
    # Mercator's, so that directions are those of maps.
    return {
        "x": round(east, 6),
        "y": round(-math.degrees(math.asinh(math.tan(math.radians(north)))), 6),
    }


def _link(number: int, item: Mapping[str, Any]) -> dict[str, Any]:
    where = f"topology: edge number {number}"
    a, b = _name(item, "source", "a", where), _name(item, "target", "b", where)
    ends = ("source", "target", "a", "b", "key")
    speed = {"capacity": item[_ZOO_SPEED]} if _ZOO_SPEED in item else {}
    return {"a": a, "b": b, **speed, **_ours(item, LINK_KEYS, ends, f"link {a}-{b}")}


def _name(item: Mapping[str, Any], key: str, ours: str, where: str) -> str:
    """A node's name under one of two keys; NetworkX numbers nodes where nobody names them."""
    value = item.get(key, item.get(ours))
    if value is None:
        raise InputError(f"{where} has no {key!r}: {shown(dict(item))}")
    if isinstance(value, int) and not isinstance(value, bool) and -(10**18) < value < 10**18:
        value = str(value)
    return fields.name(value, f"{where}: {key}")


def _ours(
    item: Mapping[str, Any], known: tuple[str, ...], passed: tuple[str, ...], label: str
) -> dict[str, Any]:
    """The attributes that are known, texts read as what they stand for."""
    attributes = {}
    for key, value in item.items():
        if key in passed:
            continue
        if key in known:
            attributes[key] = _meant(key, value)
            continue
        near = get_close_matches(str(key), known, 1, _SLIP)
        if near:
            raise InputError(
                f"topology: {label} has the unknown key {shown(key)}, did you mean {near[0]!r}?"
            )
    return attributes


def _meant(key: str, value: Any) -> Any:
    """GraphML writes everything as text, and some programs every number with a point. What is not
    understood stays as it is, to be refused by its name."""
    if key in _WHOLE and isinstance(value, float) and value.is_integer():
        return int(value)
    if not isinstance(value, str) or (key == "dpid" and not _DECIMAL.fullmatch(value)):
        return value
    try:
        return _READERS.get(key, str)(value)
    except (ValueError, KeyError, RecursionError):
        return value


def resolve(section: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The ``topology`` section itself, or what the file holds that it names: ``{"file": NAME}``,
    relative to ``folder``. Raises InputError that names the file."""
    if "file" not in section:
        return dict(section)
    fields.known_keys(section, ("file",), "topology from a file")
    return read_topology(folder / fields.text(section, "file", "topology"))


def read_topology(file: Path) -> dict[str, Any]:
    """The network in a file, as a ``topology`` section that was checked. Raises InputError."""
    kind = file.suffix.lower()
    if kind not in (".json", ".graphml"):
        raise InputError(f"{file}: {_FORMATS}")
    content = _content(file)
    data = _json(content, file) if kind == ".json" else read_graphml(content, str(file))
    try:
        section = from_node_link(data)
        topology_from_dict(section)
    except InputError as error:
        raise InputError(f"{file}: {error}") from None
    return section


def graphml_of(topology: Topology) -> str:
    """The network as GraphML; :func:`read_topology` and ``networkx.read_graphml`` read it.
    Mappings become JSON."""
    data = to_node_link(topology)
    root = ElementTree.Element("graphml", xmlns=_NAMESPACE)
    graph = ElementTree.Element("graph", edgedefault="undirected")
    for domain, items in (("node", data["nodes"]), ("edge", data["edges"])):
        keys: dict[str, ElementTree.Element] = {}
        for item in items:
            ends = {end: str(item.pop(end)) for end in _ENDS[domain]}
            item.pop("key", None)  # of JSON's multigraphs
            element = ElementTree.SubElement(graph, domain, ends)
            for name, value in item.items():
                if name not in keys:
                    about = {"id": f"{domain[0]}{len(keys)}", "for": domain, "attr.name": name}
                    keys[name] = ElementTree.SubElement(root, "key", about)
                    keys[name].set("attr.type", _type(value))
                written = ElementTree.SubElement(element, "data", key=keys[name].attrib["id"])
                plain = isinstance(value, str | float)  # a float says itself shorter than JSON does
                written.text = str(value) if plain else json.dumps(value)
    root.append(graph)
    ElementTree.indent(root)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ElementTree.tostring(root, "unicode")}\n'


def read_graphml(content: bytes, where: str) -> dict[str, Any]:
    """Node-link data (:mod:`~.files`), all values as text. Raises InputError, which names
    ``where``."""
    try:
        parser = ElementTree.XMLParser(target=_PlainBuilder(where))
        root = ElementTree.fromstring(content, parser)
    except ElementTree.ParseError as error:
        what = str(error).partition(":")[0]
        raise InputError(f"{where}, line {error.position[0]}: {what}, expected GraphML") from None
    except (ValueError, LookupError) as error:
        raise InputError(f"{where}: {error}, expected GraphML in UTF-8") from None
    name = root.tag.rpartition("}")[2]
    if name != "graphml":
        raise InputError(f"{where}: found <{name:.40}>, expected <graphml>")
    graphs = root.findall(".//{*}graph")
    if len(graphs) != 1:
        raise InputError(f"{where}: found {'a second' if graphs else 'no'} <graph>, expected one")
    if graphs[0].find("{*}hyperedge") is not None:
        raise InputError(f"{where}: found <hyperedge>, expected edges between two nodes")
    keys = {_needed(key, "id", where): key for key in root.findall("{*}key")}
    return {
        "directed": graphs[0].get("edgedefault") == "directed"
        or graphs[0].find("{*}edge[@directed='true']") is not None,
        "nodes": _items(graphs[0], "node", keys, where),
        "edges": _items(graphs[0], "edge", keys, where),
    }


class _PlainBuilder(ElementTree.TreeBuilder):
    """Refuses a document type."""

    def __init__(self, where: str) -> None:
        super().__init__()
        self._where = where

    def doctype(self, *_: object) -> None:
        raise InputError(f"{self._where}: found a document type, expected GraphML without one")


def _items(
    graph: ElementTree.Element, domain: str, keys: Mapping[str, ElementTree.Element], where: str
) -> list[dict[str, Any]]:
    """The graph's nodes or edges, with the defaults of their attributes."""
    names = {number: key.get("attr.name", number) for number, key in keys.items()}
    usual = {
        names[number]: default.text or ""
        for number, key in keys.items()
        if key.get("for", "all") in (domain, "all")
        and (default := key.find("{*}default")) is not None
    }
    items = []
    for element in graph.findall(f"{{*}}{domain}"):
        item: dict[str, Any] = {}
        for data in element.findall("{*}data"):
            number = _needed(data, "key", where)
            if number not in names:
                raise InputError(f"{where}: found data of {number!r:.80}, expected a known <key>")
            if names[number] in item:
                raise InputError(f"{where}: found {names[number]!r:.80} twice in one <{domain}>")
            item[names[number]] = data.text or ""
        if (drawn := element.find(".//{*}Geometry[@x][@y]")) is not None and domain == "node":
            # yEd's, of a corner; its files say nothing else of ours.
            item = _middle(drawn) | item
        # What the element says itself counts.
        items.append(usual | item | {end: _needed(element, end, where) for end in _ENDS[domain]})
    return items


def _middle(drawn: ElementTree.Element) -> dict[str, Any]:
    """The middle of what yEd has drawn; nothing where that is no place."""
    try:
        x, y, width, height = (float(drawn.get(key, "0")) for key in ("x", "y", "width", "height"))
    except ValueError:
        return {}
    return {"x": str(x + width / 2), "y": str(y + height / 2)}


def _needed(element: ElementTree.Element, key: str, where: str) -> str:
    value = element.get(key)
    if value is None:
        raise InputError(f"{where}: found <{element.tag.rpartition('}')[2]}> without {key!r}")
    return value


def _type(value: object) -> str:
    kinds = {bool: "boolean", int: "long", float: "double"}
    return kinds.get(type(value), "string")


def json_of(topology: Topology) -> str:
    """The network as node-link JSON; :func:`read_topology` reads it, and so does
    ``networkx.node_link_graph``."""
    return json.dumps(to_node_link(topology), indent=2, ensure_ascii=False) + "\n"


def yaml_of(topology: Topology) -> str:
    """The network as the section of adon.yml, with units where they say exactly the same."""
    section = topology_to_dict(topology)
    for link in section["links"]:
        _say(link, "capacity", format_rate(link["capacity"]), parse_rate)
        for key in ("delay", "jitter"):
            if key in link:
                _say(link, key, f"{1e3 * link[key]:.6g} ms", parse_duration)
    text: str = yaml.safe_dump(
        {"topology": section}, sort_keys=False, allow_unicode=True, width=100
    )
    return text


def _say(link: dict[str, Any], key: str, words: str, read: Callable[[str], float]) -> None:
    if read(words) == link[key]:
        link[key] = words


def _content(file: Path) -> bytes:
    try:
        # Not more than can be meant: a device may have no end.
        with file.open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise InputError(f"{file}: cannot be read: {error.strerror}") from None
    except ValueError as error:  # a name with a null byte
        raise InputError(f"{str(file)!r}: {error}") from None
    if len(content) > MAX_BYTES:
        raise InputError(f"{file}: found more than {MAX_BYTES >> 20} MiB, expected a network")
    return content


def _json(content: bytes, file: Path) -> Any:
    def no_number(word: str) -> None:
        raise InputError(f"{file}: found the number {word}, expected finite ones")

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        attributes: dict[str, Any] = {}
        for key, value in pairs:
            if key in attributes:
                raise InputError(f"{file}: key {key[:80]!r} is given twice in one object")
            attributes[key] = value
        return attributes

    try:
        text = content.decode("utf-8-sig")
        return json.loads(text, parse_constant=no_number, object_pairs_hook=once)
    except json.JSONDecodeError as error:
        raise InputError(f"{file}, line {error.lineno}: {error.msg}, expected JSON") from None
    except UnicodeDecodeError:
        raise InputError(f"{file}: found bytes that are not UTF-8, expected JSON") from None
    except RecursionError:
        raise InputError(
            f"{file}: found too many levels, expected a list of nodes and edges"
        ) from None
    except ValueError:  # a number of thousands of digits
        raise InputError(
            f"{file}: found a number that is too long, expected shorter ones"
        ) from None
