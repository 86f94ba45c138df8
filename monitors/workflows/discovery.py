"""Finds the workflows of a user, or of all users of a machine, while they come and go.

    the hooks' registry      ~/.local/state/adon/watch/<uuid>.json      workflows that run
    Pegasus's own database   ~/.pegasus/workflow.db, master_workflow    all that pegasus-run started
    the schedd's queue       condor_q, DAGMan's jobs                    all that run

Registry and database are read when they have changed, the queue is asked now and then. Whatever is
not there, or may not be read, finds nothing: the others do.
"""

from __future__ import annotations

import json
import logging
import os
import pwd
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

from monitors.jobs.condor import PATIENCE_S, Run, ads, command_output
from monitors.workflows.logs.tail import state_of
from monitors.workflows.logs.watch import ANY, FileWatch, open_watch
from monitors.workflows.planned.foreign_files import as_owner, is_file, read_bytes, read_text
from monitors.workflows.planned.sub_workflows import root_of
from monitors.workflows.planned.submit_dir import dag_of
from network_provisioner.base import account

_log = logging.getLogger(__name__)

REGISTRY = ".local/state/adon/watch"
DATABASE = ".pegasus/workflow.db"
LOOK_EVERY_S = 10.0
SINCE_S = 30 * 86400.0  # workflows that ended before are history

_WAIT_S = 0.25
_ENDINGS = ("", "-journal", "-wal")
_MOST_ENTRY = 1 << 20  # bytes, of a row as well
_MOST_COPIED = 1 << 26
_SETTLED_S = 3.0  # the times of files are coarse
_MOST_STEPS = 1 << 28  # of SQLite's: seconds
_MOST_LISTED = 10_000
_MOST_SHOWN = 10  # homes
_NO_SHELLS = ("/nologin", "/false", "/sync", "/shutdown", "/halt")
_LISTED = f"""
    SELECT w.submit_dir,
        CASE s.state WHEN 'WORKFLOW_TERMINATED' THEN CAST(s.timestamp AS REAL) END
    FROM master_workflow w LEFT JOIN master_workflowstate s ON s.wf_id = w.wf_id AND s.timestamp =
        (SELECT max(timestamp) FROM master_workflowstate WHERE wf_id = w.wf_id)
    WHERE typeof(w.submit_dir) = 'text' AND length(w.submit_dir) < 4096
    ORDER BY w.wf_id DESC LIMIT {_MOST_LISTED}
"""


@dataclass(frozen=True, slots=True)
class FoundWorkflow:
    """Where a workflow's DAGMan runs, and which DAG it runs there where that is known."""

    folder: Path
    dag: str = ""


class WorkflowSource(Protocol):
    """One place that knows of workflows."""

    def files(self) -> Mapping[Path, Iterable[str]]:
        """Which files of which folders change when there may be something new."""

    def observe(self) -> list[FoundWorkflow]:
        """All workflows that it knows now. Raises nothing."""


class Registry:
    """The hooks' folder: one file for each workflow that runs, whole or a part of another; all of
    them of user id ``owner``, by default this process's own."""

    def __init__(self, folder: Path, owner: int | None = None) -> None:
        self._folder, self._owner = folder, os.geteuid() if owner is None else owner
        self._known: dict[str, tuple[int, FoundWorkflow | None]] = {}

    def files(self) -> Mapping[Path, Iterable[str]]:
        """See :class:`WorkflowSource`."""
        return {self._folder: [ANY]}

    def observe(self) -> list[FoundWorkflow]:
        """See :class:`WorkflowSource`."""
        known: dict[str, tuple[int, FoundWorkflow | None]] = {}
        try:
            with os.scandir(self._folder) as entries, as_owner(self._owner):
                for entry in islice(entries, _MOST_LISTED):
                    if entry.name.endswith(".json") and not entry.name.startswith("."):
                        at = entry.stat().st_mtime_ns
                        before = self._known.get(entry.name)
                        same = before is not None and before[0] == at
                        known[entry.name] = before if before and same else (at, _entry(entry.path))
        except OSError:
            pass
        self._known = known
        return [workflow for _, workflow in known.values() if workflow is not None]


