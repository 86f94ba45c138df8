"""Show, draw, check and convert the network that the broker manages."""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from adon.cli.live import watch
from adon.cli.options import client, instant_of
from adon.cli.output import Column, duration, note, print_fields, print_records
from adon.cli.parsing import START, Noun, add_broker, add_output, add_plot, config, flag, option
from adon.cli.terminal import below_table
from network_provisioner.base.errors import AdonError, InputError
from network_provisioner.base.instants import local_time
from network_provisioner.base.units import format_rate

NOUN = Noun("topology", __doc__)


@NOUN.verb(
    "show",
    option(
        "--at", "time to show: '+2 h', ISO 8601 such as 2026-11-21T14:00Z, or Unix seconds "
        "(default: now)", "TIME",
    ),
    option("--end", "show all reservations from --at to this time", "TIME"),
    flag(
        "--discovered", "let the controller discover links (takes seconds), and show differences "
        "from adon.yml; exit code 1 if there are any",
    ),
    option(
        "--routes", "show the paths of best effort and transits, between all sites or from and to "
        "SITE, with the reasons", "SITE", nargs="?", const="",
    ),
    add_plot,
    add_broker,
    add_output,
    watch,
)  # fmt: skip
def _show(args: argparse.Namespace) -> int:
    """List all links, in both directions, with capacity and current reservations.

    'load' is the reserved share of the capacity. 'free' can still be reserved; a part of each link
    always remains for best effort. 'granted' is what transfers may use now: their reservations plus
    their shares of unreserved bandwidth. 'delay' is one-way.

    Examples:
      adon topology show
      adon topology show --plot network.html           a drawing
      adon topology show --at +2h                      what is reserved for that time
      adon topology show --at +1h --end +3h            who holds what during these two hours
      adon topology show --routes mu                   which paths mu's packets take, and why
      adon topology show --discovered                  differences from the real network
    """
    if args.discovered:
        return _discovered(args)
    if args.routes is not None:
        return _routes(args)
    now = time.time()
    at, until = instant_of(args.at, "--at", now), instant_of(args.end, "--end", now)
    broker = client(args)
    data = broker.topology(at, until)
    data["problem"] = broker.health()["problem"]
    if args.plot:
        _plot(args, data)
    return (_held if args.end else _loads)(args, data)


def _discovered(args: argparse.Namespace) -> int:
    data = client(args).discovered()
    differences = [str(difference) for difference in data["differences"]]
    summary = f"switches {len(data['switches'])}, links between them {len(data['links'])}"
    records = [{"difference": difference} for difference in differences]
    same = f"the network is as described: {summary}"
    print_fields(args, records, lambda: "\n".join(differences) or same, data)
    return 1 if differences else 0


def _routes(args: argparse.Namespace) -> int:
    columns = (
        Column("src", "from"),
        Column("dst", "to"),
        Column("who"),
        Column("path", "path", _by_ports, ("next_hops",)),
        Column("rtt_s", "rtt>"),
        Column("rate_bps", "rate>"),
        Column("state", cell=lambda state, failed: "failed" if failed else state, also=("failed",)),
        Column("why", cell=lambda why, failed: failed or why, also=("failed",)),
    )
    return print_records(args, columns, client(args).routes(args.routes))


