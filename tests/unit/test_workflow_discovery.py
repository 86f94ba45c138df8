"""Workflows are found in the hooks' registry, in Pegasus's database and in the queue, however odd
what stands there is."""

from __future__ import annotations

import json
import os
import pwd
import sqlite3
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
from cli_world import adon
from generated import any_json
from hypothesis import given, settings
from hypothesis import strategies as st
from monitor_files import START, Submitted, append, exiting, starting, table
from waiting import until

from monitors.archive.archive import Archive
from monitors.watcher import registry as hooks_registry
from monitors.workflows.discovery import (
    CondorQueue,
    Discovery,
    FoundWorkflow,
    PegasusDatabase,
    Registry,
    of_all,
    of_user,
    unread_homes,
)
from monitors.workflows.follower import Follower
from monitors.workflows.logs.status import Status, WorkflowState
from monitors.workflows.planned.submit_dir import SubmitDir, dag_of
from monitors.workflows.service import FollowService
from network_provisioner.base import account
from network_provisioner.base.errors import InputError

WAIT_S = 60.0


# ------------------------------------------------------------------ sources


def test_what_the_hooks_register_is_found(tmp_path: Path) -> None:
    planned = Submitted(tmp_path / "run")
    folder = tmp_path / "watch"
    source = Registry(folder)
    assert source.observe() == []
    hooks_registry.register(folder, tmp_path / "hooks.json", planned.path, planned.uuid)
    assert source.observe() == [FoundWorkflow(planned.path)] == source.observe()
    (folder / "odd.json").write_text("[1, 2")
    (folder / "none.json").write_text("{}")
    (folder / "lock").write_text("77")
    assert source.observe() == [FoundWorkflow(planned.path)]
    (folder / "b7a9c3f0.json").unlink()
    assert source.observe() == []


def test_a_part_is_found_as_its_whole(tmp_path: Path) -> None:
    outer = Submitted(tmp_path / "run", "whole")
    inner = Submitted(outer.path / "00" / "00" / "inner.000", "part")
    append(inner.path / "braindump.yml", 'root_wf_uuid: "whole"\n')
    hooks_registry.register(tmp_path / "watch", tmp_path / "hooks.json", inner.path, "part")
    assert Registry(tmp_path / "watch").observe() == [FoundWorkflow(outer.path)]


SCHEMA = """
CREATE TABLE master_workflow (wf_id INTEGER PRIMARY KEY, wf_uuid, submit_dir TEXT, user);
CREATE TABLE master_workflowstate (wf_id INTEGER, state VARCHAR(19), timestamp NUMERIC(16, 6));
"""


def test_pegasus_database_knows_what_runs_and_what_ended_lately(tmp_path: Path) -> None:
    path = tmp_path / ".pegasus" / "workflow.db"
    source = PegasusDatabase(path, lambda: 1000.0)
    assert source.observe() == []
    path.parent.mkdir()
    path.write_text("no database at all, and long enough to be looked at" * 40)
    assert source.observe() == []
    path.unlink()
    with sqlite3.connect(path) as database:
        database.executescript(SCHEMA)
        states = {
            "runs": [("WORKFLOW_STARTED", 10)],
            "again": [("WORKFLOW_STARTED", 10), ("WORKFLOW_TERMINATED", 20),
                      ("WORKFLOW_STARTED", 30)],
            "history": [("WORKFLOW_STARTED", 10), ("WORKFLOW_TERMINATED", 900)],
            "lately": [("WORKFLOW_STARTED", 10), ("WORKFLOW_TERMINATED", 1900)],
            "planned": [],
        }  # fmt: skip
        for number, (name, history) in enumerate(states.items()):
            database.execute(
                "INSERT INTO master_workflow VALUES (?, ?, ?, 'ada')", (number, name, f"/w/{name}")
            )
            rows = [(number, *state) for state in history]
            database.executemany("INSERT INTO master_workflowstate VALUES (?, ?, ?)", rows)
        database.execute("INSERT INTO master_workflow VALUES (99, 'x', NULL, 'ada')")
    names = {workflow.folder.name for workflow in source.observe()}
    assert names == {"runs", "again", "lately", "planned"}
    assert list(source.files()) == [path.parent]


def queue_of(jobs: object) -> CondorQueue:
    return CondorQueue("", lambda _: json.dumps(jobs))


def test_the_queue_knows_dagmans_jobs() -> None:
    commands: list[Sequence[str]] = []

    def ask(command: Sequence[str]) -> str:
        commands.append(command)
        return json.dumps([{"Iwd": "/w/run", "Arguments": "-p 0 -f -l . -Dag w-0.dag -MaxPost 20"}])

    assert CondorQueue("ada", ask).observe() == [FoundWorkflow(Path("/w/run"), "w-0.dag")]
    assert 'Owner == "ada"' in commands[0][3]
    # A DAGMan that another DAGMan started is found with that one.
    assert "DAGManJobId is undefined" in commands[0][3]
    assert CondorQueue("ada", lambda _: "").observe() == []