def _entry(path: str) -> FoundWorkflow | None:
    try:
        data = json.loads(read_text(Path(path), most=_MOST_ENTRY))
        return FoundWorkflow(root_of(Path(data["submit_dir"])))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


class PegasusDatabase:
    """Pegasus's list of all workflows of a user, written by pegasus-monitord.

    Those that ended before ``since`` (Unix seconds) are left out. What is not of user id ``owner``
    is not read, and what is not this process's own is copied first: SQLite opens what it finds.
    """

    def __init__(self, path: Path, since: Callable[[], float], owner: int | None = None) -> None:
        self._path, self._since = path, since
        self._owner = os.geteuid() if owner is None else owner
        self._seen: object = None
        self._rows: list[tuple[Any, ...]] = []

    def files(self) -> Mapping[Path, Iterable[str]]:
        """See :class:`WorkflowSource`."""
        names = [self._path.name + ending for ending in _ENDINGS]
        return {self._path.parent: names}

    def observe(self) -> list[FoundWorkflow]:
        """See :class:`WorkflowSource`."""
        if not is_file(self._path):
            return []
        try:
            if self._owner == os.geteuid():
                self._rows = _listed(f"{self._path.absolute().as_uri()}?mode=ro")
            else:
                self._copy()
        except (sqlite3.Error, OSError) as error:
            _log.info("%s: cannot be read just now: %s", self._path, error)
            return []
        return [
            FoundWorkflow(Path(folder))
            for folder, ended in reversed(self._rows)
            if ended is None or ended >= self._since()
        ]

    def _copy(self) -> None:
        seen = [state_of(self._path.with_name(self._path.name + ending)) for ending in _ENDINGS]
        if seen == self._seen:
            return
        settled = time.time() - self._path.stat().st_mtime > _SETTLED_S
        with tempfile.TemporaryDirectory(prefix="adon-") as folder, as_owner(self._owner):
            copy = Path(folder) / self._path.name
            # Not the journal: SQLite deletes the file that one names as its super-journal.
            for ending in ("", "-wal"):
                with suppress(FileNotFoundError):
                    data = read_bytes(self._path.with_name(self._path.name + ending), _MOST_COPIED)
                    copy.with_name(copy.name + ending).write_bytes(data)
            self._rows = _listed(f"{copy.as_uri()}?mode=rw")
        self._seen = seen if settled else None


def _listed(place: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(place, uri=True, timeout=1.0)) as database:
        # What looks like a table may be a view, with anything in it.
        database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MOST_ENTRY)
        database.set_progress_handler(lambda: 1, _MOST_STEPS)
        database.execute("PRAGMA trusted_schema = OFF")
        return database.execute(_LISTED).fetchall()


class CondorQueue:
    """DAGMan's jobs in the schedd's queue, of one user or (``user`` "") of all.

    ``ask`` runs a command and gives what it prints, None where it could not.
    """

    def __init__(self, user: str, ask: Run = command_output) -> None:
        self._user, self._ask = user, ask

    def files(self) -> Mapping[Path, Iterable[str]]:
        """See :class:`WorkflowSource`."""
        return {}

    def observe(self) -> list[FoundWorkflow]:
        """See :class:`WorkflowSource`."""
        constraint = (
            'JobUniverse == 7 && DAGManJobId is undefined && regexp("-dag ", Arguments, "i")'
        )
        if self._user:
            constraint += f' && Owner == "{self._user}"'
        answer = self._ask(
            ["condor_q", "-allusers", "-constraint", constraint,
             "-json", "-attributes", "Iwd,Arguments"]
        )  # fmt: skip
        workflows = [_of_job(job) for job in ads(answer) or ()]
        return [workflow for workflow in workflows if workflow is not None]


def _of_job(job: Mapping[str, Any]) -> FoundWorkflow | None:
    if not isinstance(job.get("Iwd"), str):
        return None
    dag = dag_of(str(job.get("Arguments", "")))
    return FoundWorkflow(Path(job["Iwd"]), dag) if dag else None


def of_user(since: Callable[[], float]) -> list[WorkflowSource]:
    """Where the workflows of whoever this process runs as are known."""
    name = account.user_name(os.getuid())
    return [*_of_home(account.home(), os.geteuid(), since), CondorQueue(name)]


