"""Policies, templates, accounts and metrics over HTTP; lists with filters."""

from __future__ import annotations

import math
from pathlib import Path
from unittest.mock import patch

import pytest
from api_rig import ASK, error
from broker_rig import Clock, Rig, refusing
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st
from made_transit import made_transit
from prometheus_client.parser import text_string_to_metric_families

from network_provisioner.api import listing
from network_provisioner.api.listing import Only, newest_transits
from network_provisioner.base.controller import SwitchStatus
from network_provisioner.base.model import Transit, TransitState
from network_provisioner.stores.store import StoreError

POLICY = {
    "name": "cms first",
    "type": "project",
    "strategy": "10-3",
    "action": "start",
    "specs": ["cms", "*"],
    "time": [None, "2030-01-01T00:00:00Z"],
}
TEMPLATE = {
    "qspec": {"min_throughput": "5 Mb/s", "max_delay": "200 ms"},
    "rspec": {"max_throughput": "50 Mb/s"},
    "weights": {"throughput": 0.7, "delay": 0.3},
    "tables": {"throughput": [["5 Mb/s", 1], [50_000_000, 10]]},
    "patience": "10 s",
    "break_even": 1024,
    "tuning": {"streams": 8, "buffer": "4 MiB"},
    "applications": ["blast*"],
}


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path / "state.sqlite", clock=Clock(1_790_000_000.0))


# -- policies: Table I -----------------------------------------------------------------------


def test_the_life_of_a_policy(web: TestClient) -> None:
    made = web.post("/v1/policies/", json=POLICY)
    assert made.status_code == 201, made.text
    known = made.json()["id"]
    assert (made.json()["state"], made.json()["specs"]) == ("running", ["cms", "*"])
    assert web.post("/v1/policies/", json=POLICY).status_code == 200
    assert [p["id"] for p in web.get("/v1/policies/").json()] == [known]
    assert web.get(f"/v1/policies/{known}").json()["name"] == "cms first"
    changed = {"name": "cms first", "action": "modify", "strategy": "7-3"}
    assert web.post("/v1/policies/", json=changed).json()["strategy"] == "7-3"
    ended = web.post("/v1/policies/", json={"name": "cms first", "action": "stop"}).json()
    assert ended["state"] == "stopped"
    assert web.get("/v1/policies/").json() == []
    assert [p["id"] for p in web.get("/v1/policies/?ended=true").json()] == [known]
    assert web.delete(f"/v1/policies/{known}").json()["id"] == known
    assert error(web.get(f"/v1/policies/{known}"))[:2] == (404, "unknown_policy")
    assert error(web.delete(f"/v1/policies/{known}"))[:2] == (404, "unknown_policy")


def test_the_interface_describes_its_versions(web: TestClient) -> None:
    assert web.get("/v1/policies/v1").json()["strategies"] == ["10-3", "7-3", "computed"]
    assert error(web.get("/v1/policies/v2"))[:2] == (404, "not_found")


def test_a_last_slash_does_not_matter(web: TestClient) -> None:
    known = web.post("/v1/policies", json=POLICY).json()["id"]
    assert web.get("/v1/policies").json() == web.get("/v1/policies/").json()
    assert web.get(f"/v1/policies/{known}/").json()["id"] == known
    assert web.delete(f"/v1/policies/{known}/").status_code == 200


# -- templates -------------------------------------------------------------------------------


