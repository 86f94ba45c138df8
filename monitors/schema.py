"""How the measurement archive is laid out in SQLite, and how older layouts become the newest."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from network_provisioner.errors import InputError
from network_provisioner.wal import use_wal

# "ADON" in ASCII, in the file's header: tells an archive from any other SQLite file.
APPLICATION_ID = 0x41444F4E

# One entry per version, each a list of statements that leads there from the version before.
MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
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
        """
        CREATE TRIGGER measurement_never_changes BEFORE UPDATE ON measurement
        BEGIN SELECT RAISE(ABORT, 'the archive is append-only'); END
        """,
        """
        CREATE TRIGGER measurement_never_goes BEFORE DELETE ON measurement
        BEGIN SELECT RAISE(ABORT, 'the archive is append-only'); END
        """,
    ),
)
VERSION = len(MIGRATIONS)


def is_known(db: sqlite3.Connection, path: Path) -> bool:
    """Whether the file is laid out for reading; False while it is still empty.

    Raises InputError for another program's database or one of a newer version.
    """
    application, version, tables = _header(db)
    if application != APPLICATION_ID:
        if tables or application or version:
            raise InputError(
                f"archive {path}: found another program's database, expected an ADON archive"
            )
        return False
    if version > VERSION:
        raise InputError(
            f"archive {path}: found layout {version}, expected at most {VERSION};"
            " it was written by a newer ADON"
        )
    return bool(version == VERSION)


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

    Raises InputError as :func:`is_known`.
    """
    if not is_known(db, path):
        db.execute("BEGIN IMMEDIATE")
        try:
            if not is_known(db, path):  # nobody did it while we waited
                done = db.execute("PRAGMA user_version").fetchone()[0]
                for statements in MIGRATIONS[done:]:
                    for statement in statements:
                        db.execute(statement)
                db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                db.execute(f"PRAGMA user_version = {VERSION}")
            db.execute("COMMIT")
        except BaseException:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise
    use_wal(db, busy_s)
    # In WAL mode this survives the death of the process; a power cut may cost the last moments.
    db.execute("PRAGMA synchronous = NORMAL")
