"""Start, change, show and stop policies that divide links between users, projects or experiments.

A policy has two queues on every link that it governs, for the transfers of two users, projects or
experiments. Its strategy divides the link: '7-3' limits the queues to 70 and 30 %, '10-3' gives the
first the whole link and the second at most 30 %, 'computed' follows demand and history and lets
both use idle bandwidth.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from adon.cli.live import watch
from adon.cli.options import client, instant_of, moment_of
from adon.cli.output import Column, print_records
from adon.cli.parsing import (
    SINCE,
    START,
    UNTIL,
    Noun,
    add_broker,
    add_output,
    flag,
    one_of,
    option,
)
from network_provisioner.base.errors import InputError
from network_provisioner.base.units import format_rate, format_size, parse_duration

NOUN = Noun("policy", __doc__)
_NAME = option("name", "name or id", "NAME")
_WHOSE = ("user", "project", "experiment")
_COLUMNS = (
    *map(Column, ("state", "name", "type", "strategy")),
    Column("specs.0", "first"),
    Column("specs.1", "second"),
    Column("time.0", "from", str),
    Column("time.1", "until"),
    Column("id"),
)
_TERMS = (
    option("--type", "what the policy divides links between", choices=_WHOSE),
    option("--strategy", "7-3, 10-3, computed, or your own", "NAME"),
    option(
        "--specs",
        "owners of the transfers in the first and second queue; '*' is everybody else",
        ("FIRST", "SECOND"),
        nargs=2,
    ),
    START,
    one_of(
        option("--end", "end (default: never)", "TIME"),
        option("--for", "duration, such as '2 h'", "TIME", dest="lasts"),
    ),
    option(
        "--link",
        "link that it governs; may be repeated (default: all between switches and routers)",
        ("A", "B"),
        nargs=2,
        action="append",
        dest="links",
    ),
    option(
        "--parts",
        "computed: parts of the two queues (default: 7 3)",
        ("N", "M"),
        float,
        nargs=2,
    ),
    option(
        "--guarantees",
        "computed: guarantees of the two queues, '50 Mb/s' or '20 %%' of a link "
        "(default: half of each part)",
        ("RATE", "RATE"),
        nargs=2,
    ),
    add_broker,
    add_output,
)  # fmt: skip


@NOUN.verb("list", flag("--all", "include ended policies"), add_broker, add_output, watch)
def _list(args: argparse.Namespace) -> int:
    """List running and scheduled policies, with --all also ended ones."""
    none = "no policies" if args.all else "no policy is running or scheduled"
    policies = client(args).policies(ended=args.all)
    return print_records(args, _COLUMNS, policies, none=none)


@NOUN.verb("show", _NAME, add_broker, add_output)
def _show(args: argparse.Namespace) -> int:
    """Show a policy: whose transfers share its queues, and which links it governs now.

    Only one policy at a time governs a link. While another one takes precedence there (more
    specific, or started later), this one has no effect on that link.
    """
    return _print_one(args, client(args).policy(args.name))


@NOUN.verb(
    "start",
    option("name", "name of the policy", "NAME", nargs="?"),
    option("--file", "policy as JSON; '-' for standard input", "FILE", Path),
    *_TERMS,
)
def _start(args: argparse.Namespace) -> int:
    """Start a policy, or replace the one of the same name.

    It starts at once unless --start is given, and ends at --end or after --for.

    Examples:
      adon policy start cms-first --type project --strategy 10-3 --specs cms ligo
      adon policy start night --type user --strategy computed --specs ada '*' --for '8 h'
      adon policy start --file policy.json          options override the file
    """
    body = {} if args.file is None else _read(args.file)
    if args.name is None and "name" not in body:
        raise InputError("found no name, expected NAME or --file with a policy that has one")
    return _print_one(
        args, client(args).put_policy(body | _terms(args, body) | {"action": "start"})
    )


@NOUN.verb("modify", option("name", "name of the policy", "NAME"), *_TERMS)
def _modify(args: argparse.Namespace) -> int:
    """Change a policy that has not ended. Only the given values change.

    Examples:
      adon policy modify cms-first --strategy computed
      adon policy modify cms-first --end 2026-12-01T00:00:00Z
    """
    broker = client(args)
    terms = _terms(args, {})
    if terms.keys() == {"name"}:
        raise InputError("found nothing to change, expected an option such as --strategy")
    return _print_one(args, broker.put_policy(terms | {"action": "modify"}))


@NOUN.verb("stop", _NAME, add_broker, add_output)
def _stop(args: argparse.Namespace) -> int:
    """End a policy now. 'adon policy list --all' still shows it."""
    broker = client(args)
    name = broker.policy(args.name)["name"]
    return _print_one(args, broker.put_policy({"name": name, "action": "stop"}))


@NOUN.verb("delete", _NAME, add_broker, add_output)
def _delete(args: argparse.Namespace) -> int:
    """End a policy now and delete it. The accounts of its transfers stay."""
    return _print_one(args, client(args).delete_policy(args.name))


def _terms(args: argparse.Namespace, body: Mapping[str, Any]) -> dict[str, Any]:
    """What the options say, in the keys of Listing 1."""
    from network_provisioner.base.instants import instant

    given = {
        key: getattr(args, key)
        for key in ("name", "type", "strategy", "specs", "links", "parts", "guarantees")
        if getattr(args, key) is not None
    }
    if args.start is not None or args.end is not None or args.lasts is not None:
        times = body.get("time") or [None, None]
        start, end = times if isinstance(times, list) and len(times) == 2 else (None, None)
        now = time.time()
        start = start if args.start is None else instant_of(args.start, "--start", now)
        end = end if args.end is None else instant_of(args.end, "--end", now)
        if args.lasts is not None:
            begins = now if start is None else instant(start, "--start")
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
    return print_records(
        args,
        _COLUMNS,
        [policy],
        document=policy,
        text=lambda shown: "\n".join((shown, *_details(policy))),
    )


def _details(policy: dict[str, Any]) -> list[str]:
    lines = []
    if policy["links"]:
        lines.append("governs " + ", ".join(f"{a} > {b}" for a, b in policy["links"]))
    resting: dict[str, list[str]] = {}
    for rest in policy["resting"]:
        resting.setdefault(str(rest["for"]), []).append(" > ".join(rest["link"]))
    lines += [
        f"has no effect on {', '.join(on)} while {other} runs" for other, on in resting.items()
    ]
    if policy["strategy"] not in ("7-3", "10-3"):
        kept = [
            f"{100 * g['share']:g} % of a link" if g["share"] else format_rate(g["bps"])
            for g in policy["guarantees"]
        ]
        parts = " : ".join(f"{part:g}" for part in policy["parts"])
        lines.append(f"parts {parts}, keeps {' and '.join(kept)}")
    return lines


def _kept(judged_s: float, broken_s: float) -> str:
    """For which share of the time that was judged."""
    return f"{1 - broken_s / judged_s:.1%}" if judged_s else "-"


@NOUN.verb(
    "usage",
    option("--by", "group by", choices=_WHOSE, default="user"),
    SINCE,
    UNTIL,
    add_broker,
    add_output,
)
def _usage(args: argparse.Namespace) -> int:
    """Show what users, projects or experiments used, from the accounts of ended transfers.

    'byte-seconds' is the granted rate in bytes per second, integrated over the time it was held:
    the bytes that the transfer could have moved. 'bytes' is what it moved.

    Examples:
      adon policy usage --by project
      adon policy usage --by user --since 2026-11-01 --until 2026-12-01 --csv > november.csv
      adon policy usage --by experiment --since '7 d'       the last seven days
    """
    now = time.time()
    since, until = (moment_of(getattr(args, name), f"--{name}", now) for name in ("since", "until"))
    columns = (
        Column("name", args.by),
        Column("transits", "transits>"),
        Column("bytes", "bytes>", format_size),
        Column("byte_seconds", "byte-seconds>", format_size),
        Column("seconds", "held>", "{:.0f} s".format),
        Column("judged_s", "promises kept>", _kept, ("broken_s",)),
    )
    usage = client(args).accounting(args.by, since=since, until=until)
    none = "no transfer has ended in that time"
    return print_records(args, columns, usage, none=none)
