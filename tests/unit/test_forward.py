"""A broker that follows, over real sockets: what it answers itself, and what it passes on."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import requests
from api_rig import FOR_EVER_S, serving, token_of
from api_rig import keyring as keys_of
from authority import Authority
from broker_rig import Rig
from fastapi import APIRouter
from starlette.responses import StreamingResponse

from network_provisioner.access import Key, Keyring, Principal, Role
from network_provisioner.api import create_app
from network_provisioner.api.connection import server_context
from network_provisioner.api.forward import Forward, Trust, reach
from network_provisioner.api.gate import Message
from network_provisioner.base.errors import BrokerError
from network_provisioner.base.model import TransitRequest
from network_provisioner.client.broker import BrokerClient
from network_provisioner.client.http1 import Tls
from network_provisioner.stores.store import Leader

SECRET = "s" * 64


class Pair:
    """A broker that leads and one that follows on its store, served with these options."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.leader = Rig(folder / "state.sqlite")
        self.follower = Rig(folder / "unused.sqlite")
        self.follower.broker._store = self.leader.store
        self.follower.broker._repository._store = self.leader.store
        self._options = options
        self.leader.broker.leader = Leader("", 3, SECRET, is_us=True)

    @contextmanager
    def served(self, tls: Any = None, keys: Keyring | None = None, **more: Any) -> Iterator[int]:
        """The port of the follower, which knows the leader's."""
        ours = create_app(self.leader.broker, keys, **more)
        theirs = create_app(self.follower.broker, keys, **self._options, **more)
        with serving(ours, tls) as leads, serving(theirs, tls) as follows:
            scheme = "https" if tls else "http"
            self.follow(f"{scheme}://127.0.0.1:{leads}")
            yield follows

    def follow(self, address: str, term: int = 3) -> None:
        self.follower.broker.follow(Leader(address, term, SECRET, is_us=False))


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    return Pair(tmp_path)


def test_what_changes_is_the_leaders_and_what_is_read_the_followers(pair: Pair) -> None:
    with pair.served(keys=keys_of(pair.leader)) as port:
        client = BrokerClient(f"http://127.0.0.1:{port}", FOR_EVER_S, token_of("engineer"))
        assert client.request(TransitRequest("a%b/c?d", "mu", "tacc")).state == "installed"
        assert list(pair.leader.controller.circuits) == ["a%b/c?d"]
        assert client.get("a%b/c?d").state == "installed"
        assert [t.id for t in client.list()] == ["a%b/c?d"]
        health = client.health()
        assert (health["status"], health["leads"], health["live"]) == ("ok", False, 1)
        loads = [load["transits"] for link in client.topology()["links"] for load in link["load"]]
        assert ["a%b/c?d"] in loads  # which the leader alone knows
        with pytest.raises(BrokerError) as unknown:
            client.release("x")
        assert unknown.value.code == "unknown_transit"
        with pytest.raises(BrokerError) as stranger:
            BrokerClient(f"http://127.0.0.1:{port}", FOR_EVER_S, "x" * 30).release("a%b/c?d")
        assert stranger.value.code == "unauthorized"
        metrics = requests.get(
            f"http://127.0.0.1:{port}/metrics",
            headers={"Authorization": f"Bearer {token_of('engineer')}"}, timeout=FOR_EVER_S,
        ).text  # fmt: skip
        assert "adon_leader 0.0" in metrics and "adon_link_reserved_bps" not in metrics


def test_a_stream_comes_as_it_is_sent_and_ends_with_its_reader(pair: Pair) -> None:
    routes, more, ended = APIRouter(), threading.Event(), threading.Event()

    @routes.get("/v1/feed")
    def feed() -> StreamingResponse:
        async def events() -> AsyncIterator[bytes]:
            try:
                yield b"first"
                await asyncio.to_thread(more.wait, FOR_EVER_S)
                while True:
                    yield b"x" * 1000
                    await asyncio.sleep(0)
            finally:
                ended.set()

        return StreamingResponse(events(), media_type="text/event-stream")

    with pair.served(more=[routes]) as port:
        answer = requests.get(f"http://127.0.0.1:{port}/v1/feed", stream=True, timeout=FOR_EVER_S)
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert next(answer.raw.stream(100)) == b"first"
        more.set()
        answer.close()
        assert ended.wait(FOR_EVER_S)


