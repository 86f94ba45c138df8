"""The watcher does the work of hooks: it has everything loaded that they would load for each job.

A hook connects to ``<folder>/hooks.socket`` and sends one line of words with a zero byte between
them: which hook, its working directory, its arguments. While its work goes on it gets a dot each
second, then the exit code and a line end. Where the connection ends without one the hook does the
work itself, as it does where nobody listens: doing it twice is doing it once.
"""

from __future__ import annotations

import logging
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

SOCKET = "hooks.socket"
_SIGN_OF_LIFE_S = 1.0

log = logging.getLogger(__name__)

RunHook = Callable[[list[str]], int]
"""Runs a hook by its words; its exit code. Raises for what the hook has to do itself."""


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
                log.exception("%s is left to the hook itself", words)

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
        log.warning("%s: no socket for hooks: %s", path, error)
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
