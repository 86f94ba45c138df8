"""Every endpoint, fuzzed from its published description.

Whatever is sent: no fault of ours (500), every answer as described, every error in the one shape,
and after an error everything as it was before.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import requests
import schemathesis
from api_rig import ASK, FOR_EVER_S, application, bearer, error, keyring, serving
from broker_rig import Rig
from fuzzing import EXAMPLES, MANY, fuzz
from hypothesis import strategies as st
from schemathesis import GenerationMode
from test_api_roles import AGENTS, TABLE

from network_provisioner.api import description

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
