"""How requests come in: whom a broker on a desk answers, and their work in threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest
from api_rig import application, bearer, error, keyring
from broker_rig import Rig
from fastapi.testclient import TestClient

from adon.config.adon_yml import parse_config
from adon.config.sections import Config
from adon.config.security import own_host
from network_provisioner.api import create_app, workers
from network_provisioner.api.workers import Workers
from network_provisioner.base.errors import BrokerError, InputError

HERE = "http://127.0.0.1:8470"


def config(**broker: object) -> Config:
    network: dict[str, list[object]] = {"nodes": [], "links": []}
    return parse_config({"topology": network, "broker": broker}, "adon.yml")


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:8470", 200), ("localhost:9000", 200), ("LOCALHOST.", 200), ("[::1]:8470", 200),
        ("adon.lab", 200), ("evil.example:8470", 403), ("127.0.0.1.evil.example", 403), ("", 403),
    ],
)  # fmt: skip
def test_without_tokens_only_own_names_are_answered_to(rig: Rig, host: str, status: int) -> None:
    own = own_host(config(names=["ADON.lab"]))
    for ring, expected in ((None, status), (keyring(rig), 200)):
        app = create_app(rig.broker, ring, own_host=own)
        with TestClient(app, raise_server_exceptions=False) as web:
            headers = {"Host": host} | (bearer("engineer") if ring else {})
            assert web.get("/v1/health", headers=headers).status_code == expected


@pytest.mark.parametrize("name", ["adon.lab:8470", "http://adon.lab", "adon.lab.", "fd00::7", ""])
def test_what_no_request_names_is_no_name(name: str) -> None:
    with pytest.raises(InputError, match=r"^adon.yml: broker.names.1: found '.*', expected a host"):
        config(names=["[fd00::7]", name])


@pytest.mark.parametrize(
    "said",
    [
        {"Origin": "http://evil.example"}, {"Origin": "null"}, {"Origin": "http://127.0.0.1:9"},
        {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"},
    ],
)  # fmt: skip
def test_no_page_of_another_site_is_answered_with_or_without_body(
    rig: Rig, said: dict[str, str]
) -> None:
    rig.ask("t", "mu", "tacc")
    with TestClient(application(rig), HERE) as web:
        for answer in (
            web.post("/v1/transits/t/release", headers=said),
            web.post("/v1/transits/t/release", json={}, headers=said),
            web.get("/v1/health", headers=said),
        ):
            assert error(answer)[:2] == (403, "forbidden")
        own = {"Origin": HERE, "Sec-Fetch-Site": "same-origin"}
        assert web.post("/v1/transits/t/release", headers=own).json()["state"] == "released"
    with TestClient(application(rig, keyring(rig)), HERE) as web:  # a token says who asks
        assert web.get("/v1/health", headers=said | bearer("engineer")).status_code == 200


def test_without_other_brokers_nobody_is_believed_a_name(rig: Rig) -> None:
    with TestClient(application(rig, keyring(rig)), HERE) as web:
        for secret in ({}, {"x-adon-leader-secret": ""}):
            answer = web.get("/v1/health", headers={"x-adon-client": "engineer-1"} | secret)
            assert error(answer)[:2] == (401, "unauthorized")


@pytest.fixture
def pools() -> Iterator[Workers]:
    made = Workers()
    yield made
    made.close()


def test_changes_are_made_one_by_one_in_the_order_they_came(pools: Workers) -> None:
    done: list[int] = []
    at_once: list[int] = []
    inside = threading.Semaphore(1)

    def work(number: int) -> int:
        at_once.append(inside.acquire(blocking=False))
        done.append(number)
        inside.release()
        return number

    async def main() -> list[int]:
        return await asyncio.gather(*(pools.change(work, n) for n in range(100)))

    assert asyncio.run(main()) == list(range(100)) == done
    assert all(at_once)


def test_who_only_reads_does_not_wait_for_changes(pools: Workers) -> None:
    release = threading.Event()

    async def main() -> str:
        change = asyncio.ensure_future(pools.change(release.wait, 60))
        await asyncio.sleep(0)  # it goes before
        answer = await pools.read(lambda: "read")
        release.set()
        assert await change
        return answer

    assert asyncio.run(main()) == "read"


def test_a_turn_that_does_not_come_is_given_up_and_never_taken(
    pools: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, release, late = threading.Event(), threading.Event(), threading.Event()

    def wait() -> bool:
        begun.set()
        return release.wait(60)

    async def main() -> None:
        slow = asyncio.ensure_future(pools.change(wait))
        assert await asyncio.to_thread(begun.wait, 60)
        monkeypatch.setattr(workers, "WAIT_S", 0.05)  # only now: the first may be long in beginning
        with pytest.raises(BrokerError) as caught:
            await pools.change(late.set)
        assert caught.value.code == "busy"
        release.set()
        assert await slow  # what had begun is waited for, however long it takes

    asyncio.run(main())
    pools.close()
    assert not late.is_set()


def test_what_work_raises_is_raised_also_a_timeout(pools: Workers) -> None:
    def fails(error: Exception) -> None:
        raise error

    for fault in (TimeoutError("its own"), ValueError("x")):
        with pytest.raises(type(fault), match=str(fault)):
            asyncio.run(pools.change(fails, fault))
