"""Answers that go on for long: ``/v1/feed``, what is recorded as it is recorded (server-sent
events). Only so many at once, so that there are connections, and threads, for all others.

However many wait for what is new, the archive is asked by one of them, :data:`EVERY_S` apart, and
by none where nobody waits.
"""

from __future__ import annotations

import asyncio
import json
import time
import zlib
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import StreamingResponse

from monitors.api.archive import Names
from monitors.archive.archive import Archive, ArchiveError, Measurement
from monitors.archive.stores.base import check_texts
from monitors.rules import Rules
from network_provisioner.access import May
from network_provisioner.api.callers import Caller, withdrawn
from network_provisioner.api.connection import stopping
from network_provisioner.api.gate import Message, Receive, Send
from network_provisioner.base.errors import BrokerError

HEARTBEAT_S = 15.0
MOST_S = 3600.0  # then the client asks again
_AGAIN_MS = 1000  # after which a client whose stream has ended asks again
_TYPE = "text/event-stream"
_LARGEST = 2**63 - 1
EVERY_S = 0.1
_LIMIT = 500  # measurements that are read, and told, at a time

Numbered = list[tuple[int, Measurement]]
Wanted = Callable[[Measurement], bool]
MOST_FEEDS = 200  # of the 500 connections there may be: transits need some too


class AnswerLimit:
    """Room for ``most`` answers at once, in one event loop; ``what`` says of which kind."""

    def __init__(self, most: int, what: str) -> None:
        self._most, self._what = most, what
        self._taken = 0

    def enter(self) -> None:
        """Raises BrokerError ``busy`` where there is none."""
        if self._taken >= self._most:
            raise BrokerError(
                f"there are {self._taken} {self._what} already, which is the most; ask again later",
                "busy",
            )
        self._taken += 1

    def leave(self) -> None:
        """After :meth:`enter`."""
        self._taken -= 1


class Stream(StreamingResponse):
    """A streamed answer that needs room while it is sent, however it ends."""

    def __init__(self, room: AnswerLimit, content: Any, **more: Any) -> None:
        super().__init__(content, **more)
        self._room = room

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Called by the server. Raises BrokerError ``busy`` before anything is sent."""
        self._room.enter()
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._room.leave()


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
        finally:  # also where the caller has hung up
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


def router(feed: Feed, rules: Rules) -> APIRouter:
    """The route."""
    routes = APIRouter(tags=["measurements"])
    room = AnswerLimit(MOST_FEEDS, "feeds")

    @routes.get(
        "/v1/feed",
        response_class=StreamingResponse,
        responses={200: {"content": {_TYPE: {"schema": {"type": "string"}}}}},
    )
    async def follow(
        request: Request,
        caller: Caller,
        after: Annotated[int | None, Query(ge=0, le=_LARGEST)] = None,
        metrics: Names = [],  # noqa: B006  # pydantic copies it
        changes: Annotated[
            bool, Query(description="also tell that transits, policies or templates have changed")
        ] = False,
        last_event_id: Annotated[str | None, Header(max_length=20)] = None,
    ) -> StreamingResponse:
        """What is recorded after number ``after`` or, without, from now on; of ``metrics`` alone
        where some are named, and as far as the caller may see it. One event for each, its number as
        ``id``. With ``changes`` also an event ``change`` whenever a transit, policy, template or
        drain has changed, so that who shows them asks again; without ``metrics`` these alone. A
        client that comes back with ``Last-Event-ID`` misses nothing that was recorded. Ends after
        an hour, and with the caller's token. Where too many follow already, ``busy``."""
        caller.need(May.SEE)
        check_texts(metrics)  # once it has begun, an answer can refuse nothing
        began = time.monotonic()

        def ended() -> bool:
            late = time.monotonic() > began + MOST_S
            return late or stopping(request.app) or withdrawn(request)

        def visible(measurement: Measurement) -> bool:
            return rules.may_see(caller, measurement)

        names = tuple(metrics) or (("",) if changes else ())
        events = feed.follow(
            _number(last_event_id, after), names, visible, HEARTBEAT_S, ended, changes
        )
        parts: AsyncIterator[bytes] = _events(events, feed.changes if changes else int)
        headers = {"Cache-Control": "no-store", "Vary": "Accept-Encoding"}
        if "gzip" in request.headers.get("accept-encoding", ""):
            parts, headers["Content-Encoding"] = _compressed(parts), "gzip"
        return Stream(room, parts, media_type=_TYPE, headers=headers)

    return routes


def _number(last_event_id: str | None, after: int | None) -> int | None:
    if last_event_id is not None and last_event_id.isascii() and last_event_id.isdigit():
        return min(int(last_event_id), _LARGEST)
    return after


async def _events(
    batches: AsyncIterator[tuple[int, Numbered]], changes: Callable[[], int]
) -> AsyncIterator[bytes]:
    yield f"retry: {_AGAIN_MS}\n\n".encode()
    known = changes()
    async for reached, batch in batches:
        parts = [] if known == (count := changes()) else ["event: change\ndata: {}\n\n"]
        known = count
        for number, measurement in batch:
            data = json.dumps({"seq": number, **measurement.as_dict()}, separators=(",", ":"))
            parts.append(f"id: {number}\nevent: measurement\ndata: {data}\n\n")
        # An id without data moves the client on beside what is not for it.
        yield ("".join(parts) + f": reached {reached}\nid: {reached}\n\n").encode()


async def _compressed(parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """As gzip, with 32 KB for each feed. No part waits for the next one."""
    packer = zlib.compressobj(wbits=16 + 12, memLevel=5)
    async for part in parts:
        yield packer.compress(part) + packer.flush(zlib.Z_SYNC_FLUSH)
