"""The archive in a PostgreSQL database, for writers on several machines.

Sequence numbers must rise in the order of commits, or who reads on from the last number it saw
would miss what commits late. So a transaction that writes holds an advisory lock, and takes its
numbers within: the next one waits until it has ended. The lock is given back after the commit can
be seen.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import TypeVar

import psycopg

from monitors.archive.stores import base
from monitors.archive.stores.base import ArchiveError, Row, Rows
from monitors.archive.stores.schema import MEASUREMENTS, MORE_INDEXES, MORE_TABLES, ROLLING_TABLE
from monitors.base.measurement import COLUMNS
from network_provisioner.base.errors import InputError
from network_provisioner.stores.postgres_link import (
    BusyError,
    Database,
    LostError,
    PostgresConnection,
    run,
)
from network_provisioner.stores.store import StoreError

T = TypeVar("T")
_KEY = 0x41444F4E << 32  # of advisory locks: "ADON"; the low half is the table's own number
_WRITE_S = 30  # for one transaction that writes, and for one that waits for it
_TYPES = ("text", "text", "text", "float8", "text", "float8", "text", "text", "text", "float8")
_ARRAYS = ", ".join(f"%s::{kind}[]" for kind in _TYPES)
_LETTERS = "abcdefghij"
_FROM = f"INSERT INTO adon_measurement ({COLUMNS}, recorded_at) SELECT {', '.join(_LETTERS)} FROM"
_ONCE = "ORDER BY nth ON CONFLICT (id) DO NOTHING"
_INSERT = f"{_FROM} unnest({_ARRAYS}) WITH ORDINALITY AS sent({', '.join(_LETTERS)}, nth) {_ONCE}"
# Many are sent twice as fast this way, by users who may make temporary tables.
_MANY = 200
_SENT = (
    f"CREATE TEMP TABLE IF NOT EXISTS adon_sent (nth BIGSERIAL, "
    f"{', '.join(map(' '.join, zip(_LETTERS, _TYPES, strict=True)))}) ON COMMIT DELETE ROWS"
)
_COPY = f"COPY adon_sent ({', '.join(_LETTERS)}) FROM STDIN (FORMAT BINARY)"
_INSERT_SENT = f"{_FROM} adon_sent {_ONCE}"

LAYOUT = 2
_NAMES = re.compile(r"\b(measurement|rollup|rolling|horizon|retaining|request)\b")


# Texts sort by their bytes, as in SQLite, whatever language the database speaks.
_DIALECT = (
    (r"\bINTEGER PRIMARY KEY( AUTOINCREMENT)?", "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY"),
    (r"\bINTEGER\b", "BIGINT"),
    (r"\bREAL\b", "DOUBLE PRECISION"),
    (r"\bTEXT\b", 'TEXT COLLATE "C"'),
    (r"\(metric, subject, at\)", "(metric, subject, at, seq)"),  # SQLite's indexes have it anyway
    (r"\bINDEX ", "INDEX adon_"),
)
# A table that comes later is its neighbours' owner's, and for whom they are: what an administrator
# granted was granted before it was there.
_AS_ITS_NEIGHBOURS = """
    DO $$
    DECLARE one RECORD;
    BEGIN
        FOR one IN SELECT pg_get_userbyid(relowner) AS owner FROM pg_class
            WHERE oid = 'adon_horizon'::regclass AND relowner <>
                (SELECT relowner FROM pg_class WHERE oid = 'adon_rolling'::regclass)
        LOOP
            EXECUTE format('ALTER TABLE adon_rolling OWNER TO %I', one.owner);
        END LOOP;
        FOR one IN SELECT privilege_type AS what, is_grantable AS further,
                CASE grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(grantee)) END
                    AS name
            FROM pg_class, aclexplode(relacl)
            WHERE pg_class.oid = 'adon_horizon'::regclass AND grantee <> relowner
        LOOP
            EXECUTE format('GRANT %s ON adon_rolling TO %s%s', one.what, one.name,
                CASE WHEN one.further THEN ' WITH GRANT OPTION' ELSE '' END);
        END LOOP;
    END $$
"""

# Has what is made until the transaction ends made where the archive is: it need not be in the first
# schema of who is here now.
BESIDE = """
    SELECT set_config('search_path', quote_ident(nspname), true)
    FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
    WHERE pg_class.oid = 'adon_archive'::regclass
