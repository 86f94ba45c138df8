"""Request, renew, change, release and list paths with bandwidth between sites."""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterator
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from adon.cli.live import watch
from adon.cli.options import above_0, client, instant_of, moment_of, ports
from adon.cli.output import (
    Column,
    duration,
    metric_text,
    print_fields,
    print_records,
    rendered_pages,
    table,
)
from adon.cli.parsing import (
    SINCE,
    START,
    TEMPLATE,
    Noun,
    add_broker,
    add_output,
    flag,
    limit,
    option,
    whole,
)
from adon.cli.terminal import below_table, print_paged
from network_provisioner.base.errors import InputError
from network_provisioner.base.instants import local_time
from network_provisioner.base.units import (
    format_rate,
    format_size,
    parse_duration,
    parse_rate,
    parse_size,
)

if TYPE_CHECKING:
    from network_provisioner.base.flows import Flow
    from network_provisioner.base.model import PathScore, Transit, TuningSettings

NOUN = Noun("transit", __doc__)
_ID = option("id", "id of the transit, from 'adon transit list'", "ID")
_STATES = (
    "queued", "held", "installed", "active", "released", "expired", "failed", "best_effort",
)  # fmt: skip
_PAGE = 250  # transits that are asked for at a time
_BLOCKING = (
    Column("link", "  waits for", lambda link: f"  {link}"),
    Column("free_bps", "free>"),
    Column("holders", "held by"),
)


@NOUN.verb(
    "request",
    option("src", "sending site", "FROM"),
    option("dst", "receiving site", "TO"),
    option("--id", "id of your choice; repeating a request with it returns the same transit", "ID"),
    option("--size", "bytes to move, such as '25 GB' or '64 KiB'", "SIZE"),
    option("--min", "minimum bandwidth, such as '100 Mb/s' (default: the template's)", "RATE"),
    option("--max", "maximum bandwidth (default: the template's)", "RATE"),
    option("--lease", "duration unless renewed (default: from the size, else 15 min)", "TIME"),
    START,
    option("--end", "end (default: when it is released)", "TIME"),
    option(
        "--priority", "priority, higher is served first (default and maximum: the template's)", "N",
        whole(0, 1000),
    ),
    TEMPLATE,
    option("--application", "application, which selects the template", "NAME", default=""),
    option("--user", "owner of the transfer (default: the name of the token)", "USER", default=""),
    *(
        option(f"--{name}", f"{name} of the transfer", name.upper(), default="")
        for name in ("project", "experiment", "workflow", "job")
    ),
    option(
        "--flow", "only packets of this port or FIRST-LAST; may be repeated (default: all)", "PORT",
        action="append", default=[],
    ),
    add_broker,
    add_output,
)  # fmt: skip
def _request(args: argparse.Namespace) -> int:
    """Request a path with bandwidth between two sites, now or in advance.

    The broker answers at once, with the reason: installed (the path is yours until you release it
    or its lease ends), held (it is yours from its start on), queued (no room now), best_effort or
    failed.

    Times are ISO 8601 (local time by default), Unix seconds, or '+10 min' from now. Ports are
    destination ports unless they begin with 'src:', and TCP unless 'udp/' precedes them.

    Examples:
      adon transit request mu tacc --size '25 GB'
      adon transit request mu tacc --min '100 Mb/s' --lease '10 min' --id my-transfer
      adon transit request mu tacc --min '100 Mb/s' --start '+1 h' --end '+3 h' --priority 5
      adon transit request mu tacc --project soykb --flow 50000-50063 --flow src:2811

    Exit codes: 0 installed or held; 1 no path now (queued, best_effort, failed); 2 refused or no
    broker.
    """
    import uuid

    from network_provisioner.base.model import LIVE, TransitRequest

    now = time.time()
    given = {f.name: getattr(args, f.name) for f in fields(TransitRequest) if f.name in args}
    request = TransitRequest(
        **given
        | {
            "id": f"cli:{uuid.uuid4().hex[:12]}" if args.id is None else args.id,
            "size_bytes": None if args.size is None else parse_size(args.size, "--size"),
            "min_bps": above_0(parse_rate, args.min, "--min"),
            "max_bps": above_0(parse_rate, args.max, "--max"),
            "lease_s": above_0(parse_duration, args.lease, "--lease"),
            "start": instant_of(args.start, "--start", now),
            "end": instant_of(args.end, "--end", now),
            "flows": ports(args.flow, "--flow"),
        }
    )
    transit = client(args).request(request)
    _print_one(args, transit)
    return 0 if transit.state in LIVE else 1


