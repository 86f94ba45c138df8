"""Connections of clients: patience for slow ones, and the name on a client's certificate.

The server itself waits for ever for the first line of a request. Here a connection on which no
request arrives, or whose answer is not taken, is closed, so that such clients cannot use up what a
process may have open; and what is no HTTP is answered in the one shape of errors.
"""

from __future__ import annotations

import asyncio
import json
import math
import socket
import ssl
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from network_provisioner.api.gate import TLS_NAME, App, Message, Receive, Send
from network_provisioner.base.release import HEADER, release
from network_provisioner.client.credentials import common_name

HEAD_S = 10.0  # for the head of a request to arrive, from connecting or from the last answer
LINGER_S = 2.0  # for a client to read why it was refused, while it may still be sending
STOP_S = 10  # for answers under way when the service is told to stop
MOST_CONNECTIONS = 500  # half of the descriptors a process usually may have


class Connection(H11Protocol):
    """One connection, as uvicorn's own and stricter."""

    _deadline: asyncio.TimerHandle | None = None
    _refused = False
    _unsent = math.inf  # bytes of the last answer that were not taken when it was last looked

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Called by asyncio."""
        super().connection_made(transport)
        if len(self.connections) > MOST_CONNECTIONS:
            transport.abort()
            return
        name = common_name(transport.get_extra_info("peercert"))
        if name is not None:
            self.app = _named(self.app, name)
        self._expect_request()

    def data_received(self, data: bytes) -> None:
        """Called by asyncio."""
        if self._refused:
            return
        super().data_received(data)
        if self._answers() and not self.flow.write_paused:
            self._request_came()

    def pause_writing(self) -> None:
        """Called by asyncio, where the client does not take an answer as fast as it is made: also
        one that has no end of its own is given up where it is not taken at all."""
        super().pause_writing()
        self._unsent = math.inf
        self._expect_request()

    def resume_writing(self) -> None:
        """Called by asyncio."""
        super().resume_writing()
        if self._answers():
            self._request_came()

    def on_response_complete(self) -> None:
        """Called by uvicorn."""
        super().on_response_complete()
        if self.cycle is None or self.cycle.response_complete:  # else the next one came with it
            self._unsent = math.inf
            self._expect_request()

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by asyncio."""
        self._forget_deadline()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Called by uvicorn for what is no HTTP, or has too long a head. The rest of it is read and
        dropped for a while: closing at once resets the connection, and the answer with it."""
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True  # what it answers from here on goes nowhere
            self.cycle.message_event.set()
        body = json.dumps({"error": {"code": "bad_request", "message": msg}}).encode()
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"connection", b"close"),
        ]
        for event in (
            h11.Response(status_code=400, headers=headers, reason=b"Bad Request"),
            h11.Data(data=body),
            h11.EndOfMessage(),
        ):
            sent = self.conn.send(event)
            if sent:
                self.transport.write(sent)
        if self.transport.can_write_eof():  # not by TLS
            self.transport.write_eof()
        self._request_came()
        self._deadline = self.loop.call_later(LINGER_S, self.transport.abort)
        self._refused = True  # from here on nothing moves the deadline

    def _answers(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _expect_request(self) -> None:
        if self._refused:
            return
        self._request_came()
        self._deadline = self.loop.call_later(HEAD_S, self._late)

    def _late(self) -> None:
        unsent, before = self.transport.get_write_buffer_size(), self._unsent
        if 0 < unsent < before:  # it still takes the last answer, however slowly
            self._unsent = unsent
            self._expect_request()
        else:
            self.transport.abort()

    def _request_came(self) -> None:
        if not self._refused:
            self._forget_deadline()

    def _forget_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def _named(app: Any, name: str) -> App:
    async def with_name(scope: Message, receive: Receive, send: Send) -> None:
        scope.setdefault("extensions", {})[TLS_NAME] = name
        await app(scope, receive, send)

    return with_name


def server_context(certificate: str, key: str, clients: str | None) -> ssl.SSLContext:
    """TLS for the service; with ``clients``, the authorities that sign clients' certificates, every
    client must show one. Raises OSError (also ssl.SSLError) for files that cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # Without a password: nobody is there to type one, and OpenSSL would ask.
    context.load_cert_chain(certificate, key, password="")
    if clients is not None:
        context.load_verify_locations(clients)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def server(app: Any, tls: ssl.SSLContext | None = None) -> uvicorn.Server:
    """A server for the application, with connections as above; ``run(sockets=[...])`` serves."""
    settings = uvicorn.Config(
        app,
        http=Connection,
        ws="none",
        log_level="warning",
        access_log=False,  # the log is no place for who asked what
        server_header=False,
        headers=[(HEADER, release())],
        timeout_graceful_shutdown=STOP_S,
    )
    settings.load()
    settings.ssl = tls
    return _Server(settings)


class _Server(uvicorn.Server):
    """Tells answers that have no end of their own that the service stops."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Called by uvicorn."""
        state = getattr(self.config.app, "state", None)
        if state is not None:
            state.stopping = True
        await super().shutdown(sockets)


def stopping(app: Any) -> bool:
    """Whether the service of this application was told to stop."""
    return getattr(app.state, "stopping", False)
