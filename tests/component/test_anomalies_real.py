"""Anomalies by a real broker process that is killed and comes back: from what pScheduler posts and
an archive has, to somebody who is told once."""

from __future__ import annotations

import http.client
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from waiting import until

from examples.testbed.ports import free_ports
from tests.esmond_world import Esmond, serving

pytestmark = [pytest.mark.component, pytest.mark.long]

_EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "adon.yml"
_READY_S = 300.0  # nothing here takes nearly as long
_PERIOD_S, _DAYS = 600, 6
_FALL_S = 7200  # before now


@contextmanager
def broker(folder: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """The process, killed at the end."""
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "adon.service.serve", "--config", str(folder / "adon.yml"),
             "--tied-to", str(os.getpid())],
            cwd=folder, stdout=log, stderr=log,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def ask(port: int, verb: str, path: str, body: Any = None, wanted: int | None = None) -> Any:
    """JSON of the broker, as soon as it is there, or answers with the status that is ``wanted``."""
    deadline = time.monotonic() + _READY_S
    while True:
        client = http.client.HTTPConnection("127.0.0.1", port, timeout=_READY_S)
        try:
            text = None if body is None else json.dumps(body)
            client.request(verb, path, text, {"Content-Type": "application/json"})
            answer = client.getresponse()
            data = json.loads(answer.read())
        except ConnectionError:
            assert time.monotonic() < deadline
            time.sleep(0.05)  # it is starting
            continue
        finally:
            client.close()
        if wanted is not None and answer.status != wanted:
            assert time.monotonic() < deadline, data
            time.sleep(0.1)
            continue
        assert answer.status == 200, data
        return data


def anomalies(port: int, count: int) -> list[dict[str, Any]]:
    """What is known, when there is so much."""

    def enough() -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = ask(port, "GET", "/v1/anomalies")["anomalies"]
        return rows if len(rows) >= count else []

    return until(enough, f"{count} anomalies")


def wait_for(file: Path, text: str) -> None:
    """Until a file has a text."""
    until(lambda: file.exists() and text in file.read_text(), text)


def posted(number: int, at: float, seconds: float) -> dict[str, Any]:
    """An rtt run's result."""
    return {
        "id": f"run-{number}",
        "schedule": {"start": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))},
        "test": {"type": "rtt", "spec": {"source": "ps.mu.example.edu", "dest": "ps.tacc.org"}},
        "tool": {"name": "ping", "version": "1.0"},
        "participants": ["ps.mu.example.edu"],
        "result": {"succeeded": True, "mean": f"PT{seconds:.6f}S", "loss": 0, "roundtrips": []},
    }


def test_told_once_whatever_is_killed(tmp_path: Path) -> None:
    draw, now = random.Random(1), int(time.time())
    times = range(now - _DAYS * 86_400, now, _PERIOD_S)
    world = Esmond()
    world.add("k", "ps.mu.example.edu", "ps.tacc.org")
    world.put(
        "k",
        "throughput",
        {at: (9e8 if at < now - _FALL_S else 5e8) * draw.uniform(0.97, 1.03) for at in times},
    )
    (port,) = free_ports(1)
    notices = tmp_path / "told"
    config = yaml.safe_load(_EXAMPLE.read_text(encoding="utf-8"))
    config["broker"] = {
        "listen": f"127.0.0.1:{port}", "state": "state.sqlite", "archive": "archive.sqlite",
    }  # fmt: skip
    with serving(world) as url:
        config["monitoring"] = {
            "perfsonar": [
                {"hosts": {"*.mu.example.edu": "mu", "*.tacc.org": "tacc"}},
                {"archive": url, "every": "10 s"},
            ],
            "notices": [
                {"on": ["anomaly"], "command": ["sh", "-c", f"cat >> {notices}; echo >> {notices}"]}
            ],
        }
        (tmp_path / "adon.yml").write_text(yaml.safe_dump(config), encoding="utf-8")
        with broker(tmp_path, port):
            (fell,) = anomalies(port, 1)
            wait_for(notices, "tcp_throughput of mu>tacc fell")
        assert (fell["metric"], fell["subject"]) == ("tcp_throughput", "mu>tacc")
        assert fell["since"] == next(at for at in times if at >= now - _FALL_S)
        assert fell["change"] == pytest.approx(-4 / 9, abs=0.03)
        with broker(tmp_path, port):
            for number, at in enumerate(times):
                trip_s = (0.05 if at < now - _FALL_S else 0.09) * draw.uniform(0.97, 1.03)
                answer = ask(port, "POST", "/v1/perfsonar/results", posted(number, at, trip_s))
                assert answer["recorded"] == 2
            wait_for(notices, "rtt of mu>tacc rose")
        with broker(tmp_path, port):
            route = "/v1/anomalies/limits?metric=rtt&subject=mu%3Etacc"
            (limits,) = ask(port, "GET", route, wanted=200)["limits"]
            again, rose = sorted(
                anomalies(port, 2), key=lambda anomaly: str(anomaly["metric"]) == "rtt"
            )
    assert (limits["measured"], limits["ready"]) == (len(times), True)
    assert limits["expected"] == pytest.approx(0.09, rel=0.05)
    assert again == fell
    assert (rose["metric"], rose["kind"]) == ("rtt", "level")
    assert notices.read_text().count("tcp_throughput of mu>tacc fell") == 1
    assert notices.read_text().count("rtt of mu>tacc rose") == 1
