"""A workflow that makes room for itself: planned, run on a real pool that grows for its wide level,
with a broker that gives it paths, and nothing of either is left afterwards."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from broker_service import BrokerService
from hooks_world import journal, write_config
from network_world import star
from planner_world import Case, by_file, job, make_case, uses
from waiting import until

from adon.cli.main import main
from adon.machine.packages import ensure
from adon.planning.planner import plan_workflow
from examples.demo import running
from examples.demo.demo_run import Ended
from examples.testbed import procs
from examples.testbed.pool import Pool
from examples.testbed.poolconfig import DOMAIN, SiteSpec
from monitors.archive.archive import Archive
from network_provisioner.base.model import LIVE, TransitState
from network_provisioner.client.broker import BrokerClient
from pegasus_hooks import pegasus_plan
from pegasus_hooks.planner.model import PlannedWorkflow
from pegasus_hooks.provisioning.provisioned import program
from site_selector.mapping.placement import Mapping, Placement

pytestmark = pytest.mark.component

WIDTH = 4
NETWORK = star("local", "mu")
# What is peculiar to a pool whose machines are all this one, without names of their own.
ONE_MACHINE = {
    "NO_DNS": "True",
    "DEFAULT_DOMAIN_NAME": DOMAIN,
    "NETWORK_HOSTNAME": f"worker.{DOMAIN}",
    "NETWORK_INTERFACE": "127.0.0.1",
    "BIND_ALL_INTERFACES": "False",
    "ENABLE_IPV6": "False",
    "UID_DOMAIN": DOMAIN,
    "FILESYSTEM_DOMAIN": DOMAIN,
    "SEC_USE_FAMILY_SESSION": "False",
    "MOUNT_UNDER_SCRATCH": "",
    "STARTD_ENFORCE_DISK_LIMITS": "False",
    "DISCARD_SESSION_KEYRING_ON_STARTUP": "False",
}


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    condor = ensure("condor", progress=print)
    with Pool(tmp_path_factory.mktemp("pool"), condor, {"mu": SiteSpec(1)}) as found:
        yield found


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerClient]:
    with BrokerService(tmp_path_factory.mktemp("broker"), NETWORK) as service:
        yield service.client


def configured(pool: Pool, folder: Path, **more: Any) -> Path:
    """An adon.yml whose workers join ``pool`` by a token that may do no more than that."""
    token = folder / "token"
    grants = [f"-authz={level}" for level in ("ADVERTISE_STARTD", "ADVERTISE_MASTER", "READ")]
    words = ["condor_token_create", "-identity", f"{pool.user.name}@{DOMAIN}"]
    for grant in grants:
        words += grant.split("=")
    token.write_text(pool.run([*words, "-lifetime", "3600"]))
    path = folder / "adon.yml"
    expansion = {
        "most": 8,
        "per_worker": 2,
        "memory_mb": 256,
        "site": "mu",
        "idle": "5 min",
        "release": str(pool.condor_dir / "root/usr"),
        "token_file": "token",
        "config": ONE_MACHINE,
        "environment": {procs.MARK: str(pool.run_dir)},
    }
    data = {
        "topology": NETWORK,
        "pool": {"collector": pool.collector},
        "expansion": {**expansion, **more},
    }
    path.write_text(yaml.safe_dump(data))
    return path


def adon(pool: Pool, config: Path, *words: str) -> Any:
    """``adon pool`` as a client of the pool."""
    command = [sys.executable, "-I", "-m", "adon", "pool", *words, "--config", str(config)]
    return json.loads(pool.run([*command, "--json"]))


def slots(pool: Pool) -> list[str]:
    """The demands of the pool's slots; "undefined" for those of its own."""
    return pool.run(["condor_status", "-af", "AdonExpansion"]).split()


def states(pool: Pool, cluster: str) -> list[str]:
    """Of the jobs in the queue: 1 for one that waits."""
    return pool.run(["condor_q", cluster, "-af", "JobStatus"]).split()