def test_the_life_of_a_template(web: TestClient) -> None:
    saved = web.put("/v1/templates/blast", json=TEMPLATE)
    assert saved.status_code == 200, saved.text
    assert (saved.json()["version"], saved.json()["origin"]) == (1, "saved")
    assert saved.json()["template"]["tuning"] == {"streams": 8, "buffer": 4 << 20, "threads": 0}
    assert web.put("/v1/templates/blast", json=TEMPLATE).json()["version"] == 1
    # What it answers can be sent again.
    again = web.put("/v1/templates/blast", json=saved.json()["template"])
    assert again.json()["version"] == 1, again.text
    second = web.put("/v1/templates/blast", json={**TEMPLATE, "paths": 2}).json()
    assert second["version"] == 2
    assert web.get("/v1/templates/blast?version=1").json()["template"]["paths"] == 1
    assert [v["version"] for v in web.get("/v1/templates/blast/history").json()] == [1, 2]
    assert web.post("/v1/templates/blast/restore", json={"version": 1}).json()["version"] == 3
    names = [t["name"] for t in web.get("/v1/templates").json()]
    assert names == sorted({*names, "blast", "default", "montage", "soykb"})
    match = web.post("/v1/templates/match", json={"application": "blastn"}).json()
    assert (match["entry"]["name"], match["how"]) == ("blast", "pattern")
    assert web.delete("/v1/templates/blast").json() is None
    assert error(web.get("/v1/templates/blast"))[:2] == (404, "unknown_template")
    assert error(web.delete("/v1/templates/soykb"))[:2] == (409, "conflict")
    assert error(web.get("/v1/templates/blast?version=0"))[:2] == (400, "bad_request")


def test_a_template_of_a_success(web: TestClient) -> None:
    web.post("/v1/transits", json={**ASK, "id": "a", "application": "mine", "size_bytes": 10**9})
    body = {"transit": "a"}
    assert error(web.post("/v1/templates/mine/from", json=body))[:2] == (409, "conflict")
    web.post("/v1/transits/a/release", json={"bytes": 10**9, "seconds": 80.0})
    entry = web.post("/v1/templates/mine/from", json=body).json()
    assert entry["template"]["peak"] == 1e8 and entry["source"]["transit"] == "a"
    assert error(web.post("/v1/templates/x/from", json={"transit": "b"}))[1] == "unknown_transit"


# -- accounts --------------------------------------------------------------------------------


def test_accounts_by_user_project_and_experiment(web: TestClient, rig: Rig) -> None:
    for name, user, project in (("a", "ada", "p"), ("b", "bob", "p"), ("c", "ada", "q")):
        web.post("/v1/transits", json={**ASK, "id": name, "user": user, "project": project})
        rig.clock.now += 10
        web.post(f"/v1/transits/{name}/release", json={"bytes": 1000, "seconds": 1.0})

    def used(query: str) -> dict[str, int]:
        return {row["name"]: row["bytes"] for row in web.get(f"/v1/accounting{query}").json()}

    assert used("") == {"ada": 2000, "bob": 1000}
    assert used("?by=project") == {"p": 2000, "q": 1000}
    assert used(f"?since={rig.clock.now}") == {"ada": 1000}
    assert used("?until=1") == {}
    table = web.get("/v1/accounting?format=csv")
    assert table.headers["content-type"].startswith("text/csv")
    assert table.text.splitlines()[0].startswith("user,")
    assert error(web.get("/v1/accounting?by=colour"))[:2] == (400, "bad_request")


# -- lists -----------------------------------------------------------------------------------


