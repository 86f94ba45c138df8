"""From what was found and answered to the text of an adon.yml. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import PurePath
from typing import Any

import yaml

from adon.config.yamltext import flow
from adon.init.sites import Dtn
from network_provisioner.base.fields import format_dpid
from network_provisioner.base.units import format_rate
from network_provisioner.controllers.openflow.scan import Ends, HostPort, Passage
from network_provisioner.topology.data import topology_from_dict
from network_provisioner.topology.discovery import ASSUMED_BPS, Discovered, End, section_of

SHARED_PART = 0.5
_LEAST_DELAY_S = 0.5e-3  # below it a measurement says more of this machine


@dataclass(frozen=True, slots=True)
class Facts:
    """What was found: nodes by site, switches and links, where nodes answered, by address, one-way
    seconds over links, and passages through routers."""

    sites: Mapping[str, Sequence[Dtn]]
    network: Discovered
    hosts: Mapping[str, HostPort]
    delays_s: Mapping[Ends, float] = field(default_factory=dict)
    passages: Sequence[Passage] = ()

    @property
    def attached(self) -> dict[str, list[Dtn]]:
        """The sites with the nodes that answered at the same switch port as the first of them: a
        site has one link."""
        sites = {}
        for site, dtns in self.sites.items():
            answering = [dtn for dtn in dtns if dtn.address in self.hosts]
            if answering:
                end = self.hosts[answering[0].address].end
                sites[site] = [dtn for dtn in answering if self.hosts[dtn.address].end == end]
        return sites


@dataclass(frozen=True, slots=True)
class Choices:
    """What people answered. ``names`` of switches by datapath id; ``shared`` are links, by the
    names of their ends, that others use too; ``devices`` are network devices that tc reaches;
    ``folder`` is where the broker keeps its files, "" for that of adon.yml;
    ``tokens`` are entries by the file of each; ``before`` is an earlier ``topology`` section."""

    names: Mapping[int, str]
    switches_listen: str
    broker_listen: str = "127.0.0.1:8470"
    shared: frozenset[str] = frozenset()
    devices: frozenset[str] = frozenset()
    execute: Sequence[str] = ()
    folder: str = ""
    tokens: Sequence[Mapping[str, Any]] = ()
    before: Mapping[str, Any] = field(default_factory=dict)


def default_names(network: Discovered, before: Mapping[str, Any]) -> dict[int, str]:
    """Names of switches: as an earlier ``topology`` section has them, else s1, s2, … in the order
    of the datapath ids."""
    known = {d: name for d, name in named_switches(before).items() if d in network.ports}
    free = (f"s{number}" for number in count(1))
    names = dict(known)
    for dpid in sorted(network.ports.keys() - known.keys()):
        names[dpid] = next(name for name in free if name not in _names(before))
    return dict(sorted(names.items()))


def named_switches(section: Mapping[str, Any]) -> dict[int, str]:
    """Names of the switches of a ``topology`` section by datapath id."""
    nodes = topology_from_dict(section).nodes.values() if section else ()
    return {node.dpid: node.name for node in nodes if node.dpid}


def topology_section(facts: Facts, choices: Choices) -> tuple[dict[str, Any], list[str]]:
    """Nodes and links as ``topology`` in adon.yml has them, and as text what was assumed."""
    ports = facts.network.ports
    network = {
        "switches": [
            {
                "dpid": dpid,
                "name": choices.names[dpid],
                "ports": [{"number": n, "speed_bps": p.speed_bps} for n, p in numbered.items()],
            }
            for dpid, numbered in sorted(ports.items())
        ],
        "links": [
            {"a": {"dpid": a, "port": m}, "b": {"dpid": b, "port": n}}
            for (a, m), (b, n) in sorted(facts.network.links)
        ],
    }
    section, notes = section_of(network)
    dpids = {name: dpid for dpid, name in choices.names.items()}
    for link in section["links"]:
        (a, m), (b, n) = sorted((dpids[end], port) for end, port in link["ports"].items())
        link.update(_delay(facts.delays_s.get(((a, m), (b, n)), 0.0)))
    routers, passages = _routers(facts, choices, notes)
    section["links"] += passages
    for link in section["links"]:
        if link_name(link) in choices.shared:
            link["capacity"] *= SHARED_PART
        devices = {end: ports[dpids[end]][port].name for end, port in link["ports"].items()}
        if set(devices.values()) <= choices.devices:
            link["devices"] = devices
    sites = []
    for site, (first, *others) in facts.attached.items():
        place = facts.hosts[first.address]
        node = {"name": site, "kind": "site", "address": first.address, "mac": place.mac}
        if first.name:
            node["dtn"] = first.name
        more = [
            {"address": dtn.address, "mac": facts.hosts[dtn.address].mac}
            | ({"name": dtn.name} if dtn.name else {})
            for dtn in others
        ]
        sites.append(node | ({"hosts": more} if more else {}))
        link = {"a": site, **_end(facts, choices, place.end, site, notes), "layer": "lan"}
        if (port := ports[place.end[0]][place.end[1]]).name in choices.devices:
            link["devices"] = {link["b"]: port.name}
        section["links"].append(link)
    for node in section["nodes"]:
        node["dpid"] = format_dpid(node["dpid"])
    for link in section["links"]:
        link["capacity"] = format_rate(link["capacity"])
    return {"nodes": [*sites, *section["nodes"], *routers], "links": section["links"]}, notes


def _end(facts: Facts, choices: Choices, end: End, other: str, notes: list[str]) -> dict[str, Any]:
    """What a link from ``other`` to a switch's port says of that port."""
    switch, speed_bps = choices.names[end[0]], facts.network.ports[end[0]][end[1]].speed_bps
    if not speed_bps:
        notes.append(f"link {other}-{switch}: no port reports its speed, 1 Gb/s assumed")
    return {"b": switch, "capacity": speed_bps or ASSUMED_BPS, "ports": {switch: end[1]}}


