"""kill -9 of the broker at each step: the next one leaves nothing doubled and nothing leaked."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from broker_rig import Clock, Rig

from network_provisioner.model import TransitState

# A broker whose controller dies at the n-th apply, before or after the switches took it. What is on
# the "switches" stands in a file, so that it outlives the broker as it would on real ones.
PROGRAM = """
import json, os, pathlib, signal, sys
sys.path[:0] = json.loads(sys.argv[4])
import broker_rig
from broker_rig import Clock, FakeController, Rig
folder, deadly, when = pathlib.Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]

class Deadly(FakeController):
    def apply(self, circuits):
        last = len(self.applied) + 1 == deadly
        if last and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        super().apply(circuits)
        (folder / "switches").write_text(json.dumps(sorted(self.circuits)))
        if last:
            os.kill(os.getpid(), signal.SIGKILL)

broker_rig.FakeController = Deadly
rig = Rig(folder / "state.sqlite", clock=Clock())      # apply 1
rig.ask("a", "mu", "tacc", lease_s=100)                # apply 2
rig.broker.release("a", 1000, 1.0)                     # apply 3
"""
STORED = {
    (2, "before"): TransitState.HELD,
    (2, "after"): TransitState.HELD,
    (3, "before"): TransitState.RELEASED,
    (3, "after"): TransitState.RELEASED,
}


@pytest.mark.parametrize(("deadly", "when"), STORED)
def test_kill_9_at_every_step(tmp_path: Path, deadly: int, when: str) -> None:
    paths = json.dumps([str(Path(__file__).parent), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path), str(deadly), when, paths],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    left = json.loads((tmp_path / "switches").read_text())
    assert left == (["a"] if (deadly, when) in {(2, "after"), (3, "before")} else [])

    clock = Clock()
    clock.now += 10
    new = Rig(tmp_path / "state.sqlite", clock=clock)
    if STORED[deadly, when] is TransitState.HELD:
        found = new.broker.get("a")
        assert (found.state, found.installed_at) == (TransitState.INSTALLED, clock.now)
        assert new.ask("a", "mu", "tacc") == found  # the client asks again
        assert list(new.controller.circuits) == ["a"] and new.reserved()
        new.let_pass(90)  # or it never does, and the lease ends
        assert new.broker.get("a").state is TransitState.EXPIRED
    else:
        assert new.broker.get("a").state is TransitState.RELEASED
    assert new.controller.applied[-1] == [] and new.reserved() == {}


def test_a_held_transit_whose_lease_ended_meanwhile_expires(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "s")
    rig.ask("a", "mu", "tacc", lease_s=20)
    kept = rig.store.get("a")
    assert kept is not None
    kept.state = TransitState.HELD
    rig.store.put(kept)
    rig.clock.now += 20
    new = Rig(tmp_path / "s", clock=rig.clock)
    assert new.broker.get("a").state is TransitState.EXPIRED
    assert new.controller.circuits == {}
