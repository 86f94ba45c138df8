"""Ask for, renew, give back and list paths with bandwidth between sites."""

from __future__ import annotations

import argparse
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from adon.cli.options import above_0, answered, client, instant_of, ports
from adon.cli.output import duration, print_json, table
from adon.cli.parsing import CommandParser, Nouns, add_broker, add_command, add_noun, whole
from network_provisioner.base.errors import InputError
from network_provisioner.base.units import format_rate, parse_duration, parse_rate, parse_size

if TYPE_CHECKING:
    from network_provisioner.base.model import Transit, TransitRequest


_REQUEST = """Ask for a path with bandwidth between two sites, now or in advance.

The broker answers at once: installed (it is yours until you release it or its lease ends), held (it
will be, from its start on), queued (no room now), best_effort or failed. The reason is always
given.
"""
_REQUEST_MORE = """
Times are ISO 8601 (UTC where they name no zone), Unix seconds, or '+10 min' from now. Ports are the
destination's unless they begin with 'src:'; 'udp/' stands before others than TCP's.

Examples:
  adon transit request mu tacc --size '25 GB'
  adon transit request mu tacc --min '100 Mb/s' --lease '10 min' --id my-transfer
  adon transit request mu tacc --min '100 Mb/s' --start '+1 h' --end '+3 h' --priority 5
  adon transit request mu tacc --project soykb --port 50000-50063 --port src:2811

Exit codes: 0 installed or held; 1 no path now (queued, best_effort, failed); 2 refused or no
broker.
"""
_RELEASE = """Give a path back, or leave the queue. Releasing twice is harmless."""
_RELEASE_MORE = """
Example:
  adon transit release my-transfer --moved '25 GB' --took '10 min'
"""
_RENEW = """Make a lease last longer, counted from now. It is never shortened."""
_RENEW_MORE = """
Example:
  adon transit renew my-transfer '2 h'

Exit codes: 0 it is live; 1 it has ended, or waits; 2 refused or no broker.
"""
_CHANGE = """Raise or lower what a transit is promised at least and may have at most, while it runs.

It stays on its path, without a gap. Where there is no room for more it stays as it is.
"""
_CHANGE_MORE = """
Example:
  adon transit change my-transfer --min '200 Mb/s' --max '1 Gb/s'

Exit codes: 0 changed; 2 refused or no broker.
"""
_FLOWS = """Say which packets a transit carries, once the application knows its ports."""
_FLOWS_MORE = """
Example:
  adon transit flows my-transfer 50000-50063 src:2811
"""
_LIST = """List transits that hold bandwidth or wait, oldest first.

With --all also those that have ended, and those that went without a path. Below the table stands of
each why it has no path, or what ended it before its transfer did.
"""
_LIST_MORE = """
Examples:
  adon transit list --project soykb
  adon transit list --all --since '2 h' --limit 20
  adon transit list --state queued --json
"""
_EXPLAIN = """Show why a transit has its path, or what it waits for, and the candidates with scores.

Of a transit that waits: every link that lacks room, who holds it, and the earliest start as far as
is known. Of the candidates: Q is the sum of score times weight over the metrics (0 to 10, more is
better); value and source stand beside each score. A path that misses what was asked for says what
it lacks.
"""
_EXPLAIN_MORE = """
Example:
  adon transit explain my-transfer
"""
_STATES = (
    "queued", "held", "installed", "active", "released", "expired", "failed", "best_effort",
)  # fmt: skip
_OR_STATES = f"{', '.join(_STATES[:-1])} or {_STATES[-1]}"


