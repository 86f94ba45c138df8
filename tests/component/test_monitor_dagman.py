"""The monitors beside a real DAGMan on a real pool: done, failed and rescued, removed, DAGs within
DAGs; and what seldom happens to a DAGMan and its logs."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest
from http_load import CONFIG, broker_process
from waiting import until

from examples.testbed.pool import Pool
from examples.testbed.poolconfig import SiteSpec
from monitors.archive.archive import Archive
from monitors.jobs.condor import Schedd
from monitors.jobs.jobs import Outcome
from monitors.workflows.analysis import READ, FailedTask, analyse
from monitors.workflows.discovery import CondorQueue, FoundWorkflow
from monitors.workflows.follower import Follower
from monitors.workflows.inquiries import Inquiries, inquiry_into
from monitors.workflows.logs.status import Status, WorkflowState
from monitors.workflows.planned.sub_workflows import derived_uuid
from monitors.workflows.planned.submit_dir import JobKind, SubmitDir
from monitors.workflows.report import timeline
from network_provisioner.base.errors import AdonError

pytestmark = pytest.mark.component
POOL = {"mu": SiteSpec(workers=2)}  # of the fixture `pool`

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
    output = pool.run(["condor_submit_dag", "-update_submit", "wf-0.dag"], cwd=folder)
    match = re.search(r"cluster (\d+)", output)
    assert match is not None, output
    return match[1]


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
    assert seen[-1].state is WorkflowState.DONE
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

    times = {t.job.name: t for t in timeline(folder)}
    assert len(times) == 4
    assert times["stage_in_0"].job.kind is JobKind.STAGE_IN
    assert all(t.outcome is Outcome.DONE and t.job.site == "mu" for t in times.values())
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
    assert (seen[-1].state, seen[-1].fail, seen[-1].futile) == (WorkflowState.FAILED, 1, 3)
    assert archive.query("runtime") == []

    (folder / "stop").unlink()
    submit(pool, folder)
    thread, seen = follow(folder, archive)  # begins while the old end is all there is to read
    thread.join(WAIT_S)
    assert not thread.is_alive()
    assert seen[-1].state is WorkflowState.DONE
    states = [m.details["state"] for m in archive.query("status")]
    assert states.count("failed") == states.count("done") == 1
    assert [t.number for t in timeline(folder) if t.job.name == "stage_in_0"] == [0, 1]


CLUSTER = """\
#!/bin/sh
for task in ID1 ID2; do
    code=0; test $task = ID1 || code=7
    start=$(date -u +%Y-%m-%dT%H:%M:%S.%3N+00:00)
    sleep 0.3
    printf '%s\\n' '- invocation: True' "  start: $start" '  duration: 2.500' \
        '  transformation: "test::count:1.0"' "  derivation: \\"$task\\"" '  mainjob:' \
        "    start: $start" '    duration: 0.300' '    status:' "      raw: $((code * 256))" \
        '  files:' '    stderr:' '      size: 9' '      data: |' "        no leaves" \
        '    metadata:' '      size: 0'
