"""The network as plain data: read with units and checked, and written again without loss."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from typing import Annotated, Any

from pydantic import Field, StrictBool

from network_provisioner.base import fields
from network_provisioner.base.errors import InputError, printable
from network_provisioner.base.schema import Duration, Name, Number, Rate, Schema, checked, read
from network_provisioner.topology.graph import LINK, Host, Link, Node, Topology

_Dpid = Annotated[int, checked(fields.dpid)]
_Port = Annotated[int, checked(fields.port)]
_Vlan = Annotated[int, checked(partial(fields.whole, most=4094))]
_Mac = Annotated[str, checked(fields.mac)]


class _NodeSchema(Schema):
    name: Name
    kind: Name
    dtn: Annotated[str, checked(lambda v, what: v if v == "" else fields.name(v, what))] = ""
    address: Annotated[str, checked(fields.address)] = ""
    mac: _Mac = ""
    dpid: _Dpid = 0
    macs: dict[Name, _Mac] | None = None
    dmz: StrictBool = False
    hosts: list[dict[str, Any]] = Field(default=[])
    urls: list[Name] = Field(default=[])
    was: Name | None = None
    x: Number | None = None
    y: Number | None = None


class _HostSchema(Schema):
    address: Annotated[str, checked(fields.addresses)]
    mac: _Mac = ""
    name: Annotated[str, checked(lambda v, what: v if v == "" else fields.name(v, what))] = ""


class _LinkSchema(Schema):
    name: Name | None = None
    a: Name
    b: Name
    capacity: Rate
    delay: Duration | None = None
    rtt: Duration | None = None
    jitter: Duration | None = None
    loss: Number = 0.0
    layer: Name = "lan"
    vlan: _Vlan = 0
    ports: dict[Name, _Port] | None = None
    devices: dict[Name, Name] | None = None
    guaranteed: StrictBool | None = None
    was: Name | None = None


class _TopologySchema(Schema):
    nodes: list[dict[str, Any]]
    links: list[dict[str, Any]]


NODE_KEYS = tuple(_NodeSchema.model_fields)
LINK_KEYS = tuple(_LinkSchema.model_fields)


def topology_from_dict(data: Mapping[str, Any]) -> Topology:
    """Build a topology from the ``topology`` section of adon.yml.

    ``{"nodes": [{name, kind, dtn?, address?, mac?, hosts?: [{address, mac?, name?}], urls?, dpid?,
    macs?, dmz?, was?, x?, y?}], "links": [{name?, a, b, capacity, delay? | rtt?, jitter?, loss?,
    layer?, vlan?, ports?, devices?, guaranteed?, was?}]}``; capacities and times carry units.
    Raises InputError.
    """
    section = read(_TopologySchema, data, "topology")
    nodes = [_node(number, item) for number, item in enumerate(section.nodes, 1)]
    return Topology(nodes, [_link(number, item) for number, item in enumerate(section.links, 1)])


def sources_of(data: Mapping[str, Any]) -> dict[str, str]:
    """The sites of a ``topology`` section by the prefixes of URLs that are there, and by the names
    and addresses of their hosts. Raises InputError."""
    nodes = [n for n in topology_from_dict(data).nodes.values() if n.kind == "site"]
    hosts = {known: n.name for n in nodes for h in n.hosts for known in (h.name, h.address)}
    return {k: v for k, v in hosts.items() if k} | {url: n.name for n in nodes for url in n.urls}


def topology_to_dict(topology: Topology) -> dict[str, Any]:
    """Plain data, JSON-ready, in bits per second and seconds; :func:`topology_from_dict` makes the
    same topology of it."""
    return {
        "nodes": [_node_data(node) for node in topology.nodes.values() if node.kind != LINK],
        "links": [_link_data(link) for link in topology.whole_links],
    }


def _node_data(node: Node) -> dict[str, Any]:
    values = {
        "dtn": node.dtn,
        "address": node.address,
        "mac": node.mac,
        "dpid": node.dpid and fields.format_dpid(node.dpid),
        "macs": dict(node.macs or {}),
        "dmz": node.dmz,
        "hosts": [_host_data(host) for host in node.others],
        "urls": list(node.urls),
        "was": node.was,
    }
    place = {} if node.x is None else {"x": node.x, "y": node.y}
    return {"name": node.name, "kind": node.kind} | {k: v for k, v in values.items() if v} | place


def _host_data(host: Host) -> dict[str, Any]:
    return {key: value for key, value in asdict(host).items() if value}


def _link_data(link: Link) -> dict[str, Any]:
    values = {
        "delay": link.delay_s,
        "loss": link.loss,
        "vlan": link.vlan,
        "ports": dict(link.ports or {}),
        "devices": dict(link.devices or {}),
        "was": link.was,
    }
    data: dict[str, Any] = {"name": link.name} if link.name else {}
    data |= {"a": link.a, "b": link.b, "capacity": link.capacity_bps, "layer": link.layer}
    if link.jitter_s is not None:
        data["jitter"] = link.jitter_s
    if link.guaranteed is not None:
        data["guaranteed"] = link.guaranteed
    return data | {key: value for key, value in values.items() if value}


def _node(number: int, item: dict[str, Any]) -> Node:
    name = item.get("name")
    label = f"topology: node {name!r}" if isinstance(name, str) else f"topology: node {number}"
    node = read(_NodeSchema, item, label)
    for key in ("dtn", "dmz", "hosts", "urls"):
        if node.kind != "site" and getattr(node, key):
            raise InputError(f"{label}: {key} of a {node.kind}, expected only at sites")
    if node.kind == "relay" and not ("." in node.address and node.mac):
        raise InputError(
            f"{label}: address {node.address!r} and mac {node.mac!r} of a relay, expected an IPv4 "
            "address and a MAC address"
        )
    if (node.x is None) != (node.y is None):
        raise InputError(f"{label}: found one of x and y, expected both")
    others = [
        Host(**dict(read(_HostSchema, host, f"{label}: host {n}")))
        for n, host in enumerate(node.hosts, 1)
    ]
    known = dict(node) | {
        "macs": node.macs or None,
        "others": tuple(others),
        "urls": tuple(node.urls),
        "was": node.was or "",
    }
    del known["hosts"]
    return Node(**known)


def _link(number: int, item: dict[str, Any]) -> Link:
    a, b = item.get("a"), item.get("b")
    named = isinstance(a, str) and isinstance(b, str)
    label = printable(f"topology: link {a}-{b}") if named else f"topology: link {number}"
    link = read(_LinkSchema, item, label)
    if link.was and not link.name:
        raise InputError(f"{label} was {link.was!r} and has no name, expected one")
    if link.rtt is not None and link.delay is not None:
        raise InputError(f"{label} has delay and rtt, expected one of both")
    for key in ("ports", "devices"):
        for end in getattr(link, key) or ():
            if end not in (a, b):
                raise InputError(f"{label}: {key} names {end!r}, expected {a!r} or {b!r}")
    return Link(
        link.a,
        link.b,
        capacity_bps=link.capacity,
        delay_s=link.delay or (link.rtt or 0.0) / 2,
        loss=link.loss,
        layer=link.layer,
        ports=link.ports or None,
        devices=link.devices or None,
        jitter_s=link.jitter,
        vlan=link.vlan,
        name=link.name or "",
        guaranteed=link.guaranteed,
        was=link.was or "",
    )
