"""Find and end processes that this testbed started, also those of a run that was killed.

A process id alone may have been given to somebody else since, so a process is known by its id and
the time it started. What daemons start in turn is found by a mark in its environment.

    python leftovers.py DIRECTORY    end what pools below it left (standard library only)
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
MARK = "ADON_POOL_DIR"
"""Every process of a pool has this variable in its environment, with the pool's directory."""
_POLL_S = 0.02
_PATIENCE_S = 20.0  # what was killed ends at once, but for a disk it waits for


@dataclass(frozen=True, slots=True)
class Process:
    """A process: its id, and when it started in clock ticks since boot."""

    pid: int
    started: int


def parse_stat(text: str) -> tuple[str, int, int]:
    """State, parent and start time out of ``/proc/<pid>/stat``.

    The second field is the program's name in parentheses and may hold anything, also parentheses.
    """
    fields = text.rpartition(")")[2].split()
    return fields[0], int(fields[1]), int(fields[19])


def _stat(pid: int) -> tuple[str, int, int] | None:
    try:
        return parse_stat((PROC / str(pid) / "stat").read_text(errors="replace"))
    except (OSError, IndexError, ValueError):
        return None


def identify(pid: int) -> Process | None:
    """The process with this id, None where there is none (zombies have ended)."""
    found = _stat(pid)
    return None if found is None or found[0] in "ZX" else Process(pid, found[2])


def alive(process: Process) -> bool:
    """Is it this very process that runs, and no later one with the same id?"""
    return identify(process.pid) == process


def _own_line() -> set[int]:
    """This process and its ancestors, which are never ended from here."""
    line, pid = set(), os.getpid()
    while pid > 0 and pid not in line:
        line.add(pid)
        found = _stat(pid)
        pid = found[1] if found else 0
    return line


def marked(directory: Path) -> list[Process]:
    """Every process of a pool in ``directory`` or below it, without our own line of parents."""
    mark, below = f"{MARK}={directory}".encode(), f"{MARK}={directory}/".encode()
    spared = _own_line()
    found = []
    for entry in PROC.iterdir():
        if not entry.name.isdigit() or int(entry.name) in spared:
            continue
        # Another user's process, or one that has just ended: not ours.
        with contextlib.suppress(OSError):
            environment = (entry / "environ").read_bytes().split(b"\0")
            if any(e == mark or e.startswith(below) for e in environment):
                process = identify(int(entry.name))
                if process:
                    found.append(process)
    return found


def send(processes: Iterable[Process], number: signal.Signals) -> None:
    """Signal those that are still there."""
    for process in processes:
        if alive(process):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process.pid, number)


def wait_gone(processes: Iterable[Process], timeout_s: float) -> list[Process]:
    """Wait until all have ended; returns those that had not after ``timeout_s``."""
    left = list(processes)
    deadline = time.monotonic() + timeout_s
    while True:
        left = [p for p in left if alive(p)]
        if not left or time.monotonic() >= deadline:
            return left
        time.sleep(_POLL_S)


def end_marked(directory: Path, also: Iterable[Process] = ()) -> list[Process]:
    """Kill every process of the pools below ``directory``; returns what could not be ended."""
    deadline = time.monotonic() + _PATIENCE_S
    also = list(also)
    # Repeated, since a process may start another between being seen and being ended.
    while left := [*(p for p in also if alive(p)), *marked(directory)]:
        if time.monotonic() > deadline:
            break
        send(left, signal.SIGKILL)
        wait_gone(left, 1.0)
    return left


def main(arguments: list[str]) -> int:
    """See the module's text."""
    if len(arguments) != 1:
        print("usage: leftovers.py DIRECTORY", file=sys.stderr)
        return 2
    left = end_marked(Path(arguments[0]).resolve())
    for process in left:
        print(f"process {process.pid} does not end", file=sys.stderr)
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
