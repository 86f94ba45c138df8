"""kill -9 of the controller's process between any two messages to a switch."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

UNIT = Path(__file__).resolve().parents[1] / "unit"
sys.path.insert(0, str(UNIT))

from controller_rig import FakeRig  # noqa: E402
from test_controllers_faults import At, first, second, tables  # noqa: E402

pytestmark = [pytest.mark.component, pytest.mark.timeout(900)]

CHILD = """
import sys
from controller_rig import FakeRig
from test_controllers_faults import first, second
rig = FakeRig(port=int(sys.argv[1]))
rig.controller.start(60)
rig.controller.apply(first(rig))
print("first", flush=True)
sys.stdin.readline()
rig.controller.apply(second(rig))
print("second", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def rig() -> Iterator[FakeRig]:
    made = FakeRig()
    try:
        yield made
    finally:
        made.close()


def killed_at(rig: FakeRig, count: int) -> int:
    """Kills a child when s1 has received so many messages of the change; how many it received."""
    root = UNIT.parents[1]
    process = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(rig.port)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(UNIT), str(root)])},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        assert process.stdout.readline() == "first\n"
        rig.s1.on_message = at = At(count, lambda: os.kill(process.pid, signal.SIGKILL))
        process.stdin.write("\n")
        process.stdin.flush()
        said = process.stdout.readline()
        assert (said == "") == (at.seen >= count)
        return at.seen
    finally:
        rig.s1.on_message = lambda kind: None
        process.kill()
        process.communicate()


def test_a_killed_broker_leaves_neither_leak_nor_double(rig: FakeRig) -> None:
    rig.controller.start(60.0)
    rig.controller.apply(second(rig))
    wanted = tables(rig)
    rig.controller.stop()
    total = killed_at(rig, 10**6)
    assert total > 6
    for count in range(1, total + 1):
        killed_at(rig, count)
        # The broker starts again and says what its store says.
        rig.controller = rig.openflow = rig.new_controller()
        rig.controller.start(60.0)
        rig.controller.apply(second(rig))
        assert tables(rig) == wanted, f"killed at message {count} of {total}"
        rig.controller.apply(first(rig))
        rig.controller.stop()
