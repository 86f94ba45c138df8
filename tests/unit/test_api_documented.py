"""The examples of docs/api.md, run in the order they stand there."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from api_rig import application
from broker_rig import Clock, Rig, demo_network
from fastapi.testclient import TestClient

from network_provisioner.api import description
from network_provisioner.controllers.simulated import SimulatedController

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = re.compile(r"```http\n([A-Z]+) (\S+)\n(.*?)```\n\n```json\n(.*?)```", re.S)
TEXT = (ROOT / "docs/api.md").read_text(encoding="utf-8")
# Not JSON, what simulated switches cannot do, and what docs/relay.md shows.
ELSEWHERE = {
    ("get", "/metrics"), ("get", "/v1/topology/discovered"), ("post", "/v1/relays/{name}"),
}  # fmt: skip


@pytest.fixture
def web(tmp_path: Path) -> Iterator[TestClient]:
    network, clock = demo_network(), Clock()
    switches = SimulatedController(network, clock=clock)
    rig = Rig(tmp_path / "s.sqlite", network, clock=clock, controller=switches)
    with TestClient(application(rig)) as client:
        yield client


def part_of(shown: Any, actual: Any) -> bool:
    """Whether an answer has what the example shows of it."""
    if isinstance(shown, dict):
        return isinstance(actual, dict) and all(
            key in actual and part_of(value, actual[key]) for key, value in shown.items()
        )
    if isinstance(shown, list) and shown and isinstance(shown[0], dict):
        return all(any(part_of(item, other) for other in actual) for item in shown)
    return bool(shown == actual)


def test_every_example_is_as_it_is_shown(web: TestClient) -> None:
    examples = EXAMPLE.findall(TEXT)
    assert len(examples) == TEXT.count("```http")
    for verb, path, body, shown in examples:
        answer = web.request(verb, path, json=json.loads(body) if body else None)
        assert answer.is_success, (verb, path, answer.text)
        assert part_of(json.loads(shown), answer.json()), (verb, path, answer.text)


def test_every_operation_has_an_example() -> None:
    def pattern(path: str) -> re.Pattern[str]:
        return re.compile(re.sub(r"\\\{.*?\\\}", "[^/]+", re.escape(path)) + r"(\?.*)?\Z")

    examples = {(verb.lower(), path) for verb, path, _, _ in EXAMPLE.findall(TEXT)}
    for path, verbs in description()["paths"].items():
        for verb in verbs:
            if (verb, path) in ELSEWHERE:
                continue
            if verb == "post" and path.endswith("/flows"):
                continue  # the same as PUT
            has_example = any(v == verb and pattern(path).match(p) for v, p in examples)
            assert has_example, f"no example of {verb} {path} in docs/api.md"
