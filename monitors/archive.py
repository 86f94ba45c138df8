"""The measurement archive: everything that was measured, once, with its unit.

    with Archive("archive.sqlite") as archive:
        archive.record(Measurement("run-7/job-3", "runtime", "soykb::bwa_mem:1.0@mu", 12.5, "s",
                                   at=1700000000.0, source="dagman"))
        archive.estimate("runtime", "soykb::bwa_mem:1.0@mu", now=1700000100.0)

Append-only: a measurement is never changed, and its ``id``, chosen by whoever measured, is taken
exactly once. A monitor that is killed and started again may therefore record everything again:
what is there stays, what was missing is added.

SQLite in WAL mode: several processes write at the same time (each waits for the others), readers
see whole transactions only. What a process committed survives its kill -9.
"""

from __future__ import annotations

import math
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any

from monitors import estimates
from monitors.estimates import Estimate
from monitors.measurement import COLUMNS, UNITS, Measurement, from_row, to_row
from monitors.schema import ensure_schema, is_known
from network_provisioner.errors import AdonError, InputError

__all__ = ["UNITS", "Archive", "ArchiveError", "Estimate", "Measurement"]

_BATCH = 5000  # rows per transaction: others get their turn, and memory stays flat
_BUSY_S = 15.0  # how long to wait for another process's transaction before giving up

