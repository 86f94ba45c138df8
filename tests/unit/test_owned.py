"""What somebody puts into a submit directory harms nobody who reads it, who may do more than he."""

from __future__ import annotations

import json
import os
import sqlite3
import struct
import time
import tracemalloc
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from monitor_files import (
    START,
    Submitted,
    append,
    executing,
    starting,
    submitted,
    table,
    terminated,
)
from test_workflow_discovery import SCHEMA

from monitors.archive.archive import Archive
from monitors.jobs.condor import command_output
from monitors.watcher import registry as hooks_registry
from monitors.workflows.discovery import FoundWorkflow, PegasusDatabase, Registry
from monitors.workflows.follower import Follower
from monitors.workflows.logs.tail import Tail
from monitors.workflows.planned import job_files
from monitors.workflows.planned.foreign_files import as_owner, end_of, read_bytes, read_text
from monitors.workflows.planned.submit_dir import SubmitDir
from network_provisioner.base.errors import InputError

ROOT = os.geteuid() == 0
ADA = 65534 if ROOT else os.geteuid()
JOB = "align_ID0000001"


def given_to_ada(*folders: Path) -> None:
    """Where this runs as root, what is there is another user's from now on."""
    for folder in folders:
        for path in (folder, *folder.rglob("*")):
            os.chown(path, ADA, -1, follow_symlinks=False)


def failing(run: Submitted, complaint: Path) -> None:
    """Logs that say that a job failed, and that its standard error is in a file."""
    sub = run.output(JOB).with_suffix(".sub")
    sub.write_text(sub.read_text().replace("queue", f"error = {complaint}\nqueue"))
    run.out.write_text(starting() + table(START, queued=1, unready=2))
    run.nodes.write_text(
        submitted(7, START + 1, JOB) + executing(7, START + 2) + terminated(7, START + 9, 1)
    )
    run.output(JOB).write_text("adon\n")


def words(archive: Archive) -> str:
    measurements = [
        measurement
        for metric in ("job", "workflow", "status")
        for measurement in archive.query(metric)
    ]
    return json.dumps([measurement.details for measurement in measurements])


def test_logs_of_the_future_are_not_recorded(tmp_path: Path, archive: Archive) -> None:
    run, late = Submitted(tmp_path / "run"), time.time() + 1e7
    failing(run, tmp_path / "none")
    run.nodes.write_text(
        submitted(7, late, JOB) + executing(7, late + 1) + terminated(7, late + 2, 1)
    )
    Follower(run.path, archive).poll()
    for metric in ("job", "status", "transfer", "compute"):
        assert all(measurement.at < late - 1 for measurement in archive.query(metric))


@pytest.mark.parametrize("linked", [False, True])
def test_forged_logs_copy_no_file_of_another_user(
    tmp_path: Path, archive: Archive, linked: bool
) -> None:
    secret, run = tmp_path / "secret", Submitted(tmp_path / "run")
    secret.write_text("root:x:the secret\n")
    os.utime(secret, (START + 5, START + 5))
    secret.chmod(0o600)
    if not ROOT:  # a file that is not ours, and can be read all the same
        secret = Path("/etc/passwd")
    named = run.path / "own.err"
    if linked:
        named.symlink_to(secret)
    failing(run, named if linked else secret)
    given_to_ada(run.path)
    Follower(run.path, archive).poll()
    (job,) = archive.query("job")
    assert job.details["outcome"] == "failed"
    assert "root:x" not in words(archive)


def test_what_the_owner_wrote_is_read_by_whatever_name(tmp_path: Path, archive: Archive) -> None:
    run, elsewhere = Submitted(tmp_path / "run"), tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "err").write_text("no such reference genome\n")
    os.utime(elsewhere / "err", (START + 5, START + 5))
    (run.path / "own.err").symlink_to(elsewhere / "err")
    failing(run, run.path / "own.err")
    given_to_ada(run.path, elsewhere)
    Follower(run.path, archive).poll()
    assert "no such reference genome" in words(archive)