done
exit 5
"""


def test_the_tasks_of_a_clustered_job(pool: Pool, tmp_path: Path, archive: Archive) -> None:
    folder = plan(tmp_path / "run")
    (folder / "job.sh").write_text(CLUSTER)
    text = (folder / "left.sub").read_text().replace("test::left:1.0", "pegasus::seqexec")
    (folder / "left.sub").write_text(text)
    (folder / "wf-0.dag").write_text("JOB left left.sub\n")
    thread, statuses = follow(folder, archive)
    submit(pool, folder)
    thread.join(WAIT_S)
    assert not thread.is_alive()
    assert statuses[-1].state is WorkflowState.FAILED
    (runtime,) = archive.query("runtime")
    assert (runtime.subject, runtime.value) == ("test::count:1.0@mu", 0.3)
    measurements = [m for metric in READ for m in archive.query(metric)]
    (failed,) = analyse(measurements).failures
    assert failed.failed_tasks == [FailedTask("ID2", "test::count:1.0", 7)]
    assert (failed.exitcode, failed.stderr) == (7, "no leaves")


# ------------------------------------------------------------------ DAGs within DAGs

LOCAL_SUB = """\
executable = {folder}/job.sh
universe = local
log = {folder}/jobs.log
output = {folder}/$(cluster).out
queue
"""


def dags(folder: Path) -> Path:
    """A DAG with one inside it beside it, and one inside that in a directory of its own. Its jobs
    wait for a file "go": what has ended before it is looked for is not found."""
    folder.mkdir()
    (folder / "job.sh").write_text(
        f"#!/bin/sh\nwhile [ ! -e {folder}/go ]; do sleep 0.2; done\nexec sleep 1\n"
    )
    (folder / "job.sh").chmod(0o755)
    (folder / "job.sub").write_text(LOCAL_SUB.format(folder=folder))
    (folder / "deep").mkdir()
    (folder / "deep" / "deep.dag").write_text(f"JOB d {folder}/job.sub\n")
    (folder / "inner.dag").write_text(
        "JOB b job.sub\nSUBDAG EXTERNAL deeper deep.dag DIR deep\nPARENT b CHILD deeper\n"
    )
    (folder / "outer.dag").write_text(
        "JOB a job.sub\nSUBDAG EXTERNAL within inner.dag\nPARENT a CHILD within\n"
    )
    return folder


def submit_outer(pool: Pool, folder: Path) -> str:
    output = pool.run(["condor_submit_dag", "-f", "outer.dag"], cwd=folder)
    match = re.search(r"cluster (\d+)", output)
    assert match is not None, output
    return match[1]


def asking(pool: Pool) -> CondorQueue:
    return CondorQueue("", lambda command: pool.run(list(command)))


def test_dags_within_dags_have_a_status_each(pool: Pool, tmp_path: Path, archive: Archive) -> None:
    folder = dags(tmp_path / "run")
    submit_outer(pool, folder)
    workflow = FoundWorkflow(folder, "outer.dag")
    assert workflow in asking(pool).observe()
    statuses: list[tuple[str, Status]] = []

    def on_status(submit_dir: SubmitDir, status: Status) -> None:
        statuses.append((submit_dir.name, status))

    follower = Follower((), archive, on_status=on_status)
    follower.tree.take_in(workflow)
    assert follower.poll() is False
    (folder / "go").touch()
    thread = threading.Thread(target=follower.run, daemon=True)
    thread.start()
    thread.join(WAIT_S)
    assert not thread.is_alive()
    last = dict(statuses)
    assert {name: (s.state, s.done, s.total) for name, s in last.items()} == {
        "outer": (WorkflowState.DONE, 2, 2),
        "inner": (WorkflowState.DONE, 2, 2),
        "deep": (WorkflowState.DONE, 1, 1),
    }
    (outer,) = follower.tree.roots
    assert follower.tree.total_of(outer).fields()["done"] == 5
    ids = {m.details["name"]: m.subject for m in archive.query("workflow")}
    assert ids["inner"] == derived_uuid(ids["outer"], "within")
    assert ids["deep"] == derived_uuid(ids["inner"], "deeper")
    assert {m.details["root"] for m in archive.query("status")} == {ids["outer"]}
    assert {m.workflow: m.details["job"] for m in archive.query("job")}[ids["deep"]] == "d"


def test_a_removed_dag_ends_with_all_inside_it(
    pool: Pool, tmp_path: Path, archive: Archive
) -> None:
    folder = dags(tmp_path / "run")
    (folder / "job.sh").write_text(
        "#!/bin/sh\n[ -e going ] && exec sleep 600\n: > going\n"  # the second job goes on
    )
    cluster = submit_outer(pool, folder)
    follower = Follower((), archive)
    follower.tree.take_in(FoundWorkflow(folder, "outer.dag"))
    thread = threading.Thread(target=follower.run, daemon=True)
    thread.start()
    # Both have a job in the queue: the inner one its own, the outer one the inner one.
    until(lambda: len({m.subject for m in archive.query("status") if m.details["in_queue"]}) == 2)
    pool.run(["condor_rm", cluster])
    thread.join(WAIT_S)
    assert not thread.is_alive()
    last = {m.subject: m.details["state"] for m in archive.query("status")}
    assert len(last) == 2 and set(last.values()) == {"removed"}


# ------------------------------------------------------------------ what seldom happens


def _changes(archive: Archive) -> dict[str, list[str]]:
    """The ids of all changes of each workflow, in their order."""
    ids: dict[str, list[str]] = {}
    for status in archive.query("status"):
        ids.setdefault(status.subject, []).append(status.id)
    return ids


def _pid(out: Path) -> int:
    pids = re.findall(r"\*\* PID = (\d+)", out.read_text())
    return int(pids[-1])


def _stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


@pytest.mark.long
def test_a_killed_dagman_is_followed_into_its_recovery(
    pool: Pool, tmp_path: Path, archive: Archive
) -> None:
    """The schedd starts it again, and nothing was lost or told twice."""
    folder = dags(tmp_path / "run")
    (folder / "job.sh").write_text(
        "#!/bin/sh\nmkdir first && exit 0\n"  # the others wait
        f"while [ ! -e {folder}/go ]; do sleep 0.2; done\n"
    )
    submit_outer(pool, folder)
    follower = Follower((), archive)
    follower.tree.take_in(FoundWorkflow(folder, "outer.dag"))
    thread = threading.Thread(target=follower.run, daemon=True)
    thread.start()
    until((folder / "inner.dag.dagman.out").exists)
    os.kill(_pid(folder / "outer.dag.dagman.out"), signal.SIGKILL)
    (folder / "go").touch()
    thread.join(WAIT_S)
    assert not thread.is_alive()
    (outer,) = follower.tree.roots
    assert outer.status is not None and outer.status.state is WorkflowState.DONE
    with Archive(":memory:") as afterwards:
        again = Follower((), afterwards)
        again.tree.take_in(FoundWorkflow(folder, "outer.dag"))
        again.run()
        assert _changes(afterwards) == _changes(archive)


@pytest.mark.long
def test_a_log_that_is_rotated_under_dagman(pool: Pool, tmp_path: Path, archive: Archive) -> None:
    """DAGMan keeps its log open: one is copied and emptied, as logrotate's copytruncate does, one
    is moved away while DAGMan goes on writing to it. Followers come and go meanwhile."""
    folder = tmp_path / "run"
    folder.mkdir()
    jobs = [f"j{number}" for number in range(8)]
    waited = {"j4": "1", "j7": "2"}
    # Two of them wait for what has to happen before the workflow ends.
    (folder / "job.sh").write_text("#!/bin/sh\nwhile [ ! -e $1 ]; do sleep 0.1; done\n")
    (folder / "job.sh").chmod(0o755)
    (folder / "job.sub").write_text(f"arguments = $(after)\n{LOCAL_SUB.format(folder=folder)}")
    (folder / "outer.dag").write_text(
        "".join(f"JOB {job} job.sub\n" for job in jobs)
        + "".join(f"PARENT {a} CHILD {b}\n" for a, b in itertools.pairwise(jobs))
        + "".join(f'VARS {job} after="{waited.get(job, "job.sh")}"\n' for job in jobs)
    )
    submit_outer(pool, folder)
    out = folder / "outer.dag.dagman.out"
    deadline = time.monotonic() + WAIT_S
    aside = 0
    for turn in itertools.count():
        assert time.monotonic() < deadline
        if turn % 5 == 0:
            follower = Follower((), archive)
            follower.tree.take_in(FoundWorkflow(folder, "outer.dag"))
        if follower.poll():
            break
        done = max((m.details["done"] for m in archive.query("status")), default=0)
        if done >= 2 and aside == 0:
            aside += 1
            dagman = _pid(out)
            os.kill(dagman, signal.SIGSTOP)  # what is written in between is lost with copytruncate
            try:
                until(partial(_stopped, dagman))
                shutil.copyfile(out, out.with_name(f"{out.name}.{aside}"))
                os.truncate(out, 0)
            finally:
                os.kill(dagman, signal.SIGCONT)
            (folder / "1").touch()
        if done >= 5 and aside == 1:
            aside += 1
            out.rename(out.with_name(f"{out.name}.{aside}"))
            out.touch()
            (folder / "2").touch()
        time.sleep(0.1)
    assert aside == 2
    counts = [m.details["done"] for m in archive.query("status")]
    assert sorted(set(counts)) == list(range(9)) and counts == sorted(counts)
    with Archive(":memory:") as afterwards:
        again = Follower((), afterwards)
        again.tree.take_in(FoundWorkflow(folder, "outer.dag"))
        again.run()
        assert _changes(afterwards) == _changes(archive)


def snapshot(folder: Path, into: Path) -> Path:
    """The run as it stands, which then loses its machine: nothing more is ever written there."""
    shutil.copytree(folder, into)
    for file in into.iterdir():
        os.utime(file, (1.0, 1.0))  # long ago
    return into


@pytest.mark.long
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
        inquiry = inquiry_into(Schedd(run), 0.0, 0.2)
        inquiries = Inquiries(dagmans=inquiry, silent_s=0.0)  # it was submitted just now
        stop = threading.Timer(within_s, lambda: None)
        stop.start()
        (last,) = Follower(lost, archive, inquiries=inquiries).run(stop.finished).values()
        stop.cancel()
        return last

    there = end_of(archive, within_s=30.0)
    assert there is not None and there.state is WorkflowState.RUNNING  # it is in the queue
    pool.run(["condor_rm", cluster])
    until(lambda: not pool.run(["condor_q", cluster, "-af", "ClusterId"]).strip())
    removed = end_of(archive)
    assert removed is not None and removed.state is WorkflowState.REMOVED
    assert "condor_rm" in removed.reason
    forgets = True
    with Archive(":memory:") as another:
        gone = end_of(another)
    assert gone is not None and gone.state is WorkflowState.FAILED
    assert f"job {cluster}" in gone.reason and "neither in the queue" in gone.reason


@pytest.mark.long
def test_a_broker_is_sent_what_a_command_follows(
    pool: Pool, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = dags(tmp_path / "run")
    submit_outer(pool, folder)
    with broker_process(tmp_path_factory.mktemp("broker"), CONFIG) as url:
        env = pool.env() | {"PYTHONPATH": str(Path(__file__).parents[2])}
        command = [sys.executable, "-m", "adon", "monitor", "run", "--all-users", "--broker", url,
                   "--json"]  # fmt: skip
        with subprocess.Popen(
            pool.command(command), env=env, cwd=tmp_path, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, text=True, start_new_session=True,
        ) as monitor:  # fmt: skip
            try:
                assert monitor.stdout is not None
                lines = [json.loads(monitor.stdout.readline())]
                (folder / "go").touch()
                lines += map(json.loads, monitor.stdout)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(monitor.pid, signal.SIGKILL)
        ours = [line for line in lines if line["dir"].startswith(str(tmp_path))]
        last = {line["workflow"]: line for line in ours}
        assert {line["state"] for line in last.values()} == {"done"} and len(last) == 3
        assert last["outer"]["total"]["done"] == 5
        with urllib.request.urlopen(f"{url}/v1/measurements?metric=status&limit=10000") as answer:
            measurements = json.load(answer)["measurements"]
        states = {m["subject"]: m["details"]["state"] for m in measurements}
        assert {line["id"]: line["state"] for line in last.values()}.items() <= states.items()


def test_held_and_removed_jobs_splices_and_processes(
    pool: Pool, archive: Archive, tmp_path: Path
) -> None:
    """A job whose input is not there is put on hold, and then removed."""
    folder = tmp_path / "garden"
    folder.mkdir()
    run = "executable = /bin/true\nrequest_memory = 32\nrequest_disk = 100\nlog_xml = True\n"
    lacks = "should_transfer_files = YES\ntransfer_input_files = /nowhere/leaves.txt\n"
    here = "should_transfer_files = NO\nlog = garden.log\n"
    (folder / "lacks.sub").write_text(f"{run}{lacks}queue\n")
    (folder / "many.sub").write_text(f"{run}{here}queue 2\n")
    (folder / "bed.dag").write_text("JOB one many.sub\n")
    (folder / "wf-0.dag").write_text("SPLICE bed bed.dag\nJOB lacks lacks.sub\n")
    submit(pool, folder)
    thread, _ = follow(folder, archive)
    (only,) = until(lambda: [m for m in archive.query("held") if m.value], "a job to be held")
    (job,) = only.details["held"]
    assert (job["job"], job["code"], job["subcode"]) == ("lacks", 13, 2)
    assert "/nowhere/leaves.txt" in job["reason"]
    pool.run(["condor_rm", "-constraint", 'DAGNodeName == "lacks"'])
    thread.join(WAIT_S)
    analysis = analyse(archive.query("job"))
    assert (analysis.attempts, analysis.retries, analysis.outcomes) == (
        3,
        0,
        {"done": 2, "removed": 1},
    )
    (failed,) = analysis.failures
    assert "condor_rm" in failed.reason and failed.hold is not None and failed.hold.code == 13
    jobs = [m.details["job"] for m in archive.query("job") if m.details["job"] != "lacks"]
    assert jobs == ["bed+one", "bed+one"]
    # What DAGMan says of the events is the same, where their log is lost.
    (folder / "wf-0.dag.nodes.log").unlink()
    with Archive(":memory:") as other:
        Follower(folder, other).poll()
        assert analyse(other.query("job")).outcomes == analysis.outcomes
