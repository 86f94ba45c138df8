"""The real pool: a DAG runs where it is sent, its scripts see what they need, nothing is left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from planner_world import by_file, make_case
from waiting import until

from adon.machine.packages import ensure
from condor_plugins.pool.sitepool import SitePool, pool_from_json, workers
from examples.testbed import dagman
from examples.testbed.pool import Pool
from examples.testbed.poolconfig import DOMAIN, SiteSpec
from examples.testbed.procs import alive, marked
from network_provisioner.base.errors import AdonError, MissingError
from site_selector.estimates.estimating import DAGMAN_S, estimate_world
from site_selector.estimates.running import Live
from site_selector.problem import build_problem

pytestmark = pytest.mark.component

ROOT = Path(__file__).resolve().parents[2]
BEST_PRIORITY = 500.0  # of who has used nothing: the least there is, times its factor
SITES = {"mu": SiteSpec(2), "tacc": SiteSpec(3)}
CATALOG = """\
pegasus: 5.0.4
sites:
- {name: mu, arch: x86_64, os.type: linux, profiles: {pegasus: {adon.queue_wait: 77 s}}}
- {name: tacc, arch: x86_64, os.type: linux, profiles: {pegasus: {adon.workers: 9}}}
- {name: gone, arch: x86_64, os.type: linux, profiles: {pegasus: {adon.workers: 9}}}
"""


@pytest.fixture(scope="module")
def condor() -> Path:
    return ensure("condor", progress=print)


@pytest.fixture(scope="module")
def pool(condor: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    # A space: users do call their directories so.
    with Pool(tmp_path_factory.mktemp("a pool"), condor, SITES) as pool:
        yield pool


@pytest.fixture(scope="module")
def catalog(pool: Pool, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("catalog")
    folder.parent.chmod(0o755)  # the pool's user reads it
    folder.chmod(0o755)
    (folder / "sites.yml").write_text(CATALOG)
    return folder / "sites.yml"


def write_dag(directory: Path) -> Path:
    directory.mkdir()
    script = directory / "pre.sh"
    script.write_text('#!/bin/sh\nenv > "$1.env"\n')
    script.chmod(0o755)
    vanilla = (
        "executable = /bin/sh\narguments = \"-c 'id -u; hostname'\"\n"
        "output = $(JOB).out\nerror = $(JOB).err\nlog = jobs.log\n"
    )
    (directory / "a.sub").write_text(vanilla + 'requirements = PegasusSite == "tacc"\nqueue\n')
    (directory / "b.sub").write_text("universe = local\n" + vanilla + "queue\n")
    dag = directory / "two.dag"
    dag.write_text(
        'JOB A a.sub\nVARS A JOB="A"\nSCRIPT PRE A pre.sh $JOB\n'
        'JOB B b.sub\nVARS B JOB="B"\nPARENT A CHILD B\n'
    )
    return dag


def events(log: Path, code: str) -> list[str]:
    return [line for line in log.read_text().splitlines() if line.startswith(f"{code} ")]


def test_a_dag_runs_at_its_site_and_its_script_sees_its_environment(
    pool: Pool, tmp_path: Path
) -> None:
    dag = write_dag(tmp_path / "dag")
    given = {"ADON_CONFIG": "/c.json", "LAB": 'it\'s "one" | two', "PEGASUS_HOME": "/p"}
    cluster = dagman.submit_dag(dag, pool.run, env=given)
    assert dagman.wait(dag, cluster, 600) == dagman.DagEnd("success", 0)
    (line, _) = events(tmp_path / "dag/two.dag.nodes.log", "005")
    date, clock = line.split()[2:4]  # in full, with milliseconds
    assert len(date.split("-")) == 3
    assert len(clock.split(".")[1]) == 3
    (started, local) = events(tmp_path / "dag/two.dag.nodes.log", "001")
    assert "alias=tacc.adon.test" in started
    assert "alias=hub.adon.test" in local
    seen = (tmp_path / "dag/A.env").read_text().splitlines()
    assert {f"{k}={v}" for k, v in given.items()} <= set(seen)
    assert f"HOME={pool.user.home}" in seen
    assert any(line.startswith(f"PATH={pool.condor_dir}/wrap:") for line in seen)
    for node in "AB":
        assert (tmp_path / f"dag/{node}.out").read_text().split()[0] != "0"


@pytest.mark.long
def test_a_dag_can_be_removed(pool: Pool, tmp_path: Path) -> None:
    dag = tmp_path / "long.dag"
    dag.write_text("JOB A a.sub\n")
    text = "executable = /bin/sleep\narguments = 600\nlog = j.log\nqueue\n"
    (tmp_path / "a.sub").write_text(text)
    cluster = dagman.submit_dag(dag, pool.run)
    log = tmp_path / "long.dag.nodes.log"
    until(lambda: log.exists() and bool(events(log, "001")), "the job to start")
    dagman.remove(cluster, pool.run)
    assert dagman.wait(dag, cluster, 600).state == "removed"
    until(lambda: not pool.run(["condor_q", "-af", "ClusterId"]).split(), "an empty queue")


def read_pool(pool: Pool) -> dict[str, SitePool]:
    """In a process of its own: the bindings read their configuration once."""
    return pool_from_json(pool.run([sys.executable, "-m", "condor_plugins.collector"], cwd=ROOT))


def site_show(pool: Pool, catalog: Path, *options: str) -> dict[str, Any]:
    words = ["site", "show", "--sites", str(catalog), "--json", *options]
    adon = "import sys; from adon.cli.main import main; sys.exit(main())"
    sites: dict[str, Any] = json.loads(pool.run([sys.executable, "-c", adon, *words], cwd=ROOT))[
        "sites"
    ]
    return sites


def submit(
    pool: Pool, folder: Path, seconds: int, count: int, memory_mb: int = 1, more: str = ""
) -> str:
    (folder / "j.sub").write_text(
        f"executable = /bin/sleep\narguments = {seconds}\nlog = j.log\n"
        f"request_memory = {memory_mb}\n"
        'requirements = PegasusSite == "mu"\n+pegasus_site = "mu"\n'
        f'+pegasus_wf_xformation = "t::nap:1.0"\n{more}queue {count}\n'
    )
    return pool.run(["condor_submit", "-terse", "j.sub"], cwd=folder).split(".")[0]


def test_the_collector_tells_every_sites_workers(pool: Pool) -> None:
    pools = read_pool(pool)
    assert workers(pools) == {"mu": 2, "tacc": 3}
    assert {p.source for p in pools.values()} == {"collector"}
    assert all(p.memory_bytes > 0 and abs(p.at - time.time()) < 300 for p in pools.values())


def test_ended_jobs_and_those_ahead_tell_how_long_a_job_will_wait(
    pool: Pool, catalog: Path, tmp_path: Path
) -> None:
    submit(pool, tmp_path, 1, 2)

    def ended() -> bool:
        mu = read_pool(pool)["mu"]
        return mu.runtimes.get("t::nap:1.0", (0, 0))[1] == 2 and mu.idle_slots == 2

    until(ended, "two ended jobs, which tell more than those that run")
    mu_pool = read_pool(pool)["mu"]
    assert mu_pool.run_s is not None and mu_pool.run_s >= 1
    assert mu_pool.start_s is not None and mu_pool.start_s >= 0
    assert mu_pool.runtimes["t::nap:1.0"][0] >= 1
    assert read_pool(pool)["tacc"].runtimes == {}
    sites = site_show(pool, catalog, "--pool")
    assert (sites["mu"]["n"]["value"], sites["mu"]["n"]["source"]) == (2, "collector")
    # Nobody is ahead: what jobs waited that had nobody ahead, and not what the catalog fears; but
    # never less than DAGMan takes.
    assert sites["mu"]["t_q"]["source"] == "schedd"
    assert sites["mu"]["t_q"]["value"] == max(mu_pool.start_s, DAGMAN_S)
    assert sites["tacc"]["n"]["value"] == 3
    assert (sites["gone"]["n"]["value"], sites["gone"]["t_q"]["value"]) == (0, None)
    cluster = submit(pool, tmp_path, 600, 5)
    try:
        until(lambda: read_pool(pool)["mu"].running_jobs == 2, "both slots of mu at work")
        until(lambda: read_pool(pool)["mu"].idle_slots == 0, "no idle slot at mu")
        mu_pool = read_pool(pool)["mu"]
        assert (mu_pool.idle_jobs, mu_pool.ahead) == (3, 3)
        assert mu_pool.run_s is not None
        wait = site_show(pool, catalog, "--pool", pool.collector)["mu"]["t_q"]
        assert wait["source"] == "schedd"
        assert "3 jobs ahead, 0 of 2 slots idle" in wait["note"]
        ahead_s = 4 * mu_pool.run_s / 2 + (mu_pool.start_s or 0)
        assert wait["value"] == pytest.approx(max(ahead_s, DAGMAN_S))
    finally:
        pool.run(["condor_rm", cluster])


def test_a_job_waits_for_those_alone_that_its_user_has_to_let_go_first(
    condor: Path, tmp_path: Path
) -> None:
    def state(cluster: str) -> list[str]:
        return pool.run(["condor_q", cluster, "-af", "JobStatus"]).split()

    def priority(user: str) -> float:
        rows = pool.run(["condor_userprio", "-allusers", "-af", "Name", "Priority"]).splitlines()
        return float(dict(map(str.split, rows)).get(f"{user}@{DOMAIN}", 0.0))

    site = SiteSpec(2, settings="CLAIM_WORKLIFE = 0\n")  # nobody keeps a slot beyond a job
    with Pool(tmp_path / "pool", condor, {"mu": site}) as pool:
        bobs = submit(pool, tmp_path, 600, 6, more="accounting_group_user = bob\n")
        until(lambda: read_pool(pool)["mu"].running_jobs == 2, "both slots of mu at work")
        mu = read_pool(pool)["mu"]
        # Who asks has used little: no job of bob's goes before, and half of the slots would be had.
        assert (mu.ahead, mu.before) == (4, 0)
        assert mu.share == pytest.approx(0.5, rel=0.1)
        # Until the negotiator has counted what bob has used, both are as good.
        until(lambda: priority("bob") > BEST_PRIORITY, "bob to be worse than who comes")
        mine = submit(pool, tmp_path, 600, 1)
        pool.run(["condor_rm", f"{bobs}.0"])
        until(lambda: state(mine) == ["2"], "the slot of bob's job")
        assert state(bobs).count("2") == 1


def test_cores_without_memory_for_the_jobs_in_the_queue_are_no_workers(
    condor: Path, tmp_path: Path
) -> None:
    whole = SiteSpec(
        1,
        settings="NUM_CPUS = 4\nMEMORY = 400\n"
        "SLOT_TYPE_1 = 100%\nSLOT_TYPE_1_PARTITIONABLE = True\n",
    )
    inputs = make_case(tmp_path / "case", by_file).inputs()

    def mapped(pool: Pool) -> int:
        """N of the whole-workflow mapping."""
        world = estimate_world(inputs, now=time.time(), live=Live(read_pool(pool)))
        problem = build_problem(inputs, world)
        return problem.workers[problem.places.index("mu")]

    with Pool(tmp_path / "pool", condor, {"mu": whole}) as pool:
        assert workers(read_pool(pool)) == {"mu": 4} and mapped(pool) == 4
        submit(pool, tmp_path, 600, 1, memory_mb=150)
        until(lambda: read_pool(pool)["mu"].slots == 2, "400 MB for two jobs of 150 MB")
        until(lambda: read_pool(pool)["mu"].idle_slots == 0, "no memory left for another job")
        assert mapped(pool) == 1, "two, of which one is busy"


def test_startds_report_their_hosts_metrics(pool: Pool) -> None:
    names = ["AdonIoWait", "AdonLoad", "AdonNetRxBps", "AdonNetTxBps", "AdonMetricsAt"]

    def values() -> list[str]:
        return pool.run(["condor_status", "-af", *names]).split()

    until(lambda: "undefined" not in values(), "all metrics of all slots")
    assert all(float(value) >= 0 for value in values())


def test_what_waits_in_vain_is_told(pool: Pool, tmp_path: Path) -> None:
    wishes = (
        'requirements = PegasusSite == "mars"\nqueue',
        'requirements = PegasusSite == "mu"\nrequest_memory = 9 GB\nqueue',
        'requirements = PegasusSite == "mu"\nqueue 3',
        "hold = true\nqueue",
    )
    clusters = []
    for number, wish in enumerate(wishes):
        common = "executable = /bin/sleep\narguments = 600\nlog = j.log\n"
        (tmp_path / f"{number}.sub").write_text(f"{common}{wish}\n")
        output = pool.run(["condor_submit", "-terse", f"{number}.sub"], cwd=tmp_path)
        clusters.append(output.split(".")[0])
    words = [sys.executable, "-m", "adon", "pool", "waiting", "--patience", "1 s", "--json"]

    def whys() -> list[str]:
        return sorted(row["why"] for row in json.loads(pool.run(words, cwd=ROOT)))

    try:
        until(lambda: len(whys()) >= 3, "all that wait in vain")
        # Of three jobs for the two slots of mu one waits too, but not in vain.
        assert whys() == [
            "is on hold: submitted on hold at user's request",
            'matches no slot: none of 5 slots has PegasusSite == "mars"',
            "matches no slot: none of 5 slots has TARGET.Memory >= 9216",
        ]
        assert json.loads(pool.run([*words, "--dag", "4711"], cwd=ROOT)) == []
        assert 'has PegasusSite == "mars"' in pool.run(words[:-1], cwd=ROOT)
    finally:
        pool.run(["condor_rm", *clusters])


def test_nothing_of_the_pool_runs_as_root(pool: Pool) -> None:
    assert pool.run(["id", "-u"]).strip() != "0"


def test_a_client_that_fails_says_why(pool: Pool) -> None:
    # Not condor_rm of a job that is not there: with an empty queue that is a success.
    with pytest.raises(AdonError, match=r"condor_submit: exit code 1: "):
        pool.run(["condor_submit", "nowhere.sub"])


@pytest.mark.long
def test_two_pools_live_side_by_side(pool: Pool, condor: Path, tmp_path: Path) -> None:
    with Pool(tmp_path, condor, {"iplant": SiteSpec(1)}) as other:
        assert other.collector != pool.collector
        assert other.run(["condor_status", "-af", "PegasusSite"]).split() == ["iplant"]
        assert set(pool.run(["condor_status", "-af", "PegasusSite"]).split()) == {"mu", "tacc"}


def test_a_port_in_use_is_told(pool: Pool, condor: Path, tmp_path: Path) -> None:
    port = int(pool.collector.rpartition(":")[2])
    with pytest.raises(MissingError, match=f"port {port}: Address already in use"):
        Pool(tmp_path, condor, SITES, hub_port=port).up()
    assert marked(tmp_path) == []


@pytest.mark.long
def test_down_leaves_no_process_not_even_a_running_job(condor: Path, tmp_path: Path) -> None:
    pool = Pool(tmp_path / "pool", condor, {"mu": SiteSpec(1)})
    pool.up()
    (tmp_path / "j.sub").write_text(
        "executable = /bin/sleep\narguments = 600\nlog = j.log\nqueue\n"
    )
    pool.run(["condor_submit", "j.sub"], cwd=tmp_path)
    log = tmp_path / "j.log"
    until(lambda: log.exists() and bool(events(log, "001")), "the job to start")
    assert len(marked(pool.run_dir)) > 5
    pool.down()
    assert marked(pool.run_dir) == []


OWNER = """
import sys
from pathlib import Path
from examples.testbed.pool import Pool, SiteSpec
Pool(Path(sys.argv[1]), Path(sys.argv[2]), {"mu": SiteSpec(1)}).up()
print("up", flush=True)
sys.stdin.read()
"""


def start_owner(run_dir: Path, condor: Path) -> subprocess.Popen[bytes]:
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(run_dir), str(condor)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert owner.stdout
    assert owner.stdout.readline() == b"up\n"
    return owner


def command_of(process: psutil.Process) -> bytes:
    """Nothing for one that has ended: some of a pool's processes live for a moment only."""
    try:
        return Path(f"/proc/{process.pid}/cmdline").read_bytes()
    except OSError:
        return b""


