"""The watcher of workflows as a program: ``--config FILE [--lock NUMBER] [--stay]``.

The watcher does the work of hooks: it has everything loaded that they would load for each job.

A hook connects to ``<folder>/hooks.socket`` and sends one line of words with a zero byte between
them: which hook, its working directory, its arguments. While its work goes on it gets a dot each
second, then the exit code and a line end. Where the connection ends without one the hook does the
work itself, as it does where nobody listens: doing it twice is doing it once.
"""

from __future__ import annotations

import argparse
import logging
import os
import socketserver
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from monitors.watcher import registry, watcher
from monitors.watcher.actions import JobFiles
from monitors.watcher.held_paths import ListenerOf
from monitors.watcher.registered import RegisteredWorkflows
from monitors.watcher.watcher import Watcher
from network_provisioner.base.daemon_log import log_to
from network_provisioner.base.errors import InputError
from network_provisioner.client import hookconfig
from network_provisioner.client.hookconfig import HookConfig

_log = logging.getLogger(__name__)

IDLE_S = 60.0
SOCKET = "hooks.socket"
_SIGN_OF_LIFE_S = 1.0

RunHook = Callable[[list[str]], int]
"""Runs a hook by its words; its exit code. Raises for what the hook has to do itself."""


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
    log_to(folder / registry.LOG)
    workflows = RegisteredWorkflows(folder, config, files, listener_of)
    watch(workflows, lock, watcher.stop_event(), run_hook, None if options.stay else IDLE_S)
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
            os.ftruncate(held, 0)
            os.pwrite(held, f"{os.getpid()}\n".encode(), 0)
            _log.info("watching %s", workflows.folder)
            with serving(workflows.folder, run_hook):
                Watcher(workflows).run(stop, idle_s)
        finally:
            os.close(held)
        # A PRE that found the lock held has left its workflow in the folder before it looked.
        left = not stop.is_set() and any(registry.entries(workflows.folder))
        held = registry.hold(workflows.folder) if left else None
    _log.info("the watcher ends")


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128
    run_hook: RunHook


class _Handler(socketserver.StreamRequestHandler):
    server: _Server

    def handle(self) -> None:
        words = self.rfile.readline().decode("utf-8", "surrogateescape").rstrip("\n").split("\0")
        codes: list[int] = []

        def work() -> None:
            try:
                codes.append(self.server.run_hook(words))
            except Exception:  # the hook does it itself
                _log.exception("%s is left to the hook itself", words)

        at_work = threading.Thread(target=work, daemon=True)
        at_work.start()
        with suppress(OSError):  # the hook was killed
            at_work.join(_SIGN_OF_LIFE_S)
            while at_work.is_alive():
                self.wfile.write(b".")
                at_work.join(_SIGN_OF_LIFE_S)
            if codes:
                self.wfile.write(b"%d\n" % codes[0])


@contextmanager
def serving(folder: Path, run_hook: RunHook) -> Iterator[None]:
    """Serve hooks until the block ends; where there can be no socket they do their work."""
    path = folder / SOCKET
    try:
        path.unlink(missing_ok=True)  # of a watcher that was killed: only one has the lock
        server = _Server(str(path), _Handler)
        path.chmod(0o600)
    except OSError as error:
        _log.warning("%s: no socket for hooks: %s", path, error)
        yield
        return
    server.run_hook = run_hook
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        server.shutdown()
        server.server_close()
