"""Real DAGs with hooks on a real pool with a real broker: whatever is killed, removed or held, the
watcher gives everything back; what a job will need is reserved while others run; DAGMan runs PRE
again that was deferred, and submits what it tuned."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from broker_service import BrokerService
from hooks_world import PATIENT_S, POST, PRE, journal, make_submit_dir, move, write_config
from http_load import broker_process
from network_world import demo_network, star
from planned_world import WORKFLOW, File, Planned
from waiting import until

from examples.testbed import dagman
from examples.testbed.pool import Pool
from examples.testbed.poolconfig import SiteSpec
from monitors.watcher import registry
from monitors.workflows.planned import job_files
from network_provisioner.base.errors import BrokerError
from network_provisioner.base.model import Transit, TransitRequest, TransitState
from network_provisioner.client.broker import BrokerClient
from network_provisioner.topology.data import topology_to_dict
from pegasus_hooks.prepost import WATCHER, tuning

pytestmark = pytest.mark.component
POOL = {"mu": SiteSpec(workers=4)}  # of the fixture `pool`

WAIT_S = 300.0
JOB = "stage_in_local_tacc_0_0"
NETWORK = star("mu", "tacc")
SUB = """\
executable = {script}
universe = vanilla
should_transfer_files = NO
requirements = PegasusSite == "mu"
output = {folder}/{job}.out
error = {folder}/{job}.err
log = {folder}/flow-0.log
initialdir = {folder}
request_memory = 32
request_disk = 100
+pegasus_site = "local"
+pegasus_job_class = 2
queue
"""


@pytest.fixture
def service(tmp_path: Path) -> Iterator[BrokerService]:
    with BrokerService(tmp_path, NETWORK) as broker_service:
        yield broker_service


@dataclass
class Flow:
    """A workflow of one transfer job that runs for a while, with real hooks."""

    pool: Pool
    service: BrokerService
    folder: Path
    watch: Path
    cluster: str = ""

    @property
    def id(self) -> str:
        return self.folder.name

    @property
    def transit(self) -> str:
        return f"{self.id}:{JOB}:0:mu-tacc"

    def hook(self, name: str, command: str, after: str = "", before: str = "") -> None:
        """A script that runs a hook, and does something before or after it."""
        python = f"{sys.executable} -I -S"
        script = self.folder / name
        lines = ["#!/bin/sh", before, f'{python} {command} "$@"', "code=$?", after, "exit $code"]
        script.write_text("\n".join(lines) + "\n")
        script.chmod(0o755)

    def submit(self) -> None:
        output = self.pool.run(
            ["condor_submit_dag", "-update_submit", "-f", "flow-0.dag"], cwd=self.folder
        )
        match = re.search(r"cluster (\d+)", output)
        assert match is not None, output
        self.cluster = match[1]

    def job(self, attribute: str = "ClusterId") -> str:
        """An attribute of the transfer job in the queue, empty if it is not there."""
        only = f'DAGNodeName == "{JOB}" && DAGManJobId == {self.cluster}'
        return self.pool.run(["condor_q", "-const", only, "-af", attribute]).strip()

    def running(self) -> str:
        """The cluster of the transfer job, once it runs and has its path, and is watched."""
        until(lambda: self.job("JobStatus") == "2")
        until(lambda: self.watcher() > 0)
        assert [t.id for t in self.service.held(self.id)] != []
        return self.job()

    def held(self) -> list[str]:
        return [t.id for t in self.service.held(self.id)]

    def outcome(self, number: str = "") -> str:
        return self.service.client.get(self.transit + number).usage.outcome

    def known(self, transit_id: str) -> bool:
        try:
            self.service.client.get(transit_id)
        except BrokerError:
            return False
        return True

    def watcher(self) -> int:
        """The process that watches, 0 where none has said yet that it does."""
        return int((self.watch / registry.LOCK).read_text() or "0")

    def dagman(self) -> int:
        """The process that runs the DAG now, 0 for none."""
        text = (self.folder / "flow-0.dag.dagman.out").read_text()
        pids = re.findall(r"\*\* PID = (\d+)", text)
        pid = int(pids[-1]) if pids else 0
        alive = pid and b"-dag" in command_of(pid).lower()
        return pid if alive else 0

    def given_back(self) -> None:
        """Wait until nothing is held any more: somebody gave it back, its lease has not ended."""
        until(lambda: self.service.held(self.id) == [])
        known = self.service.client.list(workflow=self.id)
        assert {t.state for t in known} == {TransitState.RELEASED}

    def end(self) -> None:
        with contextlib.suppress(Exception):
            self.pool.run(["condor_rm", self.cluster])
        with contextlib.suppress(OSError, ValueError):
            if watcher := self.watcher():
                os.kill(watcher, signal.SIGTERM)


@pytest.fixture
def flow(pool: Pool, service: BrokerService, tmp_path: Path) -> Iterator[Flow]:
    """Planned, not submitted."""
    made = plan(pool, service, tmp_path / f"wf-{tmp_path.name}")
    yield made
    made.end()


def plan(pool: Pool, service: BrokerService, folder: Path) -> Flow:
    make_submit_dir(folder, {JOB: [move("reads.fq", "mu", "tacc", 5_000_000_000)]})
    (folder / "braindump.yml").write_text(
        f"wf_uuid: {folder.name}\ndag: flow-0.dag\ncondor_log: flow-0.log\n"
    )
    watch = folder.parent / f"watch-{folder.name}"
    config = folder / "hooks.json"
    config.write_text(
        json.dumps({"broker": service.url, "timeout_s": PATIENT_S, "watch": str(watch)}) + "\n"
    )
    script = folder / "job.sh"
    script.write_text("#!/bin/sh\nwhile [ ! -e go ]; do sleep 0.2; done\nexit $(cat go)\n")
    script.chmod(0o755)
    (folder / f"00/00/{JOB}.sub").write_text(SUB.format(script=script, folder=folder, job=JOB))
    flow = Flow(pool, service, folder, watch)
    flow.hook("pre.sh", f"{PRE} --config {config}")
    flow.hook("post.sh", f"{POST} --config {config}")
    (folder / "flow-0.dag").write_text(
        f"JOB {JOB} 00/00/{JOB}.sub\n"
        f"SCRIPT PRE {JOB} {folder}/pre.sh $JOB $RETRY 1\n"
        f"SCRIPT POST {JOB} {folder}/post.sh $JOB $RETRY $RETURN\n"
    )
    return flow


def command_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


@pytest.mark.long
def test_the_dag_is_removed_and_its_watcher_goes_on(flow: Flow) -> None:
    flow.submit()
    flow.running()
    watcher = flow.watcher()
    flow.pool.run(["condor_rm", flow.cluster])
    flow.given_back()
    assert flow.outcome() in ("removed", "dag_ended")
    until(lambda: flow.job("ClusterId") == "" and not flow.dagman())
    assert flow.watcher() == watcher
    os.kill(watcher, 0)


@pytest.mark.long
@pytest.mark.parametrize("killed", [False, True])
def test_the_dag_is_removed_and_its_directory_deleted(flow: Flow, killed: bool) -> None:
    """Whether the watcher saw it or another has to find out."""
    flow.submit()
    flow.running()
    config = Path(shutil.copy(flow.folder / "hooks.json", flow.watch.parent))
    flow.pool.run(["condor_rm", flow.cluster])
    if killed:
        os.kill(flow.watcher(), signal.SIGKILL)
    until(lambda: shutil.rmtree(flow.folder, ignore_errors=True) or not flow.folder.exists())
    if killed:
        until(lambda: registry.wake(flow.watch, config, WATCHER))
    flow.given_back()


@pytest.mark.long
def test_a_job_is_removed(flow: Flow) -> None:
    flow.hook("post.sh", "-c 0", before="kill -9 $$")  # POST says nothing either
    flow.submit()
    flow.pool.run(["condor_rm", flow.running()])
    flow.given_back()
    assert flow.outcome() == "removed"


def test_a_held_job_gives_back_and_asks_again(flow: Flow) -> None:
    flow.submit()
    job = flow.running()
    flow.pool.run(["condor_hold", job])
    flow.given_back()
    assert flow.outcome() == "held"
    flow.pool.run(["condor_release", job])
    # The watcher writes it down when it has it, for POST to find.
    decision = flow.folder / f"00/00/{JOB}.adon.json"
    until(lambda: job_files.read_json(decision)["pairs"][0]["id"] == f"{flow.transit}.2")
    assert flow.held() == [f"{flow.transit}.2"]
    (flow.folder / "go").write_text("0")
    flow.given_back()
    assert flow.outcome(".2") == "success"

    def events() -> list[str]:
        return [line["event"] for line in journal(flow.folder)]

    # POST writes it when the broker has it back already.
    until(lambda: "transfer" in events())
    names = events()
    if names.count("given_back") > 1:  # the watcher did not wait any longer for a POST that is slow
        del names[names.index("given_back", 2)]
    assert names == ["decision", "given_back", "asked_again", "transfer"]


@pytest.mark.long
def test_an_evicted_job_that_runs_again_keeps_its_path(flow: Flow) -> None:
    flow.submit()
    flow.pool.run(["condor_vacate_job", "-fast", flow.running()])
    until(lambda: flow.job("NumJobStarts") == "2" and flow.job("JobStatus") == "2")
    # Its own; or another, where it took more than six seconds to run again.
    until(lambda: len(flow.held()) == 1)
    (flow.folder / "go").write_text("0")
    flow.given_back()
    assert "success" in {flow.outcome(n) for n in ("", ".2") if flow.known(flow.transit + n)}


@pytest.mark.long
@pytest.mark.parametrize("when", ["before", "after"])
def test_pre_is_killed(flow: Flow, when: str) -> None:
    command = f"{PRE} --config {flow.folder}/hooks.json"
    if when == "after":
        flow.hook("pre.sh", command, after="kill -9 $$")
    else:  # it is registered by another job's PRE
        other = f"{sys.executable} -I -S {PRE} --config {flow.folder}/hooks.json {JOB} 0 1"
        flow.hook("pre.sh", command, before=f"({other}); kill -9 $$")
    flow.submit()
    until(lambda: bool(journal(flow.folder)))
    flow.given_back()
    assert flow.outcome() == "pre_failed"


@pytest.mark.long
def test_post_is_killed(flow: Flow) -> None:
    flow.hook("post.sh", "-c 0", before="kill -9 $$")
    flow.submit()
    flow.running()
    (flow.folder / "go").write_text("3")
    flow.given_back()
    assert flow.outcome() == "exit 3"


def test_dagman_is_killed_and_comes_back(flow: Flow) -> None:
    flow.submit()
    flow.running()
    first = flow.dagman()
    assert first
    os.kill(first, signal.SIGKILL)
    until(lambda: flow.dagman() not in (0, first))
    assert flow.held() == [flow.transit]  # the job runs on, and has its path
    (flow.folder / "go").write_text("0")
    flow.given_back()
    assert flow.outcome() == "success"


@pytest.mark.long
def test_dagman_is_held_in_the_middle_of_pre(flow: Flow) -> None:
    command = f"{PRE} --config {flow.folder}/hooks.json"
    flow.hook("pre.sh", command, after="[ -e again ] || { touch again; exec sleep 600; }")
    flow.submit()
    until((flow.folder / "again").exists)
    assert flow.held() == [flow.transit]
    flow.pool.run(["condor_hold", flow.cluster])
    flow.given_back()
    assert flow.outcome() in ("dagman_gone", "pre_failed")


def test_a_killed_watcher_is_followed_by_another(flow: Flow) -> None:
    flow.hook("post.sh", "-c 0", before="kill -9 $$")
    flow.submit()
    flow.running()
    first = flow.watcher()
    os.kill(first, signal.SIGKILL)
    (flow.folder / "go").write_text("0")
    until(lambda: not flow.dagman())
    assert flow.held() == [flow.transit]
    config = flow.folder / "hooks.json"
    until(lambda: registry.wake(flow.watch, config, WATCHER))  # as the next PRE does
    flow.given_back()
    assert flow.outcome() == "success"


@pytest.mark.long
def test_the_broker_hears_later_of_a_transfer_without_a_path(flow: Flow) -> None:
    flow.service.down()
    flow.submit()
    until(lambda: flow.job("JobStatus") == "2")
    flow.service.up()
    until(lambda: flow.known(flow.transit))
    transit = flow.service.client.get(flow.transit)
    assert transit.state is TransitState.BEST_EFFORT
    assert "cannot be reached" in transit.reason


# -- reserved in advance -------------------------------------------------------------------------

FIRST, RUN, LAST = "stage_in_local_tacc_0_0", "run_ID1", "stage_out_local_mu_1_0"
# At the rate that is believed a transfer takes 320 s: longer than a busy machine takes for all.
SIZE = 40_000_000_000


@pytest.fixture
def line(pool: Pool, service: BrokerService, tmp_path: Path) -> Iterator[Flow]:
    """in ─► run ─► out, each as long as it is told; submitted, with its first job running."""
    made = plan_line(pool, service, tmp_path / f"wf-{tmp_path.name}")
    made.submit()
    until(lambda: made.held() != [])
    yield made
    show(made)
    for job in (FIRST, RUN, LAST):
        let_go(made, job, 0)
    made.end()


def plan_line(pool: Pool, service: BrokerService, folder: Path) -> Flow:
    lists = {FIRST: [move("f", "mu", "tacc", SIZE)], LAST: [move("g", "tacc", "mu", SIZE)]}
    make_submit_dir(folder, lists, [RUN])
    (folder / "braindump.yml").write_text(
        f"wf_uuid: {folder.name}\ndag: flow-0.dag\ncondor_log: flow-0.log\n"
    )
    watch, config = folder.parent / "watch", folder / "hooks.json"
    config.write_text(
        json.dumps(
            {"broker": service.url, "timeout_s": PATIENT_S, "watch": str(watch), "ahead": True}
        )
    )
    flow = Flow(pool, service, folder, watch)
    flow.hook("pre.sh", f"{PRE} --config {config}")
    flow.hook("post.sh", f"{POST} --config {config}")
    lines = []
    for job in (FIRST, RUN, LAST):
        script = folder / f"{job}.sh"
        script.write_text(
            f"#!/bin/sh\nwhile [ ! -e {job}.go ]; do sleep 0.2; done\nexit $(cat {job}.go)\n"
        )
        script.chmod(0o755)
        text = SUB.format(script=script, folder=folder, job=job)
        if job == RUN:
            text = text.replace("pegasus_job_class = 2", "pegasus_job_class = 1")
        (folder / f"00/00/{job}.sub").write_text(text)
        lines += [f"JOB {job} 00/00/{job}.sub", f"SCRIPT PRE {job} {folder}/pre.sh $JOB $RETRY 0",
                  f"SCRIPT POST {job} {folder}/post.sh $JOB $RETRY $RETURN"]  # fmt: skip
    lines += [f"PARENT {FIRST} CHILD {RUN}", f"PARENT {RUN} CHILD {LAST}"]
    (folder / "flow-0.dag").write_text("\n".join(lines) + "\n")
    return flow


def show(flow: Flow) -> None:
    """What a test that fails is understood by."""
    for transit in flow.service.held(flow.id):
        print(
            transit.id,
            transit.state,
            transit.request.requested_at,
            transit.request.start,
            transit.request.end,
        )
    files = [flow.watch / registry.LOG, flow.folder / job_files.HOOK_JOURNAL]
    for path in [*files, *sorted(flow.folder.glob("*.nodes.log"))]:
        print(path.name, path.read_text() if path.exists() else "is not there", sep="\n")


def let_go(flow: Flow, job: str, code: int) -> None:
    """Have a job end."""
    (flow.folder / f"{job}.go").write_text(str(code))


def of(flow: Flow, job: str) -> list[Transit]:
    return [t for t in flow.service.held(flow.id) if t.request.job == job]


def test_the_last_transfers_path_is_there_before_it_asks(line: Flow) -> None:
    until(lambda: of(line, LAST) != [])
    (before,) = of(line, LAST)
    assert before.id == f"{line.id}:{LAST}:0:tacc-mu"
    assert before.state is TransitState.HELD
    # The transfer before it takes so long at the rate that is believed, and more.
    assert before.request.end > before.request.start > before.request.requested_at + 60
    let_go(line, FIRST, 0)
    until(lambda: of(line, FIRST) == [])
    # sooner than was believed
    until(lambda: any(t.request.start < before.request.start for t in of(line, LAST)))
    let_go(line, RUN, 0)
    # by its own hook; its time may have come a moment before
    until(
        lambda: any(
            t.state is TransitState.INSTALLED and t.request.start == 0 for t in of(line, LAST)
        )
    )
    (now,) = of(line, LAST)
    assert (now.id, now.request.end) == (before.id, 0)
    let_go(line, LAST, 0)
    line.given_back()
    assert line.service.client.get(before.id).state is TransitState.RELEASED


@pytest.mark.long
def test_what_will_not_run_is_given_back(line: Flow) -> None:
    until(lambda: of(line, LAST) != [])
    (before,) = of(line, LAST)
    let_go(line, FIRST, 1)
    until(lambda: line.job() == "")
    until(lambda: not line.dagman())
    line.given_back()
    assert line.service.client.get(before.id).state is TransitState.RELEASED


# -- deferred and tuned ---------------------------------------------------------------------------

INTER = "stage_inter_local_count_ID2_0"
STREAMS, BUFFER_BYTES = 7, 100_000  # nobody's defaults, and less than any kernel's limit
TUNED = {
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


def test_dagman_asks_again_and_submits_what_pre_wrote(pool: Pool, tmp_path: Path) -> None:
    """The job prints its own environment and arguments."""
    plan = Planned(tmp_path / "run")
    far = File("f", "mu", "gsiftp://a/f", "tacc", "gsiftp://b/f", 10**9)
    file = plan.transfer_job(INTER, [far])
    output = file.with_suffix(".out")
    tell = tmp_path / "tell"
    tell.write_text('#!/bin/sh\necho "$@"\nenv\n')
    tell.chmod(0o755)
    text = file.read_text().replace("executable = /opt/pegasus/bin/x", f"executable = {tell}")
    file.write_text(text.replace("priority = 700", f"output = {output}\nerror = {output}.err"))
    with broker_process(tmp_path, TUNED) as url:
        hooks = write_config(tmp_path / "hooks.json", url)
        script = f"{sys.executable} -I -S {{}} --config {hooks} $JOB $RETRY"
        dag = plan.where / "mini-0.dag"
        dag.write_text(
            f"JOB {INTER} 00/00/{INTER}.sub\n"
            f"SCRIPT DEFER 4 1 PRE {INTER} {script.format(PRE)} $MAX_RETRIES\n"
            f"SCRIPT POST {INTER} {script.format(POST)} $RETURN\n"
        )
        client = BrokerClient(url, PATIENT_S)
        client.request(TransitRequest("earlier", "local", "iplant", 10**12))
        cluster = dagman.submit_dag(dag, pool.run)
        deferrals = lambda: [x for x in journal(plan.where) if x["event"] == "deferred"]  # noqa: E731
        until(lambda: len(deferrals()) > 1)
        assert client.get(f"{WORKFLOW}:{INTER}:0:mu-tacc").state is TransitState.QUEUED
        client.release("earlier")
        end = dagman.wait(dag, cluster, 600.0)
        log = dag.with_name(dag.name + ".dagman.out").read_text()
        assert end.state == "success", log[-3000:]
        decision = job_files.read_json(file.with_name(f"{INTER}.adon.json"))
        assert [p["state"] for p in decision["pairs"]] == ["installed"]
        assert len({x["id"] for x in deferrals()}) == 1
        ended = client.get(f"{WORKFLOW}:{INTER}:0:mu-tacc")
        assert (ended.state, ended.usage.streams, ended.usage.threads) == (
            TransitState.RELEASED,
            STREAMS,
            3,
        )
        assert client.health()["live"] == 0
    lines = output.read_text().splitlines()
    assert "--threads 3" in lines[0]
    assert f"ADON_STREAMS={STREAMS}" in lines and f"ADON_BUFFER_BYTES={BUFFER_BYTES}" in lines
    (path,) = (line for line in lines if line.startswith("PATH="))
    assert path.startswith(f"PATH={tuning.TOOLS}:/opt/site/bin")