def _routers(
    facts: Facts, choices: Choices, notes: list[str]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Nodes and links of routers: passages that share a port are through the same ones. Half of
    the least delay of those through a port is its link's."""
    groups: list[dict[End, str]] = []
    for passage in facts.passages:
        joined = [group for group in groups if group.keys() & passage.macs.keys()]
        groups = [group for group in groups if group not in joined]
        groups.append({end: mac for part in (*joined, passage.macs) for end, mac in part.items()})
    nodes, links = [], []
    free = (name for n in count(1) if (name := f"r{n}") not in _names(choices.before))
    for group in groups:
        name = next(filter(None, (_router_at(end, choices) for end in group)), "") or next(free)
        ends = {choices.names[end[0]]: end for end in sorted(group, reverse=True)}
        macs = {switch: group[end] for switch, end in sorted(ends.items())}
        nodes.append({"name": name, "kind": "router", "macs": macs})
        for _, end in sorted(ends.items()):
            delay_s = min(p.delay_s for p in facts.passages if end in p.macs) / 2
            parts = _end(facts, choices, end, name, notes)
            links.append({"a": name, **parts, "layer": "l3"} | _delay(delay_s))
    return nodes, links


def _router_at(end: End, choices: Choices) -> str:
    """The router that an earlier configuration has at a port, "" for none."""
    switch = choices.names[end[0]]
    kinds = {node.get("name"): node.get("kind") for node in choices.before.get("nodes", ())}
    for link in choices.before.get("links", ()):
        other = link.get("b") if link.get("a") == switch else link.get("a")
        if (link.get("ports") or {}).get(switch) == end[1] and kinds.get(other) == "router":
            return str(other)
    return ""


def _names(section: Mapping[str, Any]) -> set[str]:
    return {node.get("name", "") for node in section.get("nodes", ())}


def _delay(seconds: float) -> dict[str, str]:
    return {"delay": f"{seconds * 1e3:.3g} ms"} if seconds >= _LEAST_DELAY_S else {}


def link_name(link: Mapping[str, Any]) -> str:
    """As questions and ``--shared`` name a link."""
    return f"{link['a']}-{link['b']}"


def rendered(facts: Facts, choices: Choices) -> str:
    """The text of adon.yml, with comments."""
    section, notes = topology_section(facts, choices)
    rtts = {dtn.address: dtn.rtt_s for dtns in facts.sites.values() for dtn in dtns}
    lines = [
        "# Made by 'adon init'. docs/topology.md explains the keys of the network,",
        "# examples/adon.yml all others.",
        "",
        "topology:",
        "  nodes:",
        "    # Sites: data transfer nodes by address, as they answered at a switch's port.",
    ]
    for node in section["nodes"]:
        if node["kind"] == "switch" and not any("Switches" in line for line in lines):
            lines.append("    # Switches, by OpenFlow datapath id.")
        if node["kind"] == "router" and not any("Routers" in line for line in lines):
            lines.append("    # Routers, by their MAC address at each switch.")
        rtt_s = rtts.get(node.get("address", ""))
        lines.append(f"    - {flow(node)}" + ("" if rtt_s is None else f"   # {_rtt(rtt_s)}"))
    lines += [
        "  links:",
        "    # capacity: as ports report it, in each direction; half of it on shared links.",
        "    # delay: one way, as measured.",
    ]
    lines += [f"    - {flow(link)}" for link in section["links"]]
    lines += [f"    # {note}" for note in notes]
    lines += ["", "controller:", "  driver: openflow"]
    lines.append(f"  listen: {flow(choices.switches_listen)}   # where the switches connect")
    if choices.execute:
        lines.append(f"  exec: {flow(list(choices.execute))}   # put before tc")
    if not choices.devices:
        lines.append("  # No port is a device of this machine, so only meters can limit rates.")
        lines.append("  bandwidth: auto")
    lines += ["", "broker:", f"  listen: {flow(choices.broker_listen)}"]
    lines.append("  # Relative paths count from the folder of this file.")
    for key, name in (("state", "adon-broker.sqlite"), ("archive", "adon-archive.sqlite")):
        lines.append(f"  {key}: {flow(str(PurePath(choices.folder, name)))}")
    if choices.tokens:
        lines += ["", "# Tokens and TLS: docs/security.md. Each token is in the file of its name."]
        lines += ["security:", f"  tls: {flow(tls())}", "  tokens:"]
        lines += [f"    - {flow(dict(entry))}" for entry in choices.tokens]
        lines += ["", "# Each site's agent measures: 'adon agent run' with the folder agents/SITE."]
        lines += ["monitoring:", "  agents:"]
        lines += [f"    - {flow(agent)}" for agent in agents(facts)]
    return "\n".join(lines) + "\n"


def tls() -> dict[str, str]:
    """The key ``tls`` of the section ``security``."""
    return {"certificate": "broker.pem", "key": "broker.key"}


def agents(facts: Facts) -> list[dict[str, Any]]:
    """The key ``agents`` of the section ``monitoring``."""
    return [{"name": s, "address": dtns[0].address} for s, dtns in facts.attached.items()]


def agent_file(site: str, url: str, folder: str) -> str:
    """The configuration of a site's agent, which lies with token and certificate in one folder;
    ``folder`` is where the package's agent keeps its files, "" for no package."""
    settings = {"name": site, "broker": url, "token_file": "token", "ca": "broker.pem"}
    settings["state"] = f"{folder}/agent" if folder else "state"
    return (
        f"# The agent of site {site} (docs/agents.md):\n"
        + "".join(f"# {line}\n" for line in agent_steps(bool(folder)))
        + yaml.safe_dump(settings, sort_keys=False)
        + "# Report connections and disks.\nsockets: true\ndisks: true\n"
    )


def agent_steps(of_package: bool) -> tuple[str, str]:
    """What to do with the folder of an agent."""
    if of_package:
        return (
            "copy its files to /etc/adon on its machine, with the package installed, and run there",
            "chown adon /etc/adon/token && systemctl enable --now adon-agent",
        )
    return "copy it to its machine, and run there", "adon agent run --config agent.yml"


def _rtt(rtt_s: float) -> str:
    return f"round trip from here: {rtt_s * 1e3:.3g} ms"