def test_a_request_waits_for_the_next_leader(pair: Pair) -> None:
    with pair.served() as port, ExitStack() as stack:
        address = pair.follower.broker.leader.address  # type: ignore[union-attr]
        hangs = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        hangs.settimeout(FOR_EVER_S)
        pair.follow(f"http://127.0.0.1:{hangs.getsockname()[1]}", 2)
        client = BrokerClient(f"http://127.0.0.1:{port}", FOR_EVER_S)
        thread = threading.Thread(target=client.request, args=(TransitRequest("t", "mu", "tacc"),))
        thread.start()
        caller, _ = hangs.accept()
        assert caller.recv(10) == b"POST /v1/t"  # which is never answered
        pair.follow(address)
        thread.join(FOR_EVER_S)
        assert pair.leader.broker.get("t").state == "installed"


def test_a_leader_that_cannot_be_reached_is_found_before(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    assert "cannot be reached: " in reach(f"http://127.0.0.1:{port}", Trust())
    authority = Authority(tmp_path)
    tls = server_context(*authority.issue("broker", hosts=["127.0.0.1"]), None)
    with serving(create_app(Rig(tmp_path / "s").broker), tls) as port:
        assert "certificate" in reach(f"https://127.0.0.1:{port}", Trust())
        assert reach(f"https://127.0.0.1:{port}", Trust(authority.file)) == ""


def test_who_is_elected_answers_itself(pair: Pair) -> None:
    with pair.served() as port:
        pair.follower.broker.leader = Leader("", 4, SECRET, is_us=True)
        pair.follower.broker._unstarted = ""
        client = BrokerClient(f"http://127.0.0.1:{port}", FOR_EVER_S)
        client.request(TransitRequest("t", "mu", "tacc"))
        assert list(pair.follower.controller.circuits) == ["t"]


@pytest.mark.parametrize("refused", [True, False])
def test_nobody_leads(pair: Pair, monkeypatch: pytest.MonkeyPatch, refused: bool) -> None:
    monkeypatch.setattr("network_provisioner.api.forward.WAIT_S", 0.3)
    with pair.served() as port:
        with socket.create_server(("127.0.0.1", 0)) as free:
            address = f"http://127.0.0.1:{free.getsockname()[1]}"
        pair.follow(address if refused else "")
        with pytest.raises(
            BrokerError, match="does not answer" if refused else "nobody leads"
        ) as e:
            BrokerClient(f"http://127.0.0.1:{port}", FOR_EVER_S).release("t")
        assert e.value.code == "store_unavailable"


def test_the_name_on_a_certificate_is_passed_on_and_nobody_can_claim_one(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    files = authority.issue("broker", hosts=["127.0.0.1"])
    pair = Pair(tmp_path, trust=Trust(authority.file, files))
    keys = Keyring([Key(Principal("ada", Role.RESEARCHER, frozenset({"ada"})))], pair.leader.clock)
    with pair.served(server_context(*files, authority.file), keys) as port:

        def by(name: str) -> BrokerClient:
            tls = Tls(authority.file, *authority.issue(name))
            return BrokerClient(f"https://127.0.0.1:{port}", FOR_EVER_S, None, tls)

        by("ada").request(TransitRequest("t", "mu", "tacc", user="ada"))
        assert pair.leader.broker.get("t").request.user == "ada"
        leader = pair.follower.broker.leader
        assert leader is not None
        for secret in ("", "x" * 64):
            claims = {"x-adon-client": "ada", "x-adon-leader-secret": secret}
            answer = requests.post(
                f"{leader.address}/v1/transits/t/release", json={}, headers=claims,
                verify=authority.file, cert=authority.issue("eve"), timeout=FOR_EVER_S,
            )  # fmt: skip
            assert answer.status_code == 401
        with pytest.raises(BrokerError) as stranger:
            by("eve").release("t")
        assert stranger.value.code == "unauthorized"


def test_a_request_that_is_cut_off_is_not_passed_on(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed: list[bytes] = []

    async def ask(_forward: Forward, _scope: Message, body: bytes) -> None:
        passed.append(body)

    async def nothing(*_: Any) -> None:
        pass

    async def cut_off() -> Message:
        return {"type": "http.disconnect"}

    monkeypatch.setattr(Forward, "_ask", ask)
    pair.follow("http://127.0.0.1:1")
    scope = {"type": "http", "method": "POST", "path": "/v1/transits/a/release"}
    asyncio.run(Forward(nothing, pair.follower.broker, Trust())(scope, cut_off, nothing))
    assert passed == []
