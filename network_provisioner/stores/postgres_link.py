"""One connection to PostgreSQL that comes back by itself and never waits for long.

Whatever is done through it ends within seconds: the server is told to give up on locks and long
statements, and a server that says nothing at all is left.
"""

from __future__ import annotations

import select
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

from network_provisioner.base.database_url import shown_url
from network_provisioner.base.errors import printable
from network_provisioner.stores.store import Rows, StoreError

Database = psycopg.Connection[tuple[Any, ...]]
_CONNECT_S = 3
_LOCK_S = 2.5  # for another's write
_STATEMENT_S = 4.0
_SILENT_S = 5.0  # then the server does not even say that a statement took too long
_LOOK_S = 0.5  # psycopg looks every 0.1 s
_HOPELESS_S = 1.0  # after a connection was tried in vain for long, nobody else tries it for so long
_OLDEST = 140_000  # the oldest that is maintained
_BUSY = (psycopg.errors.LockNotAvailable, psycopg.errors.QueryCanceled)
_FOUND: dict[str, Any] = {
    "connect_timeout": _CONNECT_S,
    "application_name": "adon",
    # A peer that vanished without a word, and a broker that did.
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 2,
    "tcp_user_timeout": int(_SILENT_S * 1e3),
    # Where the URL names several hosts: the one that writes.
    "target_session_attrs": "read-write",
}
"""What is meant where the URL says nothing about it."""


_SETTINGS = {
    "lock_timeout": f"{_LOCK_S:g}s",
    "statement_timeout": f"{_STATEMENT_S:g}s",
    "idle_in_transaction_session_timeout": f"{_STATEMENT_S:g}s",
    "client_encoding": "UTF8",
}
_SET = "SELECT set_config(%(name)s, %(value)s, false)"


class LostError(StoreError):
    """The connection broke: what was under way may or may not have taken effect."""


class BusyError(StoreError):
    """It took too long, so it did not take effect: others were at it."""


class _Silent(psycopg.OperationalError):
    pass


class _Connection(psycopg.Connection[tuple[Any, ...]]):
    """Gives up on a server that says nothing."""

    def wait(self, gen: Any, *args: Any, **named: Any) -> Any:
        return super().wait(_impatient(gen), *args, **named)


def _impatient(steps: Any) -> Any:
    """What psycopg waits for; it asks every now and then, even if nothing came. While this process
    itself is stopped the server may say what it likes: such a time counts as one short look."""
    silent_s, looked = 0.0, time.monotonic()
    try:
        wanted = next(steps)
        while True:
            ready = yield wanted
            now = time.monotonic()
            silent_s = 0.0 if ready else silent_s + min(now - looked, _LOOK_S)
            looked = now
            if silent_s > _SILENT_S:
                steps.close()
                raise _Silent(f"the server has said nothing for {_SILENT_S:g} s")
            wanted = steps.send(ready)
    except StopIteration as end:
        return end.value


def run(db: Database, statement: str, values: dict[str, Any] | None = None) -> Rows:
    """Run one statement; the rows that it gives, none for one that gives none."""
    cursor = db.execute(statement, values)
    return cursor.fetchall() if cursor.description else []


class PostgresConnection:
    """A connection to the database at ``url``; safe to use from several threads, one at a time."""

    def __init__(self, url: str) -> None:
        """Connects with the first use. Raises StoreError for what libpq does not take."""
        self.shown = shown_url(url)
        self._lock = threading.Lock()
        self._db: _Connection | None = None
        self._closed = False
        self._hopeless = (0.0, "")  # until when, and why, no connection is tried
        try:
            self._given = {**_FOUND, **conninfo_to_dict(url)}
        except psycopg.Error:  # libpq's own words would quote the URL
            raise StoreError(
                f"database {self.shown}: found what libpq does not take, "
                "expected postgresql://USER@HOST:PORT/DATABASE"
            ) from None

    def rows(self, statement: str, values: dict[str, Any]) -> Rows:
        """Run one statement, in a transaction of its own."""
        with self.open() as db:
            return run(db, statement, values)

    @contextmanager
    def open(self) -> Iterator[Database]:
        """The connection, for this thread alone. Raises StoreError, LostError."""
        with self._lock:
            db = self._db
            if db is None or db.closed or _ended(db):
                db = self._connect()
            try:
                yield db
            except psycopg.Error as error:
                lost = db.closed or isinstance(error, _Silent)
                if lost:
                    db.close()
                busy = isinstance(error, _BUSY)
                kind = LostError if lost else BusyError if busy else StoreError
                raise kind(f"database {self.shown}: {_said(error)}") from error
            except BaseException:
                # Interrupted in the middle of something: what the session is in is not known.
                if db.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
                    db.close()
                raise

    def close(self) -> None:
        """End the connection for good, and with it all that the session holds."""
        self._closed = True
        with self._lock:
            if self._db is not None:
                self._db.close()

    def _connect(self) -> _Connection:
        if self._closed:
            raise StoreError(f"database {self.shown}: the store was closed")
        until, why = self._hopeless
        if self._db is not None:
            self._db.close()
        began = time.monotonic()
        if began < until:
            raise StoreError(f"database {self.shown}: {why}")
        try:
            db = _Connection.connect(autocommit=True, **self._given)
        except psycopg.Error as error:
            if time.monotonic() - began > _HOPELESS_S:
                self._hopeless = (time.monotonic() + _HOPELESS_S, _said(error))
            raise StoreError(f"database {self.shown}: {_said(error)}") from None
        try:
            if db.info.server_version < _OLDEST:
                raise StoreError(
                    f"database {self.shown}: found PostgreSQL {db.info.server_version // 10_000}, "
                    f"expected {_OLDEST // 10_000} or later"
                )
            for name, value in _SETTINGS.items():
                run(db, _SET, {"name": name, "value": value})
        except psycopg.Error as error:
            db.close()
            raise StoreError(f"database {self.shown}: {_said(error)}") from error
        except BaseException:
            db.close()
            raise
        self._db = db
        return db


def _ended(db: _Connection) -> bool:
    """Whether the server has said something unasked, as it does when it ends a session. It may have
    been something else; then a new connection does no harm either."""
    waiting = select.poll()
    waiting.register(db.pgconn.socket, select.POLLIN)
    return bool(waiting.poll(0))


def _said(error: psycopg.Error) -> str:
    """What the server or libpq said, in one line. Neither repeats a password."""
    message = error.diag.message_primary or str(error)
    return printable(message.strip().partition("\n")[0]) or type(error).__name__
