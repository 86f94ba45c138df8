"""An agent that is killed again and again: every run is told once, and none is done twice."""

from __future__ import annotations

import contextlib
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest
import yaml

from monitors.measurements.agent.messages import Assignment
from tests.agents_broker import FakeBroker

pytestmark = [pytest.mark.component, pytest.mark.long]

ADON = (sys.executable, "-c", "from adon.cli import main; raise SystemExit(main())")
PATIENCE_S = 300.0
TOKEN = "a-token-of-some-length"
TURNS = 13  # all but the last of these agents are killed
EACH = 10  # runs that it is told when it is there, and so often:
EVERY_S = 0.2
RUN_S = 3.0
MOST_AGAIN = 20
HELD = 3  # turns in which a run lasts until it is ended: some are killed in the middle of it
# Notes that it began, and measures 1 unless it is held.
NOTE = 'echo "$ADON_SUBJECT" >> {done}; while [ -e {hold} ]; do sleep 0.05; done; sleep 0.1; echo 1'


def test_kill_9_at_random_points(tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    done, hold = tmp_path / "done", tmp_path / "hold"
    for file in (done, hold):
        file.touch()
    broker = FakeBroker({"mu": TOKEN})
    desk = broker.desks["mu"]
    config = {
        "name": "mu", "broker": broker.url, "token": TOKEN, "state": "state",
        "commands": {"note": {"argv": ["sh", "-c", NOTE.format(done=done, hold=hold)]}},
    }  # fmt: skip
    (tmp_path / "agent.yml").write_text(yaml.safe_dump(config))
    argv = [*ADON, "agent", "run", "--config", str(tmp_path / "agent.yml")]
    with (tmp_path / "log").open("w") as log:
        for turn in range(TURNS):
            if turn == HELD:
                hold.unlink()
            broker.forget_receipts = chance.randrange(2)
            asked, begun = len(desk.asked), len(done.read_text())
            agent = subprocess.Popen(argv, stdout=log, stderr=log)
            try:
                broker.wait_asked("mu", asked + 1, PATIENCE_S)
                over = some_begun(broker, turn, lambda b=begun: len(done.read_text()) > b)  # type: ignore[misc]
                if turn < TURNS - 1:
                    time.sleep(chance.uniform(0.0, 2.0))
                    continue
                # What was over while no agent ran, nobody tells: the broker knows that itself.
                until(lambda end=over: broker.clock() > end)  # type: ignore[misc]
                until(lambda: not _unsent(tmp_path))
                agent.send_signal(signal.SIGTERM)
                assert agent.wait(PATIENCE_S) == 0
            finally:
                agent.kill()
                agent.wait()
    broker.stop()
    noted = done.read_text().split()
    assert len(noted) == len(set(noted)), "a run was done twice"
    assert set(desk.times.values()) == {1}, "a result was told in two ways"
    # Whatever began was told, with its value or as killed.
    assert set(noted) <= set(desk.results)
    measured = [key for key, result in desk.results.items() if result["measurements"]]
    assert set(measured) <= set(noted)
    killed = [r for r in desk.results.values() if r["error"].startswith("the agent was killed")]
    print(f"{len(noted)} begun, {len(measured)} measured, {len(killed)} told as killed")
    assert measured
    assert killed


def some_begun(broker: FakeBroker, turn: int, begun: Callable[[], bool]) -> float:
    """Tell the agent what to do until it has begun with some of it; when the last of it is over
    (Unix seconds). Where it stood still meanwhile, it was too late for all of them."""
    for again in count():
        over = tell_runs(broker, f"{turn}.{again}")
        until(lambda end=over: begun() or broker.clock() > end)  # type: ignore[misc]
        if begun():
            break
        assert again < MOST_AGAIN
    return over


def tell_runs(broker: FakeBroker, turn: str) -> float:
    """Tell the agent what to do from now on; when the last of it is over (Unix seconds)."""
    at = broker.clock() + 0.3
    starts = [at + number * EVERY_S for number in range(EACH)]
    runs = [
        Assignment(
            f"{turn}-{number}", "note", "command", "alone", f"{turn}-{number}", start, RUN_S,
            options={"command": "note"},
        )
        for number, start in enumerate(starts)
    ]  # fmt: skip
    broker.tell("mu", *runs)
    return starts[-1] + RUN_S


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _unsent(folder: Path) -> bool:
    """Whether a result waits on disk."""
    for file in (folder / "state").glob("*.run"):
        with contextlib.suppress(FileNotFoundError):  # it is long taken, and was thrown away
            if b'"taken"' not in file.read_bytes().partition(b"\n")[0]:
                return True
    return False
