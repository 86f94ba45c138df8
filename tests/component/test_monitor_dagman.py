"""The monitors beside a real DAGMan on a real pool: done, failed and rescued, removed."""

from __future__ import annotations

import json
import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from adon.machine import packages
from examples.testbed.pool import Pool
from examples.testbed.poolconfig import SiteSpec
from monitors.archive import Archive
from monitors.follow.condor import Schedd
from monitors.follow.elsewhere import Elsewhere, inquiry_into
from monitors.follow.follower import Follower
from monitors.jobs.attempts import Outcome
from monitors.logs.submit_dir import JobKind, SubmitDir
from monitors.status import State, Status
from monitors.workflows.timeline import timeline
from network_provisioner.errors import AdonError

pytestmark = pytest.mark.component

WAIT_S = 300.0

JOB = """\
#!/bin/sh
start=$(date +%s.%N)
[ ! -e {stop} ] || exit 3
sleep 0.3
echo "adon-job-record: {{\\"start\\": $start, \\"end\\": $(date +%s.%N), \\"exitcode\\": 0,\
 \\"inputs\\": {{\\"reads.fq\\": 5000}}, \\"outputs\\": {{}}}}"
"""
SUB = """\
executable = {script}
universe = vanilla
should_transfer_files = NO
requirements = PegasusSite == "{site}"
output = {folder}/{name}.out
error = {folder}/{name}.err
log = {folder}/wf-0.log
request_memory = 32
request_disk = 100
+pegasus_site = "{site}"
+pegasus_wf_xformation = "test::{name}:1.0"
+pegasus_job_class = {job_class}
queue
"""


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    condor = packages.ensure("condor", progress=print)
    with Pool(tmp_path_factory.mktemp("pool"), condor, {"mu": SiteSpec(workers=2)}) as up:
        yield up


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[Archive]:
    with Archive(tmp_path / "archive.sqlite") as opened:
        yield opened


def plan(folder: Path) -> Path:
    """A diamond: one transfer job, two compute jobs, one more compute job with a post script."""
    folder.mkdir()
    script = folder / "job.sh"
    script.write_text(JOB.format(stop=folder / "stop"))
    script.chmod(0o755)
    for name, job_class in {"stage_in_0": 2, "left": 1, "right": 1, "join": 1}.items():
        text = SUB.format(script=script, site="mu", folder=folder, name=name, job_class=job_class)
        (folder / f"{name}.sub").write_text(text)
    (folder / "wf-0.dag").write_text(
        "".join(f"JOB {name} {name}.sub\n" for name in ("stage_in_0", "left", "right", "join"))
        + "SCRIPT POST join /bin/sh -c true\n"
        "PARENT stage_in_0 CHILD left right\nPARENT left right CHILD join\n"
    )
    (folder / "braindump.yml").write_text(
        json.dumps({"wf_uuid": folder.name, "dag": "wf-0.dag", "condor_log": "wf-0.log"})
    )
    return folder


def submit(pool: Pool, folder: Path) -> str:
    said = pool.run(["condor_submit_dag", "-update_submit", "wf-0.dag"], cwd=folder)
    found = re.search(r"cluster (\d+)", said)
    assert found is not None, said
    return found[1]


def follow(folder: Path, archive: Archive) -> tuple[threading.Thread, list[Status]]:
    seen: list[Status] = []

    def on_status(_: SubmitDir, status: Status) -> None:
        seen.append(status)

    follower = Follower(folder, archive, on_status=on_status)
    thread = threading.Thread(target=follower.run, daemon=True)
    thread.start()
    return thread, seen


def test_a_workflow_from_start_to_done(pool: Pool, tmp_path: Path, archive: Archive) -> None:
    folder = plan(tmp_path / "run")
    thread, seen = follow(folder, archive)
    submit(pool, folder)
    thread.join(WAIT_S)
    assert not thread.is_alive()
    assert seen[-1].state is State.DONE
    assert (seen[0].done, seen[-1].done, seen[-1].total) == (0, 4, 4)
    assert seen[-1].percent_done == 100.0
    assert any(status.in_queue for status in seen)
    assert [s.percent_done for s in seen] == sorted(s.percent_done for s in seen)

    runtimes = {m.subject: m for m in archive.query("runtime")}
    assert sorted(runtimes) == ["test::join:1.0@mu", "test::left:1.0@mu", "test::right:1.0@mu"]
    for measured in runtimes.values():
        assert measured.source == "job record"
        assert 0.2 < measured.value < WAIT_S
    rates = archive.query("compute_rate")
    assert len(rates) == 3
    assert rates[0].value == pytest.approx(5000 / runtimes[rates[0].subject].value)
    waits = archive.query("queue_wait", "mu")
    assert len(waits) >= 2
    assert all(wait.value >= 0 for wait in waits)

    # What was followed live is what anyone finds who reads the directory afterwards.
    with Archive(":memory:") as afterwards:
        Follower(folder, afterwards).run()
        for metric in ("status", "runtime", "queue_wait", "compute_rate"):
            assert afterwards.query(metric) == archive.query(metric)

    times = {t.job: t for t in timeline(folder)}
    assert len(times) == 4
    assert times["stage_in_0"].kind is JobKind.STAGE_IN
    assert all(t.status is Outcome.DONE and t.site == "mu" for t in times.values())
    assert all(0 < t.submit <= t.start < t.end for t in times.values())
    assert times["join"].start >= max(times["left"].end, times["right"].end)
    assert any(t.submit % 1 for t in times.values())  # the pool's log has parts of seconds


