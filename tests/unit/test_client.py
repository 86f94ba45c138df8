"""The client against a real server on loopback, and against everything a broker should not be."""

from __future__ import annotations

import os
import pwd
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest
from api_rig import FOR_EVER_S, application, keyring, serving, token_of
from broker_rig import Rig

from network_provisioner.base.errors import BrokerError, InputError
from network_provisioner.base.model import TransitRequest, TransitState
from network_provisioner.client.broker import BrokerClient
from network_provisioner.client.hookclient import expand_by_user

TOKEN = token_of("engineer")


@pytest.fixture
def url(rig: Rig) -> Iterator[str]:
    with serving(application(rig, keyring(rig))) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.fixture
def client(url: str) -> BrokerClient:
    return BrokerClient(url, timeout_s=FOR_EVER_S, token=TOKEN)


def test_every_call_over_a_real_server(client: BrokerClient, rig: Rig) -> None:
    name = "w/job?1#2%2F"
    request = TransitRequest(name, "mu", "tacc", size_bytes=10**9, template="soykb", workflow="w w")
    transit = client.request(request)
    assert transit == rig.broker.get(name) == client.request(request) == client.get(name)
    assert (transit.state, transit.grant.granted_bps) == (TransitState.INSTALLED, 150e6)
    assert client.renew(name, 5000).grant.lease_until == rig.clock.now + 5000
    assert client.change(name, max_bps=140e6).grant.granted_bps == 140e6
    client.request(TransitRequest("other", "mu", "iplant"))
    assert [t.id for t in client.list()] == [name, "other"]
    assert [t.id for t in client.list(state="installed", workflow="w w")] == [name]
    assert client.health()["live"] == 2
    assert {link["layer"] for link in client.topology()["links"]} == {"lan", "l2", "l3"}
    assert client.counters()["installed"] == ["other", name]
    ended = client.release(name, 10**9, 80.0, "success")
    assert (ended.state, ended.usage.goodput_bps) == (TransitState.RELEASED, 1e8)
    assert client.release(name) == ended


def test_another_release_is_named_with_errors(
    client: BrokerClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def said() -> str:
        with pytest.raises(BrokerError) as refusal:
            client.get("nobody")
        return str(refusal.value)

    assert "ADON" not in said()
    monkeypatch.setattr("network_provisioner.base.release.release", lambda: "9.9")
    assert re.search(r"\(the broker is ADON [0-9.]+\w*, this is ADON 9.9\)$", said())


def test_asking_for_several_over_a_real_server(client: BrokerClient, rig: Rig) -> None:
    name = "w:stage_in:0:mu-tacc"
    path, none, mars = client.ask(
        [
            TransitRequest(name, "mu", "tacc", size_bytes=10**9, template="soykb"),
            TransitRequest("w:b", "iplant", "tacc", best_effort="no\nroom" * 1000),
            TransitRequest("w:c", "mars", "tacc"),
        ]
    )
    assert path.transit == rig.broker.get(name) and path.error is None
    assert (path.service.template, path.service.patience_s) == ("soykb", 30.0)
    assert none.transit is not None and none.transit.state is TransitState.BEST_EFFORT
    assert none.transit.reason.startswith("no") and none.transit.reason.isprintable()
    assert mars.transit is None and mars.error is not None and mars.error.code == "unknown_site"
    ended = client.release(name, 10**9, 80.0, "success", streams=8, retries=2)
    assert (ended.usage.streams, ended.usage.threads, ended.usage.retries) == (8, 0, 2)
    (again,) = client.ask([TransitRequest(name, "mu", "tacc", template="soykb")])
    assert again.transit is not None and again.transit.id == f"{name}.2"
    assert client.ask([]) == []


def test_a_request_that_no_broker_takes_costs_only_itself(client: BrokerClient) -> None:
    sizes = [10, 10, -5, 10, 2**80, 10]
    requests = [TransitRequest(f"w:{n}", "mu", "tacc", size) for n, size in enumerate(sizes)]
    answers = client.ask(requests)
    ids = [answer.transit and answer.transit.id for answer in answers]
    assert ids == ["w:0", "w:1", None, "w:3", None, "w:5"]
    assert [a.error.code for a in answers if a.error] == ["bad_request", "bad_request"]
    many = client.ask([TransitRequest(f"many:{n}", "mu", "tacc", 1) for n in range(300)])
    assert len(many) == 300 and not any(answer.error for answer in many)


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (lambda c: c.request(TransitRequest("a", "mars", "mu")), "unknown_site"),
        (lambda c: c.request(TransitRequest("a", "mu", "tacc", min_bps=1e12)), "impossible_rate"),
        (lambda c: c.request(TransitRequest("", "mu", "tacc")), "bad_request"),
        (lambda c: c.release("nobody"), "unknown_transit"),
        (lambda c: c.release("nobody", -1), "bad_request"),
        (lambda c: c.list(state="lost"), "bad_request"),
    ],
)
def test_refusals_carry_the_code_of_the_broker(
    client: BrokerClient, call: Callable[[BrokerClient], object], code: str
) -> None:
    with pytest.raises(BrokerError) as caught:
        call(client)
    assert caught.value.code == code


