"""A transfer to a full disk waits: a real broker and agent, and a small file system in memory."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from network_world import star
from waiting import until

from examples.testbed.ports import free_port
from network_provisioner.access import hash_of
from network_provisioner.base.errors import BrokerError
from network_provisioner.base.model import Transit, TransitRequest, TransitState
from network_provisioner.client.broker import BrokerClient

pytestmark = [pytest.mark.component, pytest.mark.root]

MB = 10**6
TOKENS = {"tacc": "agent", "ada": "engineer"}


@pytest.fixture
def scratch(tmp_path: Path) -> Iterator[Path]:
    """Thirty megabytes."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    options = ["-o", "size=30m", "-t", "tmpfs", "tmpfs"]
    subprocess.run(["mount", *options, str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., None]]:
    running: list[subprocess.Popen[bytes]] = []

    def started(*words: str) -> None:
        with (tmp_path / "log").open("ab") as log:
            running.append(
                subprocess.Popen(
                    [sys.executable, "-m", *words], cwd=tmp_path, stdout=log, stderr=log,
                    env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
                )
            )  # fmt: skip

    try:
        yield started
    finally:
        for process in reversed(running):
            process.terminate()
            process.wait(60)


def test_a_transfer_waits_for_room(
    tmp_path: Path, scratch: Path, start: Callable[..., None]
) -> None:
    address, space = f"127.0.0.1:{free_port()}", {"tool": "host", "from": "tacc", "every": "2 s"}
    config: dict[str, Any] = {
        "topology": star("mu", "tacc"),
        "broker": {"listen": address, "state": "state.sqlite", "archive": "archive.sqlite"},
        "controller": {"driver": "simulated"},
        "templates": {"patient": {"qspec": {"min_throughput": "1 Mb/s"}, "patience": "1 h"}},
        "security": {
            "tokens": [
                {"name": name, "role": role, "sha256": hash_of(f"the-token-of-{name}")}
                for name, role in TOKENS.items()
            ]
        },
        "monitoring": {
            "agents": [{"name": "tacc", "address": "127.0.0.1"}],
            "tasks": {"space": {**space, "for": "1 s", "options": {"folder": str(scratch)}}},
        },
    }
    (tmp_path / "adon.yml").write_text(yaml.safe_dump(config))
    (tmp_path / "token").write_text("the-token-of-tacc")
    agent = {"name": "tacc", "broker": f"http://{address}", "token_file": "token", "state": "agent"}
    (tmp_path / "agent.yml").write_text(yaml.safe_dump(agent))
    (scratch / "old").write_bytes(bytes(20 * MB))
    start("adon.service.serve", "--config", "adon.yml")
    client = BrokerClient(f"http://{address}", 60.0, "the-token-of-ada")

    def answers() -> bool:
        try:
            return bool(client.health())
        except BrokerError:
            return False

    until(answers, "the broker")
    start("adon", "agent", "run", "--config", "agent.yml")
    space_of = "/v1/measurements?metric=free_space"

    def measured() -> bool:  # and not of the future: a result has the time at which its run ends
        rows = client.call("GET", space_of)["measurements"]
        return any(row["at"] < time.time() for row in rows)

    until(measured, "a measurement")

    def ask(name: str, size_bytes: int) -> Transit:
        request = TransitRequest(name, "mu", "tacc", size_bytes, template="patient", user="ada")
        (answer,) = client.ask([request])
        assert answer.transit is not None, answer.error
        return answer.transit

    waits = ask("big", 25 * MB)
    assert waits.state is TransitState.QUEUED, waits
    assert waits.reason.startswith("tacc has no room: 25 MB needed, 11.5 MB free ")
    assert ask("small", 5 * MB).state is not TransitState.QUEUED
    (tmp_path / "ada").write_text("the-token-of-ada")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    words = ["transit", "list", "--broker", f"http://{address}"]
    words += ["--token-file", str(tmp_path / "ada")]
    listed = subprocess.run(
        [sys.executable, "-m", "adon", *words], env=env, check=True, capture_output=True, text=True
    ).stdout
    assert "big: tacc has no room: 25 MB needed" in listed
    (scratch / "old").unlink()
    until(lambda: client.get("big").state is TransitState.INSTALLED, "room")
    (scratch / "new").write_bytes(bytes(25 * MB))
