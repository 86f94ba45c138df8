"""Pegasus's replica catalog in a database (``JDBCRC``): SQLite or PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, quote

from network_provisioner.base.errors import InputError
from network_provisioner.base.units import whole_bytes
from site_selector.catalogs.entries import Replica

_BATCH = 10_000
_TIMEOUT_S = 5
_ROWS = """
SELECT l.lfn, p.site, p.pfn, m.value FROM rc_lfn l JOIN rc_pfn p ON p.lfn_id = l.lfn_id
LEFT JOIN rc_meta m ON m.lfn_id = l.lfn_id AND m.key = 'size'
WHERE p.site <> '' AND l.lfn IN ({}) ORDER BY p.pfn_id
"""


@dataclass(frozen=True, slots=True)
class ReplicaDatabase:
    """Where it is: a JDBC URL, and the account there."""

    url: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)

    @property
    def shown(self) -> str:
        """How messages name it: without what may be a password."""
        return f"replica catalog {self.url.partition('?')[0]}"

    def replicas(self, lfns: Iterable[str]) -> dict[str, Replica]:
        """What it knows of these files, in one query for 10,000 of them. Raises InputError."""
        wanted = list(lfns)
        if not wanted:
            return {}
        places: dict[str, list[tuple[str, str]]] = {}
        sizes: dict[str, int] = {}
        connect, errors, mark = self._driver()
        try:
            with closing(connect()) as database:
                for begin in range(0, len(wanted), _BATCH):
                    batch = wanted[begin : begin + _BATCH]
                    query = _ROWS.format(",".join([mark] * len(batch)))
                    for lfn, site, pfn, size in database.execute(query, batch):
                        places.setdefault(lfn, []).append((site, pfn))
                        if (known := whole_bytes(size or "")) is not None:
                            sizes[lfn] = known
        except errors as error:
            said = str(error).strip().partition("\n")[0]
            raise InputError(f"{self.shown}: cannot be read: {said}") from None
        return {lfn: Replica(lfn, tuple(at), sizes.get(lfn), ()) for lfn, at in places.items()}

    def _driver(self) -> tuple[Any, Any, str]:
        """What connects, the errors that it raises, and its mark for a value."""
        kind, _, place = self.url.removeprefix("jdbc:").partition(":")
        place, _, query = place.partition("?")
        if kind == "sqlite":
            import sqlite3  # noqa: PLC0415

            file = f"file:{quote(place)}?mode=ro"
            return lambda: sqlite3.connect(file, _TIMEOUT_S, uri=True), sqlite3.Error, "?"
        if kind != "postgresql":
            raise InputError(
                f"{self.shown}: databases of this kind are not read, expected jdbc:sqlite: or "
                "jdbc:postgresql:"
            )
        import psycopg  # noqa: PLC0415  (takes longer than most mappings)

        said = dict(parse_qsl(query))
        account: dict[str, Any] = {
            "user": self.user or said.get("user"),
            "password": self.password or said.get("password"),
            "sslmode": said.get("sslmode"),
            "options": f"-csearch_path={said['currentSchema']}"
            if "currentSchema" in said
            else None,
            "connect_timeout": _TIMEOUT_S,
        }
        return lambda: psycopg.connect(f"postgresql:{place}", **account), psycopg.Error, "%s"


def database_of(properties: Mapping[str, str]) -> ReplicaDatabase | None:
    """The database that Pegasus's properties name, None where their replica catalog is none.

    Raises InputError without a URL."""
    if properties.get("pegasus.catalog.replica", "").upper() != "JDBCRC":
        return None
    of_all, own = (f"pegasus.catalog.{catalog}.db." for catalog in ("*", "replica"))
    url, user, password = (
        properties.get(own + key, properties.get(of_all + key))
        for key in ("url", "user", "password")
    )
    if not url:
        raise InputError("found pegasus.catalog.replica = JDBCRC, expected its db.url beside it")
    return ReplicaDatabase(url, user, password)
