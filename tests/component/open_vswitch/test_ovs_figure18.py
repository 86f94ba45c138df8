"""Figure 18 of the thesis with workflows that are planned and run: nobody names a port, a path, a
rate or a template."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from agents_rig import RESEARCHER, TOKEN, Site, up
from gridftp_rig import gridftp_programs
from hooks_world import PATIENT_S, write_config
from pegasus_world import make_pegasus_case
from planner_world import job, uses
from waiting import until

from adon.machine import packages
from adon.planning.planner import plan_workflow
from examples.demo import running
from examples.demo.supervise import watching
from examples.soykb.scenario import LAYOUT
from examples.testbed import dagman
from examples.testbed.gridftp import GridFtp, endpoints
from examples.testbed.layout import HUB_ADDRESS, management_address
from examples.testbed.network import Network
from examples.testbed.pool import Pool
from examples.testbed.poolconfig import SiteSpec
from network_provisioner.base.model import ON_SWITCHES, Transit, TransitState
from pegasus_hooks import pegasus_plan
from pegasus_hooks.planner.model import Options
from site_selector.mapping.placement import Mapping, Placement

pytestmark = [pytest.mark.component, pytest.mark.root]
QUEUED = frozenset({TransitState.QUEUED})
HOOKS = "hooks.json"
SIZES = {"soykb": 6_000_000, "soykb-large": 6_000_000, "neuroblastoma": 40_000_000}
PROGRAM = """#!/bin/sh
set -e
: > {root}/began
until [ -e {root}/told ]; do sleep 0.1; done
head -c {size} /dev/urandom > raw.fq
"""


class Workflow:
    """One of an application: what a job at ``src`` makes, when it is told to, one at ``dst``
    reads."""

    def __init__(
        self, site: Site, grid: GridFtp, pool: Pool, application: str, src: str, dst: str
    ) -> None:
        self.broker, self.pool = site.client, pool
        self.size = SIZES[application]
        self.root = site.folder / src / application
        planner = pegasus_plan.find_planner()
        home = planner.resolve().parents[1] if planner else Path("/usr")
        servers = {name: grid.url(name) for name in grid.sites} | {"store": grid.url("iplant")}
        case = make_pegasus_case(self.root, home, lambda at, path: servers[at] + path)
        (self.root / "bin/split").write_text(PROGRAM.format(root=self.root, size=self.size))
        with (self.root / "pegasus.properties").open("a") as properties:  # none of it is kept
            properties.write("pegasus.data.reuse.scope = none\n")
        read = uses({"raw.fq": None}, {"n.txt": False})
        jobs = [
            job(1, "split", [], uses({}, {"raw.fq": False})),
            job(3, "count", [], read, stdin="raw.fq", stdout="n.txt"),
        ]
        for use in (use for entry in jobs for use in entry["uses"]):
            use["registerReplica"] = False

        def sites(document: Any) -> None:
            profiles = {entry["name"]: entry["profiles"] for entry in document["sites"]}
            profiles["local"]["env"] |= grid.transfer_env()
            for name in (src, dst):  # their workers see the submit directory
                profiles[name]["condor"]["should_transfer_files"] = "NO"

        case.change("workflow", lambda d: d.update(name=application, jobs=jobs))
        case.change("sites", sites)
        at = {"ID1": src, "ID3": dst}
        places = tuple(Placement(name, "", site, "", ()) for name, site in at.items())
        self.planned = plan_workflow(
            case.inputs(), case.sources, Mapping(application, "test", 0.0, {}, places, {}),
            self.root / "submit", dst, site.folder / HOOKS,
            Options(user=pool.user.name, cleanup=False), running.pegasus_runner(pool),
        )  # fmt: skip

    def start(self) -> None:
        self.cluster = running.start(self.planned, self.pool)

    def began(self) -> bool:
        return (self.root / "began").exists()

    def go_on(self) -> None:
        (self.root / "told").touch()

    def transits(self) -> list[Transit]:
        return self.broker.list(workflow=self.planned.wf_uuid)

    def states(self) -> list[TransitState]:
        return [transit.state for transit in self.transits()]

    def end(self) -> Transit:
        end = dagman.wait(self.planned.dag, self.cluster, PATIENT_S)
        output = self.planned.dag.with_name(self.planned.dag.name + ".dagman.out").read_text()
        assert end.state == "success", output[-3000:]
        (transit,) = self.transits()
        assert (transit.state, transit.usage.bytes) == (TransitState.RELEASED, self.size)
        return transit


@pytest.fixture
def site(network: Network, tmp_path: Path) -> Iterator[Site]:
    """With the hooks' configuration and their watcher."""
    with up(Site(tmp_path, "tacc")) as made:
        token, watched = tmp_path / "hooks.token", tmp_path / "watch"
        token.write_text(TOKEN + RESEARCHER)
        token.chmod(0o600)
        more = {"token_file": str(token), "ca": made.authority.file, "watch": str(watched)}
        with watching(write_config(tmp_path / HOOKS, made.url, **more), watched):
            yield made


