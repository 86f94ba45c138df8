"""Transits on disk: what was put is there, even if the process dies afterwards."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest
from made_transit import made_transit
from store_suite import AT, StoreSuite, World, transit

from network_provisioner.base.errors import BrokerError
from network_provisioner.base.model import Transit, TransitState
from network_provisioner.base.wal import use_wal
from network_provisioner.stores.opening import copy_state
from network_provisioner.stores.sqlite import SqliteStore, faults
from network_provisioner.stores.store import Leader, Store, StoreError
from network_provisioner.transits.repository import Repository

_ENV = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "folder" / "state.sqlite"


class TestSqlite(StoreSuite):
    @pytest.fixture
    def world(self, tmp_path: Path) -> Callable[[], World]:
        files = itertools.count()

        @contextmanager
        def new() -> Iterator[Callable[[], Store]]:
            file = tmp_path / f"{next(files)}.sqlite"
            with ExitStack() as stack:

                def opened() -> Store:
                    store = SqliteStore(file, lambda: AT)
                    stack.callback(store.close)
                    return store

                yield opened

        return new


def test_the_text_of_a_leader_has_no_secret() -> None:
    assert "5ec2e7" not in f"{Leader('http://here', 1, '5ec2e7')}"


def test_a_row_that_was_put_survives_kill_9(file: Path) -> None:
    code = (
        "import os, signal, sys\n"
        "from network_provisioner.base.model import Transit\n"
        "from network_provisioner.stores.sqlite import SqliteStore\n"
        "store = SqliteStore(sys.argv[1])\n"
        "row = dict(id='a', src='mu', dst='tacc', state='held')\n"
        "store.put(Transit.from_dict(row))\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(file)], env=_ENV, check=False)
    assert done.returncode == -signal.SIGKILL
    store = SqliteStore(file)
    assert [t.id for t in store.active()] == ["a"]
    store.close()


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    file = tmp_path / "state.sqlite"
    file.write_text("once upon a time there was a broker\n" * 50)
    with pytest.raises(StoreError, match=r"state\.sqlite: file is not a database"):
        SqliteStore(file)


def test_a_file_of_another_program(file: Path) -> None:
    file.parent.mkdir()
    with closing(sqlite3.connect(file)) as db:
        db.execute("CREATE TABLE measurements (id)")
        db.execute("PRAGMA user_version = 3")  # as an archive has it
    before = file.read_bytes()
    with pytest.raises(StoreError, match="an SQLite file of something else"):
        SqliteStore(file)
    assert faults(file) == ["it is an SQLite file of something else, expected a broker's, or none"]
    assert file.read_bytes() == before


def test_a_file_of_another_version(file: Path) -> None:
    SqliteStore(file).close()
    with closing(sqlite3.connect(file)) as db:
        db.execute("PRAGMA user_version = 99")
    with pytest.raises(StoreError, match=r"has layout 99, expected at most 2: .* later version"):
        SqliteStore(file)
    assert faults(file)[0].startswith("it has layout 99")
    with pytest.raises(StoreError, match="has layout 99"):  # and it was not kept locked
        SqliteStore(file)


def test_a_file_of_the_first_layout_goes_on(file: Path) -> None:
    file.parent.mkdir()
    with closing(sqlite3.connect(file)) as db, db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute(
            "CREATE TABLE transits (number INTEGER PRIMARY KEY, id TEXT UNIQUE NOT NULL, "
            "state TEXT NOT NULL, workflow TEXT NOT NULL, body TEXT NOT NULL)"
        )
        db.execute("CREATE INDEX by_state ON transits (state)")
        db.execute("CREATE INDEX by_workflow ON transits (workflow)")
        body = (
            '{"id":"a","src":"mu","dst":"tacc","state":"installed","template":"soykb",'
            '"path":["mu","s1","tacc"],"layer":"l2","requested_bps":1.5,"granted_bps":2.5}'
        )
        db.execute("INSERT INTO transits VALUES (1, 'a', 'installed', 'w', ?)", (body,))
        db.execute("PRAGMA user_version = 1")
    for _ in range(2):
        store = SqliteStore(file)
        assert store.active() == [
            made_transit(
                "a", "mu", "tacc", TransitState.INSTALLED, "soykb", path=["mu", "s1", "tacc"],
                layer="l2", requested_bps=1.5, granted_bps=2.5,
            )
        ]  # fmt: skip
        assert [t.id for t in store.find("installed", "w", 5)] == ["a"]
        store.put_document("template", "t", {})
        store.close()
    with closing(sqlite3.connect(file)) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (2,)


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="state file"):
        SqliteStore(tmp_path / "file" / "state.sqlite")


def test_a_file_that_another_broker_has(file: Path, tmp_path: Path) -> None:
    store = SqliteStore(file)
    (tmp_path / "link").symlink_to(file)
    for other in (file, tmp_path / "link"):
        with pytest.raises(
            StoreError,
            match=f"{other}: the broker with process id {os.getpid()} has it; expected one broker",
        ):
            SqliteStore(other)
    store.put(transit("a"))
    store.close()
    SqliteStore(file).close()


def test_a_lock_that_says_nothing_of_its_holder(file: Path) -> None:
    store = SqliteStore(file)
    file.with_name("state.sqlite.lock").write_text("")
    with pytest.raises(StoreError, match="another broker has it"):
        SqliteStore(file)
    store.close()


def test_kill_9_gives_the_file_back(file: Path) -> None:
    code = (
        "import sys\n"
        "from network_provisioner.stores.sqlite import SqliteStore\n"
        "store = SqliteStore(sys.argv[1])\n"
        "print('open', flush=True)\n"
        "sys.stdin.read()\n"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code, str(file)], env=_ENV, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    with holder:
        assert holder.stdout is not None and holder.stdout.readline() == "open\n"
        with pytest.raises(StoreError, match=f"process id {holder.pid} has it"):
            SqliteStore(file)
        holder.kill()
    SqliteStore(file).close()


def _open(file: Path, number: int, start: Barrier) -> None:
    start.wait()
    while True:
        try:
            store = SqliteStore(file)
        except StoreError as error:
            assert "has it" in str(error)
        else:
            store.put(transit(f"{number}"))
            store.close()
            return


def test_several_processes_make_one_file(file: Path) -> None:
    """A broker that is started again while the old one ends, or two by mistake."""
    context = multiprocessing.get_context("spawn")
    start = context.Barrier(3)
    brokers = [context.Process(target=_open, args=(file, n, start)) for n in range(3)]
    for broker in brokers:
        broker.start()
    for broker in brokers:
        broker.join()
    assert [broker.exitcode for broker in brokers] == [0] * 3
    store = SqliteStore(file)
    assert len(store.active()) == 3
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


def spoil(file: Path, row: bytes, with_bytes: bytes) -> None:
    """Some bytes of a row's body are others."""
    data = bytearray(file.read_bytes())
    at = data.rfind(row) + 30
    data[at : at + len(with_bytes)] = with_bytes
    file.write_bytes(data)


