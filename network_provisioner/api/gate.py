"""The gate before the application: who is not known, or sends too much or too slowly, is answered
here, before any of a body is kept."""

from __future__ import annotations

import asyncio
import hmac
import logging
import re
from collections.abc import Awaitable, Callable, MutableMapping
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from network_provisioner.access import ANYBODY, Keyring, Principal
from network_provisioner.api.problems import answer_to
from network_provisioner.base.errors import BrokerError

MAX_BODY_BYTES = 256 * 1024  # as many requests as may be made at once are below
BODY_S = 10.0  # for a body to arrive: on any line that is enough for so little
TLS_NAME = "adon.tls_name"  # of scope["extensions"]: the common name of a verified certificate
# By which a broker that passes a request on proves that it is one, and says that name.
LEADER_SECRET, TLS_NAME_HEADER = "x-adon-leader-secret", "x-adon-client"

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]
_JSON = re.compile(rb"application/(?:[\w.-]+\+)?json")  # merge-patch+json, for one
_COLLECTION = re.compile(r"/v1/[a-z]+/")  # many clients end its name so
_ABSOLUTE = ("http://", "https://")
_CHANGES = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_AUDITED = ("/v1/drains", "/v1/policies", "/v1/templates", "/v1/tasks")
_QUESTIONS = ("/match", "/try")  # how paths end of POSTs that change nothing
_LONGEST = 500  # bytes of a body in the log
_OPEN = frozenset({"/", "/openapi.json"})  # the first leads to the pages, where there are any

audit = logging.getLogger(f"{__name__}.audit")


class Gate:
    """ASGI middleware. Leaves the caller in ``scope["state"]["principal"]``, and in
    ``["recognise"]`` what finds who that is by now.

    What is below ``pages`` is shown to anybody: files of ours that say nothing about anyone.
    ``own_host`` says of a name in lower case whether it is the service's: without keys no other is
    answered to, for a page of anywhere can have its own name mean this machine. ``secret`` is what
    the other brokers of this store know alone, "" for none.
    """

    def __init__(
        self,
        app: App,
        keyring: Keyring,
        pages: tuple[str, ...] = (),
        own_host: Callable[[str], bool] | None = None,
        secret: Callable[[], str] = str,
    ) -> None:
        self._app = app
        self._keyring = keyring
        self._pages = pages
        self._own_host = own_host
        self._secret = secret

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        state = scope.setdefault("state", {})
        if scope["path"].lower().startswith(_ABSOLUTE):  # RFC 9112, section 3.2.2
            target = urlsplit(scope["path"])
            scope = {**scope, "path": target.path or "/", "raw_path": target.path.encode()}
        if _COLLECTION.fullmatch(scope["path"]):
            scope = {**scope, "path": scope["path"][:-1], "raw_path": scope["path"][:-1].encode()}
        try:
            if scope["path"].endswith("\n"):  # the end of a route's pattern passes over it
                raise BrokerError(f"unknown path {scope['path']!r}", "not_found")
            state["principal"] = await self._who(scope)
            messages = await _body(scope, receive)
        except BrokerError as error:
            refusal = answer_to(error)
            refusal.headers["Connection"] = "close"  # what is still under way is not read
            await refusal(scope, receive, send)
            return
        if scope["method"] == "HEAD":  # as GET; the server sends the head of the answer alone
            scope, send = {**scope, "method": "GET"}, _without_body(send)
        if _changes_something(scope["method"], scope["path"]):
            body = b"".join(message.get("body", b"") for message in messages)
            send = _audited(scope, state["principal"], body, send)
        await self._app(scope, replayed(messages, receive), send)

    async def _who(self, scope: Message) -> Principal:
        headers = dict(scope["headers"])
        # HTTP/1.0 has no Host, and no browser speaks it.
        hostless = scope["http_version"] == "1.0" and b"host" not in headers
        if self._own_host is not None and not self._keyring and not hostless:
            name = _name_of(headers.get(b"host", b"").decode("latin-1"))
            if not self._own_host(name):
                raise BrokerError(
                    f"found Host {name!r}, expected localhost or one of broker.names: without "
                    "tokens no other is accepted",
                    "forbidden",
                )
        if scope["path"] in _OPEN or (self._pages and scope["path"].startswith(self._pages)):
            return ANYBODY
        token = None
        for name, value in scope["headers"]:
            if name == b"authorization":
                kind, _, token = value.decode("latin-1").partition(" ")
                if kind.lower() != "bearer":
                    raise BrokerError(
                        f"found authorization of kind {kind[:20]!r}, expected Bearer",
                        "unauthorized",
                    )
                token = token.strip()
        if token is None and _is_cross_site(headers):  # a browser adds no token by itself
            raise BrokerError("a page of another site asks, expected a token", "forbidden")
        certificate = scope.get("extensions", {}).get(TLS_NAME)
        given, secret = headers.get(LEADER_SECRET.encode(), b""), self._secret().encode()
        if secret and hmac.compare_digest(given, secret):
            certificate = headers.get(TLS_NAME_HEADER.encode(), b"").decode("latin-1") or None
        recognise = partial(self._keyring.recognise, token, certificate)
        scope["state"]["recognise"] = recognise
        if token is not None and "." in token and self._keyring.federated:
            return await asyncio.to_thread(recognise)
        return recognise()