def add(nouns: Nouns[argparse.ArgumentParser]) -> None:
    """Add ``adon transit request|renew|change|flows|release|list|explain``."""
    verbs = add_noun(nouns, "transit", __doc__)
    _add_request(add_command(verbs, "request", _REQUEST, _request, _REQUEST_MORE))
    renew = add_command(verbs, "renew", _RENEW, _renew, _RENEW_MORE)
    renew.add_argument("id", metavar="ID", help="as 'adon transit list' shows it")
    renew.add_argument("lease", metavar="TIME", help="such as '10 min'")
    add_broker(renew)
    change = add_command(verbs, "change", _CHANGE, _change, _CHANGE_MORE)
    change.add_argument("id", metavar="ID", help="as 'adon transit list' shows it")
    change.add_argument("--min", metavar="RATE", help="least bandwidth (default: as it is)")
    change.add_argument("--max", metavar="RATE", help="most bandwidth (default: as it is)")
    add_broker(change)
    flows = add_command(verbs, "flows", _FLOWS, _flows, _FLOWS_MORE)
    flows.add_argument("id", metavar="ID", help="as 'adon transit list' shows it")
    flows.add_argument("port", metavar="PORT", nargs="+", help="[src:][udp/]PORT[-PORT]")
    add_broker(flows)
    release = add_command(verbs, "release", _RELEASE, _release, _RELEASE_MORE)
    release.add_argument("id", metavar="ID", help="as 'adon transit list' shows it")
    release.add_argument("--moved", metavar="SIZE", help="bytes moved, such as '25 GB'")
    release.add_argument("--took", metavar="TIME", help="time it took, such as '10 min'")
    release.add_argument("--outcome", default="", help="'success', or what went wrong")
    add_broker(release)
    _add_list(add_command(verbs, "list", _LIST, _list, _LIST_MORE))
    explain = add_command(verbs, "explain", _EXPLAIN, _explain, _EXPLAIN_MORE)
    explain.add_argument("id", metavar="ID", help="as 'adon transit list --all' shows it")
    add_broker(explain)


def _add_request(request: CommandParser) -> None:
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
    request.add_argument("--start", metavar="TIME", help="needed from then on (default: now)")
    request.add_argument(
        "--end", metavar="TIME", help="needed until then (default: as long as it takes)"
    )
    request.add_argument(
        "--priority", type=whole(0, 1000), metavar="N",
        help="in the queue, and for what is shared (default, and at most: the template's)",
    )  # fmt: skip
    request.add_argument(
        "--template", metavar="NAME", default="default",
        help="what the application needs, by name in adon.yml (default: %(default)s)",
    )  # fmt: skip
    request.add_argument(
        "--application", metavar="NAME", default="", help="finds a template where none is named"
    )
    for name, whose in (
        ("user", "whose transfer it is (default: the name of the token)"),
        ("project", "the project that it is for"),
        ("experiment", "the experiment that it belongs to"),
        ("workflow", "the workflow that it belongs to"),
        ("job", "the job that it belongs to"),
    ):
        request.add_argument(f"--{name}", metavar="NAME", default="", help=whose)
    request.add_argument(
        "--port", metavar="PORT", action="append", default=[],
        help="only packets of this port or FIRST-LAST; may be given again (default: all packets)",
    )  # fmt: skip
    add_broker(request)


def _add_list(lister: CommandParser) -> None:
    lister.add_argument(
        "--all", action="store_true", help="also those that have ended, and why some got no path"
    )
    lister.add_argument(
        "--state", choices=_STATES, metavar="STATE", help=f"only those that are {_OR_STATES}"
    )
    for name in ("workflow", "user", "project"):
        lister.add_argument(f"--{name}", metavar="NAME", help=f"only those of this {name}")
    lister.add_argument("--since", metavar="TIME", help="only those asked for in the last '2 h'")
    lister.add_argument("--limit", type=whole(1, 100_000), metavar="N", help="only the newest N")
    add_broker(lister)


def _request(args: argparse.Namespace) -> int:
    from network_provisioner.base.model import LIVE

    transit = client(args).request(_asked(args))
    _print_one(transit, args.json)
    return 0 if transit.state in LIVE else 1


def _asked(args: argparse.Namespace) -> TransitRequest:
    import uuid

    from network_provisioner.base.model import TransitRequest

    now = time.time()
    return TransitRequest(
        id=f"cli:{uuid.uuid4()}" if args.id is None else args.id,
        src=args.src,
        dst=args.dst,
        size_bytes=None if args.size is None else parse_size(args.size, "--size"),
        min_bps=above_0(parse_rate, args.min, "--min"),
        max_bps=above_0(parse_rate, args.max, "--max"),
        lease_s=above_0(parse_duration, args.lease, "--lease"),
        template=args.template,
        workflow=args.workflow,
        job=args.job,
        start=instant_of(args.start, "--start", now),
        end=instant_of(args.end, "--end", now),
        priority=args.priority,
        application=args.application,
        user=args.user,
        project=args.project,
        experiment=args.experiment,
        flows=ports(args.port, "--port"),
    )


