"""Work in several processes: all of it, in order, and nobody left behind."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from waiting import until

from adon.machine.parallel import each
from network_provisioner.base.errors import AdonError, InputError


def squared(value: int) -> int:
    return value * value


def refused(value: int) -> int:
    if value == 3:
        raise InputError(f"found {value}, expected less")
    return value


def killed(value: int) -> int:
    if value == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return value


@pytest.mark.parametrize("processes", [1, 2])
def test_results_are_in_order(processes: int) -> None:
    progress: list[int] = []
    assert each(range(7), squared, processes, progress.append) == [0, 1, 4, 9, 16, 25, 36]
    assert progress == [1, 2, 3, 4, 5, 6, 7]
    assert each([], squared, processes) == []


@pytest.mark.parametrize("processes", [1, 2])
def test_errors_come_to_the_caller(processes: int) -> None:
    with pytest.raises(InputError, match="found 3, expected less"):
        each(range(9), refused, processes)


def test_a_killed_process_is_an_error_that_says_so() -> None:
    with pytest.raises(AdonError, match="found a worker process that was ended"):
        each(range(9), killed, 2)


SCRIPT = """
    import signal, sys, time
    from pathlib import Path
    from adon.machine.parallel import each

    def wait(folder):
        import os
        Path(folder, str(os.getpid())).touch()
        time.sleep(600)

    if __name__ == "__main__":
        signal.signal(signal.SIGINT, signal.default_int_handler)
        each([sys.argv[1]] * 2, wait, 2)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_process_is_left_when_the_parent_ends(tmp_path: Path, number: signal.Signals) -> None:
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(SCRIPT))
    folder = tmp_path / "pids"
    folder.mkdir()
    root = Path(__file__).resolve().parents[2]
    parent = subprocess.Popen(
        [sys.executable, str(script), str(folder)],
        cwd=root, env={**os.environ, "PYTHONPATH": str(root)}, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        until(lambda: parent.poll() is not None or len(list(folder.iterdir())) == 2)
        assert parent.poll() is None
        with contextlib.ExitStack() as closing:
            handles = [os.pidfd_open(int(path.name)) for path in folder.iterdir()]
            for handle in handles:
                closing.callback(os.close, handle)
            parent.send_signal(number)
            assert parent.wait(60) != 0
            for handle in handles:  # readable when the process has ended
                assert select.select([handle], [], [], 60)[0]
    finally:
        parent.kill()
        parent.wait()
