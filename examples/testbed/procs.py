"""Running programs: short ones to their end, daemons until they are stopped, and what is left.

A daemon ends with the thread that started it. What a killed run left all the same is found by the
mark in its environment, which its children inherit.

    python -m examples.testbed.procs DIRECTORY    end what pools and servers below it left
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import psutil

from network_provisioner.base.errors import AdonError, MissingError

MARK = "ADON_POOL_DIR"
"""Every process of a pool has this variable in its environment, with the pool's directory."""
_SHORT_S = 60.0  # of a busy machine, for what takes a tenth of a second
_POLL_S = 0.02
_GONE = (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
_KILLED_S = 20.0  # what was killed ends at once, but for a disk it waits for
T = TypeVar("T")


def run(
    argv: Sequence[str],
    *,
    stdin: str | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout_s: float = _SHORT_S,
    name: str = "",
) -> str:
    """Run a program to its end and return its standard output.

    Raises MissingError if it cannot be started, AdonError with the program's own last line where
    it fails or takes longer than ``timeout_s``. Errors call it ``name``, or by its words.
    """
    name = name or " ".join(argv)
    try:
        done = subprocess.run(
            list(argv),
            input=stdin or "",
            env=env,
            cwd=cwd,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
        )
    except OSError as err:
        why = "not found" if isinstance(err, FileNotFoundError) else err.strerror
        raise MissingError(f"cannot run {err.filename or argv[0]}: {why}") from err
    except subprocess.TimeoutExpired as err:
        raise AdonError(f"{name}: no end within {timeout_s:g} s") from err
    if done.returncode != 0:
        lines = (done.stderr.strip() or done.stdout.strip()).splitlines() or ["no output"]
        raise AdonError(f"{name}: exit code {done.returncode}: {lines[-1]}")
    return done.stdout


class Daemon:
    """A long-running child in a session of its own, so that it and its children stop together."""

    def __init__(
        self,
        argv: Sequence[str],
        log: Path,
        *,
        name: str = "",
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        pass_fds: Sequence[int] = (),
        orphaned: signal.Signals = signal.SIGKILL,
        logs: Sequence[Path] = (),
    ) -> None:
        """Start ``argv``, output to ``log``. Raises MissingError if it cannot be started.

        ``orphaned`` is what the kernel sends it when the thread that started it ends; ``logs`` are
        others, which say more than ``log`` why it ended.
        """
        # setpriv and not a preexec_fn, which may deadlock in a process that has threads.
        self.name = name or Path(argv[0]).name
        self._logs = (*logs, log)
        death = ["setpriv", "--pdeathsig", orphaned.name.removeprefix("SIG"), "--"]
        try:
            with log.open("ab") as out:
                self._child = subprocess.Popen(
                    [*death, *argv],
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=out,
                    env=env,
                    cwd=cwd,
                    pass_fds=tuple(pass_fds),
                    start_new_session=True,
                )
        except OSError as err:
            raise MissingError(f"cannot run setpriv for {argv[0]}: {err.strerror}") from err
        self._pidfd = os.pidfd_open(self.pid)

    @property
    def pid(self) -> int:
        """Its process id, which is also the id of its process group."""
        return self._child.pid

    def running(self) -> bool:
        """Whether it has not ended yet."""
        return self._child.returncode is None and not _ended(self._pidfd, 0)

    def check(self) -> None:
        """Raise AdonError with its last words where it has ended."""
        if not self.running():
            raise AdonError(f"{self.name} ended: {self._last_words()}")

    def wait(self, ready: Callable[[], T | None], timeout_s: float = _SHORT_S) -> T:
        """What ``ready`` returns, once that is true. Raises AdonError with the daemon's last words
        where it ends before, or ``timeout_s`` are over."""
        began = time.monotonic()
        deadline = began + timeout_s
        while not (result := ready()):
            self.check()
            now = time.monotonic()
            if now > deadline:
                raise AdonError(f"{self.name} did not get ready: {self._last_words()}")
            time.sleep(max(_POLL_S, now - began))  # looking may cost what it waits for
            began = time.monotonic()
        return result

    def _last_words(self) -> str:
        for log in self._logs:
            text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
            if text.strip():
                return f"{text.strip().splitlines()[-1]} ({log})"
        return "no output"

    def send(self, number: signal.Signals) -> None:
        """Signal it, but not its children; nothing happens where it has ended."""
        if self._child.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, number)

    def stop(self, timeout_s: float = 3.0, first: signal.Signals | None = signal.SIGTERM) -> None:
        """``first``, then KILL after ``timeout_s``; its whole process group is gone afterwards."""
        if self._child.returncode is not None:
            return
        if first is not None:
            self.send(first)
        # Not reaped before the group is dead: until then nobody else can be given its number.
        _ended(self._pidfd, timeout_s)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._child.wait()
        os.close(self._pidfd)


def stop_pid(pid: int, timeout_s: float = 3.0) -> None:
    """End a process that is not our child (it detached itself): TERM, then KILL.

    Waits for its end on a pidfd, so a later process with the same number is never hit.
    """
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        for number in (signal.SIGTERM, signal.SIGKILL):
            signal.pidfd_send_signal(pidfd, number)
            if _ended(pidfd, timeout_s):
                return
    except ProcessLookupError:
        return
    finally:
        os.close(pidfd)


def _ended(pidfd: int, timeout_s: float) -> bool:
    """Whether the process has ended, waiting for it; it need not be reaped."""
    waiting = select.poll()  # select() knows only 1,024 files
    waiting.register(pidfd, select.POLLIN)
    return bool(waiting.poll(max(0.0, timeout_s) * 1e3))


def alive(process: psutil.Process) -> bool:
    """Whether it is this very process that runs, and no later one with its id; zombies do not."""
    try:
        return process.is_running() and process.status() not in _GONE
    except psutil.NoSuchProcess:
        return False


def those(belongs: Callable[[psutil.Process], bool]) -> list[psutil.Process]:
    """The running processes of which something is true, without our own line of parents."""
    own = psutil.Process()
    spared = {own.pid, *(parent.pid for parent in own.parents())}
    pids = []
    for process in psutil.process_iter():
        # Another user's process, or one that has just ended: not ours.
        with contextlib.suppress(psutil.Error):
            if process.pid not in spared and belongs(process) and alive(process):
                pids.append(process)
    return pids


def marked(directory: Path) -> list[psutil.Process]:
    """Every process of a pool in ``directory`` or below it."""

    def belongs(process: psutil.Process) -> bool:
        mark = process.environ().get(MARK, "")
        return mark == str(directory) or mark.startswith(f"{directory}/")

    return those(belongs)


def kill_all(find: Callable[[], Iterable[psutil.Process]]) -> None:
    """Kill what ``find`` finds until that is nothing. Raises AdonError if one does not end."""
    deadline = time.monotonic() + _KILLED_S
    # Repeated, since a process may start another between being seen and being ended.
    while left := list(find()):
        if time.monotonic() > deadline:
            raise AdonError(f"process {left[0].pid} does not end")
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.kill()
        soon = time.monotonic() + 1.0
        while any(map(alive, left)) and time.monotonic() < soon:
            time.sleep(_POLL_S)


def end_marked(directory: Path) -> None:
    """Kill every process of the pools below ``directory``. Raises AdonError if one stays."""
    kill_all(lambda: marked(directory))


def main(arguments: list[str]) -> int:
    """See the module's text."""
    if len(arguments) != 1:
        print("usage: python -m examples.testbed.procs DIRECTORY", file=sys.stderr)
        return 2
    try:
        end_marked(Path(arguments[0]).resolve())
    except AdonError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
