"""Where transits outlive the broker: SQLite, one row per transit.

The broker writes a transit here before it touches the switches, so whatever kills it, the next one
finds what may be on them. In WAL mode a committed row survives ``kill -9`` of the process; a power
cut may lose the last rows, never the file.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from network_provisioner.errors import AdonError
from network_provisioner.model import LIVE, Transit, TransitState
from network_provisioner.wal import use_wal

ACTIVE = LIVE | {TransitState.QUEUED}
_VERSION = 1  # of the table's layout, kept in the file's user_version
_BUSY_S = 10.0  # how long to wait for another process that writes


class StoreError(AdonError):
    """The state file cannot be read or written: names the file and what SQLite said."""


class Store(Protocol):
    """Keeps transits. Every method may raise StoreError; one that returns has taken effect."""

    def put(self, transit: Transit) -> None:
        """Write a transit, replacing what was there under its id."""
        ...

    def get(self, transit_id: str) -> Transit | None:
        """The transit with this id, or None."""
        ...

    def active(self) -> list[Transit]:
        """All transits that wait or hold bandwidth, oldest first."""
        ...

    def find(self, state: str | None, workflow: str | None, limit: int) -> list[Transit]:
        """The newest ``limit`` transits in a state, of a workflow (None: any), oldest first."""
        ...

    def close(self) -> None:
        """Release the file."""
        ...


class SqliteStore:
    """A :class:`Store` in one SQLite file; safe to use from several threads."""

    def __init__(self, path: Path | str) -> None:
        """Open or create the file and its folder. Raises StoreError."""
        self._path = Path(path)
        self._lock = threading.Lock()
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(
                f"state file {self._path}: its folder cannot be made: {error.strerror}"
            ) from error
        if self._path.is_dir():
            raise StoreError(f"state file {self._path}: found a directory, expected a file")
        with self._explained():
            self._db = sqlite3.connect(self._path, timeout=_BUSY_S, check_same_thread=False)
        try:
            with self._explained():
                self._prepare()
        except StoreError:
            self._db.close()
            raise

    def _prepare(self) -> None:
        # Autocommit: each put is one statement and its own transaction.
        self._db.isolation_level = None
        version = self._db.execute("PRAGMA user_version").fetchone()[0]
        if version not in (0, _VERSION):
            raise StoreError(
                f"state file {self._path} has layout {version}, expected {_VERSION}: "
                "it was written by another version of ADON"
            )
        use_wal(self._db, _BUSY_S)
        self._db.execute("PRAGMA synchronous = NORMAL")
        self._db.execute(
            "CREATE TABLE IF NOT EXISTS transits (number INTEGER PRIMARY KEY, id TEXT UNIQUE "
            "NOT NULL, state TEXT NOT NULL, workflow TEXT NOT NULL, body TEXT NOT NULL)"
        )
        self._db.execute("CREATE INDEX IF NOT EXISTS by_state ON transits (state)")
        self._db.execute("CREATE INDEX IF NOT EXISTS by_workflow ON transits (workflow)")
        self._db.execute(f"PRAGMA user_version = {_VERSION}")

    def put(self, transit: Transit) -> None:
        body = json.dumps(transit.as_dict(), separators=(",", ":"))
        row = (transit.id, str(transit.state), transit.workflow, body)
        with self._lock, self._explained():
            self._db.execute(
                "INSERT INTO transits (id, state, workflow, body) VALUES (?, ?, ?, ?) "
                "ON CONFLICT (id) DO UPDATE SET state = excluded.state, body = excluded.body",
                row,
            )

    def get(self, transit_id: str) -> Transit | None:
        rows = self._rows("WHERE id = ?", transit_id)
        return rows[0] if rows else None

    def active(self) -> list[Transit]:
        marks = ", ".join("?" for _ in ACTIVE)
        return self._rows(f"WHERE state IN ({marks}) ORDER BY number", *map(str, ACTIVE))

    def find(self, state: str | None, workflow: str | None, limit: int) -> list[Transit]:
        given = [(c, v) for c, v in (("state", state), ("workflow", workflow)) if v is not None]
        where = "WHERE " + " AND ".join(f"{column} = ?" for column, _ in given) if given else ""
        values = [value for _, value in given]
        return self._rows(f"{where} ORDER BY number DESC LIMIT ?", *values, limit)[::-1]

    def close(self) -> None:
        with self._lock, self._explained():
            self._db.close()

    def _rows(self, clause: str, *values: str | int) -> list[Transit]:
        with self._lock, self._explained():
            found = self._db.execute(f"SELECT body FROM transits {clause}", values).fetchall()
        return [Transit.from_dict(json.loads(body)) for (body,) in found]

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise StoreError(f"state file {self._path}: {error}") from error
