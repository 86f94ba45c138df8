"""The archive in a real PostgreSQL: the same promises as in a file, for writers anywhere."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import archive_suite
import psycopg
import pytest
from archive_suite import NOW, ArchiveSuite, Opener, World, measured
from http_load import CONFIG, broker_process
from postgres_world import new_place, server_in
from waiting import until

from adon.cli.main import main
from examples.testbed.postgres import Postgres
from monitors.archive.archive import Archive, ArchiveError, Measurement
from monitors.archive.outbox import Outbox
from monitors.archive.retaining import retain
from monitors.archive.retention.horizons import DAY_S, Keep, Retention
from monitors.archive.stores.postgres import PostgresEngine
from network_provisioner.base.errors import InputError

pytestmark = pytest.mark.component

_READY_S = 300.0  # nothing here takes nearly as long


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
        assert [m.id for m in reader.query("rtt")] == ["a"]
        with pytest.raises(ArchiveError, match="opened for reading"):
            reader.record(measured("b"))


@pytest.mark.parametrize("by_owner", [True, False], ids=["by its owner", "by the administrator"])
def test_an_older_layout_is_brought_up_to_date_where_it_is(
    server: Postgres, by_owner: bool
) -> None:
    """By any user, with any schema as the first."""
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
        for role, privilege in (whom | {reader: "SELECT"}).items():
            db.execute(f"GRANT {privilege} ON ALL TABLES IN SCHEMA {site} TO {role}")
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
        tables = db.execute(
            "SELECT schemaname, tableowner FROM pg_tables WHERE tablename = 'adon_rolling'"
            " AND schemaname = ANY(%s)", [[site, *roles]],
        ).fetchall()  # fmt: skip
    assert tables == [(site, owner)]
    # Everybody goes on as before, also with the table that is new.
    with Archive(place(recorder, recorder, site)) as archive:
        assert archive.record(measured("b", at=NOW))
        assert archive.record_many(measured(f"many-{n}", at=NOW) for n in range(300)) == 300
    with Archive(place(writer, writer, site)) as archive:
        assert retain(archive, Retention(Keep(DAY_S)), NOW).removed == 1
        assert archive.ask("refresh", "w", NOW) == 1
    with Archive(place(reader, reader, site), read_only=True) as archive:
        estimate = archive.estimate("rtt", "mu>tacc", NOW)
        assert estimate is not None and estimate.count == 128


def test_another_layout_is_refused(url: str) -> None:
    Archive(url).close()
    with psycopg.connect(url) as db:
        db.execute("UPDATE adon_archive SET layout = 99")
    with pytest.raises(InputError, match="found layout 99, expected"):
        Archive(url)


def test_a_place_that_is_not_there_is_told_without_the_password() -> None:
    with pytest.raises(ArchiveError) as error:
        Archive("postgresql://adon:secret@127.0.0.1:1/adon")
    assert "127.0.0.1:1" in str(error.value) and "secret" not in str(error.value)


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


def test_a_user_who_may_not_make_temporary_tables_writes_all_the_same(url: str) -> None:
    with Archive(url) as archive:
        assert isinstance(archive.engine, PostgresEngine)
        assert archive.engine._may_send_many
        archive.engine._may_send_many = False
        batch = [measured(f"{n % 900}") for n in range(1000)]
        assert archive.record_many(batch) == 900
        assert [m.id for _, m in archive.read_on(0)[0]] == [str(n) for n in range(900)]


def test_several_processes_make_one_archive(url: str) -> None:
    archive_suite.several_processes_make_one(url)


def test_a_writer_that_is_killed(url: str) -> None:
    archive_suite.a_killed_writer_leaves_whole_transactions_and_its_turn(url)


# -- a broker's process ---------------------------------------------------------------------------


def body(key: str, at: float) -> dict[str, Any]:
    return {"id": key, "metric": "rtt", "subject": "mu>tacc", "value": 0.05, "unit": "s",
            "at": at, "source": "ping"}  # fmt: skip


def ask(url: str, body: Any = None) -> str:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=_READY_S) as answer:
        return str(answer.read().decode())


def test_a_broker_on_a_database(
    server: Postgres, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = new_place(server)
    now = time.time()
    with Archive(url) as archive:  # of somebody else, long ago
        archive.record(Measurement("old", "rtt", "mu>tacc", 0.07, "s", now - 1e6, "ping"))
        archive.record(Measurement("new", "rtt", "mu>tacc", 0.06, "s", now - 10, "ping"))
    config = CONFIG | {"monitoring": {"retention": {"default": {"raw": "1 d"}}}}
    with broker_process(tmp_path, config, archive=url) as broker:
        payload = {"measurements": [body("a", now), body("b", now), body("old", now - 1e6)]}
        answer = ask(f"{broker}/v1/measurements", payload)
        assert json.loads(answer) == {"recorded": 2, "known": 1}
        stream = urllib.request.urlopen(f"{broker}/v1/feed?after=0", timeout=_READY_S)
        ids: list[str] = []
        with Archive(url) as archive:
            archive.record(Measurement("c", "rtt", "mu>tacc", 0.04, "s", now + 0.5, "another"))
            while "c" not in ids:
                line = stream.readline()
                if line.startswith(b"data: "):
                    ids.append(json.loads(line[6:])["id"])
            assert ids[-4:] == ["new", "a", "b", "c"]
            # Retention began with the broker.
            until(lambda: archive.get("old") is None, "the old one to go")
        query = f"{broker}/v1/estimates?metric=rtt&subject=mu%3Etacc&now={now + 1}"
        estimate = json.loads(ask(query))
        assert (estimate["count"], estimate["source"]) == (5, "another")
        metrics = ask(f"{broker}/metrics")
        assert 'adon_measurement{metric="rtt"' in metrics and "adon_archive_up 1.0" in metrics
        assert main(["archive", "query", "rtt", "--archive", url, "--json"]) == 0
        assert len(capsys.readouterr().out.splitlines()) == 4
        assert main(["archive", "retain", "--config", str(tmp_path / "adon.yml")]) == 0
    with stream:
        stream.read()  # came to its end, and was not cut off


def test_from_a_file_to_a_database_and_back(server: Postgres, tmp_path: Path) -> None:
    first, back, url = tmp_path / "a.sqlite", tmp_path / "b.sqlite", new_place(server)
    with Archive(first) as archive:
        archive.record_many(
            Measurement(f"{n}", "rtt", "ä>ß", n / 7, "s", n * 60.0, "x", "w", {"n": n})
            for n in range(3000)
        )
    assert main(["archive", "copy", str(first), url]) == 0
    assert main(["archive", "copy", url, str(back)]) == 0
    with Archive(first) as source, Archive(back) as copy:
        assert source.read_on(0, limit=5000) == copy.read_on(0, limit=5000)


def test_what_is_measured_while_the_server_is_away_is_recorded_when_it_is_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with server_in(tmp_path / "pg", durable=True) as server, Archive(new_place(server)) as archive:
        outbox = Outbox(archive)
        assert outbox.record_many([measured("before")]) == 1
        server.stop()
        assert outbox.record_many([measured("meanwhile")]) == 0
        assert archive.problem
        server.start()
        assert outbox.retry() == 1
        assert (archive.problem, archive.get("meanwhile") is not None) == ("", True)
    records = [record for record in caplog.records if "tried again" in record.getMessage()]
    assert [record.exc_info for record in records] == [None]