@pytest.mark.parametrize("where", ["nodes", "out", "log", "dagman", "sub", "output", "dump", "dag"])
def test_a_fifo_stops_nobody(tmp_path: Path, archive: Archive, where: str) -> None:
    odd, good = Submitted(tmp_path / "odd", "odd"), Submitted(tmp_path / "good", "good")
    for run in (odd, good):
        (run.path / "err").touch()
        failing(run, run.path / "err")
    path = {
        "sub": odd.output(JOB).with_suffix(".sub"), "output": odd.output(JOB),
        "dump": odd.path / "braindump.yml", "dag": odd.path / "wf-0.dag",
    }.get(where) or getattr(odd, where)  # fmt: skip
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    follower = Follower((), archive)
    for run in (odd, good):
        follower.tree.take_in(FoundWorkflow(run.path))
    follower.poll()
    assert [m.details["job"] for m in archive.query("job", workflow="good")] == [JOB]


def test_only_plain_files_of_the_owner_are_opened(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"a\r\nb")
    assert read_text(file) == "a\nb" and read_bytes(file) == b"a\r\nb"
    os.mkfifo(tmp_path / "fifo")
    for odd in (tmp_path / "fifo", Path("/dev/zero")):
        with pytest.raises(OSError, match="no plain file"):
            read_bytes(odd)
    with pytest.raises(OSError, match="more than 3 bytes"):
        read_bytes(file, 3)
    with as_owner(os.geteuid()):
        assert read_text(file) == "a\nb"
        with as_owner(os.geteuid() + 1):
            with pytest.raises(OSError, match="its owner is not that of the submit directory"):
                read_text(file)
            assert end_of(file) == ""
            with pytest.raises(InputError, match="its owner"):
                list(Tail(file).read())
        assert read_text(file) == "a\nb"


def test_a_journal_is_not_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("kept")
    (tmp_path / "journal").symlink_to(tmp_path / "kept")
    (tmp_path / f".decision.{os.getpid()}").symlink_to(tmp_path / "kept")
    for write in (
        lambda: job_files.append_lines(tmp_path / "journal", [{}]),
        lambda: job_files.write_json(tmp_path / "decision", {}),
    ):
        with pytest.raises(OSError, match="symbolic links"):
            write()
    assert (tmp_path / "kept").read_text() == "kept"


def test_a_user_is_whom_the_file_system_names(tmp_path: Path, archive: Archive) -> None:
    run = Submitted(tmp_path / "run")
    append(run.path / "braindump.yml", 'user: "victim"\n')

    def user() -> Any:
        return Follower(run.path, archive).workflows[0].facts().details["user"]

    assert user() == "victim"  # root, and who follows its own, could say so in other ways, too
    follower = Follower((), archive)
    plan = SubmitDir(run.path)
    plan.owner = 1  # daemon, everywhere
    assert follower.tree.add(plan).facts().details["user"] == "daemon"


def test_a_workflow_is_not_another_users_by_its_name(tmp_path: Path, archive: Archive) -> None:
    mine, forged = Submitted(tmp_path / "mine", "same"), Submitted(tmp_path / "forged", "same")
    plan = SubmitDir(forged.path)
    plan.owner = 1
    follower = Follower(mine.path, archive)
    with pytest.raises(InputError, match="another user's"):
        follower.tree.add(plan)
    append(mine.path / "braindump.yml", 'user: "ada"\n')
    Follower(mine.path, archive).poll()
    with pytest.raises(InputError, match="another user's"):  # nor after a restart
        Follower((), archive).tree.add(plan)


def test_what_all_users_write_to_is_no_submit_directory(tmp_path: Path) -> None:
    run = Submitted(tmp_path / "run")
    run.path.chmod(0o1777)
    with pytest.raises(InputError, match="everybody has files there"):
        SubmitDir(run.path)


