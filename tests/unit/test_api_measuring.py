"""Agents, tasks and runs over HTTP: long polls, and who may what."""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from api_rig import FOR_EVER_S, bearer, error, serving, token_of
from broker_rig import Rig
from coordinator_rig import HOST, TCP, CoordinatorRig, result_of
from fastapi import FastAPI
from fastapi.testclient import TestClient
from waiting import until

from adon.config.adon_yml import parse_config
from adon.config.security import keyring_of
from adon.service.monitoring import documented_routes
from monitors.api import measuring as measuring_api
from monitors.base.measurement import Measurement
from monitors.rules import Rule, Rules, rules_from_list
from network_provisioner.access import Key, Keyring, Principal, Role, hash_of
from network_provisioner.api import create_app, description
from network_provisioner.client.broker import BrokerClient
from network_provisioner.topology.data import topology_from_dict

AGENTS = ("mu", "tacc", "iplant", "local")
ALIKE = ("m", "mu/n1")  # keys of agents that are called almost like one of them
RULES = Rules([Rule(("measurement",), ("start",)), Rule(("ada",), ("start",), ("mu", "local"))])


@pytest.fixture
def coordinator(tmp_path: Path) -> Iterator[CoordinatorRig]:
    rig = CoordinatorRig(tmp_path, rules=RULES)
    yield rig
    rig.close()


@pytest.fixture
def app(tmp_path: Path, coordinator: CoordinatorRig) -> FastAPI:
    rig = Rig(tmp_path / "state.sqlite", clock=coordinator.clock)
    keys = [Key(Principal(str(role), role), hash_of(token_of(role))) for role in Role]
    keys.append(Key(Principal("ada", Role.RESEARCHER, frozenset({"ada"})), hash_of(token_of("a"))))
    keys += [Key(Principal(name, Role.AGENT), hash_of(token_of(name))) for name in AGENTS + ALIKE]
    ring = Keyring(keys, coordinator.clock)
    routers = [
        coordinator.agents_router(rig.broker),
        measuring_api.router(coordinator.coordinator, RULES, ring.principals, coordinator.clock),
    ]
    return create_app(rig.broker, ring, more=routers)


@pytest.fixture
def web(app: FastAPI) -> Iterator[TestClient]:
    with TestClient(app, raise_server_exceptions=False) as client:
        yield client


def ask(web: Any, agent: str, token: str = "", **query: Any) -> Any:
    path = f"/v1/agents/{agent}/assignments"
    return web.get(path, params=query, headers=bearer(token or agent))


def post(web: Any, agent: str, results: Any, token: str = "") -> Any:
    path, body = f"/v1/agents/{agent}/results", {"results": results}
    return web.post(path, json=body, headers=bearer(token or agent))


def test_an_agents_part_is_for_that_agent_alone(web: TestClient) -> None:
    for token in ("tacc", *ALIKE, "engineer", "measurement", "operator", "a"):
        assert error(ask(web, "mu", token))[:2] == (403, "forbidden")
        assert error(post(web, "mu", [], token))[:2] == (403, "forbidden")
    assert error(web.get("/v1/agents/mu/assignments"))[:2] == (401, "unauthorized")
    assert error(ask(web, "agent"))[:2] == (404, "unknown_agent")


def test_without_tokens_everybody_is_every_agent(
    tmp_path: Path, coordinator: CoordinatorRig
) -> None:
    """On loopback alone: adon.yml without tokens allows nothing else."""
    rig, ring = (
        Rig(tmp_path / "other.sqlite", clock=coordinator.clock),
        Keyring((), coordinator.clock),
    )
    routes = coordinator.agents_router(rig.broker)
    with TestClient(create_app(rig.broker, ring, more=[routes])) as web:
        assert web.get("/v1/agents/mu/assignments").json()["agent"] == "mu"
        assert error(web.get("/v1/agents/mars/assignments"))[1] == "unknown_agent"


