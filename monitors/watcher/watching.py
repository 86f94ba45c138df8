"""The loop over all registered workflows."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from monitors.watcher import loop, registry
from monitors.watcher.actions import JobFiles
from monitors.watcher.events import ListenerOf, Watched
from monitors.watcher.followed import FollowedWorkflow
from monitors.watcher.loop import OpenWatch
from monitors.watcher.pending import Broker, Clients, PendingActions
from monitors.watcher.registry import Entry
from monitors.watcher.workflow_files import Files, elsewhere, process_alive
from monitors.workflows.logs.watch import open_watch
from monitors.workflows.planned import job_files
from network_provisioner.base.errors import InputError
from network_provisioner.client import hookconfig
from network_provisioner.client.hookconfig import HookConfig

log = logging.getLogger(__name__)


def no_listener(_watched: Watched) -> None:
    """Nobody listens."""


@dataclass(slots=True)
class Watching:
    """All that is registered in ``folder``. ``config`` serves workflows whose own configuration
    cannot be read."""

    folder: Path
    config: HookConfig
    files: JobFiles
    listener_of: ListenerOf = no_listener
    client_of: Callable[[HookConfig], Broker] = field(default_factory=Clients)
    clock: Callable[[], float] = time.monotonic
    now: Callable[[], float] = time.time
    watch: OpenWatch = open_watch
    _followed: dict[Path, FollowedWorkflow] = field(default_factory=dict)
    _logs: dict[Path, list[Path]] = field(default_factory=dict)
    _complaints: dict[Path, str] = field(default_factory=dict)
    _pending: PendingActions = field(init=False)

    def __post_init__(self) -> None:
        self._pending = PendingActions(self.client_of, self.clock)

    def step(self) -> bool:
        """Look at everything once and do what is due; whether anything is left to watch."""
        entries = list(registry.entries(self.folder))
        for entry in entries:
            self._look(entry)
        self._pending.work()
        for entry in entries:
            following = self._followed.get(entry.file)
            if following is None:
                continue
            following.tick(self.now())
            pending = self._pending.of(following.watched.workflow)
            if not pending and following.finished():
                self._forget(entry, "has ended")
        return bool(self._followed) or len(self._pending) > 0

    def run(self, stop: threading.Event, idle_s: float | None = None) -> None:
        """Until ``stop`` is set, or nothing was left to watch for ``idle_s`` seconds."""
        loop.run(self.step, self.logs, stop, idle_s, self.clock, self.watch)

    def logs(self) -> set[Path]:
        """The files that tell when something happened."""
        return {path for paths in self._logs.values() for path in paths}

    def _look(self, entry: Entry) -> None:
        try:
            following = self._followed.get(entry.file) or self._follow(entry)
            following.look()
        except (InputError, OSError) as error:
            if not entry.submit_dir.is_dir():
                self._forget(entry, "has no submit directory any more")
            elif self._complaints.get(entry.file) != str(error):
                self._complaints[entry.file] = str(error)
                log.warning("%s: %s", entry.workflow, error)
        else:
            if not entry.submit_dir.is_dir():
                self._forget(entry, "has no submit directory any more")

    def _follow(self, entry: Entry) -> FollowedWorkflow:
        try:
            config = hookconfig.load(entry.config)
        except InputError as error:
            log.warning("%s: %s", entry.workflow, error)
            config = self.config
        here = entry.host in ("", registry.this_host())
        files = Files(entry.submit_dir, process_alive if here else elsewhere)
        watched = Watched(entry.workflow, entry.submit_dir, files.dag, config)
        following = FollowedWorkflow(
            watched=watched,
            source=files,
            files=self.files,
            add=self._pending.add,
            journal=_journal,
            clock=self.clock,
            now=self.now,
            listener=self.listener_of(watched),
        )
        self._followed[entry.file] = following
        self._logs[entry.file] = files.logs
        log.info("%s: watched in %s", entry.workflow, entry.submit_dir)
        return following

    def _forget(self, entry: Entry, why: str) -> None:
        if registry.drop(entry):
            self._followed.pop(entry.file, None)
            self._logs.pop(entry.file, None)
            self._complaints.pop(entry.file, None)
            log.info("%s: %s", entry.workflow, why)


def _journal(watched: Watched, lines: list[Mapping[str, Any]]) -> None:
    with suppress(OSError):  # the disk is full or the directory gone: the watcher's log has it
        job_files.append_lines(watched.submit_dir / job_files.HOOK_JOURNAL, lines)
