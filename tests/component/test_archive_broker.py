"""The broker's archive in a real PostgreSQL, seen from outside, and processes that are killed."""

from __future__ import annotations

import http.client
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from postgres_world import new_place, server_in

from adon.cli import main
from examples.testbed.ports import free_ports
from examples.testbed.postgres import Postgres
from monitors.archive import Archive, Measurement
from monitors.retention.horizons import DAY_S
from monitors.retention.rollups import roll_ups
from tests.replay import replay

pytestmark = pytest.mark.component

_EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "adon.yml"
_READY_S = 300.0  # nothing here takes nearly as long
_COUNT, _KILLS = 100_000, 5


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    with server_in(tmp_path_factory.mktemp("pg")) as running:
        yield running


class Broker:
    """A process of its own."""

    def __init__(self, folder: Path, archive: str, retention: dict[str, Any]) -> None:
        (self.port,) = free_ports(1)
        config = yaml.safe_load(_EXAMPLE.read_text(encoding="utf-8"))
        config["broker"] = {
            "listen": f"127.0.0.1:{self.port}",
            "state": str(folder / "state.sqlite"),
            "archive": archive,
        }
        config["monitoring"] = {"retention": retention}
        self.config = folder / "adon.yml"
        self.config.write_text(yaml.safe_dump(config), encoding="utf-8")
        self.log = folder / "log"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "adon.service", "--config", str(self.config),
                 "--tied-to", str(os.getpid())],
                cwd=folder, stdout=log, stderr=log,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            )  # fmt: skip

    def ask(self, verb: str, path: str, body: Any = None) -> Any:
        deadline = time.monotonic() + _READY_S
        while True:
            client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_READY_S)
            try:
                text = None if body is None else json.dumps(body)
                client.request(verb, path, text, {"Content-Type": "application/json"})
                answer = client.getresponse()
                data = answer.read()
            except OSError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise AssertionError(self.log.read_text()) from None
                time.sleep(0.05)  # it is starting
                continue
            finally:
                client.close()
            assert answer.status == 200, data
            return data.decode() if path == "/metrics" else json.loads(data)


def body(key: str, at: float) -> dict[str, Any]:
    return {"id": key, "metric": "rtt", "subject": "mu>tacc", "value": 0.05, "unit": "s",
            "at": at, "source": "ping"}  # fmt: skip


