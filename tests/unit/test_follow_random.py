"""Whatever is done to DAGMan's log while it is written, and however often the follower is killed
and begun again: every change that was whole in a file is recorded, and none twice."""

from __future__ import annotations

import itertools
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from monitor_files import START, Submitted, append, exiting, starting, table

from monitors.archive import Archive
from monitors.workflows.follower import Follower
from monitors.workflows.logs.dagman import StatusParser
from monitors.workflows.status import Status

pytestmark = pytest.mark.long

JOBS = 60


def tables() -> Iterator[str]:
    """A long run, one table after the other, several of them within a second."""
    yield starting()
    for step in range(2 * JOBS):
        at = START + step // 3
        done, queued = divmod(step, 2)
        yield table(at, done=done, queued=queued, unready=JOBS - done - queued)
    yield exiting(START + JOBS, 0)


RUN = list(tables())
EXPECTED = [change.status for change in StatusParser().feed("".join(RUN).encode())]


def recorded(archive: Archive) -> list[Status]:
    found = [Status.from_measurement(m) for m in archive.query("status")]
    return sorted(found, key=lambda status: (status.at, status.done, status.in_queue))


class Logs(RuleBasedStateMachine):
    """DAGMan writes, somebody rotates, the follower looks, is killed, and begins again."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.planned = Submitted(Path(self.folder.name) / "run")
        self.archive = Archive(":memory:")
        self.lines = iter("".join(RUN).splitlines(keepends=True))
        self.aside = 0
        self.target = self.planned.out  # where DAGMan's open file is
        self.written = b""
        self.follower = Follower(self.planned.path, self.archive)

    @initialize()
    def begin(self) -> None:
        self.planned.out.touch()

    @rule(lines=st.integers(1, 40))
    def dagman_writes(self, lines: int) -> None:
        for _, line in zip(range(lines), self.lines, strict=False):
            append(self.target, line)
            self.written += line.encode()

    @rule()
    def follower_looks(self) -> None:
        self.follower.poll()

    @rule()
    def follower_is_killed(self) -> None:
        self.follower = Follower(self.planned.path, self.archive)

    def is_open(self) -> bool:
        return self.target == self.planned.out

    @precondition(is_open)
    @rule(new=st.booleans())
    def log_is_put_aside(self, new: bool) -> None:
        """Between any two lines, also in the middle of a table."""
        self.aside += 1
        self.planned.out.rename(self.planned.out.with_name(f"{self.planned.out.name}.{self.aside}"))
        if new:
            append(self.planned.out, "11/14/23 22:13:20 Now in new log file w.dag.dagman.out\n")
        else:
            self.planned.out.touch()

    @precondition(is_open)
    @rule()
    def log_is_copied_and_emptied(self) -> None:
        self.aside += 1
        copy = self.planned.out.with_name(f"{self.planned.out.name}.{self.aside}")
        copy.write_bytes(self.planned.out.read_bytes())
        os.truncate(self.planned.out, 0)

    @rule(garbage=st.binary(max_size=30))
    def somebody_writes_garbage(self, garbage: bytes) -> None:
        """A line of its own, between two tables."""
        self.dagman_finishes_its_table()
        with self.target.open("ab") as file:
            file.write(garbage.replace(b"\n", b"") + b"\n")

    @precondition(is_open)
    @rule(new=st.booleans())
    def log_is_put_aside_while_dagman_has_it_open(self, new: bool) -> None:
        """And goes on writing to it: it may take long until it opens the new one."""
        self.aside += 1
        self.target = self.planned.out.with_name(f"{self.planned.out.name}.{self.aside}")
        self.planned.out.rename(self.target)
        if new:
            self.planned.out.touch()

    @rule()
    def dagman_opens_its_log_anew(self) -> None:
        self.target = self.planned.out
        self.target.touch()

    def dagman_finishes_its_table(self) -> None:
        for line in self.lines:
            append(self.target, line)
            self.written += line.encode()
            if "held" in line:
                return

    @invariant()
    def nothing_is_told_that_was_not(self) -> None:
        assert len(recorded(self.archive)) <= len(EXPECTED)

    def teardown(self) -> None:
        self.follower.poll()
        expected = [change.status for change in StatusParser().feed(self.written)]
        ids = [m.id for m in self.archive.query("status")]
        assert len(ids) == len(set(ids))
        assert recorded(self.archive) == expected
        # Whoever reads it all afterwards finds nothing more.
        Follower(self.planned.path, self.archive).poll()
        assert recorded(self.archive) == expected
        self.archive.close()
        self.folder.cleanup()


TestLogs = Logs.TestCase
TestLogs.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, len(RUN) - 1), max_size=6))
def test_a_log_that_loses_what_was_read_keeps_what_was_recorded(cuts: list[int]) -> None:
    """It is emptied without a copy: what the follower has read is not lost, nor told again."""
    with tempfile.TemporaryDirectory() as name, Archive(":memory:") as archive:
        planned = Submitted(Path(name) / "run")
        follower = Follower(planned.path, archive)
        edges = [0, *sorted(set(cuts)), len(RUN)]
        for start, end in itertools.pairwise(edges):
            append(planned.out, "".join(RUN[start:end]))
            os.utime(planned.out, (START, START + end))  # the kernel's clock ticks every 4 ms
            follower.poll()
            os.truncate(planned.out, 0)
        assert recorded(archive) == EXPECTED


COMMAND = [sys.executable, "-m", "adon", "monitor", "run", "--archive"]


@pytest.mark.parametrize("seed", [1])
def test_kill_9_at_random_points_while_logs_rotate(tmp_path: Path, seed: int) -> None:
    """A real process, killed again and again while DAGMan writes and its log is put aside."""
    chooser = random.Random(seed)
    planned = Submitted(tmp_path / "run")
    planned.out.touch()
    database = tmp_path / "killed.sqlite"
    done = threading.Event()

    def write() -> None:
        for number, text in enumerate(RUN):
            append(planned.out, text)
            if number % 17 == 16:
                planned.out.rename(planned.out.with_name(f"{planned.out.name}.{number}"))
                planned.out.touch()
            done.wait(0.02)
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    kills = 0
    while not done.is_set():
        with subprocess.Popen(
            [*COMMAND, str(database), str(planned.path)], stdout=subprocess.DEVNULL
        ) as follower:
            done.wait(chooser.uniform(0.25, 0.7))
            kills += follower.poll() is None
            follower.send_signal(signal.SIGKILL)
    writer.join()
    last = subprocess.run([*COMMAND, str(database), str(planned.path)], check=True, timeout=120,
                          capture_output=True)  # fmt: skip
    assert last.returncode == 0 and kills >= 3
    with Archive(database) as archive:
        assert recorded(archive) == EXPECTED
