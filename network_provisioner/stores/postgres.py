"""A store in one PostgreSQL database, for several brokers.

A broker decides in its *turn*: as long as one of its sessions holds an advisory lock of the
database. Every write takes the next number of one counter, in the transaction that writes; since
the counter's row stays locked until that ends, whoever sees number n sees all before it, and "what
was written since" is one range of numbers, complete and without repetition.

A write has taken effect when :meth:`PostgresStore.put` returns, also within a turn: the switches
are touched after it, and what may be on them must outlive the broker. So a broker that dies in its
turn leaves what it had written (its lease ends it) and nothing half; the server gives its lock
back. A broker that stands still in its turn loses it after ``TURN_S``, and with the session
everything by which it could still write in it.
"""

from __future__ import annotations

import re
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

from network_provisioner.base.clock import SteadyClock
from network_provisioner.base.model import Transit
from network_provisioner.stores.postgres_link import BusyError, LostError, PostgresConnection, run
from network_provisioner.stores.store import (
    ACTIVE_STATES,
    ClockError,
    Rows,
    Run,
    Store,
    StoreError,
    row_of,
    upsert,
)

TURN_S = 20.0
"""How long a session may be silent in its turn before the server ends it, in seconds."""
_WAIT_S = 2.5  # for another thread's turn; for another broker's, the link's own patience
MOST_SKEW_S = 1.0
"""A broker whose clock differs from the database's by more decides nothing."""
_LAYOUT = 1
_KEY = 0x41444F4E << 32  # of advisory locks: "ADON"; the low half is the meta table's own number
TICK = "UPDATE adon_meta SET change = change + 1 RETURNING change"
"""Takes the next number of the store's one counter, and keeps others from it until the end of the
transaction."""
_LATE = "another turn to decide has not ended yet"
_TABLES = (
    "CREATE TABLE adon_meta (layout INTEGER NOT NULL, change BIGINT NOT NULL)",
    f"INSERT INTO adon_meta VALUES ({_LAYOUT}, 0)",
    "CREATE TABLE adon_transits (number BIGINT GENERATED ALWAYS AS IDENTITY "
    "PRIMARY KEY, id TEXT UNIQUE NOT NULL, state TEXT NOT NULL, workflow TEXT NOT NULL, "
    "body TEXT NOT NULL, writer TEXT NOT NULL, change BIGINT NOT NULL)",
    "CREATE INDEX adon_transits_change ON adon_transits (change)",
    "CREATE INDEX adon_transits_state ON adon_transits (state, number)",
    "CREATE INDEX adon_transits_workflow ON adon_transits (workflow, number)",
    f"CREATE INDEX adon_transits_active ON adon_transits (number) WHERE state IN ({ACTIVE_STATES})",
    # No body: this version deleted it.
    "CREATE TABLE adon_documents (kind TEXT NOT NULL, name TEXT NOT NULL, "
    "version INTEGER NOT NULL, body TEXT, at DOUBLE PRECISION NOT NULL, change BIGINT NOT NULL, "
    "PRIMARY KEY (kind, name, version))",
    "CREATE INDEX adon_documents_change ON adon_documents (kind, change)",
)


@cache
def _named(statement: str) -> str:
    """With names as psycopg has them."""
    return re.sub(r":(\w+)", r"%(\1)s", statement)


_PUT_ONE = _named(
    f"WITH tick AS ({TICK}) "
    + upsert("adon_transits", writer=":me", change="(SELECT change FROM tick)")
)
_PUT_EACH = _named(upsert("adon_transits", writer=":me", change=":change"))


def skew_s(before: float, there: float, after: float) -> float:
    """What our clock is ahead of another at least, read between two readings of ours."""
    return max(before - there, 0.0) - max(there - after, 0.0)


# One statement, so that the counter and the rows are of the same moment.
TIME = "extract(epoch FROM clock_timestamp())::float8"
_NEWS = (
    f"SELECT m.change, {TIME}, t.id, t.body FROM adon_meta AS m LEFT JOIN adon_transits AS t "
    "ON t.change > %(seen)s AND (t.writer <> %(me)s OR t.id = ANY(%(doubted)s)) "
    "ORDER BY t.change, t.number"
)


