"""The measurement archive: everything that was measured, once, with its unit.

    with Archive("archive.sqlite") as archive:
        archive.record(Measurement("run-7/job-3", "runtime", "soykb::bwa_mem:1.0@mu", 12.5, "s",
                                   at=1700000000.0, source="dagman"))
        archive.estimate("runtime", "soykb::bwa_mem:1.0@mu", now=1700000100.0)

Append-only: a measurement is never changed, and its ``id``, chosen by whoever measured, is taken
exactly once. A monitor that is killed and started again may therefore record everything again:
what is there stays, what was missing is added. Only retention
(:mod:`~.retaining`) takes measurements away, and of what is older than it keeps
nothing is taken again.

Two places, with the same promises: a file (SQLite, for the processes of one machine) or
``postgresql://…`` (for writers on several).
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

from monitors.archive.retention.rollups import rolled_up_estimate
from monitors.archive.stores import selection as statements
from monitors.archive.stores.base import ArchiveError, Engine, Row
from monitors.archive.stores.selection import Cursor, Selection
from monitors.archive.stores.sqlite import SqliteEngine
from monitors.base.estimates import Estimate
from monitors.base.measurement import COLUMNS, UNITS, Measurement, from_row, to_row
from network_provisioner.base.database_url import is_database_url
from network_provisioner.base.errors import printable

__all__ = ["UNITS", "Archive", "ArchiveError", "Cursor", "Estimate", "Measurement", "Selection"]

_log = logging.getLogger(__name__)

_BATCH = 5000  # rows per transaction: others get their turn, and memory stays flat
_ASKED = 500  # ids in one statement
_PAGE = 5000  # rows that are read at a time where all are wanted
_WINDOW = 20_000  # rows that are looked at for some metrics alone
_AT = 5  # where ``at`` stands in a row
_COLUMNS = len(COLUMNS.split(", "))
_FRESH_S = 60.0  # who writes tries again sooner; what is older says nothing of now
_REQUESTS_KEPT_S = 3600.0  # who has not looked at a request by then will not answer it


class Archive:
    """Opened in one place, for one process; threads may share it.

    Writing creates the file and the folders above it, or the tables. With ``read_only`` nothing is
    ever created: while the file is not there, queries find nothing. The path ``:memory:`` is an
    archive that is gone when it is closed.

    Raises InputError where the place is something else or newer than this code, ArchiveError where
    it cannot be opened.
    """

    def __init__(self, location: str | Path, *, read_only: bool = False) -> None:
        self._failed: tuple[float, str] | None = None
        self._unreadable: set[str] = set()
        self.location = location if is_database_url(location) else Path(location)
        self._engine: Engine
        if isinstance(self.location, Path):
            self._engine = SqliteEngine(self.location, read_only=read_only)
        else:
            from monitors.archive.stores.postgres import PostgresEngine  # noqa: PLC0415  # takes a while

            self._engine = PostgresEngine(self.location, read_only=read_only)

    @property
    def engine(self) -> Engine:
        """The database, for modules of the archive with statements of their own."""
        return self._engine

    @property
    def shown(self) -> str:
        """Its place without a password, for messages."""
        return self._engine.shown

    # ---------------------------------------------------------------- writing

    def record(self, measurement: Measurement) -> bool:
        """Adds one measurement; False where its id is there already, or it is too old to be kept.

        Raises InputError for a value or time that is not finite, an empty id, or a unit other than
        the metric's own; ArchiveError where it could not be written.
        """
        return self.record_many([measurement]) == 1

    def record_many(self, measurements: Iterable[Measurement]) -> int:
        """Adds measurements in large transactions; returns how many were not there before.

        Raises as :meth:`record`. Transactions committed before the error stay, and recording
        everything again is harmless.
        """
        try:
            added = self._added(measurements)
        except ArchiveError as error:
            self._failed = time.monotonic(), str(error)
            raise
        self._failed = None
        return added

    @property
    def problem(self) -> str:
        """Why the last write failed, within the last minute; "" if it did not."""
        at, why = self._failed or (-math.inf, "")
        return why if time.monotonic() - at < _FRESH_S else ""

    @property
    def damage(self) -> str:
        """What was met that cannot be read and is left out, "" for nothing."""
        count = len(self._unreadable)
        left_out = f"what cannot be read is left out ({count} in the log)" if count else ""
        return self._engine.damage or left_out

    def faults(self) -> str:
        """What of it is damaged, in words, "" for nothing; looks through all of it. Raises
        ArchiveError."""
        return self._engine.faults()

    def _added(self, measurements: Iterable[Measurement]) -> int:
        sent = ((*to_row(measurement), time.time()) for measurement in measurements)
        added = 0
        while batch := list(islice(sent, _BATCH)):
            with self._engine.write() as writing:
                # Read in the transaction that writes: retention cannot move it in between.
                rows = writing.rows("SELECT metric, raw_until FROM horizon")
                horizon: dict[str, float] = {row[0]: row[1] for row in rows}
                if horizon:
                    batch = [row for row in batch if row[_AT] >= horizon.get(row[1], -math.inf)]
                if batch:
                    added += writing.insert(batch)
        return added

    def ask(self, kind: str, subject: str, at: float) -> int:
        """Leave a request for another process that reads this archive; returns its number.

        ``at`` is now (Unix seconds); requests are forgotten after an hour. Raises ArchiveError.
        """
        with self._engine.write() as writing:
            writing.run("DELETE FROM request WHERE at < ?", [at - _REQUESTS_KEPT_S])
            newest = writing.rows(
                "INSERT INTO request (kind, subject, at) VALUES (?, ?, ?) RETURNING id",
                [kind, subject, at],
            )
        return int(newest[0][0])

    # ---------------------------------------------------------------- reading

    def requests(self, kind: str, after: int = 0) -> list[tuple[int, str, float]]:
        """Requests of a kind with numbers above ``after``: number, subject, time (Unix seconds)."""
        return self._engine.rows(
            "SELECT id, subject, at FROM request WHERE kind = ? AND id > ? ORDER BY id",
            [kind, after],
        )

    def query(
        self,
        metric: str,
        subject: str | None = None,
        workflow: str | None = None,
        since: float | None = None,
        until: float | None = None,
        *,
        newest: bool = False,
        limit: int | None = None,
    ) -> list[Measurement]:
        """Measurements of a metric with ``since <= at <= until``, oldest (or ``newest``) first, at
        most ``limit``."""
        selection = Selection((metric,), subject, workflow, since=since, until=until)
        rows = self._read(selection, None, newest, limit)
        return [measurement for _, measurement in self._readable(rows)]

    def page(
        self,
        selection: Selection,
        cursor: Cursor | None = None,
        *,
        newest: bool = False,
        limit: int | None = None,
    ) -> list[tuple[Cursor, Measurement]]:
        """Selected measurements after ``cursor``, by time, each with the cursor that follows it.

        Successive pages have each measurement once, even if more are recorded meanwhile, except
        those that are older than what was read already.
        """
        rows = self._read(selection, cursor, newest, limit)
        return [
            (Cursor(row[1 + _AT], row[0]), measurement) for row, measurement in self._readable(rows)
        ]

    def _read(
        self, selection: Selection, cursor: Cursor | None, newest: bool, limit: int | None
    ) -> Iterator[Row]:
        """The rows, each with its number first, read in pages: no answer of a database is large."""
        while limit is None or limit > 0:
            most = _PAGE if limit is None else min(_PAGE, limit)
            rows = self._engine.rows(*statements.page(selection, cursor, newest, most))
            yield from rows
            if len(rows) < most:
                break
            limit = None if limit is None else limit - most
            cursor = Cursor(rows[-1][1 + _AT], rows[-1][0])

    def each(self, selection: Selection) -> Iterator[Measurement]:
        """All selected measurements, by metric, oldest first; keeps one page in memory."""
        for metric in selection.metrics or self.metrics():
            of_metric = replace(selection, metrics=(metric,))
            for _, measurement in self._readable(self._read(of_metric, None, False, None)):
                yield measurement

    def _readable(self, rows: Iterable[Row]) -> Iterator[tuple[Row, Measurement]]:
        """Rows that end in the columns of a measurement, each with it; damaged ones are left
        out."""
        for row in rows:
            columns = row[-_COLUMNS:]
            try:
                measurement = from_row(columns)
            except (ValueError, TypeError, AttributeError) as error:
                key = printable(str(columns[0]))
                if key not in self._unreadable:
                    _log.error("measurement %s in %s is damaged: %s", key, self.shown, error)
                self._unreadable.add(key)
            else:
                yield row, measurement

    def get(self, key: str) -> Measurement | None:
        """The measurement with this id."""
        rows = self._engine.rows(f"SELECT {COLUMNS} FROM measurement WHERE id = ?", [key])
        return next((measurement for _, measurement in self._readable(rows)), None)

    def those(self, keys: Sequence[str]) -> dict[str, Measurement]:
        """The measurements with these ids, by id."""
        rows: list[Row] = []
        for i in range(0, len(keys), _ASKED):
            some = list(keys[i : i + _ASKED])
            marks = ", ".join("?" * len(some))
            statement = f"SELECT {COLUMNS} FROM measurement WHERE id IN ({marks})"
            rows += self._engine.rows(statement, some)
        return {measurement.id: measurement for _, measurement in self._readable(rows)}

    def latest(self, metric: str, subjects: Iterable[str] | None = None) -> dict[str, Measurement]:
        """The newest measurement of each subject, or of those named that have one; of two at the
        same time the one recorded last."""
        if subjects is None:
            rows = self._engine.rows(statements.LATEST, [metric] * 3)
        else:
            rows = [
                row
                for subject in subjects
                for row in self._engine.rows(statements.LATEST_OF, [metric, subject])
            ]
        return {measurement.subject: measurement for _, measurement in self._readable(rows)}

    def metrics(self) -> list[str]:
        """All metrics there are measurements of, in alphabetical order."""
        return [row[0] for row in self._engine.rows(statements.METRICS)]

    def subjects(self, metric: str) -> list[str]:
        """All subjects a metric was measured for, also of measurements that were rolled up, in
        alphabetical order."""
        whole = self._engine.rows(statements.SUBJECTS, [metric, metric])
        return sorted(
            {row[0] for row in self._engine.rows(statements.ROLLED_UP, [metric] * 2) + whole}
        )

    def estimate(
        self,
        metric: str,
        subject: str,
        now: float,
        max_age_s: float | None = None,
        users: frozenset[str] | None = None,
    ) -> Estimate | None:
        """What is known about a subject at ``now`` (Unix seconds); None where nothing is.

        Robust and recency-weighted, see :mod:`~.estimates`. Measurements after ``now`` are
        not used, nor those more than ``max_age_s`` seconds before it. Where measurements were
        rolled up, the roll-ups stand for them. With ``users``, as they decide by it.
        """
        if math.isnan(now):  # the databases do not agree on what is before it
            return None
        oldest = -math.inf if max_age_s is None else now - max_age_s
        return rolled_up_estimate(self._engine, metric, subject, now, oldest, users)

    # ---------------------------------------------------------------- what is new

    def latest_seq(self) -> int:
        """The number of the measurement recorded last, 0 if there is none."""
        rows = self._engine.rows("SELECT max(seq) FROM measurement")
        return int(rows[0][0] or 0) if rows else 0

    def read_on(
        self, seq: int, metrics: Sequence[str] = (), limit: int = 1000
    ) -> tuple[list[tuple[int, Measurement]], int]:
        """What was recorded after number ``seq``, in the order in which it was, at most ``limit``,
        and the number to go on from: also where nothing was of ``metrics`` (empty: all), so that
        the same others are not looked at again.

        Numbers rise with commits, of all writers: what is read here, nothing comes before later.
        """
        top = self.latest_seq()
        if top <= seq:
            return [], seq
        read_rows: list[Row] = []
        while seq < top and len(read_rows) < limit:
            most, until = limit - len(read_rows), self._window(seq, top)
            rows = self._engine.rows(*statements.by_number(metrics, seq, until, most))
            read_rows += rows
            seq = rows[-1][0] if len(rows) == most else until
        return [(row[0], measurement) for row, measurement in self._readable(read_rows)], seq

    def _window(self, seq: int, top: int) -> int:
        """The number up to which one query reads, so that it does not block others for long."""
        if top - seq <= _WINDOW:
            return top
        rows = self._engine.rows(statements.NTH_AFTER, [seq, _WINDOW])
        return min(top, int(rows[0][0])) if rows else top

    def changed(self) -> object:
        """A value that changes when something is written; cheap."""
        return self._engine.changed()

    # ---------------------------------------------------------------- life

    def close(self) -> None:
        """Closes it; the archive cannot be used afterwards. Closing twice is harmless."""
        self._engine.close()

    def __enter__(self) -> Archive:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
