"""Requests to a broker that follows, passed on to the one that leads.

A broker that follows answers itself what the database says, transits and accounts, and how it is.
Everything else is the leader's, whose answer comes back as it is, also one that has no end of its
own. While nobody leads, a request waits for the next leader.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import requests
from urllib3.exceptions import NewConnectionError

from network_provisioner.api.gate import (
    LEADER_SECRET,
    TLS_NAME,
    TLS_NAME_HEADER,
    App,
    Message,
    Receive,
    Send,
    replayed,
)
from network_provisioner.api.problems import answer_to
from network_provisioner.base.errors import BrokerError, printable
from network_provisioner.queries import Queries
from network_provisioner.stores.store import Leader

log = logging.getLogger(__name__)

READS = ("/v1/transits", "/v1/accounting")
"""What is below these can be read from the database."""
OWN = frozenset({"/", "/v1/health", "/metrics", "/openapi.json"})
"""What each broker answers itself."""
WAIT_S = 8.0  # for a leader: another one takes over within 5 s
_REPEATABLE = ("/v1/transits", "/v1/relays")
"""What is posted below these has its id, and may be asked for twice."""
_LOOK_S = 0.1
_CONNECT_S, _SILENT_S = 2.0, 40.0  # no answer takes longer, and a feed is never silent for so long
_PIECE = 64 * 1024
# Of this connection, not of the request; and by which the leader would take us for a browser.
_NOT_PASSED = frozenset(
    b"connection keep-alive te trailer transfer-encoding upgrade host content-length expect origin "
    b"sec-fetch-site sec-fetch-mode sec-fetch-dest date x-adon-release".split()
)
T = TypeVar("T")
Headers = Iterable[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class Trust:
    """Files by which brokers know each other over https: who signs their certificates (None: the
    system's list), and our own certificate with its key."""

    authorities: str | None = None
    certificate: tuple[str, str] | None = None


class Forward:
    """ASGI middleware, behind the gate. ``pages`` are served by each broker."""

    def __init__(
        self, app: App, broker: Queries, trust: Trust, pages: tuple[str, ...] = ()
    ) -> None:
        self._app = app
        self._broker = broker
        self._trust = trust
        self._pages = pages

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or self._is_ours(scope):
            await self._app(scope, receive, send)
            return
        body = b""
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return  # nobody waits for an answer, and it may not be all
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        try:
            answer = await self._ask(scope, body)
        except BrokerError as error:
            await answer_to(error)(scope, receive, send)
            return
        if answer is None:  # we lead by now
            whole = {"type": "http.request", "body": body, "more_body": False}
            await self._app(scope, replayed([whole], receive), send)
            return
        await self._pass_back(answer, receive, send)

    def _is_ours(self, scope: Message) -> bool:
        path = scope["path"]
        return (
            not self._broker.follows
            or path in OWN
            or (scope["method"] in ("GET", "HEAD") and path.startswith((*READS, *self._pages)))
        )

    async def _ask(self, scope: Message, body: bytes) -> requests.Response | None:
        """The leader's answer, its body not read; None where that is us. Raises BrokerError."""
        repeatable = scope["method"] != "POST" or scope["path"].startswith(_REPEATABLE)
        deadline, why = time.monotonic() + WAIT_S, "nobody leads"
        while time.monotonic() < deadline:
            leader = self._broker.leader
            if leader is not None and leader.is_us:
                return None
            if leader is not None and leader.address:
                why = f"the broker at {leader.address} leads and does not answer"
                pending = self._in_thread(partial(self._request, leader, scope, body))
                while not pending.done() and self._broker.leader == leader:
                    await asyncio.wait({pending}, timeout=_LOOK_S)
                try:
                    if pending.done():
                        return pending.result()
                    pending.cancel()  # another leads now
                    deadline = time.monotonic() + WAIT_S
                except requests.RequestException as error:
                    log.info("%s: %s", why, error)
                    if not (repeatable or _is_refused(error)):
                        break
                else:
                    if not repeatable:
                        break
            await asyncio.sleep(_LOOK_S)
        raise BrokerError(f"{why}; ask again", "store_unavailable")

    def _request(self, leader: Leader, scope: Message, body: bytes) -> requests.Response:
        headers = {
            name.decode("latin-1"): value.decode("latin-1")
            for name, value in _passed(scope["headers"])
        }
        # Who has no name on a certificate is not to have ours.
        headers[TLS_NAME_HEADER] = scope.get("extensions", {}).get(TLS_NAME) or ""
        headers[LEADER_SECRET] = leader.secret
        path = scope.get("raw_path") or scope["path"].encode()
        query = b"?" + scope["query_string"] if scope["query_string"] else b""
        url = leader.address.encode() + path.partition(b"?")[0] + query
        request = requests.Request(scope["method"], url.decode("latin-1"), headers, data=body)
        with _session(self._trust) as session:
            return session.send(
                request.prepare(),
                stream=True,
                allow_redirects=False,
                timeout=(_CONNECT_S, _SILENT_S),
            )

    async def _pass_back(self, answer: requests.Response, receive: Receive, send: Send) -> None:
        headers = ((k.encode("latin-1"), v.encode("latin-1")) for k, v in answer.headers.items())
        length = answer.headers.get("content-length")
        sent = [*_passed(headers), *([(b"content-length", length.encode())] if length else [])]
        loop, gone = asyncio.get_running_loop(), threading.Event()

        def write(message: Message) -> None:
            asyncio.run_coroutine_threadsafe(send(message), loop).result()  # type: ignore[arg-type]

        def pump() -> None:
            with answer:
                for piece in answer.raw.stream(_PIECE, decode_content=False):
                    if gone.is_set():
                        return
                    write({"type": "http.response.body", "body": piece, "more_body": True})
            write({"type": "http.response.body", "body": b""})

        async def watch() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            gone.set()

        await send({"type": "http.response.start", "status": answer.status_code, "headers": sent})
        watching = asyncio.create_task(watch())
        try:
            await self._in_thread(pump)
        finally:
            watching.cancel()

    @staticmethod
    def _in_thread(work: Callable[[], T]) -> asyncio.Future[T]:
        """What work gives, in a thread that nobody waits for at the end of the process."""
        done: Future[T] = Future()
        done.set_running_or_notify_cancel()

        def run() -> None:
            try:
                done.set_result(work())
            except BaseException as error:
                done.set_exception(error)

        threading.Thread(target=run, name="adon-forward", daemon=True).start()
        return asyncio.wrap_future(done)


def reach(address: str, trust: Trust) -> str:
    """In words, why the broker at a URL cannot be asked; "" where it answers, whatever it says."""
    try:
        with _session(trust) as session:
            session.get(f"{address}/v1/health", timeout=(_CONNECT_S, WAIT_S))
    except requests.RequestException as error:
        return printable(f"cannot be reached: {_reason(error) or error}")
    return ""


def _session(trust: Trust) -> requests.Session:
    session = requests.Session()
    session.trust_env = False  # no proxy between brokers
    session.verify = trust.authorities or True
    session.cert = trust.certificate
    return session


def _passed(headers: Headers) -> list[tuple[bytes, bytes]]:
    return [(name, value) for name, value in headers if name.lower() not in _NOT_PASSED]


def _reason(error: requests.RequestException) -> Any:
    """Why urllib3 gave up, None where it does not say."""
    return getattr(error.args[0] if error.args else None, "reason", None)


def _is_refused(error: requests.RequestException) -> bool:
    """Whether nothing was sent: no connection came about."""
    return isinstance(error, requests.ConnectTimeout) or isinstance(
        _reason(error), NewConnectionError
    )
