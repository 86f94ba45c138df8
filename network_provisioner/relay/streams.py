"""One connection between two agents, and the pipes through which bytes pass from socket to socket.

Clear bytes never enter Python: ``splice`` moves them from a socket into a pipe and from there into
the next socket. By TLS they are read from the pipe and encrypted.

Whatever closes a socket here without saying :func:`close_cleanly` resets the connection, also when
this process is killed: nobody takes the end of the process for the end of a file.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Protocol, Self, TypeVar

from network_provisioner.client.credentials import common_name

T = TypeVar("T")

_RESET = struct.pack("ii", 1, 0)
_NO_LINGER = struct.pack("ii", 0, 0)
_RECORD = 1 << 14  # the most that one record of TLS holds
_PIPE_BYTES = 1 << 20
_SPARE = 64  # pipes that are kept for the next who needs one
_FLAGS = os.SPLICE_F_NONBLOCK | os.SPLICE_F_MOVE


class Pipe:
    """A pipe, and how many bytes are in it."""

    def __init__(self) -> None:
        self.out, self.into = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self.held = 0
        with suppress(OSError):  # above what a user may have: smaller, and as good
            fcntl.fcntl(self.into, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)

    def fill(self, sock: socket.socket, most: int) -> int:
        """Take in what a socket has, 0 at its end. Raises BlockingIOError, OSError."""
        count = os.splice(sock.fileno(), self.into, most, flags=_FLAGS)
        self.held += count
        return count

    def drain(self, sock: socket.socket) -> None:
        """Give as much to a socket as it takes. Raises BlockingIOError, OSError."""
        self.held -= os.splice(self.out, sock.fileno(), self.held, flags=_FLAGS)

    def close(self) -> None:
        """Give it back to the system."""
        os.close(self.out)
        os.close(self.into)


class Pipes:
    """Pipes are had while bytes are in them: idle connections need none."""

    def __init__(self) -> None:
        self._spare: list[Pipe] = []

    def take(self) -> Pipe:
        """An empty one."""
        return self._spare.pop() if self._spare else Pipe()

    def give(self, pipe: Pipe) -> None:
        """Whoever took it needs it no more."""
        if pipe.held or len(self._spare) >= _SPARE:
            pipe.close()
        else:
            self._spare.append(pipe)

    async def filled(self, sock: socket.socket, most: int) -> Pipe:
        """One with what a socket has next, at most so many bytes; an empty one at its end."""
        while True:
            pipe = self.take()
            try:
                pipe.fill(sock, most)
            except BlockingIOError:
                self.give(pipe)
                await readable(sock)
            except OSError:
                self.give(pipe)
                raise
            else:
                return pipe

    def close(self) -> None:
        """Give all back to the system."""
        while self._spare:
            self._spare.pop().close()


async def readable(sock: socket.socket) -> None:
    """Wait until there is something to read. One may wait at a time."""
    loop = asyncio.get_running_loop()
    await _ready(sock, loop.add_reader, loop.remove_reader)


async def writable(sock: socket.socket) -> None:
    """Wait until there is room to write. One may wait at a time."""
    loop = asyncio.get_running_loop()
    await _ready(sock, loop.add_writer, loop.remove_writer)


async def _ready(
    sock: socket.socket, add: Callable[..., object], remove: Callable[..., object]
) -> None:
    number = sock.fileno()
    if number < 0:
        raise ConnectionAbortedError("the connection was closed")
    ready = asyncio.get_running_loop().create_future()
    add(number, _wake, ready)
    try:
        await ready
    finally:
        remove(number)


def _wake(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


async def drained(pipe: Pipe, sock: socket.socket) -> None:
    """Give all that a pipe holds to a socket."""
    while pipe.held:
        try:
            pipe.drain(sock)
        except BlockingIOError:
            await writable(sock)


def reset_at_close(sock: socket.socket) -> None:
    """Have it be reset by whatever closes it."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)