def test_the_pool_grows_once_and_shrinks_without_harm_to_jobs(pool: Pool, tmp_path: Path) -> None:
    config = configured(pool, tmp_path)
    grown = adon(pool, config, "enlarge", "--for", "a", "--slots", "4")
    assert sorted(w["slots"] for w in grown["workers"]) == [1, 2]  # one slot was there
    assert adon(pool, config, "enlarge", "--for", "a", "--slots", "4")["workers"] == [
        {**w, "until": pytest.approx(w["until"], abs=600)} for w in grown["workers"]
    ]
    until(lambda: slots(pool).count("a") == 3, "the new slots")
    (tmp_path / "j.sub").write_text(
        "executable = /bin/sleep\narguments = 6\nlog = j.log\nrequest_memory = 64\n"
        'requirements = AdonExpansion =?= "a"\nqueue 3\n'
    )
    pool.run(["condor_submit", "j.sub"], cwd=tmp_path)
    log = tmp_path / "j.log"
    until(lambda: log.exists() and log.read_text().count("\n001 ") == 3, "the jobs to start")
    assert adon(pool, config, "shrink", "--for", "a") == {"workers": 2}
    until(lambda: adon(pool, config, "show")["workers"] == [], "the workers to leave")
    # All have ended, which may be written later than their workers leave; none was evicted.
    until(lambda: log.read_text().count("\n005 ") == 3, "the jobs to end")
    assert log.read_text().count("\n004 ") == 0
    until(lambda: slots(pool) == ["undefined"], "the slots to be gone")
    assert adon(pool, config, "shrink", "--for", "a") == {"workers": 0}


@pytest.mark.long
def test_a_worker_leaves_after_its_lease_though_nobody_tells_it_to(
    pool: Pool, tmp_path: Path
) -> None:
    # A busy machine needs many seconds to bring a worker up and to find it work: enough for both.
    config = configured(pool, tmp_path, idle="8 s")
    (tmp_path / "j.sub").write_text(
        "executable = /bin/sleep\narguments = 1\nlog = j.log\nrequest_memory = 64\n"
        'requirements = AdonExpansion =?= "b"\nqueue 60\n'
    )
    cluster = pool.run(["condor_submit", "-terse", "j.sub"], cwd=tmp_path).split(".")[0]
    try:
        adon(pool, config, "enlarge", "--for", "b", "--slots", "2", "--lease", "30s")
        log = tmp_path / "j.log"
        until(lambda: slots(pool).count("b") == 1 or "\n001 " in log.read_text(), "the new slot")
        until(lambda: adon(pool, config, "show")["workers"] == [], "the worker to leave")
        # The queue may hear of the end of the last one later.
        until(lambda: set(states(pool, cluster)) == {"1"}, "none but waiting jobs")
        assert (tmp_path / "j.log").read_text().count("\n004 ") == 0  # nobody was evicted
    finally:
        pool.run(["condor_rm", cluster])
    until(lambda: slots(pool) == ["undefined"], "its slot to be gone")


def fan(root: Path) -> Case:
    """split, then ``WIDTH`` jobs side by side, then join. The first of them wait for a second,
    which does not come where there is one slot only."""
    case = make_case(root, by_file)
    (root / "began").mkdir()
    # Pegasus makes no folders for the files of jobs in a shared file system.
    (root / "bin/shout").write_text(
        f'#!/bin/sh\nset -e\nbegan={root}/began\n: > "$began/$$"\ntries=0\n'
        'while [ "$(ls "$began" | wc -l)" -lt 2 ]; do\n'
        '    tries=$((tries + 1)); [ "$tries" -lt 3000 ]; sleep 0.1\ndone\ncat "$1" > "$2"\n'
    )

    def jobs(document: Any) -> None:
        split = document["jobs"][0]
        wide = [
            job(10 + n, "shout", ["a.txt", f"w{n}.txt"],
                uses({"a.txt": 50 * 10**9}, {f"w{n}.txt": False}))
            for n in range(WIDTH)
        ]  # fmt: skip
        made = {f"w{n}.txt": None for n in range(WIDTH)}
        join = job(4, "join", ["w0.txt", "w1.txt"], uses(made, {"result.txt": True}))
        document["jobs"] = [split, *wide, join]
        for use in (use for entry in document["jobs"] for use in entry["uses"]):
            use["registerReplica"] = False

    case.change("workflow", jobs)

    def needs(document: Any) -> None:
        for entry in document["transformations"]:
            entry["profiles"] = {"pegasus": {"memory": 64, "diskspace": 1}}

    case.change("transformations", needs)
    return case


def flat(root: Path, program: str) -> Case:
    """``WIDTH`` jobs that wait for nothing and run ``program``."""
    case = fan(root)
    (root / "bin/shout").write_text(f"#!/bin/sh\n{program}\n")

    def jobs(document: Any) -> None:
        document["jobs"] = [
            job(n, "shout", [], uses({"raw.txt": 50 * 10**9}, {f"w{n}.txt": False}))
            for n in range(WIDTH)
        ]

    def replica(document: Any) -> None:
        (entry,) = document["replicas"]
        del entry["metadata"]  # the workflow says that it is larger
        entry["pfns"][0]["site"] = "local"

    case.change("workflow", jobs)
    case.change("replicas", replica)
    return case


