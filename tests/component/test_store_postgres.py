"""State in a real PostgreSQL: the same promises as in a file, and those to other brokers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from killed_broker import dies_at_every
from postgres_world import new_place, patient_stores, server_in, stores_at
from store_suite import Model, StoreSuite, World, few_examples, many, puts, transit

from adon.cli import doctor
from examples.testbed.postgres import Postgres
from network_provisioner.base.clock import SteadyClock
from network_provisioner.base.model import Transit
from network_provisioner.stores import postgres as postgres_store
from network_provisioner.stores import postgres_link
from network_provisioner.stores.opening import open_store
from network_provisioner.stores.postgres import PostgresStore
from network_provisioner.stores.store import ClockError, StoreError

pytestmark = pytest.mark.component


LOCK_S = postgres_link._SETTINGS["lock_timeout"]  # before anybody changes it


@pytest.fixture(scope="module", autouse=True)
def patient() -> Iterator[None]:
    with patient_stores():
        yield


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    with server_in(tmp_path_factory.mktemp("pg"), tcp=True) as running:
        yield running


@pytest.fixture
def url(server: Postgres) -> str:
    return new_place(server)


@pytest.fixture
def opened(url: str) -> Iterator[Callable[[], PostgresStore]]:
    with stores_at(url) as opener:
        yield opener


class TestPostgres(StoreSuite):
    @pytest.fixture
    def world(self, server: Postgres) -> Callable[[], World]:
        return lambda: stores_at(new_place(server))


@pytest.mark.parametrize("by_s", [5.0, -5.0])
def test_whose_clock_is_wrong_gets_no_turn(
    url: str, by_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong_s = [0.0]
    clock = SteadyClock(lambda: time.time() + wrong_s[0], follows=False)
    store = PostgresStore(url, steady=clock)
    try:
        with store.turn():
            store.put(transit("a"))
        wrong_s[0] = by_s  # the wall clock alone: time goes on as it was
        with store.turn():
            pass
        clock.renew()
        words = "ahead of" if by_s > 0 else "behind"
        with pytest.raises(ClockError, match=f"clock is .* s {words} the database's"), store.turn():
            pass
        with monkeypatch.context() as machine:
            machine.setattr(doctor.time, "time", clock)
            said, fine = doctor._database(url)
        assert not fine and f"{words} its clock" in said
        assert doctor._database(url)[1]
        wrong_s[0] = 0.0  # as soon as it is right
        with store.turn():
            store.put(transit("b"))
        assert clock.catch_up() == pytest.approx(0.0, abs=1.0)
        assert {t.id for t in store.active()} == {"a", "b"}
    finally:
        store.close()


# -- what two brokers tell each other --------------------------------------------------------

who = st.integers(0, 2)
outside = st.tuples(who, puts | many)
turns = st.tuples(who, st.lists(puts | many, max_size=3))


@few_examples
@given(st.lists(outside | turns, max_size=25), st.integers(0, 25))
def test_news_are_complete_and_told_once(
    server: Postgres, steps: list[tuple[int, Any]], drop_at: int
) -> None:
    """Three stores, each thing done by one of them, in turns and outside; at some point all their
    connections break."""
    with stores_at(new_place(server)) as opened:
        stores, model = [opened() for _ in range(3)], Model()
        untold: list[dict[str, Transit]] = [{} for _ in stores]
        for store in stores:
            with store.turn() as news:
                assert list(news) == []

        def do(number: int, step: tuple[str, Any]) -> None:
            model.do(*step, stores[number])
            written = [step[1]] if step[0] == "put" else list(step[1])
            written.sort(key=lambda t: list(model.transits).index(t.id))  # of one change: by age
            for other, news in enumerate(untold):
                for one in written:
                    # What we wrote last ourselves is none, whatever others wrote before.
                    news.pop(one.id, None)
                    if other != number:
                        news[one.id] = one

        for index, (number, step) in enumerate(steps):
            if index == drop_at:
                for store in stores:
                    store._deciding.drop()
            if isinstance(step, tuple):
                do(number, step)
                continue
            with stores[number].turn() as news:
                assert list(news) == list(untold[number].values())
                untold[number].clear()
                for inner in step:
                    do(number, inner)
        for number, store in enumerate(stores):
            with store.turn() as news:
                assert list(news) == list(untold[number].values())
            model.check(store)


def test_turns_of_several_stores_never_overlap(opened: Callable[[], PostgresStore]) -> None:
    stores = [opened() for _ in range(3)]
    inside, most = [0], []

    def work(store: PostgresStore) -> None:
        for _ in range(30):
            with store.turn():
                inside[0] += 1
                found = store.get("n") or replace(transit("n"), reason="0")
                store.put(replace(found, reason=str(int(found.reason) + 1)))
                most.append(inside[0])
                inside[0] -= 1

    threads = [threading.Thread(target=work, args=(s,)) for s in stores for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1] * 180
    found = stores[0].get("n")
    assert found is not None and found.reason == "180"


def test_two_places_in_one_database_do_not_wait_for_each_other(server: Postgres) -> None:
    with stores_at(new_place(server)) as here, stores_at(new_place(server)) as there:
        one, other = here(), there()
        with one.turn(), other.turn():
            one.put(transit("a"))
            assert other.get("a") is None


def test_brokers_that_start_together_make_one_set_of_tables(url: str) -> None:
    made: list[object] = []

    def work() -> None:
        try:
            store = PostgresStore(url)
            store.put(transit(threading.current_thread().name))
            made.append(len(store.active()))
            store.close()
        except StoreError as error:
            made.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(map(str, made))[-1] == "8" and len(made) == 8


# -- whoever dies or stands still ------------------------------------------------------------

_HOLDER = """
import os, signal, sys
from made_transit import made_transit
from network_provisioner.base.model import TransitState
from network_provisioner.stores.opening import open_store
from network_provisioner.stores import postgres
postgres.TURN_S = 600.0
store = open_store(sys.argv[1])
with store.turn():
    store.put(made_transit("held", "mu", "tacc", TransitState.HELD))
    print("in its turn", flush=True)
    sys.stdin.readline()
    store.put(made_transit("late", "mu", "tacc", TransitState.HELD))
