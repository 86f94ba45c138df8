"""What daemons log, and where."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from api_rig import application, bearer, keyring
from broker_rig import Rig, code_of, demo_network
from fastapi.testclient import TestClient

from network_provisioner.base.daemon_log import MOST_BYTES
from network_provisioner.topology.drains import Drain

LOGS = """
import logging, sys
from pathlib import Path
from network_provisioner.base.daemon_log import log_to
log_to(Path(sys.argv[1]) if sys.argv[1:] else None)
log = logging.getLogger("monitors.x")
log.debug("no"); log.info("one\\x1b[2J"); log.warning("two"); logging.getLogger("else").info("no")
try:
    1 / 0
except ZeroDivisionError:
    log.exception("three")
"""


def logged(*words: str, journal: bool = False) -> str:
    read, write = os.pipe()
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    if journal:
        status = os.fstat(write)
        env["JOURNAL_STREAM"] = f"{status.st_dev}:{status.st_ino}"
    subprocess.run([sys.executable, "-c", LOGS, *words], stderr=write, env=env, check=True)
    os.close(write)
    with os.fdopen(read) as stream:
        return stream.read()


def test_time_and_level_stand_before_each_line() -> None:
    lines = logged().splitlines()
    time = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d"
    assert re.fullmatch(rf"{time} INFO one\\x1b\[2J", lines[0])
    assert re.fullmatch(rf"{time} WARNING two", lines[1])
    assert all(re.match(rf"{time} ERROR ", line) for line in lines[2:])
    assert "ZeroDivisionError" in lines[-1]


def test_the_journal_gets_priorities_and_a_file_everything(tmp_path: Path) -> None:
    lines = logged(journal=True).splitlines()
    assert lines[:2] == ["<6>one\\x1b[2J", "<4>two"] and lines[2] == "<3>three"
    file = tmp_path / "log"
    file.write_bytes(b"x" * MOST_BYTES)
    assert logged(str(file), journal=True) == ""
    assert " INFO one" in file.read_text()
    assert (tmp_path / "log.1").stat().st_size == MOST_BYTES


@pytest.fixture
def info(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    with caplog.at_level(logging.INFO, logger="network_provisioner"):
        yield caplog


def test_each_event_of_a_transit_is_a_line(tmp_path: Path, info: pytest.LogCaptureFixture) -> None:
    rig = Rig(tmp_path / "s", demo_network(l3="100 Mb/s"), matches=True)
    rig.ask("a", "mu", "tacc", min_bps=50e6, user="ada")
    code_of(rig.ask, "b", "mu", "mars")
    rig.ask("c", "mu", "iplant", template="soykb", min_bps=150e6, max_bps=150e6)
    rig.broker.drain(Drain("s1-s2", 0.0))
    rig.broker.change("a", min_bps=40e6)
    rig.broker.release("a", 10**9, 80.0)
    rig.let_pass(1)
    lines = [
        re.sub(r"T\d\d:\d\d:\d\dZ", "", record.getMessage())
        for record in info.records
        if record.levelno == logging.INFO
    ]
    until, over = "until 1970-01-12", "over mu-s1-r1-s2-tacc"
    assert [line.partition("): ")[0] for line in lines] == [
        f"granted a mu > tacc at least 50 Mb/s over mu-s1-s2-tacc {until} (user ada, default",
        "refused b mu > mars (user -",
        f"moved a mu > tacc at least 50 Mb/s {over} {until} (user ada, default",
        f"granted c mu > iplant at least 150 Mb/s over mu-s1-s2-iplant {until} (user -, soykb",
        "queued c mu > iplant at least 150 Mb/s (user -, soykb",
        f"changed a mu > tacc at least 40 Mb/s {over} {until} (user ada, default",
        f"released a mu > tacc at least 40 Mb/s {over} after 1 GB in 80.0 s (user ada, default",
    ]


def test_who_changed_what_is_a_line(tmp_path: Path, info: pytest.LogCaptureFixture) -> None:
    rig = Rig(tmp_path / "s")
    with TestClient(application(rig, keyring(rig))) as web:
        body = {"element": "r1", "note": "optics"}
        web.post("/v1/drains", json=body, headers=bearer("engineer"))
        web.delete("/v1/drains/r1", headers=bearer("researcher"))
        web.get("/v1/drains", headers=bearer("engineer"))
        web.post("/v1/templates/match", json={"application": "x"}, headers=bearer("engineer"))
        transit = {"id": "a", "src": "mu", "dst": "tacc"}
        web.post("/v1/transits", json=transit, headers=bearer("researcher"))
        web.patch("/v1/transits/a", json={"max_bps": 1e8}, headers=bearer("researcher"))
        web.post("/v1/transits/a/release", headers=bearer("engineer"))
    lines = [record.getMessage() for record in info.records if record.name.endswith(".audit")]
    assert [re.sub(r"\s", "", line) for line in lines] == [
        'POST/v1/drains{"element":"r1","note":"optics"}byengineer-1(engineer)fromtestclient:200',
        "DELETE/v1/drains/r1byresearcher-1(researcher)fromtestclient:403",
        "releaseaofresearcher-1byengineer-1(engineer)",
    ]
