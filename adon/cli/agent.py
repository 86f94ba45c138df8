"""Agents: measure at the end of a path when the broker's schedule says so."""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import threading
import time
from contextlib import ExitStack
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adon.cli.output import print_json
from adon.cli.parsing import CommandParser, Nouns, add_command, add_json, add_noun
from network_provisioner.base.errors import InputError, printable
from network_provisioner.base.units import parse_duration

if TYPE_CHECKING:
    from monitors.measurements.probes.probe import Reading

_RUN = """Run an agent: it asks the broker what to measure, and reports.

It ends with Ctrl-C or TERM. What the broker has not taken by then waits on disk for the next start.
"""
_RUN_MORE = """
Examples:
  adon agent run --config /etc/adon/agent.yml

Exit codes: 0 stopped; 2 the configuration is bad, or another agent uses the same state.
"""
_PROBE = """Measure once, by hand, without a broker.

Tools with two ends need one side to --serve and the other to name it with --to, with the same port
and for about the same time.
"""
_PROBE_MORE = """
Examples:
  adon agent probe host --for 5s
  adon agent probe trace --to 192.0.2.20
  adon agent probe echo --serve --to 192.0.2.10 --port 5201 --for 30s     on one machine
  adon agent probe echo --to 192.0.2.20 --port 5201 --for 10s             on the other
  adon agent probe udp --to 192.0.2.20 --set rate='50 Mb/s' --for 12s

Exit codes: 0 measured; 1 nothing could be measured; 2 bad arguments.
"""


def add(nouns: Nouns[argparse.ArgumentParser]) -> None:
    """Add ``adon agent run`` and ``adon agent probe``."""
    verbs = add_noun(nouns, "agent", __doc__)
    run = add_command(verbs, "run", _RUN, _run, _RUN_MORE)
    run.add_argument(
        "--config", type=Path, default=Path("agent.yml"), metavar="FILE",
        help="who it is and whom it obeys (default: ./%(default)s)",
    )  # fmt: skip
    _add_probe(verbs)


def _add_probe(verbs: Nouns[Any]) -> None:
    probe: CommandParser = add_command(verbs, "probe", _PROBE, _probe, _PROBE_MORE)
    probe.add_argument("tool", metavar="TOOL", help="tcp, udp, echo, ping, trace or host")
    probe.add_argument("--to", default="", metavar="ADDRESS", help="the other end's IP address")
    probe.add_argument("--port", type=int, default=5201, help="of the server (default: 5201)")
    probe.add_argument("--serve", action="store_true", help="be the server of a tool with two ends")
    probe.add_argument("--bind", default="", metavar="ADDRESS", help="the address of ours to use")
    probe.add_argument(
        "--for", dest="duration", default="10 s", metavar="TIME", help="in all (default: 10 s)"
    )
    probe.add_argument(
        "--set", action="append", default=[], metavar="OPTION=VALUE",
        help="an option of the tool (docs/agents.md)",
    )  # fmt: skip
    add_json(probe)


def _run(args: argparse.Namespace) -> int:
    from importlib import metadata

    from adon.config.yamlfile import read_yaml
    from monitors.measurements.agent.agent import Agent, following
    from monitors.measurements.agent.beside import reporting
    from monitors.measurements.agent.connections import ConnectionReporter
    from monitors.measurements.agent.disks import DiskReporter
    from monitors.measurements.agent.settings import settings_from_dict
    from monitors.measurements.probes.probe import Halt

    version = metadata.version("adon-wms")
    data = read_yaml(args.config)
    try:
        settings = settings_from_dict(data, args.config.absolute().parent, version)
    except InputError as error:
        raise InputError(f"{args.config}: {error}") from None
    logging.basicConfig(level=logging.INFO, format="adon: %(message)s")
    halt = Halt()
    for number in (signal.SIGTERM, signal.SIGINT):
        # In a thread: what a handler interrupts may hold the very lock that is needed.
        signal.signal(number, lambda *_: threading.Thread(target=halt.set).start())
    agent = Agent(settings, halt)
    print(f"{agent.describe()}; asks {settings.broker}", flush=True)
    with ExitStack() as stack:
        stack.enter_context(following(settings))
        if settings.servers:
            seen = ConnectionReporter(settings.servers)
            stack.enter_context(reporting(settings, "connections", seen))
        if settings.disks:
            stack.enter_context(reporting(settings, "disks", DiskReporter()))
        agent.run()
    return 0


def _probe(args: argparse.Namespace) -> int:
    from monitors.measurements.probes.probe import ProbeError

    try:
        findings = _findings(args)
    except ProbeError as error:
        print(f"adon: {printable(str(error))}", file=sys.stderr)
        return 1
    if args.json:
        print_json([
            {"metric": f.metric, "value": f.value, "unit": f.unit, "details": dict(f.details)}
            for f in findings
        ])  # fmt: skip
    else:
        for found in findings:
            _show(found)
    return 0


def _findings(args: argparse.Namespace) -> list[Reading]:
    from monitors.measurements.agent.messages import Assignment, Role
    from monitors.measurements.agent.perform import measure, order_of
    from monitors.measurements.agent.settings import AgentSettings
    from monitors.measurements.probes.probe import Halt
    from monitors.measurements.probes.tools import tool_of

    tool = tool_of(args.tool, "TOOL")
    if tool.name == "command":
        raise InputError("TOOL: found command, expected another: run the program itself")
    for what, value in (("--to", args.to), ("--bind", args.bind)):
        try:
            _ = value and ip_address(value)
        except ValueError:
            raise InputError(f"{what}: found {value!r}, expected an IP address") from None
    if tool.ends and not args.to:
        raise InputError(f"--to: found nothing, expected the address of {tool.name}'s other end")
    if args.serve and tool.ends != 2:
        raise InputError(f"--serve: found it with {tool.name}, which needs no server")
    if not 1 <= args.port <= 65535:
        raise InputError(f"--port: found {args.port}, expected 1 to 65535")
    options = tool.checked(dict(_option(text) for text in args.set), "--set")
    duration_s = parse_duration(args.duration, "--for")
    role: Role = "alone" if tool.ends != 2 else "server" if args.serve else "client"
    # Both ends know each other by this: by hand there is nobody who could draw a key for them.
    key = f"by hand:{args.port}"
    peer = str(ip_address(args.to)) if args.to else ""
    assignment = Assignment(
        key, "", tool.name, role, "", time.time(), duration_s, peer, args.port, options
    )
    settings = AgentSettings("by hand", "", "", Path(), bind=args.bind)
    order = order_of(assignment, settings, time.monotonic() + duration_s, Halt())
    return measure(order, assignment, settings)


def _option(text: str) -> tuple[str, Any]:
    """``NAME=VALUE``; a whole number where it is one."""
    name, given, value = text.partition("=")
    if not given:
        raise InputError(f"--set: found {text!r}, expected OPTION=VALUE")
    return name.strip(), int(value) if value.strip().isdecimal() else value.strip()


def _show(found: Reading) -> None:
    unit = "" if found.unit == "1" else f" {found.unit}"
    print(f"{found.metric:16} {found.value:.6g}{unit}")
    route = found.details.get("route")
    for hop in route or ():
        seconds = f"{hop['rtt_s'] * 1e3:10.3f} ms" if "rtt_s" in hop else ""
        print(f"  {hop['hop']:>3}  {hop['address'] or '*':40}{seconds}")
    for key, value in found.details.items():
        if key != "route":
            print(f"  {key:14} {value:.6g}" if isinstance(value, float) else f"  {key:14} {value}")
