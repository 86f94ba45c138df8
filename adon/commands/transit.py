"""Ask for, give back and list paths with bandwidth between sites."""

from __future__ import annotations

import argparse
import json
import time
import uuid

from adon.commands.options import add_broker, client
from network_provisioner.model import LIVE, Transit, TransitRequest, TransitState
from network_provisioner.units import format_rate, parse_duration, parse_rate, parse_size


def add(nouns: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``adon transit request|release|list|explain``."""
    verbs = nouns.add_parser("transit", help=__doc__, description=__doc__).add_subparsers(
        dest="verb", required=True, metavar="VERB"
    )
    request = verbs.add_parser("request", help="ask for a path between two sites")
    request.add_argument("src", help="site that sends")
    request.add_argument("dst", help="site that receives")
    request.add_argument("--id", default=None, help="your own id; asking twice gives one transit")
    request.add_argument("--size", help="bytes to move, such as '25 GB'")
    request.add_argument("--min", help="least bandwidth, such as '700 Mb/s'")
    request.add_argument("--max", help="most bandwidth")
    request.add_argument("--lease", help="how long it lives unless renewed, such as '10 min'")
    request.add_argument("--template", default="default", help="application template")
    add_broker(request)
    request.set_defaults(run=_request)
    release = verbs.add_parser("release", help="give a path back")
    release.add_argument("id")
    add_broker(release)
    release.set_defaults(run=_release)
    lister = verbs.add_parser("list", help="list transits that hold bandwidth or wait")
    lister.add_argument("--all", action="store_true", help="also those that have ended")
    add_broker(lister)
    lister.set_defaults(run=_list)
    explain = verbs.add_parser("explain", help="the candidate paths of a transit and their scores")
    explain.add_argument("id")
    add_broker(explain)
    explain.set_defaults(run=_explain)


def _request(args: argparse.Namespace) -> int:
    request = TransitRequest(
        id=args.id or f"cli:{uuid.uuid4()}",
        src=args.src,
        dst=args.dst,
        size_bytes=parse_size(args.size, "--size") if args.size else None,
        min_bps=parse_rate(args.min, "--min") if args.min else None,
        max_bps=parse_rate(args.max, "--max") if args.max else None,
        lease_s=parse_duration(args.lease, "--lease") if args.lease else None,
        template=args.template,
    )
    transit = client(args).request(request)
    _print([transit], args.json)
    return 0 if transit.state in LIVE else 1


def _release(args: argparse.Namespace) -> int:
    _print([client(args).release(args.id)], args.json)
    return 0


def _list(args: argparse.Namespace) -> int:
    keep = LIVE | {TransitState.QUEUED}
    found = [t for t in client(args).list() if args.all or t.state in keep]
    _print(found, args.json)
    return 0


def _explain(args: argparse.Namespace) -> int:
    transit = client(args).get(args.id)
    if args.json:
        print(json.dumps(transit.as_dict(), indent=2))
        return 0
    print(f"{transit.id}: {transit.state}, {transit.reason or 'no reason recorded'}")
    for candidate in transit.candidates:
        print("  " + json.dumps(candidate, ensure_ascii=False))
    return 0


def _print(transits: list[Transit], as_json: bool) -> None:
    if as_json:
        print(json.dumps([t.as_dict() for t in transits], indent=2))
        return
    now = time.time()
    print(f"{'state':<12}{'from':<10}{'to':<10}{'granted':>11}{'lease':>8}  path, job, reason")
    for t in transits:
        left = f"{max(0.0, t.lease_until - now):.0f} s" if t.state in LIVE else "-"
        path = ">".join(t.path) or "(best effort)"
        print(
            f"{t.state:<12}{t.src:<10}{t.dst:<10}{format_rate(t.granted_bps):>11}{left:>8}  "
            f"{path} {t.job} {t.reason}  [{t.id}]"
        )
