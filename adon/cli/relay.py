"""Relays: agents that carry the connections of transits over the wide area (SOS)."""

from __future__ import annotations

import argparse
from typing import Any

from adon.cli import relay_run
from adon.cli.options import answered, client
from adon.cli.output import table
from adon.cli.parsing import Nouns, add_broker, add_command, add_noun

_LIST = """List the relays of the network: whether each can be used, and what it carries.

'adon transit explain' says of a transit which relays carry it, or why none do.
"""


def add(nouns: Nouns[argparse.ArgumentParser]) -> None:
    """Add ``adon relay list`` and ``adon relay run``."""
    verbs = add_noun(nouns, "relay", __doc__)
    relay_run.add(verbs)
    add_broker(add_command(verbs, "list", _LIST, _list))


def _list(args: argparse.Namespace) -> int:
    found = client(args).call("GET", "/v1/relays")
    return answered(args, "list of relays", found, lambda: _listed(found))


def _listed(found: list[dict[str, Any]]) -> str:
    rows = [
        (
            str(one["name"]), str(one["switch"]), str(one["address"]), str(one["transits"]),
            str(one["connections"]), str(one["unready"] or "ready"),
        )
        for one in found
    ]  # fmt: skip
    head = ("relay", "at", "address", "transits>", "connections>", "state")
    return table(head, rows) if rows else "no relays: the topology has no node of kind relay"
