"""What the coordinator must not forget, in an SQLite file of its own, and the runs of now.

:class:`MeasuringStore` has the tasks that were added while the broker ran, the schedule, and runs.
:class:`RunStore` holds in memory as well the runs that agents have been told of, are about to be,
or have just made; it is not for several threads at once.
:class:`SharedTasks` keeps the tasks in the store that brokers share, for each new leader.
"""

from __future__ import annotations

import fcntl
import json
import logging
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from monitors.measurements.runs import Run, RunState, part_from_dict
from network_provisioner.base.errors import AdonError
from network_provisioner.base.private import make_private, open_lock
from network_provisioner.base.wal import transaction, use_wal
from network_provisioner.stores.store import Store

_log = logging.getLogger(__name__)
T = TypeVar("T")

_KEEP_MS = 600_000  # how long a run stays in memory after its end
_KIND = "measurement-task"


class RunStore:
    """Runs by id and by agent, and for each agent a number that changes with what it has to do."""

    def __init__(self, store: MeasuringStore, now_ms: int) -> None:
        """Take up what an earlier process left. Numbers begin with ``now_ms``, not to be those of
        that process: an agent compares."""
        self._store = store
        self._runs: dict[str, Run] = {}
        self._of: dict[str, set[str]] = {}
        self._versions: dict[str, int] = {}
        self._first = max(1, now_ms)
        self._tell: Callable[[str], None] = lambda _: None
        for run in store.open_runs(now_ms - _KEEP_MS):
            self._keep(run)

    def on_change(self, tell: Callable[[str], None]) -> None:
        """Call ``tell`` with the name of every agent whose list has changed."""
        self._tell = tell

    def write(self, runs: Iterable[Run], **more: Mapping[str, Any]) -> None:
        """Write runs, new or changed, and ``more`` as :meth:`MeasuringStore.write` takes it: all
        or none. Agents whose list changes so are told."""
        runs = list(runs)
        if not (runs or more):
            return
        self._store.write(runs, **more)
        changed: set[str] = set()
        for run in runs:
            before = self._runs.get(run.id)
            was = before is not None and before.state is not RunState.DROPPED
            if was != (run.state is not RunState.DROPPED):
                changed.update(part.agent for part in run.parts)
            self._keep(run)
        self.news(changed)

    def news(self, agents: Iterable[str]) -> None:
        """The lists of these agents have changed."""
        for agent in sorted(set(agents)):
            self._versions[agent] = self.version(agent) + 1
            self._tell(agent)

    def version(self, agent: str) -> int:
        """The number of the agent's list as it is."""
        return self._versions.get(agent, self._first)

    def get(self, run_id: str) -> Run | None:
        """One run, also of the past, or None."""
        return self._runs.get(run_id) or self._store.run(run_id)

    def all(self) -> list[Run]:
        """All that are in memory."""
        return list(self._runs.values())

    def to_do(self, agent: str, now_ms: int) -> list[Run]:
        """The agent's runs that are not over, by start."""
        runs = [self._runs[key] for key in self._of.get(agent, ())]
        return sorted(
            (
                run
                for run in runs
                if run.end_ms > now_ms
                and run.state is not RunState.DROPPED
                and not any(p.agent == agent and p.reported for p in run.parts)
            ),
            key=lambda run: (run.at_ms, run.id),
        )

    def mark_sent(self, agent: str, runs: Iterable[Run]) -> None:
        """Mark these runs as told to the agent."""
        news = [
            replace(
                run,
                parts=tuple(replace(p, told=True) if p.agent == agent else p for p in run.parts),
            )
            for run in runs
            if any(p.agent == agent and not p.told for p in run.parts)
        ]
        if news:
            self.write(news)

    def forget(self, now_ms: int) -> None:
        """Forget ended runs of the past; the store still has them."""
        for run in [r for r in self._runs.values() if r.end_ms < now_ms - _KEEP_MS]:
            if run.state is not RunState.PLANNED:
                del self._runs[run.id]
                for part in run.parts:
                    self._of[part.agent].discard(run.id)

    def _keep(self, run: Run) -> None:
        self._runs[run.id] = run
        for part in run.parts:
            self._of.setdefault(part.agent, set()).add(run.id)