@pytest.fixture
def grid(network: Network, tmp_path: Path) -> Iterator[GridFtp]:
    made = GridFtp(endpoints(LAYOUT), tmp_path, gridftp_programs())
    made.start()
    yield made
    made.stop()


@pytest.fixture
def pool(network: Network, tmp_path: Path) -> Iterator[Pool]:
    condor = packages.ensure("condor", progress=print)
    sites = {
        at.name: SiteSpec(2 * len(SIZES), at.netns, management_address(at.number), "dp0")
        for at in LAYOUT.sites
        if at.name in ("mu", "tacc")
    }
    with Pool(tmp_path / "pool", condor, sites, HUB_ADDRESS) as condor_pool:
        yield condor_pool


@contextlib.contextmanager
def no_data_node_answers(grid: GridFtp) -> Iterator[None]:
    """So that no transfer ends while others come. A client's first packets, which are sent again
    and again, may still count: its transit is installed, or active already."""
    servers = list(grid._servers.values())
    for server in servers:
        server.send(signal.SIGSTOP)
    try:
        yield
    finally:
        for server in servers:
            server.send(signal.SIGCONT)


def arrive(among: frozenset[TransitState], layers: dict[Workflow, str]) -> None:
    """They go on, and their transfers come to one of the states and to their layers."""
    for workflow in layers:
        workflow.go_on()
    for workflow, layer in layers.items():
        until(
            lambda workflow=workflow: among.issuperset(workflow.states()) and workflow.states(),
            f"{sorted(among)} of {workflow.root}",
        )
        assert [transit.grant.layer for transit in workflow.transits()] == [layer]


def sent(network: Network, switch: str, link: str) -> int:
    """Bytes that a switch has sent into a link, as its own tool tells."""
    port = LAYOUT.port(LAYOUT.link(link), switch)
    output = network.switches.ofctl(switch, "dump-ports", str(port))
    return int(output.rpartition(" bytes=")[2].partition(",")[0])


@pytest.mark.parametrize(
    "planner",
    ["embedded", pytest.param("pegasus", marks=[pytest.mark.pegasus, pytest.mark.long])],
)
def test_each_application_gets_the_path_that_it_needs(
    planner: str,
    network: Network,
    site: Site,
    grid: GridFtp,
    pool: Pool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One order of arrival from mu to tacc and the other one back, which share nothing."""
    if planner == "embedded":
        monkeypatch.setattr(pegasus_plan, "find_planner", lambda: None)
    there, back = (
        {name: Workflow(site, grid, pool, name, *ends) for name in SIZES}
        for ends in (("mu", "tacc"), ("tacc", "mu"))
    )
    everyone = [*there.values(), *back.values()]
    for workflow in everyone:
        workflow.start()
    for workflow in everyone:
        until(workflow.began, "the first jobs")
    before = {end: sent(network, *end) for end in product(("s1", "s2"), ("l2", "l3"))}
    with no_data_node_answers(grid):
        arrive(ON_SWITCHES, {there["neuroblastoma"]: "l2", back["soykb"]: "l2"})  # t3; t1
        arrive(ON_SWITCHES, {there["soykb"]: "l3", back["neuroblastoma"]: "l2"})  # t4; t3
        arrive(QUEUED, {there["soykb-large"]: "", back["soykb-large"]: ""})  # t6
        (gave_way,) = back["soykb"].transits()
        assert gave_way.state in ON_SWITCHES and gave_way.grant.layer == "l3"  # t4
    for way, switch in ((there, "s1"), (back, "s2")):
        t3, t4, t6 = (way[name].end() for name in ("neuroblastoma", "soykb", "soykb-large"))
        assert (t3.grant.layer, t4.grant.layer, t6.grant.layer) == ("l2", "l3", "l2")
        assert t6.grant.installed_at >= t3.grant.released_at
        # What comes before the agent's word goes as best effort: seconds on a busy machine, but not
        # all of 40 MB, which take 16 s that way.
        assert t3.usage.switch_bytes > 0
        for workflow in (t4, t6):
            assert workflow.usage.switch_bytes > 0 or not workflow.request.flows
        over = {link: sent(network, switch, link) - before[switch, link] for link in ("l2", "l3")}
        # Circuits are counted before the switches' queues, which drop some.
        assert over["l2"] >= (t3.usage.switch_bytes + t6.usage.switch_bytes) / 2
        assert over["l3"] >= t4.usage.bytes
