"""Networks as NetworkX's node-link data: nodes with an id, edges with source and target.

Attributes are those of adon.yml. Where a format knows no mappings (GraphML), ``ports``, ``devices``
and ``macs`` are JSON in a text; they name the nodes they mean, because an undirected graph may turn
an edge around.

Files come from other programs too. Attributes that are not ours are left aside, but not those that
look like one of ours with a slip of the pen.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from difflib import get_close_matches
from reprlib import repr as shown
from typing import Any

from network_provisioner.base import fields
from network_provisioner.base.errors import InputError
from network_provisioner.topology.data import LINK_KEYS, NODE_KEYS, topology_to_dict
from network_provisioner.topology.graph import Topology

_JSON = ("ports", "devices", "macs", "hosts")
_WHOLE = ("dpid", "vlan")
_BOOLEANS = ("dmz", "guaranteed")
_DECIMAL = re.compile("[1-9][0-9]{0,14}")  # of a dpid: other texts are hexadecimal
_TRUTH = {"true": True, "True": True, "1": True, "false": False, "False": False, "0": False}
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
    edges = fields.items(data, "links" if "links" in data else "edges", "topology")
    return {"nodes": nodes, "links": [_link(n + 1, item) for n, item in enumerate(edges)]}


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
    return {"a": a, "b": b, **_ours(item, LINK_KEYS, ends, f"link {a}-{b}")}


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
    found = {}
    for key, value in item.items():
        if key in passed:
            continue
        if key in known:
            found[key] = _meant(key, value)
            continue
        near = get_close_matches(str(key), known, 1, _SLIP)
        if near:
            raise InputError(
                f"topology: {label} has the unknown key {shown(key)}, did you mean {near[0]!r}?"
            )
    return found


def _meant(key: str, value: Any) -> Any:
    """GraphML writes everything as text, and some programs every number with a point. What is not
    understood stays as it is, to be refused by its name."""
    if key in _WHOLE and isinstance(value, float) and value.is_integer():
        return int(value)
    if not isinstance(value, str):
        return value
    try:
        if key in _JSON:
            return json.loads(value)
        if key == "vlan" or (key == "dpid" and _DECIMAL.fullmatch(value)):
            return int(value)
        return (
            float(value)
            if key in ("loss", "x", "y")
            else _TRUTH[value]
            if key in _BOOLEANS
            else value
        )
    except (ValueError, KeyError, RecursionError):
        return value
