"""What an archive does not take for a while is kept, tried again, and told once."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import pytest
from broker_rig import Rig

from monitors.archive.archive import Archive, ArchiveError
from monitors.archive.outbox import Outbox
from monitors.archive.stores import base
from monitors.base.measurement import Measurement
from network_provisioner.base.errors import AdonError, InputError


def measured(number: int) -> Measurement:
    return Measurement(f"m{number}", "rtt", "a>b", 0.01, "s", 1000.0 + number, "test")


class Full(Archive):
    """An archive on a disk that is full at times."""

    def __init__(self) -> None:
        super().__init__(":memory:")
        self.full, self.asked = False, 0

    def record_many(self, measurements: Iterable[Measurement]) -> int:
        self.asked += 1
        if self.full:
            raise ArchiveError("archive a.sqlite: the disk is full")
        return super().record_many(measurements)


def test_what_a_full_disk_did_not_take_is_recorded_later(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    now = [0.0]
    with Full() as archive:
        outbox = Outbox(archive, steady=lambda: now[0])
        assert outbox.record_many([measured(0)]) == 1
        archive.full = True
        assert [outbox.record_many([measured(n)]) for n in range(1, 100)] == [0] * 99
        assert archive.asked == 2  # who measures does not wait for an archive that fails
        outbox.retry()
        assert len(caplog.records) == 1
        assert caplog.records[0].exc_info is None
        archive.full = False
        assert outbox.retry() == 99
        assert len(archive.query("rtt")) == 100
        assert outbox.record_many([measured(100)]) == 1


def test_no_more_is_kept_than_there_is_room_for(caplog: pytest.LogCaptureFixture) -> None:
    with Full() as archive:
        archive.full = True
        outbox = Outbox(archive, most=10)
        for n in range(30):
            outbox.record_many([measured(n)])
        archive.full = False
        assert outbox.retry() == 10
    assert len(caplog.records) == 2


def test_it_tries_again_by_itself_and_at_the_end() -> None:
    with Full() as archive:
        archive.full = True
        with Outbox(archive) as outbox:
            outbox.record_many([measured(1)])
            archive.full = False
        assert archive.get("m1") is not None


def test_what_no_archive_takes_is_refused_at_once() -> None:
    with Full() as archive, pytest.raises(InputError):
        Outbox(archive).record_many([Measurement("x", "rtt", "a>b", 1.0, "%", 1.0, "test")])


def test_an_archive_that_is_locked_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "BUSY_S", 0.01)
    path = tmp_path / "a.sqlite"
    Archive(path).record(measured(1))
    with Archive(path) as archive, closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(ArchiveError):
            archive.record(measured(2))
        assert "locked" in archive.problem
        other.execute("ROLLBACK")
        archive.record(measured(2))
        assert archive.problem == ""


def test_an_archive_that_is_damaged_while_it_is_open_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def write() -> None:
        raise base.DamagedArchiveError("found a file that is not a whole SQLite database")

    with Archive(":memory:") as archive:
        monkeypatch.setattr(archive.engine, "write", write)
        with pytest.raises(ArchiveError):
            archive.record(measured(1))
        assert "not a whole SQLite database" in archive.problem


def test_what_fails_beside_the_broker_degrades_its_health(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "state.sqlite")
    rig.broker.other_problems.append(lambda: "the archive cannot be written")
    health = rig.broker.health()
    assert (health["status"], health["problem"]) == ("degraded", "the archive cannot be written")


def test_a_listener_that_fails_is_told_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rig = Rig(tmp_path / "state.sqlite")
    rig.recorder.broken = AdonError("the disk is full")
    for name in ("a", "b"):
        rig.ask(name, "mu", "tacc")
        rig.broker.release(name, 10**9, 8.0, "success")
    records = [record for record in caplog.records if "recorded" in record.getMessage()]
    assert [record.exc_info for record in records] == [None]
