"""Show and back up the broker's state, or copy it between a file and PostgreSQL."""

from __future__ import annotations

import argparse
from collections import Counter
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from adon.cli.output import Column, for_programs, print_fields, print_records
from adon.cli.parsing import Noun, add_output, option
from network_provisioner.base.database_url import check_state, is_database_url
from network_provisioner.base.errors import InputError

if TYPE_CHECKING:
    from network_provisioner.stores.store import Store

NOUN = Noun("state", __doc__)
_PLACE = "SQLite file or postgresql:// URL"
_COLUMNS = (Column("of"), Column("kind"), Column("count", "count>"))


def _opened(place: str, *, reading: bool) -> Store:
    from network_provisioner.stores.opening import open_store

    check_state(place)
    if reading and not is_database_url(place) and not Path(place).is_file():
        raise InputError(f"{place}: found no such file, expected a broker's state")
    return open_store(place, reading=reading)


@NOUN.verb("show", option("place", _PLACE, "PLACE"), add_output)
def _show(args: argparse.Namespace) -> int:
    """Count the contents of a state: transits by state, documents by kind.

    PLACE is the value of 'broker.state' in adon.yml. A broker may use it at the same time.

    Examples:
      adon state show adon-broker.sqlite
      adon state show postgresql://adon@db.example.org/adon

    Exit codes: 0 everything is readable; 1 something is not; 2 there is no such state.
    """
    with closing(_opened(args.place, reading=True)) as store:
        states = Counter(str(transit.state) for transit in store.each())
        documents = {kind: n for kind in store.kinds() if (n := len(store.documents(kind)))}
    kept = {"transits": dict(sorted(states.items())), "documents": documents}
    records = [
        {"of": of, "kind": kind, "count": n} for of in kept for kind, n in sorted(kept[of].items())
    ]
    document = kept | {"unreadable": store.unreadable}
    print_records(args, _COLUMNS, records, document=document, none="nothing is kept")
    return _left_out(args, store)


def _left_out(args: argparse.Namespace, store: Store) -> int:
    """Say what cannot be read; the exit code."""
    for what, why in store.unreadable.items() if not for_programs(args) else ():
        print(f"{what} cannot be read: {why}")
    return 1 if store.unreadable else 0


@NOUN.verb(
    "copy",
    option("source", _PLACE, "FROM"),
    option("target", "the same; empty, or created if missing", "TO"),
    add_output,
)
def _copy(args: argparse.Namespace) -> int:
    """Copy a state to another place, which must be empty.

    The copy is the state at one instant. To move a broker, stop it first, because later changes
    are missing in the copy. The source does not change. Passwords come from PGPASSWORD or the
    password file, as with PostgreSQL's own programs.

    Examples:
      adon state copy adon-broker.sqlite postgresql://adon@db.example.org/adon
      adon state copy postgresql://adon@db.example.org/adon adon-broker.sqlite
    """
    return _copied(args, args.source, args.target)


@NOUN.verb(
    "backup", option("place", _PLACE, "PLACE"), option("file", "new file", "FILE"), add_output
)
def _backup(args: argparse.Namespace) -> int:
    """Back up a state to a new SQLite file, also while brokers use it.

    FILE has the state at one instant, and appears when it is complete. To restore it, stop the
    broker and use FILE as 'broker.state', or copy it to an empty place with 'adon state copy'.

    Examples:
      adon state backup adon-broker.sqlite /backup/adon-monday.sqlite
      adon state backup postgresql://adon@db.example.org/adon /backup/adon.sqlite
    """
    file = Path(args.file)
    if file.exists():
        raise InputError(f"{file}: found a file, expected a new name")
    if not file.parent.is_dir():
        raise InputError(f"{file}: found no folder {file.parent}")
    with TemporaryDirectory(dir=file.parent, prefix=f".{file.name}.") as folder:
        return _copied(args, args.place, str(Path(folder) / file.name), file)


def _copied(args: argparse.Namespace, place: str, to: str, file: Path | None = None) -> int:
    """Copy a state, give the copy the name ``file``, and say so; the exit code."""
    from network_provisioner.stores.opening import copy_state

    with (
        closing(_opened(place, reading=True)) as source,
        closing(_opened(to, reading=False)) as target,
    ):
        transits, versions = copy_state(source, target)
    if file is not None:
        file.touch(exist_ok=False)  # never over what came meanwhile; many a share has no links
        Path(to).replace(file)
    record = {
        "transits": transits,
        "document_versions": versions,
        "unreadable": source.unreadable,
    }
    text = f"copied {transits} transits and {versions} versions of documents"
    print_fields(args, record, lambda: text)
    return _left_out(args, source)
