"""Agents of relays ask, people look."""

from __future__ import annotations

import json
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from api_rig import ASK, FOR_EVER_S, application, bearer, error, keyring, serving, token_of
from cli_world import adon
from fastapi.testclient import TestClient
from relay_world import RelayRig
from waiting import until

from network_provisioner.access import Key, Principal, Role, hash_of
from network_provisioner.api import relays
from network_provisioner.relay.sessions import VERSION, session_from_dict

STATUS = {"version": VERSION}
RELAYED = {**ASK, "template": "always"}


@pytest.fixture
def rig(tmp_path: Path) -> RelayRig:
    return RelayRig(tmp_path / "s.sqlite")


def poll(web: TestClient, name: str = "ra", **status: Any) -> dict[str, Any]:
    answer = web.post(f"/v1/relays/{name}", json=STATUS | status)
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


def test_an_agent_is_told_what_it_is_to_carry(rig: RelayRig, web: TestClient) -> None:
    first = poll(web)
    assert first["sessions"] == [] and first["revision"] > 0
    assert poll(web, revision=first["revision"]) == first  # after a moment
    assert web.post("/v1/transits", json=RELAYED).json()["relay"]["port"] == 27_001
    answer = poll(web, revision=first["revision"])
    (session,) = map(session_from_dict, answer["sessions"])
    assert [session] == rig.agents.assigned_sessions("ra")[1]
    assert answer["revision"] == first["revision"] + 1


def test_an_agent_says_how_it_is(rig: RelayRig, web: TestClient) -> None:
    web.post("/v1/transits", json=RELAYED)
    poll(web, unready="no\x07TPROXY", connections={ASK["id"]: 3})
    assert rig.agents.connections(ASK["id"]) == 3
    assert web.get("/v1/relays").json() == [
        {"name": "ra", "switch": "s1", "address": "10.10.0.101", "transits": 1, "connections": 3,
         "unready": "relay 'ra': no\\x07TPROXY"},
        {"name": "rb", "switch": "s2", "address": "10.10.0.102", "transits": 1, "connections": 0,
         "unready": ""},
    ]  # fmt: skip
    assert "adon_transits_relayed 1.0" in web.get("/metrics").text


@pytest.mark.parametrize(
    "body",
    [{}, {"version": 1, "revision": -1}, {"version": 1, "connections": {"t": -1}},
     {"version": "1"}, {"version": 1, "more": 1}],
)  # fmt: skip
def test_what_is_no_status_is_refused(web: TestClient, body: dict[str, Any]) -> None:
    assert error(web.post("/v1/relays/ra", json=body))[:2] == (400, "bad_request")


def test_only_relays_of_the_topology_are_known(web: TestClient) -> None:
    answer = error(web.post("/v1/relays/rx", json=STATUS))
    assert answer == (
        404, "unknown_agent", "unknown relay 'rx', expected one of the topology: ra, rb",
    )  # fmt: skip


def test_each_agent_asks_for_itself(rig: RelayRig) -> None:
    own = Key(Principal("ra", Role.AGENT), hash_of(token_of("ra")))
    with TestClient(application(rig, keyring(rig, own))) as web:

        def status(name: str, token: str) -> int:
            path = f"/v1/relays/{name}"
            return web.post(path, json=STATUS, headers=bearer(token)).status_code

        assert [status("ra", "ra"), status("rb", "ra"), status("ra", "operator")] == [200, 403, 403]
        assert web.get("/v1/relays", headers=bearer("ra")).status_code == 403


def test_whose_packets_it_has_is_told_to_who_may_know(rig: RelayRig) -> None:
    own = Key(Principal("ada", Role.RESEARCHER, frozenset({"ada"})), hash_of(token_of("ada")))
    rig.ask("secret-1", "mu", "tacc", template="always", user="bob")
    with TestClient(application(rig, keyring(rig, own))) as web:
        answer = web.post("/v1/transits", json=RELAYED, headers=bearer("ada")).json()
        assert answer["relay"] == {"why": "its packets are those of transit another's too"}
        path = f"/v1/transits/{ASK['id']}"
        transit = web.get(path, headers=bearer("engineer")).json()
        assert transit["relay"] == {"why": "its packets are those of transit secret-1 too"}


def test_an_agent_that_dies_while_it_waits_is_lost_at_once(
    rig: RelayRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relays, "POLL_S", FOR_EVER_S)
    body = json.dumps(
        STATUS | {"revision": rig.agents.assigned_sessions("ra")[0], "unready": "asked"}
    ).encode()
    head = f"POST /v1/relays/ra HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
    head += "Content-Type: application/json\r\n\r\n"
    with serving(application(rig)) as port:
        with socket.create_connection(("127.0.0.1", port)) as agent:
            agent.sendall(head.encode() + body)
            until(lambda: "asked" in rig.agents.unready("ra"))
        until(lambda: "broke" in rig.agents.unready("ra"))


def test_an_agent_is_answered_as_soon_as_there_is_news(
    rig: RelayRig, web: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = poll(web)["revision"]
    monkeypatch.setattr(relays, "POLL_S", FOR_EVER_S)
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(poll, web, revision=first, unready="asked")
        until(lambda: "asked" in rig.agents.unready("ra"))
        rig.poll("ra")
        rig.ask("a", "mu", "tacc", template="always")
        assert [session["id"] for session in future.result()["sessions"]] == ["a"]


def test_people_see_the_list(rig: RelayRig) -> None:
    with serving(application(rig)) as port:
        url = f"http://127.0.0.1:{port}"
        ran = adon("relay", "list", "--broker", url)
        assert ran.code == 0 and ran.out.split()[:3] == ["relay", "at", "address"]
        assert ran.out.splitlines()[1].split() == ["ra", "s1", "10.10.0.101", "0", "0", "ready"]
        rig.ask("a", "mu", "tacc", template="always")
        out = adon("transit", "explain", "a", "--broker", url).out
        assert "relay: ra and rb carry it over one connection (bbr, " in out
