"""How the measurement archive is laid out in SQLite, and how older layouts become the newest."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from network_provisioner.base.errors import InputError
from network_provisioner.base.wal import transaction, use_wal

# "ADON" in ASCII, in the file's header: tells an archive from any other SQLite file.
APPLICATION_ID = 0x41444F4E

# The tables of both databases, as SQLite takes them.
MEASUREMENTS = (
    """
    CREATE TABLE measurement (
        seq INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        metric TEXT NOT NULL,
        subject TEXT NOT NULL,
        value REAL NOT NULL,
        unit TEXT NOT NULL,
        at REAL NOT NULL,
        source TEXT NOT NULL,
        workflow TEXT NOT NULL,
        details TEXT NOT NULL,
        recorded_at REAL NOT NULL
    )
    """,
    "CREATE INDEX measurement_by_subject ON measurement (metric, subject, at)",
    "CREATE INDEX measurement_by_workflow ON measurement (workflow, metric, at)",
)

# What came with the second layout. Of a measurement older than its metric's horizon nothing is kept
# but roll-ups, and it is not taken again. ``retaining`` has a row while measurements are rolled up;
# ``request`` is how one process asks another to do something.
MORE_TABLES = (
    """
    CREATE TABLE rollup (
        metric TEXT NOT NULL,
        subject TEXT NOT NULL,
        unit TEXT NOT NULL,
        width INTEGER NOT NULL,
        start REAL NOT NULL,
        number INTEGER NOT NULL,
        total REAL NOT NULL,
        low REAL NOT NULL,
        high REAL NOT NULL,
        first_at REAL NOT NULL,
        last_at REAL NOT NULL,
        source TEXT NOT NULL,
        sketch TEXT NOT NULL,
        PRIMARY KEY (metric, subject, width, start, unit)
    )
    """,
    """
    CREATE TABLE horizon (
        metric TEXT PRIMARY KEY,
        raw_until REAL NOT NULL,
        hourly_until REAL NOT NULL,
        daily_until REAL NOT NULL
    )
    """,
    "CREATE TABLE retaining (since REAL NOT NULL)",
    """
    CREATE TABLE request (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        kind TEXT NOT NULL,
        subject TEXT NOT NULL,
        at REAL NOT NULL
    )
    """,
)
MORE_INDEXES = (
    "CREATE INDEX measurement_by_time ON measurement (metric, at)",
    "CREATE INDEX rollup_by_time ON rollup (metric, width, start)",
    "CREATE INDEX request_by_kind ON request (kind, id)",
)

# What came with the third. Measurements from ``since`` up to their metric's horizon are being
# rolled up: no others come, none of them has gone yet, and no roll-up of them counts yet.
ROLLING_TABLE = "CREATE TABLE rolling (metric TEXT PRIMARY KEY, since REAL NOT NULL)"

# One entry per version, each a list of statements that leads there from the version before.
MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        *MEASUREMENTS,
        """
        CREATE TRIGGER measurement_never_changes BEFORE UPDATE ON measurement
        BEGIN SELECT RAISE(ABORT, 'the archive is append-only'); END
        """,
        """
        CREATE TRIGGER measurement_never_goes BEFORE DELETE ON measurement
        BEGIN SELECT RAISE(ABORT, 'the archive is append-only'); END
        """,
    ),
    (
        *MORE_TABLES,
        *MORE_INDEXES,
        "DROP TRIGGER measurement_never_goes",
        # Retention alone takes rows away, in a transaction that nobody sees half of, and never the
        # newest: its number would be given again.
        """
        CREATE TRIGGER measurement_never_goes BEFORE DELETE ON measurement
        WHEN NOT EXISTS (SELECT 1 FROM retaining)
            OR OLD.at >= coalesce((SELECT raw_until FROM horizon WHERE metric = OLD.metric), OLD.at)
            OR OLD.seq = (SELECT max(seq) FROM measurement)
        BEGIN SELECT RAISE(ABORT, 'the archive is append-only'); END
        """,
        """
        CREATE TRIGGER horizon_only_rises BEFORE UPDATE ON horizon
        WHEN NEW.raw_until < OLD.raw_until OR NEW.hourly_until < OLD.hourly_until
            OR NEW.daily_until < OLD.daily_until OR NEW.metric <> OLD.metric
        BEGIN SELECT RAISE(ABORT, 'what was given up does not come back'); END
        """,
    ),
    (
        ROLLING_TABLE,
        "DROP TRIGGER measurement_never_goes",
        """
        CREATE TRIGGER measurement_never_goes BEFORE DELETE ON measurement
        WHEN NOT EXISTS (SELECT 1 FROM retaining)
            OR OLD.at >= coalesce(
                (SELECT since FROM rolling WHERE metric = OLD.metric),
                (SELECT raw_until FROM horizon WHERE metric = OLD.metric),
                OLD.at
            )
            OR OLD.seq = (SELECT max(seq) FROM measurement)
        BEGIN SELECT RAISE(ABORT, 'the archive is append-only'); END
        """,
    ),
)
VERSION = len(MIGRATIONS)


def known_version(db: sqlite3.Connection, path: Path) -> int:
    """The file's layout, 0 while it is still empty.

    Raises InputError for another program's database or one of a newer version.
    """
    application, version, tables = _header(db)
    if application != APPLICATION_ID:
        if tables or application or version:
            raise InputError(
                f"archive {path}: found another program's database, expected an ADON archive"
            )
        return 0
    if version > VERSION:
        raise InputError(
            f"archive {path}: found layout {version}, expected at most {VERSION};"
            " it was written by a newer ADON"
        )
    return version


def stand_in(db: sqlite3.Connection, version: int) -> None:
    """Empty tables, for this connection alone, in the place of those that a file of an older
    layout lacks."""
    for statement in (*(MORE_TABLES if version < 2 else ()), ROLLING_TABLE):
        db.execute(statement.replace("CREATE TABLE", "CREATE TEMP TABLE", 1))


def _header(db: sqlite3.Connection) -> tuple[int, int, int]:
    """Application id, layout version and number of schema entries, all of the same moment.

    Read one by one they could be those of before and after another process laid the file out.
    """
    alone = not db.in_transaction
    if alone:
        db.execute("BEGIN")
    try:
        # The first read takes the lock: from here on nobody else's changes are seen.
        tables = db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        application = db.execute("PRAGMA application_id").fetchone()[0]
        version = db.execute("PRAGMA user_version").fetchone()[0]
    finally:
        if alone:
            db.execute("ROLLBACK")
    return application, version, tables


def ensure_schema(db: sqlite3.Connection, path: Path, busy_s: float) -> None:
    """Lays out an empty file or brings an older layout up to date, whoever else does the same.

    Raises InputError as :func:`known_version`.
    """
    if known_version(db, path) < VERSION:
        with transaction(db):
            # Nothing where another process did it while we waited.
            for statements in MIGRATIONS[known_version(db, path) :]:
                for statement in statements:
                    db.execute(statement)
            db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            db.execute(f"PRAGMA user_version = {VERSION}")
    use_wal(db, busy_s)
    # In WAL mode this survives the death of the process; a power cut may cost the last moments.
    db.execute("PRAGMA synchronous = NORMAL")
