"""All registered workflows, as the watcher sees them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from monitors.watcher import registry
from monitors.watcher.actions import ConnectionsOf, JobFiles
from monitors.watcher.connections import JobConnections
from monitors.watcher.events import ListenerOf, Watched
from monitors.watcher.held_paths import HeldPaths
from monitors.watcher.pending import PendingActions
from monitors.watcher.registry import Registration
from monitors.watcher.workflow_files import (
    DeletedFiles,
    Files,
    is_deleted,
    process_alive,
    remote_dagman,
)
from monitors.workflows.planned import job_files
from network_provisioner.base.errors import InputError
from network_provisioner.client import hookconfig
from network_provisioner.client.hookconfig import HookConfig

log = logging.getLogger(__name__)


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
    _logs: dict[Path, list[Path]] = field(default_factory=dict)
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
            files = DeletedFiles(entry.submit_dir)
        else:
            files = Files(entry.submit_dir, process_alive if here else remote_dagman)
        watched = Watched(entry.workflow, entry.submit_dir, files.dag, config)
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
