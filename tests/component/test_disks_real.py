"""A process that writes, an agent that sees it, and a broker that archives it: real ones."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from test_measuring_real import World, world

from adon.cli.main import main

__all__ = ["world"]
pytestmark = pytest.mark.component

ROWS = "SELECT details FROM measurement WHERE metric = 'disk_io'"
# An agent that reports what its disks do each few seconds.
OFTEN = """
import sys
from adon.cli.main import main
from monitors.measurements.agent import host_reports
host_reports.PERIOD_S = 3.0
sys.exit(main())
"""
WRITER = """
import os, sys
from pathlib import Path

with open(sys.argv[1], "wb") as file:
    while os.getppid() == int(sys.argv[2]):
        file.seek(0)
        file.write(bytes(1 << 20))
        file.flush()
        os.fsync(file.fileno())
        print(Path("/proc/self/io").read_text().split("write_bytes: ")[1].split()[0], flush=True)
"""


def test_what_a_process_writes_is_archived(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world.agent_config("mu", disks=True)
    world.start("broker")
    words = [sys.executable, "-c", WRITER, str(tmp_path / "written"), str(os.getpid())]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as writer:
        try:
            assert writer.stdout is not None
            if int(writer.stdout.readline()) == 0:
                pytest.skip(f"{tmp_path} is on no disk")
            drain = threading.Thread(target=writer.stdout.read, daemon=True)
            drain.start()
            world.start("mu", ("-c", OFTEN))

            def written_rows() -> list[Any]:
                records = [json.loads(details) for (details,) in world.rows(ROWS)]
                rows = [p for row in records for p in row["processes"] if p[1] == writer.pid]
                return rows if sum(p[3] for p in rows) >= 8 * 2**20 else []

            processes = world.until(written_rows, "what the process wrote is archived")
        finally:
            writer.kill()
    assert all(p[0].startswith("python") and p[3] >= 0 for p in processes)
    archive = str(tmp_path / "archive.sqlite")
    assert main(["monitor", "disks", "--host", "mu", "--json", "--archive", archive]) == 0
    (host,) = json.loads(capsys.readouterr().out)["hosts"]
    assert host["host"] == "mu" and host["seconds"] >= 1 and sum(host["writes"]) > 0
    world.until(lambda: "I/O wait is " in world.log("mu"), "the agent says so itself")
