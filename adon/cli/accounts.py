"""``adon policy usage``: the accounts of users, projects and experiments."""

from __future__ import annotations

import argparse
import sys
import time

from adon.cli.brokers import bad_answer, client
from adon.cli.output import print_json, table
from adon.cli.parsing import Nouns, Parser, add_broker, add_command

_USAGE = """Show what users, projects or experiments used: the accounts of ended transfers.

'byte-seconds' is the granted rate in bytes per second, integrated over the time it was held: the
bytes that could have been moved. 'bytes' is what was moved.
"""
_USAGE_MORE = """
Examples:
  adon policy usage --by project
  adon policy usage --by user --since 2026-11-01 --until 2026-12-01 --csv > november.csv
  adon policy usage --by experiment --since '7 d'       the last seven days
"""


def add_usage(verbs: Nouns[Parser]) -> None:
    """Add the verb ``usage``."""
    usage = add_command(verbs, "usage", _USAGE, _usage, _USAGE_MORE)
    usage.add_argument(
        "--by", choices=("user", "project", "experiment"), default="user",
        help="whose use (default: %(default)s)",
    )  # fmt: skip
    for name, what in (("since", "from when on"), ("until", "up to when")):
        usage.add_argument(
            f"--{name}", metavar="TIME",
            help=f"{what}: ISO 8601, Unix seconds, or how long ago such as '7 d' (default: all)",
        )  # fmt: skip
    usage.add_argument("--csv", action="store_true", help="print CSV")
    add_broker(usage)


def _usage(args: argparse.Namespace) -> int:
    from network_provisioner.base.errors import InputError
    from network_provisioner.base.units import format_size
    from network_provisioner.policies.accounting import Usage, as_csv

    if args.csv and args.json:
        raise InputError("--csv: found beside --json, expected one of both")
    since, until = (_ago(getattr(args, name), f"--{name}") for name in ("since", "until"))
    found = client(args).accounting(args.by, since=since, until=until)
    if args.json:
        print_json(found)
        return 0
    with bad_answer(args, "account"):
        rows = [Usage(**row) for row in found]
        head = (args.by, "transits>", "bytes>", "byte-seconds>", "held>")
        lines = [
            (
                row.name or "-",
                str(row.transits),
                format_size(row.bytes),
                format_size(row.byte_seconds),
                f"{row.seconds:.0f} s",
            )
            for row in rows
        ]
        text = as_csv(rows, args.by) if args.csv else table(head, lines)
    if args.csv:
        sys.stdout.write(text)
    else:
        print(text if rows else "no transfer has ended in that time")
    return 0


def _ago(text: str | None, what: str) -> float | None:
    from adon.cli.times import moment_of

    return moment_of(text, what, time.time())
