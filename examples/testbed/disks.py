"""A disk of a chosen speed: a real file system in a file, and the kernel's limit on its device.

::

    with Disk(folder, 1 << 30, rate_bps=160e6) as disk:
        ...  # folder is the disk's root
        disk.set_rate(80e6)  # as where a neighbour uses it, too

Reads and writes have that rate each. Of what is written only little stays in memory, so that
writers feel it as well. A process of its own keeps the disk and takes it away when its owner ends,
however that ends, and leaves neither mount nor device nor file. It does not outlive a box
(:mod:`adon.machine.box`): of a disk that was made within a box that is killed, the limit stays on
a loop device without a file until the next disk is made.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Self

from examples.testbed import procs
from network_provisioner.base.errors import AdonError, MissingError
from network_provisioner.base.units import bytes_of

DIRTY_BYTES = 1 << 20
_ROOT = Path(__file__).resolve().parents[2]
_CGROUPS, _SYS = Path("/sys/fs/cgroup"), Path("/sys")
_MAKE = ("mkfs.ext4", "-q", "-F", "-b", "4096", "-O", "^has_journal", "-E", "lazy_itable_init=0")


class Disk:
    """A context manager; ``path`` is where the disk is seen while it is there."""

    def __init__(self, path: Path, size_bytes: int, rate_bps: float) -> None:
        self.path = path
        self._words = [str(path), str(size_bytes), str(rate_bps)]
        self._keeper: subprocess.Popen[str] | None = None
        self._device = ""

    def __enter__(self) -> Self:
        """Raises MissingError if such a disk cannot be had."""
        if os.geteuid() != 0:
            raise MissingError(
                f"disk of a chosen speed: found user id {os.geteuid()}, expected root"
            )
        self.path.mkdir(parents=True, exist_ok=True)
        # Told by the end of its input, which the kernel closes with its owner; a session of its
        # own, as Ctrl-C is for the owner.
        self._keeper = keeper = subprocess.Popen(
            [sys.executable, "-m", "examples.testbed.disks", *self._words],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            cwd=_ROOT, start_new_session=True,
        )  # fmt: skip
        assert keeper.stdout is not None
        self._device = keeper.stdout.readline().strip()
        if not self._device:
            lines = keeper.communicate()[1].strip().splitlines() or ["its keeper was killed"]
            raise MissingError(f"disk of a chosen speed: {lines[-1]}")
        return self

    def __exit__(self, *_: object) -> None:
        """The disk is gone afterwards, with all that was on it."""
        assert self._keeper is not None
        self._keeper.communicate()

    def set_rate(self, rate_bps: float) -> None:
        """From now on it reads and writes at this rate, bits per second; 0 lifts the limit."""
        _limit(self._device, rate_bps)


def _limit(device: str, rate_bps: float) -> None:
    """Raises MissingError if the kernel has no such limit, OSError."""
    rate = f"{bytes_of(rate_bps):.0f}"
    root = _CGROUPS / "blkio"  # its limits hold for buffered writes, too
    if root.is_dir():
        for way in ("read", "write"):
            (root / f"blkio.throttle.{way}_bps_device").write_text(f"{device} {rate}")
        return
    groups = sorted(_CGROUPS.glob("*/io.max"))
    if not groups:
        raise MissingError(
            f"found no block controller in {_CGROUPS}, expected blkio of version 1, or io of "
            "version 2 in its groups"
        )
    for group in groups:
        word = rate if rate_bps else "max"
        group.write_text(f"{device} rbps={word} wbps={word}")


def _bound_memory(device: str, most_bytes: int) -> None:
    """How much of what is written may wait in memory; 0: as much as the kernel likes."""
    bdi = _SYS / "class/bdi" / device
    (bdi / "strict_limit").write_text(str(int(most_bytes > 0)))
    if most_bytes:
        (bdi / "max_bytes").write_text(str(most_bytes))
    else:
        (bdi / "max_ratio").write_text("100")


def _keep(path: Path, size_bytes: int, rate_bps: float) -> None:
    """Make the disk, print its device's number, remove it at the end of the input. Raises
    AdonError, OSError."""
    for idle in (_SYS / "block").glob("loop*"):
        if not (idle / "loop").is_dir():  # it has no file
            _limit((idle / "dev").read_text().strip(), 0)
    image = path.with_name(f"{path.name}.disk")
    try:
        with image.open("wb") as file:
            file.truncate(size_bytes)
        procs.run([*_MAKE, str(image)])
        procs.run(["mount", "-o", "loop,noatime", str(image), str(path)])
    finally:
        image.unlink(missing_ok=True)  # the device has it
    number = path.stat().st_dev
    device = f"{os.major(number)}:{os.minor(number)}"
    try:
        _bound_memory(device, DIRTY_BYTES)
        _limit(device, rate_bps)
        print(device, flush=True)
        sys.stdin.read()
    finally:
        _limit(device, 0)
        _bound_memory(device, 0)
        # Its device goes with its last user.
        procs.run(["umount", "--lazy", str(path)])


if __name__ == "__main__":
    try:
        _keep(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
    except (AdonError, OSError) as error:
        sys.exit(str(error))
