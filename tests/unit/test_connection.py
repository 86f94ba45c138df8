"""Real sockets: clients that are slow, send no HTTP, far too much, or nothing at all."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import AsyncIterator

import pytest
from api_rig import ASK, FOR_EVER_S, application, error, keyring, raw, serving, token_of
from broker_rig import Rig
from fastapi import FastAPI, Response
from fastapi.responses import StreamingResponse
from fastapi.testclient import TestClient

from network_provisioner.api import connection, create_app, gate
from network_provisioner.base.model import TransitRequest
from network_provisioner.client.broker import BrokerClient

BIG = 64 * 2**20
HEAD = b"POST /v1/transits HTTP/1.1\r\nHost: b\r\nContent-Type: application/json\r\n"


def test_clients_that_send_nothing_block_nobody_and_are_let_go(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "HEAD_S", 1.0)
    made, taken = connection.Connection.connection_made, threading.Semaphore(0)

    def counted(self: connection.Connection, transport: asyncio.Transport) -> None:
        made(self, transport)
        taken.release()

    monkeypatch.setattr(connection.Connection, "connection_made", counted)
    with serving(application(rig)) as port:
        idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(50)]
        idle[0].sendall(b"GET /v1/he")  # half a request line
        assert all(taken.acquire(timeout=FOR_EVER_S) for _ in idle)
        monkeypatch.setattr(connection, "HEAD_S", FOR_EVER_S)  # of those that come later
        client = BrokerClient(f"http://127.0.0.1:{port}", FOR_EVER_S)
        assert client.request(TransitRequest("a", "mu", "tacc")).id == "a"
        for sock in idle:
            sock.settimeout(FOR_EVER_S)
            with contextlib.suppress(ConnectionResetError):
                assert sock.recv(10) == b""
            sock.close()


def test_a_body_that_dribbles_is_refused_in_time(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "BODY_S", 0.3)
    with serving(application(rig)) as port:
        answer = raw(port, HEAD + b'Content-Length: 100\r\n\r\n{"id":')
    assert b" 408 " in answer.splitlines()[0] and b'"code":"timeout"' in answer
    assert rig.broker.list() == []


def test_more_connections_than_a_process_may_have(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "MOST_CONNECTIONS", 10)
    monkeypatch.setattr(connection, "HEAD_S", FOR_EVER_S)  # nobody is let go for being late
    with serving(application(rig)) as port:
        held = [socket.create_connection(("127.0.0.1", port)) for _ in range(30)]
        refused = 0
        for sock in held:
            sock.settimeout(FOR_EVER_S)
            try:
                sock.sendall(b"GET /v1/health HTTP/1.1\r\nHost: b\r\n\r\n")
                refused += b"200 OK" not in sock.makefile("rb").readline()
            except OSError:
                refused += 1
        assert refused == 20
        for sock in held:
            sock.close()


def big(app: FastAPI) -> FastAPI:
    """An application with an answer that no buffer of the system holds."""
    app.get("/big")(lambda: Response(b"x" * BIG))
    return app


@pytest.mark.long
def test_an_answer_that_is_taken_slowly_is_sent_to_its_end(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "HEAD_S", 15.0)
    with serving(big(application(rig))) as port, socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.settimeout(FOR_EVER_S)
        sock.connect(("127.0.0.1", port))
        sock.sendall(b"GET /big HTTP/1.0\r\nHost: b\r\n\r\n")
        got, paused = 0, 0
        while piece := sock.recv(2**20):
            got += len(piece)
            if got > (paused + 1) * BIG / 8:  # pauses that are longer together than the patience
                paused += 1
                threading.Event().wait(2.0)
        assert got > BIG and paused >= 7


def test_an_answer_that_nobody_takes_is_given_up(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "HEAD_S", 1.0)
    late, given_up = connection.Connection._late, threading.Event()

    def watched(self: connection.Connection) -> None:
        late(self)
        if self.transport.is_closing():
            given_up.set()

    monkeypatch.setattr(connection.Connection, "_late", watched)
    with serving(big(application(rig))) as port, socket.socket() as sock:
        sock.settimeout(FOR_EVER_S)
        sock.connect(("127.0.0.1", port))
        sock.sendall(b"GET /big HTTP/1.1\r\nHost: b\r\n\r\n")
        assert given_up.wait(FOR_EVER_S)
        got = 0
        with contextlib.suppress(ConnectionResetError):
            while piece := sock.recv(2**20):
                got += len(piece)
        assert got < BIG


@pytest.mark.parametrize("more", [b"", b"GET /v1/health HTTP/1.1\r\nHost: b\r\n\r\n"])
def test_an_answer_without_an_end_that_nobody_takes_is_given_up(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, more: bytes
) -> None:
    monkeypatch.setattr(connection, "HEAD_S", FOR_EVER_S)
    app, ended = application(rig), threading.Event()

    async def for_ever() -> AsyncIterator[bytes]:
        monkeypatch.setattr(connection, "HEAD_S", 1.0)  # the request has come
        try:
            while True:
                yield b"x" * 2**16
                await asyncio.sleep(0)  # the server waits for no one who has gone
        finally:
            ended.set()

    app.get("/for-ever")(lambda: StreamingResponse(for_ever()))
    with serving(app) as port, socket.create_connection(("127.0.0.1", port)) as sock:
        sock.sendall(b"GET /for-ever HTTP/1.1\r\nHost: b\r\n\r\n")
        assert sock.recv(100)
        sock.sendall(more)  # nor does asking for more keep it
        assert ended.wait(FOR_EVER_S)


def test_head_of_an_answer_without_an_end_is_its_head(rig: Rig) -> None:
    app, ended = application(rig), threading.Event()

    async def for_ever() -> AsyncIterator[bytes]:
        try:
            while True:
                yield b"x"
                await asyncio.sleep(0.01)
        finally:
            ended.set()

    app.get("/for-ever")(lambda: StreamingResponse(for_ever()))
    headers = b" HTTP/1.1\r\nHost: b\r\n"
    with serving(app) as port:
        answers = raw(port, b"HEAD /for-ever" + headers + b"\r\n",
                   b"HEAD /v1/health" + headers + b"Connection: close\r\n\r\n")  # fmt: skip
        assert ended.wait(FOR_EVER_S)
    first, second, rest = answers.split(b"\r\n\r\n")
    assert first.startswith(b"HTTP/1.1 200") and second.startswith(b"HTTP/1.1 200")
    assert b"content-length" in second.lower() and rest == b""


def test_http_1_0_without_a_host_is_answered(rig: Rig) -> None:
    app = create_app(rig.broker, own_host=lambda name: name == "localhost")
    with serving(app) as port:
        assert b" 200 OK" in raw(port, b"GET /v1/health HTTP/1.0\r\n\r\n")
        named = raw(port, b"GET /v1/health HTTP/1.0\r\nHost: evil.example\r\n\r\n")
        assert b" 403 " in named.splitlines()[0]
        assert b" 400 " in raw(port, b"GET /v1/health HTTP/1.1\r\n\r\n").splitlines()[0]


def test_a_target_may_be_a_whole_url(rig: Rig) -> None:
    app = create_app(rig.broker, own_host=lambda name: name == "localhost")
    with serving(app) as port:
        for host, status in (("localhost", b" 200 "), ("evil.example", b" 403 ")):
            request = f"GET http://{host}/v1/health?x=1 HTTP/1.1\r\nHost: {host}\r\n"
            answer = raw(port, request.encode() + b"Connection: close\r\n\r\n")
            assert status in answer.splitlines()[0]


@pytest.mark.parametrize("declared", [True, False])
def test_a_body_of_100_mb_is_refused_before_it_is_kept(
    rig: Rig, declared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate, "BODY_S", FOR_EVER_S)
    kept: list[int] = []
    body_of = gate._body

    async def watched(scope: gate.Message, receive: gate.Receive) -> list[gate.Message]:
        async def counted() -> gate.Message:
            message = await receive()
            kept.append(len(message.get("body", b"")))
            return message

        return await body_of(scope, counted)

    monkeypatch.setattr(gate, "_body", watched)
    piece = b"a" * 2**20
    length = b"Content-Length: 104857600" if declared else b"Transfer-Encoding: chunked"
    with (
        serving(application(rig)) as port,
        socket.create_connection(("127.0.0.1", port), FOR_EVER_S) as sock,
    ):
        sock.sendall(HEAD + length + b"\r\n\r\n")
        sent = 0
        try:
            for _ in range(100):
                sock.sendall(piece if declared else b"100000\r\n" + piece + b"\r\n")
                sent += len(piece)
        except OSError:
            pass  # it hangs up on who goes on sending
        answer = b""
        with contextlib.suppress(OSError):  # what it did not read may reset the connection first
            while piece := sock.recv(65536):
                answer += piece
        head, _, body = answer.partition(b"\r\n\r\n")
        assert not head or b" 413 " in head.splitlines()[0]
        assert not body or b'"code":"too_large"' in body
        assert sent < 100 * 2**20
        client = BrokerClient(f"http://127.0.0.1:{port}", FOR_EVER_S)
        assert client.health()["live"] == 0
    assert sum(kept) < 2**20


def test_who_is_refused_behind_a_big_answer_is_let_go_as_well(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "LINGER_S", 0.2)
    big_one = b"GET /big HTTP/1.1\r\nHost: b\r\n\r\n"
    with (
        serving(big(application(rig))) as port,
        socket.create_connection(("127.0.0.1", port), FOR_EVER_S) as sock,
    ):
        sock.sendall(big_one + HEAD + b"Transfer-Encoding: chunked\r\n\r\nno length\r\n")
        threading.Event().wait(0.1)
        with contextlib.suppress(ConnectionResetError):
            while sock.recv(2**20):
                pass
        with pytest.raises(ConnectionError):
            while True:
                sock.sendall(b"more")
                threading.Event().wait(0.01)


@pytest.mark.parametrize(
    "sent",
    [b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
     b"GET / HTTP/1.1\r\n\r\n", b"GET /\xff HTTP/1.1\r\nHost: b\r\n\r\n",
     b"GET / HTTP/1.1\r\nHost: b\r\nContent-Length: -1\r\n\r\n"],
)  # fmt: skip
def test_what_is_no_http_is_answered_in_the_one_shape(rig: Rig, sent: bytes) -> None:
    with serving(application(rig)) as port:
        answer = raw(port, sent)
    assert answer.startswith(b"HTTP/1.1 400 ") and b'{"error": {"code": "bad_request"' in answer


def test_who_sends_far_too_long_a_head_reads_why_it_was_refused(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "LINGER_S", FOR_EVER_S)
    with serving(application(rig)) as port:
        for _ in range(10):  # a reset would take the answer away now and then only
            answer = raw(port, b"GET /v1/health?" + b"a" * 2**20 + b" HTTP/1.1\r\n")
            assert answer.startswith(b"HTTP/1.1 400 ")


def test_who_goes_on_sending_is_let_go(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "LINGER_S", 0.2)
    with (
        serving(application(rig)) as port,
        socket.create_connection(("127.0.0.1", port), FOR_EVER_S) as sock,
        pytest.raises(ConnectionError),
    ):
        while True:
            sock.sendall(b"no HTTP at all" * 1000)


def test_a_body_that_becomes_garbage(rig: Rig) -> None:
    with serving(application(rig)) as port:
        answer = raw(port, HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"no length\r\n")
        assert answer.startswith(b"HTTP/1.1 400 ") and answer.count(b"HTTP/1.1") == 1
        assert BrokerClient(f"http://127.0.0.1:{port}", FOR_EVER_S).health()["live"] == 0


def test_two_requests_on_one_connection_and_two_at_once(rig: Rig) -> None:
    ask = b"GET /v1/health HTTP/1.1\r\nHost: b\r\n\r\n"
    last = b"GET /v1/topology HTTP/1.1\r\nHost: b\r\nConnection: close\r\n\r\n"
    with serving(application(rig)) as port:
        answer = raw(port, ask + ask, last)
    assert answer.count(b"HTTP/1.1 200 OK") == 3


def test_a_stop_does_not_wait_for_those_who_send_nothing(rig: Rig) -> None:
    with serving(application(rig)) as port:
        idle = socket.create_connection(("127.0.0.1", port))
    idle.close()


def test_the_gate_takes_one_kind_of_authorization(rig: Rig) -> None:
    with TestClient(application(rig, keyring(rig))) as web:
        for value in ("Basic YTpi", "Bearer", "Bearer  ", "", "bearer wrong"):
            refused = web.get("/v1/health", headers={"Authorization": value})
            assert error(refused)[:2] == (401, "unauthorized")
            assert refused.headers["WWW-Authenticate"] == "Bearer"
        good = {"Authorization": f"bearer {token_of('engineer')}"}
        assert web.get("/v1/health", headers=good).status_code == 200
        assert web.post("/v1/transits", json=ASK).status_code == 401
        assert web.get("/nothing").status_code == 401  # nor is it told what there is