_LAYOUT = 1
_APPLICATION_ID = 0x41444F4D  # "ADOM": tells the file from a broker's state and from an archive
_BUSY_S = 10.0
_TABLES = (
    "CREATE TABLE IF NOT EXISTS task (name TEXT PRIMARY KEY, body TEXT NOT NULL, by TEXT NOT NULL,"
    " at REAL NOT NULL)",
    "CREATE TABLE IF NOT EXISTS fact (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS run (id TEXT PRIMARY KEY, task TEXT NOT NULL, tool TEXT NOT NULL,"
    " subject TEXT NOT NULL, at_ms INTEGER NOT NULL, end_ms INTEGER NOT NULL, release_ms INTEGER"
    " NOT NULL, demanded TEXT NOT NULL, state TEXT NOT NULL, error TEXT NOT NULL, parts TEXT NOT"
    " NULL, uses TEXT NOT NULL, measured TEXT NOT NULL)",
    "CREATE INDEX IF NOT EXISTS run_by_end ON run (end_ms)",
    "CREATE INDEX IF NOT EXISTS run_by_task ON run (task, at_ms)",
    "CREATE INDEX IF NOT EXISTS run_by_release ON run (release_ms)",
)
_COLUMNS = (
    "id, task, tool, subject, at_ms, end_ms, release_ms, demanded, state, error, parts, uses,"
    " measured"
)
_PUT = (
    f"INSERT INTO run ({_COLUMNS}) VALUES ({', '.join('?' * 13)}) ON CONFLICT (id) DO"
    " UPDATE SET state = excluded.state, error = excluded.error, parts = excluded.parts,"
    " measured = excluded.measured"
)


class MeasuringStoreError(AdonError):
    """The file cannot be read or written."""

    code = "store_unavailable"


@dataclass(frozen=True, slots=True)
class KeptTask:
    """A task that somebody added: ``body`` as they wrote it, ``at`` in Unix seconds."""

    body: Mapping[str, Any]
    by: str
    at: float


