"""The documents of a PostgreSQL store: versions of JSON bodies by kind and name."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from network_provisioner.store import Document
from network_provisioner.stores.postgres_link import Database, Link, run

TICK = "UPDATE adon_meta SET change = change + 1 RETURNING change"
"""Takes the next number of the store's one counter, and keeps others from it until the end of the
transaction."""
_NEWEST = (
    "d.version = (SELECT max(version) FROM adon_documents WHERE kind = d.kind AND name = d.name)"
)
_NAMED = "kind = %(kind)s AND name = %(name)s"
_VERSION = (
    "INSERT INTO adon_documents (kind, name, version, body, at, change) SELECT %(kind)s, %(name)s, "
    "coalesce(max(version), 0) + 1, %(body)s, %(at)s, %(change)s FROM adon_documents "
    "WHERE kind = %(kind)s AND name = %(name)s RETURNING version"
)


class PostgresDocuments:
    """The half of a :class:`~network_provisioner.stores.postgres.PostgresStore` that no turn is
    needed for: writers of documents follow each other by the counter alone."""

    def __init__(self, link: Link, clock: Callable[[], float]) -> None:
        self._asking = link
        self._clock = clock

    def put_document(self, kind: str, name: str, body: dict[str, Any], keep: int = 0) -> int:
        which = {"kind": kind, "name": name}
        with self._asking.open() as db, db.transaction():
            version = self._add_version(db, which, text_of(body))
            if keep > 0:
                run(
                    db,
                    "DELETE FROM adon_documents WHERE kind = %(kind)s AND name = %(name)s "
                    "AND version <= %(last)s",
                    {**which, "last": version - keep},
                )
        return version

    def delete_document(self, kind: str, name: str) -> bool:
        which = {"kind": kind, "name": name}
        with self._asking.open() as db, db.transaction():
            run(db, "SELECT FROM adon_meta FOR UPDATE")  # the newest stays the newest
            statement = f"SELECT body FROM adon_documents AS d WHERE {_NAMED} AND {_NEWEST}"
            rows = run(db, statement, which)
            if not rows or rows[0][0] is None:
                return False
            self._add_version(db, which, None)
        return True

    def _add_version(self, db: Database, which: dict[str, str], text: str | None) -> int:
        change = run(db, TICK)[0][0]  # from here on no other is written
        values = {**which, "body": text, "at": self._clock(), "change": change}
        return int(run(db, _VERSION, values)[0][0])

    def document(self, kind: str, name: str, version: int | None = None) -> Document | None:
        which = _NEWEST if version is None else "version = %(version)s"
        values = {"kind": kind, "name": name, "version": version}
        found = self._documents(f"{_NAMED} AND {which}", values)
        return next((d for d in found if not d.deleted), None)

    def documents(self, kind: str) -> list[Document]:
        clause = f'kind = %(kind)s AND body IS NOT NULL AND {_NEWEST} ORDER BY name COLLATE "C"'
        return self._documents(clause, {"kind": kind})

    def history(self, kind: str, name: str) -> list[Document]:
        return self._documents(f"{_NAMED} ORDER BY version", {"kind": kind, "name": name})

    def restore(self, documents: Sequence[Document]) -> None:
        rows = [
            {"kind": d.kind, "name": d.name, "version": d.version, "at": d.at,
             "body": None if d.deleted else text_of(d.body)}
            for d in documents
        ]  # fmt: skip
        with self._asking.open() as db, db.transaction(), db.cursor() as cursor:
            change = run(db, TICK)[0][0]
            cursor.executemany(
                "INSERT INTO adon_documents (kind, name, version, body, at, change) VALUES "
                "(%(kind)s, %(name)s, %(version)s, %(body)s, %(at)s, %(change)s)",
                [{**row, "change": change} for row in rows],
            )

    def kinds(self) -> dict[str, list[str]]:
        out: dict[str, list[str]] = {}
        statement = (
            'SELECT DISTINCT kind COLLATE "C", name COLLATE "C" FROM adon_documents ORDER BY 1, 2'
        )
        for kind, name in self._asking.rows(statement, {}):
            out.setdefault(kind, []).append(name)
        return out

    def documents_stamp(self, kind: str) -> int:
        statement = "SELECT coalesce(max(change), 0) FROM adon_documents WHERE kind = %(kind)s"
        return int(self._asking.rows(statement, {"kind": kind})[0][0])

    def _documents(self, clause: str, values: dict[str, Any]) -> list[Document]:
        columns = "kind, name, version, body, at"
        rows = self._asking.rows(
            f"SELECT {columns} FROM adon_documents AS d WHERE {clause}", values
        )
        return [
            Document(kind, name, version, json.loads(body or "{}"), at, body is None)
            for kind, name, version, body, at in rows
        ]


def text_of(body: dict[str, Any]) -> str:
    """A body as it is kept."""
    return json.dumps(body, separators=(",", ":"))
