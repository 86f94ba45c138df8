"""What ``adon init`` changes in an adon.yml that is there: what is new in the network, and what is
otherwise than it says. All else stays, comments too. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from adon.config.sections import Config
from adon.config.yamltext import with_appended, with_value
from adon.init.plan import Choices, Facts, agents, tls, topology_section
from network_provisioner.base import fields

Data = Mapping[str, Any]


def updated(text: str, before: Config, facts: Facts, choices: Choices) -> str:
    """The file ``text``, which says ``before``, with what was found and chosen."""
    text = with_network(text, before.topology, topology_section(facts, choices)[0])
    for keys, old, new in (
        (("controller", "listen"), before.controller.listen, choices.switches_listen),
        (("controller", "exec"), before.controller.exec, list(choices.execute)),
        (("broker", "listen"), before.broker.listen, choices.broker_listen),
    ):
        if old != new:
            text = with_value(text, keys, new)
    if not choices.tokens:
        return text
    if before.security.tls is None:
        text = with_value(text, ("security", "tls"), tls())
    tokens = {token.name for token in before.security.tokens}
    for entry in choices.tokens:
        if entry["name"] not in tokens:
            text = with_appended(text, ("security", "tokens"), dict(entry))
    measuring = {agent.name for agent in before.monitoring.agents} if before.monitoring else set()
    for agent in agents(facts):
        if agent["name"] not in measuring:
            text = with_appended(text, ("monitoring", "agents"), agent)
    return text


def with_network(text: str, before: Data, network: Data) -> str:
    """The file with the nodes and links of ``network`` that the ``topology`` section ``before``
    does not have, and with addresses, ports, capacities and delays that differ."""
    nodes = list(before["nodes"])
    for node in network["nodes"]:
        # Switches and routers have the names of earlier ones.
        number = next((n for n, old in enumerate(nodes) if old["name"] == node["name"]), None)
        if number is None:
            text = with_appended(text, ("topology", "nodes"), node)
            continue
        for key, value in _node_changes(nodes[number], node):
            text = with_value(text, ("topology", "nodes", number, key), value)
    links = list(before["links"])
    for link in network["links"]:
        number = _link_of(links, link)
        if number is None:
            text = with_appended(text, ("topology", "links"), link)
            continue
        for key, value in _link_changes(links[number], link):
            text = with_value(text, ("topology", "links", number, key), value)
    return text


def new_links(before: Data, network: Data) -> list[Data]:
    """The links of ``network`` that ``before`` does not have."""
    return [link for link in network["links"] if _link_of(before.get("links", ()), link) is None]


def _node_changes(old: Data, node: Data) -> Iterator[tuple[str, Any]]:
    if node["kind"] == "router":
        macs = {**(old.get("macs") or {}), **node["macs"]}
        if _macs(macs) != _macs(old.get("macs") or {}):
            yield "macs", macs
    if node["kind"] != "site":
        return
    hosts = {host["address"]: host for host in (node, *node.get("hosts", ()))}
    others = list(old.get("hosts") or ())
    first = hosts.pop(str(old.get("address", "")), None)
    if first is None:  # it has another address now, or is no longer known by it
        first = hosts.pop(node["address"])
        yield "address", first["address"]
    if not old.get("mac") or fields.mac(old["mac"], "mac") != first["mac"]:
        yield "mac", first["mac"]
    known = {str(host.get("address")) for host in others}
    if added := [_host(host) for address, host in hosts.items() if address not in known]:
        yield "hosts", others + added


def _host(host: Data) -> dict[str, Any]:
    name = host.get("name") if "kind" not in host else host.get("dtn")
    return {"address": host["address"], "mac": host["mac"]} | ({"name": name} if name else {})


def _macs(macs: Data) -> dict[str, str]:
    return {name: fields.mac(mac, "mac") for name, mac in macs.items()}


def _link_of(links: Sequence[Data], link: Data) -> int | None:
    """The one between the same nodes at the same ports; else one between them, where there is no
    other; else the only one of a site, which has moved."""
    nodes = {link["a"], link["b"]}
    between = [n for n, old in enumerate(links) if {old["a"], old["b"]} == nodes]
    for n in between:
        if dict(links[n].get("ports") or {}) == link["ports"]:
            return n
    if not between and link["layer"] == "lan":
        between = [n for n, old in enumerate(links) if link["a"] in (old["a"], old["b"])]
    return between[0] if len(between) == 1 else None


def _link_changes(old: Data, link: Data) -> Iterator[tuple[str, Any]]:
    ends = {link["a"], link["b"]}
    for end, other in (("a", "b"), ("b", "a")):
        if old[end] not in ends:
            yield end, (ends - {old[other]}).pop()
    if dict(old.get("ports") or {}) != link["ports"]:
        yield "ports", link["ports"]
        if old.get("devices"):
            yield "devices", link.get("devices", {})
    if "delay" in link and "delay" not in old and "rtt" not in old:
        yield "delay", link["delay"]
