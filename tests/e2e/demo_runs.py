"""Whole demos as other processes: start one, watch it, kill parts of it, look at what it left.

The host sees the processes in a box as well. All that belong to a demo have the path of its
directory in their command line, environment or working directory: that is how they are found.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

ADON = str(Path(sys.executable).parent / "adon")
ROOT = Path(__file__).resolve().parents[2]
SMALL = (sys.executable, "-m", "examples.demo", "--samples", "1", "--chromosomes", "1")
# Killed by the kernel with the box that it was in.
KILLED = 128 + signal.SIGKILL
T = TypeVar("T")
# What a hook says that gives up on a broker which is out of breath, and what may come of that.
LATE = "the broker did not answer within 10 s"
_LATE = (LATE, "released only at the end of the workflow")

# How long a whole run may take on a machine that is busy with other things as well.
_RUN_S = 1000.0
# What was killed is gone "within seconds"; a busy machine has longer ones.
_GONE_S = 240.0
# PRE hooks live for a tenth of a second.
_LOOK_S = 0.02


@dataclass(frozen=True)
class Ran:
    """A demo that has ended."""

    code: int
    output: str
    place: Path

    @property
    def report(self) -> dict[str, Any]:
        """``report.json``."""
        data: dict[str, Any] = json.loads((self.place / "demo-report/report.json").read_text())
        return data

    @property
    def warnings(self) -> list[str]:
        """Those of the report, but for what a busy machine brings: a hook waits 10 s at most for a
        broker that is out of breath, and its transfer goes on without a path."""
        return [w for w in self.report["warnings"] if not any(late in w for late in _LATE)]

    def late(self, job: str) -> bool:
        """Whether that was so with a job's hooks."""
        said = [w for w in self.report["warnings"] if w.startswith(f"{job}: ")]
        return any(late in w for w in said for late in _LATE)

    @property
    def page(self) -> str:
        """``report.html``."""
        return (self.place / "demo-report/report.html").read_text()


class Demo:
    """A demo that runs. ``place`` is its working directory, with its state and its report."""

    def __init__(self, place: Path, command: Sequence[str] = SMALL) -> None:
        self.place = place
        self._log = place / "output"
        with self._log.open("wb") as out:
            self._process = subprocess.Popen(
                command,
                cwd=place,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )

    @property
    def pid(self) -> int:
        """The process that was started."""
        return self._process.pid

    @property
    def output(self) -> str:
        """What it has printed."""
        return self._log.read_text(errors="replace")

    def ended(self) -> Ran:
        """Wait for its end."""
        try:
            code = self._process.wait(_RUN_S)
        except subprocess.TimeoutExpired:
            self.stop()
            raise AssertionError(f"no end within {_RUN_S:g} s:\n{self.output}") from None
        return Ran(code, self.output, self.place)

    def stop(self) -> None:
        """kill -9 of the process that was started, and of nothing else."""
        self._process.kill()
        self._process.wait()

    def until(self, look: Callable[[], T | None], what: str) -> T:
        """Wait until ``look`` finds something; the demo has to run meanwhile."""
        deadline = time.monotonic() + _RUN_S
        while not (result := look()):
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"{what}: not seen:\n{self.output}")
            time.sleep(_LOOK_S)
        return result

    def says(self, words: str) -> None:
        """Wait for words in its output."""
        self.until(lambda: words in self.output, words)

    def runs(self, *words: str) -> int:
        """Wait for one of its processes with ``words`` in the command line; its process id."""
        return self.until(lambda: next(iter(self.find(*words)), None), " ".join(words))

    def find(self, *words: str) -> list[int]:
        """Its processes with all ``words`` in the command line."""
        return [pid for pid in processes_of(self.place) if all(w in line(pid) for w in words)]

    def init(self) -> int | None:
        """Pid 1 of its box, by its number on the host."""
        return next((pid for pid in processes_of(self.place) if _is_init(pid)), None)


@contextmanager
def demo(place: Path, command: Sequence[str] = SMALL) -> Iterator[Demo]:
    """A demo that does not outlive the test, whatever happens in it."""
    demo_run = Demo(place, command)
    try:
        yield demo_run
    finally:
        demo_run.stop()


def run(place: Path, command: Sequence[str] = SMALL) -> Ran:
    """A demo from start to end."""
    with demo(place, command) as demo_run:
        return demo_run.ended()


def processes_of(place: Path) -> list[int]:
    """The processes of the demo in ``place``; zombies have ended."""
    return [pid for pid in _pids() if pid != os.getpid() and _belongs(pid, str(place))]


def left_of(place: Path) -> list[str]:
    """``<pid> <command line>`` of the processes that do not go away by themselves, at best none."""
    deadline = time.monotonic() + _GONE_S
    while (pids := processes_of(place)) and time.monotonic() < deadline:
        time.sleep(_LOOK_S)
    return [f"{pid} {line(pid)}" for pid in pids]


def line(pid: int) -> str:
    """A process's command line; empty if it has ended."""
    return _read(pid, "cmdline").replace(b"\0", b" ").decode(errors="replace")


def children(pid: int) -> list[int]:
    """The processes whose parent is ``pid``."""
    return [p for p in _pids() if _stat(p)[1:2] == [str(pid)]]


def has_environment(pid: int, words: str) -> bool:
    """Whether ``words`` are in a process's environment."""
    return words.encode() in _read(pid, "environ")


def waits_for_answer(pid: int) -> bool:
    """Whether a process has opened a socket and sleeps: a hook that has asked the broker."""
    links = []
    with suppress(OSError):
        links = [str(p.readlink()) for p in Path(f"/proc/{pid}/fd").iterdir()]
    return any(link.startswith("socket:") for link in links) and _stat(pid)[:1] == ["S"]


def send(pid: int, number: signal.Signals) -> None:
    """Signal a process that may have ended."""
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _belongs(pid: int, mark: str) -> bool:
    if any(mark.encode() in _read(pid, file) for file in ("cmdline", "environ")):
        return True
    try:
        return str(Path(f"/proc/{pid}/cwd").readlink()).startswith(mark)
    except OSError:
        return False


def _is_init(pid: int) -> bool:
    match = re.search(rb"^NSpid:(.*)$", _read(pid, "status"), re.MULTILINE)
    return match is not None and match[1].split()[1:] == [b"1"]


def _stat(pid: int) -> list[str]:
    """State, parent, … The program's name before them may hold anything, also parentheses."""
    return _read(pid, "stat").rpartition(b")")[2].decode().split()


def _read(pid: int, file: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{file}").read_bytes()
    except OSError:  # it has just ended
        return b""
