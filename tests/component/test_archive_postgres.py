"""The archive in a real PostgreSQL: the same promises as in a file, for writers anywhere."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psycopg
import pytest
from archive_suite import NOW, ArchiveSuite, Opener, World, measured
from postgres_world import new_place, server_in

from examples.testbed.postgres import Postgres
from monitors.archive import Archive, ArchiveError, Measurement
from monitors.retention.horizons import DAY_S, Keep, Retention
from monitors.retention.service import retain
from monitors.stores.postgres import PostgresEngine
from network_provisioner.errors import InputError

pytestmark = pytest.mark.component


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    with server_in(tmp_path_factory.mktemp("pg")) as running:
        yield running


@pytest.fixture
def url(server: Postgres) -> str:
    return new_place(server)


_FREE: list[str] = []


@contextmanager
def database_world(server: Postgres) -> Iterator[Opener]:
    place = _FREE.pop() if _FREE else new_place(server)
    with ExitStack() as stack:
        yield lambda: stack.enter_context(Archive(place))
    with psycopg.connect(place) as db:  # making the tables takes much longer
        names = "measurement, adon_rollup, adon_rolling, adon_horizon, adon_retaining, adon_request"
        db.execute(f"TRUNCATE adon_{names} RESTART IDENTITY")
    _FREE.append(place)


class TestPostgres(ArchiveSuite):
    @pytest.fixture
    def world(self, server: Postgres) -> Callable[[], World]:
        return lambda: database_world(server)


def test_a_reader_makes_nothing_and_sees_the_tables_once_they_are_there(url: str) -> None:
    with Archive(url, read_only=True) as reader:
        assert reader.query("rtt") == []
        assert reader.estimate("rtt", "mu>tacc", 1.0) is None
        with psycopg.connect(url) as db:
            assert db.execute("SELECT to_regclass('adon_archive')").fetchone() == (None,)
        with Archive(url) as writer:
            writer.record(measured("a"))
        assert [one.id for one in reader.query("rtt")] == ["a"]
        with pytest.raises(ArchiveError, match="opened for reading"):
            reader.record(measured("b"))


def test_an_older_layout_is_brought_up_to_date_by_who_writes(url: str) -> None:
    with Archive(url) as archive:
        archive.record(measured("a"))
    with psycopg.connect(url) as db:
        db.execute("DROP TABLE adon_rolling")
        db.execute("UPDATE adon_archive SET layout = 1")
    with pytest.raises(InputError, match="found layout 1, expected 2: a process of this version"):
        Archive(url, read_only=True)
    with Archive(url) as archive:
        archive.record(measured("b", at=NOW))
        assert retain(archive, Retention(Keep(DAY_S)), NOW).removed == 1
    Archive(url, read_only=True).close()


@pytest.mark.parametrize("by_owner", [True, False], ids=["by its owner", "by the administrator"])
def test_an_older_layout_is_brought_up_to_date_where_it_is(
    server: Postgres, by_owner: bool
) -> None:
    """Whoever does it, and whatever schema is the first of who does."""
    site = new_place(server).rpartition("%3D")[2]
    roles = [f"{site}_{name}" for name in ("owner", "writer", "recorder", "reader")]
    owner, writer, recorder, reader = roles
    with psycopg.connect(server.url) as db:
        (administrator,) = db.execute("SELECT current_user").fetchone() or ("",)
        for role in roles:
            db.execute(f"CREATE ROLE {role} LOGIN")
            db.execute(f"CREATE SCHEMA {role} AUTHORIZATION {role}")
        db.execute(f"GRANT ALL ON SCHEMA {site} TO {owner}")
        db.execute(f"GRANT USAGE ON SCHEMA {site} TO {', '.join(roles)}")

    def place(role: str, *schemas: str) -> str:
        url = server.url.replace(f"//{administrator}@", f"//{role}@")
        return f"{url}&options=-csearch_path%3D{','.join(schemas)}"

    with Archive(place(owner, site)) as archive:
        archive.record(measured("a"))
    with psycopg.connect(place(owner, site)) as db:
        whom = {writer: "SELECT, INSERT, UPDATE, DELETE", recorder: "SELECT, INSERT"}
        for role, what in (whom | {reader: "SELECT"}).items():
            db.execute(f"GRANT {what} ON ALL TABLES IN SCHEMA {site} TO {role}")
        db.execute("DROP TABLE adon_rolling")
        db.execute(
            "CREATE OR REPLACE FUNCTION adon_measurement_stays() RETURNS trigger"
            " LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'nothing goes'; END $$"
        )
        db.execute("UPDATE adon_archive SET layout = 1")
    with pytest.raises(InputError, match="expected 2: a process of this version that owns"):
        Archive(place(writer, writer, site))

    migrating = owner if by_owner else administrator
    Archive(place(migrating, owner, site)).close()

    with psycopg.connect(server.url) as db:
        found = db.execute(
            "SELECT schemaname, tableowner FROM pg_tables WHERE tablename = 'adon_rolling'"
            " AND schemaname = ANY(%s)", [[site, *roles]],
        ).fetchall()  # fmt: skip
    assert found == [(site, owner)]
    # Everybody goes on as before, also with the table that is new.
    with Archive(place(recorder, recorder, site)) as archive:
        assert archive.record(measured("b", at=NOW))
        assert archive.record_many(measured(f"many-{n}", at=NOW) for n in range(300)) == 300
    with Archive(place(writer, writer, site)) as archive:
        assert retain(archive, Retention(Keep(DAY_S)), NOW).removed == 1
        assert archive.ask("refresh", "w", NOW) == 1
    with Archive(place(reader, reader, site), read_only=True) as archive:
        found = archive.estimate("rtt", "mu>tacc", NOW)
        assert found is not None and found.count == 128


def test_another_layout_is_refused(url: str) -> None:
    Archive(url).close()
    with psycopg.connect(url) as db:
        db.execute("UPDATE adon_archive SET layout = 99")
    with pytest.raises(InputError, match="found layout 99, expected"):
        Archive(url)


def test_a_place_that_is_not_there_is_told_without_the_password() -> None:
    with pytest.raises(ArchiveError) as told:
        Archive("postgresql://adon:secret@127.0.0.1:1/adon")
    assert "127.0.0.1:1" in str(told.value) and "secret" not in str(told.value)


def test_a_connection_that_broke_is_made_again(server: Postgres, url: str) -> None:
    with Archive(url) as archive:
        archive.record(measured("a"))
        with psycopg.connect(server.url, autocommit=True) as db:
            db.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE pid <> pg_backend_pid() AND application_name = 'adon'"
            )
        assert archive.record(measured("b"))
        assert len(archive.query("rtt")) == 2


def test_nobody_who_talks_to_the_database_takes_measurements_away(url: str) -> None:
    with Archive(url) as archive:
        archive.record(measured("a"))
    for statement in ("DELETE FROM adon_measurement", "UPDATE adon_measurement SET value = 2"):
        with (
            pytest.raises(psycopg.errors.RaiseException, match="append-only"),
            psycopg.connect(url) as db,
        ):
            db.execute(statement)


def test_a_user_who_may_not_make_temporary_tables_writes_all_the_same(url: str) -> None:
    with Archive(url) as archive:
        assert isinstance(archive.engine, PostgresEngine)
        assert archive.engine._may_send_many
        archive.engine._may_send_many = False
        sent = [measured(f"{n % 900}") for n in range(1000)]
        assert archive.record_many(sent) == 900
        assert [one.id for _, one in archive.after(0)] == [str(n) for n in range(900)]


def _write(url: str, writer: int, start: object) -> None:
    start.wait()  # type: ignore[attr-defined]
    with Archive(url) as archive:  # all make the tables at the same time
        for part in range(10):
            archive.record_many(measured(f"shared-{part}-{n}") for n in range(20))
            archive.record_many(measured(f"own-{writer}-{part}-{n}") for n in range(20))


def test_several_processes_make_one_archive(url: str) -> None:
    context = multiprocessing.get_context("spawn")
    start = context.Barrier(4)
    writers = [context.Process(target=_write, args=(url, n, start)) for n in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0] * 4
    with Archive(url) as archive:
        ids = [one.id for one in archive.query("rtt")]
    assert len(ids) == len(set(ids)) == 200 + 4 * 200


def test_a_writer_that_is_killed_leaves_whole_transactions_and_its_turn(url: str) -> None:
    code = (
        "import sys; from monitors.archive import Archive, Measurement\n"
        "a = Archive(sys.argv[1])\n"
        "for n in range(10**9):\n"
        "    a.record_many(Measurement(f'{n}-{m}', 'x', 's', n, '1', n, 't') for m in range(7))\n"
        "    print(n, flush=True)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, url], stdout=subprocess.PIPE, text=True,
        cwd=Path(__file__).parents[2],
    ) as writer:  # fmt: skip
        assert writer.stdout is not None
        told = [int(writer.stdout.readline()) for _ in range(20)]
        os.kill(writer.pid, signal.SIGKILL)
        told += [int(line) for line in writer.stdout if line.endswith("\n")]
    with Archive(url) as archive:
        assert archive.record(Measurement("next", "y", "s", 1.0, "1", 1.0, "t"))
        kept = archive.query("x")
    assert len(kept) % 7 == 0
    assert len(kept) >= 7 * len(told)
