"""Answers that go on for long: ``/v1/feed``, what is recorded as it is recorded (server-sent
events). Only so many at once, so that there are connections, and threads, for all others."""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import AsyncIterator, Callable
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import StreamingResponse

from monitors.api.archive import Names
from monitors.archive.archive import Measurement
from monitors.archive.feed import Feed, Numbered
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
