"""Running programs: short ones to their end, daemons until they are stopped by their own pid."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from network_provisioner.base.errors import AdonError, MissingError

_SHORT_S = 60.0  # of a busy machine, for what takes a tenth of a second


def run(
    argv: Sequence[str],
    *,
    stdin: str | None = None,
    env: Mapping[str, str] | None = None,
    timeout_s: float = _SHORT_S,
) -> str:
    """Run a program to its end and return its standard output.

    Raises MissingError where it cannot be started, AdonError with the program's own last line where
    it fails or takes longer than ``timeout_s``.
    """
    try:
        done = subprocess.run(
            list(argv),
            input=stdin,
            env=None if env is None else {**os.environ, **env},
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    except FileNotFoundError as err:
        raise MissingError(f"cannot run {argv[0]}: not found") from err
    except PermissionError as err:
        raise MissingError(f"cannot run {argv[0]}: permission denied") from err
    except subprocess.TimeoutExpired as err:
        raise AdonError(f"{' '.join(argv)}: no end within {timeout_s:g} s") from err
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise AdonError(
            f"{' '.join(argv)}: exit code {done.returncode}" + (f", {said[-1]}" if said else "")
        )
    return done.stdout


class Daemon:
    """A long-running child in a session of its own, so that it and its children stop together.

    The kernel kills it when the thread that started it ends, so a killed testbed leaves none.
    """

    def __init__(
        self,
        argv: Sequence[str],
        log: Path,
        *,
        env: Mapping[str, str] | None = None,
        pass_fds: Sequence[int] = (),
    ) -> None:
        """Start ``argv``, output to ``log``. Raises MissingError where it cannot be started."""
        # setpriv and not a preexec_fn, which may deadlock in a process that has threads.
        self.name = Path(argv[0]).name
        self.log = log
        try:
            with log.open("ab") as out:
                self._child = subprocess.Popen(
                    ["setpriv", "--pdeathsig", "KILL", "--", *argv],
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=out,
                    env=None if env is None else dict(env),
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

    def last_words(self) -> str:
        """The last line of its log, for an error message."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"

    def stop(self, timeout_s: float = 3.0, first: signal.Signals = signal.SIGTERM) -> None:
        """``first``, then KILL after ``timeout_s``; its whole process group is gone afterwards."""
        if self._child.returncode is not None:
            return
        # Not reaped before the group is dead: until then nobody else can be given its number.
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, first)
        _ended(self._pidfd, timeout_s)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._child.wait()
        os.close(self._pidfd)


def _ended(pidfd: int, timeout_s: float) -> bool:
    """Whether the process has ended, waiting for it; it need not be reaped."""
    return _readable(pidfd, timeout_s)


def stop_pid(pid: int, timeout_s: float = 3.0) -> None:
    """End a process that is no child of ours (it detached itself): TERM, then KILL.

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


def wait_ready(fd: int, daemon: Daemon, timeout_s: float) -> bytes:
    """Read what ``daemon`` writes to the pipe behind ``fd`` when it is ready; closes ``fd``.

    Raises AdonError with the daemon's last words where it ends or says nothing in ``timeout_s``.
    """
    try:
        told = os.read(fd, 4096) if _readable(fd, timeout_s) else b""
    finally:
        os.close(fd)
    if not told:
        raise AdonError(f"{daemon.name} did not get ready: {daemon.last_words()}")
    return told


def _readable(fd: int, timeout_s: float) -> bool:
    """Whether there is something to read within ``timeout_s``; select() knows only 1,024 files."""
    waiting = select.poll()
    waiting.register(fd, select.POLLIN)
    return bool(waiting.poll(max(0.0, timeout_s) * 1e3))