def for_pegasus(case: Case) -> None:
    """Sites on one file system, which Pegasus has to be told, and where it is installed itself."""
    planner = pegasus_plan.find_planner()
    assert planner is not None
    home = str(planner.resolve().parents[1])

    def sites(document: Any) -> None:
        for site in document["sites"]:
            site["profiles"]["env"] = {"PEGASUS_HOME": home}
            site["profiles"]["pegasus"]["auxillary.local"] = "true"

    case.change("sites", sites)
    case.change("replicas", lambda d: d["replicas"][0]["pfns"][0].update(site="local"))


def provision(case: Case, config: Path, broker: BrokerClient, **more: Any) -> Path:
    hooks = write_config(case.root / "hooks.json", broker.url, **more)
    words = ["workflow", "provision", str(case.sources.workflow), "--config", str(config)]
    assert main([*words, "--hooks", str(hooks), "--sites", "mu", "--min-width", "4"]) == 0
    return hooks


def run(case: Case, pool: Pool, hooks: Path | None = None) -> tuple[PlannedWorkflow, Ended]:
    inputs = case.inputs()
    sites = {name: found.site_hint or "mu" for name, found in inputs.workflow.jobs.items()}
    places = (Placement(name, "", site, "", ()) for name, site in sites.items())
    mapping = Mapping("mini", "test", 0.0, {}, tuple(places), {})
    planned = plan_workflow(
        inputs, case.sources, mapping, case.root / "submit", "local",
        hooks, run=running.pegasus_runner(pool),
    )  # fmt: skip
    with Archive(case.root / "archive.sqlite") as archive:
        return planned, running.follow(planned, pool, archive, print, lambda _stuck: None)


@pytest.mark.parametrize(
    "planner", ["embedded", pytest.param("pegasus", marks=pytest.mark.pegasus)]
)
def test_pool_and_paths_are_there_for_the_wide_level_and_given_back(
    planner: str,
    pool: Pool,
    broker: BrokerClient,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case = fan(tmp_path / "case")
    if planner == "embedded":
        monkeypatch.setattr(pegasus_plan, "find_planner", lambda: None)
    else:
        for_pegasus(case)
    config = configured(pool, tmp_path)
    hooks = provision(case, config, broker)
    planned, end = run(case, pool, hooks)
    told = planned.dag.with_name(planned.dag.name + ".dagman.out").read_text()
    assert end.state == "success", told[-3000:]
    lines = [line for line in journal(planned.submit_dir) if line["hook"] == "provision"]
    assert [line for line in lines if line["event"] == "warning"] == []
    # The wide level ran on slots that were not there before.
    ran = "".join(path.read_text() for path in planned.submit_dir.glob("*.log"))
    assert "adon-" in ran
    found = [t for t in broker.list(workflow=planned.wf_uuid) if ":provision:" in t.id]
    assert {(t.src, t.dst) for t in found} == {("local", "mu"), ("mu", "local")}
    assert {t.state for t in found} == {TransitState.RELEASED}
    assert all(t.installed_at for t in found)
    decided = {line["id"]: line["state"] for line in lines if line["event"] == "decision"}
    assert set(decided.values()) == {"installed"}
    assert not [t for t in broker.list() if t.state in LIVE]
    until(lambda: adon(pool, config, "show")["workers"] == [], "the workers to leave")


@pytest.mark.long
def test_the_workflow_goes_on_when_its_provisioning_is_killed(
    pool: Pool, broker: BrokerClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pegasus_plan, "find_planner", lambda: None)
    case = flat(
        tmp_path / "case", f"for n in {' '.join(map(str, range(WIDTH)))}; do touch w$n.txt; done"
    )
    provision(case, configured(pool, tmp_path), broker)
    killed = tmp_path / "killed.py"
    killed.write_text("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n")
    workflow = case.sources.workflow
    workflow.write_text(workflow.read_text().replace(program()[-1], str(killed)))
    planned, end = run(case, pool)
    assert end.state == "success"
    told = "".join(p.read_text() for p in planned.submit_dir.glob("00/*/provision_*.out"))
    assert '"exitcode": 137' in told


@pytest.mark.long
def test_what_a_failed_workflow_held_is_given_back_by_the_watcher(
    pool: Pool, broker: BrokerClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pegasus_plan, "find_planner", lambda: None)
    case = flat(tmp_path / "case", "exit 3")
    config = configured(pool, tmp_path, idle="1 s")
    provision(case, config, broker, watch=str(tmp_path / "watch"))
    planned, end = run(case, pool)
    assert end.state == "failed"
    asked = journal(planned.submit_dir)
    assert {line["state"] for line in asked if line["event"] == "decision"} == {"installed"}

    def held() -> list[str]:
        return [t.id for t in broker.list(workflow=planned.wf_uuid) if t.state in LIVE]

    until(lambda: not held(), "the paths to be given back")
    until(lambda: adon(pool, config, "show")["workers"] == [], "the workers to leave")
