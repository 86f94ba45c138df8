"""Whole demos as other processes: start one, watch it, kill parts of it, look at what it left."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest

ADON = Path(sys.executable).parent / "adon"
SMALL = ("--samples", "1", "--chromosomes", "1")
T = TypeVar("T")

# How long a whole run may take on a machine that is busy with other things as well.
RUN_S = 280.0
# What was killed is gone "within seconds".
GONE_S = 15.0


@dataclass(frozen=True)
class Ran:
    """A demo that has ended."""

    code: int
    output: str
    folder: Path

    @property
    def report(self) -> dict[str, Any]:
        data: dict[str, Any] = json.loads((self.folder / "report.json").read_text())
        return data

    @property
    def page(self) -> str:
        return (self.folder / "report.html").read_text()


class Demo:
    """A demo in a process of its own. ``place`` is its working directory and holds its state.

    Everything it starts has the path of its state in its command line, environment or working
    directory: that is how its processes are found.
    """

    def __init__(
        self,
        place: Path,
        words: Sequence[str] = SMALL,
        command: Sequence[str] = (str(ADON), "demo"),
        state: str = ".adon",
    ) -> None:
        self.place = place
        self.state = place / state
        self._log = place / "output"
        with self._log.open("wb") as out:
            self.process = subprocess.Popen(
                [*command, *words], cwd=place, stdin=subprocess.DEVNULL, stdout=out, stderr=out
            )

    @property
    def output(self) -> str:
        return self._log.read_text(errors="replace")

    def ended(self) -> Ran:
        """Wait for its own end."""
        try:
            code = self.process.wait(RUN_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"no end within {RUN_S:g} s:\n{self.output[-3000:]}") from None
        return Ran(code, self.output, self.place / "demo-report")

    def until(self, found: Callable[[], T | None], what: str) -> T:
        """Wait until ``found`` gives something; the demo has to run meanwhile."""
        deadline = time.monotonic() + RUN_S
        while True:
            value = found()
            if value:
                return value
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"{what}: never came:\n{self.output[-3000:]}")
            # Hooks live for a tenth of a second.
            time.sleep(0.005)

    def says(self, words: str) -> str:
        """Wait for words in its output."""
        pattern = re.compile(words)
        match = self.until(lambda: pattern.search(self.output), words)
        return match.group()

    def runs(self, *words: str) -> int:
        """Wait for a process of it whose command line has all ``words``; its process id."""
        return self.until(lambda: next(iter(self.find(*words)), None), " ".join(words))

    def find(self, *words: str) -> list[int]:
        """Its processes whose command line has all ``words``."""
        sought = [word.encode() for word in words]
        found = []
        for pid in all_pids():
            line = read(pid, "cmdline").replace(b"\0", b" ")
            if line and all(word in line for word in sought) and belongs(pid, self.state):
                found.append(pid)
        return found

    def children(self, pid: int) -> list[int]:
        """The processes that ``pid`` started and that run."""
        return [p for p in all_pids() if parent(p) == pid]

    def kill(self) -> None:
        """kill -9 of the process that was started, and of nothing else."""
        self.process.kill()
        self.process.wait()

    def left(self) -> list[str]:
        """The command lines of its processes that are there after ``GONE_S``, at best none."""
        deadline = time.monotonic() + GONE_S
        while True:
            found = processes_of(self.state)
            if not found or time.monotonic() > deadline:
                return found
            time.sleep(0.05)


@contextmanager
def demo(place: Path, *args: Any, **options: Any) -> Iterator[Demo]:
    """A demo that does not outlive the test, whatever happens in it."""
    place.mkdir(parents=True, exist_ok=True)
    one = Demo(place, *args, **options)
    try:
        yield one
    finally:
        if one.process.poll() is None:
            one.kill()


def run(place: Path, *args: Any, **options: Any) -> Ran:
    """A demo from start to end."""
    with demo(place, *args, **options) as one:
        return one.ended()


# -- processes, as /proc shows them; the host sees those in a box as well --------------------------


def all_pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def read(pid: int, what: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{what}").read_bytes()
    except OSError:  # it has just ended, or is another user's
        return b""


def parent(pid: int) -> int:
    fields = read(pid, "stat").rpartition(b")")[2].split()
    return int(fields[1]) if fields and fields[0] != b"Z" else 0


def belongs(pid: int, state: Path) -> bool:
    """Whether a process is of the demo with that state directory."""
    mark = str(state).encode()
    if mark in read(pid, "cmdline") or mark in read(pid, "environ"):
        return True
    try:
        return str(Path(f"/proc/{pid}/cwd").readlink()).startswith(str(state))
    except OSError:
        return False


def processes_of(state: Path) -> list[str]:
    """``<pid> <command line>`` of every process of the demo with that state directory."""
    return [
        f"{pid} {read(pid, 'cmdline').replace(bytes(1), b' ').decode(errors='replace')}"
        for pid in all_pids()
        if pid != os.getpid() and belongs(pid, state)
    ]


# -- the machine ---------------------------------------------------------------------------------

# What counts or adapts by itself.
_RESTLESS = re.compile(r"/(nf_conntrack_count|route/flush|neigh/[^/]+/|random/|tcp_mem|udp_mem)")


def machine() -> dict[str, Any]:
    """All that a run could leave on the machine beside processes and files."""
    names = [*Path("/run/netns").glob("*")] if Path("/run/netns").exists() else None
    return {
        "named network namespaces": names if names is None else sorted(map(str, names)),
        "mounts": sorted(Path("/proc/mounts").read_text().splitlines()),
        "interfaces": sorted(os.listdir("/sys/class/net")),
        "sysctls": _sysctls(),
        "control groups": sorted(str(p) for p in Path("/sys/fs/cgroup").rglob("*adon*")),
        "shared memory": sorted(os.listdir("/dev/shm")),
    }


def _sysctls() -> dict[str, str]:
    values = {}
    for top, _, files in os.walk("/proc/sys/net"):
        for name in files:
            path = Path(top) / name
            if _RESTLESS.search(str(path)):
                continue
            try:
                values[str(path)] = path.read_text().strip()
            except OSError:  # write-only ones
                continue
    return values


# -- an ordinary user ------------------------------------------------------------------------------


def as_ordinary_user(account: str, needed: Sequence[Path]) -> list[str]:
    """The words before a command so that an ordinary user runs it; ``needed`` becomes readable.

    Root's own files are shown to the account in a mount namespace of that command alone: where a
    directory above one may not be entered, a memory file system that has only the way to it stands
    in. Skips the test where root is not there to do so.
    """
    if os.geteuid() != 0:
        return []
    for program in ("unshare", "setpriv", "mount"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not there, so nothing can be run as {account}")
    lines = []
    for path in needed:
        closed = next((p for p in reversed(path.parents) if not p.stat().st_mode & 1), None)
        if closed is not None:
            lines.append((str(closed), str(path)))
    script = "set -e\nkept=$(mktemp -d)\n"
    for number, (_, path) in enumerate(lines):
        script += f'mkdir "$kept/{number}"; mount --rbind "{path}" "$kept/{number}"\n'
    for closed in sorted({closed for closed, _ in lines}):
        script += f'mount -t tmpfs -o mode=755 adon-test "{closed}"\n'
    for number, (_, path) in enumerate(lines):
        script += f'mkdir -p "{path}"; mount --rbind "$kept/{number}" "{path}"\n'
    script += 'umount -R "$kept"/*; rmdir "$kept"/* "$kept"\n' if lines else 'rmdir "$kept"\n'
    script += 'exec "$@"\n'
    user = ["setpriv", f"--reuid={account}", f"--regid={account}", "--clear-groups", "--"]
    return ["unshare", "--mount", "--propagation", "private", "--", "sh", "-c", script, "sh", *user]


def send(pid: int, number: signal.Signals) -> None:
    """Signal a process that may have ended."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
