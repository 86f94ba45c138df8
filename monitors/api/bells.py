"""Threads that tell waiting requests that there is news."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Bells:
    """A bell for each name, which many may wait at."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[str, set[tuple[asyncio.AbstractEventLoop, asyncio.Event]]] = {}

    def ring(self, name: str) -> None:
        """Wake all who wait at this bell. From any thread; never waits."""
        with self._lock:
            waiting = list(self._waiting.get(name, ()))
        for loop, event in waiting:
            try:
                loop.call_soon_threadsafe(event.set)
            except RuntimeError:  # its loop has ended, and with it whoever waited
                continue

    @contextmanager
    def at(self, name: str) -> Iterator[asyncio.Event]:
        """Wait at the bell: an event that is set whenever it rings."""
        mine = (asyncio.get_running_loop(), asyncio.Event())
        with self._lock:
            self._waiting.setdefault(name, set()).add(mine)
        try:
            yield mine[1]
        finally:
            with self._lock:
                self._waiting[name].discard(mine)
                if not self._waiting[name]:
                    del self._waiting[name]
