"""A connection over streams: every byte once and in order, however the streams take turns, and
never an end that was not one."""

from __future__ import annotations

import asyncio
import os
import random
import socket
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from network_provisioner.relay.carrier import CHUNK, Carrier
from network_provisioner.relay.streams import ClearStream, Pipe, Pipes


class Wire:
    """One direction of a stream: what was written, and as much of it as has arrived."""

    def __init__(self) -> None:
        self.written, self.arrived = bytearray(), bytearray()
        self.cut = False
        self.news = asyncio.Event()

    def move(self, n_bytes: int) -> None:
        """Have some arrive."""
        self.arrived += self.written[:n_bytes]
        del self.written[:n_bytes]
        self.news.set()


class WireStream:
    """A stream of two wires; ``sock`` is only there to be closed."""

    def __init__(self, to: Wire, by: Wire) -> None:
        self.sock = socket.socket()
        self._to, self._by = to, by

    async def _some(self, most: int) -> bytes:
        while not self._by.arrived and not self._by.cut:
            self._by.news.clear()
            await self._by.news.wait()
        data = bytes(self._by.arrived[:most])
        del self._by.arrived[:most]
        return data

    async def read(self, n_bytes: int) -> bytes:
        data = await self._some(n_bytes)
        while data and len(data) < n_bytes:
            more = await self._some(n_bytes - len(data))
            if not more:
                raise ConnectionResetError
            data += more
        return data

    async def write(self, data: bytes, more: bool = False) -> None:
        self._to.written += data

    async def send(self, pipe: Pipe) -> None:
        self._to.written += os.read(pipe.out, pipe.held)
        pipe.held = 0

    async def filled(self, pipes: Pipes, most: int) -> Pipe:
        data = await self._some(most)
        if not data:
            raise ConnectionResetError
        pipe = pipes.take()
        pipe.held = os.write(pipe.into, data)
        return pipe


def pair() -> tuple[socket.socket, socket.socket]:
    """Two ends of a TCP connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = socket.create_connection(server.getsockname())
        theirs, _ = server.accept()
    for sock in (ours, theirs):
        sock.setblocking(False)
    return ours, theirs


async def received(sock: socket.socket) -> tuple[bytes, bool]:
    """All that comes, and whether it ended properly."""
    data = b""
    try:
        while more := await asyncio.get_running_loop().sock_recv(sock, 1 << 16):
            data += more
    except ConnectionResetError:
        return data, False
    return data, True


async def spoken(sock: socket.socket, pieces: Sequence[bytes]) -> None:
    """Send pieces, and say that this was all."""
    for piece in pieces:
        await asyncio.get_running_loop().sock_sendall(sock, piece)
        await asyncio.sleep(0)
    sock.shutdown(socket.SHUT_WR)


PIECES = st.lists(st.binary(max_size=3000), max_size=8)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 5), st.integers(1, 2000), PIECES, PIECES, st.integers(0, 1 << 32),
    st.none() | st.integers(0, 4000),
)  # fmt: skip
def test_whatever_the_order_bytes_are_the_same(
    n_streams: int,
    chunk_bytes: int,
    there: list[bytes],
    back: list[bytes],
    seed: int,
    cut_after: int | None,
) -> None:
    async def carried() -> None:
        wires = [(Wire(), Wire()) for _ in range(n_streams)]
        pipes = Pipes()
        (client, near), (server, far) = pair(), pair()
        ends = [
            Carrier(near, [WireStream(a, b) for a, b in wires], pipes, chunk_bytes).run(),
            Carrier(far, [WireStream(b, a) for a, b in wires], pipes, chunk_bytes).run(),
        ]
        works = [asyncio.create_task(end) for end in ends]
        talks = [spoken(client, there), spoken(server, back), received(client), received(server)]
        talk = asyncio.gather(*talks, return_exceptions=True)
        chance = random.Random(seed)
        every = [wire for both in wires for wire in both]
        left = cut_after
        while not talk.done() and (left is None or left > 0):
            wire, n_bytes = chance.choice(every), chance.randrange(1, 5000)
            left = None if left is None else left - min(n_bytes, len(wire.written))
            wire.move(n_bytes)
            await asyncio.sleep(0)
        if left is not None:
            for wire in every:
                wire.cut = True
                wire.news.set()
        *spoke, (at_client, client_end), (at_server, server_end) = await talk
        if cut_after is None:
            assert (client_end, server_end) == (True, True)
            await asyncio.gather(*works)
        # A socket reports a reset once: to the writer or to the reader.
        for said, got, ended, sent in zip(
            spoke, (at_client, at_server), (client_end, server_end), (back, there), strict=True
        ):
            whole = b"".join(sent)
            assert whole.startswith(got)
            assert got == whole or not ended or isinstance(said, OSError)
        await asyncio.gather(*works, return_exceptions=True)
        for sock in (client, server):
            sock.close()
        pipes.close()

    asyncio.run(carried())


def test_over_tcp_both_ways_at_once() -> None:
    async def carried() -> None:
        pipes = Pipes()
        (client, near), (server, far) = pair(), pair()
        streams = [pair() for _ in range(3)]
        works = [
            asyncio.create_task(Carrier(app, [ClearStream(s) for s in side], pipes, 1 << 16).run())
            for app, side in ((near, [a for a, _ in streams]), (far, [b for _, b in streams]))
        ]
        data = [random.Random(1).randbytes(3_000_000), random.Random(2).randbytes(2_000_000)]
        talks = [spoken(client, data[:1]), spoken(server, data[1:])]
        *_, at_client, at_server = await asyncio.gather(*talks, received(client), received(server))
        await asyncio.gather(*works)
        pipes.close()
        assert (at_client[0], at_server[0]) == (data[1], data[0])

    asyncio.run(carried())


@pytest.mark.parametrize("early", [True, False])
def test_a_chunk_whose_turn_cannot_come_any_more_ends_the_connection(early: bool) -> None:
    """Two chunks wait for one that was on a stream which has ended, before them or after."""

    async def carried() -> None:
        wires = [Wire() for _ in range(3)]
        client, near = pair()
        streams = [WireStream(Wire(), wire) for wire in wires]
        work = asyncio.create_task(Carrier(near, streams, Pipes(), 100).run())
        for number, wire in enumerate(wires[:2], 1):
            wire.written += CHUNK.pack(number, 3) + b"abc"
        for wire in wires if early else reversed(wires):
            wire.cut = wire is wires[2]
            wire.move(100)
            for _ in range(5):
                await asyncio.sleep(0)
        with pytest.raises(ConnectionResetError, match="ended before their connection"):
            await work
        assert await received(client) == (b"", False)
        client.close()

    asyncio.run(carried())


def test_pipes_are_used_again_unless_something_is_in_them() -> None:
    pipes = Pipes()
    first = pipes.take()
    pipes.give(first)
    assert pipes.take() is first
    first.held = 1
    pipes.give(first)
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(first.out)
