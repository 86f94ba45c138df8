"""A PostgreSQL server of one's own: real, private, and gone when it is not wanted."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest
from postgres_world import server_in

from examples.testbed.postgres import Postgres

pytestmark = pytest.mark.component


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


def test_data_outlive_stop_and_kill(tmp_path: Path) -> None:
    server = server_in(tmp_path / "pg", durable=True)
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
