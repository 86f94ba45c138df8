"""Connections through two real agents are as without them, or reset."""

from __future__ import annotations

import itertools
import os
import random
import select
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from relay_rig import AGENTS, CLIENT, SERVER, SESSION, RelayRig, relays, within
from waiting import until

from tests.authority import Authority

PORT = 5001
DATA = random.Random(20).randbytes(5_000_000)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RelayRig]:
    with relays(tmp_path_factory.mktemp("relays")) as made:
        yield made


@pytest.fixture
def rig(made: RelayRig) -> RelayRig:
    """One for all, which serves :data:`SESSION` and has no connections."""
    made.serve(SESSION)
    until(made.idle, "connections of the test before to end")
    return made


def all_of(sock: socket.socket) -> bytes:
    """What comes until its proper end."""
    return b"".join(iter(lambda: sock.recv(1 << 16), b""))


def both(rig: RelayRig, port: int = PORT) -> tuple[socket.socket, socket.socket]:
    """The client's end of a connection, and the server's."""
    with rig.listen(port) as listener:
        client = rig.connect(port)
        server, _ = listener.accept()
    for sock in (client, server):
        sock.settimeout(60)
    return client, server


def together(*works: Callable[[], object]) -> None:
    """Run all at once; raises what one of them does."""
    errors: list[BaseException] = []

    def run(work: Callable[[], object]) -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def say(sock: socket.socket, data: bytes) -> None:
    """Send it, and that this was all."""
    sock.sendall(data)
    sock.shutdown(socket.SHUT_WR)


def turn_round(sock: socket.socket) -> None:
    """Answer all that comes with the same from its end."""
    sock.sendall(all_of(sock)[::-1])
    sock.close()


def same(sock: socket.socket, data: bytes) -> None:
    """Raises AssertionError if something else comes."""
    assert all_of(sock) == data


def flood(sock: socket.socket) -> None:
    """Send for ever, until it breaks."""
    with suppress(OSError):
        while True:
            sock.sendall(DATA)


def was_reset(sock: socket.socket) -> bool:
    """Whether its other end is gone, without a proper end before."""
    try:
        while sock.recv(1 << 16):
            pass
    except ConnectionResetError:
        return True
    return False


def is_reset(rig: RelayRig, port: int) -> bool:
    """Whether a new connection is reset, perhaps before the client knows that it is connected."""
    try:
        sock = rig.connect(port)
    except ConnectionResetError:
        return True
    sock.settimeout(60)
    return was_reset(sock)


def test_both_hosts_see_each_other_and_the_server_speaks_first(rig: RelayRig) -> None:
    client, server = both(rig)
    with client, server:
        assert client.getpeername() == (SERVER, PORT)
        assert server.getpeername() == client.getsockname()
        assert client.getsockname()[0] == CLIENT
        server.sendall(b"220 ready")
        assert client.recv(100) == b"220 ready"
        for name in AGENTS:
            until(lambda n=name: rig.status(n)["connections"] == {"t": 1}, f"{name} to count it")
        client.sendall(b"QUIT")
        assert server.recv(100) == b"QUIT"
    until(rig.idle, "both agents to be done")


@pytest.mark.parametrize("streams", [1, 5])
def test_both_directions_at_once_and_half_closed(rig: RelayRig, streams: int) -> None:
    rig.serve(replace(SESSION, streams=streams))
    client, server = both(rig)

    def upload() -> None:
        client.sendall(DATA)
        client.shutdown(socket.SHUT_WR)
        assert all_of(client) == DATA[::-1] + b"thanks"

    def download() -> None:
        server.sendall(DATA[::-1])
        assert all_of(server) == DATA
        server.sendall(b"thanks")  # the client's half has ended
        server.close()

    together(upload, download)
    client.close()
    until(rig.idle, "both agents to be done")