def test_lists_by_whose_and_when(web: TestClient, rig: Rig) -> None:
    for name, user, project in (("a", "ada", "p"), ("b", "bob", "p"), ("c", "ada", "q")):
        web.post("/v1/transits", json={**ASK, "id": name, "user": user, "project": project})
        rig.clock.now += 10

    def ids(query: str) -> list[str]:
        return [t["id"] for t in web.get(f"/v1/transits?{query}").json()]

    assert ids("user=ada") == ["a", "c"]
    assert ids("user=ada&project=p") == ["a"]
    assert ids("project=p&limit=1") == ["b"]
    assert ids(f"since={rig.clock.now - 20}") == ["b", "c"]
    assert ids("user=nobody") == []
    assert ids("limit=2") == ["b", "c"] and ids("limit=2&before=b") == ["a"]
    assert ids("ended=false") == ["a", "b", "c"]
    assert error(web.get("/v1/transits?before=none"))[:2] == (404, "unknown_transit")
    for query in ("since=-1", "since=soon", "limit=0", "limit=1000000", "state=lost"):
        assert error(web.get(f"/v1/transits?{query}"))[:2] == (400, "bad_request")


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("pq"), st.integers(0, 5))),
    st.builds(
        Only,
        st.none() | st.sampled_from("ab"),
        st.none() | st.sampled_from("pq"),
        st.none() | st.integers(0, 6),
        st.none() | st.frozensets(st.sampled_from("ab")),
    ),
    st.integers(1, 5),
)
def test_the_newest_are_those_that_a_look_at_all_finds(
    rows: list[tuple[str, str, int]], only: Only, limit: int
) -> None:
    rows.sort(key=lambda row: row[2])  # the store keeps the order in which they were asked for
    everything = [
        made_transit(str(n), "x", "y", TransitState.RELEASED, user=u, project=p, requested_at=at)
        for n, (u, p, at) in enumerate(rows)
    ]

    expected = [t for t in everything if only.takes(t)][-limit:]

    def listed(most: int, before: str) -> list[Transit]:
        return everything[: int(before) if before else None][-most:]

    with patch.object(listing, "_LEAST", 2):
        assert newest_transits(listed, limit, only) == expected
        last = len(everything) // 2
        earlier = [t for t in everything[:last] if only.takes(t)][-limit:]
        assert newest_transits(listed, limit, only, before=str(last) if last else "0") == earlier


# -- metrics ---------------------------------------------------------------------------------


def scraped(web: TestClient) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    answer = web.get("/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


def test_metrics_say_what_the_broker_knows(web: TestClient, rig: Rig) -> None:
    web.post("/v1/transits", json=ASK)
    web.post("/v1/transits", json=ASK)
    web.post("/v1/transits", json={**ASK, "id": "same", "dst": "mu"})
    web.post("/v1/transits", json={**ASK, "id": "far", "dst": "mars"})
    values = scraped(web)
    assert values["adon_decisions_total", (("outcome", "installed"),)] == 1
    assert values["adon_decisions_total", (("outcome", "best_effort"),)] == 1
    assert values["adon_decisions_total", (("outcome", "unknown_site"),)] == 1
    assert values["adon_decision_seconds_count", ()] == 2
    assert values["adon_transits", (("state", "installed"),)] == 1
    assert values["adon_transits", (("state", "best_effort"),)] == 1
    hop = (("dst", "s2"), ("src", "s1"))
    assert values["adon_link_capacity_bps", hop] == 200e6
    assert values["adon_link_reserved_bps", hop] == 5e6
    assert values["adon_link_sent_bytes_total", hop] == 7
    assert values["adon_link_up", hop] == 1
    assert values["adon_queue_length", ()] == 0
    assert values["adon_circuits", ()] == 1
    whole = (("controller", "fake"), ("switch", ""))
    assert values["adon_controller_up", whole] == 1 == values["adon_store_up", ()]
    rig.controller.unheard = {("s1", "s2")}
    rig.controller.statuses = [
        SwitchStatus("s1", "switch s1 (dpid 0x1)", True, 0.0, "", {}),
        SwitchStatus("s2", "switch s2 (dpid 0x2)", False, 1.0, "is not connected", {}),
    ]
    values = scraped(web)
    assert math.isnan(values["adon_link_up", hop])
    up = {s: values["adon_controller_up", (whole[0], ("switch", s))] for s in ("s1", "s2")}
    assert up == {"s1": 1, "s2": 0}


@pytest.mark.parametrize("harm", ["count", "try_write"])
def test_metrics_of_what_does_not_answer(
    web: TestClient, rig: Rig, monkeypatch: pytest.MonkeyPatch, harm: str
) -> None:
    def broken(*_: object, **__: object) -> dict[str, int]:
        raise StoreError("disk I/O error")

    rig.controller.broken = refusing()
    monkeypatch.setattr(rig.store, harm, broken)
    rig.let_pass(1)  # a scrape writes nothing
    values = scraped(web)
    assert values["adon_controller_up", (("controller", "fake"), ("switch", ""))] == 0
    assert values["adon_store_up", ()] == 0
    assert not any(name == "adon_circuits" for name, _ in values)
