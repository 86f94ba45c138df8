"""A thread of its own, from start to stop."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Background:
    """Runs ``work`` in a daemon thread. ``work`` returns soon after ``stopping`` is set, and waits
    on that event where it waits at all."""

    def __init__(self, name: str, work: Callable[[], None]) -> None:
        """``name`` is the thread's."""
        self.stopping = threading.Event()
        self._name, self._work = name, work
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin. Harmless where it runs already."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            self._thread.start()

    def stop(self, longest_s: float | None = None) -> None:
        """End, and wait for the end, or ``longest_s`` seconds. Harmless where it was never
        started, or stopped before."""
        self.stopping.set()
        if self._thread is not None:
            self._thread.join(longest_s)
            self._thread = None
