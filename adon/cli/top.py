"""``adon top``: workflows, transfers, links and pool on one screen."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import Any

from adon.cli.live import draw_again
from adon.cli.monitor_text import list_columns, shortened
from adon.cli.options import client
from adon.cli.output import Column, Record, duration, table
from adon.cli.parsing import Noun, add_broker, flag, option
from adon.cli.terminal import bar, for_output, screen_size
from network_provisioner.base.errors import BrokerError
from network_provisioner.base.instants import local_time
from network_provisioner.base.units import format_rate, format_size
from network_provisioner.client.http1 import quoted

_AROUND = 12  # lines that are no rows: the first, headings and gaps
_LEAST = 3  # rows of each, where there is room
_NAMES = 20  # letters of a name


def _name(text: str) -> str:
    return shortened(text, _NAMES) or "-"


_TRANSFERS = (
    Column("state", "state", str),
    Column("src", "from"),
    Column("dst", "to"),
    Column("size_bytes", "size>", lambda size: format_size(size) if size else "-"),
    Column("granted_bps", "granted>", lambda bps: format_rate(bps) if bps else "-"),
    Column("since_s", "for>", duration),
    Column("user", "user", lambda *of: _name("/".join(filter(None, of))), ("project",)),
    Column("job", "job", _name),
)
_LINKS = (
    Column("from", "link", "{} > {}".format, ("to",)),
    Column("capacity_bps", "capacity>"),
    Column("reserved_bps", "reserved", lambda bps, of: bar(bps / of), ("capacity_bps",)),
    Column("granted_bps", "granted>", format_rate),
    Column("transits", "transfers>", lambda transits: str(len(transits))),
    Column("state"),
)


NOUN = Noun("top")


@NOUN.command(
    option("--user", "only workflows and transfers of this user", "USER"),
    option("--every", "time between two screens", "TIME", default="2 s"),
    flag("--once", "print one screen, and end"),
    add_broker,
)
def _run(args: argparse.Namespace) -> int:
    """Show workflows, transfers, links and the pool live, on one screen. Ctrl-C ends it.

    Workflows: the latest changes first. Transfers that wait or hold a path: the newest first.
    Links: those with the highest reserved share first. The pool: ADON's last decision.

    Examples:
      adon top
      adon top --user ada --every '10 s'
      adon top --once
    """

    from network_provisioner.client.broker import bad_answer

    def draw() -> str:
        with bad_answer(args.broker, "valid one"):  # for the next screen may be drawn all the same
            lines = screen_size().lines
            return _screen(_looked(args, lines), lines)

    if args.once:
        print(draw())
        return 0
    return draw_again(draw, args.every, "--every")


def _looked(args: argparse.Namespace, most: int) -> dict[str, Any]:
    """What the broker says of each, at most this many. Raises BrokerError if it does not
    answer."""
    broker, user = client(args), args.user
    whose = "" if user is None else f"&user={quoted(user)}"
    return {
        "at": time.time(),
        "health": broker.health(),
        "workflows": _part(broker, f"/v1/workflows?roots=true&limit={most}{whose}"),
        "transfers": _part(broker, f"/v1/transits?ended=false&limit={most}{whose}"),
        "topology": broker.topology(),
        "pool": _part(broker, "/v1/decisions?kind=pool&limit=1"),
    }


def _part(broker: Any, path: str) -> Any:
    """An answer, or why this caller has none."""
    try:
        return broker.call("GET", path)
    except BrokerError as error:
        if error.code == "unreachable":
            raise
        return str(error)


def _screen(looked: dict[str, Any], lines: int) -> str:
    """The screen, with as many rows of each as fit into this many lines: on a narrow terminal a
    row may need several."""
    room = lines - _AROUND
    text = _drawn(looked, room)
    while text.count("\n") >= lines and room > 1:
        room -= 1
        text = _drawn(looked, room)
    return text


def _drawn(looked: dict[str, Any], room: int) -> str:
    """The screen, with this many rows of all."""
    now, health = looked["at"], looked["health"]
    transfers, links = _transfers(looked["transfers"], now), _links(looked["topology"]["links"])
    shown = (looked["workflows"], transfers, links)
    counts = [0 if isinstance(records, str) else len(records) for records in shown]
    rows = _rooms(counts, room)
    problem = f"; degraded: {health['problem']}" if health["problem"] else ""
    blocks = [
        for_output(
            f"{local_time(now)}  transits: {health['live']} hold bandwidth, "
            f"{health['queued']} wait{problem}"
        ),
        _section("workflows", list_columns(now, _NAMES)[:-1], looked["workflows"], rows[0]),
        _section("transfers", _TRANSFERS, transfers, rows[1]),
        _section("links", _LINKS, links, rows[2]),
        for_output(_pool(looked["pool"])),
    ]
    return "\n\n".join(blocks)


def _rooms(counts: Sequence[int], lines: int) -> list[int]:
    """How many rows of each are shown: what some do not need, others have."""
    rooms = [0] * len(counts)
    least = max(1, min(_LEAST, lines // len(counts)))
    least_first = sorted(range(len(counts)), key=counts.__getitem__)
    for left, i in zip(range(len(counts), 0, -1), least_first, strict=True):
        rooms[i] = min(counts[i], max(least, lines // left))
        lines -= rooms[i]
    return rooms


def _section(
    name: str, columns: Sequence[Column], records: Sequence[Record] | str, rows: int
) -> str:
    if isinstance(records, str):
        return for_output(f"{name}: {records}")
    if not records:
        return f"{name}: none"
    some = f", the first {rows}" if len(records) > rows else ""
    return f"{name}{some}\n{table(columns, records[:rows])}"


def _transfers(transits: Any, now: float) -> list[dict[str, Any]] | str:
    if isinstance(transits, str):
        return transits
    return [
        transit | {"since_s": max(0, round(now - transit["requested_at"]))}
        for transit in reversed(transits)
    ]


def _links(links: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each direction, the fullest first."""
    records = [
        {**link, **load, "state": "drained" if link["drained"] else link["failed"] and "failed"}
        for link in links
        for load in link["load"]
    ]
    return sorted(records, key=lambda link: -link["reserved_bps"] / link["capacity_bps"])


def _pool(answer: Any) -> str:
    if isinstance(answer, str):
        return f"pool: {answer}"
    if not answer["decisions"]:
        return "pool: no decisions yet"
    decision, details = answer["decisions"][0], answer["decisions"][0]["details"]
    return (
        f"pool: machines {details['machines'] or 'none'}; jobs {details['demand'] or 'none'}; "
        f"{local_time(decision['at'])}: {decision['outcome']}"
    )
