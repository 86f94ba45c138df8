"""What the archive needs of a database: rows, one writer at a time, and a word when all is new.

The archive's own statements are written once, in the SQL that SQLite and PostgreSQL have in common,
with ``?`` for values; what differs (how tables are made, who may write, what an error means) is in
the two engines.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from monitors.base.measurement import OF_WORKFLOWS, storable
from network_provisioner.base.errors import AdonError, InputError

Row = tuple[Any, ...]
Rows = list[Row]
BUSY_S = 15.0  # how long to wait for other writers before giving up


class ArchiveError(AdonError):
    """The archive could not be read or written just now: disk full, locked, no permission."""

    code = "archive_unavailable"


class DamagedArchiveError(ArchiveError, InputError):
    """What is in the archive's place is no whole database: when it is opened, or later."""


def check_texts(values: Sequence[object]) -> None:
    """Raises InputError where a question has a text in it that no database takes."""
    for value in values:
        if isinstance(value, str) and not storable(value):
            raise InputError(f"found {value!r:.200}, which is no text, expected a name")


class Writing(Protocol):
    """A transaction in which nobody else writes. Leaving it by an exception undoes it all."""

    def rows(self, statement: str, values: Sequence[object] = ()) -> Rows:
        """Run one statement; the rows it gives, none for one that gives none."""

    def run(self, statement: str, values: Sequence[object] = ()) -> int:
        """Run one statement that changes rows; how many it changed."""

    def insert(self, rows: Sequence[Row]) -> int:
        """Add measurements (:data:`~.measurement.COLUMNS`, then when they were recorded) in
        this order, those whose id is there already left out; how many were added."""

    def unlocked(self) -> AbstractContextManager[None]:
        """While it lasts, measurements can be changed: their subjects, where a name has changed."""


class Engine(Protocol):
    """A database; safe to use from several threads. Every method may raise ArchiveError."""

    shown: str
    """Where it is, as messages may say it."""
    damage: str
    """What is known to be wrong with the database as a whole, "" for nothing."""

    def rows(self, statement: str, values: Sequence[object] = ()) -> Rows:
        """Ask. What others committed before is seen, whole transactions only. Raises InputError as
        :func:`check_texts`."""

    def write(self) -> AbstractContextManager[Writing]:
        """Write, alone: transactions of all processes follow one another, so that a later one
        always has the higher sequence numbers."""

    def changed(self) -> object:
        """Something that compares equal to what it was before as long as nothing was written.
        Cheap: it may be asked many times a second."""

    def faults(self) -> str:
        """What is damaged, in words, "" for nothing; looks through all of it."""

    def close(self) -> None:
        """For good. Closing twice is harmless."""


def rename_subjects(engine: Engine, renamed: Callable[[str], str]) -> None:
    """Give measurements and roll-ups the subjects that ``renamed`` makes of theirs, all or none.
    Of a subject that has roll-ups of its own, they stay as they are. Raises ArchiveError."""
    for table in ("measurement", "rollup"):
        known = set(engine.rows(f"SELECT DISTINCT metric, subject FROM {table}"))
        pairs = [
            (metric, subject, new)
            for metric, subject in known
            if metric not in OF_WORKFLOWS and (new := renamed(subject)) != subject
            if table == "measurement" or (metric, new) not in known
        ]
        if pairs:
            with engine.write() as writing, writing.unlocked():
                for metric, subject, new in pairs:
                    writing.run(
                        f"UPDATE {table} SET subject = ? WHERE metric = ? AND subject = ?",
                        (new, metric, subject),
                    )
