"""All registered workflows as the watcher sees them: logs as events, decision files
(``<dir>/<job>.adon.json``: what PRE asked for and got) as decisions.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from monitors.jobs.jobs import AnyEvent, DagEvent, DagmanState
from monitors.jobs.logs import WorkflowLogs
from monitors.watcher import registry
from monitors.watcher.actions import ConnectionsOf, JobFiles, Watched
from monitors.watcher.connections import JobConnections
from monitors.watcher.decision_file import DecisionFile
from monitors.watcher.held_paths import HeldPaths, ListenerOf
from monitors.watcher.pending import PendingActions
from monitors.watcher.registry import Registration
from monitors.workflows.planned import job_files
from monitors.workflows.planned.job_files import DECISION_ENDING
from monitors.workflows.planned.submit_dir import SubmitDir
from network_provisioner.base.errors import InputError
from network_provisioner.client import hookconfig
from network_provisioner.client.hookconfig import HookConfig

log = logging.getLogger(__name__)

Alive = Callable[[int], bool | None]
"""Whether a DAGMan runs, by its process on the machine where the workflow was registered; None
where nobody can tell from here."""


def no_listener(_watched: Watched) -> None:
    """Nobody listens."""


@dataclass(slots=True)
class RegisteredWorkflows:
    """A :class:`~monitors.watcher.watcher.PathSource`: all that is registered in ``folder``.
    ``config`` serves workflows whose own configuration cannot be read."""

    folder: Path
    config: HookConfig
    files: JobFiles
    listener_of: ListenerOf = no_listener
    clock: Callable[[], float] = time.monotonic
    now: Callable[[], float] = time.time
    open_now: ConnectionsOf = field(default_factory=JobConnections)
    _followed: dict[Path, HeldPaths] = field(default_factory=dict)
    _logs: dict[Path, Sequence[Path]] = field(default_factory=dict)
    _complaints: dict[Path, str] = field(default_factory=dict)
    _entries: list[Registration] = field(default_factory=list)

    def observe(self, pending: PendingActions, /) -> None:
        """See PathSource."""
        self._entries = list(registry.entries(self.folder))
        for entry in self._entries:
            self._look(entry, pending)

    def settle(self, pending: PendingActions, /) -> bool:
        """See PathSource."""
        for entry in self._entries:
            held = self._followed.get(entry.file)
            if held is None:
                continue
            held.tick(self.now())
            if not pending.of(held.watched.workflow) and held.finished():
                self._forget(entry)
        return bool(self._followed)

    def logs(self) -> set[Path]:
        """See PathSource."""
        return {path for paths in self._logs.values() for path in paths}

    def _look(self, entry: Registration, pending: PendingActions) -> None:
        try:
            following = self._followed.get(entry.file) or self._follow(entry, pending)
            following.observe()
        except Exception as error:  # whatever it is, the others go on being watched
            if self._complaints.get(entry.file) != str(error):
                self._complaints[entry.file] = str(error)
                known = isinstance(error, InputError | OSError)
                log.warning("%s: %s", entry.workflow, error, exc_info=not known)

    def _follow(self, entry: Registration, pending: PendingActions) -> HeldPaths:
        try:
            config = hookconfig.load(entry.config)
        except InputError as error:
            log.warning("%s: %s", entry.workflow, error)
            config = self.config
        here = entry.host in ("", registry.this_host())
        files: Files | DeletedFiles
        if is_deleted(entry.submit_dir):
            files = DeletedFiles()
        else:
            files = Files(entry.submit_dir, process_alive if here else remote_dagman)
        watched = Watched(entry.workflow, entry.submit_dir, config)
        following = HeldPaths(
            watched=watched,
            source=files,
            files=self.files,
            open_now=self.open_now,
            add=pending.add,
            journal=_journal,
            clock=self.clock,
            now=self.now,
            listener=self.listener_of(watched) if files.logs else None,
        )
        self._followed[entry.file] = following
        self._logs[entry.file] = files.logs
        log.info("%s: watched in %s", entry.workflow, entry.submit_dir)
        return following

    def _forget(self, entry: Registration) -> None:
        if registry.drop(entry):
            self._followed.pop(entry.file, None)
            self._logs.pop(entry.file, None)
            self._complaints.pop(entry.file, None)
            log.info("%s: has ended", entry.workflow)


def _journal(watched: Watched, lines: list[Mapping[str, Any]]) -> None:
    with suppress(OSError):  # the disk is full or the directory gone: the watcher's log has it
        job_files.append_lines(watched.submit_dir / job_files.HOOK_JOURNAL, lines)


def process_alive(pid: int) -> bool | None:
    """Whether process ``pid`` is a DAGMan: its number may have gone to another one since."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except FileNotFoundError:
        return False if Path("/proc/self/cmdline").exists() else None
    except OSError:
        return None
    # A process that is just being started, or has just ended, has no arguments.
    return not command or b"-dag" in command.lower()