def test_results_come_back_accepted_or_refused(
    web: TestClient, coordinator: CoordinatorRig
) -> None:
    coordinator.all_present()
    coordinator.let_pass(60)
    run = next(r for r in coordinator.runs() if r.task == "tcp")
    right = result_of(run, "mu")
    spoilt = {**right, "assignment": "nothing"}
    answer = post(web, "mu", [right, spoilt]).json()
    assert answer["accepted"] == [run.id] and list(answer["refused"]) == ["nothing"]
    assert coordinator.measured("tcp_throughput") == [f"tcp_throughput:{run.id}"]
    assert error(post(web, "mu", [right] * 51))[:2] == (400, "bad_request")
    assert error(post(web, "mu", [3]))[:2] == (400, "bad_request")
    result = web.get(f"/v1/runs/{run.id}", headers=bearer("operator")).json()
    assert (result["state"], result["measured"]) == ("done", ["tcp_throughput"])
    assert "options" not in json.dumps(result), "what only both ends are to know"


def test_what_an_agent_says_of_itself_is_shown(web: TestClient) -> None:
    ask(web, "mu", offset_s=0.5, error_s=0.01, unsent=3, version="7", tools="tcp,host", odd="x")
    mu, tacc = (web.get(f"/v1/agents/{n}", headers=bearer("operator")).json() for n in AGENTS[:2])
    assert (mu["offset_s"], mu["unsent"], mu["version"], mu["tools"]) == (
        0.5, 3, "7", ["tcp", "host"],
    )  # fmt: skip
    assert mu["present"] and mu["to_do"] == 15 and len(mu["next"]) == 5
    assert not tacc["present"] and tacc["last_seen"] is None
    listed = web.get("/v1/agents", headers=bearer("operator")).json()
    assert [a["name"] for a in listed] == list(AGENTS)
    assert error(web.get("/v1/agents/mars", headers=bearer("operator")))[1] == "unknown_agent"


def test_an_agent_reports_connections(web: TestClient) -> None:
    path = "/v1/agents/mu/connections"
    ends = {"local": "10.10.0.1", "local_port": 50_000, "remote": "::ffff:10.10.0.2"}
    connection = {"client_port": 20_001, **ends, "remote_port": 9}
    posted = web.post(path, json={"connections": [connection]}, headers=bearer("mu"))
    assert (posted.status_code, posted.json()) == (200, {"agent": "mu"})
    for wrong in ({**connection, "local": "mu"}, {**connection, "client_port": 0}, ends):
        assert error(web.post(path, json={"connections": [wrong]}, headers=bearer("mu")))[:2] == (
            400, "bad_request",
        )  # fmt: skip
    assert error(web.post(path, json={"connections": []}, headers=bearer("tacc")))[0] == 403


def test_an_agent_reports_what_its_connections_send(web: TestClient) -> None:
    path = "/v1/agents/mu/sockets"
    ends = ["10.10.0.1", 50_000, "::ffff:10.10.0.2", 5001]
    sample = [*ends, 1.0, 12_500, 1.0, 0.25, 0.0, True, 0]
    posted = web.post(path, json={"sockets": [sample]}, headers=bearer("mu"))
    assert (posted.status_code, posted.json()) == (200, {"agent": "mu"})
    for wrong in (sample[:-1], [*ends, 1.0, -1, *sample[6:]], [*ends, 1.0, 9, 1.5, *sample[7:]]):
        assert error(web.post(path, json={"sockets": [wrong]}, headers=bearer("mu")))[:2] == (
            400, "bad_request",
        )  # fmt: skip
    assert error(web.post(path, json={"sockets": []}, headers=bearer("tacc")))[0] == 403


def test_what_an_agent_cannot_have_sent_is_refused_and_not_heard(web: TestClient) -> None:
    path, ends = "/v1/agents/mu/sockets", ["10.10.0.1", 50_000, "10.10.0.2", 5001]
    lie = [*ends, 1.0, 10**12, 1.0, 0.0, 0.0, True, 0]
    code, kind, *words = error(web.post(path, json={"sockets": [lie]}, headers=bearer("mu")))
    assert (code, kind) == (400, "bad_request")
    assert "found 8 Tb/s sent, expected at most the" in str(words)