def close_cleanly(sock: socket.socket) -> None:
    """End what has come to its end; what is under way still arrives."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
    sock.close()


async def _exactly(n_bytes: int, some: Callable[[int], Awaitable[bytes]]) -> bytes:
    data = await some(n_bytes)
    while data and len(data) < n_bytes:
        more = await some(n_bytes - len(data))
        if not more:
            raise ConnectionResetError("a stream ended in the head of a chunk")
        data += more
    return data


class Stream(Protocol):
    """One connection to the other agent. One task reads, one writes."""

    sock: socket.socket

    async def read(self, n_bytes: int) -> bytes:
        """So many bytes; b"" at its end. Raises ConnectionResetError for an end between."""
        ...

    async def write(self, data: bytes, more: bool = False) -> None:
        """All of it; ``more`` follows at once."""
        ...

    async def send(self, pipe: Pipe) -> None:
        """All that a pipe holds."""
        ...

    async def filled(self, pipes: Pipes, most: int) -> Pipe:
        """A pipe with some of it. Raises ConnectionResetError at its end."""
        ...


class ClearStream:
    """A stream that anybody on its way can read."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock

    async def read(self, n_bytes: int) -> bytes:
        """See Stream."""
        return await _exactly(n_bytes, self._some)

    async def _some(self, most: int) -> bytes:
        while True:
            try:
                return self.sock.recv(most)
            except BlockingIOError:
                await readable(self.sock)

    async def write(self, data: bytes, more: bool = False) -> None:
        """See Stream."""
        while data:
            try:
                sent = self.sock.send(data, socket.MSG_MORE if more else 0)
                data = data[sent:]
            except BlockingIOError:
                await writable(self.sock)

    async def send(self, pipe: Pipe) -> None:
        """See Stream."""
        await drained(pipe, self.sock)

    async def filled(self, pipes: Pipes, most: int) -> Pipe:
        """See Stream."""
        pipe = await pipes.filled(self.sock, most)
        if not pipe.held:
            pipes.give(pipe)
            raise ConnectionResetError("a stream ended in a chunk")
        return pipe


class TlsStream:
    """A stream that only the two agents can read."""

    def __init__(self, sock: ssl.SSLSocket) -> None:
        self.sock: socket.socket = sock
        self._tls = sock

    @classmethod
    async def over(cls, sock: socket.socket, context: ssl.SSLContext, server: bool) -> Self:
        """After the handshake. Raises OSError (also ssl.SSLError)."""
        stream = cls(context.wrap_socket(sock, server_side=server, do_handshake_on_connect=False))
        await stream._when_ready(stream._tls.do_handshake)
        return stream

    @property
    def peer(self) -> str:
        """The common name on the certificate of the other agent."""
        return common_name(self._tls.getpeercert()) or ""

    async def read(self, n_bytes: int) -> bytes:
        """See Stream."""
        return await _exactly(n_bytes, self._some)

    async def _some(self, most: int) -> bytes:
        return await self._when_ready(partial(self._tls.recv, most))

    async def write(self, data: bytes, more: bool = False) -> None:
        """See Stream."""
        while data:
            data = data[await self._when_ready(partial(self._tls.send, data)) :]

    async def send(self, pipe: Pipe) -> None:
        """See Stream."""
        while pipe.held:
            data = os.read(pipe.out, pipe.held)
            pipe.held -= len(data)
            await self.write(data)

    async def filled(self, pipes: Pipes, most: int) -> Pipe:
        """See Stream."""
        data = await self._some(min(most, _RECORD))
        if not data:
            raise ConnectionResetError("a stream ended in a chunk")
        pipe = pipes.take()
        pipe.held = os.write(pipe.into, data)  # it is empty, and holds more than a record
        return pipe

    async def _when_ready(self, step: Callable[[], T]) -> T:
        while True:
            try:
                return step()
            except ssl.SSLWantReadError:
                await readable(self.sock)
            except ssl.SSLWantWriteError:
                await writable(self.sock)
