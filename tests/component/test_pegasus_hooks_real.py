"""ADON installed into a real Pegasus; pegasus-plan and pegasus-run typed as ever, on a real pool.

What is checked is the promise: every transfer job asked a real broker for its path, had it while it
ran, and gave it back; and the planner's user changed nothing.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hooks_world import PATIENT_S, journal
from http_load import broker_process
from network_world import star
from pegasus_world import (
    User,
    case_at_both_sites,
    case_in_another_workflow,
    copy_pegasus,
    end_watchers,
    tree,
)
from planner_world import RESULT, SITES, Case

from adon.machine.packages import ensure
from examples.testbed.pool import Pool
from examples.testbed.poolconfig import SiteSpec
from monitors.workflows.planned import job_files
from network_provisioner.base.model import Transit, TransitState
from network_provisioner.client.broker import BrokerClient

pytestmark = [
    pytest.mark.component,
    pytest.mark.long,
    pytest.mark.pegasus,
    pytest.mark.timeout(1800),
]
_RUN_S = 900.0  # of a machine with much else to do
NETWORK = star(*SITES)
# However small: every transfer is worth a path here.
ANY_SIZE = {
    "qspec": {"min_throughput": "1 Mb/s"}, "rspec": {"max_throughput": "1 Gb/s"}, "break_even": 0,
}  # fmt: skip
CONFIG = {
    "topology": NETWORK, "controller": {"driver": "simulated"}, "templates": {"default": ANY_SIZE},
}  # fmt: skip


@dataclass(frozen=True)
class Site:
    """What an administrator set up."""

    user: User
    broker: BrokerClient
    config: Path


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    condor = ensure("condor", progress=lambda _line: None)
    sites = {name: SiteSpec(workers=1) for name in ("mu", "tacc")}
    folder = tmp_path_factory.mktemp("broker")
    home = copy_pegasus(tmp_path_factory.mktemp("opt") / "pegasus")
    try:
        with (
            broker_process(folder, CONFIG) as url,
            Pool(tmp_path_factory.mktemp("pool"), condor, sites) as pool,
        ):
            yield Site(User(pool, home), BrokerClient(url, PATIENT_S), folder / "adon.yml")
    finally:
        end_watchers(tmp_path_factory.getbasetemp())


# As ever.
TYPED = [
    "pegasus-plan",
    "--json",
    "--sites",
    "mu,tacc",
    "--output-sites",
    "local",
    "--dir",
    "submit",
]


@dataclass(frozen=True)
class Run:
    """A workflow that has ended: its files, its submit directory, and DAGMan's exit code."""

    case: Case
    submit: Path
    code: int


@dataclass
class Runs:
    """What ran, and what the administrator was told meanwhile."""

    site: Site
    by_name: dict[str, Run]
    undone: str


