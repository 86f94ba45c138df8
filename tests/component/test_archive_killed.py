"""Retention, and a replay, that are killed: nothing is lost, and nothing is there twice."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from postgres_world import new_place, server_in

from examples.testbed.postgres import Postgres
from monitors.archive.archive import Archive, Measurement
from monitors.archive.retention.horizons import DAY_S
from monitors.archive.retention.rollups import roll_ups
from tests.replay import replay

pytestmark = [pytest.mark.component, pytest.mark.long]

_COUNT, _KILLS = 100_000, 5


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    with server_in(tmp_path_factory.mktemp("pg")) as running:
        yield running


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
        "from monitors.archive.archive import Archive\n"
        "from monitors.archive import retaining\n"
        "from monitors.archive.retention.horizons import Keep, Retention\n"
        "retaining.STEP, retaining.ROWS = 200, 50\n"
        "keep = Retention(Keep(3600.0, 7200.0))\n"
        "with Archive(sys.argv[1]) as archive:\n"
        "    now = float(sys.argv[2])\n"
        "    def ended():\n"
        "        print(flush=True)\n"
        "        sys.stdin.readline()  # it goes no farther than it is let\n"
        "    retaining.retain(archive, keep, now, ended, lambda _: None)\n"
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
            days = roll_ups(archive.engine, "rtt", subject, DAY_S, 0, 1e9)
            assert sum(day.number for day in days) == count // 3
            assert sum(day.total for day in days) == sum(
                n % 97 for n in range(count) if f"h{n % 3}" == subject
            )


@pytest.mark.parametrize("where", ["file", "database"])
def test_a_replay_that_is_killed_loses_and_doubles_nothing(
    server: Postgres, tmp_path: Path, where: str
) -> None:
    place = new_place(server) if where == "database" else str(tmp_path / "a.sqlite")
    outcome = replay(place, _COUNT, _KILLS, seed=1 + (where == "database"))
    assert outcome.wrong == 0, outcome
    assert outcome.kills > 0
