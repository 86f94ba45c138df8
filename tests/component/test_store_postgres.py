"""State in a real PostgreSQL: the same promises as in a file, and those to other brokers."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest
from killed_broker import dies_at_every
from postgres_world import (
    expire,
    leading_store,
    new_place,
    patient_stores,
    server_in,
    stores_at,
)
from store_suite import StoreSuite, World, transit

from adon.cli import doctor
from examples.testbed.postgres import Postgres
from network_provisioner.base.clock import SteadyClock
from network_provisioner.stores import postgres as postgres_store
from network_provisioner.stores import postgres_link
from network_provisioner.stores.opening import open_store
from network_provisioner.stores.postgres import PostgresStore
from network_provisioner.stores.store import ClockError, Document, Leader, StoreError

pytestmark = pytest.mark.component


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


# -- who leads -------------------------------------------------------------------------------


def test_one_leads_and_the_others_know_it(url: str) -> None:
    with ExitStack() as stack:
        stores = [stack.enter_context(closing(PostgresStore(url))) for _ in range(4)]
        leaders: list[Leader] = []

        def work(number: int) -> None:
            leaders.extend(stores[number].elect(f"http://b{number}") for _ in range(5))

        threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert {(leader.term, leader.address) for leader in leaders} == {(1, leaders[0].address)}
        assert len({leader.secret for leader in leaders}) == 1 and len(leaders[0].secret) > 30
        assert [leader.is_us for leader in leaders].count(True) == 5
        (first,) = (n for n, store in enumerate(stores) if store.leads())
        with pytest.raises(StoreError, match="another broker leads"):
            stores[first - 1].check_leads()
        stores[first].check_leads()
        stores[first].resign()
        assert stores[first - 1].elect("http://next").term == 2
        assert stores[first].elect() == Leader(
            "http://next", 2, stores[first - 1].elect("http://next").secret, is_us=False
        )


@pytest.mark.parametrize(
    "write",
    [
        lambda store: store.put(transit("b")),
        lambda store: store.put_many([transit("b"), transit("c")]),
        lambda store: store.put_document("policy", "p", {}),
        lambda store: store.delete_document("policy", "kept"),
        lambda store: store.restore([Document("policy", "p", 1)]),
    ],
)
def test_a_leader_that_slept_writes_nothing_once_another_leads(
    opened: Callable[[], PostgresStore], write: Callable[[PostgresStore], object]
) -> None:
    slept = opened()
    slept.put(transit("a"))
    slept.put_document("policy", "kept", {})
    other = opened()
    assert slept.leads()  # as far as it knows
    with pytest.raises(StoreError):
        write(slept)
    assert [t.id for t in other.each()] == ["a"] and other.kinds() == {"policy": ["kept"]}
    assert other.document("policy", "kept") is not None
    assert not slept.elect().is_us and not slept.leads()
    with pytest.raises(StoreError, match="another broker leads"):
        write(slept)


def test_a_lease_that_is_not_renewed_ends_and_may_be_taken_up_again(
    opened: Callable[[], PostgresStore], url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened()
    before = store.elect("http://here")
    later = partial(lambda since: since() + 2 * postgres_store.LEASE_S, postgres_store.since_boot)
    with monkeypatch.context() as patch:
        patch.setattr(postgres_store, "since_boot", later)
        assert not store.leads()
        with pytest.raises(StoreError, match="its lease could not be renewed"):
            store.check_leads()
    expire(url)
    assert store.elect("http://here") == before and store.leads()


def test_a_lease_that_was_renewed_is_not_taken_over(
    opened: Callable[[], PostgresStore], url: str
) -> None:
    store = opened()
    expire(url)
    assert store.elect().is_us
    with closing(PostgresStore(url)) as other:
        assert not other.elect().is_us


@pytest.mark.parametrize("ended", [True, False])
def test_who_looked_before_another_led_does_not_lead(
    url: str, monkeypatch: pytest.MonkeyPatch, ended: bool
) -> None:
    """What it saw is of the term before, or of a lease that was renewed since."""
    with closing(PostgresStore(url)) as leads, closing(PostgresStore(url)) as late:
        state = late._state
        seen = [state()]
        assert leads.elect("http://leads").is_us
        expire(url)
        if not ended:
            seen = [state()]
            assert leads.elect("http://leads").is_us
        monkeypatch.setattr(late, "_state", lambda: seen.pop() if seen else state())
        leader = late.elect("http://late")
        assert (leader.address, leader.term, leader.is_us) == ("http://leads", 1, False)


def test_a_lease_counts_from_when_it_was_asked_for(
    opened: Callable[[], PostgresStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, now = opened(), [1000.0]
    rows = store._electing.rows

    def late(*question: Any) -> Any:
        now[0] += postgres_store.LEASE_S
        return rows(*question)

    monkeypatch.setattr(postgres_store, "since_boot", lambda: now[0])
    monkeypatch.setattr(store._electing, "rows", late)
    assert store.elect().is_us and not store.leads()


@pytest.mark.parametrize("by_s", [5.0, -5.0])
def test_whose_clock_is_wrong_does_not_lead(
    url: str, by_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong_s = [0.0]
    clock = SteadyClock(lambda: time.time() + wrong_s[0], follows=False)
    with closing(PostgresStore(url, steady=clock)) as store:
        assert store.elect().is_us
        store.put(transit("a"))
        wrong_s[0] = by_s  # the wall clock alone: time goes on as it was
        assert store.elect().is_us
        clock.renew()
        words = "ahead of" if by_s > 0 else "behind"
        with pytest.raises(ClockError, match=f"clock is .* s {words} the database's"):
            store.elect()
        with pytest.raises(ClockError, match=words):
            store.check_leads()
        with monkeypatch.context() as machine:
            machine.setattr(doctor.time, "time", clock)
            said, fine = doctor._database(url)
        assert not fine and f"{words} its clock" in said
        assert doctor._database(url)[1]
        wrong_s[0] = 0.0  # as soon as it is right
        assert store.elect().is_us
        store.check_leads()
        store.put(transit("b"))
        assert clock.catch_up() == pytest.approx(0.0, abs=1.0)
        assert {t.id for t in store.active()} == {"a", "b"}


def test_two_places_in_one_database_have_a_leader_each(server: Postgres) -> None:
    with stores_at(new_place(server)) as here, stores_at(new_place(server)) as there:
        store, other = here(), there()
        store.put(transit("a"))
        assert store.leads() and other.leads() and other.get("a") is None


def test_brokers_that_start_together_make_one_set_of_tables(url: str) -> None:
    made: list[object] = []

    def work() -> None:
        try:
            with closing(PostgresStore(url)) as store:
                made.append(len(store.active()))
        except StoreError as error:
            made.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == [0] * 8


# -- processes that die or stop ------------------------------------------------------------


@pytest.mark.parametrize("stride", [31, pytest.param(1, marks=pytest.mark.long)])
def test_kill_9_changes_nothing_in_the_end(tmp_path: Path, server: Postgres, stride: int) -> None:
    dies_at_every(stride, tmp_path, lambda: partial(leading_store, new_place(server)))


def test_a_connection_that_is_lost_comes_back(
    opened: Callable[[], PostgresStore], server: Postgres
) -> None:
    store = opened()
    store.put(transit("a"))
    end_sessions(server)
    store.put(transit("b"))
    assert store.elect().is_us and [t.id for t in store.active()] == ["a", "b"]


def end_sessions(server: Postgres) -> None:
    """Returns when they have ended, and not only been told to."""
    with psycopg.connect(server.url) as db:
        ended = db.execute(
            "SELECT pg_terminate_backend(pid, 240000) FROM pg_stat_activity "
            "WHERE application_name = 'adon'"
        ).fetchall()
    assert ended and all(done for (done,) in ended)


@pytest.mark.parametrize("takes_effect", [True, False])
def test_a_put_of_which_nobody_knows_whether_it_took_effect(
    opened: Callable[[], PostgresStore], monkeypatch: pytest.MonkeyPatch, takes_effect: bool
) -> None:
    """The connection breaks before the server says so."""
    store, real = opened(), postgres_store.PostgresConnection.rows

    def cut(link: Any, statement: str, values: Any) -> Any:
        if "INSERT INTO adon_transits" not in statement:
            return real(link, statement, values)
        with link.open() as db:
            if takes_effect:
                postgres_link.run(db, statement, values)
            db.close()
            raise psycopg.OperationalError("connection lost")

    with monkeypatch.context() as patch:
        patch.setattr(postgres_store.PostgresConnection, "rows", cut)
        with pytest.raises(StoreError, match="connection lost"):
            store.put(transit("a"))
    assert list(store.doubted()) == ([transit("a")] if takes_effect else [])
    assert list(store.doubted()) == []


def test_a_server_that_goes_and_comes_again(tmp_path: Path) -> None:
    server = server_in(tmp_path / "pg")
    server.start()
    try:
        with stores_at(server.url) as opened:
            store = opened()
            store.put(transit("a"))
            term = store.elect().term
            server.kill()
            calls: tuple[Callable[[], object], ...] = (
                lambda: store.put(transit("b")), store.active, lambda: store.get("a"), store.elect,
            )  # fmt: skip
            for call in calls:
                with pytest.raises(
                    StoreError, match=r"^database postgresql://adon@/postgres\?host="
                ):
                    call()
            server.start()
            assert store.elect().term == term
            store.put(transit("c"))
            assert [t.id for t in store.active() if t.id != "b"] == ["a", "c"]
    finally:
        server.stop()


def test_a_server_that_says_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_link, "_HOPELESS_S", 60.0)
    with server_in(tmp_path / "pg") as server, stores_at(server.url) as opened:
        store = opened()
        processes = server.processes()
        with monkeypatch.context() as patch:
            patch.setattr(postgres_link, "_SILENT_S", 1.0)
            for link in (store._deciding, store._electing):
                patch.setitem(link._given, "connect_timeout", 2)
            for process in processes:
                os.kill(process.pid, signal.SIGSTOP)
            try:
                with pytest.raises(StoreError, match="has said nothing"):
                    store.put(transit("a"))
                with pytest.raises(StoreError, match="timeout"):  # nor to who connects anew
                    store.put(transit("a"))
                with pytest.raises(StoreError, match="has said nothing"):
                    store.elect()
            finally:
                for process in processes:
                    os.kill(process.pid, signal.SIGCONT)
        store.put(transit("b"))
        assert [t.id for t in store.active() if t.id != "a"] == ["b"]


def test_a_database_that_was_put_back(opened: Callable[[], PostgresStore], url: str) -> None:
    store = opened()
    store.put(transit("a"))
    store.elect()
    with psycopg.connect(url) as db:
        db.execute("UPDATE adon_meta SET change = 0")
    with pytest.raises(StoreError, match="reset to an earlier state"):
        store.elect()


def test_who_only_reads_sees_one_instant_and_changes_nothing(
    opened: Callable[[], PostgresStore], url: str
) -> None:
    with pytest.raises(StoreError, match="has layout none, expected 2"):
        PostgresStore(url, reading=True)
    store = opened()
    store.elect()
    store.put_many([transit("a")])
    reader = PostgresStore(url, reading=True)
    store.put_many([transit("b")])
    assert [t.id for t in reader.each()] == ["a"]
    with pytest.raises(StoreError):
        reader.put_document("policy", "p", {})
    reader.close()


def test_a_database_of_another_version(url: str) -> None:
    PostgresStore(url).close()
    with psycopg.connect(url) as db:
        db.execute("UPDATE adon_meta SET layout = 99")
    with pytest.raises(StoreError, match="has layout 99, expected 2"):
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
