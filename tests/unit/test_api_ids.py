"""With tokens, ids belong to who asked: nobody sees another's, nor takes the next one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from api_rig import ASK, application, bearer, error, keyring
from broker_rig import Rig
from fastapi.testclient import TestClient

from network_provisioner.access import Key, Principal, Role, hash_of
from network_provisioner.stores.store import StoreError

UUID = "0f8fad5b-d9cb-469f-a165-70867728950e"
VICTIM = f"{UUID}:stage_in:0:mu-tacc"
ADA = bearer("researcher")  # researcher-1
TOKEN = "token-of-eve-that-is-long"
EVE = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture
def web(rig: Rig) -> Iterator[TestClient]:
    eve = Key(Principal("eve", Role.RESEARCHER, frozenset({"eve"})), hash_of(TOKEN))
    with TestClient(application(rig, keyring(rig, eve)), raise_server_exceptions=False) as client:
        yield client


def ask(web: TestClient, who: dict[str, str], name: str, **more: Any) -> dict[str, Any]:
    payload = {"requests": [{**ASK, "id": name, **more}]}
    answer = web.post("/v1/transits/ask", json=payload, headers=who).json()["answers"][0]
    result: dict[str, Any] = answer["transit"] or answer["error"]
    return result


def test_nobody_sees_anothers_id(web: TestClient, rig: Rig) -> None:
    full = {"template": "soykb", "min_bps": 150e6, "lease_s": 1000.0, "workflow": UUID}
    assert ask(web, ADA, VICTIM, **full)["state"] == "installed"
    late = {"start": rig.clock.now + 500, "end": rig.clock.now + 600}
    request = {**ASK, "id": f"{UUID}:later", **full, **late}
    assert web.post("/v1/transits", json=request, headers=ADA).json()["state"] == "queued"
    waits = ask(web, EVE, "mine", template="soykb", min_bps=100e6, dst="iplant")
    until = rig.clock.now + 2000
    request = {**ASK, "id": "ahead", "dst": "iplant", "min_bps": 180e6, "template": "montage"}
    texts = [
        str(waits),
        web.get("/v1/topology", headers=EVE).text,
        web.get(f"/v1/topology?until={until}", headers=EVE).text,
        web.get("/v1/transits", headers=EVE).text,
        web.get("/v1/transits/mine", headers=EVE).text,
        web.post("/v1/transits", json=request, headers=EVE).text,
    ]
    assert waits["state"] == "queued" and "held by another's" in waits["reason"]
    assert not [text for text in texts if UUID in text]
    for who in (ADA, bearer("operator")):
        assert VICTIM in web.get("/v1/topology", headers=who).text
    rig.broker.release(VICTIM)
    rig.let_pass(1.0)
    assert UUID not in web.get("/v1/transits/mine", headers=EVE).text


@pytest.mark.parametrize("name", ["run(1)", "it's", "'a,b'", "c;d:"])
def test_an_id_is_told_apart_from_the_words_around_it(web: TestClient, rig: Rig, name: str) -> None:
    full = {"template": "soykb", "min_bps": 150e6, "lease_s": 1000.0}
    assert ask(web, ADA, name, **full)["state"] == "installed"
    waits = ask(web, EVE, "mine", template="soykb", min_bps=100e6, dst="iplant")
    assert waits["state"] == "queued" and "held by another's" in waits["reason"]
    assert name not in str(waits)
    for ended in ("mine", name):  # what is kept of one that ended names one that has ended, too
        rig.broker.release(ended)
    kept = web.get("/v1/transits/mine", headers=EVE).json()
    assert "held by another's" in kept["reason"] and name not in str(kept)
    assert [kept] == web.get("/v1/transits", headers=EVE).json()
    assert name in web.get("/v1/transits/mine", headers=bearer("engineer")).json()["reason"]


def test_a_refusal_is_one_while_the_store_cannot_say_whose_ids_are(
    web: TestClient, rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(_: object) -> None:
        raise StoreError("the store is away")

    assert ask(web, ADA, "run")["id"] == "run"
    monkeypatch.setattr(rig.store, "get_many", away)
    answer = web.post("/v1/transits", json={**ASK, "id": "run.2"}, headers=EVE)
    assert error(answer) == (409, "conflict", "the store is away")


def test_nobody_takes_anothers_next_id(web: TestClient) -> None:
    assert ask(web, ADA, "run")["id"] == "run"
    for name in ("run.2", "run.77"):
        assert ask(web, EVE, name)["code"] == "conflict"
        answer = web.post("/v1/transits", json={**ASK, "id": name}, headers=EVE)
        assert error(answer)[:2] == (409, "conflict")
    assert web.post("/v1/transits/run/release", headers=ADA).is_success
    assert ask(web, ADA, "run")["id"] == "run.2"


def test_who_took_an_id_first_keeps_nobody_from_a_path(web: TestClient) -> None:
    assert ask(web, EVE, VICTIM)["id"] == VICTIM
    first = ask(web, ADA, VICTIM)
    assert (first["id"], first["state"]) == (f"{VICTIM}.2", "installed")
    assert ask(web, ADA, VICTIM)["id"] == f"{VICTIM}.2"  # asking twice is as once
    assert ask(web, EVE, VICTIM)["id"] == VICTIM
    assert web.post(f"/v1/transits/{VICTIM}.2/release", headers=ADA).is_success
    assert ask(web, ADA, VICTIM)["id"] == f"{VICTIM}.3"


def test_templates_tell_nobody_anothers_id(web: TestClient, rig: Rig) -> None:
    engineer = {**bearer("engineer")}
    for who, name in ((engineer, f"{UUID}:theirs"), (ADA, VICTIM)):
        assert ask(web, who, name, template="soykb", lease_s=1000.0)["state"] == "installed"
        rig.let_pass(10.0)
        report = {"bytes": 100_000_000, "seconds": 10.0, "outcome": "success"}
        assert web.post(f"/v1/transits/{name}/release", json=report, headers=who).is_success
        made = web.post(f"/v1/templates/of-{name[-3:]}/from", json={"transit": name}, headers=who)
        assert made.json()["source"]["transit"] == made.json()["learned"]["transit"] == name
    assert f"{UUID}:theirs" in web.get("/v1/templates", headers=engineer).text
    assert VICTIM in web.get("/v1/templates/of-acc", headers=ADA).text
    for path in ("", "/soykb", "/of-irs", "/of-acc", "/of-acc/history", "/of-irs?version=1"):
        assert UUID not in web.get(f"/v1/templates{path}", headers=EVE).text
