"""The archive in one SQLite file, for the processes of one machine.

WAL mode: readers never wait for writers, writers wait for each other. Two connections, so that a
long question does not keep this process from writing.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from monitors.archive.stores import base, schema
from monitors.archive.stores.base import ArchiveError, DamagedArchiveError, Row, Rows
from monitors.base.measurement import COLUMNS
from network_provisioner.base.errors import AdonError, InputError
from network_provisioner.base.private import make_private
from network_provisioner.base.wal import transaction

_log = logging.getLogger(__name__)

MEMORY = ":memory:"
# Memory for pages of the two indexes that every row goes into; SQLite's own 2 MB are too few for a
# million rows, and it takes no more than are used.
_CACHE_KIB = 16 * 1024
_LOCK = "measurement_never_changes"  # a trigger
_INSERT = (
    f"INSERT OR IGNORE INTO measurement ({COLUMNS}, recorded_at)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)

# Details are JSON in ASCII. SQLite's own check does not look at what a text says.
_DAMAGED = """
    SELECT count(*) FROM measurement
    WHERE details <> '' AND (details GLOB '*[^ -~]*' OR NOT json_valid(details))
"""


class SqliteEngine:
    """An :class:`~monitors.archive.stores.base.Engine`.

    With ``read_only`` nothing is ever created: while the file is not there, questions find nothing.
    The path ``:memory:`` is a database that is gone when it is closed.
    """

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        """Raises InputError where the file is something else or newer than this code, ArchiveError
        where it cannot be opened."""
        self.path = path
        self.shown = str(path)
        self.damage = ""
        self._read_only = read_only
        self._closed = False
        self._lock = threading.RLock()
        self._read_lock = self._lock if self._in_memory else threading.RLock()
        self._db: sqlite3.Connection | None = None
        self._reader: sqlite3.Connection | None = None
        self._old = False  # a reader's file has an older layout, and cannot be brought up to date
        self._rest: tuple[int, ...] | None = None  # of a reader's file that nobody seems to write
        self._opened = 0  # how often it was opened to read
        with self._explaining():
            if read_only:
                self._reader = self._opened_to_read()
            else:
                self._db = self._opened_to_write()

    @property
    def _in_memory(self) -> bool:
        return str(self.path) == MEMORY

    # ---------------------------------------------------------------- asking and writing

    def rows(self, statement: str, values: Sequence[object] = ()) -> Rows:
        base.check_texts(values)
        with self._read_lock, self._explaining():
            while (db := self._to_read()) is not None:
                try:
                    fetched = _fetched(db, statement, values)
                except sqlite3.DatabaseError:
                    if not self._was_written():
                        raise
                else:
                    if not self._was_written():
                        return fetched
            return []

    @contextmanager
    def write(self) -> Iterator[_Writing]:
        with self._lock, self._explaining():
            self._check()
            if self._read_only:
                raise ArchiveError(f"{self.path}: opened for reading, cannot be written")
            if self._db is None:
                self._db = self._opened_to_write()
            with transaction(self._db):
                yield _Writing(self._db)

    def changed(self) -> object:
        with self._read_lock, self._explaining():
            db = self._to_read()
            if db is None:
                return None
            # The second counts what other connections committed, for the one that is asked; the
            # third what this one did.
            version = db.execute("PRAGMA data_version").fetchone()[0]
            return self._opened, version, db.total_changes

    def faults(self) -> str:
        with self._read_lock, self._explaining():
            if (db := self._to_read()) is None:
                return ""
            words = str(db.execute("PRAGMA quick_check(1)").fetchone()[0])
            if words != "ok":
                return f"the file is damaged: {words.splitlines()[-1]}"
            count = db.execute(_DAMAGED).fetchone()[0]
            return f"{count} damaged measurements, which are left out" if count else ""

    def close(self) -> None:
        with self._lock, self._read_lock:
            self._closed = True
            for db in (self._reader, self._db):
                if db is not None:
                    db.close()
            self._reader = self._db = None

    # ---------------------------------------------------------------- connections

    def _check(self) -> None:
        if self._closed:
            raise ArchiveError(f"{self.path}: the archive was closed")

    def _to_read(self) -> sqlite3.Connection | None:
        """The connection, or None for a reader whose file is not there yet."""
        self._check()
        if self._in_memory and not self._read_only:
            return self._db
        if self._reader is not None and self._has_moved_on(self._reader):
            self._reader.close()
            self._reader = None
        if self._reader is None:
            self._reader = self._opened_to_read()
        return self._reader

    def _has_moved_on(self, db: sqlite3.Connection) -> bool:
        """Whether what a reader had to make do with is over."""
        if self._old and self._rest is None:
            return bool(db.execute("PRAGMA user_version").fetchone()[0] == schema.VERSION)
        return self._was_written()

    def _was_written(self) -> bool:
        """Whether somebody wrote a file that was thought to be at rest, or does: what was read of
        it meanwhile may be of several states, or of none."""
        return self._rest is not None and self._at_rest() != self._rest

    def _at_rest(self) -> tuple[int, ...] | None:
        """What would be another if somebody wrote; None where somebody does, or this user may. A
        file in WAL mode is read by who may make a log beside it, or where somebody else has."""
        log = self.path.with_name(f"{self.path.name}-wal")
        if log.exists() or os.access(self.path.absolute().parent, os.W_OK):
            return None
        try:
            status = self.path.stat()
        except OSError:  # it is gone
            return None
        return status.st_ino, status.st_size, status.st_mtime_ns

    def _opened_to_read(self) -> sqlite3.Connection | None:
        if self.path.is_dir():
            raise self._directory()
        if self._in_memory or not self.path.exists():
            return None
        self._rest = self._at_rest()
        self._opened += 1
        how = "mode=ro" if self._rest is None else "mode=ro&immutable=1"
        db = self._connected(f"{self.path.absolute().as_uri()}?{how}")
        try:
            version = schema.known_version(db, self.path)
            if 0 < version < schema.VERSION:
                self._bring_up_to_date()
                version = schema.known_version(db, self.path)
            self._old = 0 < version < schema.VERSION
            if self._old:
                schema.stand_in(db, version)
        except BaseException:
            db.close()
            raise
        if not version:
            db.close()  # another process is about to lay out the file
            return None
        return db

    def _bring_up_to_date(self) -> None:
        """As far as this user may; a reader gets along without."""
        with contextlib.suppress(sqlite3.Error, AdonError):
            self._opened_to_write().close()

    def _opened_to_write(self) -> sqlite3.Connection:
        if self._in_memory:
            target = "file::memory:"
        elif self.path.is_dir():
            raise self._directory()
        else:
            try:
                self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            except OSError as error:
                raise InputError(
                    f"archive {self.path}: its folder cannot be made: {error.strerror}"
                ) from error
            make_private(self.path)
            target = f"{self.path.absolute().as_uri()}?mode=rwc"
        db = self._connected(target)
        try:
            schema.ensure_schema(db, self.path, base.BUSY_S)
            db.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        except BaseException:
            db.close()
            raise
        return db

    def _directory(self) -> ArchiveError:
        return ArchiveError(
            f"archive {self.path}: cannot be opened: found a directory, expected a file"
        )

    @staticmethod
    def _connected(target: str) -> sqlite3.Connection:
        # Transactions are begun and ended by hand; threads are kept apart by our own locks.
        return sqlite3.connect(
            target, uri=True, timeout=base.BUSY_S, isolation_level=None, check_same_thread=False
        )

    @contextmanager
    def _explaining(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            explained = _explained(self.path, error)
            if isinstance(explained, DamagedArchiveError) and not self.damage:
                self.damage = str(explained)
                _log.error("%s", self.damage)
            raise explained from error
        except OSError as error:
            why = error.strerror or error
            raise ArchiveError(f"archive {self.path}: cannot be opened: {why}") from error


class _Writing:
    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def rows(self, statement: str, values: Sequence[object] = ()) -> Rows:
        return self._db.execute(statement, values).fetchall()

    def run(self, statement: str, values: Sequence[object] = ()) -> int:
        return self._db.execute(statement, values).rowcount

    def insert(self, rows: Sequence[Row]) -> int:
        return self._db.executemany(_INSERT, rows).rowcount

    @contextmanager
    def unlocked(self) -> Iterator[None]:
        ((made,),) = self.rows("SELECT sql FROM sqlite_master WHERE name = ?", (_LOCK,))
        self.run(f"DROP TRIGGER {_LOCK}")
        yield
        self.run(made)


def _fetched(db: sqlite3.Connection, statement: str, values: Sequence[object]) -> Rows:
    try:
        return db.execute(statement, values).fetchall()
    except sqlite3.OperationalError as error:
        if "Could not decode" not in str(error):
            raise
        # One damaged text is not to keep all others from being read.
        db.text_factory = lambda raw: raw.decode("utf-8", "surrogateescape")
        return db.execute(statement, values).fetchall()


def _explained(path: Path, error: sqlite3.Error) -> ArchiveError:
    """SQLite's error in the words of a user."""
    code = getattr(error, "sqlite_errorname", "")
    if code.startswith(("SQLITE_NOTADB", "SQLITE_CORRUPT")):
        return DamagedArchiveError(
            f"archive {path}: found a file that is not a whole SQLite database,"
            " expected an ADON archive or no file"
        )
    if code.startswith("SQLITE_FULL"):
        return ArchiveError(f"archive {path}: the disk is full")
    if code.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return ArchiveError(
            f"archive {path}: locked by another process for more than {base.BUSY_S:g} s"
        )
    if code.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM")):
        return ArchiveError(f"archive {path}: cannot be opened or written here: {error}")
    return ArchiveError(f"archive {path}: {error}")
