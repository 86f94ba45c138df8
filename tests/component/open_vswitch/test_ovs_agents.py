"""Agents beside data nodes, on real switches with a real broker: they see which connections are
whose, and measure paths that nobody took."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import yaml
from authority import Authority
from gridftp_rig import PEGASUS_TRANSFER, gridftp_programs
from hooks_world import PATIENT_S, POST, PRE, write_config
from ovs_rig import L2, L3, in_netns
from planned_world import File, Planned
from test_hooks_tuned import await_that, environment_of

from examples.demo.steps import CONTROLLER
from examples.soykb.fig18.story import SCALE
from examples.soykb.scenario import LAYOUT
from examples.testbed.gridftp import PORT, GridFtp, endpoints
from examples.testbed.layout import HUB_ADDRESS
from examples.testbed.network import Network
from examples.testbed.ports import free_port
from monitors.archive.archive import Archive
from monitors.archive.measurement import Measurement
from network_provisioner.access import hash_of
from network_provisioner.base.errors import BrokerError
from network_provisioner.base.model import Transit, TransitRequest, TransitState
from network_provisioner.client.broker import BrokerClient
from network_provisioner.client.http1 import Tls
from pegasus_hooks.prepost.prejob import DEFER_STATUS

pytestmark = [pytest.mark.component, pytest.mark.root]

ROOT = Path(__file__).resolve().parents[3]
TOKEN = "a-token-of-this-test-alone"
_SLOW_S = 0.2
JOB = "stage_inter_local_count_ID2_0"
# What an application needs, in Mb/s there, and its priority.
NEEDS = {
    "soykb": (600, 6000, 5),
    "soykb-large": (700, 6000, 5),
    "neuroblastoma": (5500, 5500, 9),
}
SIZES = {"soykb": 6_000_000, "soykb-large": 6_000_000, "neuroblastoma": 60_000_000}


class Site:
    """Broker, switches, and agents beside data nodes."""

    def __init__(self, folder: Path, *agents: str, **monitoring: object) -> None:
        self.folder, self.agents = folder, agents
        self.url = f"https://{HUB_ADDRESS}:{free_port()}"
        self.authority = Authority(folder)
        certificate, key = self.authority.issue("broker", hosts=[HUB_ADDRESS])
        self.client = BrokerClient(self.url, PATIENT_S, TOKEN + "ada", Tls(self.authority.file))
        self.processes: list[subprocess.Popen[bytes]] = []
        templates = {
            name: {
                "qspec": {"min_throughput": least * 1e6 * SCALE},
                "rspec": {"max_throughput": most * 1e6 * SCALE},
                "priority": priority,
                "patience": "10 min",
            }
            for name, (least, most, priority) in NEEDS.items()
        }
        roles = {"ada": "researcher"} | dict.fromkeys(agents, "agent")
        tokens = [
            {"name": name, "role": role, "sha256": hash_of(TOKEN + name)}
            for name, role in roles.items()
        ]
        there = [{"name": name, "address": LAYOUT.host(name).address} for name in agents]
        broker = {"listen": self.url.removeprefix("https://"), "state": "state.sqlite"}
        config = {
            "topology": LAYOUT.topology(),
            "controller": CONTROLLER,
            "broker": broker | {"archive": "archive.sqlite"},
            "templates": templates,
            "security": {"tokens": tokens, "tls": {"certificate": certificate, "key": key}},
            "monitoring": {"agents": there, **monitoring},
        }
        (folder / "adon.yml").write_text(yaml.safe_dump(config))

    def up(self) -> None:
        self.start("-m", "adon.service.serve", "--config", "adon.yml")
        await_that(self.answers, "a broker that answers")
        for name in self.agents:
            (self.folder / f"{name}.token").write_text(TOKEN + name)
            agent = {"name": name, "broker": self.url, "token_file": f"{name}.token"}
            agent |= {"state": f"of-{name}", "servers": [PORT], "ca": self.authority.file}
            agent |= {"limits": {"peers": ["10.10.0.0/24"]}}
            (self.folder / f"{name}.yml").write_text(yaml.safe_dump(agent))
            words = ("-m", "adon", "agent", "run", "--config", f"{name}.yml")
            self.start(*words, within=in_netns(name))
        if self.agents:
            await_that(self.tells_apart, "an agent's word")

    def start(self, *words: str, within: list[str] | None = None) -> None:
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        argv = [*(within or []), sys.executable, *words]
        with (self.folder / "log").open("ab") as log:
            process = subprocess.Popen(argv, cwd=self.folder, env=env, stdout=log, stderr=log)
        self.processes.append(process)

    def tells_apart(self) -> bool:
        """Whether the broker knows that somebody sees connections."""
        request = TransitRequest("probe", "mu", "tacc", ports_at="client")
        (answer,) = self.client.ask([request])
        assert answer.transit is not None
        self.client.release(answer.transit.id)
        return bool(answer.transit.ports)

    def answers(self) -> bool:
        log = (self.folder / "log").read_text()
        assert all(process.poll() is None for process in self.processes), log
        try:
            return bool(self.client.health())
        except BrokerError:
            return False

    def stop(self) -> None:
        for process in reversed(self.processes):
            process.terminate()
            process.wait(PATIENT_S)


class Workflow:
    """One of an application, with a job that moves a file from mu to tacc: from one of two URLs of
    the site's folder to the other, by tools that run ``within`` a host."""

    def __init__(
        self, site: Site, application: str, urls: tuple[str, str], env: dict[str, str],
        within: Sequence[str] = (), **config: str,
    ) -> None:  # fmt: skip
        self.site, self.within, self.env = site, within, env
        self.application, self.size = application, SIZES[application]
        uuid = f"11111111-2222-3333-4444-{len(application):012}"
        self.transit = f"{uuid}:{JOB}:0:mu-tacc"
        self.run = site.folder / application
        plan = Planned(self.run, uuid)
        dump = self.run / "braindump.yml"
        dump.write_text(dump.read_text().replace(': "mini"', f': "{application}"'))
        source = site.folder / f"{application}.fq"
        source.write_bytes(os.urandom(self.size))
        moved = File(
            source.name, "mu", f"{urls[0]}/{source.name}", "tacc",
            f"{urls[1]}/arrived/{source.name}", self.size,
        )  # fmt: skip
        self.submit = plan.transfer_job(JOB, [moved])
        token = site.folder / "u.token"
        token.write_text(TOKEN + "ada")
        token.chmod(0o600)
        config |= {"token_file": str(token), "ca": str(site.authority.file)}
        self.config = write_config(self.run / "hooks.json", site.url, **config)

    def _hook(self, script: Path, *words: str) -> int:
        argv = [sys.executable, "-I", "-S", str(script), "--config", str(self.config), JOB, *words]
        return subprocess.run(argv, cwd=self.run, check=False, timeout=PATIENT_S).returncode

    def pre(self) -> None:
        """As DAGMan runs it: again where it was deferred."""
        while (code := self._hook(PRE, "0", "1")) == DEFER_STATUS:
            pass
        assert code == 0

    def move(self) -> None:
        """The job, and POST."""
        given = environment_of(self.submit)
        path = given["PATH"].replace("/opt/site/bin", self.env.get("PATH", os.environ["PATH"]))
        argv = [*self.within, sys.executable, str(PEGASUS_TRANSFER), "-n", "1"]
        argv += ["-f", str(self.submit.with_suffix(".in"))]
        env = {**os.environ, **self.env, **given, "PATH": path}
        env["PEGASUS_MULTIPART_DIR"] = str(self.submit.with_suffix(".multipart"))
        Path(env["PEGASUS_MULTIPART_DIR"]).mkdir(exist_ok=True)
        with (self.run / "log").open("w") as log:
            code = subprocess.call(argv, env=env, stdout=log, stderr=log, timeout=PATIENT_S)
        assert code == 0, (self.run / "log").read_text()
        assert self._hook(POST, "0", "0") == 0

    def now(self) -> Transit:
        return self.site.client.get(self.transit)


