"""SQLite files that several processes write: the write-ahead log, and transactions."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager

_TRY_AGAIN_S = 0.01


def use_wal(db: sqlite3.Connection, busy_s: float) -> None:
    """Switch to WAL, once for the file.

    The switch needs the file alone and does not wait as other statements do, so it is tried again
    for ``busy_s`` seconds while others have it; they may well make the same switch. Raises
    sqlite3.Error.
    """
    deadline = time.monotonic() + busy_s
    while True:
        try:
            db.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorname != "SQLITE_BUSY" or time.monotonic() > deadline:
                raise
            time.sleep(_TRY_AGAIN_S)
        else:
            return


@contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[None]:
    """All or nothing, nobody else writing meanwhile. The connection's own ``isolation_level`` is
    None. Raises sqlite3.Error."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise
