"""Who may do what over HTTP: every operation by every role."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from api_rig import ASK, application, bearer, error, keyring, token_of
from broker_rig import Rig
from fastapi.testclient import TestClient

from network_provisioner.access import Key, Principal, Role, hash_of
from network_provisioner.api import description

MINE, OTHERS = "researcher-1", "somebody"
POLICY = {"name": "p", "type": "user", "strategy": "10-3", "specs": ["a", "*"]}
TEMPLATE = {"qspec": {"min_throughput": "5 Mb/s"}, "rspec": {"max_throughput": "50 Mb/s"}}
R, E, OP, M = Role.RESEARCHER, Role.ENGINEER, Role.OPERATOR, Role.MEASUREMENT
EVERYBODY = {R, E, OP, M}
# operation -> who may, path and body of a request that is allowed to them
TABLE: dict[tuple[str, str], tuple[set[Role], str, object]] = {
    ("post", "/v1/transits"): ({R, E}, "/v1/transits", ASK),
    ("post", "/v1/transits/ask"): ({R, E}, "/v1/transits/ask", {"requests": [ASK]}),
    ("get", "/v1/transits"): (EVERYBODY, "/v1/transits", None),
    ("get", "/v1/transits/{transit_id}"): (EVERYBODY, "/v1/transits/mine", None),
    ("patch", "/v1/transits/{transit_id}"): ({R, E}, "/v1/transits/mine", {"min_bps": 1e6}),
    ("post", "/v1/transits/{transit_id}/release"): ({R, E, OP}, "/v1/transits/mine/release", {}),
    ("post", "/v1/transits/{transit_id}/renew"): (
        {R, E}, "/v1/transits/mine/renew", {"lease_s": 9},
    ),
    ("post", "/v1/transits/{transit_id}/progress"): (
        {R, E}, "/v1/transits/mine/progress", {"bytes": 1},
    ),
    ("post", "/v1/transits/{transit_id}/shift"): (
        {R, E}, "/v1/transits/ahead/shift", {"start": 1_020_000.0, "end": 1_020_100.0},
    ),
    ("put", "/v1/transits/{transit_id}/flows"): (
        {R, E}, "/v1/transits/mine/flows", {"flows": [{"dst_ports": 5}]},
    ),
    ("post", "/v1/transits/{transit_id}/flows"): (
        {R, E}, "/v1/transits/mine/flows", {"flows": []},
    ),
    ("get", "/v1/caller"): (EVERYBODY | {Role.AGENT}, "/v1/caller", None),
    ("get", "/v1/topology"): (EVERYBODY, "/v1/topology", None),
    ("get", "/v1/topology/routes"): (EVERYBODY, "/v1/topology/routes", None),
    ("get", "/v1/topology/discovered"): ({E, OP, M}, "/v1/topology/discovered", None),
    ("get", "/v1/advice"): (EVERYBODY, "/v1/advice?src=mu&dst=tacc", None),
    ("get", "/v1/health"): (EVERYBODY, "/v1/health", None),
    ("get", "/v1/relays"): (EVERYBODY, "/v1/relays", None),
    ("get", "/v1/counters"): ({E, OP, M}, "/v1/counters", None),
    ("get", "/metrics"): ({E, OP, M}, "/metrics", None),
    ("get", "/v1/accounting"): (EVERYBODY, "/v1/accounting", None),
    ("get", "/v1/drains"): ({E}, "/v1/drains", None),
    ("post", "/v1/drains"): ({E}, "/v1/drains", {"element": "r1"}),
    ("delete", "/v1/drains/{element}"): ({E}, "/v1/drains/s1", None),
    ("get", "/v1/policies/"): (EVERYBODY, "/v1/policies/", None),
    ("post", "/v1/policies/"): ({E}, "/v1/policies/", POLICY),
    ("get", "/v1/policies/{policy_id}"): (EVERYBODY, "/v1/policies/p0", None),
    ("delete", "/v1/policies/{policy_id}"): ({E}, "/v1/policies/p0", None),
    ("get", "/v1/templates"): (EVERYBODY, "/v1/templates", None),
    ("post", "/v1/templates/match"): (EVERYBODY, "/v1/templates/match", {"application": "soykb"}),
    ("get", "/v1/templates/{name}"): (EVERYBODY, "/v1/templates/t0", None),
    ("get", "/v1/templates/{name}/history"): (EVERYBODY, "/v1/templates/t0/history", None),
    ("post", "/v1/templates/{name}/try"): (EVERYBODY, "/v1/templates/t0/try", None),
    ("put", "/v1/templates/{name}"): ({R, E}, "/v1/templates/new", TEMPLATE),
    ("post", "/v1/templates/{name}/from"): ({R, E}, "/v1/templates/new/from", {"transit": "done"}),
    ("post", "/v1/templates/{name}/restore"): (
        {R, E}, "/v1/templates/t0/restore", {"version": 1},
    ),
    ("post", "/v1/templates/{name}/reset"): ({R, E}, "/v1/templates/t0/reset", None),
    ("delete", "/v1/templates/{name}"): ({R, E}, "/v1/templates/t0", None),
}  # fmt: skip
# By agents' own names: see test_api_relays.
AGENTS = [("post", "/v1/relays/{name}")]


@contextmanager
def opened(rig: Rig) -> Iterator[TestClient]:
    """Transits of a researcher and of somebody else; a policy; a template of the researcher's."""
    ring = keyring(rig, Key(Principal(OTHERS, R, frozenset({OTHERS})), hash_of("o" * 20)))
    with TestClient(application(rig, ring), raise_server_exceptions=False) as client:
        for name, user in (("mine", MINE), ("done", MINE), ("others", OTHERS)):
            body = {**ASK, "id": name, "user": user, "size_bytes": 10**9}
            made = client.post("/v1/transits", json=body, headers=bearer("engineer"))
            assert (made.status_code, made.json()["state"]) == (201, "installed")
        ahead = {**ASK, "id": "ahead", "user": MINE, "start": 1_010_000.0, "end": 1_010_100.0}
        made = client.post("/v1/transits", json=ahead, headers=bearer("engineer"))
        assert made.json()["state"] == "held"
        report = {"bytes": 10**9, "seconds": 80.0, "outcome": "success"}
        path = "/v1/transits/done/release"
        assert client.post(path, json=report, headers=bearer("researcher")).status_code == 200
        for drain in ({"element": "s1", "at": 1_030_000.0}, {"element": "s2", "at": 1_030_000.0}):
            assert client.post("/v1/drains", json=drain, headers=bearer("engineer")).is_success
        body = {**POLICY, "name": "p0"}
        assert client.post("/v1/policies/", json=body, headers=bearer("engineer")).is_success
        saved = client.put("/v1/templates/t0", json=TEMPLATE, headers=bearer("researcher"))
        assert saved.json()["by"] == MINE
        yield client


@pytest.fixture
def web(rig: Rig) -> Iterator[TestClient]:
    with opened(rig) as client:
        yield client


World = tuple[TestClient, Rig]


@pytest.fixture(scope="module")
def looked_at(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """The same, for requests that change nothing: it takes longer to make than to ask."""
    rig = Rig(tmp_path_factory.mktemp("looked-at") / "state.sqlite")
    with opened(rig) as client:
        yield client, rig


@pytest.fixture
def world(request: pytest.FixtureRequest, operation: tuple[str, str], role: Role) -> World:
    """A service of its own for who may change something with an operation."""
    if role in TABLE[operation][0] and operation[0] != "get":
        return request.getfixturevalue("web"), request.getfixturevalue("rig")
    shared: World = request.getfixturevalue("looked_at")
    return shared


def test_the_table_has_every_operation() -> None:
    described = description()["paths"]
    operations = {(verb, path) for path in described for verb in described[path]}
    assert {*TABLE, *AGENTS} == operations


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("operation", TABLE)
def test_roles(world: World, operation: tuple[str, str], role: Role) -> None:
    web, rig = world
    may, path, body = TABLE[operation]
    before = [t.as_dict() for t in rig.broker.list()]
    answer = web.request(operation[0], path, json=body, headers=bearer(role))
    if role in may:
        # The rig's switches cannot look around.
        assert answer.is_success or path == "/v1/topology/discovered", answer.text
        assert answer.status_code != 403
    else:
        status, code, message = error(answer)
        assert (status, code) == (403, "forbidden")
        assert f"'{role}-1' has role {role}, expected " in message
        assert [t.as_dict() for t in rig.broker.list()] == before
    assert error(web.request(operation[0], path, json=body))[:2] == (401, "unauthorized")


@pytest.mark.parametrize(
    ("verb", "path", "body"),
    [
        ("get", "/v1/transits/others", None),
        ("post", "/v1/transits/others/release", None),
        ("post", "/v1/transits/others/renew", {"lease_s": 9}),
        ("post", "/v1/transits/others/progress", {"bytes": 9}),
        ("patch", "/v1/transits/others", {"max_bps": 1e6}),
        ("post", "/v1/transits/others/shift", {"start": 1_000_000.0, "end": 1_001_000.0}),
        ("put", "/v1/transits/others/flows", {"flows": []}),
        ("post", "/v1/templates/t/from", {"transit": "others"}),
    ],
)
def test_whether_somebody_else_has_an_id_is_not_told(
    web: TestClient, rig: Rig, verb: str, path: str, body: dict[str, str] | None
) -> None:
    before = [t.as_dict() for t in rig.broker.list()]
    words = []
    for name in ("others", "nobody"):
        sent = body and {key: name if value == "others" else value for key, value in body.items()}
        at = path.replace("others", name)
        status, code, message = error(
            web.request(verb, at, json=sent, headers=bearer("researcher"))
        )
        assert (status, code) == (404, "unknown_transit")
        words.append(message.replace(name, "ID"))
    assert words[0] == words[1]
    assert [t.as_dict() for t in rig.broker.list()] == before


@pytest.mark.parametrize(
    ("verb", "path", "body"),
    [
        ("post", "/v1/transits", {**ASK, "user": OTHERS}),
        ("put", "/v1/templates/soykb", TEMPLATE),
        ("get", "/v1/accounting?by=project", None),
    ],
)
def test_what_is_somebody_elses_is_forbidden(
    web: TestClient, rig: Rig, verb: str, path: str, body: object
) -> None:
    before = [t.as_dict() for t in rig.broker.list()]
    answer = web.request(verb, path, json=body, headers=bearer("researcher"))
    assert error(answer)[:2] == (403, "forbidden")
    assert [t.as_dict() for t in rig.broker.list()] == before


def test_a_researcher_sees_its_own(web: TestClient) -> None:
    def ids(role: str, query: str = "") -> list[str]:
        answer = web.get(f"/v1/transits{query}", headers=bearer(role))
        return [t["id"] for t in answer.json()]

    assert ids("researcher") == ["mine", "done", "ahead"]
    assert ids("researcher", f"?user={OTHERS}") == []
    assert ids("measurement") == ["mine", "done", "others", "ahead"]
    used = web.get("/v1/accounting", headers=bearer("researcher")).json()
    assert [row["name"] for row in used] == [MINE]


def test_transits_are_searched_in_what_the_caller_may_read(web: TestClient) -> None:
    web.patch("/v1/transits/others", json={"min_bps": 1e8}, headers=bearer("engineer"))
    waits = {"id": "waits", "src": "local", "dst": "tacc", "min_bps": 1.5e8, "user": MINE}
    web.post("/v1/transits", json=waits, headers=bearer("engineer"))

    def ids(role: str, query: str) -> set[str]:
        answer = web.get(f"/v1/transits?{query}", headers=bearer(role))
        return {t["id"] for t in answer.json()}

    assert ids("engineer", "text=OTHERS") == {"others", "waits"}  # which waits for it
    assert ids("researcher", "text=others") == set()
    assert ids("researcher", "text=another's") == {"waits"}
    assert ids("engineer", "site=local") == {"waits"}
    web.post("/v1/transits/mine/release", json={"outcome": "reset"}, headers=bearer("researcher"))
    assert ids("engineer", "failed=true") == ids("engineer", "text=reset") == {"mine"}
    assert "done" in ids("engineer", "failed=false")


def test_the_owner_is_the_tokens_name_where_none_is_given(web: TestClient) -> None:
    made = web.post("/v1/transits", json={**ASK, "id": "x"}, headers=bearer("researcher"))
    assert made.json()["user"] == MINE
    again = web.post("/v1/transits", json={**ASK, "id": "x"}, headers=bearer("researcher"))
    assert (again.status_code, again.json()["id"]) == (200, "x")


def test_an_id_of_somebody_elses_tells_nothing_of_it(web: TestClient) -> None:
    for body in ({**ASK, "size_bytes": 10**9}, {"src": "iplant", "dst": "mu"}):
        request = {**body, "id": "others"}
        answer = web.post("/v1/transits", json=request, headers=bearer("researcher"))
        status, code, message = error(answer)
        assert (status, code) == (409, "conflict")
        assert message == "id 'another's' is taken, expected one of your own"


def test_of_several_requests_each_is_its_callers_own_or_refused(web: TestClient, rig: Rig) -> None:
    before = rig.broker.get("others").request.size_bytes
    requests = [
        {**ASK, "id": "others", "size_bytes": 5},
        {**ASK, "id": "x", "user": OTHERS},
        {**ASK, "id": "y", "flows": [{"protocol": "tcp"}]},
        {**ASK, "id": "z"},
    ]
    payload = {"requests": requests}
    answers = web.post("/v1/transits/ask", json=payload, headers=bearer("researcher")).json()[
        "answers"
    ]
    codes = [a["error"]["code"] if a["error"] else a["transit"]["user"] for a in answers]
    assert codes == [MINE, "forbidden", "bad_request", MINE]
    assert answers[0]["transit"]["id"] == "others.2"  # somebody else's is not in its way
    assert rig.broker.get("others").request.size_bytes == before


def test_no_token_gets_into_a_log_or_an_answer(
    web: TestClient, rig: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(rig.broker, "health", broken)
    caplog.set_level("DEBUG")
    said = ""
    for shown in (token_of("engineer"), "unknown-but-secret-of-somebody"):
        for path in ("/v1/health", "/v1/transits/x", "/nowhere", "/v1/transits?limit=x"):
            said += web.get(path, headers={"Authorization": f"Bearer {shown}"}).text
            said += web.get(path, headers={"Authorization": f"Basic {shown}"}).text
    assert "secret-of" not in said + caplog.text


def test_an_expired_token_says_so(rig: Rig) -> None:
    key = Key(Principal("old", Role.ENGINEER), hash_of("x" * 20), rig.clock.now + 10)
    with TestClient(application(rig, keyring(rig, key))) as web:
        shown = {"Authorization": f"Bearer {'x' * 20}"}
        assert web.get("/v1/health", headers=shown).status_code == 200
        rig.clock.now += 10
        status, code, message = error(web.get("/v1/health", headers=shown))
        assert (status, code) == (401, "token_expired") and "'old'" in message
        assert web.get("/openapi.json").status_code == 200
