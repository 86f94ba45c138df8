"""Who follows workflows from elsewhere and records them here, so that one that stops is missed."""

from __future__ import annotations

import threading
from collections.abc import Callable

LATE_S = 10.0  # after its question was answered: it asks again at once
_GONE_S = 86_400.0  # one that is silent for so long is not expected any more
_MOST = 1_000


class Followers:
    """By their names; ``clock`` gives Unix seconds. Thread-safe."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._heard: dict[str, tuple[float, float]] = {}  # when, and when it is to ask again

    def heard(self, name: str, wait_s: float, ends: bool) -> None:
        """It asks, and waits for ``wait_s``; or says that it ``ends``."""
        now = self._clock()
        with self._lock:
            self._heard.pop(name, None)
            if not ends:
                self._heard[name] = now, now + wait_s
            while len(self._heard) > _MOST:
                self._heard.pop(next(iter(self._heard)))

    def silent(self) -> dict[str, tuple[float, str]]:
        """Those that should have asked again: since when, and why that is known."""
        now, why = self._clock(), "it follows workflows, and has not asked again when it should"
        with self._lock:
            return {
                f"follower {name!r}": (at, why)
                for name, (at, due) in self._heard.items()
                if 0 <= now - due - LATE_S < _GONE_S
            }