def test_a_failure_ends_and_its_rescue_is_followed(
    pool: Pool, tmp_path: Path, archive: Archive
) -> None:
    folder = plan(tmp_path / "run")
    (folder / "stop").touch()  # jobs fail while this is there
    thread, seen = follow(folder, archive)
    submit(pool, folder)
    thread.join(WAIT_S)
    assert not thread.is_alive()
    assert (seen[-1].state, seen[-1].fail, seen[-1].futile) == (State.FAILED, 1, 3)
    assert archive.query("runtime") == []

    (folder / "stop").unlink()
    submit(pool, folder)
    thread, seen = follow(folder, archive)  # begins while the old end is all there is to read
    thread.join(WAIT_S)
    assert not thread.is_alive()
    assert seen[-1].state is State.DONE
    states = [m.details["state"] for m in archive.query("status")]
    assert states.count("failed") == states.count("done") == 1
    assert [t.attempt for t in timeline(folder) if t.job == "stage_in_0"] == [0, 1]


def test_a_removal_ends_it(pool: Pool, tmp_path: Path, archive: Archive) -> None:
    folder = plan(tmp_path / "run")
    (folder / "job.sh").write_text("#!/bin/sh\nexec sleep 600\n")
    started = threading.Event()

    def on_status(_: SubmitDir, status: Status) -> None:
        if status.in_queue:
            started.set()

    follower = Follower(folder, archive, on_status=on_status)
    thread = threading.Thread(target=follower.run, daemon=True)
    thread.start()
    cluster = submit(pool, folder)
    assert started.wait(WAIT_S)
    pool.run(["condor_rm", cluster])
    thread.join(WAIT_S)
    assert not thread.is_alive()
    assert archive.query("status")[-1].details["state"] == "removed"


def snapshot(folder: Path, into: Path) -> Path:
    """The run as it stands, which then loses its machine: nothing more is ever written there."""
    shutil.copytree(folder, into)
    for file in into.iterdir():
        os.utime(file, (1.0, 1.0))  # long ago
    return into


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_htcondor_tells_of_a_dagman_that_never_said_how_it_ended(
    pool: Pool, tmp_path: Path, archive: Archive
) -> None:
    folder = plan(tmp_path / "run")
    (folder / "job.sh").write_text("#!/bin/sh\nexec sleep 600\n")
    cluster = submit(pool, folder)
    out = folder / "wf-0.dag.dagman.out"
    until(lambda: out.exists() and "ULOG_EXECUTE" in out.read_text())
    lost = snapshot(folder, tmp_path / "lost")

    forgets = False

    def run(command: Sequence[str]) -> str | None:
        if forgets and command[0] == "condor_history":
            return "[\n]\n"
        try:
            return pool.run(list(command))
        except AdonError:
            return None

    def end_of(archive: Archive, within_s: float = WAIT_S) -> Status | None:
        asked = inquiry_into(Schedd(run), 0.0, 0.2)
        elsewhere = Elsewhere(dagmans=asked, silent_s=0.0)  # it was submitted just now
        stop = threading.Timer(within_s, lambda: None)
        stop.start()
        (last,) = Follower(lost, archive, elsewhere=elsewhere).run(stop.finished).values()
        stop.cancel()
        return last

    there = end_of(archive, within_s=30.0)
    assert there is not None and there.state is State.RUNNING  # it is in the queue
    pool.run(["condor_rm", cluster])
    until(lambda: not pool.run(["condor_q", cluster, "-af", "ClusterId"]).strip())
    removed = end_of(archive)
    assert removed is not None and removed.state is State.REMOVED
    assert "condor_rm" in removed.reason
    forgets = True
    with Archive(":memory:") as another:
        gone = end_of(another)
    assert gone is not None and gone.state is State.FAILED
    assert f"job {cluster}" in gone.reason and "neither in the queue" in gone.reason
