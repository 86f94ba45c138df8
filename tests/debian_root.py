"""A Debian 12 with systemd as its first process, in namespaces of its own."""

from __future__ import annotations

import io
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

CACHE = Path.home() / ".cache/adon/debian-12-root"
PACKAGES = "systemd,systemd-sysv,dbus,iproute2,python3,procps,openvswitch-switch,adduser"
_START_S = 300.0
_INSIDE = r"""
set -e
mount -t tmpfs tmpfs "$WORK"; mkdir "$WORK/upper" "$WORK/work"
mount -t overlay overlay -o "lowerdir=$BASE,upperdir=$WORK/upper,workdir=$WORK/work" "$ROOT"
mount -t tmpfs tmpfs "$ROOT/run"; mount -t tmpfs tmpfs "$ROOT/tmp"
mount -t tmpfs -o mode=755 tmpfs "$ROOT/dev"
for device in null zero full random urandom tty; do
    touch "$ROOT/dev/$device"; mount --bind "/dev/$device" "$ROOT/dev/$device"
done
mkdir "$ROOT/dev/pts" "$ROOT/dev/shm" "$ROOT/dev/net"
mknod "$ROOT/dev/net/tun" c 10 200
mount -t devpts -o newinstance devpts "$ROOT/dev/pts"; ln -s pts/ptmx "$ROOT/dev/ptmx"
mount -t proc proc "$ROOT/proc"; mount -t sysfs sysfs "$ROOT/sys"
mount -t cgroup2 cgroup2 "$ROOT/sys/fs/cgroup"
export container=adon-test
cd "$ROOT"; pivot_root . mnt; umount -l /mnt
exec /lib/systemd/systemd
"""


def base(progress: Callable[[str], object]) -> Path:
    """The files of a Debian 12, made once (minutes). Raises OSError, CalledProcessError."""
    if not CACHE.exists():
        progress("a Debian 12 is downloaded: minutes")
        made = CACHE.with_name(f"{CACHE.name}.{os.getpid()}")
        command = ["debootstrap", "--variant=minbase", f"--include={PACKAGES}", "bookworm"]
        try:
            subprocess.run([*command, made], check=True, capture_output=True)
            made.rename(CACHE)
        finally:
            shutil.rmtree(made, ignore_errors=True)
    return CACHE


class Machine:
    """What runs there is run as root."""

    def __init__(self, pid: int, root: Path) -> None:
        self._pid, self.root = pid, root

    def run(self, *words: str, check: bool = True) -> str:
        """What a command prints, on both its outputs. Raises AssertionError if it fails."""
        done = subprocess.run(
            ["nsenter", "-t", str(self._pid), "-a", "--", *words], check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600,
        )  # fmt: skip
        assert done.returncode == 0 or not check, f"{words}: {done.stdout}"
        return done.stdout

    def put(self, text: str, path: str) -> None:
        """Write a file."""
        self.put_bytes(io.BytesIO(text.encode()), path)

    def put_bytes(self, content: BinaryIO, path: str) -> None:
        """Write a file."""
        words = ["nsenter", "-t", str(self._pid), "-a", "--", "sh", "-c", f"cat > {path}"]
        with subprocess.Popen(words, stdin=subprocess.PIPE) as process:
            assert process.stdin is not None
            shutil.copyfileobj(content, process.stdin)
            process.stdin.close()
            assert process.wait() == 0, path

    def wait(self, done: Callable[[], bool], what: str) -> None:
        """Until it is so. Raises TimeoutError."""
        until = time.monotonic() + _START_S
        while not done():
            if time.monotonic() > until:
                raise TimeoutError(f"{what}: not within {_START_S:g} s")
            time.sleep(0.2)


@contextmanager
def machine(files: Path, folder: Path) -> Iterator[Machine]:
    """A machine whose files are those of :func:`base`, as long as this lasts; what it writes is
    gone with it."""
    root, work = folder / "root", folder / "work"
    root.mkdir()
    work.mkdir()
    unified = Path("/sys/fs/cgroup/unified")
    group = (unified if unified.is_dir() else unified.parent) / f"adon-test-{os.getpid()}"
    group.mkdir()
    env = {**os.environ, "BASE": str(files), "ROOT": str(root), "WORK": str(work)}
    unshare = ["unshare", "-C", "-p", "-m", "-u", "-i", "-n", "--fork", "--kill-child",
               "--propagation", "private", "sh", "-c", _INSIDE]  # fmt: skip
    enter = f'echo $$ > {group}/cgroup.procs; exec "$@"'
    process = subprocess.Popen(
        ["setpriv", "--pdeathsig", "KILL", "sh", "-c", enter, "sh", *unshare],
        env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        until = time.monotonic() + _START_S
        while not (pids := children.read_text().split()):
            assert process.poll() is None and time.monotonic() < until, "no machine"
            time.sleep(0.05)
        made = Machine(int(pids[0]), root)
        is_up = ("running", "degraded")
        made.wait(
            lambda: made.run("systemctl", "is-system-running", check=False).strip() in is_up,
            "systemd",
        )
        yield made
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
        until = time.monotonic() + 10
        while group.exists() and time.monotonic() < until:
            try:
                group.rmdir()
            except OSError:  # its processes are on their way out
                for pid in (group / "cgroup.procs").read_text().split():
                    os.kill(int(pid), signal.SIGKILL)
                time.sleep(0.1)
