"""What is recorded, told as it happens: for coroutines that wait until there is something new.

However many wait, the archive is asked by one of them, :data:`EVERY_S` apart, and by none where
nobody waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress

from monitors.archive.archive import Archive, ArchiveError, Measurement

EVERY_S = 0.1
_LIMIT = 500  # measurements that are read, and told, at a time

Numbered = list[tuple[int, Measurement]]
Wanted = Callable[[Measurement], bool]


class Feed:
    """The feed of one archive. All who wait must run in one event loop."""

    def __init__(
        self, archive: Archive, changes: Callable[[], int] = int, every_s: float = EVERY_S
    ) -> None:
        """``changes`` counts what has changed outside the archive; followers are told. Cheap."""
        self._archive = archive
        self.changes = changes
        self._every_s = every_s
        self._moment: object = None  # of the archive, when it was last looked at
        self._news = asyncio.Event()
        self._waiting = 0
        self._watch: asyncio.Task[None] | None = None

    async def follow(
        self,
        after: int | None,
        metrics: Sequence[str],
        wanted: Wanted,
        silent_s: float,
        ended: Callable[[], bool],
        with_changes: bool = False,
    ) -> AsyncIterator[tuple[int, Numbered]]:
        """What is recorded after number ``after`` (None: from now on), as far as it is ``wanted``,
        each time with the number that was reached; with nothing where nothing came for
        ``silent_s``, and ``with_changes`` where :attr:`changes` has grown. Until ``ended()``,
        asked in a thread, says so. An archive that cannot be read just now is asked again.
        """
        seq = await asyncio.to_thread(self._archive.latest_seq) if after is None else after
        loop = asyncio.get_running_loop()
        known = self.changes()
        yield seq, []
        sent_at = loop.time()
        while not await asyncio.to_thread(ended):
            moment = self._moment
            with suppress(ArchiveError):
                batch, reached = await asyncio.to_thread(self._read, seq, metrics, wanted)
                more = reached != seq
                seq = reached
                changed = with_changes and self.changes() != known
                if batch or changed or loop.time() - sent_at >= silent_s:
                    sent_at, known = loop.time(), self.changes()
                    yield seq, batch
                if more:
                    continue
            await self._wait(moment, silent_s)

    def _read(self, seq: int, metrics: Sequence[str], wanted: Wanted) -> tuple[Numbered, int]:
        rows, reached = self._archive.read_on(seq, metrics, _LIMIT)
        return [
            (number, measurement) for number, measurement in rows if wanted(measurement)
        ], reached

    async def _wait(self, moment: object, most_s: float) -> None:
        """Until the archive is not as it was at ``moment``; at most so long, and a second."""
        if moment is not None and moment != self._moment:
            return
        if self._watch is None or self._watch.done():
            self._watch = asyncio.create_task(self._look())
        self._waiting += 1
        news = self._news
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(min(most_s, 1.0)):
                    await news.wait()
        finally:  # also where whoever waits has gone
            self._waiting -= 1

    async def _look(self) -> None:
        while True:
            with suppress(ArchiveError):
                moment = (await asyncio.to_thread(self._archive.changed), self.changes())
                if moment != self._moment:
                    self._moment = moment
                    self._news.set()
                    self._news = asyncio.Event()
            await asyncio.sleep(self._every_s)
            if not self._waiting:
                return