def of_all(since: Callable[[], float]) -> list[WorkflowSource]:
    """Where the workflows of all users of this machine are known, as far as they may be read. The
    log says whose may not."""
    homes = {Path(user.pw_dir) for user in pwd.getpwall()} | {account.home()}
    sources: list[WorkflowSource] = [CondorQueue("")]
    for home in sorted(homes):
        if home != Path("/") and os.access(home, os.X_OK) and home.is_dir():
            sources += _of_home(home, home.stat().st_uid, since)
    if closed := unread_homes():
        _log.warning("workflows of all users: %s", cannot_read(closed))
    return sources


def unread_homes() -> dict[str, Path]:
    """By the name of each user that can log in, what this process may not read of the places where
    that user's workflows are known."""
    homes = {}
    for user in pwd.getpwall():
        home = Path(user.pw_dir)
        if home == Path("/") or user.pw_shell.endswith(_NO_SHELLS):
            continue
        closed = (_closed(home, home / known) for known in (REGISTRY, DATABASE))
        if (path := next((folder for folder in closed if folder is not None), None)) is not None:
            homes[user.pw_name] = path
    return homes


def cannot_read(homes: Mapping[str, Path]) -> str:
    """In words, of :func:`unread_homes`."""
    shown = [f"{path} of {user}" for user, path in sorted(homes.items())[:_MOST_SHOWN]]
    more = f" and {len(homes) - _MOST_SHOWN} more" if len(homes) > _MOST_SHOWN else ""
    return f"cannot read {', '.join(shown)}{more}; only what HTCondor's queue shows is found there"


def _closed(home: Path, path: Path) -> Path | None:
    """The first on the way from ``home`` to ``path`` that is there and may not be looked into."""
    between = [folder for folder in reversed(path.parents) if folder.is_relative_to(home)]
    for folder in (*between, path):
        if not os.access(folder, os.F_OK, effective_ids=True):
            return None
        mode = os.R_OK if folder == path else os.X_OK
        if not os.access(folder, mode, effective_ids=True):
            return folder
    return None


def _of_home(home: Path, owner: int, since: Callable[[], float]) -> list[WorkflowSource]:
    return [Registry(home / REGISTRY, owner), PegasusDatabase(home / DATABASE, since, owner)]


class Discovery:
    """Looks into all sources in a thread of its own, so that a slow one keeps nobody waiting."""

    def __init__(
        self,
        sources: Sequence[WorkflowSource],
        every_s: float = LOOK_EVERY_S,
        watch: Callable[[Mapping[Path, Iterable[str]]], FileWatch] = open_watch,
    ) -> None:
        self._sources, self._every_s, self._open_watch = sources, every_s, watch
        self._found: set[FoundWorkflow] = set()
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Look once, and then whenever there may be something new, until :meth:`close`."""
        self._stop.clear()
        self._thread = threading.Thread(target=self._run, name="discovery", daemon=True)
        watch = self._open_watch(self._files())  # before the first look, so that none is missed
        self._look(self._sources)
        self._watch = watch
        self._thread.start()

    def take(self) -> set[FoundWorkflow]:
        """What was found since the last time; may name again what it named before."""
        with self._lock:
            taken, self._found = self._found, set()
        return taken

    def close(self) -> None:
        """Look no longer."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=PATIENCE_S + 5.0)

    def _files(self) -> dict[Path, list[str]]:
        files: dict[Path, list[str]] = {}
        for source in self._sources:
            for folder, names in source.files().items():
                files.setdefault(folder, []).extend(names)
        return files

    def _look(self, sources: Iterable[WorkflowSource]) -> None:
        for source in sources:
            try:
                workflows = source.observe()
            except Exception:  # a fault of ours must not end it for good
                _log.exception("workflows are not found")
                continue
            with self._lock:
                self._found |= set(workflows)

    def _run(self) -> None:
        looked = time.monotonic()
        try:
            while not self._stop.is_set():
                changed = self._watch.wait(_WAIT_S)
                if time.monotonic() - looked >= self._every_s:
                    looked = time.monotonic()
                    self._look(self._sources)
                elif changed:
                    self._look(s for s in self._sources if changed & set(s.files()))
        finally:
            self._watch.close()