@NOUN.verb(
    "renew",
    _ID,
    option("lease", "duration from now, such as '10 min'", "TIME"),
    add_broker,
    add_output,
)
def _renew(args: argparse.Namespace) -> int:
    """Renew a lease: it then lasts at least TIME from now, and is never shortened.

    Example:
      adon transit renew my-transfer '2 h'

    Exit codes: 0 the transit is live; 1 it has ended or waits; 2 refused or no broker.
    """
    from network_provisioner.base.model import LIVE

    lease_s = above_0(parse_duration, args.lease, "TIME")
    transit = client(args).renew(args.id, lease_s or 0.0)
    _print_one(args, transit)
    return 0 if transit.state in LIVE else 1


@NOUN.verb(
    "change",
    _ID,
    option("--min", "minimum bandwidth (default: unchanged)", "RATE"),
    option("--max", "maximum bandwidth (default: unchanged)", "RATE"),
    add_broker,
    add_output,
)
def _change(args: argparse.Namespace) -> int:
    """Change the minimum and maximum bandwidth of a running transit.

    The transit stays on its path, without interruption. If the path has no room, nothing changes.

    Example:
      adon transit change my-transfer --min '200 Mb/s' --max '1 Gb/s'

    Exit codes: 0 changed; 2 refused or no broker.
    """
    low, high = above_0(parse_rate, args.min, "--min"), above_0(parse_rate, args.max, "--max")
    if low is None and high is None:
        raise InputError("found neither --min nor --max, expected one of them")
    return _print_one(args, client(args).change(args.id, low, high))


@NOUN.verb(
    "flows",
    _ID,
    option("port", "[src:][udp/]PORT[-PORT]", "PORT", nargs="+"),
    add_broker,
    add_output,
)
def _flows(args: argparse.Namespace) -> int:
    """Report the ports of a transit's packets, once the application knows them.

    Example:
      adon transit flows my-transfer 50000-50063 src:2811
    """
    return _print_one(args, client(args).report_flows(args.id, ports(args.port, "PORT")))


@NOUN.verb(
    "release",
    _ID,
    option("--moved", "moved bytes, such as '25 GB'", "SIZE"),
    option("--took", "duration of the transfer, such as '10 min'", "TIME"),
    option("--outcome", "'success', or the error", "TEXT", default=""),
    add_broker,
    add_output,
)
def _release(args: argparse.Namespace) -> int:
    """Release a path, or leave the queue. Releasing twice is harmless.

    Example:
      adon transit release my-transfer --moved '25 GB' --took '10 min'
    """
    moved_bytes = 0 if args.moved is None else parse_size(args.moved, "--moved")
    took = 0.0 if args.took is None else parse_duration(args.took, "--took")
    return _print_one(args, client(args).release(args.id, moved_bytes, took, args.outcome))


def _print_one(args: argparse.Namespace, transit: Transit) -> int:
    """Its line and the reason for its state; exit code 0."""
    shown = transit.as_dict()
    reasons = below_table((transit.reason, *_warnings(transit)))
    return print_records(
        args,
        _columns(),
        [shown],
        document=shown,
        text=lambda t: "\n".join((t, *reasons)),
    )


@NOUN.verb(
    "list",
    flag("--all", "include ended transits"),
    option(
        "--state", f"only transits in this state: {', '.join(_STATES)}", "STATE", choices=_STATES
    ),
    *(
        option(f"--{name}", f"only transits of this {name}", name.upper())
        for name in ("workflow", "user", "project")
    ),
    SINCE,
    limit(100_000),
    add_broker,
    add_output,
    watch,
)
def _list(args: argparse.Namespace) -> int:
    """List transits that hold bandwidth or wait, newest first.

    With --all, include those that have ended and those without a path. Reasons are below the table
    for those without a path and those that ended early.

    Examples:
      adon transit list --project soykb
      adon transit list --all --since '2 h' --limit 20
      adon transit list --state queued --json
      adon transit list --csv --columns id,state,granted_bps,size_bytes
    """
    reasons: list[str] = []

    def records() -> Iterator[list[dict[str, Any]]]:
        for page in _pages(args):
            reasons.extend(_reasons(page))
            yield [t.as_dict() for t in page]

    ended = args.all or args.state is not None
    none = "no transits" if ended else "no transit holds bandwidth or waits"
    shown = rendered_pages(args, _columns(ended), records(), none=none, below=lambda: reasons)
    print_paged(shown)
    return 0


