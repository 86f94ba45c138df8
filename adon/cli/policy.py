"""Start, look at and stop policies that divide links between users, projects or experiments.

A policy puts the transfers of two of them into two queues on every link that it governs, by a
strategy: '7-3' shapes both to seven and three tenths, '10-3' gives the first the link and the
second at most three tenths of it, 'computed' lets both take what is idle, by demand and history.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from adon.cli.options import answered, bad_answer, client, instant_of, moment_of
from adon.cli.output import table
from adon.cli.parsing import CommandParser, Nouns, add_broker, add_command, add_noun
from network_provisioner.base.errors import InputError
from network_provisioner.base.units import format_rate, format_size, parse_duration

_LIST = """List the policies that run or will, and with --all those that have ended."""
_SHOW = """Show a policy: whose transfers share its queues, and which links it governs now.

A link is governed by one policy at a time. Where another one goes first (more specific, or started
later) this one rests until that one ends.
"""
_START = """Start a policy, or replace the one of the same name.

It begins at once unless --from says otherwise, and ends by itself where --until or --for is given.
"""
_START_MORE = """
Examples:
  adon policy start cms-first --type project --strategy 10-3 --specs cms ligo
  adon policy start night --type user --strategy computed --specs ada '*' --for '8 h'
  adon policy start --file policy.json          Listing 1's JSON; options replace what it says
"""
_MODIFY = """Change what is given of a policy that has not ended; the rest stays as it is."""
_MODIFY_MORE = """
Examples:
  adon policy modify cms-first --strategy computed
  adon policy modify cms-first --until 2026-12-01T00:00:00Z