@settings(max_examples=40)
@given(any_json(st.sampled_from(["Iwd", "Arguments", "x"])))
def test_whatever_the_queue_says(jobs: object) -> None:
    assert all(isinstance(workflow, FoundWorkflow) for workflow in queue_of(jobs).observe())
    assert CondorQueue("", lambda _: str(jobs)).observe() == [] or isinstance(jobs, list)


def test_a_command_that_is_not_there_finds_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert CondorQueue("ada").observe() == []


def test_where_workflows_are_looked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    folders = {folder for source in of_user(lambda: 0.0) for folder in source.files()}
    assert folders == {tmp_path / ".local/state/adon/watch", tmp_path / ".pegasus"}
    every = {folder for source in of_all(lambda: 0.0) for folder in source.files()}
    assert folders <= every


def test_whose_homes_cannot_be_read_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def may(path: Path, mode: int, **_: bool) -> bool:  # as a user who is none of them
        return Path(path).exists() and Path(path).stat().st_mode & mode == mode

    users = []
    for name, mode, shell in (
        ("ada", 0o700, "/bin/bash"),
        ("bob", 0o711, "/bin/bash"),
        ("eve", 0o755, "/bin/bash"),
        ("www", 0o700, "/usr/sbin/nologin"),
    ):
        home = tmp_path / name
        home.mkdir(mode)
        users.append(SimpleNamespace(pw_name=name, pw_dir=str(home), pw_shell=shell))
    (tmp_path / "eve/.pegasus").mkdir()
    (tmp_path / "eve/.pegasus/workflow.db").touch(0o600)
    monkeypatch.setattr(pwd, "getpwall", lambda: users)
    monkeypatch.setattr(os, "access", may)
    assert unread_homes() == {
        "ada": tmp_path / "ada", "eve": tmp_path / "eve/.pegasus/workflow.db",
    }  # fmt: skip
    folders = {folder for source in of_all(lambda: 0.0) for folder in source.files()}
    assert tmp_path / "bob/.pegasus" in folders and tmp_path / "ada/.pegasus" not in folders
    (record,) = caplog.records
    assert f"cannot read {tmp_path}/ada of ada" in record.getMessage()


# ------------------------------------------------------------------ while it runs


def finished(path: Path, name: str) -> Submitted:
    planned = Submitted(path, name)
    planned.out.write_text(starting() + table(START, done=2) + exiting(START + 1, 0))
    return planned


class Told:
    """What a follower tells, for another thread to wait for."""

    def __init__(self) -> None:
        self.seen: dict[str, WorkflowState] = {}
        self.more = threading.Condition()

    def __call__(self, submit_dir: SubmitDir, status: Status) -> None:
        with self.more:
            self.seen[submit_dir.workflow] = status.state
            self.more.notify_all()

    def wait_for(self, *names: str) -> None:
        with self.more:
            assert self.more.wait_for(lambda: set(names) <= self.seen.keys(), WAIT_S), self.seen


def test_workflows_that_begin_later_are_picked_up(tmp_path: Path) -> None:
    watch = tmp_path / "watch"
    listener = Told()
    stop = threading.Event()
    with Archive(":memory:") as archive:
        discovery = Discovery([Registry(watch)], every_s=3600.0)  # by notice alone
        follower = Follower((), archive, on_status=listener, discovery=discovery, keep=True)
        thread = threading.Thread(target=follower.run, args=(stop,))
        thread.start()
        for name in ("one", "two", "three"):
            planned = finished(tmp_path / name, name)
            hooks_registry.register(watch, tmp_path / "hooks.json", planned.path, name)
            listener.wait_for(name)
        stop.set()
        thread.join(WAIT_S)
        assert not thread.is_alive()
        assert set(listener.seen.values()) == {WorkflowState.DONE}


def test_a_source_that_names_what_is_no_workflow(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Odd:
        def files(self) -> dict[Path, list[str]]:
            return {}

        def observe(self) -> list[FoundWorkflow]:
            return [
                FoundWorkflow(tmp_path),
                FoundWorkflow(tmp_path / "none"),
                FoundWorkflow(tmp_path, "no.dag"),
            ]

    with Archive(":memory:") as archive:
        follower = Follower((), archive, discovery=Discovery([Odd()]))
        assert follower.run() == {}
    # Of each directory once, and of what is not there nothing.
    assert len(caplog.records) == 2


def test_a_dag_whose_name_has_spaces_is_found() -> None:
    """As HTCondor 25.14.1 shows the arguments of such a DAGMan."""
    words = "-f -l . -Lockfile ü' 'ñ.dag.lock -Dag ü' 'ñ.dag -Dag second.dag -AutoRescue 1"
    queue = json.dumps([{"Iwd": "/w/a b", "Arguments": words}])
    assert CondorQueue("", lambda _: queue).observe() == [FoundWorkflow(Path("/w/a b"), "ü ñ.dag")]


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), st.text(max_size=5))
def test_whatever_a_dag_is_called(name: str, before: str) -> None:
    quoted = "'" + name.replace("'", "''") + "'"
    assert dag_of(f"-p 0 -Dag {quoted} -MaxPost 20") == name
    dag = dag_of(before + name)
    assert dag is None or "dag" in (before + name).lower()


