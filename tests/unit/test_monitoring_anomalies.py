"""Anomalies and perfSONAR as the broker's process has them: from a post to what is judged by it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from api_rig import bearer
from broker_rig import Rig, demo_network
from fastapi.testclient import TestClient
from monitoring_rig import monitored
from test_perfsonar_results import RTT, posted

from adon.config.monitoring import check_monitoring
from adon.config.sections import MonitoringConfig
from adon.service.monitoring import documented_routes
from network_provisioner.base.errors import InputError

SECTION: dict[str, Any] = {
    "anomalies": {"rtt": {"min_change": "30 %"}},
    "perfsonar": [{"hosts": {"*.mu.example.edu": "mu", "*.tacc.example.edu": "tacc/dtn"}}],
}
WAIT_S = 120.0


def test_what_perfsonar_posts_is_judged(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "s.sqlite", demo_network())
    rig.clock.now = 1_455_860_000.0  # a little later than what was posted
    with monitored(tmp_path, rig, SECTION) as (app, _), TestClient(app) as client:
        body = posted("rtt", RTT)
        answer = client.post("/v1/perfsonar/results", json=body, headers=bearer("engineer"))
        assert answer.json() == {"recorded": 2, "known": 0, "ignored": ""}
        body |= {"id": "2", "schedule": {"start": rig.clock.now}}
        assert client.post(
            "/v1/perfsonar/results", json=body, headers=bearer("engineer")
        ).is_success
        route = "/v1/anomalies/limits?metric=rtt&subject=mu>tacc/dtn"
        until = time.monotonic() + WAIT_S
        while (got := client.get(route, headers=bearer("operator"))).status_code == 404:
            assert time.monotonic() < until
        (limits,) = got.json()["limits"]
        assert (limits["source"], limits["min_change"]) == ("perfsonar", 0.3)
        assert client.get("/v1/anomalies", headers=bearer("operator")).json() == {"anomalies": []}


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"anomalies": {"rtt": {"noize": 3}}}, "did you mean 'noise'?"),
        ({"perfsonar": [{"hosts": {"a": "mars"}}]}, "found site 'mars'"),
    ],
)
def test_a_section_that_cannot_be_meant(section: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as refused:
        check_monitoring(MonitoringConfig(**section), demo_network())
    assert message in str(refused.value)


def test_routes_are_described_without_anything_behind_them() -> None:
    paths = {
        getattr(route, "path", "") for router in documented_routes() for route in router.routes
    }
    assert {"/v1/anomalies", "/v1/perfsonar/results"} <= paths
