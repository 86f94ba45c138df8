"""Runs one program and leaves nothing of it behind, whatever becomes of who asked for it.

``python -I -S guard.py PROGRAM ARGUMENT…``. Standard input is a life line: when its other end is
closed (also because that process was killed), the program and all that it started are killed,
daemons that left their session too. The same happens to what the program leaves when it ends. The
exit code is the program's, 128 and the signal's number where one ended it, 127 where it cannot be
started.

A file of its own without imports of ours: it starts in the time of a bare interpreter.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import sys

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_LIFE_LINE = 0


def main(argv: list[str]) -> int:
    """Run it; the exit code."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # A terminal's Ctrl-C reaches the whole group: the agent decides, and drops the life line.
        signal.signal(number, signal.SIG_IGN)
    prctl = ctypes.CDLL(None).prctl
    prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # orphans of the program become children of ours
    guard = os.getpid()
    child = os.fork()
    if child == 0:
        _become(argv, prctl, guard)
    waiting = select.poll()
    pidfd = os.pidfd_open(child)
    waiting.register(pidfd, select.POLLIN)
    waiting.register(_LIFE_LINE, select.POLLIN)
    while True:
        ready = dict(waiting.poll())
        if pidfd in ready or _LIFE_LINE not in ready:
            break
        if not os.read(_LIFE_LINE, 4096):
            os.kill(child, signal.SIGKILL)
            break
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    _kill_the_rest()
    return code if code >= 0 else 128 - code


def _become(argv: list[str], prctl: ctypes._NamedFuncPointer, guard: int) -> None:
    try:
        prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        if os.getppid() != guard:  # killed before the line above
            os._exit(127)
        os.setsid()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.execvp(argv[0], argv)
    except OSError as error:
        os.write(2, f"cannot run {argv[0]}: {error.strerror}\n".encode())
    finally:
        os._exit(127)


def _kill_the_rest() -> None:
    """Each child that ends gives us its own children, until there are none."""
    children = f"/proc/self/task/{os.getpid()}/children"
    while True:
        with contextlib.suppress(OSError), open(children, encoding="ascii") as file:  # noqa: PTH123
            for pid in file.read().split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