def test_what_the_disks_of_a_host_do_is_archived_by_ten_seconds(
    web: TestClient, coordinator: CoordinatorRig
) -> None:
    path, mu = "/v1/agents/mu/disks", bearer("mu")
    second, process = [0.25, 0, 8e7, 0.5], ["cp", 4711, 0, 8e7, 0.5]
    body = {"source": "delay", "seconds": [second], "processes": [process]}
    for _ in range(11):
        assert web.post(path, json=body, headers=mu).json() == {"agent": "mu"}
        coordinator.let_pass(1)
    (row,) = coordinator.archive.query("disk_io")
    assert (row.subject, row.value, row.unit, row.source) == ("mu", 0.5, "1", "agent:mu")
    assert row.details["source"] == "delay" and row.at == row.details["seconds"][-1][0]
    assert row.details["seconds"][0] == [1_000_000 - 0.25, 0, 80_000_000, 0.5]
    assert row.details["processes"] == [process] * len(row.details["seconds"])
    web.post(path, json=body | {"source": "pressure", "processes": []}, headers=mu)
    assert len(coordinator.archive.query("disk_io")) == 2, "where I/O wait is from is one thing"
    for wrong in (
        body | {"seconds": []},
        body | {"seconds": [[0.25, 0, 8e7, 1.5]]},
        body | {"seconds": [[0.25, -1, 8e7, 0.5]]},
        body | {"source": "guess"},
    ):
        assert error(web.post(path, json=wrong, headers=mu))[:2] == (400, "bad_request")
    assert error(web.post(path, json=body, headers=bearer("tacc")))[0] == 403


def test_tasks_come_and_go(web: TestClient) -> None:
    body = {**HOST, "from": "local", "every": "20 s", "for": "2 s"}
    engineer = bearer("engineer")
    made = web.put("/v1/tasks/mine", json=body, headers=engineer)
    assert (made.status_code, made.json()["subject"]) == (201, "local"), made.text
    assert made.json()["by"] == "engineer" and made.json()["every_s"] == 20.0
    assert web.put("/v1/tasks/mine", json=body, headers=engineer).status_code == 200
    assert [t["name"] for t in web.get("/v1/tasks", headers=engineer).json()] == [
        "echo", "host", "mine", "tcp",
    ]  # fmt: skip
    assert web.get("/v1/schedule", headers=engineer).json()["tasks"] == 4
    assert web.delete("/v1/tasks/mine", headers=engineer).json()["name"] == "mine"
    assert error(web.get("/v1/tasks/mine", headers=engineer))[1] == "unknown_task"
    for bad in (
        {**body, "evry": 1},
        {"tool": "tcp"},
        {**body, "every": "soon"},
        {**TCP, "for": "2 h"},
    ):
        assert error(web.put("/v1/tasks/bad", json=bad, headers=engineer))[:2] == (
            400, "bad_request",
        )  # fmt: skip
    status, code, words = error(
        web.put("/v1/tasks/big", json={**TCP, "for": "50 s"}, headers=engineer)
    )
    assert (status, code) == (400, "bad_request") and "'big'" in words
    held = {**TCP, "via": ["s1", "s2"]}
    words = error(web.put("/v1/tasks/held", json=held, headers=engineer))[2]
    assert "via: agent 'mu' has the address" in words, "the agents have other addresses"
    assert error(web.put("/v1/tasks/tcp", json=TCP, headers=engineer))[:2] == (409, "conflict")


