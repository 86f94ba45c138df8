"""Which store a place means, the URL of a database or a file; and from one store to another."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

from network_provisioner.base.clock import SteadyClock
from network_provisioner.base.database_url import is_database_url
from network_provisioner.base.errors import InputError
from network_provisioner.stores.sqlite import SqliteStore
from network_provisioner.stores.store import PAGE, Store


def open_store(where: str | Path, clock: SteadyClock | None = None, reading: bool = False) -> Store:
    """The store at ``where``: a ``postgresql://`` URL or the path of an SQLite file. Whose
    ``clock`` is wrong leads nobody who shares a database. ``reading``: only to read it as it is
    now, also while brokers use it.

    Raises StoreError: it cannot be reached, is of another layout, or another broker has the file.
    """
    if is_database_url(where):
        # Its client library is loaded where it is needed alone.
        from network_provisioner.stores.postgres import PostgresStore  # noqa: PLC0415

        return PostgresStore(str(where), steady=clock, reading=reading)
    return SqliteStore(where, reading=reading)


def copy_state(source: Store, target: Store) -> tuple[int, int]:
    """Copy all transits, in their order, and all versions of all documents.

    Returns how many of each. What was copied before an error stays in the target. Raises
    StoreError, and InputError where the target holds something, or a broker uses it: state is never
    mixed.
    """
    if not (leader := target.elect()).is_us:
        raise InputError(
            f"the broker at {leader.address} uses the place to copy to, expected an unused one"
        )
    if next(target.each(), None) is not None or target.kinds():
        raise InputError("found state in the place to copy to, expected an empty one")
    transits = documents = 0
    everything = source.each()
    while page := list(islice(everything, PAGE)):
        target.put_many(page)
        transits += len(page)
    for kind, names in source.kinds().items():
        for name in names:
            versions = source.history(kind, name)
            target.restore(versions)
            documents += len(versions)
    target.resign()
    return transits, documents
