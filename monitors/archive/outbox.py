"""Measurements on their way into an archive: what it does not take now is kept and tried again.

An archive fails for a while where its disk is full, another process has locked it, or PostgreSQL
starts anew. For those who measure once and cannot measure again.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from itertools import islice

from monitors.archive.archive import Archive
from monitors.base.background import Background
from monitors.base.measurement import Measurement, to_row
from network_provisioner.base.errors import AdonError

_log = logging.getLogger(__name__)

MOST_WAITING = 100_000  # measurements, some 100 MB
_BATCH = 5000
_LOOK_S = 0.5
_AGAIN_S, _AGAIN_MOST_S = 1.0, 8.0  # how soon an archive that failed is tried again


class Outbox(Background):
    """Records into ``archive``, at once where it can; thread-safe.

    From :meth:`start` to :meth:`stop` a thread tries again what waits; ``most`` measurements wait
    at most, later ones are lost. ``steady`` gives seconds.
    """

    def __init__(
        self,
        archive: Archive,
        most: int = MOST_WAITING,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__("outbox", self._run)
        self.archive, self._most, self._steady = archive, most, steady
        self._waiting: deque[Measurement] = deque()
        self._adding, self._writing = threading.Lock(), threading.Lock()
        self._due, self._again_s = -math.inf, _AGAIN_S
        self._lost = 0

    def record_many(self, measurements: Iterable[Measurement]) -> int:
        """Take measurements; returns how many new ones are in the archive now. Raises InputError as
        :meth:`~.Archive.record`, and nothing if the archive fails."""
        taken = list(measurements)
        for measurement in taken:
            to_row(measurement)
        with self._adding:
            room = self._most - len(self._waiting)
            self._waiting += taken[:room]
            if len(taken) > room:
                if not self._lost:
                    _log.error("too many measurements wait for the archive: later ones are lost")
                self._lost += len(taken) - room
        # Where the archive fails, nobody but the thread waits for it.
        return self.retry() if self._due == -math.inf else 0

    def retry(self) -> int:
        """Record what waits, as far as the archive takes it; returns how many were new."""
        added = 0
        # Whoever is at it takes what comes meanwhile, too: nobody waits for a locked archive twice.
        if not self._writing.acquire(blocking=False):
            return added
        try:
            while batch := self._next():
                added += self.archive.record_many(batch)
                for _ in batch:
                    self._waiting.popleft()
                self._recovered()
        except AdonError as error:
            if self._due == -math.inf:  # one line, however long it lasts
                _log.warning("measurements are kept and tried again: %s", error)
            self._due = self._steady() + self._again_s
            self._again_s = min(2 * self._again_s, _AGAIN_MOST_S)
        finally:
            self._writing.release()
        return added

    def _next(self) -> list[Measurement]:
        with self._adding:
            return list(islice(self._waiting, _BATCH))

    def stop(self, longest_s: float | None = None) -> None:
        """End, after a last try."""
        super().stop(longest_s)
        self.retry()
        if self._waiting:
            _log.error(
                "%d measurements are lost: the archive did not take them", len(self._waiting)
            )

    def __enter__(self) -> Outbox:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _recovered(self) -> None:
        if self._due != -math.inf:
            _log.info("the archive takes measurements again; %d were lost", self._lost)
        self._due, self._again_s, self._lost = -math.inf, _AGAIN_S, 0

    def _run(self) -> None:
        while not self.stopping.wait(_LOOK_S):
            if self._waiting and self._steady() >= self._due:
                self.retry()
