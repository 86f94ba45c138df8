"""An agent that is killed again and again: every run is told once, and none is done twice."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from monitors.agents.messages import Assignment
from tests.agents_broker import FakeBroker

pytestmark = pytest.mark.component

ADON = (sys.executable, "-c", "from adon.cli import main; raise SystemExit(main())")
TOKEN = "a-token-of-some-length"
RUNS = 120
EVERY_S = 0.2
RUN_S = 0.6
KILLS = 12


def test_kill_9_at_random_points(tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    done = tmp_path / "done"
    command = ["sh", "-c", f'echo "$ADON_SUBJECT" >> {done}; sleep 0.1; echo 1']
    broker = FakeBroker({"mu": TOKEN})
    config = {
        "name": "mu", "broker": broker.url, "token": TOKEN, "state": "state",
        "commands": {"note": {"argv": command}},
    }  # fmt: skip
    (tmp_path / "agent.yml").write_text(yaml.safe_dump(config))
    argv = [*ADON, "agent", "run", "--config", str(tmp_path / "agent.yml")]
    at = broker.clock() + 3.0
    ids = [str(number) for number in range(RUNS)]
    broker.tell(
        "mu",
        *(
            Assignment(
                key, "note", "command", "alone", key, at + number * EVERY_S, RUN_S,
                options={"command": "note"},
            )
            for number, key in enumerate(ids)
        ),
    )  # fmt: skip
    kills, log = 0, (tmp_path / "log").open("w")
    with log:
        while True:
            broker.forget_receipts = chance.randrange(2)
            agent = subprocess.Popen(argv, stdout=log, stderr=log)
            try:
                if kills == KILLS:
                    # What was over while no agent ran, nobody tells: the broker knows that itself.
                    over = at + RUNS * EVERY_S + RUN_S
                    while broker.clock() < over or _unsent(tmp_path):
                        time.sleep(0.1)
                    agent.send_signal(signal.SIGTERM)
                    assert agent.wait(60) == 0
                    break
                time.sleep(chance.uniform(0.3, 2.5))
            finally:
                agent.kill()
                agent.wait()
            kills += 1
    broker.stop()
    desk = broker.desks["mu"]
    noted = done.read_text().split()
    assert len(noted) == len(set(noted)), "a run was done twice"
    assert set(desk.times.values()) == {1}, "a result was told in two ways"
    # Whatever began was told, with its value or as killed.
    assert set(noted) <= set(desk.results)
    measured = [key for key, result in desk.results.items() if result["measurements"]]
    assert set(measured) <= set(noted)
    killed = [r for r in desk.results.values() if r["error"].startswith("the agent was killed")]
    print(f"{len(noted)} of {RUNS} begun, {len(measured)} measured, {len(killed)} told as killed")
    assert measured
    assert killed


def _unsent(folder: Path) -> bool:
    """Whether a result waits on disk."""
    heads = (file.read_bytes().partition(b"\n")[0] for file in (folder / "state").glob("*.run"))
    return any(b'"taken"' not in head for head in heads)