@NOUN.verb(
    "drain",
    option("element", "a switch, or a link such as s1-s2", "ELEMENT", nargs="?"),
    START,
    option("--end", "end (default: when it is undone)", "TIME"),
    option("--note", "the reason, for users to read", "TEXT", default=""),
    flag("--undo", "put ELEMENT back into service"),
    add_broker,
    add_output,
)
def _drain(args: argparse.Namespace) -> int:
    """Take a link or switch out of service for maintenance, without an interruption.

    One minute before the start, transits move to other paths. Without room there, they wait or
    continue as best effort. Advance reservations move at once; the answer names those that cannot
    move. Best effort takes other links if there are any. While a drain lasts, failures of the link
    or switch are not reported. Without ELEMENT, the drains are listed.

    Examples:
      adon topology drain s1-s2 --start 2026-12-01T22:00Z --end 2026-12-02T02:00Z --note optics
      adon topology drain s2                           now, until --undo
      adon topology drain                              list the drains, and what still uses them
      adon topology drain s2 --undo                    back into service
    """
    given = args.start or args.end or args.note
    if args.element is None and (given or args.undo):
        raise InputError("a drain needs ELEMENT: a switch, or a link such as s1-s2")
    if args.undo and given:
        raise InputError("--undo takes no other options of a drain")
    broker, now = client(args), time.time()
    if args.element is None:
        drains = broker.drains()
    elif args.undo:
        drains = [broker.cancel_drain(args.element)]
    else:
        start, end = instant_of(args.start, "--start", now), instant_of(args.end, "--end", now)
        drains = [broker.drain(args.element, start or 0.0, end or 0.0, args.note)]
    columns = (
        Column("element"),
        Column("at", "from", local_time),
        Column("until", cell=lambda until: local_time(until) if until else "-"),
        Column("active"),
        Column("on", "transits", _count),
        Column("reserved", cell=_count),
        Column("note"),
    )
    print_records(args, columns, drains, none="no drains")
    for drain in drains:
        for name in drain["reserved"]:
            note(f"reservation {name} needs {drain['element']} in that time")
    return 0


def _count(ids: Sequence[str]) -> str:
    return str(len(ids))


def _by_ports(path: Sequence[str], next_hops: Sequence[dict[str, Any]]) -> str:
    """The nodes of a path, with the ports that switches send to."""
    ports = {hop["switch"]: f":{hop['out_port']}" for hop in next_hops}
    return " > ".join(f"{node}{ports.get(node, '')}" for node in path) or "-"


def _plot(args: argparse.Namespace, data: dict[str, Any]) -> None:
    from adon.dashboard.layout import layout_of
    from adon.dashboard.standalone import Figure, page

    names = [node["name"] for node in data["nodes"]]
    given = {n["name"]: (n["x"], n["y"]) for n in data["nodes"] if n.get("x") is not None}
    layout = layout_of(names, [(link["a"], link["b"]) for link in data["links"]], given)
    title = "Reserved bandwidth" + (f" on {local_time(data['at'])}" if data.get("at") else "")
    network = Figure("network", {"topology": data, "layout": layout})
    args.plot.write_text(page(title, [network]), encoding="utf-8")


def _loads(args: argparse.Namespace, data: dict[str, Any]) -> int:
    records = [
        {"vlan": None, "granted_bps": 0, **k, **load} for k in data["links"] for load in k["load"]
    ]
    columns = (
        Column("from", "link", "{} > {}".format, ("to",)),
        Column("layer"),
        *([Column("vlan", "vlan>")] if any(link.get("vlan") for link in data["links"]) else []),
        Column("capacity_bps", "capacity>"),
        Column("reserved_bps", "reserved>"),
        Column("reserved_bps", "load>", lambda b, of: f"{100 * b / of:.0f} %", ("capacity_bps",)),
        Column(
            "reservable_bps", "free>", lambda most, bps: format_rate(most - bps), ("reserved_bps",)
        ),
        Column("granted_bps", "granted>", format_rate),
        Column("delay_s", "delay>", duration),
        Column("transits"),
    )
    return print_records(args, columns, records, document=data, text=partial(_with_warnings, data))


def _with_warnings(data: dict[str, Any], shown: str) -> str:
    warnings = [str(warning) for warning in data.get("warnings", ())]
    if data["problem"]:
        warnings.append(f"degraded: {data['problem']}")
    ends = (f"{k['a']}-{k['b']}" for k in data["links"] if k.get("unknown"))
    warnings += [f"link {end}: it is unknown whether it works" for end in dict.fromkeys(ends)]
    warnings += dict.fromkeys(str(k["failed"]) for k in data["links"] if k.get("drained"))
    return "\n".join((shown, *below_table(warnings)))