def _renew(args: argparse.Namespace) -> int:
    from network_provisioner.base.model import LIVE

    lease_s = above_0(parse_duration, args.lease, "TIME")
    transit = client(args).renew(args.id, lease_s or 0.0)
    _print_one(transit, args.json)
    return 0 if transit.state in LIVE else 1


def _change(args: argparse.Namespace) -> int:
    low, high = above_0(parse_rate, args.min, "--min"), above_0(parse_rate, args.max, "--max")
    if low is None and high is None:
        raise InputError("found neither --min nor --max, expected one of them")
    _print_one(client(args).change(args.id, low, high), args.json)
    return 0


def _flows(args: argparse.Namespace) -> int:
    _print_one(client(args).report_flows(args.id, ports(args.port, "PORT")), args.json)
    return 0


def _release(args: argparse.Namespace) -> int:
    moved = 0 if args.moved is None else parse_size(args.moved, "--moved")
    took = 0.0 if args.took is None else parse_duration(args.took, "--took")
    _print_one(client(args).release(args.id, moved, took, args.outcome), args.json)
    return 0


def _print_one(transit: Transit, as_json: bool) -> None:
    if as_json:
        print_json(transit.as_dict())
    else:
        print("\n".join((listed([transit]), transit.reason, *_warnings(transit))))


def _list(args: argparse.Namespace) -> int:
    from network_provisioner.base.model import ENDED

    since = above_0(parse_duration, args.since, "--since")
    found = client(args).list(
        args.state,
        args.workflow,
        args.user,
        args.project,
        None if since is None else time.time() - since,
        args.limit,
    )
    if not (args.all or args.state):
        found = [t for t in found if t.state not in ENDED]
    if args.json:
        print_json([t.as_dict() for t in found])
    elif found:
        print(listed(found))
        print_reasons(found)
    else:
        print("no transits" if args.all or args.state else "no transit holds bandwidth or waits")
    return 0


def _explain(args: argparse.Namespace) -> int:
    transit = client(args).get(args.id)
    return answered(args, "transit", transit.as_dict(), lambda: explained(transit))


def listed(transits: list[Transit]) -> str:
    """A table."""
    from network_provisioner.base.model import LIVE

    now = time.time()
    rows = [
        (
            str(t.state),
            t.src,
            t.dst,
            _granted(t),
            duration(max(0, round(t.lease_until - now))) if t.state in LIVE else "-",
            f"{'-'.join(t.path)} ({t.layer})" if t.path else "-",
            "/".join(filter(None, (t.user, t.project))) or "-",
            t.job or "-",
            t.id,
        )
        for t in transits
    ]
    head = ("state", "from", "to", "granted>", "lease>", "path", "for", "job", "id")
    return table(head, rows)


def _granted(t: Transit) -> str:
    """What it has now; of one that has yet to begin what it will have at least."""
    if not t.path:
        return "-"
    least = "≥ " if t.state == "held" and t.max_bps > t.granted_bps else ""
    return least + format_rate(t.granted_bps)


def print_reasons(transits: list[Transit]) -> None:
    """Why those without a path have none, and what ended otherwise than it should; where all is
    well nobody asks."""
    from network_provisioner.base.model import TransitState

    for t in transits:
        ended_ill = t.state is TransitState.EXPIRED or t.outcome not in ("", "success")
        if t.reason and (ended_ill or not t.path):
            print(f"{t.id}: {t.reason}")


def explained(transit: Transit) -> str:
    """Everything that is known of why a transit is as it is. Raises KeyError, TypeError, ValueError
    for what is no answer of a broker."""
    blocks = [
        "\n".join(_summary(transit)),
        *_waiting(transit),
        *map(_candidate, transit.candidates),
    ]
    return "\n\n".join(blocks)


