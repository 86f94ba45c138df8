"""A box without a name: one command and everything it starts, in namespaces of their own.

::

    adon … (host)  ── waits, passes signals on
      └── init     pid 1 of the box; dies with its parent, reaps orphans, passes signals on
            └── the command, and every daemon, namespace, device and mount it makes

The box has its own process ids, mounts, network and System-V objects. Nothing in it has a name
outside: when its init ends, whatever the reason, the kernel kills every process in it, and with the
last process go the network namespaces, their devices and the mounts. No clean-up code has to run,
so SIGKILL is as clean as an orderly end.

Inside, ``/run`` is a private tmpfs (named network namespaces live in ``/run/netns``; the host's
directories under ``/run`` stay visible), ``/etc/hosts`` names this machine only and is the box's
own, and ``/etc/nsswitch.conf`` looks hosts up in files only. No sysctl of the host is ever written.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import NoReturn

from adon.machine import syscalls
from network_provisioner.base.errors import MissingError

_MARK = "ADON_BOX"
_FORWARDED = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
_PROBE = """
ip link add adon-veth type veth
ip tuntap add adon-tap mode tap
tc qdisc add dev adon-veth root tbf rate 1gbit burst 256kb limit 4mb
tc qdisc add dev adon-tap root handle 1: htb
"""
"""Each kind of device and queue that the testbed needs."""
_PROBE_TIMEOUT_S = 60.0
_ROOT = Path(__file__).resolve().parents[2]
_Mask = set[signal.Signals | int]


def inside() -> bool:
    """Whether this process runs in a box.

    The mark names the box's PID namespace, so an inherited variable alone does not convince.
    """
    return os.environ.get(_MARK) == _pid_namespace()


def can_box() -> str | None:
    """None if this process may make boxes, otherwise the reason in one line.

    Asks the kernel by making a box that does nothing: capabilities, seccomp filters and container
    runtimes forbid in too many ways to predict.
    """
    missing = _missing()
    if missing:
        return missing
    probe = [*command(), "sh", "-ec", _PROBE]
    try:
        done = subprocess.run(
            probe, capture_output=True, text=True, timeout=_PROBE_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return f"making namespaces took longer than {_PROBE_TIMEOUT_S:g} s"
    if done.returncode == 0:
        return None
    lines = done.stderr.strip().splitlines()
    return lines[-1] if lines else f"making namespaces failed with exit code {done.returncode}"


def _missing() -> str | None:
    """What is plainly not there, in words that are clearer than the kernel's."""
    if os.geteuid() != 0:
        return f"network namespaces need root, this is user id {os.geteuid()}"
    if shutil.which("ip") is None or shutil.which("tc") is None:
        return "the programs ip and tc are missing (Debian package iproute2)"
    if not Path("/dev/net/tun").exists():
        return "/dev/net/tun is missing (kernel module tun)"
    try:
        pidfd = os.pidfd_open(os.getpid())
        os.close(syscalls.pidfd_getfd(pidfd, pidfd))
        os.close(pidfd)
    except OSError as err:
        return f"pidfd_getfd: {err.strerror} (needs Linux 5.6 and no filter against it)"
    return None


def command() -> list[str]:
    """The words to put before a command so that it runs in a box of its own, which ends when the
    process that started it does."""
    # Not "-m": the caller's working directory may be anywhere, and ADON need not be installed.
    start = (
        f"import sys; sys.path.insert(0, {str(_ROOT)!r}); "
        "from adon.machine import box; sys.exit(box.main())"
    )
    return [sys.executable, "-c", start, "--tied", "--"]


def run(argv: Sequence[str], *, tied: bool = False) -> int:
    """Run ``argv`` in a new box and return its exit code (128 + signal where one killed it).

    For the main thread of a process that does nothing else afterwards: its later children would
    still be born into the box's PID namespace. INT, TERM, HUP, QUIT, USR1 and USR2 are passed on.
    With ``tied``, the box also ends when the caller's own parent dies. Raises MissingError if
    the kernel does not allow it.
    """
    if tied and not syscalls.tie_to(os.getppid()):
        os._exit(128 + signal.SIGKILL)
    try:
        syscalls.unshare(syscalls.CLONE_NEWPID)
    except OSError as err:
        raise MissingError(f"cannot make a box: {err.strerror} (needs CAP_SYS_ADMIN)") from err
    alive_read, alive_write = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    # Blocked until each process has its handlers: a signal that comes early waits, none is lost.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _FORWARDED)
    pid = os.fork()
    if pid == 0:
        os.close(alive_write)
        _init(argv, alive_read, mask)
    os.close(alive_read)
    code = _wait(pid, mask)
    os.close(alive_write)
    return code