class PostgresStore(Store):
    """A :class:`~network_provisioner.stores.store.Store` in the PostgreSQL database at a URL."""

    shared = True
    _transits_in = "adon_transits"
    _documents_in = "adon_documents"
    _change = "change"
    _by_code_point = ' COLLATE "C"'

    def __init__(
        self,
        url: str,
        clock: Callable[[], float] = time.time,
        steady: SteadyClock | None = None,
    ) -> None:
        """Connect, and make the tables where there are none; ``clock`` dates documents. A turn is
        refused where ``steady`` and the wall clock that it is taken from differ from the database's
        clock by more than :data:`MOST_SKEW_S`.

        The tables are made in the first schema of the session's search path. Raises StoreError.
        """
        self._clock = clock
        self._steady = steady
        self.unreadable = {}
        self._me = uuid.uuid4().hex  # whose writes are no news to us
        self._deciding = PostgresConnection(url)
        self._asking = PostgresConnection(
            url
        )  # another one: questions and documents wait for no turn
        self._turn = threading.RLock()
        self._depth = 0
        self._session = 0  # of the link, that holds the lock while depth is not 0
        self._seen: int | None = None  # the counter when our last turn began
        self._doubted: set[str] = set()  # whose last write of ours may have taken effect or not
        try:
            self._prepare()
        except StoreError:
            self.close()
            raise

    def _prepare(self) -> None:
        with self._deciding.open() as db, db.transaction():
            # Brokers that start together would trip over each other's half-made tables.
            run(db, "SELECT pg_advisory_xact_lock(%(key)s)", {"key": _KEY})
            if run(db, "SELECT to_regclass('adon_meta')")[0][0] is None:
                for statement in _TABLES:
                    run(db, statement)
            statement = f"SELECT layout, {_KEY} | 'adon_meta'::regclass::oid::bigint FROM adon_meta"
            layout, self._key = run(db, statement)[0]
        if layout != _LAYOUT:
            raise StoreError(
                f"database {self._deciding.shown} has layout {layout}, expected {_LAYOUT}: "
                "it was made by another version of ADON"
            )

    # -- turns -------------------------------------------------------------------------------

    @contextmanager
    def turn(self) -> Iterator[Sequence[Transit]]:
        with self._my_turn() as outermost:
            yield self._news() if outermost else ()

    @contextmanager
    def _my_turn(self) -> Iterator[bool]:
        """Hold the database's lock; yields whether this thread did not before."""
        if not self._turn.acquire(timeout=_WAIT_S):
            raise StoreError(f"database {self._deciding.shown}: {_LATE}")
        try:
            if self._depth:
                self._depth += 1
                try:
                    yield False
                finally:
                    self._depth -= 1
                return
            self._take()
            self._depth = 1
            try:
                yield True
            finally:
                self._depth = 0
                self._give_back()
        finally:
            self._turn.release()

    def _take(self) -> None:
        statement = (
            "SELECT set_config('idle_session_timeout', %(limit)s, false), pg_advisory_lock(%(key)s)"
        )
        try:
            self._deciding.rows(statement, {"limit": f"{TURN_S * 1e3:.0f}", "key": self._key})
        except BusyError:
            raise StoreError(f"database {self._deciding.shown}: {_LATE}") from None
        self._session = self._deciding.number

    def _give_back(self) -> None:
        statement = (
            "SELECT pg_advisory_unlock(%(key)s), set_config('idle_session_timeout', '0', false)"
        )
        try:
            self._deciding.rows(statement, {"key": self._key}, only=self._session)
        except StoreError:
            # Nothing to undo: all was written before, and the lock goes with the session.
            self._deciding.drop()

    def _news(self) -> list[Transit]:
        seen, doubted = self._seen, list(self._doubted)
        statement = f"SELECT change, {TIME}, NULL, NULL FROM adon_meta"
        if seen is not None:
            statement = _NEWS
        values = {"seen": seen, "me": self._me, "doubted": doubted}
        rows = self._in_time(lambda: self._deciding.rows(statement, values, only=self._session))
        now = rows[0][0]
        if seen is not None and now < seen:
            raise StoreError(
                f"database {self._deciding.shown}: found change {now} after {seen}: it was put "
                "back to an earlier state, and the broker has to be started again"
            )
        self._seen = now
        self._doubted.clear()
        return self._read(row[2:] for row in rows if row[2] is not None)

    def _in_time(self, ask: Callable[[], Rows]) -> Rows:
        """The answer to a question, with the database's clock in its second column; asked again
        with a fresh clock where ours is wrong. Raises ClockError where that is wrong as well."""
        if self._steady is None:
            return ask()
        for last in (False, True):
            before = self._steady()
            rows = ask()
            ahead_s = skew_s(before, rows[0][1], self._steady())
            if abs(ahead_s) <= MOST_SKEW_S:
                break
            if last:
                words = "ahead of" if ahead_s > 0 else "behind"
                raise ClockError(
                    f"this machine's clock is {abs(ahead_s):.1f} s {words} the database's, "
                    f"expected at most {MOST_SKEW_S:g} s: nothing is decided until both are right"
                )
            self._steady.renew()
        return rows

    # -- transits ----------------------------------------------------------------------------

    def put_many(self, transits: Sequence[Transit]) -> None:
        if not transits:
            return
        rows = [row_of(transit) | {"me": self._me} for transit in transits]
        ids = {t.id for t in transits}
        # Outside of a turn it takes one: nobody is contradicted in theirs.
        with self._my_turn():
            try:
                if len(rows) == 1:
                    self._deciding.rows(_PUT_ONE, rows[0], only=self._session)
                else:
                    self._put_each(rows)
            except LostError:
                self._doubted |= ids
                raise
            self._doubted -= ids
        self._replaced(transits)

    def _put_each(self, rows: list[dict[str, Any]]) -> None:
        with self._deciding.open(self._session) as db, db.transaction():
            change = run(db, TICK)[0][0]
            with db.cursor() as cursor:
                cursor.executemany(_PUT_EACH, [{**row, "change": change} for row in rows])

    # -- as Store wants it ----------------------------------------------------------------

    def _rows(self, statement: str, **values: Any) -> Rows:
        return self._asking.rows(_named(statement), values)

    @contextmanager
    def _writing(self) -> Iterator[Run]:
        with self._asking.open() as db, db.transaction():
            yield lambda statement, values: run(db, _named(statement), values)

    def _numbered(self, run: Run) -> dict[str, Any]:
        return {"change": run(TICK, {})[0][0]}

    def close(self) -> None:
        self._deciding.close()
        self._asking.close()