"""
_STOP = """End a policy now. It stays in the list of those that have ended, unless it is deleted."""


def add(nouns: Nouns[argparse.ArgumentParser]) -> None:
    """Add ``adon policy list|show|start|modify|stop|usage``."""
    verbs = add_noun(nouns, "policy", __doc__)
    lister = add_command(verbs, "list", _LIST, _list)
    lister.add_argument("--all", action="store_true", help="also those that have ended")
    add_broker(lister)
    show = add_command(verbs, "show", _SHOW, _show)
    show.add_argument("name", metavar="NAME", help="its name or id")
    add_broker(show)
    start = add_command(verbs, "start", _START, _start, _START_MORE)
    start.add_argument("name", metavar="NAME", nargs="?", help="what it is called")
    start.add_argument(
        "--file", type=Path, metavar="FILE", help="a policy as JSON; '-' for standard input"
    )
    _add_terms(start)
    modify = add_command(verbs, "modify", _MODIFY, _modify, _MODIFY_MORE)
    modify.add_argument("name", metavar="NAME", help="what it is called")
    _add_terms(modify)
    stop = add_command(verbs, "stop", _STOP, _stop)
    stop.add_argument("name", metavar="NAME", help="its name or id")
    stop.add_argument("--delete", action="store_true", help="and forget it")
    add_broker(stop)
    _add_usage(verbs)


def _add_terms(parser: CommandParser) -> None:
    parser.add_argument(
        "--type", choices=("user", "project", "experiment"), help="what tells transfers apart"
    )
    parser.add_argument("--strategy", metavar="NAME", help="7-3, 10-3, computed, or one of yours")
    parser.add_argument(
        "--specs", nargs=2, metavar=("FIRST", "SECOND"),
        help="whose transfers share the first and the second queue; '*' is everybody else",
    )  # fmt: skip
    parser.add_argument(
        "--from", dest="start", metavar="TIME",
        help="when it begins: ISO 8601, Unix seconds, or '+2 h' (default: now)",
    )  # fmt: skip
    ends = parser.add_mutually_exclusive_group()
    ends.add_argument("--until", metavar="TIME", help="when it ends (default: never)")
    ends.add_argument("--for", dest="lasts", metavar="TIME", help="how long, such as '2 h'")
    parser.add_argument(
        "--link", nargs=2, action="append", metavar=("A", "B"), dest="links",
        help="a link that it governs; may be repeated (default: all between switches and routers)",
    )  # fmt: skip
    parser.add_argument(
        "--parts", nargs=2, type=float, metavar=("N", "M"),
        help="computed: what is meant for each, relative to the other (default: 7 3)",
    )  # fmt: skip
    parser.add_argument(
        "--guarantees", nargs=2, metavar=("RATE", "RATE"),
        help="computed: what is kept for each, '50 Mb/s' or '20 %%' of a link (default: half of "
        "its part)",
    )  # fmt: skip
    add_broker(parser)


def _list(args: argparse.Namespace) -> int:
    found = client(args).policies(ended=args.all)
    none = "no policies" if args.all else "no policy runs or will"
    return answered(args, "list of policies", found, lambda: _table(found) if found else none)


def _show(args: argparse.Namespace) -> int:
    return _print_one(args, client(args).policy(args.name))


def _start(args: argparse.Namespace) -> int:
    body = {} if args.file is None else _read(args.file)
    if args.name is None and "name" not in body:
        raise InputError("found no name, expected NAME or --file with a policy that has one")
    return _print_one(
        args, client(args).put_policy(body | _terms(args, body) | {"action": "start"})
    )


def _modify(args: argparse.Namespace) -> int:
    broker = client(args)
    terms = _terms(args, {})
    if terms.keys() == {"name"}:
        raise InputError("found nothing to change, expected an option such as --strategy")
    return _print_one(args, broker.put_policy(terms | {"action": "modify"}))


def _stop(args: argparse.Namespace) -> int:
    broker = client(args)
    if args.delete:
        return _print_one(args, broker.delete_policy(args.name))
    known = broker.policy(args.name)
    with bad_answer(args, "policy"):
        name = known["name"]
    return _print_one(args, broker.put_policy({"name": name, "action": "stop"}))


def _terms(args: argparse.Namespace, body: Mapping[str, Any]) -> dict[str, Any]:
    """What the options say, in the keys of Listing 1."""
    from network_provisioner.base.instants import instant

    given = {
        key: getattr(args, key)
        for key in ("name", "type", "strategy", "specs", "links", "parts", "guarantees")
        if getattr(args, key) is not None
    }
    if args.start is not None or args.until is not None or args.lasts is not None:
        times = body.get("time") or [None, None]
        start, end = times if isinstance(times, list) and len(times) == 2 else (None, None)
        now = time.time()
        start = start if args.start is None else instant_of(args.start, "--from", now)
        end = end if args.until is None else instant_of(args.until, "--until", now)
        if args.lasts is not None:
            begins = now if start is None else instant(start, "--from")
            end = begins + parse_duration(args.lasts, "--for")
        given["time"] = [start, end]
    return given


def _read(path: Path) -> dict[str, Any]:
    where = "standard input" if str(path) == "-" else str(path)
    try:
        text = sys.stdin.read() if str(path) == "-" else path.read_text(encoding="utf-8")
        body = json.loads(text)
    except OSError as error:
        raise InputError(f"{where}: {error.strerror}, expected a policy as JSON") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: {error}, expected a policy as JSON") from None
    if not isinstance(body, dict):
        raise InputError(f"{where}: found {body!r:.80}, expected a JSON object")
    return body


def _print_one(args: argparse.Namespace, policy: dict[str, Any]) -> int:
    return answered(
        args, "policy", policy, lambda: "\n".join((_table([policy]), *_details(policy)))
    )


def _table(policies: list[dict[str, Any]]) -> str:
    head = ("state", "name", "type", "strategy", "first", "second", "from", "until", "id")
    rows = [
        (
            *(str(p[key]) for key in ("state", "name", "type", "strategy")),
            *map(str, p["specs"]),
            str(p["time"][0]),
            str(p["time"][1] or "-"),
            str(p["id"]),
        )
        for p in policies
    ]
    return table(head, rows)


def _details(policy: dict[str, Any]) -> list[str]:
    lines = []
    if policy["links"]:
        lines.append("governs " + ", ".join(f"{a} > {b}" for a, b in policy["links"]))
    resting: dict[str, list[str]] = {}
    for found in policy["resting"]:
        resting.setdefault(str(found["for"]), []).append(" > ".join(found["link"]))
    lines += [f"rests on {', '.join(on)} while {other} runs" for other, on in resting.items()]
    if policy["strategy"] not in ("7-3", "10-3"):
        kept = [
            f"{100 * g['share']:g} % of a link" if g["share"] else format_rate(g["bps"])
            for g in policy["guarantees"]
        ]
        parts = " : ".join(f"{part:g}" for part in policy["parts"])
        lines.append(f"parts {parts}, keeps {' and '.join(kept)}")
    return lines


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


def _add_usage(verbs: Nouns[CommandParser]) -> None:
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
    from network_provisioner.policies.accounting import Usage, as_csv

    if args.csv and args.json:
        raise InputError("--csv: found beside --json, expected one of both")
    now = time.time()
    since, until = (moment_of(getattr(args, name), f"--{name}", now) for name in ("since", "until"))
    found = client(args).accounting(args.by, since=since, until=until)

    def text() -> str:
        rows = [Usage(**row) for row in found]
        if args.csv:
            return as_csv(rows, args.by).rstrip("\n")
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
        return table(head, lines) if rows else "no transfer has ended in that time"

    return answered(args, "account", found, text)