def _init(argv: Sequence[str], alive: int, mask: _Mask) -> NoReturn:
    """Pid 1 of the box: never returns, never raises."""
    code = 125
    try:
        syscalls.die_with_parent()
        # The parent may have died before the line above; then its end of the pipe is closed.
        if select.select([alive], [], [], 0)[0]:
            os._exit(code)
        os.close(alive)
        # No terminal signals for the box: they reach the parent, which passes them on once.
        os.setsid()
        _build()
        child = os.fork()
        if child == 0:
            _exec(argv, mask)
        code = _wait(child, mask)
    except OSError as err:
        print(f"cannot make a box: {err.strerror}", file=sys.stderr)
    finally:
        sys.stderr.flush()
        os._exit(code)


def _exec(argv: Sequence[str], mask: _Mask) -> NoReturn:
    os.environ[_MARK] = _pid_namespace()
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it, and exec would keep that
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    try:
        os.execvp(argv[0], list(argv))
    except OSError as err:
        print(f"cannot run {argv[0]}: {err.strerror}", file=sys.stderr)
        sys.stderr.flush()
        os._exit(127)


def _wait(pid: int, mask: _Mask) -> int:
    """Wait for ``pid``, reaping every other child and passing signals on to it."""

    def forward(number: int, _frame: FrameType | None) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)

    previous = {s: signal.signal(s, forward) for s in _FORWARDED}
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    try:
        while True:
            # -1: an init is given the orphans of the whole box. In the parent it is one child.
            ended, status = os.waitpid(-1 if os.getpid() == 1 else pid, 0)
            if ended == pid:
                code = os.waitstatus_to_exitcode(status)
                return code if code >= 0 else 128 - code
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _build() -> None:
    """Make the namespaces and mounts of the box. Raises OSError."""
    syscalls.unshare(syscalls.CLONE_NEWNS | syscalls.CLONE_NEWNET | syscalls.CLONE_NEWIPC)
    syscalls.mount("none", "/", flags=syscalls.MS_REC | syscalls.MS_PRIVATE)
    syscalls.mount("proc", "/proc", "proc")
    private = _private_run()
    hosts = "\n".join(["127.0.0.1 localhost", f"127.0.1.1 {socket.gethostname()}"])
    _overlay(Path("/etc/hosts"), f"{hosts}\n", private)
    switch = Path("/etc/nsswitch.conf")
    text = switch.read_text(encoding="utf-8") if switch.exists() else "passwd: files\n"
    kept = [line for line in text.splitlines() if not re.match(r"\s*hosts\s*:", line)]
    _overlay(switch, "\n".join([*kept, "hosts: files"]) + "\n", private)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=False)


def private_dir() -> Path:
    """A directory of the box's own, in memory: short paths for sockets, gone with the box."""
    return Path("/var/run").resolve() / "adon"


def name_hosts(lines: Sequence[str]) -> None:
    """Inside a box: add lines to its ``/etc/hosts``, but for those that are there already."""
    own = private_dir() / "hosts"
    if own.exists():
        known = own.read_text(encoding="utf-8")
        new = [line for line in lines if line not in known.splitlines()]
        own.write_text("\n".join([known.rstrip("\n"), *new]) + "\n", encoding="utf-8")


def _private_run() -> Path:
    """Cover /run with a tmpfs in which the host's directories show through; returns it.

    ``ip netns`` keeps its names in /run/netns. Covering only that directory would need it to exist
    on the host, and would leave it there.
    """
    where = Path("/var/run").resolve()
    entries = {}
    for entry in sorted(where.iterdir()):
        if entry.is_dir() and not entry.is_symlink() and entry.name != "netns":
            entries[entry.name] = os.open(entry, os.O_PATH | os.O_DIRECTORY)
    syscalls.mount("adon", str(where), "tmpfs", data="mode=755")
    for name, fd in entries.items():
        (where / name).mkdir()
        syscalls.mount(
            f"/proc/self/fd/{fd}", str(where / name), flags=syscalls.MS_BIND | syscalls.MS_REC
        )
        os.close(fd)
    (where / "netns").mkdir()
    private = private_dir()
    private.mkdir(exist_ok=True)
    return private


def _overlay(path: Path, text: str, private: Path) -> None:
    """Show ``text`` at ``path``, in this box only. A path that does not exist is left alone."""
    if not path.exists():
        return
    stand_in = private / path.name
    stand_in.write_text(text, encoding="utf-8")
    syscalls.mount(str(stand_in), str(path.resolve()), flags=syscalls.MS_BIND)


def _pid_namespace() -> str:
    return str(Path("/proc/self/ns/pid").readlink())


def main() -> int:
    """``python -m adon.machine.box [--tied] -- COMMAND …``"""
    arguments = sys.argv[1:]
    tied = arguments[:1] == ["--tied"]
    arguments = arguments[1:] if tied else arguments
    if arguments[:1] != ["--"] or len(arguments) < 2:
        print("usage: python -m adon.machine.box [--tied] -- COMMAND …", file=sys.stderr)
        return 2
    try:
        return run(arguments[1:], tied=tied)
    except MissingError as err:
        print(err, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