# ------------------------------------------------------------------ as a service


def test_the_service_follows_and_measures_at_once(tmp_path: Path) -> None:
    listener = Told()
    planned = Submitted(tmp_path / "run")
    planned.out.write_text(starting() + table(START, queued=1, ready=1))
    later, dag = tmp_path / "later", tmp_path / "one.dag"
    with Archive(tmp_path / "archive.sqlite") as archive:
        names = [str(planned.path), str(later), str(dag)]
        service = FollowService(archive, names, time.time, listener)
        service.start()
        service.start()
        listener.wait_for(planned.uuid)
        finished(later, "later")
        listener.wait_for("later")
        (tmp_path / "two.dag").touch()
        dag.touch()
        append(dag.with_name("one.dag.dagman.out"), starting() + table(START, queued=1))
        listener.wait_for(str(dag))
        # In this process…
        status = service.refresh(planned.uuid, "refresh:now")
        assert status is not None and status.in_queue == 1
        assert service.refresh("nobody", "refresh:now") is None
        again = archive.get(f"status:{planned.uuid}:refresh:now")
        assert again is not None and again.source == "refresh" and again.at == START
        # … and for others that share the archive.
        number = archive.ask("refresh", planned.uuid, 1e9)
        until(lambda: archive.get(f"status:{planned.uuid}:refresh:{number}:1000000000.000"))
        append(planned.out, table(START + 1, done=2))
        service.stop()
        assert archive.query("status", planned.uuid)[-1].details["done"] == 2
        service.stop()


def test_directories_that_are_named_are_followed_beside_one_that_cannot_be(tmp_path: Path) -> None:
    listener = Told()
    planned = Submitted(tmp_path / "run")
    planned.out.write_text(starting() + table(START, queued=1))
    with Archive(tmp_path / "archive.sqlite") as archive:
        names = [f"/{'n' * 300}", str(planned.path)]
        service = FollowService(archive, names, time.time, listener)
        service.start()
        try:
            listener.wait_for(planned.uuid)
        finally:
            service.stop()


def test_a_service_for_nobody(tmp_path: Path) -> None:
    with Archive(":memory:") as archive:
        service = FollowService(archive, [], time.time)
        service.start()
        assert service.refresh("w", "k") is None
        service.stop()
        with pytest.raises(InputError, match="found 'usr', expected 'user', 'all' or the absolute"):
            FollowService(archive, ["usr"], time.time)


def test_a_refresh_of_what_has_not_started(tmp_path: Path) -> None:
    planned = Submitted(tmp_path / "run")
    append(planned.path / "braindump.yml", 'timestamp: "20260101T000000+0100"\n')
    with Archive(":memory:") as archive:
        follower = Follower(planned.path, archive)
        follower.refresh(planned.uuid, "refresh:1")
        (status,) = archive.query("status")
        assert (status.at, status.value, status.details["state"]) == (1767222000.0, 0.0, "running")
        append(planned.out, starting() + table(START, done=1, queued=1))
        assert follower.refresh(planned.uuid, "refresh:2") is not None
        assert len(archive.query("status")) == 3


WORKFLOW = """\
pegasus: "5.0"
name: tally
jobs: [{type: job, id: J1, name: count, uses: []}]
transformationCatalog:
  transformations:
  - {name: count, sites: [{name: condorpool, pfn: /bin/true, type: installed}]}
"""


@pytest.fixture
def nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(uid: int) -> pwd.struct_passwd:
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    for name in ("HOME", "LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)


def test_who_has_no_entry_is_known_by_number(nobody: None) -> None:
    assert (account.home(), account.user_name()) == (Path("/"), str(os.getuid()))
    assert account.user_name(4711) == "4711"


def test_commands_need_neither_name_nor_home(
    nobody: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "workflow.yml").write_text(WORKFLOW)
    monkeypatch.chdir(tmp_path)
    assert adon("site", "map", "workflow.yml").code == 0
    assert "sharedScratch" in adon("plan", "workflow.yml").err  # it has no directory, and says so
    assert len(of_user(lambda: 0.0)) > 1