def remote_dagman(_pid: int) -> bool | None:
    """For a DAGMan on another machine."""
    return None


def is_deleted(submit_dir: Path) -> bool:
    """Whether nothing is left of a submit directory. Raises OSError where nobody can tell."""
    return not (submit_dir / "braindump.yml").exists()


class DeletedFiles:
    """A JobSource: what its user deleted does not run any more."""

    logs: Sequence[Path] = ()

    def events(self) -> list[AnyEvent]:
        """See JobSource."""
        return []

    def gone(self, now: float) -> list[DagEvent]:
        """See JobSource."""
        return [DagEvent(DagmanState.ENDED, now)]

    def decision_files(self) -> list[DecisionFile]:
        """See JobSource."""
        return []


class Files:
    """The files of one submit directory. Raises InputError where it is none."""

    def __init__(self, submit_dir: Path, alive: Alive = process_alive) -> None:
        plan = SubmitDir(submit_dir)
        self._logs = WorkflowLogs(plan)
        self._alive = alive
        self._place = submit_dir
        self._folders = _Folders(plan)
        plan.forget()  # a DAG may have 100,000 jobs, of which nothing else is asked

    @property
    def logs(self) -> list[Path]:
        """The files that tell when something happened."""
        return self._logs.paths

    def events(self) -> Iterator[AnyEvent]:
        """See JobSource."""
        return self._logs.events()

    def decision_files(self) -> list[DecisionFile]:
        """See JobSource."""
        return self._folders.read()

    def gone(self, now: float) -> list[DagEvent]:
        """See JobSource."""
        pid = self._logs.pid
        alive = self._alive(pid) if pid else False
        if not alive and is_deleted(self._place):  # after pegasus-remove: no log tells more
            return [DagEvent(DagmanState.ENDED, now)]
        if pid and alive is False:
            self._logs.pid = 0
            return [DagEvent(DagmanState.GONE, now)]
        return []


class _Folders:
    """The decision files in all folders that the DAG names, read again where they changed."""

    # How many more looks a folder gets after one that found it changed: the times of files are
    # coarse, and what comes right after a look may not change them.
    _MORE = 3

    def __init__(self, plan: SubmitDir) -> None:
        folders = {node.file.parent for node in plan.nodes.values() if not node.is_subdag}
        self._times = dict.fromkeys(sorted(folders), (0, 0))
        self._files: dict[Path, tuple[tuple[int, int], DecisionFile]] = {}

    def read(self) -> list[DecisionFile]:
        changed = False
        for folder, (known, more) in self._times.items():
            try:
                time = folder.stat().st_mtime_ns
            except OSError:
                continue
            more_now = self._MORE if time != known else more
            if more_now:
                self._times[folder] = (time, more_now - 1)
                changed |= self._scan(folder)
        return [file for _, file in self._files.values()] if changed else []

    def _scan(self, folder: Path) -> bool:
        changed = False
        with suppress(FileNotFoundError), os.scandir(folder) as entries:
            for entry in entries:
                if not entry.name.endswith(DECISION_ENDING):
                    continue
                with suppress(FileNotFoundError):
                    status = entry.stat()
                    path, mark = Path(entry.path), (status.st_ino, status.st_mtime_ns)
                    if path in self._files and self._files[path][0] == mark:
                        continue
                    self._files[path] = (mark, DecisionFile.read(path))
                    changed = True
        return changed
