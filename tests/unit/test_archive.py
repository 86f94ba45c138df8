"""The measurement archive: once per id, several processes, errors in words, nothing from later."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import archive_suite
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitors.archive.archive import Archive, ArchiveError, Measurement
from monitors.archive.export import copy_archive
from monitors.archive.retaining import retain_metric
from monitors.archive.retention.horizons import HOUR_S, Keep
from monitors.archive.stores.schema import VERSION, ensure_schema, known_version
from monitors.archive.stores.sqlite import SqliteEngine
from monitors.base.estimates import estimate, weighted_median
from monitors.base.measurement import from_row
from network_provisioner.base.errors import InputError


def measured(
    key: str, value: float = 1.0, at: float = 100.0, subject: str = "mu>tacc", **more: object
) -> Measurement:
    known: dict[str, object] = {"metric": "throughput", "unit": "bit/s", "source": "test"}
    return Measurement(id=key, value=value, at=at, subject=subject, **(known | more))  # type: ignore[arg-type]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "archive.sqlite"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (measured("a", float("nan")), "found value nan at 100.0, expected finite numbers"),
        (measured("a", at=float("inf")), "expected finite numbers"),
        (measured("a", unit="Mb/s"), "found unit 'Mb/s', expected 'bit/s' for throughput"),
        (measured("", 1.0), "found no id or metric"),
        (measured("a", details={"x": object()}), "not JSON-ready"),
    ],
)
def test_refuses_what_would_poison_decisions(path: Path, wrong: Measurement, message: str) -> None:
    with Archive(path) as archive:
        with pytest.raises(InputError, match=message):
            archive.record(wrong)
        assert archive.query("throughput") == []


# ---------------------------------------------------------------------- files


def test_a_reader_creates_nothing_and_sees_the_file_once_it_is_there(path: Path) -> None:
    reader = Archive(path, read_only=True)
    assert reader.query("throughput") == []
    assert reader.estimate("throughput", "mu>tacc", now=1e9) is None
    assert not path.parent.exists()
    with Archive(path) as writer:
        writer.record(measured("a"))
        assert len(reader.query("throughput")) == 1
    reader.close()


def test_a_reader_of_nothing_finds_nothing() -> None:
    with Archive(":memory:", read_only=True) as reader:
        assert reader.query("throughput") == []
        assert reader.latest_seq() == 0
        assert reader.changed() is None


def test_a_reader_cannot_write(path: Path) -> None:
    with Archive(path):
        pass
    with Archive(path, read_only=True) as reader, pytest.raises(ArchiveError):
        reader.record(measured("a"))


@pytest.mark.parametrize("read_only", [False, True])
def test_names_a_file_that_is_no_database(tmp_path: Path, read_only: bool) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("not a database at all, but long enough to look at\n" * 50)
    with pytest.raises(InputError, match="expected an ADON archive"):
        Archive(path, read_only=read_only)
    assert path.read_text().startswith("not a database")


@pytest.mark.parametrize("read_only", [False, True])
def test_leaves_other_programs_databases_alone(tmp_path: Path, read_only: bool) -> None:
    path = tmp_path / "other.sqlite"
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE theirs (x)")
    db.close()
    with pytest.raises(InputError, match="another program's database"):
        Archive(path, read_only=read_only)


def test_names_an_archive_of_a_newer_version(path: Path) -> None:
    Archive(path).close()
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(InputError, match=r"found layout 99, .*newer ADON"):
        Archive(path)


def test_a_directory_in_the_place_of_the_file(tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match="cannot be opened"):
        Archive(tmp_path)
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match="its folder cannot be made"):
        Archive(tmp_path / "file" / "archive.sqlite")


def test_a_full_disk_is_told_and_costs_nothing_that_was_there(path: Path) -> None:
    with Archive(path) as archive:
        archive.record(measured("a"))
        engine = archive.engine
        assert isinstance(engine, SqliteEngine) and engine._db is not None
        pages = engine._db.execute("PRAGMA page_count").fetchone()[0]
        engine._db.execute(f"PRAGMA max_page_count = {pages + 2}")  # as a disk with no more room
        with pytest.raises(ArchiveError, match="the disk is full"):
            archive.record_many(measured(f"b{n}") for n in range(5000))
        assert [m.id for m in archive.query("throughput")] == ["a"]
        engine._db.execute("PRAGMA max_page_count = 1000000")
        assert archive.record(measured("b"))


@pytest.mark.parametrize("damage", [b"\xff\xfe\x00{{\x01", b'"broken"'])
def test_a_damaged_measurement_costs_only_itself(path: Path, damage: bytes) -> None:
    details = {"note": "nothing free today"}
    with Archive(path) as archive:
        archive.record_many(measured(f"m{n}", at=n, details=details) for n in range(10))
        assert (archive.faults(), archive.damage) == ("", "")
        trigger = "measurement_never_changes"
        assert isinstance(archive.engine, SqliteEngine) and archive.engine._db is not None
        db = archive.engine._db
        ((made,),) = db.execute("SELECT sql FROM sqlite_master WHERE name = ?", [trigger])
        db.execute(f"DROP TRIGGER {trigger}")
        db.execute(
            "UPDATE measurement SET details = substr(details, 1, 5) || CAST(? AS TEXT) "
            "WHERE id = 'm4'",
            [damage],
        )
        db.execute(made)
    for reads in (True, False):
        with Archive(path, read_only=reads) as archive:
            whole = [f"m{n}" for n in range(10) if n != 4]
            assert [m.id for m in archive.query("throughput")] == whole
            assert [m.id for _, m in archive.read_on(0)[0]] == whole
            assert archive.get("m4") is None
            assert archive.damage == "what cannot be read is left out (1 in the log)"
            assert archive.faults() == "1 damaged measurements, which are left out"


def test_a_damaged_page_is_told(path: Path) -> None:
    with Archive(path) as archive:
        archive.record_many(measured(f"m{n}", at=n) for n in range(1000))
    content = bytearray(path.read_bytes())
    content[-3 * 4096 :] = b"\xff" * 3 * 4096
    path.write_bytes(content)
    with Archive(path) as archive:
        assert "damaged" in archive.faults()
        with pytest.raises(ArchiveError, match="not a whole SQLite database"):
            archive.query("throughput")
        assert "not a whole SQLite database" in archive.damage


def test_a_lock_that_does_not_end_is_told(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("monitors.archive.stores.base.BUSY_S", 0.05)
    with Archive(path) as archive:
        holder = sqlite3.connect(path, isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(ArchiveError, match="locked by another process"):
            archive.record(measured("a"))
        holder.execute("ROLLBACK")
        holder.close()
        assert archive.record(measured("a"))


def test_closed_is_closed(path: Path) -> None:
    archive = Archive(path)
    archive.close()
    archive.close()
    with pytest.raises(ArchiveError, match="was closed"):
        archive.query("throughput")


# ------------------------------------------------------------------ processes


def test_several_processes_make_one_archive(path: Path) -> None:
    archive_suite.several_processes_make_one(str(path))


def test_a_writer_that_is_killed(path: Path) -> None:
    archive_suite.a_killed_writer_leaves_whole_transactions_and_its_turn(str(path))


@pytest.mark.parametrize("step", range(6))
def test_a_file_laid_out_while_it_is_looked_at_is_no_other_program_s(
    tmp_path: Path, step: int
) -> None:
    file = tmp_path / "archive.sqlite"
    statements: list[str] = []

    def another_process(statement: str) -> None:
        statements.append(statement)
        if len(statements) == step + 1:
            other = sqlite3.connect(file, timeout=0, isolation_level=None)
            # It would wait for us.
            with contextlib.closing(other), contextlib.suppress(sqlite3.OperationalError):
                ensure_schema(other, file, 0.0)

    with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as db:
        db.set_trace_callback(another_process)
        known_version(db, file)
        db.set_trace_callback(None)
        ensure_schema(db, file, 1.0)
        assert known_version(db, file) == VERSION


# ------------------------------------------------------------------ estimates

values = st.lists(st.floats(0, 1e12), min_size=1, max_size=200)


@given(values)
def test_an_estimate_lies_within_what_was_measured(series: list[float]) -> None:
    value, spread = estimate(series)
    assert min(series) <= value <= max(series)
    assert 0 <= spread <= 1.4827 * (max(series) - min(series))


def test_one_outlier_does_not_move_an_estimate_and_a_change_does() -> None:
    steady = [100.0] * 20
    assert estimate([1.0, *steady])[0] == 100.0
    assert estimate([10.0] * 9 + steady)[0] == 10.0


@given(values)
def test_weighted_median_with_equal_weights_is_the_median(series: list[float]) -> None:
    median = weighted_median(series, [1.0] * len(series))
    assert median == pytest.approx(statistics.median(series), rel=1e-9, abs=1e-9)


COUNT = 600
KEEP, NOW = Keep(raw_s=HOUR_S), 60 * HOUR_S


@pytest.mark.parametrize("done", [0, 3, 12])
def test_nothing_is_lost_whatever_retention_has_done(
    tmp_path: Path, done: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        Archive(tmp_path / "a.sqlite") as source,
        Archive(tmp_path / "a.sqlite") as retained,
        Archive(tmp_path / "b.sqlite") as target,
    ):
        source.record_many(
            Measurement(f"m{n}", "rtt", f"s{n % 15}", 1.0 + n % 7, "s", n * 240.0, "x")
            for n in range(COUNT)
        )
        work = retain_metric(retained.engine, "rtt", KEEP, NOW)
        for _ in range(done):
            next(work)

        engine = source.engine

        class Busy:
            """Retention comes to its end as soon as anybody has asked for roll-ups or horizons."""

            def rows(self, statement: str, values: Sequence[object] = ()) -> Any:
                result = engine.rows(statement, values)
                if "rollup" in statement or "horizon" in statement:
                    for _ in work:
                        pass
                return result

            def __getattr__(self, name: str) -> Any:
                return getattr(engine, name)

        monkeypatch.setattr(source, "_engine", Busy())
        copy_archive(source, target)
        monkeypatch.undo()
        for archive in (source, target):
            for _ in retain_metric(archive.engine, "rtt", KEEP, NOW):
                pass
            rolled = archive.engine.rows("SELECT sum(number) FROM rollup")[0][0]
            assert rolled == COUNT


@pytest.mark.parametrize(
    ("details", "known"),
    [
        ("", {}),
        ('{"t": NaN, "x": [-Infinity]}', {"t": None, "x": [None]}),
        (r'{"half": "\ud800"}', {"half": "\ud800"}),
        ('{"deep": ' + "[" * 300 + "]" * 300 + "}", None),
        (
            '{"a": 1, "a": -0.0, "n": 123456789012345678901}',
            {"a": -0.0, "n": 123456789012345678901},
        ),
    ],
)
def test_what_the_quick_decoder_refuses_is_read_all_the_same(
    details: str, known: dict[str, Any] | None
) -> None:
    read = from_row(("m", "rtt", "s", 1.0, "s", 0.0, "x", "", details)).details
    assert read == (json.loads(details) if known is None else known)