class MeasuringStore:
    """One file, for one process; threads may share it. Every method may raise
    MeasuringStoreError."""

    def __init__(self, path: Path | str) -> None:
        """Open or create the file and its folder; ``:memory:`` is gone when it is closed."""
        self.path = str(path)
        self._lock = threading.Lock()
        self._held: BinaryIO | None = None
        with self._explained():
            if self.path != ":memory:":
                make_private(Path(path))
                self._held = self._hold()
            self._db = sqlite3.connect(
                self.path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False
            )
            # One damaged text is not to keep all others from being read.
            self._db.text_factory = lambda raw: raw.decode("utf-8", "surrogateescape")
        try:
            with self._explained():
                self._prepare()
        except MeasuringStoreError:
            self.close()
            raise

    def _hold(self) -> BinaryIO:
        """Be the only process that has the file: two would give out every run twice. The kernel
        takes the lock back however the process ends."""
        held = open_lock(Path(f"{self.path}.lock"))
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            held.close()
            raise MeasuringStoreError(
                f"measuring file {self.path}: another broker has it, expected one broker to a file"
            ) from None
        except OSError:
            held.close()
            raise
        return held

    def _prepare(self) -> None:
        application = self._db.execute("PRAGMA application_id").fetchone()[0]
        tables = self._db.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
        layout = self._db.execute("PRAGMA user_version").fetchone()[0]
        if (tables and application != _APPLICATION_ID) or layout > _LAYOUT:
            raise MeasuringStoreError(
                f"measuring file {self.path}: found another program's file or one of a newer ADON,"
                f" expected one of layout {_LAYOUT} at most, or none"
            )
        use_wal(self._db, _BUSY_S)
        self._db.execute("PRAGMA synchronous = NORMAL")
        with transaction(self._db):
            for statement in _TABLES:
                self._db.execute(statement)
            self._db.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
            self._db.execute(f"PRAGMA user_version = {_LAYOUT}")

    # -- writing -----------------------------------------------------------------------------

    def write(
        self,
        runs: Iterable[Run] = (),
        facts: Mapping[str, Any] | None = None,
        tasks: Mapping[str, KeptTask | None] | None = None,
    ) -> None:
        """Write all of it or none; None takes a task away."""
        with self._lock, self._explained(), transaction(self._db):
            self._db.executemany(_PUT, [_row(run) for run in runs])
            for name, value in (facts or {}).items():
                self._db.execute(
                    "INSERT INTO fact VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value ="
                    " excluded.value",
                    (name, json.dumps(value)),
                )
            for name, kept in (tasks or {}).items():
                self._db.execute("DELETE FROM task WHERE name = ?", (name,))
                if kept is not None:
                    self._db.execute(
                        "INSERT INTO task VALUES (?, ?, ?, ?)",
                        (name, json.dumps(dict(kept.body)), kept.by, kept.at),
                    )

    def forget(self, before_ms: int, most: int) -> None:
        """Forget runs that ended earlier, and all but the newest ``most``."""
        with self._lock, self._explained():
            last = self._db.execute(
                "SELECT end_ms FROM run ORDER BY end_ms DESC LIMIT 1 OFFSET ?", (most,)
            ).fetchone()
            end = max(before_ms, last[0] if last else before_ms)
            self._db.execute(
                "DELETE FROM run WHERE end_ms < ? AND state != ?", (end, str(RunState.PLANNED))
            )

    # -- reading -----------------------------------------------------------------------------

    def tasks(self) -> dict[str, KeptTask]:
        """All that were added, in the order of their names."""
        rows = self._rows("SELECT name, body, by, at FROM task ORDER BY name")
        return dict(self._whole(rows, lambda row: (row[0], KeptTask(_object(row[1]), *row[2:]))))

    def fact(self, name: str) -> Any:
        """The value written under a name, or None."""
        rows = self._rows("SELECT name, value FROM fact WHERE name = ?", name)
        return next(self._whole(rows, lambda row: json.loads(row[1])), None)

    def run(self, run_id: str) -> Run | None:
        """One run."""
        return next(iter(self._runs("WHERE id = ?", run_id)), None)

    def open_runs(self, since_ms: int) -> list[Run]:
        """Those that are not over, and those that were not before ``since_ms``, by start."""
        return self._runs(
            "WHERE end_ms >= ? OR state = ? ORDER BY at_ms, id", since_ms, str(RunState.PLANNED)
        )

    def released(self, since_ms: int, anew: int) -> dict[tuple[str, int], str]:
        """The run of each task and release from ``since_ms`` on, but for those that were taken
        back or asked for, and the first ``anew`` of all."""
        rows = self._rows(
            "SELECT task, release_ms, id FROM run WHERE release_ms >= ? AND state != ? AND"
            " demanded = '' AND rowid > ?",
            since_ms, str(RunState.DROPPED), anew,
        )  # fmt: skip
        return {(task, release): key for task, release, key in rows}

    def newest(self) -> int:
        """The number of the newest run; numbers grow."""
        return int(self._rows("SELECT coalesce(max(rowid), 0) FROM run")[0][0])

    def runs(self, since_ms: int, until_ms: int, task: str | None, limit: int) -> list[Run]:
        """The newest ``limit`` runs that begin in between, oldest first; of a task, or of all."""
        where = "WHERE at_ms >= ? AND at_ms < ? AND (? IS NULL OR task = ?)"
        stored = self._runs(
            f"{where} ORDER BY at_ms DESC, id DESC LIMIT ?", since_ms, until_ms, task, task, limit
        )
        return stored[::-1]

    def counts(self, task: str | None = None) -> dict[str, dict[str, int]]:
        """How many runs that are kept are in each state, by task; of one alone where it is
        named."""
        sql = "SELECT task, state, count(*) FROM run WHERE ? IS NULL OR task = ? GROUP BY 1, 2"
        by_task: dict[str, dict[str, int]] = {}
        for name, state, count in self._rows(sql, task, task):
            by_task.setdefault(name, {})[state] = count
        return by_task

    def close(self) -> None:
        """Close the file. Harmless if done twice."""
        with self._lock:
            self._db.close()
            if self._held is not None:
                self._held.close()

    # -- within ------------------------------------------------------------------------------

    def _runs(self, where: str, *values: object) -> list[Run]:
        rows = self._rows(f"SELECT {_COLUMNS} FROM run {where}", *values)
        return list(self._whole(rows, _run))

    def _whole(self, rows: list[tuple[Any, ...]], read: Callable[[Any], T]) -> Iterator[T]:
        """What ``read`` makes of rows that begin with a name; damaged ones are left out."""
        for row in rows:
            try:
                yield read(row)
            except (ValueError, TypeError, KeyError) as error:
                _log.error("measuring file %s: %s is damaged: %s", self.path, row[0], error)

    def _rows(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        with self._lock, self._explained():
            return self._db.execute(sql, values).fetchall()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise MeasuringStoreError(f"measuring file {self.path}: {error}") from error


def _object(text: str) -> dict[str, Any]:
    value = json.loads(text)
    if not isinstance(value, dict):
        raise ValueError(f"found {text[:40]!r}, expected an object")
    return value


def _row(run: Run) -> tuple[object, ...]:
    parts = json.dumps([asdict(part) for part in run.parts])
    uses = {
        "hosts": sorted(run.hosts),
        "links": sorted(map(list, run.links)),
        "load_bps": run.load_bps,
    }
    return (
        run.id, run.task, run.tool, run.subject, run.at_ms, run.end_ms, run.release_ms,
        run.demanded, str(run.state), run.error, parts, json.dumps(uses),
        json.dumps(run.measured),
    )  # fmt: skip


def _run(row: tuple[Any, ...]) -> Run:
    key, task, tool, subject, at, end, release, demanded, state, error, parts, uses, measured = row
    needs = json.loads(uses)
    return Run(
        key, task, tool, subject, at, end, release,
        tuple(part_from_dict(part) for part in json.loads(parts)),
        frozenset(needs["hosts"]), frozenset((a, b) for a, b in needs["links"]),
        float(needs["load_bps"]), demanded, RunState(state), error, tuple(json.loads(measured)),
    )  # fmt: skip


class SharedTasks:
    """Tasks that were added, in the brokers' store. Every method may raise StoreError."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def write(self, name: str, kept: KeptTask | None) -> None:
        """Keep a task under its name; None takes it away."""
        if kept is None:
            self._store.delete_document(_KIND, name)
        else:
            self._store.put_document(_KIND, name, asdict(kept), keep=1)

    def read(self) -> dict[str, KeptTask] | None:
        """All by name; None where no broker has ever written one."""
        if not self._store.documents_stamp(_KIND):
            return None
        return {d.name: KeptTask(**d.body) for d in self._store.documents(_KIND) if d.body}
