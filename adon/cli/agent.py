"""Run an agent, which measures at one end of a path as the broker schedules, or probe by hand."""

from __future__ import annotations

import argparse
import signal
import threading
import time
from contextlib import ExitStack
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING

from adon.cli.options import tool_options
from adon.cli.output import Column, note, print_records
from adon.cli.parsing import (
    SETTINGS,
    Noun,
    add_output,
    config,
    flag,
    log_as,
    logging_options,
    option,
    whole,
)
from network_provisioner.base.errors import InputError
from network_provisioner.base.units import parse_duration

if TYPE_CHECKING:
    from monitors.measurements.probes.probe import Reading

NOUN = Noun("agent", __doc__)


@NOUN.verb("run", config("agent.yml", "agent.yml"), logging_options)
def _run(args: argparse.Namespace) -> int:
    """Run an agent, which asks the broker what to measure and reports the results.

    Ctrl-C or SIGTERM ends it. Results that the broker has not accepted wait on disk for the next
    start.

    Examples:
      adon agent run --config /etc/adon/agent.yml

    Exit codes: 0 stopped; 2 the configuration is invalid, or another agent uses the same state.
    """
    from importlib import metadata

    from adon.config.yamlfile import read_yaml
    from monitors.measurements.agent.agent import Agent, following
    from monitors.measurements.agent.host_reports import (
        ConnectionReporter,
        DiskReporter,
        SocketReporter,
        reporting,
    )
    from monitors.measurements.agent.settings import settings_from_dict
    from monitors.measurements.probes.probe import Halt

    version = metadata.version("adon-wms")
    data = read_yaml(args.config)
    try:
        settings = settings_from_dict(data, args.config.absolute().parent, version)
    except InputError as error:
        raise InputError(f"{args.config}: {error}") from None
    log_as(args)
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
        if settings.sockets:
            stack.enter_context(reporting(settings, "sockets", SocketReporter()))
        agent.run()
    return 0


@NOUN.verb(
    "probe",
    option("tool", "tcp, udp, echo, ping, trace or host", "TOOL"),
    option("--peer", "the other end's IP address", "ADDRESS", default=""),
    option("--port", "port of the server", "PORT", whole(1, 65535), default=5201),
    flag("--serve", "act as the server of a tool with two ends"),
    option("--bind", "local address to use", "ADDRESS", default=""),
    option("--for", "duration", "TIME", dest="lasts", default="10 s"),
    SETTINGS,
    add_output,
)
def _probe(args: argparse.Namespace) -> int:
    """Measure once, by hand, without a broker.

    A tool with two ends needs --serve on one side. Both sides name the other with --peer, and use
    the same port and about the same duration.

    Examples:
      adon agent probe host --for 5s
      adon agent probe trace --peer 192.0.2.20
      adon agent probe echo --serve --peer 192.0.2.10 --port 5201 --for 30s     on one machine
      adon agent probe echo --peer 192.0.2.20 --port 5201 --for 10s             on the other
      adon agent probe udp --peer 192.0.2.20 --set rate='50 Mb/s' --for 12s

    Exit codes: 0 measured; 1 nothing measured; 2 bad arguments.
    """
    from monitors.measurements.probes.probe import ProbeError

    try:
        findings = _findings(args)
    except ProbeError as error:
        note(str(error))
        return 1
    records = [
        {"metric": f.metric, "value": f.value, "unit": f.unit, "details": dict(f.details)}
        for f in findings
    ]
    columns = [Column("metric"), Column("value"), Column("unit")]
    shown = "\n".join(map(_text, findings))
    return print_records(args, columns, records, text=lambda _: shown)


def _findings(args: argparse.Namespace) -> list[Reading]:
    from monitors.measurements.agent.messages import Assignment
    from monitors.measurements.agent.perform import measure, order_of
    from monitors.measurements.agent.settings import AgentSettings
    from monitors.measurements.probes.probe import Halt, Role
    from monitors.measurements.probes.tools import tool_of

    tool = tool_of(args.tool, "TOOL")
    if tool.name == "command":
        raise InputError("TOOL: found command, expected another: run the program itself")
    for what, value in (("--peer", args.peer), ("--bind", args.bind)):
        try:
            _ = value and ip_address(value)
        except ValueError:
            raise InputError(f"{what}: found {value!r}, expected an IP address") from None
    if tool.ends and not args.peer:
        raise InputError(f"--peer: found nothing, expected the address of {tool.name}'s other end")
    if args.serve and tool.ends != 2:
        raise InputError(f"--serve: found it with {tool.name}, which needs no server")
    options = tool.checked(tool_options(args.set), "--set")
    duration_s = parse_duration(args.lasts, "--for")
    role: Role = "alone" if tool.ends != 2 else "server" if args.serve else "client"
    # Both ends know each other by this: by hand there is nobody who could draw a key for them.
    key = f"by hand:{args.port}"
    peer = str(ip_address(args.peer)) if args.peer else ""
    assignment = Assignment(
        key, "", tool.name, role, "", time.time(), duration_s, peer, args.port, options
    )
    settings = AgentSettings("by hand", "", "", Path(), bind=args.bind)
    order = order_of(assignment, settings, time.monotonic() + duration_s, Halt())
    return measure(order, assignment, settings)


def _text(reading: Reading) -> str:
    unit = "" if reading.unit == "1" else f" {reading.unit}"
    lines = [f"{reading.metric:16} {reading.value:.6g}{unit}"]
    for hop in reading.details.get("route") or ():
        seconds = f"{hop['rtt_s'] * 1e3:10.3f} ms" if "rtt_s" in hop else ""
        lines.append(f"  {hop['hop']:>3}  {hop['address'] or '*':40}{seconds}")
    details = [(key, value) for key, value in reading.details.items() if key != "route"]
    lines += [f"  {k:14} {v:.6g}" if isinstance(v, float) else f"  {k:14} {v}" for k, v in details]
    return "\n".join(lines)
