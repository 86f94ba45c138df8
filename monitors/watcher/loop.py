"""What every watcher is as a program: it looks whenever a log grows, until it is told to end."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from logging.handlers import RotatingFileHandler
from pathlib import Path

from monitors.workflows.logs.watch import Watch, open_watch

LOOK_S = 1.0
_SETTLE_S = 0.2  # DAGMan writes many lines at a time
_LOG_BYTES = 1 << 20
_FORMAT = "%(asctime)s [%(process)d] %(levelname)s %(message)s"

OpenWatch = Callable[[Mapping[Path, Iterable[str]]], Watch]


def run(
    step: Callable[[], bool],
    logs: Callable[[], Collection[Path]],
    stop: threading.Event,
    idle_s: float | None = None,
    clock: Callable[[], float] = time.monotonic,
    watch: OpenWatch = open_watch,
) -> None:
    """Call ``step`` whenever one of ``logs`` grows, and every second, until ``stop`` is set or it
    found nothing left to watch for ``idle_s`` seconds."""
    busy = clock()
    opened: Watch | None = None
    watched: set[Path] = set()
    try:
        while not stop.is_set():
            now = clock()
            if step():
                busy = now
            elif idle_s is not None and now - busy >= idle_s:
                return
            paths = set(logs())
            if opened is None or paths != watched:
                if opened is not None:
                    opened.close()
                opened, watched = watch(_by_folder(paths)), paths
            if opened.wait(LOOK_S):
                stop.wait(_SETTLE_S)
    finally:
        if opened is not None:
            opened.close()


def log_to(file: Path | None) -> None:
    """Write the program's log into a file of limited size, or to standard error."""
    handlers = [RotatingFileHandler(file, maxBytes=_LOG_BYTES, backupCount=1)] if file else None
    logging.basicConfig(level=logging.INFO, handlers=handlers, format=_FORMAT)


def stopped() -> threading.Event:
    """An event that SIGTERM, SIGINT and SIGQUIT set."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, lambda *_: stop.set())
    return stop


def _by_folder(paths: Iterable[Path]) -> dict[Path, set[str]]:
    folders: dict[Path, set[str]] = {}
    for path in paths:
        if os.path.isdir(path.parent):  # noqa: PTH112
            folders.setdefault(path.parent, set()).add(path.name)
    return folders