@pytest.mark.parametrize("spoilt", [b"\xff\xfe\x00{{\x01", b"\xc3\xa9", b'"}]{"', b"\x00" * 8])
def test_a_row_that_cannot_be_read_keeps_no_other_from_being_read(
    file: Path, spoilt: bytes
) -> None:
    with closing(SqliteStore(file)) as store:
        store.put_many([transit(f"row-{n}") for n in range(9)])
        store.put_document("policy", "p", {"a": 1})
    spoil(file, b"row-3", spoilt)
    assert [words.split(":")[0] for words in faults(file)] == ["transit row-3 cannot be read"]
    with closing(SqliteStore(file)) as store:
        rest = [f"row-{n}" for n in range(9) if n != 3]
        assert [t.id for t in store.find(None, None, 99)] == rest
        assert [t.id for t in store.each()] == rest
        assert store.get("row-3") is None
        assert list(store.unreadable) == ["transit row-3"]
        assert store.documents("policy")[0].body == {"a": 1}
        with closing(SqliteStore(":memory:")) as other:
            assert copy_state(store, other) == (8, 1)
        store.put(transit("row-3"))  # asked for anew
        assert store.unreadable == {} and len(store.find(None, None, 99)) == 9
        assert faults(file) == []  # also while a broker has it


def test_a_document_that_cannot_be_read_is_left_out(file: Path) -> None:
    with closing(SqliteStore(file)) as store:
        for name in ("a", "b"):
            store.put_document("template", name, {"words": name * 50})
    file.write_bytes(file.read_bytes().replace(b"b" * 50, b"b" * 49 + b"\xff"))
    with closing(SqliteStore(file)) as store:
        assert [d.name for d in store.documents("template")] == ["a"]
        assert store.document("template", "b") is None
        assert list(store.unreadable) == ["template b version 1"]
    assert [words.split(":")[0] for words in faults(file)] == ["template b cannot be read"]


