"""Which store a place means: the URL of a database, or a file."""

from __future__ import annotations

from pathlib import Path

from network_provisioner.stores.database_url import is_database_url
from network_provisioner.stores.sqlite import SqliteStore
from network_provisioner.stores.store import Store


def open_store(where: str | Path) -> Store:
    """The store at ``where``: a ``postgresql://`` URL or the path of an SQLite file.

    Raises StoreError: it cannot be reached, is of another layout, or another broker has the file.
    """
    if is_database_url(where):
        # Its client library is loaded where it is needed alone.
        from network_provisioner.stores.postgres import PostgresStore  # noqa: PLC0415

        return PostgresStore(str(where))
    return SqliteStore(where)