# -- what is no broker -----------------------------------------------------------------------


@contextmanager
def server(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """A server that treats its connections as ``answer`` does, one after another."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            with connection, suppress(OSError):  # the client has gone, as it should
                answer(connection)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join(FOR_EVER_S)


def test_a_broker_that_begins_anew_is_asked_again() -> None:
    number = count(1)

    def answer(connection: socket.socket) -> None:
        connection.recv(65536)
        if next(number) == 2:
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")

    with server(answer) as url:
        assert BrokerClient(url, FOR_EVER_S).health() == {}


def failure(url: str, timeout_s: float = FOR_EVER_S) -> BrokerError:
    with pytest.raises(BrokerError) as caught:
        BrokerClient(url, timeout_s).health()
    assert "\n" not in str(caught.value)
    return caught.value


def test_a_broker_that_accepts_and_never_answers() -> None:
    # Waits until the client hangs up: recv returns what is left, then nothing.
    def silent(connection: socket.socket) -> None:
        while connection.recv(65536):
            pass

    with server(silent) as url:
        error = failure(url, 0.2)
    assert error.code == "unreachable"
    assert "cannot be reached: no answer within 0.2 s" in str(error)


def test_a_broker_whose_backlog_is_full() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=1) as full:
        waiting = []
        for _ in range(4):
            connection = socket.socket()
            connection.setblocking(False)
            connection.connect_ex(full.getsockname())
            waiting.append(connection)
        assert failure(f"http://127.0.0.1:{full.getsockname()[1]}", 0.2).code == "unreachable"
        for connection in waiting:
            connection.close()


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client's clock goes on by 80 ms each time that it is looked at."""
    looks = count()
    clock = SimpleNamespace(monotonic=lambda: 0.08 * next(looks))
    monkeypatch.setattr("network_provisioner.client.http1.time", clock)


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize("head", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n"])
def test_a_broker_that_dribbles_cannot_stretch_the_timeout(head: bytes) -> None:
    done = threading.Event()

    def dribble(connection: socket.socket) -> None:
        connection.sendall(head)
        # No read waits for long: a timeout of each alone would never end the whole.
        for _ in range(500):
            if done.wait(0.02):
                return
            connection.sendall(b"H")

    with server(dribble) as url:
        try:
            error = failure(url, 0.5)
        finally:
            done.set()
    assert error.code == "unreachable"
    assert "no answer within 0.5 s" in str(error)


@pytest.mark.usefixtures("hurried")
def test_the_timeout_is_the_callers_however_short(url: str) -> None:
    error = failure(url, 0.2)  # two looks at the clock, and no broker answers before the third
    assert "no answer within 0.2 s" in str(error)


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def test_an_answer_that_comes_too_late_is_nobody_elses() -> None:
    """What is asked next goes over another connection."""

    def answer(connection: socket.socket, number: int) -> None:
        body = str(number).encode()
        connection.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n{"n":' + body + b"}")

    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            first, _ = listening.accept()
            with first:
                first.recv(65536)
                answer(first, 1)
                first.recv(65536)  # and it takes its time, until something else comes
                if first.recv(65536):
                    answer(first, 2)
                    return
            second, _ = listening.accept()
            with second:
                second.recv(65536)
                answer(second, 3)

        thread = threading.Thread(target=serve)
        thread.start()
        port = listening.getsockname()[1]
        client = BrokerClient(f"http://127.0.0.1:{port}", FOR_EVER_S, keeps_connection=True)
        assert client.call("GET", "/1") == {"n": 1}
        with pytest.raises(BrokerError, match="no answer within"):
            client.reply("GET", "/2", timeout_s=0.05)
        assert client.call("GET", "/3") == {"n": 3}
        thread.join(FOR_EVER_S)
    client.close()


@pytest.mark.parametrize(
    ("reply", "code", "words"),
    [
        (b"", "unreachable", "without response"),
        (b"220 ftp ready\r\n\r\n", "unreachable", "220 ftp ready"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{}", "unreachable", "48 bytes too early"),
        (b"HTTP/1.1 200 OK\r\n\r\n<html>", "bad_answer", "expected JSON: is it a broker?"),
        (b"HTTP/1.1 200 OK\r\n\r\n\xff\xfe{", "bad_answer", "expected JSON"),
        (b"HTTP/1.1 200 OK\r\n\r\n[1]", "bad_answer", "is it a broker?"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b"[" * 100_000, "bad_answer", "expected JSON"),
        (b"HTTP/1.1 500 Oops\r\n\r\n{}", "bad_answer", "answered 500"),
        (b"HTTP/1.1 500 Oops\r\n\r\n[]", "bad_answer", "answered 500"),
        (b'HTTP/1.1 404 No\r\n\r\n{"error": {"code": "c", "message": "m"}}', "c", "m"),
        (b'HTTP/1.1 404 No\r\n\r\n{"error": "gone"}', "bad_answer", "gone"),
        (b"HTTP/1.1 502 Bad Gateway\r\n\r\n<html>", "unreachable", "a proxy answered 502"),
        (
            b"HTTP/1.1 301 Moved\r\nLocation: https://adon.example.org/\r\n\r\n<html>",
            "bad_answer",
            "answered 301 and sends to 'https://adon.example.org/'",
        ),
        (CHUNKED + b"g\r\n", "unreachable", "with base 16"),
        (CHUNKED + b"5\r\n{}", "unreachable", "3 bytes too early"),
        (b"HTTP/1.1 100 Continue\r\n\r\n", "unreachable", "without response"),
    ],
)
def test_answers_that_are_none(reply: bytes, code: str, words: str) -> None:
    def answer(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(reply)

    with server(answer) as url:
        error = failure(url)
    assert error.code == code
    assert words in str(error)


def test_a_kept_connection_serves_until_the_broker_closes_it() -> None:
    replies = [
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
        CHUNKED + b'4;x=y\r\n{"a"\r\n3\r\n:1}\r\n0\r\nTrailer: x\r\n\r\n',
        b"",  # closes as the third request comes, which is sent once more
        b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}",
    ]
    requests: list[tuple[int, bytes]] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            for number in range(3):
                connection, _ = listening.accept()
                with connection:
                    while replies and (request := connection.recv(65536)):
                        requests.append((number, request.partition(b" HTTP")[0]))
                        connection.sendall(reply := replies.pop(0))
                        if not reply:
                            break

        thread = threading.Thread(target=serve)
        thread.start()
        port = listening.getsockname()[1]
        client = BrokerClient(f"http://127.0.0.1:{port}", FOR_EVER_S, keeps_connection=True)
        answers = [client.call("GET", f"/{number}") for number in range(4)]
        thread.join(FOR_EVER_S)
    assert answers == [{}, {"a": 1}, {}, {}]
    assert requests == [
        (0, b"GET /0"), (0, b"GET /1"), (0, b"GET /2"), (1, b"GET /2"), (2, b"GET /3"),
    ]  # fmt: skip


@pytest.mark.parametrize("body", [b"{}", b'{"id": "a", "state": "odd"}', b'{"state": "held"}'])
def test_an_answer_that_is_no_transit(body: bytes) -> None:
    def answer(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n" + body)

    with server(answer) as url, pytest.raises(BrokerError) as caught:
        BrokerClient(url, FOR_EVER_S).get("a")
    assert caught.value.code == "bad_answer"


@pytest.mark.parametrize(
    "url",
    ["", "127.0.0.1:80", "https://h:99999", "http://", "ftp://h", "http://h:x", "http://h:99999",
     "http://[::1", "http://h?q", "http://h#f"],
)  # fmt: skip
def test_urls_that_are_none(url: str) -> None:
    with pytest.raises(InputError, match=r"expected one like 'http://127\.0\.0\.1:8470'"):
        BrokerClient(url)


def test_a_scheme_has_several_spellings(url: str) -> None:
    health = BrokerClient(url.replace("http", "HTTP"), FOR_EVER_S, TOKEN).health()
    assert health["status"] == "ok"


def test_timeouts_that_are_none() -> None:
    with pytest.raises(InputError, match="expected more than 0 s"):
        BrokerClient("http://127.0.0.1:1", 0)


def test_a_host_without_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    assert failure("http://nowhere.invalid:1").code == "unreachable"


def test_importing_it_brings_in_nothing_heavy() -> None:
    code = "import sys, network_provisioner.client.broker; print(*sys.modules)"
    paths = [str(Path(__file__).parents[2])]
    done = subprocess.run(
        [sys.executable, "-S", "-c", f"import sys; sys.path[:0] = {paths!r}; {code}"],
        capture_output=True,
        text=True,
        check=True,
    )
    heavy = {"networkx", "numpy", "pydantic", "fastapi", "sqlite3", "yaml", "asyncio", "os_ken"}
    assert not heavy & set(done.stdout.split())


def test_whose_home_it_is_where_the_system_does_not_know_the_user(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOME", "/of/the/daemon")
    known = pwd.getpwuid(os.getuid()).pw_dir
    assert expand_by_user("~/token") == f"{known}/token"
    monkeypatch.setattr(os, "getuid", lambda: 2**31 - 7)
    assert expand_by_user("~/token") == "/of/the/daemon/token"
    assert expand_by_user("/token") == "/token"
