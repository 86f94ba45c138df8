"""Disks of a chosen speed: as slow as they should be, and gone afterwards, whatever happens."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from waiting import until

from examples.testbed import disks
from examples.testbed.disks import Disk
from network_provisioner.base.errors import MissingError

pytestmark = pytest.mark.component

ROOT = Path(__file__).resolve().parents[2]
SIZE = 64 << 20
RATE_BPS = 80e6
MIB = 1 << 20


def written_s(file: Path, mib: int, sync: bool = True) -> float:
    """How long it takes to write so much."""
    started = time.monotonic()
    with file.open("wb") as stream:
        for _ in range(mib):
            stream.write(bytes(MIB))
        if sync:
            stream.flush()
            os.fsync(stream.fileno())
    return time.monotonic() - started


def least_s(mib: float, rate_bps: float) -> float:
    """Nobody is faster; how much slower a machine is says nothing."""
    return 0.8 * mib * MIB * 8 / rate_bps


def left_of(path: Path) -> list[str]:
    """What is still there of the disk at ``path``."""
    places = [Path("/proc/self/mounts").read_text()]
    for file in Path("/sys/block").glob("loop*/loop/backing_file"):
        with contextlib.suppress(OSError):  # it goes while it is looked at
            places.append(file.read_text())
    return [line for text in places for line in text.splitlines() if str(path) in line]


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    made = Disk(tmp_path / "disk", SIZE, RATE_BPS)
    try:
        with made:
            pass
    except MissingError as error:
        pytest.skip(str(error))
    return made


def test_an_ordinary_user_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(MissingError, match="found user id 1000, expected root"):
        Disk(tmp_path, SIZE, RATE_BPS).__enter__()


class TestLimit:
    def test_without_a_controller(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(disks, "_CGROUPS", tmp_path)
        with pytest.raises(MissingError, match="found no block controller"):
            disks._limit("7:0", RATE_BPS)

    def test_version_2_has_it_in_each_group(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(disks, "_CGROUPS", tmp_path)
        files = [tmp_path / group / "io.max" for group in ("system.slice", "user.slice")]
        for file in files:
            file.parent.mkdir()
            file.touch()
        disks._limit("7:3", RATE_BPS)
        assert {file.read_text() for file in files} == {"7:3 rbps=10000000 wbps=10000000"}
        disks._limit("7:3", 0)
        assert {file.read_text() for file in files} == {"7:3 rbps=max wbps=max"}


@pytest.mark.root
class TestDisk:
    def test_it_is_as_slow_as_it_should_be(self, disk: Disk) -> None:
        with disk:
            assert written_s(disk.path / "synced", 16) >= least_s(16, RATE_BPS)
            dirty = disks.DIRTY_BYTES / MIB
            assert written_s(disk.path / "x", 16, sync=False) >= least_s(16 - dirty, RATE_BPS)
            disk.set_rate(2 * RATE_BPS)
            assert written_s(disk.path / "x", 16) >= least_s(16, 2 * RATE_BPS)

    def test_nothing_is_left(self, disk: Disk) -> None:
        with disk:
            (disk.path / "file").write_text("x")
            assert left_of(disk.path)
        until(lambda: not left_of(disk.path), "the disk to go")
        assert sorted(disk.path.parent.rglob("*")) == [disk.path]

    def test_nor_of_one_whose_owner_was_killed(self, disk: Disk) -> None:
        script = (
            "import os, sys; from pathlib import Path; from examples.testbed.disks import Disk\n"
            f"with Disk(Path(sys.argv[1]), {SIZE}, {RATE_BPS}):\n"
            "    os.kill(os.getpid(), 9)\n"
        )
        words = [sys.executable, "-c", script, str(disk.path)]
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (-9, "")
        until(lambda: not left_of(disk.path), "the disk to go")

    def test_what_keeps_it_from_being_made_is_told(self, tmp_path: Path, disk: Disk) -> None:
        with pytest.raises(MissingError, match=r"^disk of a chosen speed: mkfs\.ext4 "):
            Disk(tmp_path / "small", 4096, RATE_BPS).__enter__()
        assert not left_of(tmp_path / "small")