def _pages(args: argparse.Namespace) -> Iterator[list[Transit]]:
    """The transits that the options name, newest first."""
    broker, left = client(args), args.limit or math.inf
    only = (args.workflow, args.user, args.project)
    since = moment_of(args.since, "--since", time.time())
    ended, before = args.all or args.state is not None, None
    while left > 0:
        size = int(min(_PAGE, left))
        page = broker.list(args.state, *only, since, size, before, ended)
        yield page[::-1]
        if len(page) < size:
            return
        before, left = page[0].id, left - size


@NOUN.verb("explain", _ID, add_broker, add_output)
def _explain(args: argparse.Namespace) -> int:
    """Show why a transit has its path or waits, and all candidate paths with their scores.

    For a waiting transit: each link without room, who holds it, and the earliest known start. For
    the candidates: Q, the sum of score times weight over the metrics (0 to 10, higher is better),
    with value and source of each score, and what a rejected path lacks.

    Example:
      adon transit explain my-transfer
    """
    transit = client(args).get(args.id)
    return print_fields(args, transit.as_dict(), lambda: explanation(transit))


def _columns(ended: bool = False) -> list[Column]:
    """Of transits, some of which may have ended."""
    from network_provisioner.base.model import LIVE

    now = time.time()

    def granted(bps: float, path: list[str], state: str, max_bps: float) -> str:
        """What it has now; of one that has yet to begin what it will have at least."""
        least = "≥ " if state == "held" and max_bps > bps else ""
        return f"{least}{format_rate(bps)}" if path else "-"

    def left(until: float, state: str) -> str:
        return duration(max(0, round(until - now))) if state in LIVE else "-"

    return [
        Column("state", "state", str),
        Column("src", "from"),
        Column("dst", "to"),
        Column("size_bytes", "size>", lambda size: format_size(size) if size else "-"),
        Column("granted_bps", "granted>", granted, ("path", "state", "max_bps")),
        Column("goodput_bps", "goodput>", lambda bps: format_rate(bps) if bps else "-"),
        Column("lease_until", "lease>", left, ("state",)),
        *([Column("released_at", "ended", lambda at: local_time(at) if at else "-")] * ended),
        Column("path", "path", lambda p, on: f"{'-'.join(p)} ({on})" if p else "-", ("layer",)),
        Column("user", "for", lambda *of: "/".join(filter(None, of)) or "-", ("project",)),
        Column("job"),
        Column("id"),
    ]


def _reasons(transits: list[Transit]) -> list[str]:
    """Why those without a path have none, and what ended otherwise than it should; where all is
    well nobody asks."""
    from network_provisioner.base.model import LIVE, TransitState

    def ended_ill(t: Transit) -> bool:
        return t.state is TransitState.EXPIRED or t.usage.outcome not in ("", "success")

    promises = [
        f"{t.id}: promise broken: {t.usage.kept.why}"
        for t in transits
        if t.state in LIVE and t.usage.kept is not None and t.usage.kept.state == "broken"
    ]
    return promises + [
        f"{t.id}: {t.reason}" for t in transits if t.reason and (ended_ill(t) or not t.grant.path)
    ]


def explanation(transit: Transit) -> str:
    """Everything that is known about why a transit is as it is. Raises KeyError, TypeError,
    ValueError for what is no answer of a broker."""
    blocks = [
        "\n".join(_summary(transit)),
        *_waiting(transit),
        *map(_candidate, transit.grant.candidates),
    ]
    return "\n\n".join(blocks)


