"""The installed scripts, run as DAGMan runs the SCRIPT lines of DAGs in the shapes that Pegasus
plans, with a real broker: who asks, who does not, and that nothing is left."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hooks_world import PATIENT_S
from http_load import broker_process
from install_world import FakePegasus, make_pegasus
from network_world import demo_network
from planned_world import WORKFLOW, File, Planned, gsiftp

from monitors.workflows.planned import job_files
from network_provisioner.base.model import TransitState
from network_provisioner.client.broker import BrokerClient
from network_provisioner.client.hookconfig import HookConfig
from network_provisioner.topology.data import topology_to_dict
from pegasus_hooks.install.catalog import catalog_part, changes_for_catalog
from pegasus_hooks.install.edits import carry_out
from pegasus_hooks.install.home import place_for_all, place_for_file
from pegasus_hooks.install.installing import changes_to_install
from pegasus_hooks.install.parts import hooks_part
from pegasus_hooks.prepost import hookscripts

pytestmark = pytest.mark.component
LARGE = 10**9
CODE = 41  # of the installation's own check
CONFIG = {
    "topology": topology_to_dict(demo_network()),
    "controller": {"driver": "simulated"},
    "templates": {
        "default": {
            "qspec": {"min_throughput": "1 Mb/s"}, "rspec": {"max_throughput": "1 Gb/s"},
            "break_even": 0,
        },
    },
}  # fmt: skip
OWN_PRE = "00/00/pegasus-plan_sub.pre.sh"
# Who asks for what: a pair of sites per transit.
ASKS = {
    "stage_in_local_mu_0_0": {("local", "mu")},
    "stage_inter_local_count_ID3_0": {("mu", "tacc")},
    "stage_out_local_mu_1_0": {("mu", "local"), ("mu", "iplant")},
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerClient]:
    with broker_process(tmp_path_factory.mktemp("broker"), CONFIG) as url:
        yield BrokerClient(url, PATIENT_S)


@pytest.fixture
def pegasus(tmp_path: Path) -> FakePegasus:
    """Its check of a job notes what it is given."""
    fake = make_pegasus(tmp_path / "pegasus")
    check = fake.root / "bin" / "pegasus-exitcode"
    check.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > "{tmp_path}/checked"\nexit {CODE}\n')
    check.chmod(0o755)
    return fake


def by_properties(pegasus: FakePegasus, config: HookConfig, _folder: Path) -> Path:
    place = place_for_all(pegasus.home)
    exitcode = pegasus.root / "bin" / "pegasus-exitcode"
    part = hooks_part(place.programs, sys.executable, exitcode, config)
    carry_out(changes_to_install(place, [part]), place.own)
    return place.programs


def by_catalog(pegasus: FakePegasus, config: HookConfig, folder: Path) -> Path:
    catalog = folder / "tc.yml"
    catalog.write_text("pegasus: '5.0'\ntransformations:\n- name: a\n  sites: []\n")
    place = place_for_file(catalog)
    part = catalog_part(place, pegasus.home, sys.executable, config)
    carry_out(changes_for_catalog(place, pegasus.home, part), place.own)
    return place.programs


def planned(where: Path) -> Planned:
    """A job of every kind that Pegasus adds, or runs in another way than most."""
    plan = Planned(where)

    def file(lfn: str, src: str, dst: str, size: int | None = None) -> File:
        return File(lfn, src, gsiftp(src, lfn), dst, gsiftp(dst, lfn), size)

    plan.job("create_dir_mini_0_mu", "pegasus::dirmanager", "local")
    plan.transfer_job("stage_in_local_mu_0_0", [file("raw.txt", "local", "mu", LARGE)])
    link = File("ref.fa", "mu", "file:///mu/ref.fa", "mu", "symlink:///mu/scratch/ref.fa", LARGE)
    plan.transfer_job("stage_in_remote_mu_0_0", [link], "mu", "vanilla")
    plan.job("split_ID1", "t::split:1.0", "mu", "vanilla")
    # Of a clustered job and of a registration the list is none of transfers.
    for job, kind in (("merge_t-shout-1_0_PID1_ID1", "t::shout:1.0"), ("register_mu_0_0", "x")):
        plan.job(job, kind, "mu")
        (plan.folder / f"{job}.in").write_text("#@ 1 t::shout ID2\n/opt/bin/shout a\n")
    plan.transfer_job("stage_inter_local_count_ID3_0", [file("b.txt", "mu", "tacc")])
    plan.job("pegasus-plan_sub", "pegasus::pegasus-plan", "local")
    results = [file("r.txt", "mu", "local", LARGE), file("r.txt", "mu", "iplant", LARGE)]
    plan.transfer_job("stage_out_local_mu_1_0", results)
    plan.job("clean_up_mu_level_3_0", "pegasus::cleanup", "local")
    plan.job("cleanup_mini_0_mu", "pegasus::dirmanager", "local")
    return plan


def write_scripts(plan: Planned, programs: Path, pegasus: FakePegasus, catalog: bool) -> list[str]:
    """The DAG's SCRIPT lines as the planner writes them, and its jobs."""
    dag = plan.where / "mini-0.dag"
    jobs = re.findall(r"^JOB (\S+)", dag.read_text(), re.MULTILINE)
    lines = [line for line in dag.read_text().splitlines() if not line.startswith("SCRIPT")]
    pre = f"{programs / hookscripts.PRE_NAME} {hookscripts.PRE_ARGUMENTS}"
    ours = programs / hookscripts.POST_NAME
    theirs = "-r $RETURN -l mini-0.exitcode.log -M mini-0.cache.meta "  # 6.0 adds -R $RETRY
    for job in jobs:
        relative, absolute = f"00/00/{job}.out", plan.folder / f"{job}.out"
        if job == "pegasus-plan_sub":  # a planner's PRE of its own, and DAGMan is its own check
            lines.append(f"SCRIPT PRE {job} {OWN_PRE}  --conf x.properties")
        elif not catalog:
            lines += [
                f"SCRIPT POST {job} {ours} {hookscripts.POST_RETRY}  {theirs}  .//{relative}",
                f"SCRIPT PRE {job} {pre}",
            ]
        elif job.startswith("stage_") and "_local_" in job:
            lines += [
                f"SCRIPT POST {job} {ours}  {hookscripts.POST_ARGUMENTS} {absolute}",
                f"SCRIPT PRE {job} {pre}",
            ]
        else:
            check = pegasus.root / "bin" / "pegasus-exitcode"
            lines.append(f"SCRIPT POST {job} {check}  {theirs}  .//{relative}")
    dag.write_text("\n".join(lines) + "\n")
    own = plan.where / OWN_PRE
    own.write_text("#!/bin/sh\nexit 0\n")
    own.chmod(0o755)
    return jobs


