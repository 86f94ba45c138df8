"""Transits on disk: what was put is there, whoever dies afterwards."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from network_provisioner.model import Transit, TransitState
from network_provisioner.store import SqliteStore, StoreError
from network_provisioner.wal import use_wal


def transit(name: str, state: TransitState = TransitState.HELD, workflow: str = "") -> Transit:
    return Transit(name, "mu", "tacc", state, workflow=workflow, path=["mu", "s1", "tacc"])


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "folder" / "state.sqlite"


def test_what_is_put_is_there_for_the_next_broker(file: Path) -> None:
    store = SqliteStore(file)
    store.put(transit("a"))
    store.put(replace(transit("a"), state=TransitState.INSTALLED, granted_bps=1.5))
    store.close()
    again = SqliteStore(file)
    assert again.get("a") == replace(transit("a"), state=TransitState.INSTALLED, granted_bps=1.5)
    assert again.get("b") is None
    again.close()


def test_active_are_those_that_wait_or_hold_oldest_first(file: Path) -> None:
    store = SqliteStore(file)
    for number, state in enumerate(TransitState):
        store.put(transit(f"{number}", state))
    store.put(transit("0", TransitState.QUEUED))
    states = [t.state for t in store.active()]
    assert states == [TransitState.QUEUED, TransitState.HELD, TransitState.INSTALLED]
    store.close()


def test_find_by_state_and_workflow_the_newest_in_order(file: Path) -> None:
    store = SqliteStore(file)
    for number in range(6):
        store.put(transit(f"{number}", TransitState.RELEASED, f"w{number % 2}"))
    store.put(transit("q", TransitState.QUEUED, "w0"))

    def names(state: str | None, workflow: str | None, limit: int = 99) -> list[str]:
        return [t.id for t in store.find(state, workflow, limit)]

    assert names(None, None) == ["0", "1", "2", "3", "4", "5", "q"]
    assert names("released", "w0") == ["0", "2", "4"]
    assert names(None, "w0") == ["0", "2", "4", "q"]
    assert names("queued", None) == ["q"]
    assert names(None, None, 2) == ["5", "q"]
    assert names("failed", "nothing") == []
    store.close()


@given(st.text(st.characters(codec="utf-8")), st.lists(st.text(st.characters(codec="utf-8"))))
def test_any_text_comes_back(reason: str, path: list[str]) -> None:
    store = SqliteStore(":memory:")
    kept = replace(transit("a"), reason=reason, path=path)
    store.put(kept)
    assert store.get("a") == kept
    store.close()


def test_a_row_that_was_put_survives_kill_9(file: Path) -> None:
    code = (
        "import os, signal, sys\n"
        "from network_provisioner.model import Transit, TransitState\n"
        "from network_provisioner.store import SqliteStore\n"
        "store = SqliteStore(sys.argv[1])\n"
        "store.put(Transit('a', 'mu', 'tacc', TransitState.HELD))\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code, str(file)], env=env, check=False)
    assert done.returncode == -signal.SIGKILL
    store = SqliteStore(file)
    assert [t.id for t in store.active()] == ["a"]
    store.close()


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    file = tmp_path / "state.sqlite"
    file.write_text("once upon a time there was a broker\n" * 50)
    with pytest.raises(StoreError, match=r"state\.sqlite: file is not a database"):
        SqliteStore(file)


def test_a_file_of_another_version(file: Path) -> None:
    SqliteStore(file).close()
    with sqlite3.connect(file) as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(StoreError, match="has layout 99, expected 1"):
        SqliteStore(file)


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="state file"):
        SqliteStore(tmp_path / "file" / "state.sqlite")


def test_a_store_that_was_closed(file: Path) -> None:
    store = SqliteStore(file)
    store.close()
    with pytest.raises(StoreError, match="closed database"):
        store.put(transit("a"))


def _open(file: Path, number: int, start: Barrier) -> None:
    start.wait()
    store = SqliteStore(file)
    store.put(transit(f"{number}"))
    store.close()


def test_several_processes_make_one_file(file: Path) -> None:
    """A broker that is started again while the old one ends, or two by mistake."""
    context = multiprocessing.get_context("spawn")
    for attempt in range(5):
        start = context.Barrier(4)
        path = file.with_name(f"{attempt}.sqlite")
        brokers = [context.Process(target=_open, args=(path, n, start)) for n in range(4)]
        for broker in brokers:
            broker.start()
        for broker in brokers:
            broker.join()
        assert [broker.exitcode for broker in brokers] == [0] * 4
        store = SqliteStore(path)
        assert len(store.active()) == 4
        store.close()


def test_the_switch_to_wal_waits_for_who_has_the_file(file: Path) -> None:
    file.parent.mkdir()
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("CREATE TABLE x (y)")
        other.execute("BEGIN IMMEDIATE")
        with closing(sqlite3.connect(file, timeout=0)) as db:
            with pytest.raises(sqlite3.OperationalError, match="locked"):
                use_wal(db, 0.05)
            other.execute("COMMIT")
            use_wal(db, 0.0)
            assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
