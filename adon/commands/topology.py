"""Show the network that the broker manages, with what is reserved on it now."""

from __future__ import annotations

import argparse
import json

from adon.commands.options import add_broker, client


def add(nouns: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``adon topology show``."""
    verbs = nouns.add_parser("topology", help=__doc__, description=__doc__).add_subparsers(
        dest="verb", required=True, metavar="VERB"
    )
    show = verbs.add_parser("show", help="list links with capacity and load")
    add_broker(show)
    show.set_defaults(run=_show)


def _show(args: argparse.Namespace) -> int:
    from network_provisioner.units import format_rate

    data = client(args).topology()
    if args.json:
        print(json.dumps(data, indent=2))
        return 0
    print(f"{'link':<24}{'layer':<7}{'capacity':>12}{'reserved':>12}{'RTT share':>12}")
    for link in data["links"]:
        for a, b in ((link["a"], link["b"]), (link["b"], link["a"])):
            reserved = link["reserved_bps"].get(f"{a}>{b}", 0.0)
            print(
                f"{a + ' -> ' + b:<24}{link['layer']:<7}{format_rate(link['capacity_bps']):>12}"
                f"{format_rate(reserved):>12}{2e3 * link['delay_s']:>9.1f} ms"
            )
    return 0