def dagman(plan: Planned, kind: str, job: str, result: int = 0) -> tuple[int, list[str]] | None:
    """Run a script of a job as DAGMan does: its exit code and arguments; None without one."""
    text = (plan.where / "mini-0.dag").read_text()
    match = re.search(rf"^SCRIPT {kind} {re.escape(job)} (.*)$", text, re.MULTILINE)
    if match is None:
        return None
    macros = {"$JOB": job, "$RETRY": "0", "$MAX_RETRIES": "1", "$RETURN": str(result)}
    words = [macros.get(word, word) for word in match[1].split()]
    env = {"PATH": "/usr/bin:/bin", "HOME": str(plan.where.parent)}
    process = subprocess.run(words, cwd=plan.where, env=env, capture_output=True, check=False)
    assert process.stderr == b""
    return process.returncode, words[1:]


@pytest.mark.parametrize("catalog", [False, True], ids=["properties", "catalog"])
def test_transfers_between_sites_ask_and_give_back_and_nothing_else_does(
    broker: BrokerClient, pegasus: FakePegasus, tmp_path: Path, catalog: bool
) -> None:
    install = by_catalog if catalog else by_properties
    programs = install(pegasus, HookConfig(broker.url, PATIENT_S), tmp_path)
    workflow = WORKFLOW.replace("1111", "2222" if catalog else "3333")
    plan = planned(tmp_path / "run")
    dump = plan.where / "braindump.yml"
    dump.write_text(dump.read_text().replace(WORKFLOW, workflow))
    for job in write_scripts(plan, programs, pegasus, catalog):
        before = dagman(plan, "PRE", job)
        assert before is None or before[0] == 0
        live = [t for t in broker.list(workflow=workflow) if t.state is TransitState.INSTALLED]
        assert {(t.request.src, t.request.dst) for t in live} == ASKS.get(job, set()), job
        assert all(t.request.job == job and t.grant.path for t in live)
        (plan.folder / f"{job}.out").write_text("")
        after = dagman(plan, "POST", job)
        if after is None:
            assert job == "pegasus-plan_sub"
            continue
        code, words = after
        assert code == CODE
        checked = (tmp_path / "checked").read_text().split("\n")[:-1]
        words = words[words[0] == "0" :]  # the retry is ours
        if len(words) == 3:
            extra = ["-l", "mini-0.exitcode.log", "-M", "mini-0.cache.meta"]
            words = [*words[:2], *extra, words[2]]
        assert checked == words
    ended = broker.list(workflow=workflow)
    assert {t.request.job for t in ended} == ASKS.keys()
    assert {t.state for t in ended} == {TransitState.RELEASED}
    assert broker.health()["live"] == 0
    assert job_files.warnings(plan.where) == []


@pytest.mark.parametrize("result", [1, -1002, -9])
def test_a_failed_job_gives_back_and_is_judged_by_pegasus(
    broker: BrokerClient, pegasus: FakePegasus, tmp_path: Path, result: int
) -> None:
    programs = by_properties(pegasus, HookConfig(broker.url, PATIENT_S), tmp_path)
    workflow = WORKFLOW.replace("1111", f"{4000 + abs(result)}")
    plan = planned(tmp_path / "run")
    dump = plan.where / "braindump.yml"
    dump.write_text(dump.read_text().replace(WORKFLOW, workflow))
    write_scripts(plan, programs, pegasus, catalog=False)
    job = "stage_in_local_mu_0_0"
    dagman(plan, "PRE", job)
    assert dagman(plan, "POST", job, result) is not None
    (transit,) = broker.list(workflow=workflow)
    assert transit.state is TransitState.RELEASED
    assert (tmp_path / "checked").read_text().startswith(f"-r\n{result}\n")
