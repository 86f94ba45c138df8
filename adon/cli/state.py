"""What the broker keeps: look at it, or move it from a file to PostgreSQL."""

from __future__ import annotations

import argparse
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from adon.cli.output import Column, print_json, rendered
from adon.cli.parsing import Noun, add_json, add_output, option
from network_provisioner.base.database_url import check_state, is_database_url
from network_provisioner.base.errors import InputError

if TYPE_CHECKING:
    from network_provisioner.stores.store import Store

NOUN = Noun("state", __doc__)
add = NOUN.add
_PLACE = "an SQLite file or a postgresql:// URL"
_COLUMNS = (Column("of"), Column("kind"), Column("count", "count>"))


def _opened(place: str, *, made: bool) -> Store:
    from network_provisioner.stores.opening import open_store

    check_state(place)
    if not made and not is_database_url(place) and not Path(place).is_file():
        raise InputError(f"{place}: found no such file, expected a broker's state")
    return open_store(place)


@NOUN.verb("show", option("place", _PLACE, "PLACE"), add_output)
def _show(args: argparse.Namespace) -> int:
    """Count what a place keeps: transits by state, documents by kind.

    A place is what 'broker.state' of adon.yml says: an SQLite file or a postgresql:// URL. A file
    that a broker is using cannot be looked at; ask the broker ('adon transit list').

    Examples:
      adon state show adon-broker.sqlite
      adon state show postgresql://adon@db.example.org/adon

    Exit codes: 0 all can be read; 1 some cannot; 2 there is no such place.
    """
    with closing(_opened(args.place, made=False)) as store:
        states = Counter(str(transit.state) for transit in store.each())
        documents = {kind: n for kind in store.kinds() if (n := len(store.documents(kind)))}
    kept = {"transits": dict(sorted(states.items())), "documents": documents}
    records = [
        {"of": of, "kind": kind, "count": n} for of in kept for kind, n in sorted(kept[of].items())
    ]
    document = kept | {"unreadable": store.unreadable}
    print(rendered(args, _COLUMNS, records, document=document, none="nothing is kept"))
    return _left_out(store, args.json or args.csv)


def _left_out(store: Store, for_programs: bool) -> int:
    """Say what cannot be read; the exit code."""
    for what, why in store.unreadable.items() if not for_programs else ():
        print(f"{what} cannot be read: {why}")
    return 1 if store.unreadable else 0


@NOUN.verb(
    "copy",
    option("source", f"where it is now: {_PLACE}", "FROM"),
    option("target", "where to copy it; made where there is nothing", "TO"),
    add_json,
)
def _copy(args: argparse.Namespace) -> int:
    """Copy everything that is kept from one place to another, which must be empty.

    Stop the broker first: what it does meanwhile might not be copied. The first place stays as it
    is. A password is read from PGPASSWORD or the password file, as PostgreSQL's own programs do.

    Examples:
      adon state copy adon-broker.sqlite postgresql://adon@db.example.org/adon
      adon state copy postgresql://adon@db.example.org/adon backup.sqlite
    """
    from network_provisioner.stores.opening import copy_state

    with (
        closing(_opened(args.source, made=False)) as source,
        closing(_opened(args.target, made=True)) as target,
    ):
        transits, versions = copy_state(source, target)
    if args.json:
        counts = {"transits": transits, "document_versions": versions}
        print_json(counts | {"unreadable": source.unreadable})
    else:
        print(f"copied {transits} transits and {versions} versions of documents")
    return _left_out(source, args.json)
