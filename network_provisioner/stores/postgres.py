"""A store in one PostgreSQL database, for several brokers, one of which leads.

The leader has a *lease* in a row of the database, by the database's clock, and renews it; where it
does not, another broker takes it over and with it the next *term*. Every write takes the next
number of one counter in that row, in the transaction that writes, and only in the leader's own
term: a leader that stood still while another took over can write nothing any more, whatever its own
clock says. By the number others see that documents have changed.

A write has taken effect when :meth:`PostgresStore.put_many` returns: the switches are touched after
it, and what may be on them must outlive the broker.
"""

from __future__ import annotations

import re
import secrets
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any

from network_provisioner.base.clock import SteadyClock, since_boot
from network_provisioner.base.model import Transit
from network_provisioner.stores.postgres_link import (
    Database,
    LostError,
    PostgresConnection,
    run,
)
from network_provisioner.stores.store import (
    ACTIVE_STATES,
    ClockError,
    Leader,
    Rows,
    Run,
    Store,
    StoreError,
    row_of,
    upsert,
)

LEASE_S = 3.0
"""A leader that has not renewed its lease for so long may be replaced."""
GRACE_S = 0.5
"""So much later it is: after an outage of the database the leader goes on."""
MOST_SKEW_S = 1.0
"""A broker whose clock differs from the database's by more does not lead."""
_LAYOUT = 2
_KEY = 0x41444F4E << 32  # of advisory locks: "ADON"
_TICK = "UPDATE adon_meta SET change = change + 1 WHERE term = :term RETURNING change"
_TABLES = (
    # What the leader holds: its term, who and where it is, and the database's second until which.
    "CREATE TABLE adon_meta (layout INTEGER NOT NULL, change BIGINT NOT NULL, "
    "term BIGINT NOT NULL, leader TEXT NOT NULL, address TEXT NOT NULL, secret TEXT NOT NULL, "
    "until DOUBLE PRECISION NOT NULL)",
    f"INSERT INTO adon_meta VALUES ({_LAYOUT}, 0, 0, '', '', '', 0)",
    "CREATE TABLE adon_transits (number BIGINT GENERATED ALWAYS AS IDENTITY "
    "PRIMARY KEY, id TEXT UNIQUE NOT NULL, state TEXT NOT NULL, workflow TEXT NOT NULL, "
    "body TEXT NOT NULL)",
    "CREATE INDEX adon_transits_state ON adon_transits (state, number)",
    "CREATE INDEX adon_transits_workflow ON adon_transits (workflow, number)",
    f"CREATE INDEX adon_transits_active ON adon_transits (number) WHERE state IN ({ACTIVE_STATES})",
    # No body: this version deleted it.
    "CREATE TABLE adon_documents (kind TEXT NOT NULL, name TEXT NOT NULL, "
    "version INTEGER NOT NULL, body TEXT, at DOUBLE PRECISION NOT NULL, change BIGINT NOT NULL, "
    "PRIMARY KEY (kind, name, version))",
    "CREATE INDEX adon_documents_change ON adon_documents (kind, change)",
)
TIME = "extract(epoch FROM clock_timestamp())::float8"


@cache
def _named(statement: str) -> str:
    """With names as psycopg has them, and its own type casts left alone."""
    return re.sub(r"(?<!:):(\w+)", r"%(\1)s", statement)


_PUT_ONE = _named(f"WITH tick AS ({_TICK}) {upsert('adon_transits', 'tick')} RETURNING 1")
_PUT_EACH = _named(upsert("adon_transits"))
_STATE = f"SELECT {TIME}, change, term, leader, address, secret, until FROM adon_meta"
_LEAD = _named(
    "UPDATE adon_meta SET term = term + (leader <> :me)::int, leader = :me, address = :address, "
    f"secret = CASE leader WHEN :me THEN secret ELSE :secret END, until = {TIME} + :lease "
    f"WHERE term = :term AND (leader = :me OR until + :grace < {TIME}) "
    "RETURNING term, leader, address, secret"
)
_RESIGN = _named("UPDATE adon_meta SET until = 0, leader = '' WHERE leader = :me AND term = :term")


def skew_s(before: float, there: float, after: float) -> float:
    """What our clock is ahead of another at least, read between two readings of ours."""
    return max(before - there, 0.0) - max(there - after, 0.0)


def _run_in(db: Database) -> Run:
    return lambda statement, values: run(db, _named(statement), values)


