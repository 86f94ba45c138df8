"""The watcher as a program: ``--config FILE [--lock NUMBER] [--stay]``."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import threading
from collections.abc import Sequence
from logging.handlers import RotatingFileHandler
from pathlib import Path

from network_provisioner.base import hookconfig
from network_provisioner.base.hookconfig import HookConfig
from network_provisioner.errors import InputError
from pegasus_hooks import registry
from pegasus_hooks.watch import listeners
from pegasus_hooks.watch.watching import Watching

IDLE_S = 60.0
_LOG_BYTES = 1 << 20

log = logging.getLogger(__name__)


def main(argv: Sequence[str]) -> int:
    """What PRE starts: writes its log into the folder, and ends when nothing is left to watch."""
    parser = argparse.ArgumentParser(prog="watcher.py", description=__doc__)
    parser.add_argument("--config", type=Path, required=True, help="the hooks' configuration")
    parser.add_argument("--lock", type=int, help="open file that holds the watcher's lock")
    parser.add_argument("--stay", action="store_true", help="do not end when nothing is left")
    options = parser.parse_args(argv)
    config = hookconfig.load(options.config)
    folder = watch_folder(config, options.config)
    lock = options.lock if options.lock is not None else registry.hold(folder)
    if lock is None:
        return 0
    handler = RotatingFileHandler(folder / registry.LOG, maxBytes=_LOG_BYTES, backupCount=1)
    form = "%(asctime)s [%(process)d] %(levelname)s %(message)s"
    logging.basicConfig(level=logging.INFO, handlers=[handler], format=form)
    watch(folder, config, lock, stopped(), None if options.stay else IDLE_S)
    return 0


def watch_folder(config: HookConfig, file: Path) -> Path:
    """The folder of ``config``. Raises InputError where it names none."""
    if not config.watch:
        raise InputError(f"{file}: found no key 'watch', expected the folder of running workflows")
    return registry.folder_of(config.watch)


def watch(
    folder: Path,
    config: HookConfig,
    lock: int,
    stop: threading.Event,
    idle_s: float | None = None,
) -> None:
    """Watch until ``stop`` is set, or for ``idle_s`` seconds nothing was left to watch. Takes the
    lock over and gives it up."""
    held: int | None = lock
    while held is not None:
        try:
            _say_who(held)
            log.info("watching %s", folder)
            Watching(folder, config, listeners.listener_of).run(stop, idle_s)
        finally:
            os.close(held)
        # A PRE that found the lock held has left its workflow in the folder before it looked.
        left = not stop.is_set() and any(registry.entries(folder))
        held = registry.hold(folder) if left else None
    log.info("the watcher ends")


def stopped() -> threading.Event:
    """An event that SIGTERM and SIGINT set."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    return stop


def _say_who(lock: int) -> None:
    os.ftruncate(lock, 0)
    os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
