"""Carries one connection over streams, both ways, until both directions have ended.

    application ─► the senders, one for each stream, take chunks by turns, and write them
    application ◄─ the receivers, one for each stream, give on the chunk whose turn it is

A stream that is faster carries more. Where the application or the other agent takes nothing,
nothing more is read.

Each stream begins with what it is for, which the session's secret proves:

    length (2 bytes) · HMAC-SHA256 of the rest by the secret · JSON

and goes on, in both directions, with chunks; an empty one is the end of that direction:

    number (8 bytes) · length (4 bytes) · bytes

Chunks are numbered over all streams of a connection, and on one stream numbers only rise. So the
next chunk is always the first that has not been read on one of them: a receiver keeps order by
reading the others later, and needs no memory for it.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from network_provisioner.relay.sessions import VERSION, Address
from network_provisioner.relay.streams import (
    Pipes,
    Stream,
    close_cleanly,
    drained,
    reset_at_close,
)

CHUNK = struct.Struct("!QI")
HEAD = struct.Struct("!H32s")


class HelloError(ConnectionError):
    """A stream begins with something else."""


@dataclass(frozen=True, slots=True)
class Hello:
    """What a stream is for: number ``stream`` of ``streams`` that carry one ``connection`` (a
    random name, in hexadecimal) of a session, from a client to a server."""

    session: str
    connection: str
    client: Address
    server: Address
    stream: int
    streams: int

    def pack(self, secret: str) -> bytes:
        """As it is sent."""
        fields = [VERSION, self.session, self.connection, *self.client, *self.server]
        body = json.dumps([*fields, self.stream, self.streams]).encode()
        return HEAD.pack(len(body), _proof(secret, body)) + body

    @classmethod
    def unpack(cls, proof: bytes, body: bytes, secret: str) -> Self:
        """The inverse. Raises HelloError for what the secret does not prove, and for another
        version's."""
        if not hmac.compare_digest(proof, _proof(secret, body)):
            raise HelloError("a stream is not of its session")
        fields: list[Any] = json.loads(body)
        if fields[0] != VERSION:
            raise HelloError(f"a stream of version {fields[0]}, expected {VERSION}")
        _, session, connection, host, port, to, to_port, stream, streams = fields
        return cls(session, connection, (host, port), (to, to_port), stream, streams)


def _proof(secret: str, body: bytes) -> bytes:
    return hmac.digest(bytes.fromhex(secret), body, hashlib.sha256)


class Carrier:
    """One connection: ``application`` is the socket to the end host near this agent. Pieces of at
    most ``chunk_bytes`` go over the ``streams``."""

    def __init__(
        self, application: socket.socket, streams: Sequence[Stream], pipes: Pipes, chunk_bytes: int
    ) -> None:
        self._application, self._streams = application, streams
        self._pipes, self._chunk_bytes = pipes, chunk_bytes
        self._taking = asyncio.Lock()
        self._taken = 0  # chunks
        self._ended = False  # whether the application's end was taken
        self._given = 0  # chunks
        self._early: dict[int, asyncio.Future[None]] = {}  # receivers that wait for their turn
        self._open = len(streams)
        self._all_given = asyncio.Event()

    async def run(self) -> None:
        """Carry all there is, and close the sockets: they are reset where one of them was, or where
        this is cancelled. Raises OSError for the first."""
        sockets = [self._application, *(stream.sock for stream in self._streams)]
        for sock in sockets:
            reset_at_close(sock)
        try:
            async with asyncio.TaskGroup() as group:
                receivers = [group.create_task(self._receive(stream)) for stream in self._streams]
                senders = [group.create_task(self._send(stream)) for stream in self._streams]
                await asyncio.wait(senders)
                await self._all_given.wait()
                for receiver in receivers:
                    receiver.cancel()
            for sock in sockets:
                close_cleanly(sock)
        except BaseExceptionGroup as several:
            raise several.exceptions[0] from None
        finally:
            for sock in sockets:
                sock.close()

    # -- from the application ------------------------------------------------------------------

    async def _send(self, stream: Stream) -> None:
        while True:
            async with self._taking:
                if self._ended:
                    return
                pipe = await self._pipes.filled(self._application, self._chunk_bytes)
                number, self._taken = self._taken, self._taken + 1
                self._ended = not pipe.held
            try:
                await stream.write(CHUNK.pack(number, pipe.held), more=pipe.held > 0)
                await stream.send(pipe)
            finally:
                self._pipes.give(pipe)

    # -- to the application --------------------------------------------------------------------

    async def _receive(self, stream: Stream) -> None:
        while head := await stream.read(CHUNK.size):
            number, left = CHUNK.unpack(head)
            await self._turn_of(number)
            if not left:
                self._application.shutdown(socket.SHUT_WR)
                self._all_given.set()
            while left:
                left -= await self._pass(stream, left)
            self._given += 1
            if (next_one := self._early.pop(self._given, None)) is not None:
                next_one.set_result(None)
        # The other agent ends all streams once it has sent all: the last chunk may be on another.
        self._open -= 1
        self._check_streams()

    async def _turn_of(self, number: int) -> None:
        if number != self._given:
            turn = self._early[number] = asyncio.get_running_loop().create_future()
            self._check_streams()
            await turn

    def _check_streams(self) -> None:
        # Who waits for a turn reads nothing: if all do, the chunk whose turn it is never comes.
        if len(self._early) == self._open and not self._all_given.is_set():
            raise ConnectionResetError("the streams ended before their connection")

    async def _pass(self, stream: Stream, most: int) -> int:
        """Give some of a chunk on; how much."""
        pipe = await stream.filled(self._pipes, most)
        n_bytes = pipe.held
        try:
            await drained(pipe, self._application)
        finally:
            self._pipes.give(pipe)
        return n_bytes
