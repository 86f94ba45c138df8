"""Ask for, give back and list paths with bandwidth between sites."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from adon.commands.brokers import bad_answer, client
from adon.commands.output import duration, print_json
from adon.commands.parsing import Nouns, add_broker, add_command, add_noun
from site_selector.tables import table

if TYPE_CHECKING:
    from network_provisioner.model import Transit

_REQUEST = """Ask for a path with bandwidth between two sites.

The broker answers at once: installed (it is yours until you release it or its lease ends), queued
(no room now), best_effort or failed. The reason is always given.
"""
_REQUEST_MORE = """
Examples:
  adon transit request mu tacc --size '25 GB'
  adon transit request mu tacc --min '100 Mb/s' --lease '10 min' --id my-transfer

Exit codes: 0 installed; 1 no path now (queued, best_effort, failed); 2 refused or no broker.
"""
_RELEASE = """Give a path back, or leave the queue. Releasing twice is harmless."""
_LIST = """List transits that hold bandwidth or wait, oldest first."""
_EXPLAIN = """Show the candidate paths of a transit with their scores, and why one was chosen.

Q is the sum of score times weight over the metrics (0 to 10, more is better); value and source
stand beside each score. A path that misses what was asked for says what it lacks.
"""


def add(nouns: Nouns[argparse.ArgumentParser]) -> None:
    """Add ``adon transit request|release|list|explain``."""
    verbs = add_noun(nouns, "transit", __doc__)
    request = add_command(verbs, "request", _REQUEST, _request, _REQUEST_MORE)
    request.add_argument("src", metavar="FROM", help="site that sends")
    request.add_argument("dst", metavar="TO", help="site that receives")
    request.add_argument(
        "--id", metavar="ID", help="your own id; asking twice gives one transit (default: made up)"
    )
    request.add_argument("--size", help="bytes to move, such as '25 GB' or '64 KiB'")
    request.add_argument(
        "--min", metavar="RATE",
        help="least bandwidth that is useful, such as '100 Mb/s' (default: the template's)",
    )  # fmt: skip
    request.add_argument(
        "--max", metavar="RATE", help="most bandwidth, bits per second (default: the template's)"
    )
    request.add_argument(
        "--lease", metavar="TIME",
        help="how long it lives unless renewed, such as '10 min' (default: from the size, else "
        "15 min)",
    )  # fmt: skip
    request.add_argument(
        "--template", metavar="NAME", default="default",
        help="what the application needs, by name in adon.yml (default: %(default)s)",
    )  # fmt: skip
    add_broker(request)
    release = add_command(verbs, "release", _RELEASE, _release)
    release.add_argument("id", metavar="ID", help="as 'adon transit list' shows it")
    add_broker(release)
    lister = add_command(verbs, "list", _LIST, _list)
    lister.add_argument(
        "--all", action="store_true", help="also those that have ended, and why some got no path"
    )
    add_broker(lister)
    explain = add_command(verbs, "explain", _EXPLAIN, _explain)
    explain.add_argument("id", metavar="ID", help="as 'adon transit list --all' shows it")
    add_broker(explain)


def _request(args: argparse.Namespace) -> int:
    import uuid

    from network_provisioner.errors import InputError
    from network_provisioner.model import LIVE, TransitRequest
    from network_provisioner.units import parse_duration, parse_rate, parse_size

    def above_0(parse: Callable[[str, str], float], option: str) -> float | None:
        text: str | None = getattr(args, option)
        if text is None:
            return None
        value = parse(text, f"--{option}")
        if value <= 0:
            raise InputError(f"--{option}: found {text!r}, expected more than 0")
        return value

    request = TransitRequest(
        id=f"cli:{uuid.uuid4()}" if args.id is None else args.id,
        src=args.src,
        dst=args.dst,
        size_bytes=None if args.size is None else parse_size(args.size, "--size"),
        min_bps=above_0(parse_rate, "min"),
        max_bps=above_0(parse_rate, "max"),
        lease_s=above_0(parse_duration, "lease"),
        template=args.template,
    )
    transit = client(args).request(request)
    _print_one(transit, args.json)
    return 0 if transit.state in LIVE else 1


def _release(args: argparse.Namespace) -> int:
    _print_one(client(args).release(args.id), args.json)
    return 0


def _print_one(transit: Transit, as_json: bool) -> None:
    if as_json:
        print_json(transit.as_dict())
        return
    print(f"{_table([transit])}\n{transit.reason}")


def _list(args: argparse.Namespace) -> int:
    from network_provisioner.model import ENDED

    found = [t for t in client(args).list() if args.all or t.state not in ENDED]
    if args.json:
        print_json([t.as_dict() for t in found])
    elif found:
        print(_table(found))
        _print_reasons(found)
    else:
        print("no transits" if args.all else "no transit holds bandwidth or waits")
    return 0


def _table(transits: list[Transit]) -> str:
    from network_provisioner.model import LIVE
    from network_provisioner.units import format_rate

    now = time.time()
    rows = [
        (
            str(t.state),
            t.src,
            t.dst,
            format_rate(t.granted_bps) if t.path else "-",
            duration(max(0, round(t.lease_until - now))) if t.state in LIVE else "-",
            f"{'-'.join(t.path)} ({t.layer})" if t.path else "-",
            t.job or "-",
            t.id,
        )
        for t in transits
    ]
    return table(("state", "from", "to", "granted>", "lease>", "path", "job", "id"), rows)


def _print_reasons(transits: list[Transit]) -> None:
    """Why those without a path have none; where all is well nobody asks."""
    for t in transits:
        if not t.path and t.reason:
            print(f"{t.id}: {t.reason}")


def _explain(args: argparse.Namespace) -> int:
    from network_provisioner.units import format_rate

    transit = client(args).get(args.id)
    if args.json:
        print_json(transit.as_dict())
        return 0
    with bad_answer(args, "transit"):
        blocks = [
            f"{_table([transit])}\nasked for {format_rate(transit.requested_bps)} to "
            f"{format_rate(transit.max_bps)} by template {transit.template!r}\n"
            f"{transit.reason or 'no reason was recorded'}",
            *map(_candidate, transit.candidates),
        ]
    print("\n\n".join(blocks))
    return 0


def _candidate(found: dict[str, Any]) -> str:
    from network_provisioner.units import format_rate

    rows = [
        (
            f"  {name}",
            _metric(name, score["value"]),
            str(score["source"]),
            f"{score['score']:.2f}",
            f"{score['weight']:.2f}",
        )
        for name, score in found["scores"].items()
    ]
    head = (
        f"Q {found['q']:.2f}  {'-'.join(found['path'])} ({found['layer']}), "
        f"{format_rate(found['free_bps'])} free"
    )
    left_out = [f"  left out: {found['rejected']}"] if found["rejected"] else []
    scores = table(("  metric", "value>", "source", "score>", "weight>"), rows)
    return "\n".join((head, *left_out, scores))


def _metric(name: str, value: float | None) -> str:
    from network_provisioner.units import format_rate

    if value is None:
        return "-"
    if name == "throughput":
        return format_rate(value)
    return f"{value:g}" if name == "loss" else duration(value)