def _summary(t: Transit) -> list[str]:
    from network_provisioner.relay import decision
    from network_provisioner.selection.knee import knee_text

    lines = [
        table(_columns(), [t.as_dict()]),
        f"asked for {format_rate(t.request.min_bps)} to {format_rate(t.request.max_bps)}"
        f"{', all that its path has,' if t.request.uncapped else ''} by template "
        f"{t.request.template!r} (version {t.request.template_version}), "
        f"priority {t.request.priority}",
    ]
    if t.request.start or t.request.end:
        start, end = _when(t.request.start), _when(t.request.end)
        lines.append(f"from {start or 'now'} to {end or 'its end'}")
    lines.append(f"packets: {_packets(t)}")
    if t.grant.tuning and t.grant.tuning.why:
        lines.append(f"tuning: {_tuned(t.grant.tuning)}: {t.grant.tuning.why}")
    if t.relay:
        lines.append(f"relay: {decision.relay_text(t.relay)}")
    if t.grant.queue:
        lines.append(f"shares queue {t.grant.queue!r}")
    if len(t.grant.parts) > 1:
        lines += [
            f"part: {'-'.join(part.path)} ({part.layer}), "
            f"{format_rate(part.granted_bps)} of at least {format_rate(part.min_bps)}"
            for part in t.grant.parts
        ]
    if t.grant.expected_end:
        when = _when(t.grant.expected_end)
        lines.append(f"started ahead of waiting transits: expected to end {when}, then best effort")
    lines += [
        f"changed {_when(c.at)}: {format_rate(c.min_bps)} to {format_rate(c.max_bps)}, "
        f"before {format_rate(c.was_min_bps)} to {format_rate(c.was_max_bps)}"
        + (f" ({c.why})" if c.why else "")
        for c in t.grant.changes
    ]
    if knee := knee_text(t.io):
        lines.append(f"{knee}; {format_rate(t.given_back_bps)} of its ceiling released")
    if kept := t.usage.kept:
        why = f" ({kept.why})" if kept.why else ""
        lines.append(
            f"promise: {kept.state}{why}; kept {kept.kept_s:.0f} s, less was sent "
            f"{kept.less_s:.0f} s, broken {kept.broken_s:.0f} s, unknown {kept.unknown_s:.0f} s"
        )
    if t.grant.moves:
        lines.append(f"moved {t.grant.moves} times to another path")
    return [*lines, t.reason or "no reason was recorded", *_warnings(t)]


def _warnings(t: Transit) -> list[str]:
    return [f"warning: {warning}" for warning in t.grant.warnings]


def _waiting(t: Transit) -> list[str]:
    lines = [table(_BLOCKING, t.grant.blocking)] if t.grant.blocking else []
    if t.grant.earliest:
        lines.append(f"  earliest known start: {_when(t.grant.earliest)}")
    return ["\n".join(lines)] if lines else []


def _packets(t: Transit) -> str:
    """Which packets it carries, and how they are told from others."""
    from network_provisioner.base.model import SEEN

    hosts, flows = t.request.hosts, t.request.flows
    between = f"between {' and '.join(hosts)}" if hosts else "between all hosts of both sites"
    if flows:
        return f"{', '.join(map(_flow, flows))}, {between}"
    if t.grant.ports:
        return (
            f"{between}, of a client that uses ports {'-'.join(map(str, t.grant.ports))}: none of "
            "its connections has been reported yet"
        )
    if t.request.ports_at == SEEN:
        return f"{between}, as its tool opens connections: none has been reported yet"
    if t.request.ports_at:
        return f"{between}, from ports that it is given when it begins"
    return f"all that no other transit names, {between}"


def _tuned(tuning: TuningSettings) -> str:
    """How to tune a transfer; for 0 its tool decides."""
    buffer = tuning.buffer_bytes and format_size(tuning.buffer_bytes)
    given = {"streams": tuning.streams, "buffer": buffer, "threads": tuning.threads}
    return ", ".join(f"{name} {value}" for name, value in given.items() if value)


def _flow(flow: Flow) -> str:
    sides = [
        f"{side} {'-'.join(str(p) for p in dict.fromkeys(ports))}"
        for side, ports in (("from", flow.src_ports), ("to", flow.dst_ports))
        if ports is not None
    ]
    return f"{flow.protocol} {' '.join(sides)}"


def _when(at: float) -> str:
    """Unix seconds for people; "" for 0."""
    return local_time(at) if at else ""


def _metric(value: float | None, name: str) -> str:
    return "-" if value is None else metric_text(name, value)


_SCORES = (
    Column("name", "  metric", lambda name: f"  {name}"),
    Column("value", "value>", _metric, ("name",)),
    Column("source"),
    Column("score", "score>", "{:.2f}".format),
    Column("weight", "weight>", "{:.2f}".format),
)


def _candidate(candidate: PathScore) -> str:
    head = (
        f"Q {candidate['q']:.2f}  {'-'.join(candidate['path'])} ({candidate['layer']}), "
        f"{format_rate(candidate['free_bps'])} free"
    )
    left_out = [f"  left out: {candidate['rejected']}"] if candidate["rejected"] else []
    if measured_only := candidate.get("not_guaranteed"):
        left_out.append(f"  judged by measurements alone: {measured_only}")
    scores = [{"name": name, **score} for name, score in candidate["scores"].items()]
    return "\n".join((head, *left_out, table(_SCORES, scores)))