def test_homes_of_others_are_looked_into_with_care(tmp_path: Path) -> None:
    run, watch = Submitted(tmp_path / "run"), tmp_path / "watch"
    hooks_registry.register(watch, tmp_path / "hooks.json", run.path, run.uuid)
    os.mkfifo(watch / "fifo.json")
    assert Registry(watch).observe() == [FoundWorkflow(run.path)]
    assert Registry(watch, os.geteuid() + 1).observe() == []
    given_to_ada(run.path, watch)
    assert Registry(watch, ADA).observe() == [FoundWorkflow(run.path)]
    if ROOT:  # the watcher takes nobody else's registrations
        assert list(hooks_registry.entries(watch)) == []

    path = tmp_path / "home" / "workflow.db"
    path.parent.mkdir()
    with closing(sqlite3.connect(path)) as database:
        database.executescript(SCHEMA)
        row = "INSERT INTO master_workflow VALUES (1, 'u', ?, 'ada')"
        database.execute(row, (str(run.path),))
        database.commit()
    given_to_ada(path.parent)
    source = PegasusDatabase(path, lambda: 0.0, ADA)
    assert source.observe() == [FoundWorkflow(run.path)] == source.observe()
    assert PegasusDatabase(path, lambda: 0.0, ADA + 1).observe() == []
    path.unlink()
    os.mkfifo(path)
    assert source.observe() == []


def hot_journal(database: Path, names: Path) -> bytes:
    """What SQLite rolls back, and then deletes the file that it names (sqlite.org/fileformat.html,
    section 3)."""
    magic, page = bytes.fromhex("d9d505f920a163d7"), database.read_bytes()[:4096]
    pages, name = database.stat().st_size // 4096, str(names).encode()
    head = (magic + struct.pack(">5I", 1, 0, pages, 512, 4096)).ljust(512, b"\0")
    record = struct.pack(">I", 1) + page + struct.pack(">I", sum(page[4096 - 200 : 0 : -200]))
    last = struct.pack(">II", len(name), sum(name)) + magic
    return head + record + struct.pack(">I", (1 << 30) // 4096 + 1) + name + last


def test_anothers_journal_deletes_no_file(tmp_path: Path) -> None:
    path, victim = tmp_path / "home" / "workflow.db", tmp_path / "victim"
    path.parent.mkdir()
    victim.write_text("kept")
    with closing(sqlite3.connect(path)) as database:
        database.executescript(SCHEMA)
    journal = path.with_name("workflow.db-journal")
    journal.write_bytes(hot_journal(path, victim))
    given_to_ada(path.parent)
    PegasusDatabase(path, lambda: 0.0, ADA).observe()
    assert victim.read_text() == "kept"


def test_anothers_database_does_not_fill_the_memory(tmp_path: Path) -> None:
    path = tmp_path / "home" / "workflow.db"
    path.parent.mkdir()
    with closing(sqlite3.connect(path)) as database:
        database.executescript(
            "CREATE VIEW master_workflow AS WITH RECURSIVE n(i) AS "
            "(SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 500) "
            "SELECT i wf_id, '/' || printf('%.*c', 900000, 'x') submit_dir FROM n;"
            "CREATE TABLE master_workflowstate (wf_id, state, timestamp);"
        )
    given_to_ada(path.parent)
    tracemalloc.start()
    PegasusDatabase(path, lambda: 0.0, ADA).observe()
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 100e6  # of which a copy may have two thirds


def test_a_full_registry_takes_no_longer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("monitors.workflows.discovery._MOST_LISTED", 3)
    for number in range(9):
        (tmp_path / f"{number}.json").write_text(json.dumps({"submit_dir": f"/runs/{number}"}))
    assert len(Registry(tmp_path).observe()) == 3


def test_root_asks_others_about_a_workflow_as_its_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADON_TOKEN", "secret")
    assert (command_output(["id", "-u"], user=ADA) or "").strip() == str(ADA)
    assert ("secret" in (command_output(["env"], user=ADA) or "")) is not ROOT


def test_a_database_that_never_ends_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("monitors.workflows.discovery._MOST_STEPS", 10_000)
    path = tmp_path / "workflow.db"
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"
    with closing(sqlite3.connect(path)) as database:
        database.executescript(
            f"CREATE VIEW master_workflow AS {endless} SELECT i wf_id, '/x' submit_dir FROM n;"
            "CREATE TABLE master_workflowstate (wf_id, state, timestamp);"
        )
    assert PegasusDatabase(path, lambda: 0.0).observe() == []
