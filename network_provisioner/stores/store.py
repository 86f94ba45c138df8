"""Where transits and documents outlive the broker.

The broker writes a transit here before it touches the switches, so whatever kills it, the next one
finds what may be on them. Two kinds of store keep the same promises:

    SQLite       one file, one broker: a second one is refused when it opens the file
    PostgreSQL   one database, several brokers: one of them leads, and they tell each other

The statements here are those that both understand; values are named in them, ``:name``.

Documents are what people wrote (policies, templates) or a small history (accounts): JSON bodies
with a kind, a name and a version; an old version is never overwritten.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from network_provisioner.base.errors import AdonError, printable
from network_provisioner.base.model import LIVE, Transit, TransitState

log = logging.getLogger(__name__)

ACTIVE = LIVE | {TransitState.QUEUED}
PAGE = 1000  # transits that are read at a time where all are wanted
_AT_ONCE = 200  # ids that one statement asks for
Rows = list[tuple[Any, ...]]
Run = Callable[[str, dict[str, Any]], Rows]
"""Runs one statement with its values."""

ACTIVE_STATES = ", ".join(f"'{state}'" for state in sorted(ACTIVE))
_NAMED = "kind = :kind AND name = :name"


class StoreError(AdonError):
    """The store cannot be read or written: names the file or database and what it said."""

    code = "store_unavailable"


class ClockError(StoreError):
    """Clocks do not agree; the message names no place, so that everybody may read it."""


@dataclass(frozen=True, slots=True)
class Leader:
    """The broker that decides.

    ``address``  its URL, for the others
    ``term``     grows with each change of leader: the fencing number of all that it writes
    ``secret``   known to those who can read the store alone: by it the leader trusts what another
                 broker says of a request that it passes on
    ``is_us``    whether it is the one who asked
    """

    address: str = ""
    term: int = 0
    secret: str = field(default="", repr=False)
    is_us: bool = True


@dataclass(frozen=True, slots=True)
class Document:
    """One version of a document. ``at`` is when it was written, Unix seconds.

    ``deleted`` marks the version, with an empty body, that took the document away.
    """

    kind: str
    name: str
    version: int
    body: dict[str, Any] = field(default_factory=dict)
    at: float = 0.0
    deleted: bool = False


class Store:
    """Keeps transits and documents; safe to use from several threads.

    Every method may raise StoreError; one that returns has taken effect and survives a crash of the
    process. Where brokers share it, the one that leads writes; everybody reads.

    A kind of database adds its own way to run statements, to write transits and to elect a leader;
    ``_change`` is the column, if any, that numbers its changes of documents.
    """

    shared: bool
    """Whether other brokers may be at it at the same time."""
    unreadable: dict[str, str]
    """What was met that cannot be read, and is left out: its name, and why."""
    changes = 0
    """How often transits or documents were written here: what was read before may be old."""

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

    # -- the leader --------------------------------------------------------------------------

    def elect(self, address: str = "") -> Leader:
        """Lead, or go on leading, where nobody else does; the one who leads. To be called more
        often than once a second: a leader that is silent for longer than its lease is replaced.

        Raises StoreError where nobody can be elected; ClockError where our clock is wrong.
        """
        return Leader()

    def resign(self) -> None:
        """Lead no longer, so that another may at once. Never fails."""

    def leads(self) -> bool:
        """Whether nobody else can lead now. Asks nobody."""
        return True

    def check_leads(self) -> None:
        """Raises StoreError where :meth:`leads` is False."""

    def doubted(self) -> Sequence[Transit]:
        """The transits whose last write failed in a way that left open whether it took effect,
        where it did; each once."""
        return ()

    # -- transits ----------------------------------------------------------------------------

    def put(self, transit: Transit) -> None:
        """Write a transit, replacing what was there under its id."""
        self.put_many((transit,))

    def put_many(self, transits: Sequence[Transit]) -> None:
        """Write several, all or none."""
        raise NotImplementedError

    def get(self, transit_id: str) -> Transit | None:
        """The transit with this id, or None."""
        transits = self._transits("WHERE id = :id", id=transit_id)
        return transits[0] if transits else None

    def get_many(self, ids: Collection[str]) -> list[Transit]:
        """Those of the transits with these ids that there are, in no order."""
        names = [f"id{number}" for number in range(_AT_ONCE)]
        clause = f"WHERE id IN ({', '.join(f':{name}' for name in names)})"
        transits, left = [], list(ids)
        while left:
            transits += self._transits(clause, **dict(zip_longest(names, left[:_AT_ONCE])))
            del left[:_AT_ONCE]
        return transits

    def active(self) -> list[Transit]:
        """All transits that wait or hold bandwidth, oldest first."""
        return self._transits(f"WHERE state IN ({ACTIVE_STATES}) ORDER BY number")

    def count(self) -> dict[str, int]:
        """How many transits there are in each state that any is in."""
        return dict(self._rows(f"SELECT state, count(*) FROM {self._transits_in} GROUP BY state"))

    def find(
        self,
        state: str | None,
        workflow: str | None,
        limit: int,
        before: str = "",
        ended: bool = True,
    ) -> list[Transit]:
        """The newest ``limit`` transits in a state, of a workflow (None: any), put before the one
        with the id ``before`` ("": of all), without those that have ``ended`` or with them, oldest
        first."""
        given = {"state": state, "workflow": workflow}
        values = {column: value for column, value in given.items() if value is not None}
        where = ["1 = 1", *(f"{column} = :{column}" for column in values)]
        if before:
            values["before"] = before
            where.append(f"number < (SELECT number FROM {self._transits_in} WHERE id = :before)")
        if not ended:
            where.append(f"state IN ({ACTIVE_STATES})")
        clause = f"WHERE {' AND '.join(where)} ORDER BY number DESC LIMIT :limit"
        return self._transits(clause, **values, limit=limit)[::-1]

    def each(self, state: str | None = None) -> Iterator[Transit]:
        """All transits in a state (None: any), oldest first, a page at a time: there may be very
        many. Those that come or change meanwhile are in it or not."""
        which = "1 = 1" if state is None else "state = :state"
        statement = (
            f"SELECT number, id, body FROM {self._transits_in} WHERE {which} AND number > :last "
            f"ORDER BY number LIMIT {PAGE}"
        )
        values: dict[str, Any] = {} if state is None else {"state": state}
        last = 0
        while rows := self._rows(statement, **values, last=last):
            last = rows[-1][0]
            yield from self._read(row[1:] for row in rows)

    def _transits(self, clause: str, **values: Any) -> list[Transit]:
        return self._read(
            self._rows(f"SELECT id, body FROM {self._transits_in} {clause}", **values)
        )

    def _read(self, rows: Iterable[tuple[Any, ...]]) -> list[Transit]:
        """The transits of rows with an id and a body each; what cannot be read is left out."""
        transits = []
        for name, body in rows:
            transit = transit_of(name, body)
            if isinstance(transit, Transit):
                transits.append(transit)
            else:
                self._leave_out(f"transit {name}", transit)
        return transits

    def _replaced(self, transits: Iterable[Transit]) -> None:
        self.changes += 1
        for transit in transits:
            self.unreadable.pop(f"transit {transit.id}", None)

    def _leave_out(self, what: str, why: str) -> None:
        what = printable(what)
        if what not in self.unreadable:
            log.error("%s in the store cannot be read, it is left out: %s", what, why)
        self.unreadable[what] = why

    # -- documents ---------------------------------------------------------------------------

    def put_document(self, kind: str, name: str, body: dict[str, Any], keep: int = 0) -> int:
        """Write a new version of a document and return its number: 1, 2, 3 …, also after it was
        deleted. ``keep`` drops all versions but the newest so many (0: none)."""
        version = self._put_version(kind, name, body, keep)
        self.changes += 1
        return version

    def _put_version(self, kind: str, name: str, body: dict[str, Any], keep: int) -> int:
        which = {"kind": kind, "name": name}
        with self._writing() as run:
            version = self._add_version(run, which | self._numbered(run), text_of(body))
            if keep > 0:
                run(
                    f"DELETE FROM {self._documents_in} WHERE {_NAMED} AND version <= :last",
                    which | {"last": version - keep},
                )
        return version

    def try_write(self) -> None:
        """Write something small that changes nothing. Raises StoreError."""
        self._put_version("network", "written", {}, 1)

    def delete_document(self, kind: str, name: str) -> bool:
        """Take a document away; its history stays. False where there is none."""
        which = {"kind": kind, "name": name}
        with self._writing() as run:
            number = self._numbered(run)  # from here on the newest stays the newest
            statement = f"SELECT body FROM {self._documents_in} AS d WHERE {_NAMED} AND "
            rows = run(statement + self._newest, which)
            if not rows or rows[0][0] is None:
                return False
            self._add_version(run, which | number, None)
        self.changes += 1
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
        """One version, None for the newest; None where there is none or that one deleted it."""
        if version is None:
            documents = self._documents(f"{_NAMED} AND {self._newest}", kind=kind, name=name)
        else:
            clause = f"{_NAMED} AND version = :version"
            documents = self._documents(clause, kind=kind, name=name, version=version)
        return next((d for d in documents if not d.deleted), None)

    def documents(self, kind: str) -> list[Document]:
        """The newest version of every document of a kind that is not deleted, by name."""
        clause = f"kind = :kind AND body IS NOT NULL AND {self._newest} "
        return self._documents(f"{clause} ORDER BY name{self._by_code_point}", kind=kind)

    def history(self, kind: str, name: str) -> list[Document]:
        """Every version that is kept, oldest first, those that deleted it too."""
        return self._documents(f"{_NAMED} ORDER BY version", kind=kind, name=name)

    def restore(self, documents: Sequence[Document]) -> None:
        """Write versions as they were in another store, all or none. Raises StoreError where one of
        them is there."""
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
        """The names of all documents by kind, deleted ones too, in order."""
        out: dict[str, list[str]] = {}
        columns = f"kind{self._by_code_point}, name{self._by_code_point}"
        statement = f"SELECT DISTINCT {columns} FROM {self._documents_in} ORDER BY 1, 2"
        for kind, name in self._rows(statement):
            out.setdefault(kind, []).append(name)
        return out

    def documents_stamp(self, kind: str) -> int:
        """A number that grows with each change of a document of this kind, whoever made it: cheap
        to ask before one trusts what one remembers."""
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
        documents = []
        for kind, name, version, body, at in self._rows(statement + clause, **values):
            try:
                read = body_of(body or "{}")
            except ValueError as error:
                self._leave_out(f"{kind} {name} version {version}", str(error))
            else:
                documents.append(Document(kind, name, version, read, at, body is None))
        return documents

    def close(self) -> None:
        """Release the file or the connections. May be called again."""
        raise NotImplementedError


def transit_of(name: str, body: str) -> Transit | str:
    """A transit of its row, or in words why the row cannot be read."""
    try:
        transit = Transit.from_dict(body_of(body))
    except KeyError as error:
        return printable(f"found no {error}")
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        return printable(str(error))
    return transit if transit.id == name else f"it holds transit {printable(str(transit.id))!r}"


def body_of(text: str) -> dict[str, Any]:
    """The inverse of :func:`text_of`. Raises ValueError."""
    if not (isinstance(text, str) and text.isascii()):
        raise ValueError("found no ASCII text, which every broker writes")
    try:
        body = json.loads(text)
    except RecursionError:
        raise ValueError("found too many lists or objects within each other") from None
    if not isinstance(body, dict):
        raise ValueError(f"found {text[:40]!r}, expected an object")
    return body


def row_of(transit: Transit) -> dict[str, Any]:
    """A transit as its row."""
    return {
        "id": transit.id,
        "state": str(transit.state),
        "workflow": transit.request.workflow,
        "body": text_of(transit.as_dict()),
    }


def upsert(table: str, source: str = "") -> str:
    """Writes such a row, also over one of its id. ``source``: a table, and as many times as it has
    rows."""
    columns = ("id", "state", "workflow", "body")
    updates = ", ".join(f"{name} = excluded.{name}" for name in columns[1:])
    values = ", ".join(f":{name}" for name in columns)
    rows = f"SELECT {values} FROM {source}" if source else f"VALUES ({values})"
    return (
        f"INSERT INTO {table} ({', '.join(columns)}) {rows} "
        f"ON CONFLICT (id) DO UPDATE SET {updates}"
    )


def text_of(body: dict[str, Any]) -> str:
    """A body as it is kept."""
    return json.dumps(body, separators=(",", ":"))
