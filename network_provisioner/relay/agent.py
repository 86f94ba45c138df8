"""An agent near a site: takes the connections of its hosts, and the streams of other agents.

    client ─► accepted by TPROXY, as the server ─► streams to the agent near the server
    streams of the agent near the client ─► connected to the server, as the client

It serves the sessions that it was given, and nobody else. Where a session is taken from it, or it
is killed, its connections are reset.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import select
import socket
import ssl
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any

from network_provisioner.relay.carrier import HEAD, Carrier, Hello, HelloError
from network_provisioner.relay.sessions import Address, Session
from network_provisioner.relay.sockets import (
    for_streams,
    listening,
    towards_host,
    transparent,
    tune_stream,
)
from network_provisioner.relay.streams import (
    ClearStream,
    Pipes,
    Stream,
    TlsStream,
    close_cleanly,
    reset_at_close,
)

log = logging.getLogger(__name__)

TPROXY_PORT = 27_000
WAIT_S = 2.0  # for the session of a connection to be known
OPEN_S = 10.0  # for the streams of a connection, and its server, to be reached
MOST_CONNECTIONS = 8192
_SPARE_TRIES, _SPARE_AGAIN_S = 10, 0.2
_AGAIN_S = 0.1  # where the system has no more descriptors

Work = Coroutine[Any, Any, None]
Works = set[asyncio.Task[None]]


@dataclass(frozen=True, slots=True)
class Contexts:
    """TLS for streams: as who opens one, and as who takes it. Both ask for certificates."""

    client: ssl.SSLContext
    server: ssl.SSLContext


@dataclass(eq=False, slots=True)
class _Coming:
    """The streams of a connection that are there by now, by their numbers."""

    streams: dict[int, Stream] = field(default_factory=dict)
    all_there: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(eq=False, slots=True)
class _Served:
    """A session, the tasks of its listener and connections, the streams that carry these, how many
    connections are open or being opened, and all names that connections had. ``spare`` streams
    are open, and the next connection need not wait for them."""

    session: Session
    works: Works = field(default_factory=set)
    carried: list[Sequence[Stream]] = field(default_factory=list)
    spare: list[Stream] = field(default_factory=list)
    open: int = 0
    coming: dict[str, _Coming] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)


class RelayAgent:
    """Runs in one event loop. ``address`` is its own in the data plane, ``port`` where TPROXY leads
    connections to. Without ``contexts`` it has no TLS for streams. ``begin`` is called, in a
    thread, before a session is served."""

    def __init__(
        self,
        address: str,
        port: int = TPROXY_PORT,
        contexts: Contexts | None = None,
        begin: Callable[[Session], None] = lambda _: None,
    ) -> None:
        self._address, self._port, self._contexts = address, port, contexts
        self._served: dict[str, _Served] = {}
        self._news = asyncio.Condition()
        self._pipes = Pipes()
        self._works: Works = set()
        self._begin = begin

    def start(self) -> None:
        """Take connections. Raises OSError."""
        listener = listening(transparent(), ("", self._port))
        _begin(self._works, self._accept(listener, self._works, self._from_client))

    async def close(self) -> None:
        """Reset all connections."""
        await self.take_in(())
        await _cancelled(self._works)
        self._pipes.close()

    async def take_in(self, sessions: Iterable[Session]) -> None:
        """Serve these sessions and no others; a connection is of the first that fits. Those of
        sessions that are not there any more, or have other streams, are reset; all others go on."""
        wanted = {session.id: session for session in sessions if session.until > time.time()}
        order = list(wanted)
        for name, served in list(self._served.items()):
            now, was = wanted.get(name), served.session
            if now is not None and now.opens_like(was):
                served.session = wanted.pop(name)
                for stream in chain(*served.carried) if now.rate_bps != was.rate_bps else ():
                    tune_stream(stream.sock, served.session)
            else:
                del self._served[name]
                await _cancelled(served.works)
                for stream in served.spare:
                    close_cleanly(stream.sock)
        for session in wanted.values():
            try:
                await asyncio.to_thread(self._begin, session)
                listener = listening(for_streams(session), (self._address, session.port))
            except OSError as error:
                log.warning("%s is not served: port %d: %s", session.id, session.port, error)
                continue
            served = self._served[session.id] = _Served(session)
            take = partial(self._from_agent, served)
            _begin(served.works, self._accept(listener, served.works, take))
            _begin(served.works, self._open_spare(served))
        self._served = {name: self._served[name] for name in order if name in self._served}
        async with self._news:
            self._news.notify_all()

    async def expire(self) -> None:
        """End the sessions whose time is over."""
        sessions = [served.session for served in self._served.values()]
        if any(session.until <= time.time() for session in sessions):
            await self.take_in(sessions)

    def connections(self) -> dict[str, int]:
        """How many are open, or being opened, by session."""
        return {name: it.open for name, it in self._served.items() if it.open}

    async def _accept(
        self, listener: socket.socket, works: Works, take: Callable[[socket.socket], Work]
    ) -> None:
        loop = asyncio.get_running_loop()
        try:
            while True:
                try:
                    sock, _ = await loop.sock_accept(listener)
                except OSError as error:  # no more descriptors: those that wait can wait
                    log.warning("a connection waits: %s", error)
                    await asyncio.sleep(_AGAIN_S)
                    continue
                reset_at_close(sock)
                if len(works) < MOST_CONNECTIONS:
                    _begin(works, take(sock))
                else:
                    sock.close()
        finally:
            listener.close()

    # -- the side of the client ------------------------------------------------------------------

    async def _from_client(self, sock: socket.socket) -> None:
        with _closing([sock]) as kept:
            client, server = sock.getpeername(), sock.getsockname()
            served = await self._session_of(client, server)
            # From here on it ends with its session.
            _begin(served.works, self._to_agent(served, sock, client, server))
            kept.clear()

    async def _session_of(self, client: Address, server: Address) -> _Served:
        def known() -> _Served | None:
            all_served = self._served.values()
            return next((it for it in all_served if it.session.carries(client, server, True)), None)

        try:
            async with asyncio.timeout(WAIT_S), self._news:
                while (served := known()) is None:
                    await self._news.wait()
        except TimeoutError:
            what = f"{client[0]} to {server[0]} port {server[1]}"
            raise HelloError(f"no session carries {what}") from None
        return served

    async def _to_agent(
        self, served: _Served, sock: socket.socket, client: Address, server: Address
    ) -> None:
        session, name = served.session, secrets.token_hex(8)
        with _closing([sock]) as kept, _counted(served):
            towards_host(sock)
            streams, served.spare = served.spare, []
            kept += [stream.sock for stream in streams]
            if len(streams) != session.streams or any(map(_has_ended, streams)):
                async with asyncio.timeout(OPEN_S):
                    streams = await self._opened(session, kept)
            _begin(served.works, self._open_spare(served))
            for number, stream in enumerate(streams):
                tune_stream(stream.sock, session)
                hello = Hello(session.id, name, client, server, number, len(streams))
                await stream.write(hello.pack(session.secret))
            await self._carry(served, sock, streams)

    async def _open_spare(self, served: _Served) -> None:
        """Open streams for a connection to come. The other agent may learn of the session later."""
        for _ in range(_SPARE_TRIES):
            kept: list[socket.socket] = []
            with suppress(OSError), _closing(kept):
                async with asyncio.timeout(OPEN_S):
                    streams = await self._opened(served.session, kept)
                if not served.spare:
                    served.spare = streams
                    kept.clear()
                return
            await asyncio.sleep(_SPARE_AGAIN_S)

    async def _opened(self, session: Session, kept: list[socket.socket]) -> list[Stream]:
        """Streams to the other agent. Raises OSError."""
        try:
            async with asyncio.TaskGroup() as group:
                opened = [
                    group.create_task(self._open(session, kept)) for _ in range(session.streams)
                ]
        except BaseExceptionGroup as several:
            raise several.exceptions[0] from None
        return [task.result() for task in opened]

    async def _open(self, session: Session, kept: list[socket.socket]) -> Stream:
        sock = for_streams(session)
        kept.append(sock)
        sock.bind((self._address, 0))
        loop = asyncio.get_running_loop()
        await loop.sock_connect(sock, (session.peer_address, session.port))
        return await self._stream(session, sock, kept, server=False)

    # -- the side of the server ------------------------------------------------------------------

    async def _from_agent(self, served: _Served, sock: socket.socket) -> None:
        session = served.session
        with _closing([sock]) as kept:
            async with asyncio.timeout(OPEN_S):
                stream = await self._stream(session, sock, kept, server=True)
            if not (head := await stream.read(HEAD.size)):
                return  # a spare one, that was not needed
            length, proof = HEAD.unpack(head)
            hello = Hello.unpack(proof, await stream.read(length), served.session.secret)
            first = hello.connection not in served.coming
            if first and hello.connection in served.names:
                raise HelloError("a stream belongs to an ended connection")
            served.names.add(hello.connection)
            coming = served.coming.setdefault(hello.connection, _Coming())
            coming.streams[hello.stream] = stream
            if len(coming.streams) == hello.streams:
                coming.all_there.set()
            kept.clear()
            if first:
                with _counted(served):
                    await self._when_all(served, hello, coming)

    async def _when_all(self, served: _Served, hello: Hello, coming: _Coming) -> None:
        kept = [transparent()]
        sock = kept[0]
        with _closing(kept):
            try:
                async with asyncio.timeout(OPEN_S):
                    await coming.all_there.wait()
                    if not served.session.carries(hello.client, hello.server, False):
                        raise HelloError(f"{hello.server[0]} is no host of the session")
                    towards_host(sock)
                    sock.bind(hello.client)
                    await asyncio.get_running_loop().sock_connect(sock, hello.server)
            finally:
                del served.coming[hello.connection]
                kept += [stream.sock for stream in coming.streams.values()]
            await self._carry(served, sock, list(coming.streams.values()))

    # -- both ------------------------------------------------------------------------------------

    async def _stream(
        self, session: Session, sock: socket.socket, kept: list[socket.socket], server: bool
    ) -> Stream:
        tune_stream(sock, session)
        if not session.tls:
            return ClearStream(sock)
        if self._contexts is None:
            raise HelloError("the session asks for TLS, and there is no certificate for it")
        context = self._contexts.server if server else self._contexts.client
        stream = await TlsStream.over(sock, context, server)
        kept[kept.index(sock)] = stream.sock
        if stream.peer != session.peer:
            raise HelloError(f"a stream is of {stream.peer!r}, expected {session.peer!r}")
        return stream

    async def _carry(self, served: _Served, sock: socket.socket, streams: Sequence[Stream]) -> None:
        served.carried.append(streams)
        try:
            await Carrier(sock, streams, self._pipes, served.session.chunk_bytes).run()
        finally:
            served.carried.remove(streams)


@contextmanager
def _closing(kept: list[socket.socket]) -> Iterator[list[socket.socket]]:
    """Close all that are kept by then."""
    try:
        yield kept
    finally:
        for sock in kept:
            sock.close()


@contextmanager
def _counted(served: _Served) -> Iterator[None]:
    """A connection is open meanwhile."""
    served.open += 1
    try:
        yield
    finally:
        served.open -= 1


def _has_ended(stream: Stream) -> bool:
    """Whether the other agent has closed it."""
    poll = select.poll()
    poll.register(stream.sock, select.POLLRDHUP)
    return bool(poll.poll(0))


def _begin(works: Works, work: Work) -> None:
    task = asyncio.get_running_loop().create_task(work)
    works.add(task)
    task.add_done_callback(partial(_ended, works))


def _ended(works: Works, task: asyncio.Task[None]) -> None:
    works.discard(task)
    error = None if task.cancelled() else task.exception()
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, OSError):  # also one that took too long: everyday on a network
        log.info("a connection was reset: %s", error or type(error).__name__)
    elif error is not None:
        log.error("a connection was reset", exc_info=error)


async def _cancelled(works: Works) -> None:
    tasks = list(works)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