def leader_address(url: str) -> str:
    """The URL of the broker that leads at a database's URL, "" for none. Raises StoreError."""
    connection = PostgresConnection(url)
    try:
        if connection.rows("SELECT to_regclass('adon_meta')", {})[0][0] is None:
            return ""
        rows = connection.rows(f"SELECT address FROM adon_meta WHERE until > {TIME}", {})
        return str(rows[0][0]) if rows else ""
    finally:
        connection.close()


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
        reading: bool = False,
    ) -> None:
        """Connect, and make the tables where there are none; ``clock`` dates documents.
        ``reading``: only to read what is there now, also while brokers write it. We do not lead
        where ``steady`` and the wall clock that it is taken from differ from the database's
        clock by more than :data:`MOST_SKEW_S`.

        The tables are made in the first schema of the session's search path. Raises StoreError.
        """
        self._clock = clock
        self._steady = steady
        self.unreadable = {}
        self._me = uuid.uuid4().hex
        # Each for itself: neither a lease nor a decision waits for long questions.
        self._electing, self._deciding, self._asking = (PostgresConnection(url) for _ in range(3))
        self._term = -1  # of ours, the last one
        self._leads_until = 0.0  # by the clock since boot
        self._not_leading: StoreError = self._error("this broker does not lead")
        self._counter = 0  # the counter when it was read last
        self._doubted: dict[str, str] = {}  # whose last write may have taken effect, and its body
        try:
            if reading:
                self._freeze()
            else:
                self._prepare()
        except StoreError:
            self.close()
            raise

    def _error(self, words: str) -> StoreError:
        return StoreError(f"database {self._deciding.shown}: {words}")

    def _prepare(self) -> None:
        with self._deciding.open() as db, db.transaction():
            # Brokers that start together would trip over each other's half-made tables.
            run(db, "SELECT pg_advisory_xact_lock(%(key)s)", {"key": _KEY})
            if run(db, "SELECT to_regclass('adon_meta')")[0][0] is None:
                for statement in _TABLES:
                    run(db, statement)
            self._check_layout(db)

    def _freeze(self) -> None:
        """Have all questions answered as of now."""
        with self._asking.open() as db:
            run(db, "SELECT set_config('idle_in_transaction_session_timeout', '0', false)")
            run(db, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            self._check_layout(db)

    def _check_layout(self, db: Database) -> None:
        known = run(db, "SELECT to_regclass('adon_meta')")[0][0] is not None
        layout = run(db, "SELECT layout FROM adon_meta")[0][0] if known else "none"
        if layout != _LAYOUT:
            why = ": it was made by another version of ADON" if known else ""
            raise StoreError(
                f"database {self._deciding.shown} has layout {layout}, expected {_LAYOUT}{why}"
            )

    # -- the leader --------------------------------------------------------------------------

    def elect(self, address: str = "") -> Leader:
        try:
            return self._elect(address)
        except ClockError as error:
            self._not_leading, self._leads_until = error, 0.0
            raise

    def _elect(self, address: str) -> Leader:
        asked_at = since_boot()
        now, change, term, leader, there, secret, until = self._state()
        if change < self._counter:
            raise self._error(
                f"found change {change} after {self._counter}: it was reset to an earlier "
                "state, and the broker has to be started again"
            )
        self._counter = change
        if leader == self._me or until + GRACE_S < now:
            values = {
                "me": self._me, "term": term, "address": address, "lease": LEASE_S,
                "grace": GRACE_S, "secret": secrets.token_hex(),
            }  # fmt: skip
            won = self._electing.rows(_LEAD, values)
            term, leader, there, secret = won[0] if won else self._state()[2:6]
        if leader == self._me:
            self._term, self._leads_until = term, asked_at + LEASE_S
        else:
            self._not_leading, self._leads_until = self._error("another broker leads"), 0.0
        return Leader(there, term, secret, leader == self._me)

    def _state(self) -> tuple[Any, ...]:
        """The row of the leader. Asked again with a fresh clock where ours is wrong; raises
        ClockError where that is wrong as well."""
        if self._steady is None:
            return self._electing.rows(_STATE, {})[0]
        for last in (False, True):
            before = self._steady()
            row = self._electing.rows(_STATE, {})[0]
            ahead_s = skew_s(before, row[0], self._steady())
            if abs(ahead_s) <= MOST_SKEW_S:
                break
            if last:
                words = "ahead of" if ahead_s > 0 else "behind"
                raise ClockError(
                    f"this machine's clock is {abs(ahead_s):.1f} s {words} the database's, "
                    f"expected at most {MOST_SKEW_S:g} s: nothing is decided until both are right"
                )
            self._steady.renew()
        return row

    def resign(self) -> None:
        self._leads_until = 0.0
        with suppress(StoreError):  # the lease ends by itself
            self._electing.rows(_RESIGN, {"me": self._me, "term": self._term})

    def leads(self) -> bool:
        return since_boot() < self._leads_until

    def check_leads(self) -> None:
        if self.leads():
            return
        raise (
            self._not_leading
            if not self._leads_until
            else self._error("its lease could not be renewed, and another broker may lead by now")
        )

    def doubted(self) -> Sequence[Transit]:
        if not self._doubted:
            return ()
        doubted = dict(self._doubted)
        statement = "SELECT id, body FROM adon_transits WHERE id = ANY(%(ids)s) ORDER BY number"
        rows = self._asking.rows(statement, {"ids": list(doubted)})
        self._doubted.clear()
        return self._read(row for row in rows if row[1] == doubted[row[0]])

    # -- transits ----------------------------------------------------------------------------

    def put_many(self, transits: Sequence[Transit]) -> None:
        if not transits:
            return
        rows = [row_of(transit) | {"term": self._term} for transit in transits]
        try:
            if len(rows) == 1:
                if not self._deciding.rows(_PUT_ONE, rows[0]):
                    raise self._not_leading
            else:
                self._put_each(rows)
        except LostError:
            self._doubted |= {row["id"]: row["body"] for row in rows}
            raise
        for row in rows:
            self._doubted.pop(row["id"], None)
        self._replaced(transits)

    def _put_each(self, rows: list[dict[str, Any]]) -> None:
        with self._deciding.open() as db, db.transaction():
            self._tick(_run_in(db))
            with db.cursor() as cursor:
                cursor.executemany(_PUT_EACH, rows)

    def _tick(self, run: Run) -> int:
        """The next number of the counter, which others do not get until the transaction ends."""
        rows = run(_TICK, {"term": self._term})
        if not rows:
            raise self._not_leading
        return int(rows[0][0])

    # -- as Store wants it ----------------------------------------------------------------

    def _rows(self, statement: str, **values: Any) -> Rows:
        return self._asking.rows(_named(statement), values)

    @contextmanager
    def _writing(self) -> Iterator[Run]:
        with self._asking.open() as db, db.transaction():
            yield _run_in(db)

    def _numbered(self, run: Run) -> dict[str, Any]:
        return {"change": self._tick(run)}

    def close(self) -> None:
        for connection in (self._electing, self._deciding, self._asking):
            connection.close()
