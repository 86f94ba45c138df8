"""A real broker beside the testbed's real switches, with tokens and TLS, and agents beside data
nodes."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import yaml
from authority import Authority
from hooks_world import PATIENT_S
from ovs_rig import in_netns
from waiting import until

from examples.demo.steps import CONTROLLER
from examples.soykb.fig18 import story as fig18
from examples.soykb.scenario import LAYOUT
from examples.testbed.gridftp import PORT
from examples.testbed.layout import HUB_ADDRESS
from examples.testbed.ports import free_port
from network_provisioner.access import hash_of
from network_provisioner.base.errors import BrokerError
from network_provisioner.base.model import TransitRequest
from network_provisioner.client.broker import BrokerClient
from network_provisioner.client.http1 import Tls

ROOT = Path(__file__).resolve().parents[2]
TOKEN = "a-token-of-this-test-alone"
RESEARCHER = "adon"  # whose the pool's jobs are
# Those of the thesis's Figure 18; its t6 is a SoyKB that needs more. However long circuits take to
# set up, as they do on a busy machine, each transfer is worth one.
_ANY_SIZE = {name: more | {"break_even": 0} for name, more in fig18.TEMPLATES.items()}
TEMPLATES = _ANY_SIZE | {
    "soykb-large": _ANY_SIZE["soykb"] | {"qspec": {"min_throughput": 700e6 * fig18.SCALE}}
}


class Site:
    """Broker, switches, and agents beside data nodes."""

    def __init__(self, folder: Path, *agents: str, **monitoring: object) -> None:
        self.folder, self.agents = folder, agents
        self.url = f"https://{HUB_ADDRESS}:{free_port()}"
        self.authority = Authority(folder)
        certificate, key = self.authority.issue("broker", hosts=[HUB_ADDRESS])
        tls = Tls(self.authority.file)
        self.client = BrokerClient(self.url, PATIENT_S, TOKEN + RESEARCHER, tls)
        self.processes: list[subprocess.Popen[bytes]] = []
        roles = {RESEARCHER: "researcher"} | dict.fromkeys(agents, "agent")
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
            "templates": TEMPLATES,
            "security": {"tokens": tokens, "tls": {"certificate": certificate, "key": key}},
            "monitoring": {"agents": there, **monitoring},
        }
        (folder / "adon.yml").write_text(yaml.safe_dump(config))

    def up(self) -> None:
        self.start("-m", "adon.service.serve", "--config", "adon.yml")
        until(self.answers, "a broker that answers")
        for name in self.agents:
            (self.folder / f"{name}.token").write_text(TOKEN + name)
            agent = {"name": name, "broker": self.url, "token_file": f"{name}.token"}
            agent |= {"state": f"of-{name}", "servers": [PORT], "ca": self.authority.file}
            agent |= {"limits": {"peers": ["10.10.0.0/24"]}}
            (self.folder / f"{name}.yml").write_text(yaml.safe_dump(agent))
            words = ("-m", "adon", "agent", "run", "--config", f"{name}.yml")
            self.start(*words, within=in_netns(name))
        if self.agents:
            until(self.tells_apart, "an agent's word")

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
        return bool(answer.transit.grant.ports)

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


@contextlib.contextmanager
def up(site: Site) -> Iterator[Site]:
    try:
        site.up()
        yield site
    finally:
        site.stop()
