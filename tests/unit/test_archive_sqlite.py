"""The archive in a file: what every archive promises, and what becomes of older files."""

from __future__ import annotations

import csv
import multiprocessing
import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import chain, count
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
from archive_suite import NOW, ArchiveSuite, Opener, World, measured

from monitors.archive.archive import Archive, ArchiveError, Selection
from monitors.archive.export import csv_parts
from monitors.archive.retaining import retain
from monitors.archive.retention import rollups
from monitors.archive.retention.horizons import DAY_S, HOUR_S, Keep, Retention, RollUp
from monitors.archive.stores import schema
from monitors.archive.stores.base import Writing
from monitors.archive.stores.selection import by_number


@contextmanager
def file_world() -> Iterator[Opener]:
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        yield lambda: stack.enter_context(Archive(Path(folder) / "archive.sqlite"))


class TestSqlite(ArchiveSuite):
    @pytest.fixture
    def world(self) -> Callable[[], World]:
        return file_world


older_layouts = pytest.mark.parametrize("version", range(1, schema.VERSION))


def older_layout(path: Path, count: int, version: int) -> None:
    """A file as an older version of the archive wrote it."""
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    for statement in chain(*schema.MIGRATIONS[:version]):
        db.execute(statement)
    db.execute(f"PRAGMA application_id = {schema.APPLICATION_ID}")
    db.execute(f"PRAGMA user_version = {version}")
    db.executemany(
        "INSERT INTO measurement (id, metric, subject, value, unit, at, source, workflow, details,"
        " recorded_at) VALUES (?, 'rtt', 'mu>tacc', 1.0, 's', ?, 'test', '', '', 1.0)",
        [(str(n), float(n)) for n in range(count)],
    )
    db.close()


@older_layouts
def test_a_file_of_an_older_layout_is_brought_up_to_date(tmp_path: Path, version: int) -> None:
    path = tmp_path / "old.sqlite"
    older_layout(path, 10, version)
    with Archive(path) as archive:
        assert archive.query("rtt") == [measured(str(n), at=float(n)) for n in range(10)]
        assert not archive.record(measured("3"))
        assert archive.record(measured("new", at=50.0 * DAY_S))
        assert archive.latest_seq() == 11
        assert retain(archive, Retention(Keep(DAY_S)), 50.0 * DAY_S).removed == 10
        assert not archive.record(measured("3"))
    with sqlite3.connect(path) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (schema.VERSION,)
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    db.close()


@older_layouts
def test_a_reader_brings_an_older_file_up_to_date(tmp_path: Path, version: int) -> None:
    path = tmp_path / "old.sqlite"
    older_layout(path, 3, version)
    with Archive(path, read_only=True) as archive:
        assert len(archive.query("rtt")) == 3
        assert archive.estimate("rtt", "mu>tacc", 10.0) is not None
    with sqlite3.connect(path) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (schema.VERSION,)
    db.close()


def _asked_as_anybody(path: Path, connection: Connection) -> None:
    if os.getuid() == 0:
        os.setgid(65534)
        os.setuid(65534)
    with Archive(path, read_only=True) as archive:
        before = archive.changed()
        while connection.recv():
            connection.send((archive.changed() != before, [m.id for m in archive.query("rtt")]))


def test_who_may_not_write_reads_what_nobody_writes_and_what_somebody_does() -> None:
    """SQLite wants to make files beside one in WAL mode, for readers, too."""
    context = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as name:
        folder, path = Path(name), Path(name) / "archive.sqlite"
        with Archive(path) as archive:
            archive.record(measured("a"))
        path.chmod(0o644)
        folder.chmod(0o555)
        ours, theirs = context.Pipe()
        reader = context.Process(target=_asked_as_anybody, args=(path, theirs))
        reader.start()
        theirs.close()
        ours.send(True)
        assert ours.recv() == (False, ["a"])
        folder.chmod(0o755)
        with Archive(path) as archive:  # and is gone before anybody asks
            archive.record_many(measured(f"b{n}") for n in range(300))
        folder.chmod(0o555)
        ours.send(True)
        changed, ids = ours.recv()
        assert changed and len(ids) == 301
        folder.chmod(0o755)
        with Archive(path) as archive:
            for key in ("c", "d"):
                archive.record(measured(key))
                folder.chmod(0o555)
                ours.send(True)
                changed, ids = ours.recv()
                assert changed and ids[-1] == key
                folder.chmod(0o755)
        ours.send(False)
        reader.join()
        assert reader.exitcode == 0


