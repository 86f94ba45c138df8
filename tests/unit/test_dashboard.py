"""What the broker serves for the dashboard: files, decisions, places of nodes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from api_rig import bearer, books, error, keyring
from broker_rig import Rig
from dashboard_world import WORKFLOW, everything, measured, placement
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st
from made_transit import made_transit
from test_api_answers import EXAMPLE, part_of

from adon.dashboard import decisions
from adon.dashboard.decisions import KINDS, ShownDecision, newest_decisions
from adon.dashboard.layout import layout_of
from adon.dashboard.past import MOST, held_since
from adon.dashboard.routes import PATHS, ROOT, pages_router, read_files, router
from monitors.archive.archive import Archive
from monitors.base.measurement import Measurement
from monitors.rules import Rules
from network_provisioner.api import create_app
from network_provisioner.base.model import Transit, TransitRequest, TransitState
from network_provisioner.topology.data import topology_from_dict

ROOT_DIR = Path(__file__).resolve().parents[2]
DOCS = ROOT_DIR / "docs/api-monitoring.md"
CONFIG = ROOT_DIR / "examples/adon.yml"
NOW = 1_000_000.0
MINE = "researcher-1"


@pytest.fixture
def archive() -> Iterator[Archive]:
    with Archive(":memory:") as opened:
        opened.record_many(everything(NOW))
        yield opened


def client_of(rig: Rig, archive: Archive, *, keys: bool) -> TestClient:
    routes = [pages_router(), router(rig.broker, archive, Rules(), rig.topology, rig.clock)]
    app = create_app(rig.broker, keyring(rig) if keys else None, books(rig), routes, pages=PATHS)
    return TestClient(app, follow_redirects=False)


@pytest.fixture
def client(tmp_path: Path, archive: Archive) -> Iterator[TestClient]:
    with client_of(Rig(tmp_path / "state"), archive, keys=True) as opened:
        yield opened


# -- files ---------------------------------------------------------------------------------------


def test_the_first_address_leads_to_the_dashboard(client: TestClient) -> None:
    for path in ("/", "/dashboard"):
        answer = client.get(path)
        assert (answer.status_code, answer.headers["location"]) == (307, ROOT)


def test_files_need_no_token_and_say_what_a_page_may(client: TestClient) -> None:
    for name in ["", *read_files()]:
        answer = client.get(ROOT + name)
        assert answer.status_code == 200, name
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        again = client.get(ROOT + name, headers={"If-None-Match": answer.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
    assert client.get(ROOT).headers["content-type"].startswith("text/html")
    assert client.get(ROOT + "main.js").headers["content-type"].startswith("text/javascript")


def test_nothing_else_is_a_file(client: TestClient) -> None:
    for name in ("pages.py", "x.js", "..%2Fapi.js", "__init__.py", "%00", "a/b.js"):
        assert error(client.get(ROOT + name))[:2] == (404, "not_found"), name


def test_what_is_beside_the_pages_needs_a_token(client: TestClient) -> None:
    for path in ("/v1/decisions", "/v1/topology/layout", "/v1/topology", "/docs"):
        assert error(client.get(path))[:2] == (401, "unauthorized")


# -- decisions -----------------------------------------------------------------------------------


def test_decisions_of_all_kinds_newest_first(tmp_path: Path, archive: Archive) -> None:
    rig = Rig(tmp_path / "state")
    rig.broker.request(TransitRequest("a", "mu", "tacc", size_bytes=10**9, user=MINE))
    with client_of(rig, archive, keys=False) as client:
        entries = client.get("/v1/decisions").json()["decisions"]
        assert {d["kind"] for d in entries} == set(KINDS)
        assert [d["at"] for d in entries] == sorted((d["at"] for d in entries), reverse=True)
        assert all(d["why"] and d["outcome"] and d["subject"] for d in entries)
        (transit,) = [d for d in entries if d["kind"] == "transit"]
        assert transit["choices"][0]["path"] == transit["details"]["path"]
        for kind in KINDS:
            only = client.get(f"/v1/decisions?kind={kind}").json()["decisions"]
            assert only and {d["kind"] for d in only} == {kind}
        assert len(client.get("/v1/decisions?limit=3").json()["decisions"]) == 3
        flow = client.get(f"/v1/decisions?workflow={WORKFLOW}").json()["decisions"]
        assert {d["workflow"] for d in flow} == {WORKFLOW}
        late = client.get(f"/v1/decisions?since={NOW + 1}").json()["decisions"]
        assert all(d["at"] >= NOW + 1 for d in late)
        again = client.get(f"/v1/decisions?until={entries[2]['at']}").json()["decisions"]
        assert again == entries[[d["at"] for d in entries].index(entries[2]["at"]) :]


def test_a_researcher_sees_its_own_transits(tmp_path: Path, archive: Archive) -> None:
    rig = Rig(tmp_path / "state")
    for name, user in (("a", MINE), ("b", "somebody")):
        rig.broker.request(TransitRequest(name, "mu", "tacc", user=user))
    with client_of(rig, archive, keys=True) as client:

        def seen(role: str) -> set[str]:
            answer = client.get("/v1/decisions?kind=transit", headers=bearer(role))
            return {d["id"] for d in answer.json()["decisions"]}

        assert seen("researcher") == {"a"}
        assert seen("operator") == seen("engineer") == {"a", "b"}
        refused = client.get("/v1/decisions", headers=bearer("agent"))
        assert error(refused)[:2] == (403, "forbidden")


def test_what_waits_says_for_what() -> None:
    waiting = made_transit("a", "mu", "tacc", TransitState.QUEUED, blocking=[{"link": "s1>s2"}])
    assert decisions.of_transit(waiting).why == "there is no room yet on s1>s2"


def test_changed_rates_are_decisions_of_their_own(tmp_path: Path, archive: Archive) -> None:
    rig = Rig(tmp_path / "state")
    rig.ask("a", "mu", "tacc", template="soykb")
    rig.clock.now += 5
    rig.broker.change("a", 50e6, 100e6)
    with client_of(rig, archive, keys=False) as client:
        newest, first = client.get("/v1/decisions?kind=transit").json()["decisions"]
    assert (newest["id"], newest["at"], first["id"]) == ("a change 1", rig.clock.now, "a")
    assert (newest["outcome"], newest["why"]) == (
        "50 Mb/s to 100 Mb/s", "its owner changed 25 Mb/s to 150 Mb/s",
    )  # fmt: skip


def test_what_was_written_down_badly_is_shown_all_the_same() -> None:
    odd = measured(
        "placement", "mu", 4.0, NOW, job=7, reason=None, alternatives=[1, {"site": "mu"}]
    )
    decision = decisions.of_placement(odd)
    assert (decision.subject, decision.why) == (odd.id, "no reason was recorded")
    assert decision.choices == [{"site": "mu"}]
    assert decision.outcome == "runs at mu"
    for wrong in (10**400, "4", None, [4]):  # one that a researcher records is on everybody's page
        odd = measured("placement", "mu", 4.0, NOW, job="j", seconds=wrong)
        assert decisions.of_placement(odd).outcome == "runs at mu"
    good = decisions.of_placement(placement("w", "j", "mu", NOW))
    assert good.outcome == "runs at mu, expected to take 42 s"
    assert good.subject == "j" and good.details["site"] == "mu" and len(good.choices) == 3
    known = {"workflow_s": 750.0, "workflow_range_s": [660.0, 900.0]}
    details = decisions.of_placement(
        measured("placement", "mu", 4.0, NOW, job="j", **known)
    ).details
    expected = "12.5 min, with 90 % probability 11.0 min to 15.0 min"
    assert details["workflow_takes"] == expected and not details.keys() & known.keys()


def test_leases_say_how_many_slots_and_why() -> None:
    lease = measured("expansion", "night", 8.0, NOW, until=NOW + 60, reason="8 jobs")
    decision = decisions.of_expansion(lease)
    assert (decision.outcome, decision.why) == ("8 slots requested", "8 jobs")
    gone = Measurement("x", "expansion", "night", 0.0, "1", NOW, "adon pool")
    assert decisions.of_expansion(gone).outcome == "ended"


def test_decisions_about_the_pool_have_a_reason_for_each_machine(archive: Archive) -> None:
    (measurement,) = archive.query("pool_decision")
    decision = decisions.of_pool_decision(measurement)
    assert decision.outcome == "2 m1.large started, 1 drained, 1 deleted"
    assert decision.why == "8 jobs wait and no slot is free"
    assert [(row["what"], row["done"]) for row in decision.choices] == [
        ("m1.large", "2 started"),
        ("adon-1", "drained"),
        ("adon-0", "deleted"),
        ("limits", ""),
    ]
    assert all(row["why"] for row in decision.choices)
    assert decision.details == {
        "demand": "8 queued, 8 leased",
        "machines": "2 booting, 1 running, 1 draining",
        "matched": {},
    }
    nothing = Measurement("x", "pool_decision", "adon", 0.0, "1", NOW, "adon pool")
    assert decisions.of_pool_decision(nothing).outcome == "nothing is done"


DECISIONS = st.builds(
    ShownDecision, st.sampled_from(KINDS), st.text("abc", max_size=2), st.integers(0, 5).map(float),
    st.just("s"), st.just("o"), st.just("w"),
)  # fmt: skip


@given(st.lists(DECISIONS), st.integers(1, 8), st.randoms())
def test_the_newest_are_the_same_in_whatever_order_they_come(
    entries: list[ShownDecision], limit: int, random: object
) -> None:
    taken = newest_decisions(entries, limit)
    assert len(taken) == min(limit, len(entries))
    assert [d.at for d in taken] == sorted((d.at for d in entries), reverse=True)[:limit]
    shuffled = list(entries)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert [(d.kind, d.id, d.at) for d in newest_decisions(shuffled, limit)] == [
        (d.kind, d.id, d.at) for d in taken
    ]


# -- the past ------------------------------------------------------------------------------------


def test_what_was_held_is_told_without_others_names(tmp_path: Path, archive: Archive) -> None:
    rig = Rig(tmp_path / "state")
    for name, user in (("a", MINE), ("b", "somebody"), ("c", MINE)):
        rig.broker.request(TransitRequest(name, "mu", "tacc", min_bps=1e6, user=user))
    rig.clock.now += 100
    rig.broker.release("b")
    with client_of(rig, archive, keys=True) as client:

        def held(role: str, since: float) -> list[tuple[str, float]]:
            path = f"/v1/topology/past?since={since}"
            rows = client.get(path, headers=bearer(role)).json()["held"]
            assert all(row["parts"][0]["path"][0] == "mu" for row in rows)
            return [(row["id"], row["until"]) for row in rows]

        ended = rig.clock.now
        assert held("engineer", 0) == [("a", 0.0), ("b", ended), ("c", 0.0)]
        assert held("researcher", 0) == [("a", 0.0), ("", ended), ("c", 0.0)]
        assert held("engineer", ended) == [("a", 0.0), ("c", 0.0)]


def test_a_past_that_is_not_known_is_not_told() -> None:
    transits = [made_transit(str(n), "mu", "tacc", TransitState.RELEASED) for n in range(5)]
    for n, transit in enumerate(transits):
        transit.request = replace(transit.request, requested_at=100_000.0 * n)

    def newest_transits(limit: int) -> list[Transit]:
        return (transits * MOST)[-limit:]

    assert held_since(newest_transits, 350_000.0, 500_000.0, None)["since"] == 350_000.0
    assert (
        held_since(lambda n: newest_transits(n)[-1:] * n, 0.0, 500_000.0, None)["since"]
        == 400_000.0
    )


# -- places --------------------------------------------------------------------------------------


def test_every_node_has_a_place_in_the_drawing(client: TestClient, tmp_path: Path) -> None:
    drawing = client.get("/v1/topology/layout", headers=bearer("researcher")).json()
    topology = client.get("/v1/topology", headers=bearer("researcher")).json()
    assert {n["name"] for n in drawing["nodes"]} == {n["name"] for n in topology["nodes"]}
    assert all(0 <= n["x"] <= 1 and 0 <= n["y"] <= drawing["height"] for n in drawing["nodes"])
    places = {(n["x"], n["y"]) for n in drawing["nodes"]}
    assert len(places) == len(drawing["nodes"])


def test_a_network_without_nodes_has_no_drawing() -> None:
    assert layout_of([], []) == {"height": 0.0, "nodes": []}


def test_given_places_stay_and_others_are_beside_their_neighbours() -> None:
    given = {"a": (0.0, 0.0), "b": (100.0, 0.0), "c": (100.0, 50.0)}
    links = [("a", "b"), ("b", "c"), *((f"s{n}", "c") for n in range(5)), ("x", "s0")]
    links += [("between", "a"), ("between", "b")]
    nodes = [*given, *(f"s{n}" for n in range(5)), "x", "between", "alone"]
    drawing = layout_of(nodes, links, given)
    places = {node["name"]: (node["x"], node["y"]) for node in drawing["nodes"]}
    assert len(set(places.values())) == len(nodes)
    wide = places["b"][0] - places["a"][0]
    assert places["c"][1] - places["b"][1] == pytest.approx(wide / 2, abs=1e-3)
    assert places["between"][0] == pytest.approx((places["a"][0] + places["b"][0]) / 2, abs=1e-3)
    assert all(abs(places[f"s{n}"][0] - places["c"][0]) < 0.1 * wide for n in range(5))
    assert places["alone"][1] == max(y for _, y in places.values())
    assert layout_of(["a"], [], {"a": (3.0, 4.0)})["nodes"] == [{"name": "a", "x": 0.0, "y": 0.0}]


# -- what is written of them ---------------------------------------------------------------------


def test_every_example_is_as_it_is_shown(tmp_path: Path, archive: Archive) -> None:
    text = DOCS.read_text(encoding="utf-8").partition("## Decisions\n")[2].partition("\n## ")[0]
    examples = EXAMPLE.findall(text)
    assert len(examples) == text.count("```http") == 3
    network = topology_from_dict(yaml.safe_load(CONFIG.read_text(encoding="utf-8"))["topology"])
    rig = Rig(tmp_path / "state", network)
    request = TransitRequest(
        "a", "mu", "tacc", size_bytes=25 * 10**9, min_bps=50e6, max_bps=150e6, template="soykb",
        workflow="w1", job="stage_in_0",
    )  # fmt: skip
    rig.broker.request(request)
    with client_of(rig, archive, keys=False) as client:
        for verb, path, _, shown in examples:
            answer = client.request(verb, path)
            assert answer.is_success and part_of(json.loads(shown), answer.json()), answer.text
