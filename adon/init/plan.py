"""From what was found and answered to the text of an adon.yml. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import PurePath
from typing import Any

import yaml

from adon.init.sites import Dtn
from network_provisioner.base.fields import format_dpid
from network_provisioner.base.units import format_rate
from network_provisioner.controllers.openflow.scan import HostPort
from network_provisioner.topology.data import topology_from_dict
from network_provisioner.topology.discovery import Discovered, section_of

SHARED_PART = 0.5


@dataclass(frozen=True, slots=True)
class Facts:
    """What was found: nodes by site, switches and links, and where nodes answered, by address."""

    sites: Mapping[str, Sequence[Dtn]]
    network: Discovered
    hosts: Mapping[str, HostPort]

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
    ``tokens`` are entries by the file of each."""

    names: Mapping[int, str]
    switches_listen: str
    broker_listen: str = "127.0.0.1:8470"
    shared: frozenset[str] = frozenset()
    devices: frozenset[str] = frozenset()
    execute: Sequence[str] = ()
    secure: bool = False
    folder: str = ""
    tokens: Sequence[Mapping[str, Any]] = field(default_factory=tuple)


def default_names(network: Discovered, before: Mapping[str, Any]) -> dict[int, str]:
    """Names of switches: as an earlier ``topology`` section has them, else s1, s2, … in the order
    of the datapath ids."""
    known = {}
    if before:
        nodes = topology_from_dict(before).nodes.values()
        known = {node.dpid: node.name for node in nodes if node.dpid in network.ports}
    free = (f"s{number}" for number in count(1))
    names = dict(known)
    for dpid in sorted(network.ports.keys() - known.keys()):
        names[dpid] = next(name for name in free if name not in known.values())
    return dict(sorted(names.items()))


def topology_section(facts: Facts, choices: Choices) -> tuple[dict[str, Any], list[str]]:
    """Nodes and links as ``topology`` in adon.yml has them, and in words what was assumed."""
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
        dpid, number = place.end
        port, switch = ports[dpid][number], choices.names[dpid]
        if not port.speed_bps:
            notes.append(f"link {site}-{switch}: no port says its speed, 1 Gb/s assumed")
        link = {"a": site, "b": switch, "layer": "lan", "capacity": port.speed_bps or 1e9}
        link["ports"] = {switch: number}
        if port.name in choices.devices:
            link["devices"] = {switch: port.name}
        section["links"].append(link)
    for node in section["nodes"]:
        node["dpid"] = format_dpid(node["dpid"])
    for link in section["links"]:
        link["capacity"] = format_rate(link["capacity"])
    return {"nodes": sites + section["nodes"], "links": section["links"]}, notes


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
        rtt_s = rtts.get(node.get("address", ""))
        lines.append(f"    - {_flow(node)}" + ("" if rtt_s is None else f"   # {_rtt(rtt_s)}"))
    lines += [
        "  links:",
        "    # capacity: as ports report it, in each direction; half of it where others share.",
        "    # Add what no port knows: 'delay: 20 ms' (one way), and paths through routers.",
    ]
    lines += [f"    - {_flow(link)}" for link in section["links"]]
    lines += [f"    # {words}" for words in notes]
    lines += ["", "controller:", "  driver: openflow"]
    lines.append(f"  listen: {_flow(choices.switches_listen)}   # where the switches connect")
    if choices.execute:
        lines.append(f"  exec: {_flow(list(choices.execute))}   # put before tc")
    if not choices.devices:
        lines.append(
            "  # No port is a device of this machine: rates are kept by meters, if at all."
        )
        lines.append("  bandwidth: auto")
    lines += ["", "broker:", f"  listen: {_flow(choices.broker_listen)}"]
    lines.append("  # Relative paths count from the folder of this file.")
    for key, name in (("state", "adon-broker.sqlite"), ("archive", "adon-archive.sqlite")):
        lines.append(f"  {key}: {_flow(str(PurePath(choices.folder, name)))}")
    if choices.secure:
        lines += ["", "# Who may ask: docs/security.md. Each token is in the file of its name."]
        lines += ["security:", "  tls: {certificate: broker.pem, key: broker.key}", "  tokens:"]
        lines += [f"    - {_flow(dict(entry))}" for entry in choices.tokens]
        lines += ["", "# Each site's agent measures: 'adon agent run' with the folder agents/SITE."]
        lines += ["monitoring:", "  agents:"]
        lines += [
            f"    - {_flow({'name': site, 'address': dtns[0].address})}"
            for site, dtns in facts.attached.items()
        ]
    return "\n".join(lines) + "\n"


def agent_file(site: str, url: str) -> str:
    """The configuration of a site's agent, which lies with token and certificate in one folder."""
    settings = {"name": site, "broker": url, "token_file": "token", "ca": "broker.pem"}
    return (
        f"# The agent of site {site} (docs/agents.md): copy this folder to its machine, and run\n"
        "# 'adon agent run --config agent.yml' there.\n"
        + yaml.safe_dump({**settings, "state": "state"}, sort_keys=False)
    )


def _rtt(rtt_s: float) -> str:
    return f"round trip from here: {rtt_s * 1e3:.3g} ms"


def _flow(value: object) -> str:
    text = yaml.safe_dump(value, sort_keys=False, default_flow_style=True, width=1000)
    return text.removesuffix("...\n").strip()
