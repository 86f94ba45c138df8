"""Show the network that the broker manages, with what is reserved on it now."""

from __future__ import annotations

import argparse
from typing import Any

from adon.commands.brokers import bad_answer, client
from adon.commands.output import duration, print_json
from adon.commands.parsing import Nouns, add_broker, add_command, add_noun
from site_selector.tables import table

_SHOW = """List every link in both directions with its capacity and what is reserved on it now.

'free' is what may still be reserved; a part of each link always stays with best-effort traffic.
'delay' is one way.
"""


def add(nouns: Nouns[argparse.ArgumentParser]) -> None:
    """Add ``adon topology show``."""
    show = add_command(add_noun(nouns, "topology", __doc__), "show", _SHOW, _show)
    add_broker(show)


def _show(args: argparse.Namespace) -> int:
    data = client(args).topology()
    if args.json:
        print_json(data)
        return 0
    head = ("link", "layer", "capacity>", "reserved>", "free>", "delay>", "transits")
    with bad_answer(args, "topology"):
        text = table(head, [_row(link, load) for link in data["links"] for load in link["load"]])
    print(text)
    return 0


def _row(link: dict[str, Any], load: dict[str, Any]) -> tuple[str, ...]:
    from network_provisioner.units import format_rate

    return (
        f"{load['from']} > {load['to']}",
        str(link["layer"]),
        format_rate(link["capacity_bps"]),
        format_rate(load["reserved_bps"]),
        format_rate(load["reservable_bps"] - load["reserved_bps"]),
        duration(link["delay_s"]),
        ", ".join(map(str, load["transits"])),
    )