"""


@pytest.fixture
def holder(url: str) -> Iterator[subprocess.Popen[str]]:
    """Another broker, in the middle of its turn."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, "-c", _HOLDER, url], env=env, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdout is not None and process.stdout.readline() == "in its turn\n"
        yield process
        process.kill()


@pytest.mark.parametrize("stride", [31, pytest.param(1, marks=pytest.mark.long)])
def test_kill_9_changes_nothing_in_the_end(tmp_path: Path, server: Postgres, stride: int) -> None:
    dies_at_every(stride, tmp_path, lambda: partial(PostgresStore, new_place(server)))


def test_a_broker_that_dies_in_its_turn_frees_it(
    opened: Callable[[], PostgresStore],
    holder: subprocess.Popen[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patch:
        patch.setitem(postgres_link._SETTINGS, "lock_timeout", LOCK_S)
        impatient = opened()
    with pytest.raises(StoreError, match="has not ended yet"), impatient.turn():
        pytest.fail("both had their turn")
    holder.kill()
    holder.wait()
    store = opened()  # it waits until the server has seen that the other is gone
    with store.turn():
        assert [t.id for t in store.active()] == ["held"]


def test_a_broker_that_stands_still_loses_its_turn(
    opened: Callable[[], PostgresStore], url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, store = opened(), opened()
    with pytest.raises(StoreError, match="idle-session timeout"), ExitStack() as turn:
        with monkeypatch.context() as patch:
            patch.setattr(postgres_store, "TURN_S", 2.0)
            turn.enter_context(slow.turn())
        with store.turn():  # waits until the server has ended the other's session
            store.put(transit("a"))
        slow.put(transit("b"))
    assert [t.id for t in store.active()] == ["a"]
    with slow.turn() as news:
        assert [t.id for t in news] == ["a"]
        slow.put(transit("b"))


def test_a_turn_does_not_go_on_over_another_connection(
    opened: Callable[[], PostgresStore], server: Postgres
) -> None:
    store = opened()
    with store.turn():
        store.put(transit("a"))
        end_sessions(server)
        with pytest.raises(StoreError):
            store.put(transit("b"))
        for _ in range(2):
            with pytest.raises(StoreError, match="the turn was lost"):
                store.put(transit("b"))
        assert [t.id for t in store.active()] == ["a"]
    with store.turn():
        store.put(transit("b"))


def end_sessions(server: Postgres) -> None:
    with psycopg.connect(server.url) as db:
        db.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'adon'"
        )


def test_a_put_of_which_nobody_knows_whether_it_took_effect(
    opened: Callable[[], PostgresStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection breaks after the server has done it and before it says so."""
    store = opened()
    with store.turn():
        pass
    real = postgres_link.run

    def cut(db: Any, statement: str, values: Any = None) -> Any:
        found = real(db, statement, values)
        if "INSERT INTO adon_transits" in statement:
            db.close()
            raise psycopg.OperationalError("connection lost")
        return found

    with monkeypatch.context() as patch:
        patch.setattr(postgres_link, "run", cut)
        with store.turn(), pytest.raises(StoreError, match="connection lost"):
            store.put(transit("a"))
    with store.turn() as news:
        assert list(news) == [transit("a")]
    with store.turn() as news:
        assert list(news) == []


def test_a_server_that_goes_and_comes_again(tmp_path: Path) -> None:
    server = server_in(tmp_path / "pg")
    server.start()
    try:
        with stores_at(server.url) as opened:
            ours, theirs = opened(), opened()
            for store in (ours, theirs):
                with store.turn():
                    pass
            theirs.put(transit("a"))
            server.kill()
            for call in (lambda: ours.put(transit("b")), ours.active, lambda: ours.get("a")):
                with pytest.raises(
                    StoreError, match=r"^database postgresql://adon@/postgres\?host="
                ):
                    call()
            with pytest.raises(StoreError), ours.turn():
                pytest.fail("a turn without a server")
            server.start()
            theirs.put(transit("c"))
            with ours.turn() as news:  # not lost meanwhile, though the connection was
                assert [t.id for t in news] == ["a", "c"]
    finally:
        server.stop()


def test_a_server_that_says_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_link, "_HOPELESS_S", 60.0)
    with server_in(tmp_path / "pg") as server, stores_at(server.url) as opened:
        store = opened()
        processes = server.processes()
        with monkeypatch.context() as patch:
            patch.setattr(postgres_link, "_SILENT_S", 1.0)
            for link in (store._deciding, store._asking):
                patch.setitem(link._given, "connect_timeout", 2)
            for process in processes:
                os.kill(process.pid, signal.SIGSTOP)
            try:
                with pytest.raises(StoreError, match="has said nothing"):
                    store.put(transit("a"))
                with pytest.raises(StoreError, match="timeout"):  # nor to who connects anew
                    store.put(transit("a"))
            finally:
                for process in processes:
                    os.kill(process.pid, signal.SIGCONT)
        with store.turn():
            store.put(transit("b"))
        assert [t.id for t in store.active() if t.id != "a"] == ["b"]


def test_a_database_that_was_put_back(opened: Callable[[], PostgresStore], url: str) -> None:
    store = opened()
    store.put(transit("a"))
    with store.turn():
        pass
    with psycopg.connect(url) as db:
        db.execute("UPDATE adon_meta SET change = 0")
    with pytest.raises(StoreError, match="put back to an earlier state"), store.turn():
        pytest.fail("it decides on what it does not know")


def test_a_database_of_another_version(url: str) -> None:
    PostgresStore(url).close()
    with psycopg.connect(url) as db:
        db.execute("UPDATE adon_meta SET layout = 99")
    with pytest.raises(StoreError, match="has layout 99, expected 1"):
        PostgresStore(url)


# -- who may come in -------------------------------------------------------------------------


def test_a_password_from_the_environment_or_a_file(
    server: Postgres, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PGPASSWORD", server.password)
    open_store(server.tcp_url).close()
    monkeypatch.delenv("PGPASSWORD")
    file = tmp_path / "pgpass"
    file.write_text(f"*:*:*:*:{server.password}\n")
    file.chmod(0o600)
    open_store(f"{server.tcp_url}?passfile={file}").close()


@pytest.mark.parametrize("wrong", ["?password=tops3cret", "user", "port"])
def test_no_message_has_the_password(server: Postgres, wrong: str) -> None:
    url = server.tcp_url.replace("adon@", "adon:tops3cret@")
    if wrong.startswith("?"):
        url = server.tcp_url + wrong
    elif wrong == "port":
        url += "?port=none"
    with pytest.raises(StoreError, match=r"^database postgresql://adon@127\.0\.0\.1:\d+") as caught:
        open_store(url)
    assert "tops3cret" not in str(caught.value) and "\n" not in str(caught.value)
