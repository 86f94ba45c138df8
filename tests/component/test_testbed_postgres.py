"""A PostgreSQL server of one's own: real, private, and gone when it is not wanted."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
from postgres_world import server_in

from examples.testbed import leftovers
from examples.testbed.postgres import Postgres
from network_provisioner.errors import AdonError, InputError, MissingError

pytestmark = pytest.mark.component

_STARTER = """
import sys
from pathlib import Path
sys.path[:0] = sys.argv[2:]
from postgres_world import server_in
server = server_in(Path(sys.argv[1]))
server.start()
print(server.pid, flush=True)
sys.stdin.read()
"""


def segments() -> set[str]:
    """Ids of System-V memory on this machine."""
    rows = Path("/proc/sysvipc/shm").read_text(encoding="ascii").splitlines()[1:]
    return {row.split()[1] for row in rows}


def segment(server: Postgres) -> str:
    """The one that a server has, or had when it was killed."""
    data = Path(psycopg.conninfo.conninfo_to_dict(server.url)["host"]) / "data"
    return (data / "postmaster.pid").read_text(encoding="ascii").splitlines()[6].split()[1]


def count(server: Postgres) -> int:
    with psycopg.connect(server.url) as db:
        db.execute("CREATE TABLE IF NOT EXISTS t (x INTEGER)")
        db.execute("INSERT INTO t VALUES (1)")
        row = db.execute("SELECT count(*) FROM t").fetchone()
    assert row is not None
    return int(row[0])


@pytest.mark.parametrize("durable", [False, pytest.param(True, marks=pytest.mark.long)])
def test_data_outlive_stop_and_kill(tmp_path: Path, durable: bool) -> None:
    server = server_in(tmp_path / "pg", durable=durable)
    server.start()
    assert count(server) == 1 and segment(server) in segments()
    server.stop()
    assert server.processes() == []
    server.start()
    assert count(server) == 2
    with psycopg.connect(server.url):  # who is connected does not keep it from ending
        mine = segment(server)
        server.kill()
    assert server.processes() == [] and mine not in segments()
    server.start()
    assert count(server) == 3
    server.stop()
    server.stop()


@pytest.mark.long
def test_it_ends_with_who_started_it(tmp_path: Path) -> None:
    starter = subprocess.Popen(
        [sys.executable, "-c", _STARTER, str(tmp_path / "pg"), *sys.path], text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    with starter:
        assert starter.stdout is not None
        server = leftovers.identify(int(starter.stdout.readline()))
        assert server is not None
        starter.kill()
    again = server_in(tmp_path / "pg")
    assert leftovers.wait_gone([server, *again.processes()], 240.0) == []
    mine = segment(again)
    again.start()
    assert count(again) == 1
    again.stop()
    assert mine not in segments()


@pytest.mark.long
def test_over_loopback_it_wants_its_password(tmp_path: Path) -> None:
    with server_in(tmp_path / "pg", tcp=True) as server:
        psycopg.connect(server.tcp_url, password=server.password).close()
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            psycopg.connect(server.tcp_url, password="guess")
        assert (tmp_path / "pg").stat().st_mode & 0o077 == 0


@pytest.mark.long
def test_a_server_that_cannot_start(tmp_path: Path) -> None:
    with pytest.raises(MissingError, match="postgres is not in"):
        Postgres(tmp_path, tmp_path).start()
    with pytest.raises(InputError, match=r"expected at most 9\d bytes"):
        Postgres(tmp_path / ("x" * 100), tmp_path)
    server = server_in(tmp_path / "pg")
    server.start()
    server.stop()
    (tmp_path / "pg/data/PG_VERSION").write_text("9.6\n")
    with pytest.raises(AdonError, match=r"PostgreSQL did not get ready: .*9\.6"):
        server.start()
    assert server.processes() == []
