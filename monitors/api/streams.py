"""Answers that go on for long: only so many at once, so that there are connections, and threads,
for all others."""

from __future__ import annotations

from typing import Any

from fastapi.responses import StreamingResponse

from network_provisioner.api.gate import Message, Receive, Send
from network_provisioner.base.errors import BrokerError


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
