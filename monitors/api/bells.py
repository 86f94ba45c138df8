"""Threads that tell waiting requests that there is news, and one request that another came."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress


class Bells:
    """A bell for each name, at which one waits: who comes later takes the place."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[str, tuple[asyncio.AbstractEventLoop, asyncio.Event]] = {}

    def ring(self, name: str) -> None:
        """Wake who waits at this bell. From any thread; never waits."""
        with self._lock:
            waiting = self._waiting.get(name)
        _wake(waiting)

    @contextmanager
    def alone_at(self, name: str) -> Iterator[tuple[asyncio.Event, Callable[[], bool]]]:
        """Wait at the bell: an event that is set whenever it rings, or somebody else comes, and
        whether nobody else did."""
        mine = (asyncio.get_running_loop(), asyncio.Event())
        with self._lock:
            before, self._waiting[name] = self._waiting.get(name), mine
        _wake(before)
        try:
            yield mine[1], lambda: self._waiting.get(name) is mine
        finally:
            with self._lock:
                if self._waiting.get(name) is mine:
                    del self._waiting[name]


def _wake(waiting: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None) -> None:
    if waiting is None:
        return
    loop, event = waiting
    with suppress(RuntimeError):  # its loop has ended, and with it whoever waited
        loop.call_soon_threadsafe(event.set)