def end_owner(owner: subprocess.Popen[bytes]) -> None:
    owner.kill()
    owner.communicate()


@pytest.mark.long
def test_a_pool_ends_with_its_killed_owner(condor: Path, tmp_path: Path) -> None:
    owner = start_owner(tmp_path, condor)
    end_owner(owner)
    until(lambda: marked(tmp_path) == [], "the pool to end")


@pytest.mark.long
def test_what_outlived_a_killed_run_is_ended_by_the_next(condor: Path, tmp_path: Path) -> None:
    owner = start_owner(tmp_path, condor)
    # The masters and what watches their owner killed first: nobody tells the others.
    rest = marked(tmp_path)
    masters = [p for p in rest if b"condor_master" in command_of(p)]
    assert masters
    for master in masters:
        master.kill()
    end_owner(owner)
    with Pool(tmp_path, condor, {"mu": SiteSpec(1)}) as pool:
        assert not any(alive(process) for process in rest)
        assert pool.run(["condor_status", "-af", "PegasusSite"]).split() == ["mu"]
        assert pool.run(["condor_q", "-af", "ClusterId"]) == ""
    assert marked(tmp_path) == []


@pytest.fixture
def namespaces() -> Iterator[dict[str, SiteSpec]]:
    """Two network namespaces, each joined to this one by a cable."""
    mark = f"{os.getpid() % 0xFFFF:x}"
    specs = {}
    made = []

    def ip(*words: str) -> None:
        subprocess.run(["ip", *words], check=True)

    try:
        for number, site in enumerate(SITES, 1):
            name, cable = f"t{mark}{site}", f"t{mark}{number}"
            ip("netns", "add", name)
            made.append(name)
            ip("link", "add", cable, "type", "veth", "peer", "name", "dp0", "netns", name)
            ip("addr", "add", f"10.253.{number}.1/30", "dev", cable)
            ip("link", "set", cable, "up")
            ip("-n", name, "addr", "add", f"10.253.{number}.2/30", "dev", "dp0")
            for device in ("lo", "dp0"):
                ip("-n", name, "link", "set", device, "up")
            ip("-n", name, "route", "add", "default", "via", f"10.253.{number}.1")
            specs[site] = SiteSpec(1, netns=name, address=f"10.253.{number}.2", interface="dp0")
        yield specs
    finally:
        for name in made:
            ip("netns", "del", name)


@pytest.mark.long
@pytest.mark.root
def test_execute_nodes_live_in_network_namespaces_of_their_own(
    condor: Path, tmp_path: Path, namespaces: dict[str, SiteSpec]
) -> None:
    with Pool(tmp_path / "pool", condor, namespaces, hub_address="10.253.1.1") as pool:
        dag = tmp_path / "n.dag"
        dag.write_text("JOB A a.sub\n")
        (tmp_path / "a.sub").write_text(
            "executable = /bin/cat\narguments = /proc/net/fib_trie\noutput = a.out\nlog = j.log\n"
            'requirements = PegasusSite == "tacc"\nqueue\n'
        )
        cluster = dagman.submit_dag(dag, pool.run)
        assert dagman.wait(dag, cluster, 600) == dagman.DagEnd("success", 0)
        assert "10.253.2.2" in (tmp_path / "a.out").read_text()
        assert "10.253.1.2" not in (tmp_path / "a.out").read_text()
    assert marked(tmp_path) == []
