"""Transits that two relays carry: real switches, a broker, an agent at each switch, mutual TLS."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from network_world import RELAYED
from relay_rig import within
from waiting import until

from adon.machine import packages
from examples.testbed.gridftp import listens
from examples.testbed.layout import CONTROLLER, HUB_ADDRESS
from examples.testbed.network import Network
from examples.testbed.procs import Daemon
from network_provisioner.base.model import Transit, TransitRequest
from network_provisioner.client.broker import BrokerClient
from network_provisioner.client.http1 import Tls
from tests.authority import Authority

PORT, BROKER_PORT = 5001, 8470
URL = f"https://{HUB_ADDRESS}:{BROKER_PORT}"
DATA = bytes(range(256)) * 8000
AGENTS = ("ra", "rb")


class Relays:
    """The broker, its client, and the agents."""

    def __init__(self, folder: Path, undo: ExitStack) -> None:
        self.folder, self._undo = folder, undo
        self.authority = Authority(folder)
        self._broker(self.authority.issue("broker", hosts=[HUB_ADDRESS]))
        tls = Tls(str(self.authority.file), *self.authority.issue("admin"))
        self.broker = BrokerClient(URL, 60.0, None, tls)
        nft = packages.ensure("nftables", progress=print) / "wrap"
        self._env = {**os.environ, "PATH": f"{nft}:{os.environ['PATH']}"}
        until(self.answers, "the broker")
        self.agents = {name: self.agent(name) for name in AGENTS}
        until(lambda: set(self.states()) == {""}, "both agents")

    def _broker(self, files: tuple[str, str]) -> None:
        clients = str(self.authority.file)
        security = {
            "tls": {"certificate": files[0], "key": files[1], "clients": clients},
            "tokens": [
                {"name": "admin", "role": "engineer"},
                *({"name": name, "role": "agent"} for name in AGENTS),
            ],
        }  # fmt: skip
        template = {
            "qspec": {"min_throughput": "5 Mb/s"},
            "rspec": {"max_throughput": "100 Mb/s"},
            "break_even": 0,
            "relay": "always",
            "relay_tls": True,
        }
        config: dict[str, Any] = {
            "broker": {
                "listen": f"{HUB_ADDRESS}:{BROKER_PORT}",
                "state": str(self.folder / "state.sqlite"),
                "archive": str(self.folder / "archive.sqlite"),
            },
            "security": security,
            "topology": RELAYED.topology(),
            "controller": CONTROLLER,
            "templates": {"far": template},
        }
        file = self.folder / "adon.yml"
        file.write_text(yaml.safe_dump(config), encoding="utf-8")
        self.start()

    def start(self) -> None:
        """Start the broker."""
        words = [
            sys.executable,
            "-m",
            "adon.service.serve",
            "--config",
            str(self.folder / "adon.yml"),
        ]
        self.service = Daemon(words, self.folder / "broker.log")
        self._undo.callback(self.service.stop)

    def agent(self, name: str) -> Daemon:
        """Start one."""
        certificate, key = self.authority.issue(name)
        env = self._env | {"ADON_CA": str(self.authority.file), "ADON_CERTIFICATE": certificate}
        host = next(relay for relay in RELAYED.relays if relay.name == name)
        words = ["ip", "netns", "exec", str(host.netns), sys.executable, "-m", "adon", "relay"]
        words += ["run", "--node", name, "--address", host.address, "--broker", URL]
        agent = Daemon(words, self.folder / f"{name}.log", env=env | {"ADON_KEY": key})
        self._undo.callback(agent.stop)
        return agent

    def answers(self) -> bool:
        """Whether the broker does."""
        with suppress(Exception):
            return bool(self.broker.health())
        return False

    def states(self) -> list[str]:
        """Why each relay cannot be used, "" where it can."""
        return [relay["unready"] for relay in self.broker.call("GET", "/v1/relays")]

    def connections(self) -> list[int]:
        """How many each carries."""
        return [relay["connections"] for relay in self.broker.call("GET", "/v1/relays")]

    def ask(self, name: str) -> Transit:
        """A transit from mu to tacc."""
        return self.broker.request(TransitRequest(name, "mu", "tacc", template="far"))

    def relayed(self, name: str) -> None:
        """One that is relayed, of which both agents know: who hears of it more than two seconds
        after its first connection has reset that."""
        transit = self.ask(name)
        assert transit.relayed and transit.relay, transit
        port, agents = transit.relay.port, self.agents.values()
        until(lambda: all(listens(agent.pid, port) for agent in agents), "both agents to serve it")


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Relays]:
    programs = packages.ensure("openvswitch", progress=print) / "wrap"
    with ExitStack() as undo:
        undo.enter_context(Network(RELAYED, programs, tmp_path))
        yield Relays(tmp_path, undo)


def connected() -> tuple[socket.socket, socket.socket]:
    """A client at mu, and the server at tacc."""
    here, there = (RELAYED.host(site) for site in ("mu", "tacc"))
    listener = within(str(there.netns), lambda: socket.create_server((there.address, PORT)))
    client = within(str(here.netns), socket.socket)
    client.settimeout(60)
    client.connect((there.address, PORT))
    with listener:
        listener.settimeout(60)
        server, seen = listener.accept()
    server.settimeout(60)
    assert seen == client.getsockname()
    assert client.getpeername() == (there.address, PORT)
    return client, server


def received(sock: socket.socket) -> bytes:
    """All that comes until its end."""
    return b"".join(iter(lambda: sock.recv(1 << 16), b""))


def test_transits_are_relayed_drained_and_go_directly_without_an_agent(rig: Relays) -> None:
    rig.relayed("a")
    client, server = connected()
    until(lambda: rig.connections() == [1, 1], "both agents to count it")
    client.sendall(DATA)
    client.shutdown(socket.SHUT_WR)
    # What relays hold when it ends still arrives.
    rig.broker.release("a", len(DATA), 1.0, "success")
    assert received(server) == DATA
    server.sendall(DATA[::-1])
    server.close()
    assert received(client) == DATA[::-1]
    until(lambda: rig.broker.counters()["installed"] == [], "its rules to be gone")
    assert rig.broker.get("a").usage.switch_bytes > 0

    rig.relayed("b")
    client, server = connected()

    def flood() -> None:
        with suppress(OSError):
            while True:
                client.sendall(DATA)

    os.kill(rig.service.pid, signal.SIGKILL)
    sender = threading.Thread(target=flood)
    sender.start()
    assert server.recv(1000)
    rig.service.stop()
    rig.start()
    until(rig.answers, "the broker")
    until(lambda: rig.connections() == [1, 1], "both agents to find it again")
    assert rig.broker.get("b").relayed
    assert server.recv(len(DATA), socket.MSG_WAITALL)
    os.kill(rig.agents["ra"].pid, signal.SIGKILL)
    with pytest.raises(ConnectionResetError):
        received(server)
    sender.join()
    until(lambda: not rig.broker.get("b").relayed, "it to go directly")
    assert "ra" in rig.broker.get("b").relay.why
    client, server = connected()
    client.sendall(DATA[:1000])
    assert server.recv(1000, socket.MSG_WAITALL) == DATA[:1000]
    until(lambda: rig.connections() == [0, 0], "the other agent to say that it carries none")
    again = rig.ask("c")
    assert not again.relayed and "ra" in again.relay.why