@pytest.mark.parametrize("body", ["[" * 100_000, b"\xff", 7.5])
def test_a_row_of_anything_ends_nothing(file: Path, body: object) -> None:
    with closing(SqliteStore(file)) as store:
        store.put(transit("row"))
        store.put_document("policy", "p", {})
    with closing(sqlite3.connect(file)) as db, db:
        db.execute("UPDATE transits SET body = ?", (body,))
        db.execute("UPDATE documents SET body = ?", (body,))
    assert len(faults(file)) == 2
    with closing(SqliteStore(file)) as store:
        assert store.find(None, None, 9) == [] and store.documents("policy") == []
        assert len(store.unreadable) == 2


def test_a_file_that_is_damaged_as_a_whole(file: Path) -> None:
    with closing(SqliteStore(file)) as store:
        store.put_many([transit(f"row-{n}") for n in range(200)])
    data = bytearray(file.read_bytes())
    data[4096 * 8 : 4096 * 12] = b"\xaa" * 4096 * 4
    file.write_bytes(data)
    assert faults(file)
    with closing(SqliteStore(file)) as store, pytest.raises(StoreError, match="is damaged, see"):
        assert list(store.unreadable) == [f"state file {file}"]
        store.find(None, None, 1000)


class Moody(SqliteStore):
    """Takes something or does not, and remembers what it was given at once."""

    broken = False

    def __init__(self, path: Path | str) -> None:
        super().__init__(path)
        self.written: list[list[str]] = []

    def put_many(self, transits: Sequence[Transit]) -> None:
        if self.broken:
            raise StoreError("the disk is full")
        super().put_many(transits)
        self.written.append([f"{t.id} {t.state}" for t in transits])


def test_what_was_given_back_is_stored_no_later_than_who_was_given_it() -> None:
    store = Moody(":memory:")
    repository = Repository(store)
    repository.write([transit("a")])
    store.broken = True
    repository.save([transit("a", TransitState.RELEASED)])
    with pytest.raises(BrokerError, match="the disk is full"):
        repository.write([transit("b")])
    assert repository.behind and repository.find("a") == transit("a", TransitState.RELEASED)
    assert store.get("a") == transit("a")
    store.broken = False
    repository.write([transit("b")])
    assert store.written == [["a held"], ["a released", "b held"]]
    assert not repository.behind
    repository.write([transit("c")])
    assert store.written[2:] == [["c held"]]


def test_only_the_newest_of_one_transit_is_stored() -> None:
    store = Moody(":memory:")
    repository = Repository(store)
    store.broken = True
    repository.save([transit("a")])
    store.broken = False
    repository.write([replace(transit("a"), state=TransitState.RELEASED)])
    assert store.written == [["a released"]] and not repository.behind


def test_nothing_is_stored_before_what_came_before_it() -> None:
    store = Moody(":memory:")
    repository = Repository(store)
    store.broken = True
    repository.save([transit("a", TransitState.RELEASED)])
    store.broken = False
    repository.save_later([transit("b")])
    assert repository.behind and repository.find("b") == transit("b") and store.get("b") is None
    repository.save([transit("c")])
    assert store.written == [["a released", "b held", "c held"]] and not repository.behind


def test_what_is_gathered_is_not_behind() -> None:
    store = Moody(":memory:")
    repository = Repository(store)
    with repository.together():
        repository.save([transit("a")])
        assert repository.is_unsaved("a") and not repository.behind
    assert store.written == [["a held"]] and not repository.behind
    store.broken = True
    with repository.together():
        repository.save([transit("b")])
    assert repository.behind
    repository.forget("b")
    assert not repository.behind
