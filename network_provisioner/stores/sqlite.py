"""A store in one SQLite file, for one broker.

In WAL mode a committed row survives ``kill -9`` of the process; a power cut may lose the last rows,
never the file. The broker holds a lock on ``<file>.lock`` as long as it lives; the kernel gives it
back however the broker ends, so the file beside the state says nothing by being there.
"""

from __future__ import annotations

import fcntl
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from network_provisioner.base.errors import printable
from network_provisioner.base.model import Transit
from network_provisioner.base.private import make_private, open_lock
from network_provisioner.base.wal import transaction, use_wal
from network_provisioner.stores.store import (
    Rows,
    Run,
    Store,
    StoreError,
    body_of,
    row_of,
    transit_of,
    upsert,
)

log = logging.getLogger(__name__)

MEMORY = ":memory:"
_LAYOUT = 2  # of the tables, kept in the file's user_version
_BUSY_S = 10.0  # how long to wait for another process that writes
_TABLES = (
    "CREATE TABLE IF NOT EXISTS transits (number INTEGER PRIMARY KEY, id TEXT UNIQUE NOT NULL, "
    "state TEXT NOT NULL, workflow TEXT NOT NULL, body TEXT NOT NULL)",
    "CREATE INDEX IF NOT EXISTS by_state ON transits (state)",
    "CREATE INDEX IF NOT EXISTS by_workflow ON transits (workflow)",
    # New with layout 2; that of layout 1 had transits only. No body: this version deleted it.
    "CREATE TABLE IF NOT EXISTS documents (number INTEGER PRIMARY KEY, kind TEXT NOT NULL, "
    "name TEXT NOT NULL, version INTEGER NOT NULL, body TEXT, at REAL NOT NULL, "
    "UNIQUE (kind, name, version))",
    "CREATE INDEX IF NOT EXISTS documents_by_kind ON documents (kind)",
)
_PUT = upsert("transits")
_ADVICE = {
    sqlite3.SQLITE_CORRUPT: "; the file is damaged, see docs/state.md",
    sqlite3.SQLITE_NOTADB: "; the file is damaged or another program's, see docs/state.md",
}


def _text(raw: bytes) -> str:
    """One spoilt text is not to keep all others of its table from being read."""
    return raw.decode("utf-8", "surrogateescape")


def faults(path: Path) -> list[str]:
    """In words, why a broker's state in a file cannot be written or be read as a whole; also while
    a broker has it. The number of its layout is written, as it is."""
    try:
        return _faults(path)
    except sqlite3.Error as error:
        return [str(error)]


def _faults(path: Path) -> list[str]:
    uri = f"{path.absolute().as_uri()}?mode=rw"
    with closing(sqlite3.connect(uri, timeout=_BUSY_S, isolation_level=None, uri=True)) as db:
        db.text_factory = _text
        if unknown := _unknown(db):
            return [f"it {unknown}"]
        layout = _layout(db)
        if damage := _damage(db):
            return [damage]
        db.execute("BEGIN IMMEDIATE")
        db.execute(f"PRAGMA user_version = {layout}")
        db.execute("COMMIT")
        faults = []
        for name, body in db.execute("SELECT id, body FROM transits"):
            why = transit_of(name, body)
            if isinstance(why, str):
                faults.append(f"transit {printable(name)} cannot be read: {why}")
        documents = "SELECT kind, name, coalesce(body, '{}') FROM documents"
        for kind, name, body in db.execute(documents) if layout > 1 else ():
            try:
                body_of(body)
            except ValueError as error:
                faults.append(f"{printable(f'{kind} {name}')} cannot be read: {error}")
        return faults


def _layout(db: sqlite3.Connection) -> int:
    return int(db.execute("PRAGMA user_version").fetchone()[0])


def _unknown(db: sqlite3.Connection) -> str:
    """In words, that a file has tables that this version does not know; "" where it has not."""
    tables = {name for (name,) in db.execute("SELECT name FROM sqlite_schema")}
    if tables and "transits" not in tables:
        return "is an SQLite file of something else, expected a broker's, or none"
    layout = _layout(db)
    if layout in range(_LAYOUT + 1):
        return ""
    return (
        f"has layout {layout}, expected at most {_LAYOUT}: "
        "it was written by a later version of ADON"
    )


def _damage(db: sqlite3.Connection) -> str:
    """What is wrong with the structure of the file, "" for nothing."""
    words = str(db.execute("PRAGMA quick_check(1)").fetchone()[0])
    return "" if words == "ok" else f"the file is damaged: {words.splitlines()[-1]}"


