"""/v1/anomalies and /v1/perfsonar: who may see and post what, and the examples of their docs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from api_rig import bearer, books, error, keyring
from broker_rig import Clock, Rig, demo_network
from fastapi.testclient import TestClient
from test_anomaly_service import DAY_S, DROP, T0, Told, series
from test_api_answers import EXAMPLE, part_of

from monitors.alerts.anomalies.model import Anomaly, to_measurement
from monitors.alerts.anomalies.service import AnomalyService
from monitors.alerts.anomalies.settings import WatchedMetrics
from monitors.api import anomalies, perfsonar
from monitors.archive.archive import Archive
from monitors.measurements.perfsonar.settings import Hosts
from monitors.rules import Rule, Rules
from network_provisioner.access import Key, Keyring, Principal, Role, hash_of
from network_provisioner.api import create_app

DOCS = Path(__file__).resolve().parents[2] / "docs/api-monitoring.md"
FOUND = f"anomaly:tcp_throughput:mu>tacc:{int(T0 + 5 * DAY_S)}"


NOW = 1_800_000_000.0  # after all that stands here


class Web:
    """The routes around an archive in memory in which there is one anomaly."""

    def __init__(self, tmp_path: Path, keys: bool = False, rules: Rules | None = None) -> None:
        self.rig = Rig(tmp_path / "s.sqlite", demo_network(), clock=Clock())
        self.archive = Archive(":memory:")
        self.archive.record_many(series(T0, 6, DROP))
        service = AnomalyService(self.archive, WatchedMetrics(), Told(), Clock(T0 + 6 * DAY_S))
        service.catch_up()
        mu = Key(Principal("mu", Role.AGENT), hash_of("secret-of-mu"))
        self.app = create_app(
            self.rig.broker,
            keyring(self.rig, mu) if keys else Keyring((), self.rig.clock),
            books(self.rig),
            [
                anomalies.router(self.archive, rules or Rules(), service.limits),
                perfsonar.router(self.archive, Hosts((("ps.mu.edu", "mu"),)), Clock(NOW)),
            ],
        )


@pytest.fixture
def web(tmp_path: Path) -> Iterator[tuple[TestClient, Archive]]:
    made = Web(tmp_path)
    with TestClient(made.app) as client:
        yield client, made.archive


def run_of(source: str = "ps.mu.edu", **more: Any) -> dict[str, Any]:
    return {
        "id": "6f2a-1",
        "schedule": {"start": "2026-11-21T12:00:00Z", "duration": "PT11S"},
        "test": {"type": "rtt", "spec": {"source": source, "dest": "tacc"}},
        "tool": {"name": "ping", "version": "1.0"},
        "participants": [source],
        "result": {"succeeded": True, "roundtrips": [], "mean": "PT0.053S", "loss": 0},
    } | more


@pytest.mark.parametrize("section", ["Anomalies", "perfSONAR"])
def test_every_example_is_as_it_is_shown(web: tuple[TestClient, Archive], section: str) -> None:
    client, _ = web
    text = DOCS.read_text(encoding="utf-8").partition(f"## {section}\n")[2].partition("\n## ")[0]
    examples = EXAMPLE.findall(text)
    assert len(examples) == text.count("```http") >= 1
    for verb, path, body, shown in examples:
        answer = client.request(verb, path, json=json.loads(body) if body else None)
        assert answer.is_success, (verb, path, answer.text)
        assert _like(json.loads(shown), answer.json()), (path, answer.text)


def _like(shown: Any, actual: Any) -> bool:
    """As the example, with measured numbers near it."""
    if isinstance(shown, dict):
        return all(key in actual and _like(value, actual[key]) for key, value in shown.items())
    if isinstance(shown, list):
        return len(shown) == len(actual) and all(map(_like, shown, actual))
    if isinstance(shown, float):
        return actual == pytest.approx(shown, rel=0.05)
    return "expected" in shown if "expected" in str(actual) else part_of(shown, actual)


def test_anomalies_are_chosen(web: tuple[TestClient, Archive]) -> None:
    client, _ = web

    def ids(query: str) -> list[str]:
        return [
            anomaly["id"] for anomaly in client.get(f"/v1/anomalies{query}").json()["anomalies"]
        ]

    assert ids("") == ids("?kind=level") == ids("?metric=tcp_throughput&subject=mu>tacc") == [FOUND]
    assert ids("?kind=outage") == ids("?metric=rtt") == ids("?subject=a>b") == []
    assert ids(f"?since={T0 + 5.5 * DAY_S}") == ids(f"?until={T0}") == []


@pytest.mark.parametrize("read_at_once", [2, 5000])
def test_anomalies_come_in_pages(
    web: tuple[TestClient, Archive], monkeypatch: pytest.MonkeyPatch, read_at_once: int
) -> None:
    client, archive = web
    monkeypatch.setattr(anomalies, "_PAGE", read_at_once)
    dips = [
        Anomaly("rtt", f"a>{end}", "dip", T0 + n, T0 + n + 5, 1.0, 2.0, 1.0, 0.9, "slow", T0 + 90)
        for n in range(3)
        for end in "bc"
    ]
    archive.record_many(
        to_measurement(record) for dip in dips for record in (replace(dip, until=None), dip)
    )
    pages: list[dict[str, Any]] = []
    last: dict[str, str] = {}
    while page := client.get("/v1/anomalies", params={"limit": 2, "metric": "rtt", **last}).json()[
        "anomalies"
    ]:
        assert len(page) == 2
        pages += page
        last = {"cursor": f"{page[-1]['since']}:{page[-1]['id']}"}
    newest_first = sorted(dips, key=lambda dip: (dip.since, dip.id), reverse=True)
    assert [anomaly["id"] for anomaly in pages] == [dip.id for dip in newest_first]
    assert {anomaly["until"] for anomaly in pages} == {T0 + 90}
    assert error(client.get("/v1/anomalies?cursor=x"))[1] == "bad_request"


def test_a_list_until_any_time_gives_anomalies_as_they_are_now(
    web: tuple[TestClient, Archive],
) -> None:
    client, archive = web
    change = Anomaly("rtt", "a>b", "level", T0, T0 + 5, 1.0, 2.0, 1.0, 0.9, "slow")
    archive.record(to_measurement(change))
    archive.record(to_measurement(replace(change, kind="dip", until=T0 + 90)))
    one = client.get(f"/v1/anomalies/{change.id}").json()
    for until in (T0, T0 + 89, T0 + 90, T0 + 91):
        query = {"metric": "rtt", "until": until}
        assert client.get("/v1/anomalies", params=query).json() == {"anomalies": [one]}
        dips = client.get("/v1/anomalies", params={**query, "kind": "dip"}).json()
        assert dips == {"anomalies": [one]}
        levels = client.get("/v1/anomalies", params={**query, "kind": "level"}).json()
        assert levels == {"anomalies": []}


def test_what_there_is_not(web: tuple[TestClient, Archive]) -> None:
    client, archive = web
    some = next(iter(series(T0, 1, DROP))).id
    for name in ("anomaly:rtt:x:5", some, "x/y"):
        assert error(client.get(f"/v1/anomalies/{name}"))[:2] == (404, "unknown_anomaly")
    answer = client.get("/v1/anomalies/limits?metric=rtt&subject=mu>tacc")
    assert error(answer)[:2] == (404, "unknown_measurement")
    assert archive.get(some) is not None


def test_rules_hide_what_was_measured_elsewhere(tmp_path: Path) -> None:
    rules = Rules(
        (Rule(("operator",), ("see",), ("mu", "tacc")), Rule(("measurement",), ("see",), ("mu",)))
    )
    made = Web(tmp_path, True, rules)
    limits = "/v1/anomalies/limits?metric=tcp_throughput&subject=mu>tacc"
    with TestClient(made.app) as client:
        for role, seen in (("operator", 1), ("measurement", 0), ("engineer", 1)):
            got = client.get("/v1/anomalies", headers=bearer(role))
            assert len(got.json()["anomalies"]) == seen
            status = 200 if seen else 404
            assert client.get(f"/v1/anomalies/{FOUND}", headers=bearer(role)).status_code == status
            assert client.get(limits, headers=bearer(role)).status_code == status


def test_results_are_recorded_for_ones_own_end_alone(tmp_path: Path) -> None:
    made = Web(tmp_path, True)
    route = "/v1/perfsonar/results"
    with TestClient(made.app) as client:
        mu = {"Authorization": "Bearer secret-of-mu"}
        posted = client.post(route, json=run_of(), headers=mu)
        assert posted.json() == {"recorded": 2, "known": 0, "ignored": ""}
        again = client.put(route, json=run_of(), headers=mu)
        assert again.json() == {"recorded": 0, "known": 2, "ignored": ""}
        (loss,) = made.archive.query("loss")
        assert (loss.subject, loss.id[:14]) == ("mu>tacc", "loss:agent:mu:")
        # The same run under another id: posted by somebody else, or read from an archive before.
        twice = client.post(route, json=run_of(), headers=bearer("engineer"))
        assert twice.json() == {"recorded": 0, "known": 2, "ignored": ""}
        assert client.post(route, json=run_of(id="9"), headers=bearer("engineer")).json() == {
            "recorded": 2, "known": 0, "ignored": "",
        }  # fmt: skip
        other = client.post(route, json=run_of("iplant", id="7"), headers=mu)
        assert error(other)[:2] == (403, "forbidden")
        engineer = client.post(route, json=run_of("iplant", id="7"), headers=bearer("engineer"))
        assert engineer.json()["recorded"] == 2
        researcher = client.post(route, json=run_of(id="8"), headers=bearer("researcher"))
        assert error(researcher)[:2] == (403, "forbidden")


@pytest.mark.parametrize(
    "body",
    [
        {},
        [],
        run_of(test={"spec": {}}),
        run_of(test={"type": "rtt", "spec": []}),
        run_of(id=""),
        run_of(schedule={"start": "yesterday"}),
        run_of(result={"succeeded": True, "roundtrips": [{"rtt": "53 ms"}]}),
        run_of(result={"succeeded": True, "mean": "PT0.1S", "loss": "none"}),
    ],
)
def test_what_is_no_result_is_refused_in_one_line(
    web: tuple[TestClient, Archive], body: Any
) -> None:
    client, archive = web
    answer = client.post("/v1/perfsonar/results", json=body)
    assert error(answer)[:2] == (400, "bad_request")
    assert "\n" not in answer.json()["error"]["message"]
    assert archive.query("rtt") == []


def test_a_test_that_is_not_read_is_no_error(web: tuple[TestClient, Archive]) -> None:
    client, _ = web
    body = run_of(test={"type": "dns", "spec": {}})
    answer = client.post("/v1/perfsonar/results", json=body)
    assert answer.status_code == 200  # pScheduler would send it again and again
    assert answer.json()["recorded"] == 0
    assert "'dns'" in answer.json()["ignored"]