@pytest.fixture(scope="module")
def runs(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Several workflows at once, and an administrator who takes ADON out while they run.

    Each is planned while there is in the Pegasus what it is about; then all share the pool.
    """
    user, root = site.user, tmp_path_factory.mktemp("wf")
    before = tree(user.home)
    cases = {name: make(root / name, user.home) for name, make in CASES.items()}
    own = cases["catalog"]
    untouched = (own.root / "transformations.yml").read_bytes()
    catalog = ("install", "pegasus", "--catalog", "transformations.yml", "--yes")
    out = user.adon(*catalog, "--config", str(site.config), cwd=own.root)
    assert re.search(r"^verified: PRE and POST around its [23] transfer jobs$", out, re.MULTILINE)
    planned = {"catalog": plan(user, own)}
    where = ("install", "pegasus", "--home", str(user.home), "--yes")
    out = user.adon(*where, "--config", str(site.config), cwd=root)
    assert "verified: ADON answered: " in out
    assert "; PRE and POST around its 2 transfer jobs" in out
    planned |= {name: plan(user, case) for name, case in cases.items() if name not in planned}
    for submit in planned.values():
        user.types(["pegasus-run", str(submit)], root)
    undone = user.adon(*where, "--undo", cwd=root)
    codes = {name: ended(submit) for name, submit in planned.items()}
    # They leave the queue a little later than that: monitoring ends after them.
    until = time.monotonic() + PATIENT_S
    while "still run" in user.adon(*where, "--undo", cwd=root):
        assert time.monotonic() < until
    assert tree(user.home) == before
    user.adon(*catalog, "--undo", cwd=own.root)
    assert (own.root / "transformations.yml").read_bytes() == untouched
    return Runs(
        site, {name: Run(cases[name], planned[name], codes[name]) for name in cases}, undone
    )


CASES: dict[str, Callable[[Path, Path], Case]] = {
    "plain": case_at_both_sites,
    "nested": case_in_another_workflow,
    "catalog": case_at_both_sites,
}


def plan(user: User, case: Case, *more: str) -> Path:
    """The submit directory."""
    answer = json.loads(user.types([*TYPED, *more, "workflow.yml"], case.root))
    return Path(answer["submit_dir"])


def told(submit: Path) -> str:
    """DAGMan's last words."""
    return "".join(file.read_text()[-3000:] for file in submit.rglob("*.dagman.out"))


def ended(submit: Path) -> int:
    """DAGMan's exit code, when it has ended."""
    mark = "EXITING WITH STATUS "
    until = time.monotonic() + _RUN_S
    while time.monotonic() < until:
        for file in submit.glob("*.dagman.out"):
            _, separator, code = file.read_text().rpartition(mark)
            if separator:
                return int(code.split()[0])
        time.sleep(0.2)
    raise AssertionError(told(submit))


def transfer_jobs(submit: Path) -> set[str]:
    return {file.stem for file in submit.rglob("stage_*.in")}


def transits(site: Site, submit: Path) -> dict[str, list[Transit]]:
    """What the broker knows of a workflow, by job."""
    workflow = job_files.braindump(submit)["wf_uuid"]
    by_job: dict[str, list[Transit]] = {}
    for transit in site.broker.list(workflow=workflow):
        by_job.setdefault(transit.request.job, []).append(transit)
    return by_job


def check_every_transfer_had_its_path(run: Run, site: Site, submit: Path) -> None:
    assert run.code == 0, told(run.submit)
    assert (run.case.storage("local") / "result.txt").read_text() == RESULT
    jobs = transfer_jobs(submit)
    assert len(jobs) >= 3
    by_job = transits(site, submit)
    assert by_job.keys() == jobs, journal(submit)
    for transit in (transit for every in by_job.values() for transit in every):
        assert transit.state is TransitState.RELEASED, transit
        assert (
            transit.grant.path[0] == transit.request.src
            and transit.grant.path[-1] == transit.request.dst
        )
        assert (
            transit.usage.bytes > 0 and transit.grant.released_at >= transit.grant.installed_at > 0
        )
    # Pegasus judged its jobs itself, with all that it gives its check.
    assert all(list(submit.glob(f"*.{ending}")) for ending in ("exitcode.log", "cache.meta"))
    assert job_files.warnings(submit) == []


@pytest.mark.parametrize("name", ["plain", "catalog"])
def test_every_transfer_has_a_path_and_gives_it_back(runs: Runs, name: str) -> None:
    run = runs.by_name[name]
    check_every_transfer_had_its_path(run, runs.site, run.submit)


def test_a_workflow_in_a_workflow_is_hooked_by_its_own_plan(runs: Runs) -> None:
    run = runs.by_name["nested"]
    (inner,) = (file.parent for file in run.submit.rglob("mini-0.dag"))
    check_every_transfer_had_its_path(run, runs.site, inner)


def test_the_hooks_of_a_catalog_are_for_its_transfers_alone(runs: Runs) -> None:
    submit = runs.by_name["catalog"].submit
    text = (submit / "mini-0.dag").read_text()
    assert set(re.findall(r"^SCRIPT PRE (\S+)", text, re.MULTILINE)) == transfer_jobs(submit)
    assert set(re.findall(r"^SCRIPT POST (\S+) \S+/adon-exitcode", text, re.MULTILINE)) == (
        transfer_jobs(submit)
    )


def test_nothing_is_held_in_the_end(runs: Runs) -> None:
    assert runs.site.broker.health()["live"] == 0


def test_what_running_workflows_call_stays_until_they_have_ended(runs: Runs) -> None:
    for part in ("hooks", "selector"):
        assert f"workflows still run, or are queued, that need the {part} in " in runs.undone
    assert runs.undone.splitlines()[-1].endswith("/etc/pegasus.properties")