def _summary(t: Transit) -> list[str]:
    from network_provisioner.relay import decision
    from network_provisioner.selection.knee import described

    lines = [
        listed([t]),
        f"asked for {format_rate(t.requested_bps)} to {format_rate(t.max_bps)}"
        f"{', all that its path has,' if t.uncapped else ''} by template "
        f"{t.template!r} (version {t.template_version}), priority {t.priority}",
    ]
    if t.start or t.end:
        lines.append(f"from {_when(t.start) or 'now'} to {_when(t.end) or 'its end'}")
    lines.append(f"packets: {_packets(t)}")
    if t.tuning.get("why"):
        lines.append(f"tuning: {_tuned(t.tuning)}: {t.tuning['why']}")
    if t.relay:
        lines.append(f"relay: {decision.described(t.relay)}")
    if t.queue:
        lines.append(f"shares queue {t.queue!r}")
    if len(t.parts) > 1:
        lines += [
            f"part: {'-'.join(part['path'])} ({part['layer']}), "
            f"{format_rate(part['granted_bps'])} of at least {format_rate(part['min_bps'])}"
            for part in t.parts
        ]
    if t.expected_end:
        when = _when(t.expected_end)
        lines.append(f"began before others that wait: expected to be done {when}, then gives way")
    lines += [
        f"changed {_when(c['at'])}: {format_rate(c['min_bps'])} to {format_rate(c['max_bps'])}, "
        f"before {format_rate(c['was_min_bps'])} to {format_rate(c['was_max_bps'])}"
        + (f" ({c['why']})" if c.get("why") else "")
        for c in t.changes
    ]
    if knee := described(t.knee):
        lines.append(f"{knee}; {format_rate(t.given_back_bps)} of its ceiling given back")
    if t.moves:
        lines.append(f"moved {t.moves} times to another path")
    return [*lines, t.reason or "no reason was recorded", *_warnings(t)]


def _warnings(t: Transit) -> list[str]:
    return [f"warning: {words}" for words in t.warnings]


def _waiting(t: Transit) -> list[str]:
    lines = []
    if t.blocking:
        rows = [
            (
                f"  {one['link']}",
                format_rate(one["free_bps"]),
                ", ".join(map(str, one["holders"])) or "-",
            )
            for one in t.blocking
        ]
        lines = [table(("  waits for", "free>", "held by"), rows)]
    if t.earliest:
        lines.append(f"  earliest start, as far as is known: {_when(t.earliest)}")
    return ["\n".join(lines)] if lines else []


def _packets(t: Transit) -> str:
    """Which packets it carries, and how they are told from others."""
    from network_provisioner.base.model import SEEN

    between = f"between {' and '.join(t.hosts)}" if t.hosts else "between all hosts of both sites"
    if t.flows:
        return f"{', '.join(map(_flow, t.flows))}, {between}"
    if t.ports:
        return (
            f"{between}, of a client that uses ports {t.ports[0]}-{t.ports[1]}: none of its "
            "connections has been reported yet"
        )
    if t.ports_at == SEEN:
        return f"{between}, as its tool opens connections: none has been reported yet"
    if t.ports_at:
        return f"{between}, from ports that it is given when it begins"
    return f"all that no other transit names, {between}"


def _tuned(tuning: dict[str, Any]) -> str:
    """How a transfer is to be tuned; of a 0 its tool decides."""
    from network_provisioner.base.units import format_size

    buffer = tuning["buffer_bytes"] and format_size(tuning["buffer_bytes"])
    given = {"streams": tuning["streams"], "buffer": buffer, "threads": tuning["threads"]}
    return ", ".join(f"{name} {value}" for name, value in given.items() if value)


def _flow(flow: dict[str, Any]) -> str:
    sides = [
        f"{side} {'-'.join(str(p) for p in dict.fromkeys(ports))}"
        for side, key in (("from", "src_ports"), ("to", "dst_ports"))
        if (ports := flow.get(key)) is not None
    ]
    return f"{flow['protocol']} {' '.join(sides)}"


def _when(at: float) -> str:
    """Unix seconds for people, in UTC; "" for 0."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC") if at else ""


def _candidate(found: dict[str, Any]) -> str:
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
    if value is None:
        return "-"
    if name == "throughput":
        return format_rate(value)
    return f"{value:g}" if name == "loss" else duration(value)
