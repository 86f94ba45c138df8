"""Answers as JSON, without the copies and checks that are for what others send.

Those that the caller has already are not sent again (ETag, RFC 9110 §8.8.3): a page that asks every
second costs little while nothing happens.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from hashlib import blake2b
from typing import Any

from fastapi import Response

from network_provisioner.api.gate import App, Message, Receive, Send
from network_provisioner.api.problems import error_body
from network_provisioner.base.model import RequestAnswer, Transit


def transit(transit: Transit, status: int = 200) -> Response:
    """One transit."""
    return answer(transit.as_dict(), status)


def transits(many: Iterable[Transit]) -> Response:
    """Many."""
    return answer([transit.as_dict() for transit in many])


def request_answers(answered: Iterable[RequestAnswer]) -> Response:
    """What became of several requests."""
    return answer({"answers": [_answered(item) for item in answered]})


def answer(content: Any, status: int = 200) -> Response:
    """Any JSON; raises ValueError for numbers that JSON does not have."""
    text = json.dumps(content, separators=(",", ":"), allow_nan=False)
    return Response(text, status, media_type="application/json")


def _answered(item: RequestAnswer) -> dict[str, Any]:
    return {
        "transit": None if item.transit is None else item.transit.as_dict(),
        "error": None if item.error is None else error_body(item.error.code, str(item.error)),
        "service": asdict(item.service),
    }


class Unchanged:
    """ASGI middleware: JSON that a GET is answered with has an ETag, and is left out where the
    caller names that one."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "GET":
            await self._app(scope, receive, send)
            return
        known = dict(scope["headers"]).get(b"if-none-match", b"")
        start: Message | None = None

        async def answer(message: Message) -> None:
            nonlocal start
            if message["type"] == "http.response.start" and _is_json(message):
                start = message  # until it is known what it begins
                return
            if start is not None:
                begun, start = start, None
                body = message.get("body", b"")
                if not message.get("more_body"):
                    tag = b'W/"%s"' % blake2b(body, digest_size=12).hexdigest().encode()
                    begun["headers"] = [*begun["headers"], (b"etag", tag)]
                    if tag == known:
                        begun["status"] = 304
                        begun["headers"] = [(b"etag", tag)]
                        message = {**message, "body": b""}
                await send(begun)
            await send(message)

        await self._app(scope, receive, answer)


def _is_json(start: Message) -> bool:
    kind: bytes = dict(start["headers"]).get(b"content-type", b"")
    return bool(start["status"] == 200 and kind.startswith(b"application/json"))
