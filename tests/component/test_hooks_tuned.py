"""Tuned transfers and deferred ones, by the programs that they are meant for: DAGMan reads what PRE
wrote, pegasus-transfer finds our tools, GridFTP servers see the streams."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hooks_world import PATIENT_S, POST, PRE, journal, write_config
from http_load import broker_process
from network_world import demo_network
from Pegasus import transfer as pegasus_transfer
from planned_world import WORKFLOW, File, Planned

from adon.machine import packages
from condor_plugins import dagman
from examples.testbed.gridftp import GridFtp, endpoints
from examples.testbed.pool import Pool
from examples.testbed.poolconfig import SiteSpec
from network_provisioner.client import BrokerClient
from network_provisioner.model import TransitRequest, TransitState
from network_provisioner.topologies.data import topology_to_dict
from pegasus_hooks import submitdir, transferlist, tuning
from pegasus_hooks.tuning import Wanted

pytestmark = pytest.mark.component
TRANSFER = Path(pegasus_transfer.__file__).parent / "cli" / "pegasus-transfer.py"
JOB = "stage_inter_local_count_ID2_0"
SIZE = 3_000_000
STREAMS, BUFFER_BYTES = 7, 100_000  # nobody's defaults, and less than any kernel's limit
CONFIG = {
    "topology": topology_to_dict(demo_network()),
    "controller": {"driver": "simulated"},
    "templates": {
        "default": {
            # One at a time from switch to switch.
            "qspec": {"min_throughput": "150 Mb/s"},
            "rspec": {"max_throughput": "1 Gb/s"},
            "patience": "10 min",
            "when_queued": "defer",
            "break_even": 0,
            "tuning": {"streams": STREAMS, "buffer": BUFFER_BYTES, "threads": 3},
        },
    },
}  # fmt: skip


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[GridFtp]:
    programs = packages.ensure("gridftp", progress=print) / "wrap"
    grid = GridFtp(endpoints(), tmp_path / "gridftp", programs)
    (tmp_path / "gridftp").mkdir()
    grid.start()
    yield grid
    grid.stop()


def environment_of(submit_file: Path) -> dict[str, str]:
    """As HTCondor would set it; the fixture's words have no quotes in them but for one."""
    line = next(x for x in submit_file.read_text().splitlines() if x.startswith("environment"))
    words = line.partition('"')[2][:-1].split(" ")
    return dict(word.split("=", 1) for word in words if "=" in word)


@pytest.mark.parametrize("tuned", [True, False])
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
    want = Wanted(STREAMS, BUFFER_BYTES) if tuned else Wanted()
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

    await_that(logged, "a server's word of the transfer")  # its client may be gone before it
    moved = logged()
    assert {x["STREAMS"] for x in moved} == {str(STREAMS if tuned else 4)}
    # Linux gives, and tells, twice what it is asked for (man 7 socket).
    assert ({x["BUFFER"] for x in moved} == {str(2 * BUFFER_BYTES)}) is tuned


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    condor = packages.ensure("condor", progress=lambda _line: None)
    sites = {"mu": SiteSpec(workers=1)}
    with Pool(tmp_path_factory.mktemp("pool"), condor, sites) as found:
        yield found


def await_that(holds: Callable[[], object], what: str) -> None:
    until = time.monotonic() + 300.0
    while not holds():
        assert time.monotonic() < until, what
        time.sleep(0.2)


def test_dagman_asks_again_and_submits_what_pre_wrote(pool: Pool, tmp_path: Path) -> None:
    """The job prints its own environment and arguments."""
    plan = Planned(tmp_path / "run")
    far = File("f", "mu", "gsiftp://a/f", "tacc", "gsiftp://b/f", 10**9)
    file = plan.transfer_job(JOB, [far])
    output = file.with_suffix(".out")
    tell = tmp_path / "tell"
    tell.write_text('#!/bin/sh\necho "$@"\nenv\n')
    tell.chmod(0o755)
    text = file.read_text().replace("executable = /opt/pegasus/bin/x", f"executable = {tell}")
    file.write_text(text.replace("priority = 700", f"output = {output}\nerror = {output}.err"))
    with broker_process(tmp_path, CONFIG) as url:
        hooks = write_config(tmp_path / "hooks.json", url)
        script = f"{sys.executable} -I -S {{}} --config {hooks} $JOB $RETRY"
        dag = plan.where / "mini-0.dag"
        dag.write_text(
            f"JOB {JOB} 00/00/{JOB}.sub\n"
            f"SCRIPT DEFER 4 1 PRE {JOB} {script.format(PRE)} $MAX_RETRIES\n"
            f"SCRIPT POST {JOB} {script.format(POST)} $RETURN\n"
        )
        client = BrokerClient(url, PATIENT_S)
        client.request(TransitRequest("earlier", "local", "iplant", 10**12))
        cluster = dagman.submit_dag(dag, pool.run)
        seen = lambda: [x for x in journal(plan.where) if x["event"] == "deferred"]  # noqa: E731
        await_that(lambda: len(seen()) > 1, "PRE was not deferred, and called again")
        assert client.get(f"{WORKFLOW}:{JOB}:0:mu-tacc").state is TransitState.QUEUED
        client.release("earlier")
        end = dagman.wait(dag, cluster, 600.0)
        told = dag.with_name(dag.name + ".dagman.out").read_text()
        assert end.state == "success", told[-3000:]
        decision = submitdir.read_json(file.with_name(f"{JOB}.adon.json"))
        assert [p["state"] for p in decision["pairs"]] == ["installed"]
        assert len({x["id"] for x in seen()}) == 1
        ended = client.get(f"{WORKFLOW}:{JOB}:0:mu-tacc")
        assert (ended.state, ended.streams, ended.threads) == (TransitState.RELEASED, STREAMS, 3)
        assert client.health()["live"] == 0
    said = output.read_text().splitlines()
    assert "--threads 3" in said[0]
    assert f"ADON_STREAMS={STREAMS}" in said and f"ADON_BUFFER_BYTES={BUFFER_BYTES}" in said
    (path,) = (line for line in said if line.startswith("PATH="))
    assert path.startswith(f"PATH={tuning.TOOLS}:/opt/site/bin")
