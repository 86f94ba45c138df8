"""Every endpoint, fuzzed from its published description.

Whatever is sent: no fault of ours (500), every answer as described, every error in the one shape,
and after an error everything as it was before."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import requests
import schemathesis
from api_rig import ASK, FOR_EVER_S, application, bearer, error, keyring, serving
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
from test_api_monitoring_roles import TABLE as MONITORING
from test_api_roles import AGENTS, TABLE

from adon.service.monitoring import documented_routes
from network_provisioner.api import description

# Of each operation and kind: few always, many where there is time.
EXAMPLES = 3
MANY = int(os.environ.get("ADON_FUZZ_EXAMPLES", "100"))


def fuzz(
    operation: Any,
    mode: GenerationMode,
    known: Mapping[str, st.SearchStrategy[Any]],
    sent: Callable[[Any], Any],
    unread: Collection[int],
    examples: int = EXAMPLES,
) -> None:
    """Send what the description allows, or forbids, and compare the answers with it.

    ``known`` are values by name that random text never hits; ``sent(case)`` sends one and gives the
    answer, or fails; ``unread`` are statuses for what is refused before it is looked at.
    """
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

    @given(operation.as_strategy(generation_mode=mode), st.data())
    @settings(max_examples=examples, suppress_health_check=list(HealthCheck), database=None)
    def look(case: Any, data: st.DataObject) -> None:
        if mode is GenerationMode.POSITIVE:
            for place in (case.path_parameters, case.query, case.body):
                for key in sorted(place if isinstance(place, dict) else ()):
                    if key in known and data.draw(st.booleans(), f"a known {key}"):
                        place[key] = data.draw(known[key], key)
        answer = sent(case)
        read = answer.status_code not in unread and not _passes_for_right(case.query)
        case.validate_response(
            answer, checks=[c for c in checks if read or c is not negative_data_rejection]
        )

    look()


def _passes_for_right(query: Any) -> bool:
    """Whether something of another type is in it that a query tells as what is right: a list or an
    object as one plain text, or not at all, and a text that reads as a number."""
    values = query.values() if isinstance(query, dict) else ()
    return any(
        len(value) < 2 if isinstance(value, (list, dict)) else _is_number(value) for value in values
    )


def _is_number(value: object) -> bool:
    try:
        return isinstance(value, str) and math.isfinite(float(value))
    except ValueError:
        return False


# What random text never hits, and what is there.
KNOWN = {
    "transit_id": st.sampled_from(["live", "ended", "waits"]),
    "policy_id": st.sampled_from(["known", "v1", "v2"]),
    "name": st.sampled_from(["soykb", "saved", "default"]),
    "src": st.sampled_from(["mu", "tacc", "local"]),
    "dst": st.sampled_from(["mu", "tacc", "iplant"]),
    "id": st.sampled_from(["live", "new", "new2"]),
    "transit": st.sampled_from(["live", "ended"]),
    "template": st.sampled_from(["soykb", "saved", "default"]),
    "start": st.sampled_from([1_000_000.0, 1_000_100, 1e18]),
    "end": st.sampled_from([1_000_200.0, 1_000_050, 1e-9]),
    "requests": st.lists(
        st.fixed_dictionaries(
            {
                "src": st.just("mu"),
                "dst": st.just("tacc"),
                "id": st.sampled_from(["live", "ended", "new", "waits"]),
            },
            optional={
                "best_effort": st.just("told"),
                "size_bytes": st.sampled_from([5, 10**9]),
                "template": st.sampled_from(["soykb", "mars"]),
            },
        ),
        max_size=3,
    ),
    "specs": st.sampled_from([["a", "*"], ["a", "a"]]),
    "type": st.sampled_from(["user", "project"]),
    "strategy": st.sampled_from(["10-3", "7-3", "computed"]),
    "action": st.sampled_from(["start", "modify", "stop"]),
    "time": st.sampled_from([[None, None], [2e6, 1e6], ["2030-01-01", None]]),
    "qspec": st.sampled_from([{"min_throughput": "5 Mb/s"}, {"min_throughput": 1e300}]),
    "rspec": st.sampled_from([{"max_throughput": "50 Mb/s"}, {"max_throughput": 1e-300}]),
}


@cache
def schema() -> Any:
    """Read when it is needed: most workers that load this module run none of it."""
    return schemathesis.openapi.from_dict(description())


class World:
    """A broker with something of everything, and all that a request could change."""

    def __init__(self, rig: Rig, port: int) -> None:
        self.rig = rig
        self.url = f"http://127.0.0.1:{port}"
        self.web = requests.Session()
        # Else the service might close what is kept just as the next case is sent.
        self.web.headers.update(bearer("engineer") | {"Connection": "close"})

    def post(self, path: str, body: object) -> None:
        self.web.post(self.url + path, json=body, timeout=FOR_EVER_S).raise_for_status()

    def fill(self) -> None:
        for name, size in (("live", 10**9), ("ended", 10**9)):
            self.post("/v1/transits", {**ASK, "id": name, "size_bytes": size})
        self.post("/v1/transits/ended/release", {"bytes": 10**9, "seconds": 9.0})
        rates = {"min_bps": 150e6, "template": "soykb"}
        self.post("/v1/transits", {**ASK, "id": "full", "dst": "iplant", **rates})
        self.post("/v1/transits", {**ASK, "id": "waits", "src": "local", **rates})
        policy = {"name": "known", "type": "user", "strategy": "10-3", "specs": ["a", "*"]}
        self.post("/v1/policies/", policy)
        figures = {"qspec": {"min_throughput": "5 Mb/s"}, "rspec": {"max_throughput": "1 Gb/s"}}
        saved = self.web.put(f"{self.url}/v1/templates/saved", json=figures, timeout=FOR_EVER_S)
        saved.raise_for_status()

    def state(self) -> Any:
        store = self.rig.store
        documents = {
            kind: {name: store.history(kind, name) for name in names}
            for kind, names in store.kinds().items()
        }
        transits = [t.as_dict() for t in self.rig.broker.list()]
        return transits, documents, self.rig.reserved(), dict(self.rig.controller.circuits)


@contextmanager
def filled(folder: Path) -> Iterator[World]:
    rig = Rig(folder / "state.sqlite")
    with serving(application(rig, keyring(rig))) as port:
        world = World(rig, port)
        world.fill()
        yield world


@pytest.fixture(scope="module")
def looked_at(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """One for all who only look: it takes longer to make than to ask."""
    with filled(tmp_path_factory.mktemp("looked-at")) as world:
        before = world.state()
        yield world
        assert world.state() == before


@pytest.fixture(scope="module")
def refusing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """One for all that is refused."""
    with filled(tmp_path_factory.mktemp("refusing")) as world:
        yield world


@pytest.fixture
def world(
    request: pytest.FixtureRequest, verb: str, mode: GenerationMode, tmp_path: Path
) -> Iterator[World]:
    if verb == "get":
        yield request.getfixturevalue("looked_at")
    elif mode is GenerationMode.NEGATIVE:
        yield request.getfixturevalue("refusing")
    else:
        with filled(tmp_path) as world:
            yield world


@pytest.mark.parametrize("examples", [EXAMPLES, pytest.param(MANY, marks=pytest.mark.long)])
@pytest.mark.parametrize("mode", GenerationMode)
@pytest.mark.parametrize(("verb", "path"), [*TABLE, *AGENTS])
def test_whatever_is_sent(
    world: World, verb: str, path: str, mode: GenerationMode, examples: int
) -> None:
    def sent(case: Any) -> Any:
        before = world.state()
        answer = case.call(base_url=world.url, session=world.web)
        if answer.status_code >= 400:
            error(answer)
            assert world.state() == before
        return answer

    # What is too large is refused before anybody looks whether it is also wrong.
    fuzz(schema()[path][verb], mode, KNOWN, sent, unread=(413,), examples=examples)


# What never ends by itself has tests of its own.
ENDLESS = {"/v1/feed"}
OPERATIONS = [(verb, path) for verb, path in MONITORING if path not in ENDLESS]
MONITORING_KNOWN = {
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
def monitoring_schema() -> Any:
    """As :func:`schema`."""
    return schemathesis.openapi.from_dict(description(documented_routes()))


@pytest.fixture(scope="module")
def monitoring_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("service")
    rig = Rig(folder / "state.sqlite")
    with monitored(folder, rig) as (app, archive):
        archive.record_many([workflow(WORKFLOW, "soykb", NOW), status(WORKFLOW, NOW, done=1)])
        with serving(app) as port:
            yield f"http://127.0.0.1:{port}"


@pytest.mark.parametrize("examples", [EXAMPLES, pytest.param(MANY, marks=pytest.mark.long)])
@pytest.mark.parametrize("mode", GenerationMode)
@pytest.mark.parametrize(("verb", "path"), OPERATIONS)
def test_whatever_is_sent_to_monitoring(
    monitoring_url: str, verb: str, path: str, mode: GenerationMode, examples: int
) -> None:
    web = requests.Session()
    key = bearer("mu" if "/agents/{name}/" in path else "engineer")
    web.headers.update(key | {"Connection": "close"})

    operation = monitoring_schema()[path][verb]
    parameters = operation.definition.raw.get("parameters", ())
    waits = any(parameter["name"] == "wait_s" for parameter in parameters)

    def sent(case: Any) -> Any:
        if waits and (mode is GenerationMode.POSITIVE or _would_wait(case.query)):
            case.query = {**(case.query or {}), "wait_s": 0}
        answer = case.call(base_url=monitoring_url, session=web, timeout=FOR_EVER_S)
        if answer.status_code >= 400:
            error(answer)
        return answer

    fuzz(operation, mode, MONITORING_KNOWN, sent, unread=(403, 404, 413), examples=examples)


def _would_wait(query: Any) -> bool:
    """Where nothing is said, or a number of seconds."""
    try:
        return not isinstance(query, dict) or float(query.get("wait_s", 1)) > 0
    except (TypeError, ValueError):
        return False
