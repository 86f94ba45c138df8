"""A workflow that makes room for itself: planned, run on a real pool that grows for its wide level,
with a broker that gives it paths, and nothing of either is left afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from broker_service import BrokerService
from hooks_world import journal
from hooks_world import write_config as write_hooks
from network_world import star
from planner_world import Case, by_file, job, make_case, uses
from startd_world import adon, at_work, none_left, write_config
from waiting import until

from adon.cli.main import main
from adon.planning.planner import plan_workflow
from examples.demo import running
from examples.demo.demo_run import Ended
from examples.testbed.pool import Pool
from examples.testbed.poolconfig import SiteSpec
from monitors.archive.archive import Archive
from network_provisioner.base.model import LIVE, TransitState
from network_provisioner.client.broker import BrokerClient
from pegasus_hooks import pegasus_plan
from pegasus_hooks.planner.model import PlannedWorkflow
from pegasus_hooks.provisioning.insertion import program
from site_selector.mapping.placement import Mapping, Placement

pytestmark = pytest.mark.component
POOL = {"mu": SiteSpec(1)}  # of the fixture `pool`

WIDTH = 4
NETWORK = star("local", "mu")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerClient]:
    with BrokerService(tmp_path_factory.mktemp("broker"), NETWORK) as service:
        yield service.client


@pytest.fixture
def config(pool: Pool, tmp_path: Path) -> Iterator[Path]:
    """Of a pool that grows and shrinks."""
    flavour = {"cores": 2, "memory_mb": 512, "boot": "6 s", "boot_spread": "15 s"}
    more = {"flavours": {"small": flavour}, "cores": 8, "every": "1 s"}
    file = write_config(tmp_path, pool, **more)
    with at_work(pool, adon(file, "run"), tmp_path):
        yield file
        until(lambda: none_left(pool, file), "the machines to leave")


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
    hooks = write_hooks(case.root / "hooks.json", broker.url, **more)
    words = ["workflow", "provision", str(case.sources.workflow), "--config", str(config)]
    assert main([*words, "--hooks", str(hooks), "--execution-sites", "mu", "--min-width", "4"]) == 0
    return hooks


def run(case: Case, pool: Pool, hooks: Path | None = None) -> tuple[PlannedWorkflow, Ended]:
    inputs = case.inputs()
    sites = {name: entry.site_hint or "mu" for name, entry in inputs.workflow.jobs.items()}
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
    config: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case = fan(tmp_path / "case")
    if planner == "embedded":
        monkeypatch.setattr(pegasus_plan, "find_planner", lambda: None)
    else:
        for_pegasus(case)
    hooks = provision(case, config, broker)
    planned, end = run(case, pool, hooks)
    log = planned.dag.with_name(planned.dag.name + ".dagman.out").read_text()
    assert end.state == "success", log[-3000:]
    lines = [line for line in journal(planned.submit_dir) if line["hook"] == "provision"]
    assert [line for line in lines if line["event"] == "warning"] == []
    # The wide level ran on machines that were not there before.
    ran = "".join(path.read_text() for path in planned.submit_dir.glob("*.log"))
    assert "adon-" in ran
    transits = [t for t in broker.list(workflow=planned.wf_uuid) if ":provision:" in t.id]
    assert {(t.request.src, t.request.dst) for t in transits} == {("local", "mu"), ("mu", "local")}
    assert {t.state for t in transits} == {TransitState.RELEASED}
    assert all(t.grant.installed_at for t in transits)
    decided = {line["id"]: line["state"] for line in lines if line["event"] == "decision"}
    assert set(decided.values()) == {"installed"}
    assert not [t for t in broker.list() if t.state in LIVE]


@pytest.mark.long
def test_the_workflow_goes_on_when_its_provisioning_is_killed(
    pool: Pool,
    broker: BrokerClient,
    config: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pegasus_plan, "find_planner", lambda: None)
    case = flat(
        tmp_path / "case", f"for n in {' '.join(map(str, range(WIDTH)))}; do touch w$n.txt; done"
    )
    provision(case, config, broker)
    killed = tmp_path / "killed.py"
    killed.write_text("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n")
    workflow = case.sources.workflow
    workflow.write_text(workflow.read_text().replace(program()[-1], str(killed)))
    planned, end = run(case, pool)
    assert end.state == "success"
    output = "".join(p.read_text() for p in planned.submit_dir.glob("00/*/provision_*.out"))
    assert '"exitcode": 137' in output


@pytest.mark.long
def test_what_a_failed_workflow_held_is_given_back_by_the_watcher(
    pool: Pool,
    broker: BrokerClient,
    config: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pegasus_plan, "find_planner", lambda: None)
    case = flat(tmp_path / "case", "exit 3")
    provision(case, config, broker, watch=str(tmp_path / "watch"))
    planned, end = run(case, pool)
    assert end.state == "failed"
    entries = journal(planned.submit_dir)
    assert {line["state"] for line in entries if line["event"] == "decision"} == {"installed"}

    def live_paths() -> list[str]:
        return [t.id for t in broker.list(workflow=planned.wf_uuid) if t.state in LIVE]

    until(lambda: not live_paths(), "the paths to be given back")