def _held(args: argparse.Namespace, data: dict[str, Any]) -> int:
    records = [
        {"from": load["from"], "to": load["to"], **held}
        for link in data["links"]
        for load in link["load"]
        for held in load["holders"]
    ]
    columns = (
        Column("from", "link", "{} > {}".format, ("to",)),
        Column("start", "from"),
        Column("end", "until"),
        Column("reserved_bps", "reserved>"),
        Column("id", "transit"),
    )

    def text(shown: str) -> str:
        none = (
            f"nothing is reserved from {local_time(data['at'])} until {local_time(data['until'])}"
        )
        return _with_warnings(data, shown if records else none)

    return print_records(args, columns, records, document=data, text=text)


@NOUN.verb("check", option("file", "an adon.yml, .json or .graphml", "FILE", Path), add_output)
def _check(args: argparse.Namespace) -> int:
    """Check whether the broker would accept a network, and print its messages.

    FILE is an adon.yml, or a file that 'adon topology export' writes. An error is one line on
    standard error and exit code 2. Probable mistakes, such as an unreachable site, are printed, but
    the broker would start. No switch is contacted.

    Examples:
      adon topology check adon.yml
      adon topology export --discovered --format yaml > found.yml && adon topology check found.yml
    """
    from adon.service.serve import read_settings
    from adon.service.wiring import make_controller
    from network_provisioner.topology.data import topology_from_dict
    from network_provisioner.topology.files import read_topology
    from network_provisioner.topology.graph import LINK

    if args.file.suffix.lower() in (".json", ".graphml"):
        network = topology_from_dict(read_topology(args.file))
    else:
        config, *_ = read_settings(args.file)
        network = topology_from_dict(config.topology)
        try:
            make_controller(config.controller, network)
        except AdonError as error:
            raise InputError(f"{args.file}: {error}") from None
    kinds = Counter(node.kind for node in network.nodes.values() if node.kind != LINK)
    counts = {**kinds, "link": len(network.whole_links)}
    counts_text = ", ".join(f"{kind} {count}" for kind, count in counts.items())
    lines = [f"{args.file}: the broker accepts it: {counts_text}", *network.warnings]
    record = {"counts": counts, "warnings": network.warnings}
    return print_fields(args, record, lambda: "\n".join(lines))


@NOUN.verb(
    "export",
    config("adon.yml with the network"),
    option("--format", "output format", choices=("graphml", "json", "yaml"), default="graphml"),
    option("--output", "output file (default: standard output)", "FILE", Path),
    flag(
        "--discovered",
        "export the switches and links that the controller discovers, instead of adon.yml",
    ),
    add_broker,
)
def _export(args: argparse.Namespace) -> int:
    """Write the network of adon.yml in another format.

    Other programs can read it, and adon.yml can name it as a file. graphml and json (NetworkX
    node-link) contain all that adon.yml says about the network; yaml is the section 'topology'.
    Probable mistakes, such as an unreachable site, are printed on standard error.

    Examples:
      adon topology export --format graphml > network.graphml
      adon topology export --config examples/adon.yml --format yaml
      adon topology export --discovered --format yaml            as a start for an adon.yml
    """
    from adon.config.adon_yml import load_config
    from network_provisioner.topology.data import topology_from_dict
    from network_provisioner.topology.discovery import section_of
    from network_provisioner.topology.files import graphml_of, json_of, yaml_of

    section, differences = (
        section_of(client(args).discovered())
        if args.discovered
        else (load_config(args.config).topology, [])
    )
    topology = topology_from_dict(section)
    text = {"graphml": graphml_of, "json": json_of, "yaml": yaml_of}[args.format](topology)
    if args.output:
        args.output.write_text(text, encoding="utf-8")
    else:
        print(text, end="")
    for message in (*differences, *topology.warnings):
        note(message)
    return 0
