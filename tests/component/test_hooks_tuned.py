"""Tuned transfers: pegasus-transfer finds our tools, GridFTP servers see the streams."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from Pegasus import transfer as pegasus_transfer
from planned_world import File, Planned
from waiting import until

from adon.machine import packages
from examples.soykb.scenario import LAYOUT
from examples.testbed.gridftp import GridFtp, endpoints
from monitors.workflows.planned import transferlist
from pegasus_hooks.prepost import tuning
from pegasus_hooks.prepost.tuning import TransferTuning

pytestmark = pytest.mark.component
TRANSFER = Path(pegasus_transfer.__file__).parent / "cli" / "pegasus-transfer.py"
JOB = "stage_inter_local_count_ID2_0"
SIZE = 3_000_000
STREAMS, BUFFER_BYTES = 7, 100_000  # nobody's defaults, and less than any kernel's limit


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[GridFtp]:
    programs = packages.ensure("gridftp", progress=print) / "wrap"
    grid = GridFtp(endpoints(LAYOUT), tmp_path / "gridftp", programs)
    (tmp_path / "gridftp").mkdir()
    grid.start()
    yield grid
    grid.stop()


def environment_of(submit_file: Path) -> dict[str, str]:
    """As HTCondor would set it; the fixture's words have no quotes in them but for one."""
    line = next(x for x in submit_file.read_text().splitlines() if x.startswith("environment"))
    words = line.partition('"')[2][:-1].split(" ")
    return dict(word.split("=", 1) for word in words if "=" in word)


@pytest.mark.parametrize("tuned", [True, pytest.param(False, marks=pytest.mark.long)])
def test_servers_see_the_streams_that_the_template_wants(
    servers: GridFtp, tmp_path: Path, tuned: bool
) -> None:
    source, target = tmp_path / "raw.fq", tmp_path / "new" / "raw.fq"
    source.write_bytes(os.urandom(SIZE))
    plan = Planned(tmp_path / "run")
    here, there = servers.url("mu") + str(source), servers.url("tacc") + str(target)
    file = plan.transfer_job(JOB, [File(source.name, "mu", here, "tacc", there)])
    listing = file.with_suffix(".in")
    pairs = transferlist.site_pairs(transferlist.read(listing))
    want = TransferTuning(STREAMS, BUFFER_BYTES) if tuned else TransferTuning()
    assert tuning.tune(file, pairs, want) == want.as_json()
    given = environment_of(file)
    theirs = servers.transfer_env()
    # The tools' folder comes first, as in the job, and the real program behind it.
    path = given["PATH"].replace("/opt/site/bin", theirs["PATH"])
    done = subprocess.run(
        [sys.executable, str(TRANSFER), "-f", str(listing), "-n", "1"],
        env={**os.environ, **theirs, **given, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert target.read_bytes() == source.read_bytes()

    def logged() -> list[dict[str, str]]:
        log = servers.transfer_log("mu").read_text() + servers.transfer_log("tacc").read_text()
        lines = [dict(w.split("=", 1) for w in x.split() if "=" in w) for x in log.splitlines()]
        whole = [x for x in lines if "STREAMS" in x]  # and not about to be written
        return [x for x in whole if x.get("NBYTES") == str(SIZE)]

    until(logged, "a server's word of the transfer")  # its client may be gone before it
    moved = logged()
    assert {x["STREAMS"] for x in moved} == {str(STREAMS if tuned else 4)}
    # Linux gives, and tells, twice what it is asked for (man 7 socket).
    assert ({x["BUFFER"] for x in moved} == {str(2 * BUFFER_BYTES)}) is tuned
