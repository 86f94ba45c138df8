"""Pegasus's replica catalogue in a database, with the tables that pegasus-db-admin makes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

TABLES = (
    """CREATE TABLE rc_lfn (
    lfn_id {key} NOT NULL, lfn VARCHAR(245) NOT NULL,
    PRIMARY KEY (lfn_id), CONSTRAINT "UNIQUE_LFN" UNIQUE (lfn))""",
    """CREATE TABLE rc_pfn (
    pfn_id {key} NOT NULL, lfn_id {number} NOT NULL, pfn VARCHAR(245) NOT NULL, site VARCHAR(245),
    PRIMARY KEY (pfn_id), FOREIGN KEY(lfn_id) REFERENCES rc_lfn (lfn_id) ON DELETE CASCADE,
    CONSTRAINT "UNIQUE_PFN" UNIQUE (lfn_id, pfn, site))""",
    """CREATE TABLE rc_meta (
    lfn_id {number} NOT NULL, "key" VARCHAR(245) NOT NULL, value VARCHAR(245) NOT NULL,
    PRIMARY KEY (lfn_id, "key"),
    FOREIGN KEY(lfn_id) REFERENCES rc_lfn (lfn_id) ON DELETE CASCADE)""",
)
SQLITE = {"key": "INTEGER", "number": "INTEGER"}
POSTGRESQL = {"key": "BIGSERIAL", "number": "BIGINT"}

Files = Mapping[str, tuple[Sequence[tuple[str | None, str]], Mapping[str, str]]]
"""Of each file its places (site and URL), and its metadata."""


def fill(database: Any, files: Files, types: Mapping[str, str] | None, mark: str) -> None:
    """Make the tables, unless they are there, and put files into them."""
    for table in TABLES if types else ():
        database.execute(table.format(**types))
    cursor, marks = database.cursor(), f"VALUES ({mark}, {mark}, {mark})"
    pfns = [(n, pfn, site) for n, (at, _) in enumerate(files.values()) for site, pfn in at]
    meta = [
        (n, *pair)
        for n, (_, attributes) in enumerate(files.values())
        for pair in attributes.items()
    ]
    cursor.executemany(f"INSERT INTO rc_lfn VALUES ({mark}, {mark})", list(enumerate(files)))
    cursor.executemany(f"INSERT INTO rc_pfn (lfn_id, pfn, site) {marks}", pfns)
    if meta:
        cursor.executemany(f"INSERT INTO rc_meta {marks}", meta)
    database.commit()
