"""One OpenFlow connection: requests, their answers and the errors in between."""

from __future__ import annotations

import logging
import socket
import struct
import threading
from collections.abc import Callable, Iterable
from typing import Any

from network_provisioner.controllers import wire

LOG = logging.getLogger(__name__)

# A switch that vanished without a word is noticed after about 11 s.
_KEEPALIVE = ((socket.TCP_KEEPIDLE, 5), (socket.TCP_KEEPINTVL, 2), (socket.TCP_KEEPCNT, 3))
_HANDSHAKE_S = 10.0
# Kernel-side send timeout (struct timeval): nobody waits forever on a switch that does not read.
_SEND_TIMEOUT = struct.pack("ll", 10, 0)


class ChannelLostError(Exception):
    """The connection ended, or no answer came in time."""


class Ticket:
    """A batch of messages with one final answer; refusals of any of them are collected."""

    def __init__(self, xids: list[int]) -> None:
        self._done = threading.Event()
        self._lost = ""
        self.xids = xids
        self.replies: list[Any] = []
        self.errors: list[tuple[int, Any]] = []

    def wait(self, timeout_s: float) -> None:
        """Until the answer is complete. Raises ChannelLostError."""
        if not self._done.wait(timeout_s):
            raise ChannelLostError(f"no answer within {timeout_s:g} s")
        if self._lost:
            raise ChannelLostError(self._lost)

    def finish(self, lost: str = "") -> None:
        """The answer is complete, or will never come."""
        self._lost = lost
        self._done.set()


class Channel:
    """A connected switch, from the handshake to the end of the connection.

    ``serve`` runs in a thread of its own and reads everything the switch says; other threads
    ``submit`` messages and wait for their tickets.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._stream = sock.makefile("rb")
        self._lock = threading.Lock()
        self._write_lock = threading.Lock()
        self._tickets: dict[int, Ticket] = {}
        self._xid = 0
        self._closed = False
        self.dpid = 0
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _KEEPALIVE:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)

    def handshake(self) -> None:
        """Exchange hellos and learn the datapath id. Raises ChannelLostError."""
        self._sock.settimeout(_HANDSHAKE_S)
        try:
            self._send([wire.hello()])
            if wire.header(self._read())[1] != wire.HELLO:
                raise ChannelLostError("the first message is no OpenFlow hello")
            self._send([wire.features_request()])
            while not self.dpid:
                data = self._read()
                version, _, _, _ = wire.header(data)
                if version != wire.VERSION:
                    raise ChannelLostError(f"OpenFlow version {version:#x}, expected 0x4 (1.3)")
                message = self._decode(data)
                self.dpid = getattr(message, "datapath_id", 0)
        except OSError as error:
            raise ChannelLostError(f"handshake: {error}") from error
        self._sock.settimeout(None)
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _SEND_TIMEOUT)

    def serve(self, on_message: Callable[[Any], None]) -> None:
        """Read until the connection ends; what answers no ticket goes to ``on_message``."""
        reason = "the connection was closed"
        try:
            while True:
                message = self._decode(self._read())
                if isinstance(message, wire.PARSER.OFPEchoRequest):
                    self._send([wire.echo_reply(message)], [message.xid])
                elif message is not None and not self._answer(message):
                    on_message(message)
        except (ChannelLostError, OSError) as error:
            reason = str(error) or reason
        finally:
            self.close(reason)

    def submit(self, messages: Iterable[Any], *, last: Any = None) -> Ticket:
        """Send messages and ``last`` (a barrier where not given), whose answer ends the ticket.

        The ticket's ``errors`` name refused messages by their position. Raises nothing: a lost
        connection ends the ticket.
        """
        batch = [*messages, last or wire.barrier()]
        with self._lock:
            ticket = Ticket([self._next_xid() for _ in batch])
            if self._closed:
                ticket.finish("the connection was closed")
                return ticket
            self._tickets.update((xid, ticket) for xid in ticket.xids)
        try:
            self._send(batch, ticket.xids)
        except OSError as error:
            self.close(f"sending: {error}")
        return ticket

    def close(self, reason: str = "the connection was closed") -> None:
        """End the connection and every ticket that waits on it."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            waiting = set(self._tickets.values())
            self._tickets.clear()
        for ticket in waiting:
            ticket.finish(reason)
        try:
            self._sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            LOG.debug("switch %d had hung up already", self.dpid)
        self._sock.close()

    @staticmethod
    def _decode(data: bytes) -> Any:
        try:
            return wire.decode(data)
        except Exception as error:
            # The library's decoders raise whatever a wrong length or number leads them to.
            kind = type(error).__name__
            raise ChannelLostError(
                f"a message of type {data[1]} and {len(data)} bytes that is none ({kind})"
            ) from error

    def _answer(self, message: Any) -> bool:
        with self._lock:
            ticket = self._tickets.get(message.xid)
            if ticket is None:
                return False
            if isinstance(message, wire.PARSER.OFPErrorMsg):
                ticket.errors.append((ticket.xids.index(message.xid), message))
            else:
                ticket.replies.append(message)
            is_last = message.xid == ticket.xids[-1] and not wire.more_follows(message)
            if is_last:
                for xid in ticket.xids:
                    del self._tickets[xid]
        if is_last:
            ticket.finish()
        return True

    def _next_xid(self) -> int:
        # 0 is what switches use for messages of their own.
        self._xid = self._xid % 0x7FFF_FFFF + 1
        return self._xid

    def _send(self, messages: list[Any], xids: list[int] | None = None) -> None:
        numbers = xids or [0] * len(messages)
        data = b"".join(wire.encode(m, x) for m, x in zip(messages, numbers, strict=True))
        with self._write_lock:
            self._sock.sendall(data)

    def _read(self) -> bytes:
        head = self._stream.read(wire.HEADER_BYTES)
        if len(head) < wire.HEADER_BYTES:
            raise ChannelLostError("the switch closed the connection")
        length = wire.header(head)[2]
        if length < wire.HEADER_BYTES:
            raise ChannelLostError(f"a message of {length} bytes, expected 8 or more")
        body = self._stream.read(length - wire.HEADER_BYTES)
        return bytes(head + body)