"""


class PostgresEngine:
    """An :class:`~.base.Engine`: the tables in the first schema of the search path.

    With ``read_only`` nothing is ever made: while there are no tables, questions find nothing.
    """

    damage = ""

    def __init__(self, url: str, *, read_only: bool = False) -> None:
        """Raises ArchiveError where it cannot be reached, InputError for one of another layout."""
        self._read_only = read_only
        self._ready = False
        self._key = 0
        self._may_send_many = False
        try:
            self._asking, self._writing = PostgresConnection(url), PostgresConnection(url)
        except StoreError as error:
            raise InputError(f"archive: {error}") from None
        self.shown = self._asking.shown
        try:
            self._prepare()
        except BaseException:
            self.close()
            raise

    def rows(self, statement: str, values: Sequence[object] = ()) -> Rows:
        base.check_texts(values)
        if not self._ready and not self._prepare():
            return []
        return self._patient(lambda: self._rows(translated(statement), values))

    @contextmanager
    def write(self) -> Iterator[_Writing]:
        if self._read_only:
            raise ArchiveError(f"{self.shown}: opened for reading, cannot be written")
        self._prepare()
        # A connection that broke while nobody used it is found out here, and not in the middle.
        self._patient(lambda: self._writing.rows("SELECT 1", {}))
        with self._explaining(), self._writing.open() as db, db.transaction():
            run(db, f"SET LOCAL statement_timeout = '{_WRITE_S}s'")
            run(db, f"SET LOCAL lock_timeout = '{base.BUSY_S:g}s'")
            run(db, "SELECT pg_advisory_xact_lock(%(key)s)", {"key": self._key})
            yield _Writing(db, self._may_send_many)

    def changed(self) -> object:
        rows = self.rows("SELECT max(seq), (SELECT max(raw_until) FROM horizon) FROM measurement")
        return rows[0] if rows else None

    def faults(self) -> str:
        return ""  # PostgreSQL takes no text that is none

    def close(self) -> None:
        self._asking.close()
        self._writing.close()

    def _rows(self, statement: str, values: Sequence[object]) -> Rows:
        with self._asking.open() as db:
            cursor = db.execute(statement, values)
            return cursor.fetchall() if cursor.description else []

    def _prepare(self) -> bool:
        """Make the tables where there are none; whether there are."""
        if not self._ready:
            with self._explaining():
                self._ready = self._patient(self._known_or_made)
        return self._ready

    def _known_or_made(self) -> bool:
        with self._asking.open() as db, db.transaction():
            # Who starts at the same time would trip over half-made tables. Before the first look:
            # within a transaction PostgreSQL remembers that a name was nobody's.
            run(db, "SELECT pg_advisory_xact_lock(%(key)s)", {"key": _KEY})
            if run(db, "SELECT to_regclass('adon_archive')")[0][0] is None:
                if self._read_only:
                    return False
                for statement in TABLES:
                    db.execute(statement.encode())  # as it is: it has its own % signs
            if not self._read_only:
                self._bring_up_to_date(db)
            layout, self._key, self._may_send_many = run(
                db,
                f"SELECT layout, {_KEY} | 'adon_measurement'::regclass::oid::bigint,"
                " has_database_privilege(current_database(), 'TEMP') FROM adon_archive",
            )[0]
        if layout != LAYOUT:
            raise InputError(
                f"archive {self.shown}: found layout {layout}, expected {LAYOUT}: "
                + (
                    "a process of this version that writes there brings it up to date"
                    if layout < LAYOUT
                    else "it was made by a newer version of ADON"
                )
            )
        return True

    def _bring_up_to_date(self, db: Database) -> None:
        while statements := MIGRATIONS.get(run(db, "SELECT layout FROM adon_archive")[0][0]):
            run(db, BESIDE)
            try:
                for statement in statements:
                    db.execute(statement.encode())
                run(db, "UPDATE adon_archive SET layout = layout + 1")
            except psycopg.errors.InsufficientPrivilege as error:
                raise InputError(
                    f"archive {self.shown}: found an older layout, expected {LAYOUT}: a process "
                    "of this version that owns the tables brings it up to date "
                    f"({error.diag.message_primary})"
                ) from None

    def _patient(self, work: Callable[[], T]) -> T:
        """Once more where the connection broke, and for a while where others are at it."""
        until = time.monotonic() + base.BUSY_S
        again = True
        with self._explaining():
            while True:
                try:
                    return work()
                except LostError:
                    if not again:
                        raise
                    again = False
                except BusyError:
                    if time.monotonic() > until:
                        raise
        raise AssertionError  # a loop without an end

    @contextmanager
    def _explaining(self) -> Iterator[None]:
        try:
            yield
        except BusyError as error:
            raise ArchiveError(f"archive: {error}: other writers hold it") from error
        except StoreError as error:
            raise ArchiveError(f"archive: {error}") from error


class _Writing:
    def __init__(self, db: Database, may_send_many: bool) -> None:
        self._db = db
        self._may_send_many = may_send_many

    def rows(self, statement: str, values: Sequence[object] = ()) -> Rows:
        cursor = self._db.execute(translated(statement), values)
        return cursor.fetchall() if cursor.description else []

    def run(self, statement: str, values: Sequence[object] = ()) -> int:
        return self._db.execute(translated(statement), values).rowcount

    def insert(self, rows: Sequence[Row]) -> int:
        if len(rows) < _MANY or not self._may_send_many:
            columns = [list(column) for column in zip(*rows, strict=True)]
            return self._db.execute(_INSERT, columns).rowcount
        with self._db.cursor() as cursor:
            cursor.execute(_SENT)
            with cursor.copy(_COPY) as copy:
                copy.set_types(_TYPES)
                for row in rows:
                    copy.write_row(row)
            return cursor.execute(_INSERT_SENT).rowcount

    @contextmanager
    def unlocked(self) -> Iterator[None]:
        self._db.execute("ALTER TABLE adon_measurement DISABLE TRIGGER USER")
        yield
        self._db.execute("ALTER TABLE adon_measurement ENABLE TRIGGER USER")


@lru_cache(maxsize=256)
def translated(statement: str) -> str:
    """One of the archive's own statements as PostgreSQL takes it: tables share a database with
    others, so that their names begin with ``adon_``."""
    return _NAMES.sub(r"adon_\1", statement).replace("?", "%s")


def _made(statement: str) -> str:
    """What makes a table or an index in SQLite, as PostgreSQL takes it."""
    for theirs, ours in _DIALECT:
        statement = re.sub(theirs, ours, statement)
    return translated(statement)


# As in schema.py. The search path is that of whoever looks, so the tables are named by
# where the trigger is.
_ROLLING = (
    _made(ROLLING_TABLE),
    """
    CREATE OR REPLACE FUNCTION adon_measurement_stays() RETURNS trigger LANGUAGE plpgsql AS $$
    DECLARE allowed BOOLEAN := false;
    BEGIN
        IF TG_OP = 'DELETE' THEN
            EXECUTE format('SELECT EXISTS (SELECT 1 FROM %1$I.adon_retaining) AND $2 < coalesce('
                '(SELECT since FROM %1$I.adon_rolling WHERE metric = $1), '
                '(SELECT raw_until FROM %1$I.adon_horizon WHERE metric = $1), $2)',
                TG_TABLE_SCHEMA) INTO allowed USING OLD.metric, OLD.at;
        END IF;
        IF NOT allowed THEN
            RAISE EXCEPTION 'the archive is append-only';
        END IF;
        RETURN OLD;
    END $$
    """,
)


TABLES = (
    *map(_made, (*MEASUREMENTS, *MORE_TABLES, *MORE_INDEXES)),
    *_ROLLING,
    """
    CREATE TRIGGER adon_measurement_never_goes BEFORE UPDATE OR DELETE ON adon_measurement
    FOR EACH ROW EXECUTE FUNCTION adon_measurement_stays()
    """,
    """
    CREATE FUNCTION adon_horizon_rises() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF NEW.raw_until < OLD.raw_until OR NEW.hourly_until < OLD.hourly_until
            OR NEW.daily_until < OLD.daily_until OR NEW.metric <> OLD.metric THEN
            RAISE EXCEPTION 'what was given up does not come back';
        END IF;
        RETURN NEW;
    END $$
    """,
    """
    CREATE TRIGGER adon_horizon_only_rises BEFORE UPDATE ON adon_horizon
    FOR EACH ROW EXECUTE FUNCTION adon_horizon_rises()
    """,
    "CREATE TABLE adon_archive (layout INTEGER NOT NULL)",
    f"INSERT INTO adon_archive VALUES ({LAYOUT})",
)


MIGRATIONS = {1: (*_ROLLING, _AS_ITS_NEIGHBOURS)}
"""What leads from a layout to the next one."""
