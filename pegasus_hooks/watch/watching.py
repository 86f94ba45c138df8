"""The loop over all registered workflows."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from monitors.logs.watch import Watch, open_watch
from monitors.planned import submitdir
from network_provisioner.base import hookconfig
from network_provisioner.base.hookconfig import HookConfig
from network_provisioner.errors import InputError
from pegasus_hooks import registry
from pegasus_hooks.registry import Entry
from pegasus_hooks.watch import jobfiles
from pegasus_hooks.watch.duties import Duties, Line
from pegasus_hooks.watch.events import ListenerOf, Watched
from pegasus_hooks.watch.following import Following
from pegasus_hooks.watch.source import Files, elsewhere, process_alive
from pegasus_hooks.watch.world import Broker, Brokers

log = logging.getLogger(__name__)

LOOK_S = 1.0
_SETTLE_S = 0.2  # DAGMan writes many lines at a time


def no_listener(_watched: Watched) -> None:
    """Nobody listens."""


@dataclass(slots=True)
class Watching:
    """All that is registered in ``folder``. ``config`` serves workflows whose own configuration
    cannot be read."""

    folder: Path
    config: HookConfig
    listener_of: ListenerOf = no_listener
    broker_of: Callable[[HookConfig], Broker] = field(default_factory=Brokers)
    clock: Callable[[], float] = time.monotonic
    now: Callable[[], float] = time.time
    watch: Callable[[Mapping[Path, Iterable[str]]], Watch] = open_watch
    _followed: dict[Path, Following] = field(default_factory=dict)
    _logs: dict[Path, list[Path]] = field(default_factory=dict)
    _complaints: dict[Path, str] = field(default_factory=dict)
    _duties: Duties = field(init=False)

    def __post_init__(self) -> None:
        self._duties = Duties(self.broker_of, _journal, self.clock)

    def step(self) -> bool:
        """Look at everything once and do what is due; whether anything is left to watch."""
        entries = list(registry.entries(self.folder))
        for entry in entries:
            self._look(entry)
        self._duties.work()
        for entry in entries:
            following = self._followed.get(entry.file)
            if following is None:
                continue
            following.tick(self.now())
            owed = self._duties.owed_to(following.watched.workflow)
            if not owed and following.finished():
                self._forget(entry, "has ended")
        return bool(self._followed) or len(self._duties) > 0

    def run(self, stop: threading.Event, idle_s: float | None = None) -> None:
        """Until ``stop`` is set, or nothing was left to watch for ``idle_s`` seconds."""
        busy = self.clock()
        watch: Watch | None = None
        watched: set[Path] = set()
        try:
            while not stop.is_set():
                now = self.clock()
                if self.step():
                    busy = now
                elif idle_s is not None and now - busy >= idle_s:
                    return
                logs = {path for paths in self._logs.values() for path in paths}
                if watch is None or logs != watched:
                    if watch is not None:
                        watch.close()
                    watch, watched = self.watch(_by_folder(logs)), logs
                if watch.wait(LOOK_S):
                    stop.wait(_SETTLE_S)
        finally:
            if watch is not None:
                watch.close()

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

    def _follow(self, entry: Entry) -> Following:
        try:
            config = hookconfig.load(entry.config)
        except InputError as error:
            log.warning("%s: %s", entry.workflow, error)
            config = self.config
        here = entry.host in ("", registry.this_host())
        files = Files(entry.submit_dir, process_alive if here else elsewhere)
        watched = Watched(entry.workflow, entry.submit_dir, files.dag, config)
        following = Following(
            watched=watched,
            source=files,
            owe=self._duties.owe,
            measure=lambda papers, pair: jobfiles.measure(watched, papers, pair),
            requests_of=lambda papers: jobfiles.requests_of(watched, papers),
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


def _journal(watched: Watched, lines: list[Line]) -> None:
    with suppress(OSError):  # the disk is full or the directory gone: the watcher's log has it
        submitdir.append_lines(watched.submit_dir / submitdir.HOOK_JOURNAL, lines)


def _by_folder(paths: Iterable[Path]) -> dict[Path, set[str]]:
    folders: dict[Path, set[str]] = {}
    for path in paths:
        if os.path.isdir(path.parent):  # noqa: PTH112
            folders.setdefault(path.parent, set()).add(path.name)
    return folders
