"""What docs/measuring.md, docs/security.md and docs/api-monitoring.md show of measuring."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from broker_rig import Rig
from coordinator_rig import CoordinatorRig
from fastapi.testclient import TestClient

from adon.config.adon_yml import parse_config
from adon.config.security import keyring_of
from adon.service.monitoring import documented_routes
from monitors.api import measuring as measuring_api
from monitors.base.measurement import Measurement
from monitors.rules import Rules, rules_from_list
from network_provisioner.access import Keyring
from network_provisioner.api import create_app, description
from network_provisioner.topology.data import topology_from_dict

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = re.compile(r"```http\n([A-Z]+) (\S+)\n(.*?)```\n\n```json\n(.*?)```", re.S)
YAML = re.compile(r"```yaml\n(.*?)```", re.S)
SECTION = (
    (ROOT / "docs/api-monitoring.md")
    .read_text(encoding="utf-8")
    .partition("## Measuring\n")[2]
    .partition("\n## ")[0]
)


@pytest.fixture
def web(tmp_path: Path) -> Iterator[TestClient]:
    coordinator = CoordinatorRig(tmp_path)
    ring = Keyring((), coordinator.clock)
    rig = Rig(tmp_path / "state.sqlite", clock=coordinator.clock)
    for agent in coordinator.agent_registry.members:
        coordinator.coordinator.heard(agent)
    coordinator.ask("mu")
    routers = [
        coordinator.agents_router(rig.broker),
        measuring_api.router(coordinator.coordinator, Rules(), ring.principals, coordinator.clock),
    ]
    with TestClient(create_app(rig.broker, ring, more=routers)) as client:
        yield client
    coordinator.close()


INSTANT = re.compile(r"(?<=:)1000[0-9]{3}\.[0-9]{3}\Z")  # of a run's id
BEGAN, LOOKS_AHEAD_S = 1_000_000.0, 400.0


def like(shown: Any, answer: Any, ids: dict[str, str]) -> bool:
    """Whether an answer has what the example shows of it. When exactly a run is made is the
    schedule's business: ``ids`` learns what each id that is shown is called here."""
    if isinstance(shown, dict):
        return isinstance(answer, dict) and all(
            key in answer and like(value, answer[key], ids) for key, value in shown.items()
        )
    if isinstance(shown, list) and shown and isinstance(shown[0], dict):
        return all(any(like(item, other, ids) for other in answer) for item in shown)
    if isinstance(shown, str) and isinstance(answer, str) and INSTANT.search(shown):
        same = INSTANT.sub("", shown) == INSTANT.sub("", answer)
        return same and answer == ids.setdefault(shown, answer)
    if isinstance(shown, float) and BEGAN < shown < BEGAN + LOOKS_AHEAD_S:
        return isinstance(answer, float) and BEGAN < answer < BEGAN + LOOKS_AHEAD_S
    return bool(shown == answer)


def test_every_example_is_as_it_is_shown(web: TestClient) -> None:
    examples = EXAMPLE.findall(SECTION)
    assert len(examples) == SECTION.count("```http") > 10
    ids: dict[str, str] = {}
    for verb, shown_path, body, shown in examples:
        path = shown_path
        for shown_id, own_id in ids.items():
            path = path.replace(shown_id, own_id)
        answer = web.request(verb, path, json=json.loads(body) if body else None)
        assert answer.is_success, (verb, path, answer.text)
        assert like(json.loads(shown), answer.json(), ids), (verb, path, answer.text)


def test_every_operation_has_an_example() -> None:
    shown = [
        (verb.lower(), path.partition("?")[0]) for verb, path, _, _ in EXAMPLE.findall(SECTION)
    ]
    for path, verbs in description(documented_routes())["paths"].items():
        for verb, operation in verbs.items():
            if set(operation.get("tags", ())) & {"agents", "measuring"}:
                pattern = re.sub(r"\\\{.*?\\\}", "[^/]+", re.escape(path)) + r"\Z"
                assert any(v == verb and re.match(pattern, p) for v, p in shown), (verb, path)


def test_configurations_are_as_they_are_shown() -> None:
    shown = YAML.findall((ROOT / "docs/measuring.md").read_text(encoding="utf-8"))
    shown += [
        block
        for block in YAML.findall((ROOT / "docs/security.md").read_text(encoding="utf-8"))
        if "access:" in block
    ]
    assert len(shown) == 2
    for block in shown:
        data = yaml.safe_load((ROOT / "examples/adon.yml").read_text(encoding="utf-8"))
        config = parse_config({**data, **yaml.safe_load(block)}, "adon.yml")
        assert config.monitoring is not None
        rules = rules_from_list(config.monitoring.access, topology_from_dict(config.topology))
        measurement = Measurement("x", "rtt", "mu>tacc", 1.0, "s", 1.0, "t")
        for who in keyring_of(config).principals():
            if who.name == "ada":
                assert rules.may_see(who, measurement) and rules.may_start(who, "mu", "tacc", "rtt")
