"""Who may do what with monitoring over HTTP: every operation by every role."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from api_rig import bearer, error
from broker_rig import Rig
from fastapi.testclient import TestClient
from monitoring_rig import monitored
from workflow_world import status, workflow

from adon.service.monitoring import documented_routes
from monitors.base.measurement import Measurement
from network_provisioner.access import Role
from network_provisioner.api import description

R, E, OP, M, A = (
    Role.RESEARCHER, Role.ENGINEER, Role.OPERATOR, Role.MEASUREMENT, Role.AGENT,
)  # fmt: skip
SEE, START, RECORD = {R, E, OP, M}, {E, M}, {R, E, A}
TASK = {"tool": "host", "from": "mu", "every": "60 s"}
ECHO = {"tool": "echo", "from": "mu", "to": "tacc"}
RUN = {
    "id": "r",
    "schedule": {"start": "2026-11-21T12:00:00Z"},
    "test": {"type": "rtt", "spec": {}},
}
FOLLOWED, OTHERS = "11111111-1111-1111-1111-111111111111", "22222222-2222-2222-2222-222222222222"
WORKFLOW = f"/v1/workflows/{FOLLOWED}"
# operation -> who may, and path and body of a request that is allowed to them
TABLE: dict[tuple[str, str], tuple[set[Role], str, Any]] = {
    ("get", "/v1/measurements"): (SEE, "/v1/measurements", None),
    ("post", "/v1/measurements"): (RECORD, "/v1/measurements", {"measurements": []}),
    ("get", "/v1/measurements/latest"): (SEE, "/v1/measurements/latest?metric=rtt", None),
    ("get", "/v1/measurements/series"): (SEE, "/v1/measurements/series", None),
    ("get", "/v1/measurements/by-id/{measurement_id}"): (SEE, "/v1/measurements/by-id/x", None),
    ("get", "/v1/measurements/rollups"): (
        SEE, "/v1/measurements/rollups?metric=rtt&subject=mu%3Etacc", None,
    ),
    ("get", "/v1/measurements/export"): (SEE, "/v1/measurements/export?metric=rtt", None),
    ("get", "/v1/estimates"): (SEE, "/v1/estimates?metric=rtt&subject=mu%3Etacc", None),
    ("post", "/v1/estimates"): (SEE, "/v1/estimates", {"sites": ["mu"]}),
    ("get", "/v1/estimates/gamma_a"): (SEE, "/v1/estimates/gamma_a?src=mu&dst=tacc", None),
    ("get", "/v1/estimates/gamma_c"): (SEE, "/v1/estimates/gamma_c?transformation=a&site=mu", None),
    ("get", "/v1/estimates/t_q"): (SEE, "/v1/estimates/t_q?site=mu", None),
    ("get", "/v1/plans"): (SEE, "/v1/plans", None),
    ("post", "/v1/plans"): (
        RECORD, "/v1/plans", {"name": "w", "after": 0, "cores": {}, "flows": {}, "tenths": []},
    ),
    ("get", "/v1/feed"): (SEE, "", None),
    ("get", "/v1/workflows"): (SEE, "/v1/workflows", None),
    ("get", "/v1/workflows/{workflow}"): (SEE, WORKFLOW, None),
    ("get", "/v1/workflows/{workflow}/analysis"): (SEE, f"{WORKFLOW}/analysis", None),
    ("get", "/v1/workflows/{workflow}/dag"): (SEE, f"{WORKFLOW}/dag", None),
    ("get", "/v1/workflows/{workflow}/savings"): (SEE, f"{WORKFLOW}/savings", None),
    ("get", "/v1/workflows/{workflow}/timeline"): (SEE, f"{WORKFLOW}/timeline", None),
    ("get", "/v1/workflows/{workflow}/jobs"): (SEE, f"{WORKFLOW}/jobs", None),
    ("get", "/v1/workflows/{workflow}/transfers"): (SEE, f"{WORKFLOW}/transfers", None),
    ("post", "/v1/workflows/{workflow}/refresh"): (SEE, f"{WORKFLOW}/refresh?wait_s=0", None),
    ("get", "/v1/refreshes"): (RECORD, "/v1/refreshes", None),
    ("get", "/v1/agents"): (SEE, "/v1/agents", None),
    ("get", "/v1/agents/{name}"): (SEE, "/v1/agents/mu", None),
    ("get", "/v1/agents/{name}/assignments"): (set(), "/v1/agents/mu/assignments", None),
    ("post", "/v1/agents/{name}/results"): (set(), "/v1/agents/mu/results", {"results": []}),
    ("post", "/v1/agents/{name}/connections"): (
        set(), "/v1/agents/mu/connections", {"connections": []},
    ),
    ("post", "/v1/agents/{name}/disks"): (
        set(), "/v1/agents/mu/disks",
        {"source": "delay", "seconds": [[0, 0, 0, 0]], "processes": []},
    ),
    ("post", "/v1/agents/{name}/sockets"): (set(), "/v1/agents/mu/sockets", {"sockets": []}),
    ("get", "/v1/tasks"): (SEE, "/v1/tasks", None),
    ("get", "/v1/tasks/{name}"): (SEE, "/v1/tasks/known", None),
    ("put", "/v1/tasks/{name}"): (START, "/v1/tasks/mine", TASK),
    ("delete", "/v1/tasks/{name}"): (START, "/v1/tasks/added", None),
    ("post", "/v1/tasks/{name}/run"): (START, "/v1/tasks/known/run", {}),
    ("post", "/v1/tasks/run"): (START, "/v1/tasks/run", ECHO),
    ("get", "/v1/runs"): (SEE, "/v1/runs", None),
    ("get", "/v1/runs/{run_id}"): (SEE, "/v1/runs/none", None),
    ("get", "/v1/schedule"): (SEE, "/v1/schedule", None),
    ("get", "/v1/access"): (SEE, "/v1/access?from=mu&metric=rtt", None),
    ("get", "/v1/anomalies"): (SEE, "/v1/anomalies", None),
    ("get", "/v1/anomalies/limits"): (
        SEE, "/v1/anomalies/limits?metric=rtt&subject=mu%3Etacc", None,
    ),
    ("get", "/v1/anomalies/{anomaly_id}"): (SEE, "/v1/anomalies/none", None),
    ("put", "/v1/perfsonar/results"): (RECORD, "/v1/perfsonar/results", RUN),
    ("post", "/v1/perfsonar/results"): (RECORD, "/v1/perfsonar/results", RUN),
    ("get", "/v1/decisions"): (SEE, "/v1/decisions", None),
    ("get", "/v1/topology/layout"): (SEE, "/v1/topology/layout", None),
    ("get", "/v1/topology/past"): (SEE, "/v1/topology/past?since=0", None),
}  # fmt: skip


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    folder = tmp_path_factory.mktemp("service")
    rig = Rig(folder / "state.sqlite")
    with monitored(folder, rig) as (app, archive):
        archive.record_many(
            [
                workflow(FOLLOWED, user=f"{R}-1"),
                workflow(OTHERS, user="somebody"),
                status(FOLLOWED),
                status(OTHERS),
                Measurement("x", "rtt", "mu>tacc", 0.05, "s", 1_000_000.0, "t"),
            ]
        )
        with TestClient(app, raise_server_exceptions=False) as client:
            for agent in ("mu", "tacc"):
                answer = client.get(f"/v1/agents/{agent}/assignments", headers=bearer(agent))
                assert answer.status_code == 200, answer.text
            answer = client.put("/v1/tasks/added", json=TASK, headers=bearer(E))
            assert answer.status_code == 201, answer.text
            yield client


def test_the_table_has_every_operation() -> None:
    bare, all_paths = description()["paths"], description(documented_routes())["paths"]
    ours = {(v, p) for p, verbs in all_paths.items() for v in verbs if p not in bare}
    assert ours == set(TABLE)


@pytest.mark.parametrize("operation", [o for o in TABLE if TABLE[o][1]])
def test_roles(web: TestClient, operation: tuple[str, str]) -> None:
    verb = operation[0]
    may, path, body = TABLE[operation]
    assert error(web.request(verb, path, json=body))[:2] == (401, "unauthorized")
    for role in sorted(Role, key=lambda role: role in may):  # those last who may change something
        answer = web.request(verb, path, json=body, headers=bearer(role))
        if role in may:
            # What is not there is not there, for those who may look; a stray result is refused.
            assert answer.is_success or answer.status_code in (400, 404), (role, answer.text)
        else:
            assert error(answer)[:2] == (403, "forbidden"), role


def test_a_researcher_sees_its_own_workflows_and_no_others(web: TestClient) -> None:
    def visible(role: str) -> set[str]:
        workflows = web.get("/v1/workflows", headers=bearer(role)).json()
        return {row["id"] for row in workflows}

    assert visible(R) == {FOLLOWED}
    assert visible(OP) == {FOLLOWED, OTHERS}
    for path in ("", "/analysis", "/jobs", "/transfers"):
        answer = web.get(f"/v1/workflows/{OTHERS}{path}", headers=bearer(R))
        assert error(answer)[:2] == (404, "unknown_workflow")
    refusal = web.post(f"/v1/workflows/{OTHERS}/refresh?wait_s=0", headers=bearer(R))
    assert error(refusal)[:2] == (404, "unknown_workflow")
    metrics = web.get("/v1/measurements?metric=status", headers=bearer(R)).json()["measurements"]
    assert [m["subject"] for m in metrics] == [FOLLOWED]


def test_agents_and_runs_are_told_to_prometheus(web: TestClient) -> None:
    text = web.get("/metrics", headers=bearer(M)).text
    assert 'adon_agent_present{agent="mu"} 1.0' in text
    assert 'adon_measurement_runs{state="planned"}' in text
