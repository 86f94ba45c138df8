"""How the measurement archive is laid out in PostgreSQL."""

from __future__ import annotations

import re
from functools import lru_cache

from monitors.archive.stores.schema import (
    MEASUREMENTS,
    MORE_INDEXES,
    MORE_TABLES,
    ROLLING_TABLE,
)

LAYOUT = 2
_NAMES = re.compile(r"\b(measurement|rollup|rolling|horizon|retaining|request)\b")


@lru_cache(maxsize=256)
def translated(statement: str) -> str:
    """One of the archive's own statements as PostgreSQL takes it: tables share a database with
    others, so that their names begin with ``adon_``."""
    return _NAMES.sub(r"adon_\1", statement).replace("?", "%s")


# Texts sort by their bytes, as in SQLite, whatever language the database speaks.
_DIALECT = (
    (r"\bINTEGER PRIMARY KEY( AUTOINCREMENT)?", "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY"),
    (r"\bINTEGER\b", "BIGINT"),
    (r"\bREAL\b", "DOUBLE PRECISION"),
    (r"\bTEXT\b", 'TEXT COLLATE "C"'),
    (r"\(metric, subject, at\)", "(metric, subject, at, seq)"),  # SQLite's indexes have it anyway
    (r"\bINDEX ", "INDEX adon_"),
)


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
MIGRATIONS = {1: (*_ROLLING, _AS_ITS_NEIGHBOURS)}
"""What leads from a layout to the next one."""

BESIDE = """
    SELECT set_config('search_path', quote_ident(nspname), true)
    FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
    WHERE pg_class.oid = 'adon_archive'::regclass
"""
"""Has what is made until the transaction ends made where the archive is: it need not be in the
first schema of who is here now."""
