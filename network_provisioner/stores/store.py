"""Where transits and documents outlive the broker.

The broker writes a transit here before it touches the switches, so whatever kills it, the next one
finds what may be on them. Two kinds of store keep the same promises:

    SQLite       one file, one broker: a second one is refused when it opens the file
    PostgreSQL   one database, several brokers: they decide in turns, and tell each other

Documents are what people wrote (policies, templates) or a small history (accounts): JSON bodies
with a kind, a name and a version; an old version is never overwritten.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from network_provisioner.base.errors import AdonError
from network_provisioner.base.model import LIVE, Transit, TransitState

ACTIVE = LIVE | {TransitState.QUEUED}
PAGE = 1000  # transits that are read at a time where all are wanted


class StoreError(AdonError):
    """The store cannot be read or written: names the file or database and what it said."""

    code = "store_unavailable"


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


class Store(Protocol):
    """Keeps transits and documents; safe to use from several threads.

    Every method may raise StoreError; one that returns has taken effect and survives a crash of the
    process, also within a turn.
    """

    shared: bool
    """Whether other brokers may be at it at the same time."""

    def turn(self) -> AbstractContextManager[Sequence[Transit]]:
        """Take the turn to decide: nobody else who shares the store has theirs until it ends.

        Yields the transits that others changed since our last turn, each once and as it is now, in
        the order of their changes; and any whose :meth:`put` failed in a way that left open whether
        it took effect, where it did. The first turn yields none: read :meth:`active` in it. Within
        a turn the same thread may begin another one, which yields none.

        Raises StoreError where the turn cannot be had in a few seconds. One that is lost while it
        lasts (a connection that breaks, or a process that stood still for long) makes every put of
        its remainder fail.
        """
        ...

    def put(self, transit: Transit) -> None:
        """Write a transit, replacing what was there under its id."""
        ...

    def put_many(self, transits: Sequence[Transit]) -> None:
        """Write several, all or none."""
        ...

    def get(self, transit_id: str) -> Transit | None:
        """The transit with this id, or None."""
        ...

    def active(self) -> list[Transit]:
        """All transits that wait or hold bandwidth, oldest first."""
        ...

    def find(self, state: str | None, workflow: str | None, limit: int) -> list[Transit]:
        """The newest ``limit`` transits in a state, of a workflow (None: any), oldest first."""
        ...

    def count(self) -> dict[str, int]:
        """How many transits there are in each state that any is in."""
        ...

    def each(self, state: str | None = None) -> Iterator[Transit]:
        """All transits in a state (None: any), oldest first, a page at a time: there may be very
        many. Those that come or change meanwhile are in it or not."""
        ...

    def put_document(self, kind: str, name: str, body: dict[str, Any], keep: int = 0) -> int:
        """Write a new version of a document and return its number: 1, 2, 3 …, also after it was
        deleted. ``keep`` drops all versions but the newest so many (0: none)."""
        ...

    def delete_document(self, kind: str, name: str) -> bool:
        """Take a document away; its history stays. False where there is none."""
        ...

    def document(self, kind: str, name: str, version: int | None = None) -> Document | None:
        """One version, None for the newest; None where there is none or that one deleted it."""
        ...

    def documents(self, kind: str) -> list[Document]:
        """The newest version of every document of a kind that is not deleted, by name."""
        ...

    def history(self, kind: str, name: str) -> list[Document]:
        """Every version that is kept, oldest first, those that deleted it too."""
        ...

    def restore(self, documents: Sequence[Document]) -> None:
        """Write versions as they were in another store, all or none. Raises StoreError where one of
        them is there."""
        ...

    def kinds(self) -> dict[str, list[str]]:
        """The names of all documents by kind, deleted ones too, in order."""
        ...

    def documents_stamp(self, kind: str) -> int:
        """A number that grows with each change of a document of this kind, whoever made it: cheap
        to ask before one trusts what one remembers."""
        ...

    def close(self) -> None:
        """Release the file or the connections. May be called again."""
        ...
