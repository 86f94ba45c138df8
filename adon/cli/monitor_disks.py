"""What the disks of hosts did."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from adon.cli.options import moment_of
from adon.cli.output import bar, print_json, table
from adon.cli.parsing import Nouns, add_command, add_json
from network_provisioner.base.errors import InputError
from network_provisioner.base.units import format_rate

if TYPE_CHECKING:
    from adon.cli.monitor_source import WorkflowSource

_DISKS = """Show how long hosts waited for their disks, and what these read and wrote.

As agents with 'disks: true' saw it, each second. Of one host also how processes' seconds are
distributed: by I/O wait, and by write rate where that is 10 Mb/s or more.
"""
_MORE = """
Examples:
  adon monitor disks --since '10 min' --broker
  adon monitor disks --host local --workflow montage --archive .adon/archive.sqlite

Exit codes: 0 done; 2 the archive or the broker cannot be asked, or there is no such workflow.
"""


def add_disks(verbs: Nouns[argparse.ArgumentParser]) -> None:
    """Add ``adon monitor disks``."""
    from adon.cli.monitor_show import add_source

    command = add_command(verbs, "disks", _DISKS, _run, _MORE)
    command.add_argument("--host", metavar="NAME", help="of this host alone: its agent's name")
    command.add_argument(
        "--since", metavar="TIME", default="1 h",
        help="a time, or how long ago (default: %(default)s)",
    )  # fmt: skip
    command.add_argument(
        "--workflow", metavar="WORKFLOW", help="while this one ran: its UUID, name, or directory"
    )
    add_source(command)
    add_json(command)


def _run(args: argparse.Namespace) -> int:
    from adon.cli.monitor_source import source_of
    from monitors.measurements.disks.histograms import hosts_disks

    since, until = moment_of(args.since, "--since", time.time()), None
    with source_of(args) as source:
        if args.workflow is not None:
            since, until = _span(source, args.workflow)
        found = hosts_disks(
            source.measurements("disk_io", subject=args.host, since=since, until=until)
        )
    if args.json:
        print_json({"hosts": found})
    elif not found:
        print("no disks were reported: agents with 'disks: true' do it")
    else:
        head = ("host", "seconds>", "I/O wait>", "95 %>", "read>", "95 %>", "write>", "95 %>")
        print(table((*head, "from"), [tuple(_row(one)) for one in found]))
        if args.host is not None:
            print(_histograms(*found))
    return 0


def _span(source: WorkflowSource, wanted: str) -> tuple[float, float]:
    """From when to when a workflow ran, or was heard of last. Raises InputError."""
    from adon.cli.monitor_source import find

    changes = source.workflow(find(source, wanted), 10_000)["history"]
    if not changes:
        raise InputError(f"workflow {wanted!r}: found it planned, expected one that has begun")
    return changes[0]["at"], changes[-1]["at"]


def _row(one: dict[str, Any]) -> Iterator[str]:
    yield one["host"]
    yield str(one["seconds"])
    yield from (f"{100 * share:.0f} %" for share in one["io_wait"].values())
    yield from map(format_rate, (*one["read_bps"].values(), *one["write_bps"].values()))
    yield ", ".join(one["sources"])


def _histograms(one: dict[str, Any]) -> str:
    lines = ["", "I/O wait of processes, by their seconds"]
    lines += [f"{10 * i:10d} - {10 * i + 10} %  {bar(n)}" for i, n in enumerate(one["io_waits"])]
    lines += ["", "write rate of processes, by their seconds with 10 Mb/s or more"]
    for i, share in enumerate(one["writes"], 1):
        most = format_rate(one["most_write_bps"] * i / len(one["writes"]))
        lines.append(f"{'up to ' + most:>17}  {bar(share)}")
    return "\n".join(lines)
