"""Whatever is sent to the routes of monitoring, the answer is one that is described."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
import requests
import schemathesis
from api_rig import FOR_EVER_S, bearer, error, serving
from broker_rig import Rig
from dashboard_world import WORKFLOW, status, workflow
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from monitoring_rig import monitored
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)

from adon.monitoring.parts import described
from network_provisioner.api import description

EXAMPLES = int(os.environ.get("ADON_FUZZ_EXAMPLES", "10"))
BARE = description()["paths"]
DESCRIBED = description(described())
SCHEMA = schemathesis.openapi.from_dict(DESCRIBED)
# What never ends by itself has tests of its own.
ENDLESS = {"/v1/feed"}
OPERATIONS = [
    (verb, path)
    for path, verbs in DESCRIBED["paths"].items()
    for verb in verbs
    if path not in BARE and path not in ENDLESS
]
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
def test_whatever_is_sent(url: str, verb: str, path: str, mode: GenerationMode) -> None:
    operation = SCHEMA[path][verb]
    checks = [
        not_a_server_error,
        status_code_conformance,
        content_type_conformance,
        response_schema_conformance,
    ]
    if mode is GenerationMode.NEGATIVE:
        if not (operation.body or operation.query or operation.path_parameters):
            pytest.skip("takes nothing that could be wrong")
        checks.append(negative_data_rejection)
    web = requests.Session()
    web.headers.update(bearer("mu" if "/agents/{name}/" in path else "engineer"))

    @given(operation.as_strategy(generation_mode=mode), st.data())
    @settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck), database=None)
    def look(case: Any, data: st.DataObject) -> None:
        if mode is GenerationMode.POSITIVE:
            for place in (case.path_parameters, case.query, case.body):
                for key in sorted(place if isinstance(place, dict) else ()):
                    if key in KNOWN and data.draw(st.booleans(), f"a known {key}"):
                        place[key] = data.draw(KNOWN[key], key)
            if isinstance(case.query, dict) and "wait_s" in case.query:
                case.query["wait_s"] = 0  # a long poll would wait
        answer = case.call(base_url=url, session=web, timeout=FOR_EVER_S)
        if answer.status_code == 503:  # so many exports and feeds at once, and no more
            assert error(answer)[1] == "busy"
            return
        # Queries are read generously: of a parameter that is given twice the last one counts.
        looked_at = answer.status_code not in (403, 404, 413) and not case.query
        case.validate_response(
            answer, checks=[c for c in checks if looked_at or c is not negative_data_rejection]
        )
        if answer.status_code >= 400:
            error(answer)

    look()