def replayed(messages: list[Message], receive: Receive) -> Receive:
    """What gives these messages of a request that were read already, and then what comes."""

    async def replay() -> Message:
        return messages.pop(0) if messages else await receive()

    return replay


def _changes_something(method: str, path: str) -> bool:
    """Whether a request is for the audit log."""
    question = method == "POST" and path.endswith(_QUESTIONS)
    return method in _CHANGES and path.startswith(_AUDITED) and not question


def _audited(scope: Message, who: Principal, body: bytes, send: Send) -> Send:
    """Logs who changed what, and from where, once the answer is known."""

    async def answer(message: Message) -> None:
        if message["type"] == "http.response.start":
            name = f"{who.name or 'anybody'} ({who.role})"
            at = (scope.get("client") or ("",))[0]
            words = (scope["method"], scope["path"], body[:_LONGEST].decode("utf-8", "replace"))
            what = " ".join(filter(None, words))
            audit.info("%s by %s from %s: %d", what, name, at, message["status"])
        await send(message)

    return answer


def _without_body(send: Send) -> Send:
    """Ends an answer with its head: some have no end of their own."""

    async def head(message: Message) -> None:
        if message["type"] == "http.response.start":
            await send(message)
            await send({"type": "http.response.body", "body": b""})

    return head


def _name_of(host: str) -> str:
    """The name in a Host header: without its port, in lower case."""
    name = host.rpartition("]")[0] + "]" if host.startswith("[") else host.partition(":")[0]
    return name.lower().removesuffix(".")


def _is_cross_site(headers: dict[bytes, bytes]) -> bool:
    """Whether a browser says that a page of another origin has it ask."""
    if headers.get(b"sec-fetch-site", b"none") not in (b"none", b"same-origin"):
        return True
    origin = headers.get(b"origin")
    return origin is not None and origin.partition(b"://")[2] != headers.get(b"host", b"").lower()


async def _body(scope: Message, receive: Receive) -> list[Message]:
    messages: list[Message] = []
    size, declared = 0, _declared(scope)
    try:
        async with asyncio.timeout(BODY_S):
            while max(size, declared) <= MAX_BODY_BYTES:
                messages.append(await receive())
                size += len(messages[-1].get("body", b""))
                if not (messages[-1]["type"] == "http.request" and messages[-1].get("more_body")):
                    break
    except TimeoutError:
        raise BrokerError(f"the body did not arrive within {BODY_S:g} s", "timeout") from None
    if max(size, declared) > MAX_BODY_BYTES:
        raise BrokerError(f"the body is above {MAX_BODY_BYTES} bytes", "too_large")
    if size and not _is_json(scope):
        raise BrokerError(
            "the body is not declared as JSON, expected 'Content-Type: application/json'",
            "bad_request",
        )
    return messages


def _declared(scope: Message) -> int:
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit():
            return int(value[:20])
    return 0


def _is_json(scope: Message) -> bool:
    # A page in a browser cannot send this type to another host without asking it first.
    kinds = [value for name, value in scope["headers"] if name == b"content-type"]
    return (
        len(kinds) == 1 and _JSON.fullmatch(kinds[0].partition(b";")[0].strip().lower()) is not None
    )
