"""Whatever is sent to the routes of monitoring, the answer is one that is described."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import fuzzing
import pytest
import requests
import schemathesis
from api_rig import FOR_EVER_S, bearer, error, serving
from broker_rig import Rig
from dashboard_world import WORKFLOW, status, workflow
from hypothesis import strategies as st
from monitoring_rig import monitored
from schemathesis import GenerationMode
from test_api_monitoring_roles import TABLE

from adon.service.monitoring import documented_routes
from network_provisioner.api import description

# What never ends by itself has tests of its own.
ENDLESS = {"/v1/feed"}
OPERATIONS = [(verb, path) for verb, path in TABLE if path not in ENDLESS]
KNOWN = {
    "workflow": st.just(WORKFLOW),
    "name": st.sampled_from(["known", "mu", "tacc"]),
    "src": st.sampled_from(["mu", "tacc"]),
    "dst": st.sampled_from(["mu", "tacc"]),
    "metric": st.sampled_from(["status", "rtt", "tcp_throughput"]),
    "subject": st.sampled_from(["mu>tacc", "mu", WORKFLOW]),
    "unit": st.sampled_from(["bit/s", "s", "1"]),
    "tool": st.sampled_from(["tcp", "echo", "host"]),
}
NOW = 1_000_000.0


@cache
def schema() -> Any:
    """As in test_api_fuzz."""
    return schemathesis.openapi.from_dict(description(documented_routes()))


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("service")
    rig = Rig(folder / "state.sqlite")
    with monitored(folder, rig) as (app, archive):
        archive.record_many([workflow(WORKFLOW, "soykb", NOW), status(WORKFLOW, NOW, done=1)])
        with serving(app) as port:
            yield f"http://127.0.0.1:{port}"


@pytest.mark.parametrize("mode", GenerationMode)
@pytest.mark.parametrize(("verb", "path"), OPERATIONS)
def test_whatever_is_sent(
    url: str, verb: str, path: str, mode: GenerationMode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fuzzing, "EXAMPLES", 3)
    send_anything(url, verb, path, mode)


@pytest.mark.long
@pytest.mark.parametrize("mode", GenerationMode)
@pytest.mark.parametrize(("verb", "path"), OPERATIONS)
def test_whatever_is_sent_often(url: str, verb: str, path: str, mode: GenerationMode) -> None:
    send_anything(url, verb, path, mode)


def send_anything(url: str, verb: str, path: str, mode: GenerationMode) -> None:
    web = requests.Session()
    key = bearer("mu" if "/agents/{name}/" in path else "engineer")
    web.headers.update(key | {"Connection": "close"})  # as in test_api_fuzz

    operation = schema()[path][verb]
    parameters = operation.definition.raw.get("parameters", ())
    waits = any(parameter["name"] == "wait_s" for parameter in parameters)

    def sent(case: Any) -> Any:
        if waits and (mode is GenerationMode.POSITIVE or _would_wait(case.query)):
            case.query = {**(case.query or {}), "wait_s": 0}
        answer = case.call(base_url=url, session=web, timeout=FOR_EVER_S)
        if answer.status_code >= 400:
            error(answer)
        return answer

    fuzzing.fuzz(operation, mode, KNOWN, sent, unread=(403, 404, 413))


def _would_wait(query: Any) -> bool:
    """Where nothing is said, or a number of seconds."""
    try:
        return not isinstance(query, dict) or float(query.get("wait_s", 1)) > 0
    except (TypeError, ValueError):
        return False