@contextlib.contextmanager
def up(site: Site) -> Iterator[Site]:
    try:
        site.up()
        yield site
    finally:
        site.stop()


@pytest.fixture
def grid(network: Network, tmp_path: Path) -> Iterator[GridFtp]:
    made = GridFtp(endpoints(LAYOUT), tmp_path, gridftp_programs())
    made.start()
    yield made
    made.stop()


@pytest.mark.parametrize("soykb_first", [False, True])
def test_each_application_gets_the_path_that_it_needs(
    grid: GridFtp, tmp_path: Path, soykb_first: bool
) -> None:
    """Figure 18 of the thesis by ordinary transfer jobs between the same two data nodes. Nobody
    names a port, a path or a rate."""
    mu, tacc = (grid.url(name) + str(tmp_path) for name in ("mu", "tacc"))
    with up(Site(tmp_path, "tacc")) as site:
        workflows = [Workflow(site, name, (mu, tacc), grid.transfer_env()) for name in NEEDS]
        figure18(*workflows, soykb_first=soykb_first)


def figure18(soykb: Workflow, large: Workflow, neuro: Workflow, soykb_first: bool) -> None:
    first, second = (soykb, neuro) if soykb_first else (neuro, soykb)
    first.pre()
    assert tuple(first.now().path) == L2
    second.pre()
    assert (tuple(neuro.now().path), tuple(soykb.now().path)) == (L2, L3)  # t3, t4
    waits = threading.Thread(target=large.pre)
    waits.start()

    def asked() -> bool:
        try:
            return large.now().state is TransitState.QUEUED
        except BrokerError:
            return False

    await_that(asked, "t6 in the queue")
    both = [threading.Thread(target=one.move) for one in (soykb, neuro)]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()
    waits.join()
    assert tuple(large.now().path) == L2  # t6
    large.move()
    for one in (soykb, neuro, large):
        ended = one.now()
        assert (ended.state, ended.bytes) == (TransitState.RELEASED, one.size)
        # What came before the agent's word went as best effort: seconds on a busy machine, but not
        # all of 60 MB, which take 24 s that way.
        assert ended.switch_bytes > 0 or (one is not neuro and not ended.flows)


def test_the_candidate_paths_of_sites_in_use_are_measured_each(
    network: Network, tmp_path: Path
) -> None:
    with Archive(tmp_path / "archive.sqlite") as archive:
        archive.record(
            Measurement("t", "throughput", "mu>tacc", 1e7, "bit/s", time.time(), "transfer")
        )
    short, long = "mu>tacc via s1-s2", "mu>tacc via s1-r1-s2"
    before = network.link("l3")["delay_s"]
    network.link("l3", delay_s=_SLOW_S)
    try:
        with (
            up(Site(tmp_path, "mu", "tacc", paths={"every": "5 s", "for": "1 s"})),
            Archive(tmp_path / "archive.sqlite", read_only=True) as archive,
        ):

            def measured() -> bool:
                # A busy machine answers late, but never before its time.
                rtts = {path: [m.value for m in archive.query("rtt", path)] for path in paths}
                assert all(rtt >= 2 * _SLOW_S for rtt in rtts[long])
                return bool(rtts[long]) and any(rtt < 2 * _SLOW_S for rtt in rtts[short])

            paths = (short, long)
            await_that(measured, "both paths")
    finally:
        network.link("l3", delay_s=before)