def test_a_file_that_is_written_while_it_is_read_as_one_at_rest_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, steps = tmp_path / "archive.sqlite", []

    def write(last: str) -> None:
        """And be gone again."""
        with Archive(path) as archive:
            archive.record_many(measured(f"{n:04d}-{last}") for n in range(5000))

    def in_between() -> int:
        steps.append(1)
        if len(steps) == 15:
            write("b")
        return 0

    write("a")
    monkeypatch.setattr(os, "access", lambda *_: False)  # as for who may not write beside it
    with Archive(path, read_only=True) as reader:
        reader.engine._reader.set_progress_handler(in_between, 500)  # type: ignore[attr-defined]
        ids = [key for (key,) in reader.engine.rows("SELECT id FROM measurement ORDER BY id")]
    assert len(steps) > 15
    assert ids == [f"{n:04d}-{last}" for n in range(5000) for last in "ab"]


@older_layouts
def test_a_reader_that_may_not_write_reads_an_older_file_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    path = tmp_path / "old.sqlite"
    older_layout(path, 3, version)
    monkeypatch.setattr(
        "monitors.archive.stores.sqlite.SqliteEngine._bring_up_to_date", lambda _: None
    )
    with Archive(path, read_only=True) as reader:
        assert len(reader.query("rtt")) == 3
        assert reader.estimate("rtt", "mu>tacc", 10.0) is not None
        assert reader.requests("refresh") == []
        with Archive(path) as writer:  # somebody else may
            writer.ask("refresh", "w", 1.0)
            assert [subject for _, subject, _ in reader.requests("refresh")] == ["w"]


def test_pages_that_follow_one_another_have_each_measurement_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("monitors.archive.archive._PAGE", 3)
    monkeypatch.setattr("monitors.archive.archive._ASKED", 3)
    monkeypatch.setattr("monitors.archive.export._WRITTEN_TOGETHER", 2)
    with Archive(tmp_path / "archive.sqlite") as archive:
        for count in range(1, 8):  # whole pages, and some more
            archive.record(measured(str(count)))
            ids = [str(number) for number in range(1, count + 1)]
            assert [m.id for m in archive.query("rtt")] == ids
            assert [m.id for m in archive.each(Selection())] == ids
            assert archive.those([*ids, "none"]).keys() == set(ids)
            rows = list(csv.reader("".join(csv_parts(archive.each(Selection()))).splitlines()))
            assert [row[0] for row in rows] == ["id", *ids]


def test_what_is_new_is_found_without_looking_at_what_is_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("monitors.archive.archive._WINDOW", 7)
    with Archive(tmp_path / "archive.sqlite") as archive:
        names = ("rtt", "loss", "loss", "loss", "loss")
        archive.record_many(measured(str(n), metric=names[n % 5]) for n in range(100))
        read, seq = [], 0
        while seq < archive.latest_seq():
            batch, seq = archive.read_on(seq, ("rtt", "status"), 3)
            read += [number for number, _ in batch]
        assert read == [n + 1 for n in range(0, 100, 5)]
        assert archive.read_on(0, ("status",), 3) == ([], 100)
    db = sqlite3.connect(tmp_path / "archive.sqlite")
    statement, values = by_number(("rtt", "status"), 98, 100, 3)
    ((*_, plan),) = db.execute(f"EXPLAIN QUERY PLAN {statement}", values).fetchall()
    assert "PRIMARY KEY" in plan


@pytest.mark.parametrize("fails_at", range(5))
def test_retention_that_ends_before_roll_ups_are_kept_loses_nothing(
    tmp_path: Path, fails_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the process is killed, or the disk is full, between two statements."""
    kept, calls = rollups.add, count()

    def add(writing: Writing, made: Sequence[RollUp]) -> int:
        if next(calls) == fails_at:
            raise ArchiveError("the disk is full")
        return kept(writing, made)

    keep = Retention(Keep(HOUR_S, DAY_S))
    with Archive(tmp_path / "a.sqlite") as archive:
        archive.record_many(measured(f"{n}", float(n), n * HOUR_S / 4) for n in range(300))
        with monkeypatch.context() as patched:
            patched.setattr(rollups, "add", add)
            with pytest.raises(ArchiveError):
                retain(archive, keep, NOW)
        retain(archive, keep, NOW)
        days = rollups.roll_ups(archive.engine, "rtt", "mu>tacc", DAY_S, 0, NOW)
    assert sum(day.number for day in days) == 300
