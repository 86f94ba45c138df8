"""Real sockets: clients that are slow, send no HTTP, far too much, or nothing at all."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from api_rig import ASK, FOR_EVER_S, application, error, keyring, raw, serving, token_of
from authority import Authority
from broker_rig import Rig
from fastapi import FastAPI, Response
from fastapi.responses import StreamingResponse
from fastapi.testclient import TestClient

from network_provisioner.access import Key, Keyring, Principal, Role, hash_of
from network_provisioner.api import connection, create_app, gate
from network_provisioner.api.connection import common_name, server_context
from network_provisioner.base.errors import BrokerError, InputError
from network_provisioner.base.model import TransitRequest
from network_provisioner.client.broker import BrokerClient
from network_provisioner.client.http1 import Tls

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


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def mutual(authority: Authority) -> ssl.SSLContext:
    return server_context(*authority.issue("broker", hosts=["127.0.0.1"]), authority.file)


def test_tls_with_a_token(rig: Rig, authority: Authority, tmp_path: Path) -> None:
    tls = server_context(*authority.issue("broker", hosts=["127.0.0.1"]), None)
    with serving(application(rig, keyring(rig)), tls) as port:
        url, token = f"https://127.0.0.1:{port}", token_of("engineer")
        client = BrokerClient(url, FOR_EVER_S, token, Tls(authority.file))
        assert client.request(TransitRequest("a", "mu", "tacc")).state == "installed"
        assert client.release("a").state == "released"
        (tmp_path / "other").mkdir()
        other = Authority(tmp_path / "other", "other")
        for ca in (None, other.file):
            with pytest.raises(BrokerError, match="its certificate is not trusted: "):
                BrokerClient(url, FOR_EVER_S, token, Tls(ca)).health()
        with pytest.raises(BrokerError, match=r"Hostname mismatch|not valid for"):
            BrokerClient(
                url.replace("127.0.0.1", "localhost"), FOR_EVER_S, token, Tls(authority.file)
            ).health()
        with pytest.raises(BrokerError) as caught:  # no TLS on a port that speaks it
            BrokerClient(url.replace("https", "http"), FOR_EVER_S, token).health()
        assert caught.value.code == "unreachable"
        assert str(caught.value).endswith("with an address that begins with https://")
    with (
        serving(application(rig, keyring(rig))) as port,
        pytest.raises(BrokerError, match="found no TLS there, expected an address"),
    ):
        BrokerClient(f"https://127.0.0.1:{port}", FOR_EVER_S).health()


def test_certificates_stand_for_the_keys_of_their_names(
    rig: Rig, authority: Authority, tmp_path: Path
) -> None:
    keys = [
        Key(Principal("ada", Role.RESEARCHER, frozenset({"ada"}))),
        Key(Principal("noc", Role.OPERATOR)),
        Key(Principal("hub", Role.ENGINEER), hash_of("h" * 20)),
    ]
    with serving(application(rig, Keyring(keys, rig.clock)), mutual(authority)) as port:

        def by(*names: str, token: str | None = None) -> BrokerClient:
            tls = Tls(authority.file, *authority.issue(*names))
            return BrokerClient(f"https://127.0.0.1:{port}", FOR_EVER_S, token, tls)

        made = by("ada").request(TransitRequest("a", "mu", "tacc"))
        assert made.request.user == "ada"
        assert by("noc").release("a").state == "released"
        for client, code in (
            (by("noc"), "forbidden"),
            (by("mallory"), "unauthorized"),
            (by("ada", "noc"), "unauthorized"),  # two names are none
            (by("hub", token="wrong"), "unauthorized"),
        ):
            with pytest.raises(BrokerError) as caught:
                client.request(TransitRequest("b", "mu", "tacc"))
            assert caught.value.code == code
        # A token goes before the certificate it came with.
        assert (
            by("noc", token="h" * 20).request(TransitRequest("c", "mu", "tacc")).request.user
            == "hub"
        )
        url = f"https://127.0.0.1:{port}"
        (tmp_path / "other").mkdir()
        other = Authority(tmp_path / "other", "other")
        for tls in (
            Tls(authority.file),
            Tls(authority.file, *other.issue("ada")),
            Tls(authority.file, *authority.issue("ada", valid=False)),
        ):
            with pytest.raises(BrokerError) as caught:
                BrokerClient(url, FOR_EVER_S, None, tls).health()
            assert caught.value.code == "unreachable"


@pytest.mark.parametrize("content", [None, b"", b"no pem", b"-----BEGIN CERTIFICATE-----\n"])
def test_pem_files_that_are_none(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "bad.pem"
    if content is not None:
        file.write_bytes(content)
    for tls in (Tls(str(file)), Tls(None, str(file), str(file))):
        with pytest.raises(InputError) as caught:
            BrokerClient("https://127.0.0.1:1", 1.0, None, tls).health()
        assert str(file) in str(caught.value) and "\n" not in str(caught.value)


def test_a_silent_tls_server_keeps_the_clients_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        with pytest.raises(BrokerError, match=r"no answer within 0\.2 s|timed out"):
            BrokerClient(f"https://127.0.0.1:{port}", 0.2).health()


def test_a_tls_server_that_dribbles_its_handshake_keeps_the_clients_timeout() -> None:
    done = threading.Event()

    def dribble(listening: socket.socket) -> None:
        sock, _ = listening.accept()
        with sock:
            sock.recv(65536)
            try:
                sock.sendall(b"\x16\x03\x03\x40\x00")  # a handshake record of 16 KiB to come
                while not done.wait(0.02):
                    sock.sendall(b"\x02")
            except OSError:
                return

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=dribble, args=(listening,))
        thread.start()
        try:
            with pytest.raises(BrokerError) as caught:
                BrokerClient(f"https://127.0.0.1:{listening.getsockname()[1]}", 0.2).health()
        finally:
            done.set()
            thread.join(FOR_EVER_S)
    assert caught.value.code == "unreachable"


@pytest.mark.parametrize(
    ("certificate", "name"),
    [
        (None, None),
        ({}, None),
        ({"subject": ((("commonName", "ada"),),)}, "ada"),
        ({"subject": ((("organizationName", "x"), ("commonName", "ada")),)}, "ada"),
        ({"subject": ((("commonName", "a"),), (("commonName", "b"),))}, None),
    ],
)
def test_one_common_name_or_none(certificate: object, name: str | None) -> None:
    assert common_name(certificate) == name
