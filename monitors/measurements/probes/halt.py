"""A sign to stop that both threads and waits for sockets and processes see at once."""

from __future__ import annotations

import os
import select
import threading
import time


class Halt:
    """Set once, for ever. Anything may wait for it, beside other files."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def __del__(self) -> None:
        os.close(self._fd)

    def set(self) -> None:
        """Stop."""
        if not self._event.is_set():
            self._event.set()
            os.eventfd_write(self._fd, 1)

    def is_set(self) -> bool:
        """Whether it was set."""
        return self._event.is_set()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait; whether it was set."""
        return self._event.wait(timeout_s)

    def ready(self, files: dict[int, int], until: float) -> list[tuple[int, int]]:
        """The files (with the events of ``poll`` that are waited for) on which something happened,
        nothing at ``until`` (monotonic seconds) or when it was set."""
        if self.is_set():
            return []
        waiting = select.poll()
        for number, events in files.items():
            waiting.register(number, events)
        waiting.register(self._fd, select.POLLIN)
        left_ms = max(0.0, until - time.monotonic()) * 1e3
        return [(n, e) for n, e in waiting.poll(left_ms) if n != self._fd]
