"""Pegasus in condorio mode, on an access point with ``adon install condor``: HTCondor moves
the bytes of every compute job, and each had its path."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from http_load import broker_process
from network_world import star
from pegasus_world import User, copy_pegasus, make_pegasus_case, pack_workers
from planner_world import MAPPING, RESULT, SITES
from waiting import until

from adon.cli.main import main
from adon.machine.packages import ensure
from examples.testbed.pool import Pool
from examples.testbed.poolconfig import SiteSpec
from network_provisioner.base.model import ENDED, Transit
from network_provisioner.client.broker import BrokerClient

pytestmark = [
    pytest.mark.component,
    pytest.mark.long,
    pytest.mark.pegasus,
    pytest.mark.timeout(1800),
]

NETWORK = star(*SITES)
# However small: every transfer is worth a path here.
TEMPLATE = {
    "qspec": {"min_throughput": "1 Mb/s"}, "rspec": {"max_throughput": "1 Gb/s"}, "break_even": 0,
}  # fmt: skip
CONFIG = {
    "topology": NETWORK, "controller": {"driver": "simulated"}, "templates": {"default": TEMPLATE},
}  # fmt: skip


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerClient]:
    with broker_process(tmp_path_factory.mktemp("broker"), CONFIG) as url:
        yield BrokerClient(url, 30.0)


@pytest.fixture(scope="module")
def user(broker: BrokerClient, tmp_path_factory: pytest.TempPathFactory) -> Iterator[User]:
    home = copy_pegasus(tmp_path_factory.mktemp("opt") / "pegasus")
    pack_workers(home)
    place = tmp_path_factory.mktemp("etc") / "config.d"
    place.mkdir()
    words = ["--config-dir", str(place), "--site", "local", "--broker", broker.url, "--yes"]
    assert main(["install", "condor", *words]) == 0
    condor = ensure("condor", progress=print)
    sites = {name: SiteSpec(workers=1) for name in ("mu", "tacc")}
    settings = f"LOCAL_CONFIG_DIR = {place}\n"
    run_dir = tmp_path_factory.mktemp("pool")
    with Pool(run_dir, condor, sites, hub_settings=settings) as pool:
        yield User(pool, home)


@pytest.fixture(scope="module")
def submit_dir(user: User, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workflow in condorio mode that ran to its end."""
    case = make_pegasus_case(tmp_path_factory.mktemp("wf"), user.home)
    (case.root / "pegasus.properties").write_text("pegasus.data.configuration = condorio\n")

    def hints(document: Any) -> None:
        for job in document["jobs"]:
            job["profiles"] = {"selector": {"execution.site": MAPPING[job["id"]]}}

    case.change("workflow", hints)
    sites = ["--sites", "mu,tacc", "--output-sites", "local", "--dir", "submit", "workflow.yml"]
    out = user.types(["pegasus-plan", *sites], case.root)
    match = re.search(r"^pegasus-run\s+(\S+)", out, re.MULTILINE)
    assert match, out
    submit = Path(match[1])
    user.types(["pegasus-run", str(submit)], case.root)
    (dag,) = submit.glob("*.dag")
    log = dag.with_name(f"{dag.name}.dagman.out")
    until(lambda: log.exists() and "EXITING WITH STATUS" in log.read_text(), "its end", 600)
    assert "EXITING WITH STATUS 0" in log.read_text()
    assert (case.storage("local") / "result.txt").read_text() == RESULT
    return submit


def test_every_compute_job_had_a_path_for_what_htcondor_moved(
    submit_dir: Path, broker: BrokerClient
) -> None:
    def transits() -> list[Transit]:
        return [t for t in broker.list() if t.id.startswith("condor:")]

    until(lambda: all(t.state in ENDED for t in transits()), "all paths to be given back", 40)
    brought = {t.request.job: t for t in transits() if ":in:" in t.id}
    assert {job.rpartition("_")[2]: t.request.dst for job, t in brought.items()} == MAPPING
    assert {t.request.src for t in brought.values()} == {"local"}
    assert all(
        t.grant.path and t.usage.outcome == "success" and t.usage.bytes > 0
        for t in brought.values()
    )
    (workflow,) = {t.request.workflow for t in transits()}
    assert workflow in (submit_dir / "braindump.yml").read_text()
    assert {t.request.application for t in transits()} == {"mini"}
