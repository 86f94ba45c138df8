"""Measuring from end to end: a real broker process, two real agents, TLS with certificates on both
sides, kill -9 of each of them, and what the archive has afterwards."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from authority import Authority

from examples.testbed.ports import free_ports
from network_provisioner.access import hash_of
from network_provisioner.base.errors import BrokerError
from network_provisioner.client.broker import BrokerClient
from network_provisioner.client.http1 import Tls

pytestmark = pytest.mark.component

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 300.0  # nothing here takes nearly as long
ADDRESSES = {"mu": "127.0.0.1", "tacc": "127.0.0.2"}
TASKS = {
    "rtt": {"tool": "echo", "from": "mu", "to": "tacc", "every": "5 s", "for": "1 s"},
    "back": {"tool": "echo", "from": "tacc", "to": "mu", "every": "5 s", "for": "1 s"},
    "load": {"tool": "host", "from": "mu", "every": "5 s", "for": "1 s"},
}
ONCE = {"tool": "echo", "from": "mu", "to": "tacc", "for": "2 s"}
# What is said of a run of which an end stood still: it began late, or the other waited for it.
STOOD_STILL = ("too late", "no time is left", "does not answer", "nobody came")


def token_of(name: str) -> str:
    return f"the-token-of-agent-{name}"


class World:
    """A folder with everything, and the processes that run in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = Authority(folder)
        self.certificates = {
            name: self.authority.issue(name, hosts=["127.0.0.1"] if name == "broker" else [])
            for name in ("broker", *ADDRESSES, "ada", "eve")
        }
        (self.port,) = free_ports(1)
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self._configure()
        for name in ADDRESSES:
            self.agent_config(name)

    def _configure(self) -> None:
        config = yaml.safe_load((ROOT / "examples/adon.yml").read_text())
        certificate, key = self.certificates["broker"]
        roles = {"mu": "agent", "tacc": "agent", "ada": "researcher", "eve": "engineer"}
        config["broker"] = {
            "listen": f"127.0.0.1:{self.port}", "state": str(self.folder / "state.sqlite"),
            "archive": str(self.folder / "archive.sqlite"),
        }  # fmt: skip
        config["security"] = {
            "tls": {"certificate": certificate, "key": key, "clients": self.authority.file},
            "tokens": [
                {"name": name, "role": role, "sha256": hash_of(token_of(name))}
                for name, role in roles.items()
            ],
        }
        config["monitoring"] = {
            "agents": [
                {"name": name, "address": address, "ports": [(p := free_ports(1)[0]), p]}
                for name, address in ADDRESSES.items()
            ],
            "tasks": TASKS,
            "access": [{"who": ["ada"], "may": ["start"], "sites": ["mu", "tacc"],
                        "metrics": ["rtt", "loss", "jitter", "one_way_delay"]}],
        }  # fmt: skip
        config.pop("pool", None)
        (self.folder / "adon.yml").write_text(yaml.safe_dump(config))

    def agent_config(self, name: str, **more: Any) -> None:
        certificate, key = self.certificates[name]
        (self.folder / f"{name}.token").write_text(token_of(name))
        config = {
            "name": name, "broker": f"https://127.0.0.1:{self.port}",
            "token_file": f"{name}.token", "ca": self.authority.file, "certificate": certificate,
            "key": key, "state": f"{name}-state", "address": ADDRESSES[name],
            "limits": {"peers": ["127.0.0.0/8"]}, **more,
        }  # fmt: skip
        (self.folder / f"{name}.yml").write_text(yaml.safe_dump(config))

    def start(self, name: str, program: Sequence[str] = ("-m", "adon")) -> None:
        argv = [*program, "agent", "run", "--config", f"{name}.yml"]
        if name == "broker":
            argv = ["-m", "adon.service.serve", "--config", "adon.yml", "--tied-to"]
            argv.append(str(os.getpid()))
        with (self.folder / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(
                [sys.executable, *argv], cwd=self.folder, stdout=log, stderr=log,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            )  # fmt: skip
        if name == "broker":
            self.until(self._healthy, "the broker answers")

    def kill(self, name: str, number: int = signal.SIGKILL) -> int:
        process = self.running.pop(name)
        process.send_signal(number)
        return process.wait(PATIENCE_S)

    def stop(self) -> None:
        for name in sorted(self.running, reverse=True):
            self.kill(name, signal.SIGTERM)

    def ask(self, method: str, path: str, body: Any = None, who: str = "eve") -> Any:
        """What the broker says to the holder of a certificate. Raises BrokerError."""
        tls = Tls(self.authority.file, *self.certificates[who])
        client = BrokerClient(f"https://127.0.0.1:{self.port}", PATIENCE_S, None, tls)
        return client.call(method, path, body)

    def until(self, holds: Callable[[], Any], what: str) -> Any:
        """Wait until something holds, and give it."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            result = holds()
            if result:
                return result
            for name, process in self.running.items():
                assert process.poll() is None, f"{name} ended: {self.log(name)}"
            assert time.monotonic() < deadline, f"not in time: {what}\n{self.logs()}"
            time.sleep(0.1)

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()

    def logs(self) -> str:
        return "\n".join(f"{p.name}:\n{p.read_text()}" for p in self.folder.glob("*.log"))

    def _healthy(self) -> bool:
        with contextlib.suppress(BrokerError):
            return self.ask("GET", "/v1/health") is not None
        return False

    def counts(self, task: str) -> dict[str, int]:
        counts: dict[str, int] = self.ask("GET", f"/v1/tasks/{task}")["counts"]
        return counts

    def rows(self, sql: str, file: str = "archive.sqlite") -> list[tuple[Any, ...]]:
        with contextlib.closing(sqlite3.connect(self.folder / file, timeout=20)) as db:
            return db.execute(sql).fetchall()

    def measured(self, metric: str, subject: str) -> int:
        return int(
            self.rows(
                f"SELECT count(*) FROM measurement WHERE metric = '{metric}' AND "
                f"subject = '{subject}'"
            )[0][0]
        )


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    try:
        yield made
    finally:
        made.stop()


def test_agents_measure_what_the_broker_says(world: World) -> None:
    world.start("broker")
    for name in ADDRESSES:
        world.start(name)
    world.until(lambda: world.measured("rtt", "mu>tacc") >= 1, "round trips are measured")
    world.until(lambda: world.measured("cpu_use", "mu") >= 1, "the host is measured")
    world.until(lambda: world.measured("rtt", "tacc>mu") >= 1, "the way back is measured")
    (clock,) = [a for a in world.ask("GET", "/v1/agents") if a["name"] == "mu"]
    # It is the same machine's clock; an answer takes twice the error at most.
    assert abs(clock["offset_s"]) <= clock["error_s"] < PATIENCE_S / 2

    # On demand, by a researcher who may, between the scheduled ones. A machine that stops for a
    # second or two spoils it, or is heard of too late; that it is done in time is the long test's.
    run = world.ask("POST", "/v1/tasks/run", ONCE, "ada")
    state = world.until(partial(_ended, world, run["id"]), "the run's end")
    error = world.ask("GET", f"/v1/runs/{run['id']}")["error"]
    assert state in ("done", "missed") or any(words in error for words in STOOD_STILL), error
    with pytest.raises(BrokerError, match="may not start") as caught:
        world.ask("POST", "/v1/tasks/run", {"tool": "host", "from": "mu"}, "ada")
    assert caught.value.code == "forbidden"
    _end(world)


@pytest.mark.long
def test_broker_and_agents_survive_each_other(world: World) -> None:
    world.start("broker")
    for name in ADDRESSES:
        world.start(name)
    world.until(lambda: world.measured("rtt", "mu>tacc") >= 1, "round trips are measured")

    run = world.ask("POST", "/v1/tasks/run", ONCE, "ada")
    assert world.until(partial(_ended, world, run["id"]), "the run's end") == "done", world.logs()

    # The broker dies. Agents go on, and what they measured meanwhile is there afterwards.
    before = world.measured("rtt", "mu>tacc")
    world.kill("broker")
    waiting = world.folder / "mu-state"
    world.until(lambda: _waiting(waiting) >= 2, "an agent goes on and keeps its results")
    world.start("broker")
    world.until(lambda: world.measured("rtt", "mu>tacc") >= before + 3, "they were sent")
    world.until(lambda: _waiting(waiting) == 0, "nothing waits any more")

    # An agent dies: its runs are missed, the others go on, and it comes back.
    world.kill("tacc")
    done = world.counts("load")["done"]
    world.until(lambda: world.counts("load")["done"] > done, "the other agent goes on")
    world.until(
        lambda: world.counts("rtt")["failed"] + world.counts("rtt")["missed"] > 0,
        "what it should have done is not done",
    )
    world.start("tacc")
    done = world.counts("back")["done"]
    world.until(lambda: world.counts("back")["done"] > done, "it measures again")
    _end(world)


def _end(world: World) -> None:
    assert world.kill("mu", signal.SIGTERM) == 0
    assert world.kill("tacc", signal.SIGTERM) == 0
    assert world.kill("broker", signal.SIGTERM) == 0
    _nothing_twice_and_nothing_together(world)


def _ended(world: World, run: str) -> str:
    """How a run ended, "" while it has not."""
    state = str(world.ask("GET", f"/v1/runs/{run}")["state"])
    return state if state in ("done", "failed", "missed") else ""


def _waiting(folder: Path) -> int:
    """Results that an agent keeps because the broker has not taken them."""
    count = 0
    for file in folder.glob("*.run"):
        with contextlib.suppress(FileNotFoundError):  # it is long taken, and was thrown away
            count += json.loads(file.read_text().partition("\n")[0])["state"] == "ended"
    return count


def _nothing_twice_and_nothing_together(world: World) -> None:
    keys = ("id", "task", "release", "at", "end", "state", "uses", "demanded")
    runs = [
        dict(zip(keys, row, strict=True))
        for row in world.rows(
            "SELECT id, task, release_ms, at_ms, end_ms, state, uses, demanded FROM run "
            "WHERE state != 'dropped' ORDER BY at_ms",
            "state.measuring.sqlite",
        )
    ]
    releases = [(r["task"], r["release"]) for r in runs if not r["demanded"]]
    assert len(releases) == len(set(releases)), "a release was measured twice"
    for first, second in ((a, b) for n, a in enumerate(runs) for b in runs[n + 1 :]):
        if second["at"] < first["end"]:
            shared = set(json.loads(first["uses"])["hosts"]) & set(
                json.loads(second["uses"])["hosts"]
            )
            assert not shared, (first, second)
    done_ids = {r["id"] for r in runs if r["state"] == "done"}
    ids = [row[0] for row in world.rows("SELECT id FROM measurement WHERE metric = 'rtt'")]
    assert len(ids) == len(set(ids)) and {i.partition(":")[2] for i in ids} <= done_ids


def test_only_agents_that_are_known_are_heard(world: World, tmp_path: Path) -> None:
    world.start("broker")
    # A certificate of the same authority, but of somebody who is no agent of that name.
    for who, code in (("ada", "forbidden"), ("eve", "forbidden"), ("tacc", "forbidden")):
        with pytest.raises(BrokerError) as caught:
            world.ask("GET", "/v1/agents/mu/assignments", who=who)
        assert caught.value.code == code
    # One that another authority signed does not even get to speak.
    (tmp_path / "other").mkdir()
    stranger = Authority(tmp_path / "other", "other").issue("mu")
    tls = Tls(world.authority.file, *stranger)
    client = BrokerClient(f"https://127.0.0.1:{world.port}", PATIENCE_S, None, tls)
    with pytest.raises(BrokerError) as caught:
        client.call("GET", "/v1/agents/mu/assignments")
    assert caught.value.code == "unreachable"
