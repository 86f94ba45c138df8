"""What the broker keeps: look at it, or move it from a file to PostgreSQL."""

from __future__ import annotations

import argparse
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from adon.cli.output import print_json
from adon.cli.parsing import CommandParser, Nouns, add_command, add_json, add_noun
from network_provisioner.base.errors import InputError
from network_provisioner.stores.database_url import check_state, is_database_url

if TYPE_CHECKING:
    from network_provisioner.stores.store import Store

_SHOW = """Count what is kept in a place: transits by state, documents by kind.

A place is what 'broker.state' of adon.yml says: an SQLite file or a postgresql:// URL. A file that
a broker is using cannot be looked at; ask the broker ('adon transit list').
"""
_SHOW_MORE = """
Examples:
  adon state show adon-broker.sqlite
  adon state show postgresql://adon@db.example.org/adon
"""
_COPY = """Copy everything that is kept from one place to another, which must be empty.

Stop the broker first: what it does meanwhile might not be copied. The first place stays as it is.
A password is read from PGPASSWORD or the password file, as PostgreSQL's own programs do.
"""
_COPY_MORE = """
Examples:
  adon state copy adon-broker.sqlite postgresql://adon@db.example.org/adon
  adon state copy postgresql://adon@db.example.org/adon backup.sqlite
"""


def add(nouns: Nouns[argparse.ArgumentParser]) -> None:
    """Add ``adon state show|copy``."""
    verbs = add_noun(nouns, "state", __doc__)
    show = add_command(verbs, "show", _SHOW, _show, _SHOW_MORE)
    _place(show, "place", "PLACE", "an SQLite file or a postgresql:// URL")
    add_json(show)
    copy = add_command(verbs, "copy", _COPY, _copy, _COPY_MORE)
    _place(copy, "source", "FROM", "where it is kept now")
    _place(copy, "target", "TO", "where it is to be kept; made where there is nothing")
    add_json(copy)


def _place(parser: CommandParser, name: str, shown: str, meaning: str) -> None:
    parser.add_argument(name, metavar=shown, help=meaning)


def _opened(place: str, *, made: bool) -> Store:
    from network_provisioner.stores.opening import open_store

    check_state(place)
    if not made and not is_database_url(place) and not Path(place).is_file():
        raise InputError(f"{place}: found no such file, expected a broker's state")
    return open_store(place)


def _show(args: argparse.Namespace) -> int:
    with closing(_opened(args.place, made=False)) as store:
        states = Counter(str(transit.state) for transit in store.each())
        documents = {kind: n for kind in store.kinds() if (n := len(store.documents(kind)))}
    if args.json:
        kept = {"transits": dict(sorted(states.items())), "documents": documents}
        print_json(kept | {"unreadable": store.unreadable})
        return 1 if store.unreadable else 0
    for what, counts in (("transits", states), ("documents", documents)):
        told = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
        print(f"{what}: {told or 'none'}")
    return _left_out(store)


def _left_out(store: Store) -> int:
    """Say what cannot be read; the exit code."""
    for what, why in store.unreadable.items():
        print(f"{what} cannot be read: {why}")
    return 1 if store.unreadable else 0


def _copy(args: argparse.Namespace) -> int:
    from network_provisioner.stores.opening import copy_state

    with (
        closing(_opened(args.source, made=False)) as source,
        closing(_opened(args.target, made=True)) as target,
    ):
        transits, versions = copy_state(source, target)
    if args.json:
        counts = {"transits": transits, "document_versions": versions}
        print_json(counts | {"unreadable": source.unreadable})
        return 1 if source.unreadable else 0
    else:
        print(f"copied {transits} transits and {versions} versions of documents")
    return _left_out(source)
