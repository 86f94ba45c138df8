"""The archive in a real PostgreSQL: the same promises as in a file, for writers anywhere."""

from __future__ import annotations

import http.client
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml
from archive_suite import NOW, ArchiveSuite, Opener, World, measured
from postgres_world import new_place, server_in

from adon.cli.main import main
from examples.testbed.ports import free_ports
from examples.testbed.postgres import Postgres
from monitors.archive.archive import Archive, ArchiveError, Measurement
from monitors.archive.retention.horizons import DAY_S, Keep, Retention
from monitors.archive.retention.service import retain
from monitors.archive.stores.postgres import PostgresEngine
from network_provisioner.base.errors import InputError

pytestmark = pytest.mark.component

_EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "adon.yml"
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
        assert [one.id for one in reader.query("rtt")] == ["a"]
        with pytest.raises(ArchiveError, match="opened for reading"):
            reader.record(measured("b"))


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
        "import sys; from monitors.archive.archive import Archive, Measurement\n"
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


# -- a broker's process ---------------------------------------------------------------------------


class Broker:
    """A process of its own."""

    def __init__(self, folder: Path, archive: str, retention: dict[str, Any]) -> None:
        (self.port,) = free_ports(1)
        config = yaml.safe_load(_EXAMPLE.read_text(encoding="utf-8"))
        config["broker"] = {
            "listen": f"127.0.0.1:{self.port}",
            "state": str(folder / "state.sqlite"),
            "archive": archive,
        }
        config["monitoring"] = {"retention": retention}
        self.config = folder / "adon.yml"
        self.config.write_text(yaml.safe_dump(config), encoding="utf-8")
        self.log = folder / "log"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "adon.service.serve", "--config", str(self.config),
                 "--tied-to", str(os.getpid())],
                cwd=folder, stdout=log, stderr=log,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            )  # fmt: skip

    def ask(self, verb: str, path: str, body: Any = None) -> Any:
        deadline = time.monotonic() + _READY_S
        while True:
            client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_READY_S)
            try:
                text = None if body is None else json.dumps(body)
                client.request(verb, path, text, {"Content-Type": "application/json"})
                answer = client.getresponse()
                data = answer.read()
            except OSError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise AssertionError(self.log.read_text()) from None
                time.sleep(0.05)  # it is starting
                continue
            finally:
                client.close()
            assert answer.status == 200, data
            return data.decode() if path == "/metrics" else json.loads(data)


def body(key: str, at: float) -> dict[str, Any]:
    return {"id": key, "metric": "rtt", "subject": "mu>tacc", "value": 0.05, "unit": "s",
            "at": at, "source": "ping"}  # fmt: skip


def test_a_broker_on_a_database(
    server: Postgres, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = new_place(server)
    now = time.time()
    with Archive(url) as archive:  # of somebody else, long ago
        archive.record(Measurement("old", "rtt", "mu>tacc", 0.07, "s", now - 1e6, "ping"))
        archive.record(Measurement("new", "rtt", "mu>tacc", 0.06, "s", now - 10, "ping"))
    broker = Broker(tmp_path, url, {"default": {"raw": "1 d"}})
    try:
        sent = {"measurements": [body("a", now), body("b", now), body("old", now - 1e6)]}
        assert broker.ask("POST", "/v1/measurements", sent) == {"recorded": 2, "known": 1}
        feed = http.client.HTTPConnection("127.0.0.1", broker.port, timeout=_READY_S)
        feed.request("GET", "/v1/feed?after=0")
        stream = feed.getresponse()
        seen: list[str] = []
        with Archive(url) as archive:
            archive.record(Measurement("c", "rtt", "mu>tacc", 0.04, "s", now + 0.5, "another"))
            while "c" not in seen:
                line = stream.readline()
                if line.startswith(b"data: "):
                    seen.append(json.loads(line[6:])["id"])
            assert seen[-4:] == ["new", "a", "b", "c"]
            # Retention began with the broker.
            deadline = time.monotonic() + _READY_S
            while archive.get("old") is not None:
                assert time.monotonic() < deadline, broker.log.read_text()
                time.sleep(0.05)
        found = broker.ask("GET", f"/v1/estimates?metric=rtt&subject=mu%3Etacc&now={now + 1}")
        assert (found["count"], found["source"]) == (5, "another")
        shown = broker.ask("GET", "/metrics")
        assert 'adon_measurement{metric="rtt"' in shown and "adon_archive_up 1.0" in shown
        assert main(["archive", "query", "rtt", "--archive", url, "--json"]) == 0
        assert len(capsys.readouterr().out.splitlines()) == 4
        assert main(["archive", "retain", "--config", str(broker.config)]) == 0
        broker.process.send_signal(signal.SIGTERM)
        stream.read()  # comes to its end, and is not cut off
        assert broker.process.wait(_READY_S) == 0, broker.log.read_text()
        feed.close()
    finally:
        broker.process.kill()
        broker.process.wait()


def test_from_a_file_to_a_database_and_back(server: Postgres, tmp_path: Path) -> None:
    first, back, url = tmp_path / "a.sqlite", tmp_path / "b.sqlite", new_place(server)
    with Archive(first) as archive:
        archive.record_many(
            Measurement(f"{n}", "rtt", "ä>ß", n / 7, "s", n * 60.0, "x", "w", {"n": n})
            for n in range(3000)
        )
    assert main(["archive", "copy", str(first), url]) == 0
    assert main(["archive", "copy", url, str(back)]) == 0
    with Archive(first) as one, Archive(back) as other:
        assert one.after(0, limit=5000) == other.after(0, limit=5000)