def test_a_broker_on_a_database(
    server: Postgres, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = new_place(server)
    now = time.time()
    with Archive(url) as archive:  # of somebody else, long ago
        archive.record(Measurement("old", "rtt", "mu>tacc", 0.07, "s", now - 1e6, "ping"))
        archive.record(Measurement("new", "rtt", "mu>tacc", 0.06, "s", now - 10, "ping"))
    broker = Broker(tmp_path, url, {"default": {"raw": "1 d"}})
    try:
        sent = {"measurements": [body("a", now), body("b", now), body("old", now - 1e6)]}
        assert broker.ask("POST", "/v1/measurements", sent) == {"recorded": 2, "known": 1}
        feed = http.client.HTTPConnection("127.0.0.1", broker.port, timeout=_READY_S)
        feed.request("GET", "/v1/feed?after=0")
        stream = feed.getresponse()
        seen: list[str] = []
        with Archive(url) as archive:
            archive.record(Measurement("c", "rtt", "mu>tacc", 0.04, "s", now + 0.5, "another"))
            while "c" not in seen:
                line = stream.readline()
                if line.startswith(b"data: "):
                    seen.append(json.loads(line[6:])["id"])
            assert seen[-4:] == ["new", "a", "b", "c"]
            # Retention began with the broker.
            deadline = time.monotonic() + _READY_S
            while archive.get("old") is not None:
                assert time.monotonic() < deadline, broker.log.read_text()
                time.sleep(0.05)
        found = broker.ask("GET", f"/v1/estimates?metric=rtt&subject=mu%3Etacc&now={now + 1}")
        assert (found["count"], found["source"]) == (5, "another")
        shown = broker.ask("GET", "/metrics")
        assert 'adon_measurement{metric="rtt"' in shown and "adon_archive_up 1.0" in shown
        assert main(["archive", "query", "rtt", "--archive", url, "--json"]) == 0
        assert len(capsys.readouterr().out.splitlines()) == 4
        assert main(["archive", "retain", "--config", str(broker.config)]) == 0
        broker.process.send_signal(signal.SIGTERM)
        stream.read()  # comes to its end, and is not cut off
        assert broker.process.wait(_READY_S) == 0, broker.log.read_text()
        feed.close()
    finally:
        broker.process.kill()
        broker.process.wait()


def test_from_a_file_to_a_database_and_back(server: Postgres, tmp_path: Path) -> None:
    first, back, url = tmp_path / "a.sqlite", tmp_path / "b.sqlite", new_place(server)
    with Archive(first) as archive:
        archive.record_many(
            Measurement(f"{n}", "rtt", "ä>ß", n / 7, "s", n * 60.0, "x", "w", {"n": n})
            for n in range(3000)
        )
    assert main(["archive", "copy", str(first), url]) == 0
    assert main(["archive", "copy", url, str(back)]) == 0
    with Archive(first) as one, Archive(back) as other:
        assert one.after(0, limit=5000) == other.after(0, limit=5000)


@pytest.mark.parametrize("where", ["file", "database"])
def test_retention_that_is_killed_loses_and_doubles_nothing(
    server: Postgres, tmp_path: Path, where: str
) -> None:
    place = new_place(server) if where == "database" else str(tmp_path / "a.sqlite")
    count, chooser = 30_000, random.Random(3)
    with Archive(place) as archive:
        archive.record_many(
            Measurement(f"{n}", "rtt", f"h{n % 3}", n % 97, "s", n * 100.0, "x")
            for n in range(count)
        )
    code = (
        "import sys\n"
        "from monitors.archive import Archive\n"
        "from monitors.retention import service, steps\n"
        "from monitors.retention.horizons import Keep, Retention\n"
        "steps.STEP, steps.ROWS = 200, 50\n"
        "keep = Retention(Keep(3600.0, 7200.0))\n"
        "with Archive(sys.argv[1]) as archive:\n"
        "    now = float(sys.argv[2])\n"
        "    def ended():\n"
        "        print(flush=True)\n"
        "        sys.stdin.readline()  # it goes no farther than it is let\n"
        "    service.retain(archive, keep, now, ended, lambda _: None)\n"
    )
    kills = 0
    for _ in range(6):
        steps = chooser.randrange(1, 60)
        with subprocess.Popen(
            [sys.executable, "-c", code, place, str(count * 100.0)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        ) as process:  # fmt: skip
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write(b"\n" * steps)
            for _ in range(steps):
                process.stdout.readline()
            process.kill()  # somewhere in its next step
            process.stdout.read()
            kills += process.wait() == -signal.SIGKILL
    assert kills > 2  # but for those whose database stood still
    with Archive(place) as archive:
        assert archive.engine.rows("SELECT * FROM retaining") == []
        for subject in ("h0", "h1", "h2"):
            days = roll_ups(archive, "rtt", subject, DAY_S, 0, 1e9)
            assert sum(day.number for day in days) == count // 3
            assert sum(day.total for day in days) == sum(
                n % 97 for n in range(count) if f"h{n % 3}" == subject
            )


def test_a_replay_that_is_killed_loses_and_doubles_nothing(tmp_path: Path) -> None:
    found = replay(str(tmp_path / "a.sqlite"), _COUNT, _KILLS, seed=1)
    assert found.wrong == 0, found
    assert found.kills > 0


def test_a_replay_into_a_database_that_is_killed_loses_and_doubles_nothing(
    server: Postgres,
) -> None:
    found = replay(new_place(server), _COUNT, _KILLS, seed=2)
    assert found.wrong == 0, found
    assert found.kills > 0
