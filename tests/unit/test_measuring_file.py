"""Each broker has a measuring file of its own; one of an earlier version goes to the first."""

from __future__ import annotations

import fcntl
import sqlite3
from pathlib import Path

import pytest

from adon.service.measuring import EARLIER, measuring_file, take_over
from monitors.measurements.run_store import KeptTask, MeasuringStore
from network_provisioner.base.errors import InputError

KEPT = {"mine": KeptTask({"tool": "host"}, "ada", 1.0)}


@pytest.mark.parametrize(
    ("state", "name"),
    [
        ("/here/adon-broker.sqlite", "/here/adon-broker.measuring.sqlite"),
        ("/here/other.db", "/here/other.measuring.sqlite"),
        ("postgresql://adon@db.example.org/campus", "/folder/campus.measuring.sqlite"),
        ("postgresql://adon@a,b:1/campus?sslmode=require", "/folder/campus.measuring.sqlite"),
        ("postgresql://adon@db.example.org", "/folder/adon.measuring.sqlite"),
        ("host=db password=secret dbname='campus'", "/folder/campus.measuring.sqlite"),
        ("service=adon", "/folder/adon.measuring.sqlite"),
        ("postgresql://db.example.org/../x%2Fy", "/folder/..x2Fy.measuring.sqlite"),
    ],
)
def test_it_is_named_after_the_brokers_state(state: str, name: str) -> None:
    assert measuring_file(state, Path("/folder")) == Path(name)


def test_an_earlier_file_goes_to_the_first_broker_that_is_started(tmp_path: Path) -> None:
    earlier = tmp_path / EARLIER
    before = MeasuringStore(earlier)
    before.write(tasks=KEPT)
    first, second = tmp_path / "a.measuring.sqlite", tmp_path / "b.measuring.sqlite"
    with pytest.raises(InputError, match="earlier version has it"):
        take_over(first)
    before.close()
    # As after kill -9: what was written stands beside the file.
    db = sqlite3.connect(earlier, isolation_level=None)
    db.execute("PRAGMA wal_autocheckpoint = 0")
    db.execute("INSERT INTO fact VALUES ('x', '7')")
    copy = {file.name: file.read_bytes() for file in tmp_path.iterdir() if "-shm" not in file.name}
    db.close()
    for name, data in copy.items():
        (tmp_path / name).write_bytes(data)
    assert (tmp_path / f"{EARLIER}-wal").stat().st_size > 0
    assert take_over(first) and not earlier.exists()
    assert not take_over(first) and not take_over(second)
    store = MeasuringStore(first)
    assert (store.tasks(), store.fact("x")) == (KEPT, 7)
    store.close()
    assert not second.exists()


def test_one_that_is_held_stays(tmp_path: Path) -> None:
    MeasuringStore(tmp_path / EARLIER).close()
    with Path(tmp_path / f"{EARLIER}.lock").open("ab") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(InputError, match="earlier version has it"):
            take_over(tmp_path / "a.measuring.sqlite")
    assert take_over(tmp_path / "a.measuring.sqlite")


@pytest.mark.parametrize("damage", [b'{"tool": \xff\xfe}', b"[]", b"nothing"])
def test_a_damaged_task_costs_only_itself(tmp_path: Path, damage: bytes) -> None:
    store = MeasuringStore(tmp_path / "m.sqlite")
    store.write(facts={"x": 7, "y": 8}, tasks={**KEPT, "other": KEPT["mine"]})
    store._db.execute("UPDATE task SET body = CAST(? AS TEXT) WHERE name = 'other'", [damage])
    store._db.execute("UPDATE fact SET value = CAST(? AS TEXT) WHERE name = 'y'", [b"{\xff"])
    assert (store.tasks(), store.fact("x"), store.fact("y")) == (KEPT, 7, None)
    store.close()
