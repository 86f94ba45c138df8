"""What a demo cannot do is one clear line and exit code 2, and nothing stays behind."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest
from demo_runs import SMALL, Demo, Ran, demo, left_of, run

from examples.demo.launch import ROOM_BYTES

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(3600)]


def complaint(ran: Ran) -> str:
    """The one line with which a demo was refused."""
    assert ran.code == 2, ran.output
    assert "Traceback" not in ran.output
    lines = ran.output.splitlines()
    complaints = [line for line in lines if line.startswith("adon: ")]
    # Before it there may be progress, and what was tried again in vain.
    assert complaints == lines[-1:], ran.output
    return complaints[0]


def test_while_another_runs(tmp_path: Path) -> None:
    state = tmp_path / ".adon"
    state.mkdir()
    with (state / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.write("4711")
        lock.flush()
        said = complaint(run(tmp_path))
        assert "another demo is running (process 4711), expected to be alone" in said
        assert [entry.name for entry in state.iterdir()] == ["lock"]


@pytest.mark.root
@pytest.mark.long
def test_a_disk_that_becomes_full_meanwhile(tmp_path: Path) -> None:
    mount = f"mount -t tmpfs -o size={ROOM_BYTES + 20_000_000} adon-test '{tmp_path}'"
    script = f"{mount} && cd '{tmp_path}' && exec \"$@\""
    command = ["unshare", "--mount", "--propagation", "private", "--", "sh", "-c", script, "sh"]
    with demo(tmp_path, [*command, *SMALL]) as demo_run:
        demo_run.says(" done, ")  # the first status: the workflow is in the queue
        fill_disk(demo_run)
        assert "No space left on device" in complaint(demo_run.ended())
    assert left_of(tmp_path) == []


def fill_disk(demo_run: Demo) -> None:
    """Leave no room on the file system that only the demo sees."""
    filler = os.open(f"/proc/{demo_run.pid}/cwd/filler", os.O_WRONLY | os.O_CREAT)
    try:
        for size in (1 << 20, 1 << 12):
            block = bytes(size)
            with pytest.raises(OSError, match="No space left"):
                while True:
                    os.write(filler, block)
    finally:
        os.close(filler)
