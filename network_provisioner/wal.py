"""SQLite's write-ahead log, switched on while other processes open the same file."""

from __future__ import annotations

import sqlite3
import time

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