def test_two_clients_of_one_server_and_its_one_port(rig: RelayRig) -> None:
    with rig.listen(PORT) as listener:
        clients = [rig.connect(PORT) for _ in range(2)]
        servers = {}
        for _ in clients:
            sock, peer = listener.accept()
            servers[peer] = sock
        pairs = [(client, servers[client.getsockname()]) for client in clients]

        sent = (DATA[:1_000_000], DATA[1_000_000:3_000_000])
        together(
            *(partial(say, client, data) for (client, _), data in zip(pairs, sent, strict=True)),
            *(partial(turn_round, server) for _, server in pairs),
            *(
                partial(same, client, data[::-1])
                for (client, _), data in zip(pairs, sent, strict=True)
            ),
        )


def test_a_reset_is_a_reset_at_the_other_end(rig: RelayRig) -> None:
    for ours, theirs in ((0, 1), (1, 0)):
        ends = both(rig, PORT + ours)
        ends[theirs].sendall(b"never read")
        select.select([ends[ours]], [], [], 60)
        ends[ours].close()  # with something unread: the kernel resets it
        assert was_reset(ends[theirs])
        ends[theirs].close()
    assert is_reset(rig, PORT + 2)  # nobody listens


@pytest.mark.parametrize("name", list(AGENTS))
def test_a_killed_agent_resets_its_connections(rig: RelayRig, name: str) -> None:
    client, server = both(rig)
    threading.Thread(target=flood, args=(server,), daemon=True).start()
    assert client.recv(1000)
    os.kill(rig.agents[name].pid, signal.SIGKILL)
    assert was_reset(client)
    with pytest.raises(OSError):
        server.sendall(DATA * 10)
    other = next(n for n in AGENTS if n != name)
    until(lambda: not rig.status(other)["connections"], "the other agent to let go")
    rig.start(name)
    rig.serve(SESSION)
    again, there = both(rig)  # not over streams of before
    again.sendall(b"again")
    assert there.recv(100) == b"again"
    rig.redirect(False)  # what the broker does
    try:
        direct, there = both(rig)
        direct.sendall(b"directly")
        assert there.recv(100) == b"directly"
    finally:
        rig.redirect(True)


def test_what_is_no_sessions_any_more_is_reset(rig: RelayRig) -> None:
    client, server = both(rig)
    kept = replace(SESSION, rate_bps=50e6)
    rig.serve(kept)  # only its rate is another
    client.sendall(b"still there")
    assert server.recv(100) == b"still there"
    rig.serve(replace(kept, id="u", flows=()))
    assert was_reset(client)
    assert was_reset(server)
    rig.serve()
    assert is_reset(rig, PORT)


def test_who_does_not_read_holds_the_sender_back(rig: RelayRig) -> None:
    client, server = both(rig)
    client.setblocking(False)
    sent = 0
    for _ in itertools.count():
        _, ready, _ = select.select([], [client], [], 1.0)
        if not ready:
            break
        sent += client.send(DATA)
    assert sent < 100_000_000  # buffers of sockets, and nothing grows beyond
    client.setblocking(True)
    client.shutdown(socket.SHUT_WR)
    assert len(all_of(server)) == sent


def test_udp_goes_its_own_way(rig: RelayRig) -> None:
    there = within("server", lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    there.bind((SERVER, PORT))
    here = within("client", lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    here.sendto(b"datagram", (SERVER, PORT))
    there.settimeout(60)
    assert there.recv(100) == b"datagram"


def test_streams_by_tls_and_only_with_the_agent_that_was_named(
    rig: RelayRig, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    for name in AGENTS:
        rig.start(name, *authority.issue(name), authority.file)
    try:
        rig.serve(replace(SESSION, tls=True, streams=3))
        client, server = both(rig)
        together(
            partial(say, client, DATA),
            partial(turn_round, server),
            partial(same, client, DATA[::-1]),
        )
        rig.serve(replace(SESSION, id="other", tls=True, peer="somebody"))
        assert is_reset(rig, PORT)
    finally:
        for name in AGENTS:
            rig.start(name)