_INSERT = (
    f"INSERT OR IGNORE INTO measurement ({COLUMNS}, recorded_at)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)


class ArchiveError(AdonError):
    """The archive could not be read or written just now: disk full, locked, no permission."""


class Archive:
    """Opened on a file, for one process; threads may share it.

    Writing creates the file and the folders above it. With ``read_only`` nothing is ever created:
    while the file is not there, queries find nothing. The path ``:memory:`` is an archive that is
    gone when it is closed.

    Raises InputError where the file is something else or newer than this code, ArchiveError where
    it cannot be opened.
    """

    def __init__(self, path: str | Path, *, read_only: bool = False) -> None:
        self.path = Path(path)
        self.read_only = read_only
        self._lock = threading.RLock()
        self._db: sqlite3.Connection | None = None
        self._closed = False
        self._connect()

    # ---------------------------------------------------------------- writing

    def record(self, measurement: Measurement) -> bool:
        """Adds one measurement; False where its id is there already.

        Raises InputError for a value or time that is not finite, an empty id, or a unit other than
        the metric's own; ArchiveError where it could not be written.
        """
        return self.record_many([measurement]) == 1

    def record_many(self, measurements: Iterable[Measurement]) -> int:
        """Adds measurements in large transactions; returns how many were not there before.

        Raises as :meth:`record`. Transactions committed before the error stay, and recording
        everything again is harmless.
        """
        rows = ((*to_row(measurement), time.time()) for measurement in measurements)
        added = 0
        while batch := list(islice(rows, _BATCH)):
            with self._using() as db:
                if db is None:
                    raise ArchiveError(f"{self.path}: opened for reading, cannot be written")
                before = db.total_changes
                db.execute("BEGIN IMMEDIATE")
                try:
                    db.executemany(_INSERT, batch)
                    db.execute("COMMIT")
                except BaseException:
                    if db.in_transaction:
                        db.execute("ROLLBACK")
                    raise
                added += db.total_changes - before
        return added

    # ---------------------------------------------------------------- reading

    def query(
        self,
        metric: str,
        subject: str | None = None,
        workflow: str | None = None,
        since: float | None = None,
        until: float | None = None,
    ) -> list[Measurement]:
        """Measurements of a metric with ``since <= at <= until``, oldest first."""
        conditions: list[tuple[str, object]] = [("metric = ?", metric)]
        conditions += [("subject = ?", subject)] if subject is not None else []
        conditions += [("workflow = ?", workflow)] if workflow is not None else []
        conditions += [("at >= ?", since)] if since is not None else []
        conditions += [("at <= ?", until)] if until is not None else []
        where = " AND ".join(condition for condition, _ in conditions)
        rows = self._fetch(
            f"SELECT {COLUMNS} FROM measurement WHERE {where} ORDER BY at, seq",
            [value for _, value in conditions],
        )
        return [from_row(row) for row in rows]

    def subjects(self, metric: str) -> list[str]:
        """All subjects a metric was measured for, in alphabetical order."""
        sql = "SELECT DISTINCT subject FROM measurement WHERE metric = ? ORDER BY subject"
        return [row[0] for row in self._fetch(sql, [metric])]

    def estimate(
        self, metric: str, subject: str, now: float, max_age_s: float | None = None
    ) -> Estimate | None:
        """What is known about a subject at ``now`` (Unix seconds); None where nothing is.

        Robust and recency-weighted, see :mod:`monitors.estimates`. Measurements after ``now`` are
        not used, nor those more than ``max_age_s`` seconds before it.
        """
        oldest = -math.inf if max_age_s is None else now - max_age_s
        # The id breaks ties, so that the answer does not depend on who recorded first.
        rows = self._fetch(
            "SELECT value, at, source, unit FROM measurement WHERE metric = ? AND subject = ?"
            " AND at <= ? AND at >= ? ORDER BY at DESC, id LIMIT ?",
            [metric, subject, now, oldest, estimates.WINDOW],
        )
        if not rows:
            return None
        value, spread = estimates.estimate([row[0] for row in rows])
        _, at, source, unit = rows[0]
        return Estimate(value, spread, len(rows), at, source, unit)

    # ---------------------------------------------------------------- life

    def close(self) -> None:
        """Closes the file; the archive cannot be used afterwards. Closing twice is harmless."""
        with self._lock:
            self._closed = True
            if self._db is not None:
                self._db.close()
                self._db = None

    def __enter__(self) -> Archive:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _fetch(self, sql: str, values: list[object]) -> list[tuple[Any, ...]]:
        with self._using() as db:
            return [] if db is None else db.execute(sql, values).fetchall()

    @contextmanager
    def _using(self) -> Iterator[sqlite3.Connection | None]:
        """The connection, or None for a reader whose file is not there yet."""
        with self._lock:
            if self._closed:
                raise ArchiveError(f"{self.path}: the archive was closed")
            try:
                if self._db is None:
                    self._connect()
                yield self._db
            except sqlite3.Error as error:
                raise _explained(self.path, error) from error

    def _connect(self) -> None:
        if str(self.path) == ":memory:":
            target = "file::memory:"
        elif self.path.is_dir():
            raise ArchiveError(
                f"archive {self.path}: cannot be opened: found a directory, expected a file"
            )
        elif self.read_only:
            if not self.path.exists():
                return
            target = f"{self.path.absolute().as_uri()}?mode=ro"
        else:
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise InputError(
                    f"archive {self.path}: its folder cannot be made: {error.strerror}"
                ) from error
            target = f"{self.path.absolute().as_uri()}?mode=rwc"
        db: sqlite3.Connection | None = None
        try:
            # Transactions are begun and ended by hand; threads are kept apart by our own lock.
            db = sqlite3.connect(
                target, uri=True, timeout=_BUSY_S, isolation_level=None, check_same_thread=False
            )
            if self.read_only:
                if not is_known(db, self.path):
                    db.close()  # another process is about to lay out the file
                    return
            else:
                ensure_schema(db, self.path, _BUSY_S)
        except (sqlite3.Error, InputError) as error:
            if db is not None:
                db.close()
            if isinstance(error, InputError):
                raise
            raise _explained(self.path, error) from error
        self._db = db


def _explained(path: Path, error: sqlite3.Error) -> AdonError:
    """SQLite's error in the words of a user."""
    code = getattr(error, "sqlite_errorname", "")
    if code.startswith(("SQLITE_NOTADB", "SQLITE_CORRUPT")):
        return InputError(
            f"archive {path}: found a file that is not a whole SQLite database,"
            " expected an ADON archive or no file"
        )
    if code.startswith("SQLITE_FULL"):
        return ArchiveError(f"archive {path}: the disk is full")
    if code.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return ArchiveError(
            f"archive {path}: locked by another process for more than {_BUSY_S:g} s"
        )
    if code.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM")):
        return ArchiveError(f"archive {path}: cannot be opened or written here: {error}")
    return ArchiveError(f"archive {path}: {error}")
