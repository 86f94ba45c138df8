"""The network as plain data: read with units and checked, and written again without loss."""

from __future__ import annotations

from collections.abc import Mapping
from reprlib import repr as shown
from typing import Any

from network_provisioner.base import fields
from network_provisioner.base.errors import InputError
from network_provisioner.base.units import parse_duration, parse_rate
from network_provisioner.topology.graph import Link, Node, Topology

NODE_KEYS = ("name", "kind", "dtn", "address", "mac", "dpid", "macs", "dmz")
LINK_KEYS = (
    "a", "b", "capacity", "delay", "rtt", "jitter", "loss", "layer", "vlan", "ports", "devices",
)  # fmt: skip


def topology_from_dict(data: Mapping[str, Any]) -> Topology:
    """Build a topology from the ``topology`` section of adon.yml.

    ``{"nodes": [{name, kind, dtn?, address?, mac?, dpid?, macs?, dmz?}], "links": [{a, b, capacity,
    delay? | rtt?, jitter?, loss?, layer?, vlan?, ports?, devices?}]}``; capacities and times carry
    units. Raises InputError.
    """
    fields.known_keys(data, ("nodes", "links"), "topology")
    nodes = [_node(item) for item in fields.items(data, "nodes", "topology")]
    return Topology(nodes, [_link(item) for item in fields.items(data, "links", "topology")])


def topology_to_dict(topology: Topology) -> dict[str, Any]:
    """Plain data, JSON-ready, in bits per second and seconds; :func:`topology_from_dict` makes the
    same topology of it."""
    return {
        "nodes": [_node_data(node) for node in topology.nodes.values()],
        "links": [_link_data(link) for link in topology.links],
    }


def _node_data(node: Node) -> dict[str, Any]:
    values = {
        "dtn": node.dtn,
        "address": node.address,
        "mac": node.mac,
        "dpid": node.dpid,
        "macs": dict(node.macs or {}),
        "dmz": node.dmz,
    }
    return {"name": node.name, "kind": node.kind} | {k: v for k, v in values.items() if v}


def _link_data(link: Link) -> dict[str, Any]:
    values = {
        "delay": link.delay_s,
        "loss": link.loss,
        "vlan": link.vlan,
        "ports": dict(link.ports or {}),
        "devices": dict(link.devices or {}),
    }
    found = {"a": link.a, "b": link.b, "capacity": link.capacity_bps, "layer": link.layer}
    if link.jitter_s is not None:
        found["jitter"] = link.jitter_s
    return found | {key: value for key, value in values.items() if value}


def _node(item: Mapping[str, Any]) -> Node:
    name = fields.text(item, "name", "topology: a node")
    label = f"topology: node {name!r}"
    fields.known_keys(item, NODE_KEYS, label)
    kind = fields.text(item, "kind", label)
    dtn, dmz = item.get("dtn", ""), item.get("dmz", False)
    if not isinstance(dmz, bool):
        raise InputError(f"{label}: dmz is {shown(dmz)}, expected true or false")
    if kind != "site" and (dtn or dmz):
        raise InputError(f"{label}: {'dtn' if dtn else 'dmz'} of a {kind}, expected only at sites")
    return Node(
        name,
        kind,
        fields.address(item.get("address", ""), f"{label}: address"),
        fields.mac(item.get("mac", ""), f"{label}: mac"),
        fields.whole(item.get("dpid", 0), f"{label}: dpid", 2**64 - 1),
        fields.mapping(item, "macs", label, fields.mac) or None,
        dmz,
        fields.name(dtn, f"{label}: dtn") if dtn != "" else "",
    )


def _link(item: Mapping[str, Any]) -> Link:
    a, b = (fields.text(item, end, "topology: a link") for end in ("a", "b"))
    label = f"topology: link {a}-{b}"
    fields.known_keys(item, LINK_KEYS, label)
    if "capacity" not in item:
        raise InputError(f"{label} has no capacity, expected for example '200 Mb/s'")
    if "rtt" in item and "delay" in item:
        raise InputError(f"{label} has delay and rtt, expected one of both")
    ports = fields.mapping(item, "ports", label, lambda v, what: fields.whole(v, what, 2**32 - 1))
    devices = fields.mapping(item, "devices", label, fields.name)
    for key, given in (("ports", ports), ("devices", devices)):
        for end in given or ():
            if end not in (a, b):
                raise InputError(f"{label}: {key} names {end!r}, expected {a!r} or {b!r}")

    def seconds(key: str) -> float | None:
        return parse_duration(item[key], f"{label}: {key}") if key in item else None

    return Link(
        a,
        b,
        capacity_bps=parse_rate(item["capacity"], f"{label}: capacity"),
        delay_s=seconds("delay") or (seconds("rtt") or 0.0) / 2,
        loss=fields.number(item.get("loss", 0.0), f"{label}: loss", "a fraction in [0, 1)"),
        layer=fields.name(item.get("layer", "lan"), f"{label}: layer"),
        ports=ports or None,
        devices=devices or None,
        jitter_s=seconds("jitter"),
        vlan=fields.whole(item.get("vlan", 0), f"{label}: vlan", 4094),
    )
