"""The REST API: shapes, codes, limits. The broker behind it is real, the switches are not."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from api_rig import ASK, FOR_EVER_S, application, error
from broker_rig import Rig, refusing
from fastapi.testclient import TestClient

from network_provisioner.api import MAX_BODY_BYTES, STATUS, app, description
from network_provisioner.base.model import TransitState
from network_provisioner.stores.store import StoreError

ROOT = Path(__file__).resolve().parents[2]


World = tuple[TestClient, Rig]


@pytest.fixture(scope="module")
def unchanged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """One service for all that is refused, and changes nothing."""
    rig = Rig(tmp_path_factory.mktemp("unchanged") / "state.sqlite")
    with TestClient(application(rig), raise_server_exceptions=False) as client:
        before = rig.store.kinds()
        yield client, rig
        assert rig.broker.list() == [] and rig.store.kinds() == before


def test_the_life_of_a_transit(web: TestClient, rig: Rig) -> None:
    made = web.post("/v1/transits", json={**ASK, "size_bytes": 10**9, "workflow": "w"})
    assert made.status_code == 201
    assert made.json() == rig.broker.get(ASK["id"]).as_dict()
    assert (made.json()["state"], made.json()["layer"]) == ("installed", "l2")
    again = web.post("/v1/transits", json={**ASK, "size_bytes": 10**9, "workflow": "w"})
    assert (again.status_code, again.json()) == (200, made.json())
    where = f"/v1/transits/{ASK['id']}"
    assert web.get(where).json() == made.json()
    renewed = web.post(f"{where}/renew", json={"lease_s": 5000})
    assert renewed.json()["lease_until"] == rig.clock.now + 5000
    changed = web.patch(where, json={"min_bps": 8e6})
    assert (changed.status_code, changed.json()["requested_bps"]) == (200, 8e6)
    assert error(web.patch(where, json={"min_bps": 1e12}))[:2] == (400, "impossible_rate")
    assert error(web.patch(where, json={"rate": 1}))[:2] == (400, "bad_request")
    report = {"bytes": 10**9, "seconds": 80, "outcome": "success"}
    ended = web.post(f"{where}/release", json=report)
    assert ended.status_code == 200
    assert (ended.json()["state"], ended.json()["goodput_bps"]) == ("released", 1e8)
    assert web.post(f"{where}/release", json=report).json() == ended.json()
    assert web.post(f"{where}/release").json() == ended.json()  # a body is not needed


def test_as_many_together_as_may_be(unchanged: World) -> None:
    web, _ = unchanged
    assert web.post("/v1/transits/ask", json={"requests": []}).json() == {"answers": []}
    answer = web.post("/v1/transits/ask", json={"requests": [ASK] * 257})
    assert error(answer)[:2] == (400, "bad_request") and "at most 256" in error(answer)[2]


def test_lists(web: TestClient) -> None:
    for name, workflow in (("a", "v"), ("b", "w"), ("c", "w")):
        web.post("/v1/transits", json={**ASK, "id": name, "workflow": workflow})
    web.post("/v1/transits/b/release")

    def names(query: str) -> list[str]:
        return [t["id"] for t in web.get(f"/v1/transits{query}").json()]

    assert names("") == ["a", "b", "c"]
    assert names("?workflow=w") == ["b", "c"]
    assert names("?workflow=w&state=installed") == ["c"]
    assert names("?limit=1") == ["c"]
    assert error(web.get("/v1/transits?state=lost"))[:2] == (400, "bad_request")
    assert error(web.get("/v1/transits?limit=0"))[:2] == (400, "bad_request")


def test_an_id_may_contain_what_urls_do_not(web: TestClient) -> None:
    name = "w/job?1#2"
    web.post("/v1/transits", json={**ASK, "id": name})
    quoted = "w%2Fjob%3F1%232"
    assert web.get(f"/v1/transits/{quoted}").json()["id"] == name
    assert web.post(f"/v1/transits/{quoted}/release").json()["state"] == "released"


def test_topology_and_health(web: TestClient) -> None:
    web.post("/v1/transits", json=ASK)
    links = {(d["a"], d["b"]): d["load"][0] for d in web.get("/v1/topology").json()["links"]}
    assert links["s1", "s2"]["reserved_bps"] == 5_000_000
    assert links["s1", "s2"]["transits"] == [ASK["id"]]
    health = web.get("/v1/health").json()
    assert (health["status"], health["live"], health["controller"]["name"]) == ("ok", 1, "fake")


def test_what_is_on_the_switches(web: TestClient, rig: Rig) -> None:
    web.post("/v1/transits", json=ASK)
    counters = web.get("/v1/counters").json()
    assert counters["installed"] == [ASK["id"]]
    assert counters["counters"][0] == {"a": "s1", "b": "s2", "bytes": 7, "at": rig.clock.now}
    rig.controller.broken = refusing()
    assert error(web.get("/v1/counters"))[:2] == (503, "controller_unavailable")


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        ({"src": "mars"}, "unknown_site", "unknown site 'mars', expected one of mu, tacc"),
        ({"template": "x"}, "unknown_template", "unknown template 'x', expected one of default, "),
        ({"min_bps": 1e12}, "impossible_rate", "all that can be reserved between them"),
        ({"min_bps": -1}, "impossible_rate", "expected more than 0 b/s"),
        ({"id": ""}, "bad_request", "body.id: String should match"),
        ({"id": 7}, "bad_request", "body.id: Input should be a valid string (found 7)"),
        ({"id": None}, "bad_request", "body.id"),
        ({"size_bytes": "many"}, "bad_request", "body.size_bytes"),
        ({"size_bytes": -1}, "bad_request", "body.size_bytes"),
        ({"size_bytes": 2**63}, "bad_request", "body.size_bytes"),
        ({"size_bytes": 1.5}, "bad_request", "body.size_bytes"),
        ({"lease_s": 0}, "bad_request", "body.lease_s"),
        ({"retry": True}, "bad_request", "body.retry"),
        ({"start": 1.0}, "bad_time", "is past"),
        ({"end": 1.0}, "bad_time", "end"),
        ({"start": 1_000_200, "end": 1_000_100}, "bad_time", "end"),
        ({"start": "soon"}, "bad_request", "body.start"),
        ({"priority": -1}, "bad_request", "body.priority"),
        ({"flows": [{"protocol": "icmp"}]}, "bad_request", "body.flows.0.protocol"),
        ({"flows": [{"protocol": "tcp"}]}, "bad_request", "flows.0 names no port"),
        ({"flows": [{"dst_ports": [9, 3]}]}, "bad_request", "flows.0: dst_ports"),
        ({"flows": [{"dst_ports": 0}]}, "bad_request", "body.flows.0.dst_ports"),
        ({"flows": [{"dst_ports": 1}] * 17}, "bad_request", "body.flows: List should have at most"),
        ({"speed": 1}, "bad_request", "body.speed: Extra inputs are not permitted (found 1)"),
    ],
)
def test_bad_requests(unchanged: World, change: dict[str, Any], code: str, words: str) -> None:
    web, rig = unchanged
    status, error_code, message = error(web.post("/v1/transits", json={**ASK, **change}))
    assert (status, error_code) == (STATUS[code], code)
    assert words in message
    assert rig.broker.list() == []


@pytest.mark.parametrize(
    ("action", "body", "words"),
    [
        ("release", {"bytes": -1}, "body.bytes"),
        ("release", {"seconds": -1.0}, "body.seconds"),
        ("release", {"retries": -1}, "body.retries"),
        ("renew", {"lease_s": -1}, "body.lease_s"),
        ("shift", {"start": 1e6, "end": 2e6, "size_bytes": -1}, "body.size_bytes"),
        ("flows", {"flows": [{"dst_ports": 1}] * 17}, "body.flows: List should have at most"),
    ],
)
def test_bad_figures(unchanged: World, action: str, body: dict[str, Any], words: str) -> None:
    web, _ = unchanged
    status, code, message = error(web.post(f"/v1/transits/any/{action}", json=body))
    assert (status, code) == (400, "bad_request") and message.startswith(words)


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"null", b'{"id": "a"}', b"\xff\xfe", b'{"id":"a","src":"mu","dst":"tacc",'
     b'"min_bps":NaN}', b'{"id":"a","src":"mu","dst":"tacc","lease_s":Infinity}', b"[" * 60_000],
)  # fmt: skip
def test_bodies_that_are_no_request(unchanged: World, body: bytes) -> None:
    web, _ = unchanged
    headers = {"content-type": "application/json"}
    response = web.post("/v1/transits", content=body, headers=headers)
    assert error(response)[:2] == (400, "bad_request")


@pytest.mark.parametrize("depth", [50, 900, 10_000])
@pytest.mark.parametrize(
    ("verb", "path", "key"),
    [("put", "/v1/templates/deep", "qspec"), ("post", "/v1/policies/", "specs"),
     ("post", "/v1/transits", "flows"), ("post", "/v1/templates/match", "application")],
)  # fmt: skip
def test_json_that_is_deep(unchanged: World, verb: str, path: str, key: str, depth: int) -> None:
    web, _ = unchanged
    for opened, closed in (("[", "]"), ('{"a":', "}")):
        body = f'{{"{key}": {opened * depth}1{closed * depth}}}'
        headers = {"content-type": "application/json"}
        answer = web.request(verb, path, content=body.encode(), headers=headers)
        assert error(answer)[:2] == (400, "bad_request")


@pytest.mark.parametrize(
    "kind",
    [None, "", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data",
     "application/xml", "application/jsonx", "json"],
)  # fmt: skip
def test_a_body_that_is_not_declared_as_json(web: TestClient, rig: Rig, kind: str | None) -> None:
    headers = {} if kind is None else {"content-type": kind}
    answer = web.post("/v1/transits", content=json.dumps(ASK).encode(), headers=headers)
    status, code, message = error(answer)
    assert (status, code) == (400, "bad_request") and "Content-Type: application/json" in message
    assert rig.broker.list() == []
    headers = {"content-type": "Application/JSON; charset=utf-8"}
    answer = web.post("/v1/transits", content=json.dumps(ASK).encode(), headers=headers)
    assert answer.status_code == 201


def test_unknown_transits_and_addresses(web: TestClient) -> None:
    assert error(web.get("/v1/transits/x"))[:2] == (404, "unknown_transit")
    assert error(web.post("/v1/transits/x/release"))[:2] == (404, "unknown_transit")
    assert error(web.post("/v1/transits/x/renew", json={"lease_s": 1}))[1] == "unknown_transit"
    assert error(web.get("/v2/transits"))[:2] == (404, "not_found")
    assert error(web.get("/docs"))[:2] == (404, "not_found")
    assert error(web.get("/v1/policies/%0A"))[:2] == (404, "not_found")
    assert error(web.delete("/v1/transits"))[:2] == (405, "method_not_allowed")
    assert error(web.put("/v1/health"))[:2] == (405, "method_not_allowed")


def test_a_method_that_is_not_there_and_those_that_are(web: TestClient) -> None:
    for method, path, allowed in (
        ("PUT", "/v1/transits", "GET, HEAD, POST"),
        ("OPTIONS", "/v1/health", "GET, HEAD"),
        ("GET", "/v1/transits/x/release", None),  # an id may contain a slash
        ("DELETE", "/v1/transits/x/flows", "GET, HEAD, PATCH, POST, PUT"),
    ):
        assert web.request(method, path).headers.get("allow") == allowed
    for path in ("/v1/health", "/v1/transits", "/metrics", "/openapi.json"):
        there, head = web.get(path), web.head(path)
        assert (head.status_code, head.content) == (200, b"")
        assert head.headers["content-type"] == there.headers["content-type"]
    assert web.head("/v1/transits/x").status_code == 404
    assert web.head("/v1/transits/x/release/").status_code == 404


def test_null_is_as_if_nothing_were_sent(web: TestClient) -> None:
    unset = dict.fromkeys(("template", "job", "user", "min_bps", "flows", "retry"))
    assert web.post("/v1/transits", json={**ASK, **unset}).json()["template"] == "default"
    where = f"/v1/transits/{ASK['id']}/release"
    assert web.post(where, json={"bytes": None, "note": None}).status_code == 200
    assert error(web.post("/v1/transits", json={**ASK, "src": None}))[:2] == (400, "bad_request")


def test_kinds_of_json(web: TestClient) -> None:
    for kind, status in (("application/merge-patch+json", 201), ("text/json", 400)):
        sent = json.dumps({**ASK, "id": kind})
        answer = web.post("/v1/transits", content=sent, headers={"content-type": kind})
        assert answer.status_code == status


def test_the_name_of_a_collection_may_end_in_a_slash(unchanged: World) -> None:
    web, _ = unchanged
    for name in ("transits", "policies", "templates", "drains", "health"):
        assert web.get(f"/v1/{name}/").status_code == 200


@pytest.mark.parametrize("size", ["1e9", "1000000000.0", "10E8", "1000000000"])
def test_whole_numbers_as_json_writes_them(web: TestClient, rig: Rig, size: str) -> None:
    body = json.dumps(ASK)[:-1] + f', "size_bytes": {size}, "retry": 1.0, "priority": 0.0}}'
    answer = web.post("/v1/transits", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 201
    (transit,) = rig.broker.list()
    assert (transit.request.size_bytes, type(transit.request.size_bytes)) == (10**9, int)
    flows = '{"flows": [{"dst_ports": [2.0e4, 20009.0]}]}'
    head = {"content-type": "application/json"}
    assert web.put(f"/v1/transits/{transit.id}/flows", content=flows, headers=head).json()[
        "flows"
    ] == [{"protocol": "tcp", "dst_ports": [20000, 20009]}]


def test_a_body_that_is_too_large_declared_or_not(web: TestClient, rig: Rig) -> None:
    padded = b'{"id": "' + b"a" * MAX_BODY_BYTES + b'"}'
    assert error(web.post("/v1/transits", content=padded))[:2] == (413, "too_large")

    def chunks() -> Iterator[bytes]:
        for _ in range(100):
            yield padded[:4096]

    assert error(web.post("/v1/transits", content=chunks()))[:2] == (413, "too_large")
    assert rig.broker.list() == []


def test_a_store_that_fails(web: TestClient, rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise StoreError("state file s: disk I/O error")

    monkeypatch.setattr(rig.store, "find", broken)
    monkeypatch.setattr(rig.store, "put_many", broken)
    assert web.get("/v1/health").json()["status"] == "ok"
    assert error(web.get("/v1/transits"))[:2] == (503, "store_unavailable")
    assert error(web.post("/v1/transits", json=ASK))[:2] == (503, "store_unavailable")
    assert web.get("/v1/health").json()["problem"] == "the store cannot be read"
    monkeypatch.undo()
    assert web.get("/v1/health").json()["status"] == "ok"  # as soon as it can be


def test_rows_that_cannot_be_read_are_told_of(web: TestClient, rig: Rig) -> None:
    web.post("/v1/transits", json=ASK)
    rig.store._leave_out("transit x", "found an odd byte")
    health = web.get("/v1/health").json()
    assert (health["status"], health["problem"]) == (
        "degraded",
        "the store is damaged: what cannot be read is left out (1 in the log)",
    )


def test_a_fault_of_ours_tells_no_secrets(
    web: TestClient, rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> None:
        raise ZeroDivisionError("secret")

    monkeypatch.setattr(rig.broker, "health", broken)
    status, code, message = error(web.get("/v1/health"))
    assert (status, code) == (500, "internal") and "secret" not in message


def test_the_description_is_published(web: TestClient) -> None:
    assert web.get("/openapi.json").json() == description()


def test_every_operation_describes_its_errors() -> None:
    described = description()
    for path, operations in described["paths"].items():
        for verb, operation in operations.items():
            responses = operation["responses"]
            assert {"400", "401", "403", "413", "503", "default"} <= set(responses), (path, verb)
            assert "422" not in responses
            wrong = responses["400"]["content"]["application/json"]["schema"]["$ref"]
            assert wrong.endswith("/ErrorBody")
            assert operation["description"], (path, verb)
    assert described["security"] == [{"token": []}, {"certificate": []}]


def test_the_documented_codes_are_all_there_are() -> None:
    text = (ROOT / "docs/api.md").read_text(encoding="utf-8")
    for code, status in STATUS.items():
        assert re.search(rf"(?m)^\|[^|]*`{code}`[^|]*\| {status} \|", text), code


def test_while_it_serves_leases_end_by_themselves(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "SWEEP_EVERY_S", 0.01)
    swept = threading.Event()
    sweep, first = rig.broker.sweep, [True]

    def sweep_once_broken() -> None:
        if first.pop() if first else False:
            raise OSError("one sweep fails")
        sweep()
        if rig.store.find("expired", None, 1):
            swept.set()

    monkeypatch.setattr(rig.broker, "sweep", sweep_once_broken)
    with TestClient(application(rig, sweeps=True)) as web:
        web.post("/v1/transits", json={**ASK, "lease_s": 5})
        rig.clock.now += 5
        assert swept.wait(FOR_EVER_S)
    assert rig.broker.get(ASK["id"]).state is TransitState.EXPIRED