class SqliteStore(Store):
    """A :class:`~network_provisioner.stores.store.Store` in one SQLite file, or in memory for
    ``":memory:"``."""

    shared = False
    _transits_in = "transits"
    _documents_in = "documents"

    def __init__(
        self, path: Path | str, clock: Callable[[], float] = time.time, reading: bool = False
    ) -> None:
        """Open or create the file and its folder; ``clock`` dates documents. ``reading``: only to
        read the file as it is now, also while a broker writes it. Raises StoreError."""
        self._path = Path(path)
        self._reading = reading
        self._clock = clock
        self.unreadable = {}
        self._lock = threading.Lock()
        self._held = None if str(path) == MEMORY or reading else self._hold()
        where = f"{self._path.absolute().as_uri()}?mode=ro" if reading else str(self._path)
        with self._explained(), ExitStack() as undo:
            undo.callback(self._let_go)
            self._db = sqlite3.connect(where, timeout=_BUSY_S, check_same_thread=False, uri=reading)
            undo.callback(self._db.close)
            self._db.text_factory = _text
            self._prepare()
            undo.pop_all()

    # -- opening -----------------------------------------------------------------------------

    def _hold(self) -> BinaryIO:
        """Be the only one who has the file open. Not a lock on the file itself: closing any other
        descriptor of it would drop SQLite's own locks."""
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(
                f"state file {self._path}: its folder cannot be made: {error.strerror}"
            ) from error
        if self._path.is_dir():
            raise StoreError(f"state file {self._path}: found a directory, expected a file")
        whole = self._path.resolve()  # the same for whoever comes by another link
        lock = whole.with_name(f"{whole.name}.lock")
        try:
            held = open_lock(lock)
            make_private(whole)
        except OSError as error:
            raise StoreError(f"state file {self._path}: {lock}: {error.strerror}") from error
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            held.truncate(0)
            held.write(f"{os.getpid()}\n".encode("ascii"))
        except BlockingIOError:
            held.seek(0)
            holder = held.read(20).decode("ascii", "replace").strip()
            held.close()
            who = f"the broker with process id {holder}" if holder.isdecimal() else "another broker"
            raise StoreError(
                f"state file {self._path}: {who} has it; expected one broker to a file "
                "(several can share a PostgreSQL database)"
            ) from None
        except OSError as error:
            held.close()
            raise StoreError(
                f"state file {self._path}: it cannot be locked: {error.strerror}"
            ) from error
        return held

    def _let_go(self) -> None:
        if self._held is not None:
            self._held.close()

    def _prepare(self) -> None:
        self._db.isolation_level = None  # each statement is its own transaction
        if unknown := _unknown(self._db):
            raise StoreError(f"state file {self._path} {unknown}")
        if self._reading:
            self._db.execute("BEGIN")  # with the first question, all others are answered as of then
            self._check_structure()
            return
        use_wal(self._db, _BUSY_S)
        self._db.execute("PRAGMA synchronous = NORMAL")
        with transaction(self._db):
            for statement in _TABLES:
                self._db.execute(statement)
            self._db.execute(f"PRAGMA user_version = {_LAYOUT}")
        self._check_structure()

    def _check_structure(self) -> None:
        if damage := _damage(self._db):
            log.error("state file %s: %s, see docs/state.md", self._path, damage)
            self.unreadable[f"state file {self._path}"] = damage

    # -- transits ----------------------------------------------------------------------------

    def put_many(self, transits: Sequence[Transit]) -> None:
        rows = [row_of(transit) for transit in transits]
        with self._lock, self._explained(), transaction(self._db):
            self._db.executemany(_PUT, rows)
        self._replaced(transits)

    # -- within ------------------------------------------------------------------------------

    def try_write(self) -> None:
        """One page, the first, as it is."""
        with self._lock, self._explained(), transaction(self._db):
            self._db.execute(f"PRAGMA user_version = {_LAYOUT}")

    def close(self) -> None:
        with self._lock, self._explained():
            self._db.close()
            self._let_go()

    def _rows(self, statement: str, **values: Any) -> Rows:
        with self._lock, self._explained():
            return self._db.execute(statement, values).fetchall()

    @contextmanager
    def _writing(self) -> Iterator[Run]:
        with self._lock, self._explained(), transaction(self._db):
            yield lambda statement, values: self._db.execute(statement, values).fetchall()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            advice = _ADVICE.get(getattr(error, "sqlite_errorcode", 0) & 0xFF, "")
            raise StoreError(f"state file {self._path}: {error}{advice}") from error
