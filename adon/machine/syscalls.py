"""The few Linux system calls that Python 3.11 does not offer, by way of libc."""

from __future__ import annotations

import ctypes
import os
import signal

CLONE_NEWNS = 0x00020000
CLONE_NEWIPC = 0x08000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000
MS_BIND = 0x1000
MS_REC = 0x4000
MS_PRIVATE = 0x40000
_PR_SET_PDEATHSIG = 1
_SYS_PIDFD_GETFD = 438  # the same on every architecture (asm-generic numbering since 5.0)

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")
    return result


def unshare(flags: int) -> None:
    """Give this process (for CLONE_NEWPID: its children) namespaces of its own. Raises OSError."""
    _check(_libc.unshare(ctypes.c_int(flags)), "unshare")


def mount(source: str, target: str, kind: str = "", flags: int = 0, data: str = "") -> None:
    """mount(2). Raises OSError that names the target."""
    _check(
        _libc.mount(
            source.encode(),
            target.encode(),
            kind.encode() or None,
            ctypes.c_ulong(flags),
            data.encode() or None,
        ),
        f"mount {target}",
    )


def die_with_parent() -> None:
    """Make the kernel kill this process when the thread that started it ends."""
    _check(_libc.prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0), "prctl")


def tie_to(parent: int) -> bool:
    """Make the kernel kill this process when ``parent``, which started it, ends.

    False if that has ended already, so that no signal will come. Raises OSError.
    """
    die_with_parent()
    return os.getppid() == parent


def pidfd_getfd(pidfd: int, fd: int) -> int:
    """A duplicate of another process's file descriptor. Raises OSError (needs ptrace rights)."""
    return _check(
        _libc.syscall(
            ctypes.c_long(_SYS_PIDFD_GETFD), ctypes.c_int(pidfd), ctypes.c_int(fd), ctypes.c_uint(0)
        ),
        "pidfd_getfd",
    )
