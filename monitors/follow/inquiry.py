"""Questions whose answers take long: one after the other, in a thread of their own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Answer = TypeVar("Answer")


class Inquiry(Generic[Key, Answer]):
    """Asks ``ask`` about what has been of interest for ``patience_s``, and every ``again_s`` while
    it is. ``ask`` gives None where it cannot tell, and raises nothing."""

    def __init__(
        self, ask: Callable[[Key], Answer | None], name: str, patience_s: float, again_s: float
    ) -> None:
        self._ask, self._name = ask, name
        self._patience_s, self._again_s = patience_s, again_s
        self._due: dict[Key, float] = {}  # when to ask, by the monotonic clock
        self._asked: dict[Key, Future[Answer | None]] = {}
        self._threads: ThreadPoolExecutor | None = None
        self._lock = threading.Lock()

    def look(self, wanted: Collection[Key]) -> dict[Key, Answer]:
        """What was answered since the last time of what is ``wanted`` now, which also says what to
        ask next. Never waits."""
        now = time.monotonic()
        answers: dict[Key, Answer] = {}
        with self._lock:
            for key, asked in list(self._asked.items()):
                if asked.done():
                    del self._asked[key]
                    answer = asked.result()
                    if answer is not None and key in wanted:
                        answers[key] = answer
            for key in [known for known in self._due if known not in wanted]:
                del self._due[key]
            for key in wanted:
                due = self._due.setdefault(key, now + self._patience_s)
                if now >= due and key not in self._asked:
                    self._due[key] = now + self._again_s
                    self._asked[key] = self._pool().submit(self._ask, key)
        return answers

    def _pool(self) -> ThreadPoolExecutor:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(1, self._name)
        return self._threads

    def close(self) -> None:
        """Asks nobody any more; waits for the one that is being asked."""
        with self._lock:
            if self._threads is not None:
                self._threads.shutdown(wait=True, cancel_futures=True)
                self._threads = None
                self._asked.clear()  # who begins again asks anew
