"""The watcher: it looks whenever a log grows, gives back what is over, and does at brokers what is
due, as often as it takes, until it is told to end.

Whose paths it watches is a :class:`PathSource`: all registered workflows of the hooks, or the jobs
of one access point whose files HTCondor moves itself.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Protocol

from monitors.watcher.pending import PendingActions
from monitors.workflows.logs.watch import FileWatch, open_watch
from network_provisioner.client import hookclient
from network_provisioner.client.broker import BrokerClient
from network_provisioner.client.hookconfig import HookConfig

log = logging.getLogger(__name__)

LOOK_S = 1.0
_SETTLE_S = 0.2  # DAGMan writes many lines at a time

OpenWatch = Callable[[Mapping[Path, Iterable[str]]], FileWatch]


class PathSource(Protocol):
    """Whose paths are watched: what they hold, and what happens to them."""

    def logs(self) -> Collection[Path]:
        """The files that tell when something happened."""
        ...

    def observe(self, pending: PendingActions, /) -> None:
        """Read what is new, and add what is due."""
        ...

    def settle(self, pending: PendingActions, /) -> bool:
        """What could be done is done: let go of what is over. Whether anything is left to watch."""
        ...


class Watcher:
    """``client_of`` makes a client of a broker; ``clock`` is one that no one sets, in seconds."""

    def __init__(
        self,
        source: PathSource,
        client_of: Callable[[HookConfig], BrokerClient] | None = None,
        clock: Callable[[], float] = time.monotonic,
        watch: OpenWatch = open_watch,
    ) -> None:
        self.source, self._clock, self._watch = source, clock, watch
        self._pending = PendingActions(client_of or cache(hookclient.client_of), clock)

    def step(self) -> bool:
        """Look at everything once and do what is due; whether anything is left to watch."""
        self.source.observe(self._pending)
        self._pending.work()
        return self.source.settle(self._pending) or len(self._pending) > 0

    def _try(self) -> bool:
        try:
            return self.step()
        except Exception:  # whatever it stumbled over, everybody else's paths go on being watched
            log.exception("a look failed")
            return True

    def run(self, stop: threading.Event, idle_s: float | None = None) -> None:
        """Look whenever a log grows, and every second, until ``stop`` is set or nothing was left to
        watch for ``idle_s`` seconds."""
        busy = self._clock()
        opened: FileWatch | None = None
        watched: set[Path] = set()
        try:
            while not stop.is_set():
                now = self._clock()
                if self._try():
                    busy = now
                elif idle_s is not None and now - busy >= idle_s:
                    return
                paths = set(self.source.logs())
                if opened is None or paths != watched:
                    if opened is not None:
                        opened.close()
                    opened, watched = self._watch(_by_folder(paths)), paths
                if opened.wait(LOOK_S):
                    stop.wait(_SETTLE_S)
        finally:
            if opened is not None:
                opened.close()


def stop_event(stop: threading.Event | None = None) -> threading.Event:
    """An event that SIGTERM, SIGINT and SIGQUIT set."""
    stop = stop or threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, lambda *_: stop.set())
    return stop


def _by_folder(paths: Iterable[Path]) -> dict[Path, set[str]]:
    folders: dict[Path, set[str]] = {}
    for path in paths:
        if os.path.isdir(path.parent):  # noqa: PTH112
            folders.setdefault(path.parent, set()).add(path.name)
    return folders