def test_runs_on_demand_answer_with_their_instant(
    web: TestClient, coordinator: CoordinatorRig
) -> None:
    assert error(web.post("/v1/tasks/tcp/run", headers=bearer("engineer")))[:2] == (409, "conflict")
    for agent in AGENTS:
        ask(web, agent)
    made = web.post("/v1/tasks/tcp/run", headers=bearer("engineer"))
    assert made.status_code == 201 and made.json()["at"] >= coordinator.clock.now + 3
    assert made.json()["demanded"] == "engineer" and made.json()["state"] == "planned"
    once = {"tool": "tcp", "from": "mu", "to": "local", "for": "5 s", "within": "5 min"}
    run = web.post("/v1/tasks/run", json=once, headers=bearer("a"))
    assert run.status_code == 201, run.text
    assert any(a["id"] == run.json()["id"] for a in ask(web, "local").json()["assignments"])
    refused = {**once, "to": "tacc"}
    assert error(web.post("/v1/tasks/run", json=refused, headers=bearer("a")))[1] == "forbidden"
    for within in ("2 h", "0 s", "soon", -3):
        answer = web.post("/v1/tasks/tcp/run", json={"within": within}, headers=bearer("engineer"))
        assert error(answer)[:2] == (400, "bad_request")
    runs = web.get("/v1/runs?task=tcp&limit=2", headers=bearer("operator")).json()["runs"]
    assert len(runs) == 2 and runs[0]["at"] < runs[1]["at"]
    assert error(web.get("/v1/runs/none", headers=bearer("operator")))[1] == "unknown_measurement"


def test_the_two_questions(web: TestClient) -> None:
    query = "/v1/access?from=mu&to=tacc&metric=rtt"
    body = web.get(query, headers=bearer("engineer")).json()
    keys = {key["name"]: key for key in body["keys"]}
    assert {name for name, key in keys.items() if key["start"]} == {"engineer", "measurement"}
    assert keys["measurement"]["start_why"] == "rule 1 of monitoring.access"
    assert keys["ada"]["see"] and not keys["mu"]["see"]
    # A researcher sees itself alone.
    mine = web.get("/v1/access?from=mu&to=local&metric=rtt", headers=bearer("a")).json()["keys"]
    assert [(key["name"], key["start"]) for key in mine] == [("ada", True)]
    for ends, words in (
        ("from=muu&to=tacc", "from is 'muu', expected a site or SITE/HOST; did you mean 'mu'?"),
        ("from=mu&to=mars/dtn", "to is 'mars/dtn', expected a site or SITE/HOST; "),
    ):
        answer = web.get(f"/v1/access?{ends}&metric=rtt", headers=bearer("engineer"))
        assert error(answer)[:2] == (400, "bad_request") and words in error(answer)[2]
    assert web.get("/v1/access?from=mu/dtn&metric=rtt", headers=bearer("a")).status_code == 200


def test_a_waiting_agent_hears_of_news_at_once(app: FastAPI, coordinator: CoordinatorRig) -> None:
    with serving(app) as port:

        def poll(wait_s: float, after: int, agent: str = "local") -> Any:
            client = BrokerClient(f"http://127.0.0.1:{port}", FOR_EVER_S, token_of(agent))
            path = f"/v1/agents/{agent}/assignments?wait_s={wait_s}&after={after}"
            return client.call("GET", path)

        def waits(agent: str, after: int) -> tuple[threading.Thread, list[Any]]:
            heard: list[Any] = []
            thread = threading.Thread(target=lambda: heard.append(poll(50, after, agent)))
            thread.start()
            return thread, heard

        other = poll(0, 0, "mu")
        first = poll(50, 0)
        assert first["assignments"] == []
        # For this one there is no news; it would be answered first, were it for the time.
        older, _ = waits("mu", other["version"])
        thread, heard = waits("local", first["version"])
        coordinator.coordinator.put_task(
            "mine", {**HOST, "from": "local"}, Principal("", Role.ENGINEER)
        )
        thread.join(FOR_EVER_S)
        assert {a["task"] for a in heard[0]["assignments"]} == {"mine"}
        assert heard[0]["version"] != first["version"]
        assert older.is_alive(), "it waited until its time was over"
        until(lambda: poll(0, 0, "mu") and not older.is_alive())  # a newer question ends it
        # Nothing new: the answer comes when the agent's patience is over, and is the same.
        again = poll(0.2, heard[0]["version"])
        assert again["version"] == heard[0]["version"]


