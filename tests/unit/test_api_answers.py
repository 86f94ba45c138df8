"""Answers of the API: as documented, sent once, compressed, and of one's own ids."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from api_rig import ASK, application, bearer, error, keyring
from broker_rig import Clock, Rig, demo_network
from fastapi.testclient import TestClient

from network_provisioner.access import Key, Principal, Role, hash_of
from network_provisioner.api import description
from network_provisioner.controllers.simulated import SimulatedController
from network_provisioner.stores.store import StoreError

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = re.compile(r"```http\n([A-Z]+) (\S+)\n(.*?)```\n\n```json\n(.*?)```", re.S)
TEXT = (ROOT / "docs/api.md").read_text(encoding="utf-8")
# Not JSON, what simulated switches cannot do, and what docs/relay.md shows.
ELSEWHERE = {
    ("get", "/metrics"), ("get", "/v1/topology/discovered"), ("post", "/v1/relays/{name}"),
}  # fmt: skip


@pytest.fixture
def documented(tmp_path: Path) -> Iterator[TestClient]:
    network, clock = demo_network(), Clock()
    switches = SimulatedController(network, clock=clock)
    rig = Rig(tmp_path / "s.sqlite", network, clock=clock, controller=switches)
    with TestClient(application(rig)) as client:
        yield client


def part_of(shown: Any, actual: Any) -> bool:
    """Whether an answer has what the example shows of it."""
    if isinstance(shown, dict):
        return isinstance(actual, dict) and all(
            key in actual and part_of(value, actual[key]) for key, value in shown.items()
        )
    if isinstance(shown, list) and shown and isinstance(shown[0], dict):
        return all(any(part_of(item, other) for other in actual) for item in shown)
    return bool(shown == actual)


def test_every_example_is_as_it_is_shown(documented: TestClient) -> None:
    examples = EXAMPLE.findall(TEXT)
    assert len(examples) == TEXT.count("```http")
    for verb, path, body, shown in examples:
        answer = documented.request(verb, path, json=json.loads(body) if body else None)
        assert answer.is_success, (verb, path, answer.text)
        assert part_of(json.loads(shown), answer.json()), (verb, path, answer.text)


def test_every_operation_has_an_example() -> None:
    def pattern(path: str) -> re.Pattern[str]:
        return re.compile(re.sub(r"\\\{.*?\\\}", "[^/]+", re.escape(path)) + r"(\?.*)?\Z")

    examples = {(verb.lower(), path) for verb, path, _, _ in EXAMPLE.findall(TEXT)}
    for path, verbs in description()["paths"].items():
        for verb in verbs:
            if (verb, path) in ELSEWHERE:
                continue
            if verb == "post" and path.endswith("/flows"):
                continue  # the same as PUT
            has_example = any(v == verb and pattern(path).match(p) for v, p in examples)
            assert has_example, f"no example of {verb} {path} in docs/api.md"


@pytest.fixture
def fifty(tmp_path: Path) -> TestClient:
    rig = Rig(tmp_path / "s")
    for number in range(50):
        rig.ask(f"t{number}", "mu", "tacc", min_bps=1e6)
    return TestClient(application(rig))


def test_an_answer_is_sent_once(fifty: TestClient) -> None:
    first = fifty.get("/v1/transits")
    tag = {"If-None-Match": first.headers["etag"]}
    again = fifty.get("/v1/transits", headers=tag)
    assert (again.status_code, again.content, again.headers["etag"]) == (
        304,
        b"",
        tag["If-None-Match"],
    )
    fifty.post("/v1/transits/t7/release", json={})
    changed = fifty.get("/v1/transits", headers=tag)
    assert changed.status_code == 200 and changed.headers["etag"] != tag["If-None-Match"]
    assert fifty.get("/v1/transits/nobody", headers=tag).status_code == 404


def test_long_answers_are_compressed_for_who_can_read_that(fifty: TestClient) -> None:
    plain = fifty.get("/v1/transits", headers={"Accept-Encoding": "identity"})
    packed = fifty.get("/v1/transits", headers={"Accept-Encoding": "gzip"})
    assert packed.json() == plain.json() and "content-encoding" not in plain.headers
    assert packed.headers["content-encoding"] == "gzip"
    assert int(packed.headers["content-length"]) < len(plain.content) / 5


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
