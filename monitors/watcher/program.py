"""The watcher of workflows as a program: ``--config FILE [--lock NUMBER] [--stay]``."""

from __future__ import annotations

import argparse
import logging
import os
import threading
from collections.abc import Sequence
from pathlib import Path

from monitors.watcher import registry, watcher
from monitors.watcher.actions import JobFiles
from monitors.watcher.events import ListenerOf
from monitors.watcher.hook_server import RunHook, serving
from monitors.watcher.registered import RegisteredWorkflows
from monitors.watcher.watcher import Watcher
from network_provisioner.base.errors import InputError
from network_provisioner.client import hookconfig
from network_provisioner.client.hookconfig import HookConfig

IDLE_S = 60.0

log = logging.getLogger(__name__)


def main(argv: Sequence[str], files: JobFiles, listener_of: ListenerOf, run_hook: RunHook) -> int:
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
    watcher.log_to(folder / registry.LOG)
    workflows = RegisteredWorkflows(folder, config, files, listener_of)
    watch(workflows, lock, watcher.stopped(), run_hook, None if options.stay else IDLE_S)
    return 0


def watch_folder(config: HookConfig, file: Path) -> Path:
    """The folder of ``config``. Raises InputError where it names none."""
    if not config.watch:
        raise InputError(f"{file}: found no key 'watch', expected the folder of running workflows")
    return registry.folder_of(config.watch)


def watch(
    workflows: RegisteredWorkflows,
    lock: int,
    stop: threading.Event,
    run_hook: RunHook,
    idle_s: float | None = None,
) -> None:
    """Watch until ``stop`` is set, or for ``idle_s`` seconds nothing was left to watch. Takes the
    lock over and gives it up."""
    held: int | None = lock
    while held is not None:
        try:
            _say_who(held)
            log.info("watching %s", workflows.folder)
            with serving(workflows.folder, run_hook):
                Watcher(workflows).run(stop, idle_s)
        finally:
            os.close(held)
        # A PRE that found the lock held has left its workflow in the folder before it looked.
        left = not stop.is_set() and any(registry.entries(workflows.folder))
        held = registry.hold(workflows.folder) if left else None
    log.info("the watcher ends")


def _say_who(lock: int) -> None:
    os.ftruncate(lock, 0)
    os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