def test_a_newer_question_of_an_agent_ends_the_older_one(
    app: FastAPI, coordinator: CoordinatorRig
) -> None:
    with serving(app) as port:

        def poll(agent: str, wait_s: float, after: int) -> Any:
            client = BrokerClient(f"http://127.0.0.1:{port}", FOR_EVER_S, token_of(agent))
            path = f"/v1/agents/{agent}/assignments?wait_s={wait_s}&after={after}"
            return client.call("GET", path)

        versions = {name: poll(name, 0, 0)["version"] for name in ("local", "mu")}
        answered: list[tuple[str, int, int]] = []

        def wait(name: str, number: int) -> None:
            answer = poll(name, 50, versions[name])
            answered.append((name, number, answer["version"]))

        # That of another agent began first: it would end first, were it for the time.
        threads = [threading.Thread(target=wait, args=("mu", 0))]
        threads += [threading.Thread(target=wait, args=("local", n)) for n in range(20)]
        for thread in threads:
            thread.start()
        until(lambda: len(answered) >= 19, "the older questions to end")
        # As if their time were over; the newest one, and another agent's, wait on.
        assert {(name, version) for name, _, version in answered} == {("local", versions["local"])}

        def all_answered() -> bool:
            for name in versions:  # a question ends those before it: who has not come, waits 50 s
                poll(name, 0, 0)
            return len(answered) == 21

        until(all_answered)
        for thread in threads:
            thread.join(FOR_EVER_S)


def test_an_agent_that_hangs_up_is_silent_before_its_time(
    app: FastAPI, coordinator: CoordinatorRig
) -> None:
    version = coordinator.coordinator.version("mu")
    with serving(app) as port:
        with socket.create_connection(("127.0.0.1", port)) as sock:
            path = f"/v1/agents/mu/assignments?wait_s=60&after={version}"
            head = f"Host: a\r\nAuthorization: {bearer('mu')['Authorization']}\r\n\r\n"
            sock.sendall(f"GET {path} HTTP/1.1\r\n{head}".encode())
            until(lambda: coordinator.agent_registry.present("mu", coordinator.clock.now))
        until(lambda: coordinator.agent_registry._due["mu"] <= coordinator.clock.now, "its end")
        assert coordinator.coordinator.silent() == {}
        coordinator.clock.now += 2
        assert list(coordinator.coordinator.silent()) == ["agent 'mu'"]


def test_a_service_that_stops_does_not_wait_for_agents(
    app: FastAPI, coordinator: CoordinatorRig
) -> None:
    version = coordinator.coordinator.version("mu")
    answers: list[Any] = []
    with serving(app) as port:
        client = BrokerClient(f"http://127.0.0.1:{port}", FOR_EVER_S, token_of("mu"))
        path = f"/v1/agents/mu/assignments?wait_s=60&after={version}"
        thread = threading.Thread(target=lambda: answers.append(client.call("GET", path)))
        thread.start()
        until(lambda: coordinator.agent_registry.present("mu", coordinator.clock.now))
    thread.join(FOR_EVER_S)
    assert [answer["version"] for answer in answers] == [version]


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
def documented(tmp_path: Path) -> Iterator[TestClient]:
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


def test_every_example_is_as_it_is_shown(documented: TestClient) -> None:
    examples = EXAMPLE.findall(SECTION)
    assert len(examples) == SECTION.count("```http") > 10
    ids: dict[str, str] = {}
    for verb, shown_path, body, shown in examples:
        path = shown_path
        for shown_id, own_id in ids.items():
            path = path.replace(shown_id, own_id)
        answer = documented.request(verb, path, json=json.loads(body) if body else None)
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
