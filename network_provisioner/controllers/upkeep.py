"""A thread that brings switches up to date: those that connected again, and whose rules ended."""

from __future__ import annotations

import math
import queue
import threading
import time
from collections.abc import Callable, Iterator

# Longer than two brokers take to bring a switch up to date that has restarted.
LOOK_AGAIN_S = 2.0


class Upkeep:
    """Calls ``bring_up_to_date`` with a switch that needs it and whether it has just connected.

    That returns whether anything had to be changed, and raises nothing. ``look_again``: a second
    broker may write to a switch at the same moment, so it is looked at again in a while, until
    nothing has to be changed: then whose wishes are later has seen it.
    """

    def __init__(self, bring_up_to_date: Callable[[int, bool], bool], *, look_again: bool) -> None:
        self._bring_up_to_date = bring_up_to_date
        self._look_again = look_again
        # (dpid, whether the switch has just connected), None to end the thread.
        self._news: queue.SimpleQueue[tuple[int, bool] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin."""
        self._thread = threading.Thread(target=self._work, name="adon-resync", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End, after what is being done."""
        self._news.put(None)
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        # What has not been looked at says nothing about the next start.
        self._news = queue.SimpleQueue()

    def is_up(self, dpid: int) -> None:
        """A switch has connected."""
        self._news.put((dpid, True))

    def has_ended(self, dpid: int) -> None:
        """A rule of a switch has ended."""
        self._news.put((dpid, False))

    def _work(self) -> None:
        again: dict[int, float] = {}
        while True:
            news: dict[int, bool] = {}
            try:
                # Rules often end together; one look at their switch is enough.
                for about in self._all_news(min(again.values(), default=math.inf)):
                    if about is None:
                        return
                    dpid, fresh = about
                    news[dpid] = fresh or news.get(dpid, False)
            except queue.Empty:
                news = {d: True for d, at in again.items() if at <= time.monotonic()}
            for dpid, fresh in news.items():
                looked_again = again.pop(dpid, None) is not None
                changed = self._bring_up_to_date(dpid, fresh)
                if self._look_again and fresh and (changed or not looked_again):
                    again[dpid] = time.monotonic() + LOOK_AGAIN_S

    def _all_news(self, until: float) -> Iterator[tuple[int, bool] | None]:
        """All that has come in, waiting for the first until a monotonic second (queue.Empty)."""
        left = None if math.isinf(until) else max(0.0, until - time.monotonic())
        yield self._news.get(timeout=left)
        while not self._news.empty():
            yield self._news.get()
