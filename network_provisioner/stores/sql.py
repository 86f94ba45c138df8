"""What stores in SQL tables do alike: the statements that SQLite and PostgreSQL both understand.

Values are named in a statement, ``:name``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

from network_provisioner.base.model import Transit
from network_provisioner.stores.store import ACTIVE, PAGE, Document

Rows = list[tuple[Any, ...]]
Run = Callable[[str, dict[str, Any]], Rows]
"""Runs one statement with its values."""

ACTIVE_STATES = ", ".join(f"'{state}'" for state in sorted(ACTIVE))
_NAMED = "kind = :kind AND name = :name"


class SqlStore:
    """Questions about transits, and all about documents. A kind of database adds its own way to
    run statements; ``_change`` is the column, if any, that numbers its changes of documents."""

    _transits_in: str
    _documents_in: str
    _change = ""
    _by_code_point = ""  # how to compare texts, where that is not the usual way
    _clock: Callable[[], float]

    def _rows(self, statement: str, **values: Any) -> Rows:
        """What a question finds."""
        raise NotImplementedError

    def _writing(self) -> AbstractContextManager[Run]:
        """A transaction: all that is run in it happens, or nothing."""
        raise NotImplementedError

    def _numbered(self, run: Run) -> dict[str, Any]:
        """The number of this change of documents, which no other has, by the name of its column."""
        return {}

    # -- transits ----------------------------------------------------------------------------

    def put(self, transit: Transit) -> None:
        self.put_many((transit,))

    def put_many(self, transits: Sequence[Transit]) -> None:
        raise NotImplementedError

    def get(self, transit_id: str) -> Transit | None:
        found = self._transits("WHERE id = :id", id=transit_id)
        return found[0] if found else None

    def active(self) -> list[Transit]:
        return self._transits(f"WHERE state IN ({ACTIVE_STATES}) ORDER BY number")

    def count(self) -> dict[str, int]:
        return dict(self._rows(f"SELECT state, count(*) FROM {self._transits_in} GROUP BY state"))

    def find(self, state: str | None, workflow: str | None, limit: int) -> list[Transit]:
        given = {"state": state, "workflow": workflow}
        values = {column: value for column, value in given.items() if value is not None}
        where = " AND ".join(["1 = 1", *(f"{column} = :{column}" for column in values)])
        clause = f"WHERE {where} ORDER BY number DESC LIMIT :limit"
        return self._transits(clause, **values, limit=limit)[::-1]

    def each(self, state: str | None = None) -> Iterator[Transit]:
        which = "1 = 1" if state is None else "state = :state"
        statement = (
            f"SELECT number, body FROM {self._transits_in} WHERE {which} AND number > :last "
            f"ORDER BY number LIMIT {PAGE}"
        )
        values: dict[str, Any] = {} if state is None else {"state": state}
        last = 0
        while rows := self._rows(statement, **values, last=last):
            last = rows[-1][0]
            yield from transits_of(body for _, body in rows)

    def _transits(self, clause: str, **values: Any) -> list[Transit]:
        rows = self._rows(f"SELECT body FROM {self._transits_in} {clause}", **values)
        return transits_of(body for (body,) in rows)

    # -- documents ---------------------------------------------------------------------------

    def put_document(self, kind: str, name: str, body: dict[str, Any], keep: int = 0) -> int:
        which = {"kind": kind, "name": name}
        with self._writing() as run:
            version = self._add_version(run, which | self._numbered(run), text_of(body))
            if keep > 0:
                run(
                    f"DELETE FROM {self._documents_in} WHERE {_NAMED} AND version <= :last",
                    which | {"last": version - keep},
                )
        return version

    def delete_document(self, kind: str, name: str) -> bool:
        which = {"kind": kind, "name": name}
        with self._writing() as run:
            number = self._numbered(run)  # from here on the newest stays the newest
            statement = f"SELECT body FROM {self._documents_in} AS d WHERE {_NAMED} AND "
            rows = run(statement + self._newest, which)
            if not rows or rows[0][0] is None:
                return False
            self._add_version(run, which | number, None)
        return True

    def _add_version(self, run: Run, values: dict[str, Any], text: str | None) -> int:
        change = f", {self._change}" if self._change else ""
        rows = run(
            f"INSERT INTO {self._documents_in} (kind, name, version, body, at{change}) "
            "SELECT :kind, :name, coalesce(max(version), 0) + 1, :body, :at"
            f"{', :' + self._change if self._change else ''} "
            f"FROM {self._documents_in} WHERE {_NAMED} RETURNING version",
            values | {"body": text, "at": self._clock()},
        )
        return int(rows[0][0])

    def document(self, kind: str, name: str, version: int | None = None) -> Document | None:
        if version is None:
            found = self._documents(f"{_NAMED} AND {self._newest}", kind=kind, name=name)
        else:
            clause = f"{_NAMED} AND version = :version"
            found = self._documents(clause, kind=kind, name=name, version=version)
        return next((d for d in found if not d.deleted), None)

    def documents(self, kind: str) -> list[Document]:
        clause = f"kind = :kind AND body IS NOT NULL AND {self._newest} "
        return self._documents(f"{clause} ORDER BY name{self._by_code_point}", kind=kind)

    def history(self, kind: str, name: str) -> list[Document]:
        return self._documents(f"{_NAMED} ORDER BY version", kind=kind, name=name)

    def restore(self, documents: Sequence[Document]) -> None:
        names = ["kind", "name", "version", "body", "at", *filter(None, [self._change])]
        statement = (
            f"INSERT INTO {self._documents_in} ({', '.join(names)}) "
            f"VALUES ({', '.join(f':{name}' for name in names)})"
        )
        with self._writing() as run:
            number = self._numbered(run)
            for d in documents:
                body = None if d.deleted else text_of(d.body)
                values = {"kind": d.kind, "name": d.name, "version": d.version, "at": d.at}
                run(statement, values | {"body": body} | number)

    def kinds(self) -> dict[str, list[str]]:
        out: dict[str, list[str]] = {}
        columns = f"kind{self._by_code_point}, name{self._by_code_point}"
        statement = f"SELECT DISTINCT {columns} FROM {self._documents_in} ORDER BY 1, 2"
        for kind, name in self._rows(statement):
            out.setdefault(kind, []).append(name)
        return out

    def documents_stamp(self, kind: str) -> int:
        statement = f"SELECT coalesce(max({self._change or 'number'}), 0) FROM {self._documents_in}"
        return int(self._rows(f"{statement} WHERE kind = :kind", kind=kind)[0][0])

    @property
    def _newest(self) -> str:
        return (
            f"version = (SELECT max(version) FROM {self._documents_in} "
            "WHERE kind = d.kind AND name = d.name)"
        )

    def _documents(self, clause: str, **values: Any) -> list[Document]:
        statement = f"SELECT kind, name, version, body, at FROM {self._documents_in} AS d WHERE "
        return [
            Document(kind, name, version, json.loads(body or "{}"), at, body is None)
            for kind, name, version, body, at in self._rows(statement + clause, **values)
        ]


def transits_of(bodies: Iterable[str]) -> list[Transit]:
    """Transits as they are kept."""
    return [Transit.from_dict(json.loads(body)) for body in bodies]


def row_of(transit: Transit) -> dict[str, Any]:
    """A transit as its row."""
    return {
        "id": transit.id,
        "state": str(transit.state),
        "workflow": transit.workflow,
        "body": text_of(transit.as_dict()),
    }


def upsert(table: str, **more: str) -> str:
    """Writes such a row, also over one of its id; ``more`` are columns with what goes there."""
    columns = {name: f":{name}" for name in ("id", "state", "workflow", "body")} | more
    updates = ", ".join(f"{name} = excluded.{name}" for name in columns if name != "id")
    return (
        f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join(columns.values())}) "
        f"ON CONFLICT (id) DO UPDATE SET {updates}"
    )


def text_of(body: dict[str, Any]) -> str:
    """A body as it is kept."""
    return json.dumps(body, separators=(",", ":"))
