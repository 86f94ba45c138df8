"""P3, the leader: how long nobody decides when the broker that leads is killed.

Two brokers on one PostgreSQL, with simulated switches. The leader is killed with signal 9, again
and again; what is measured is the time until the other one has granted a transit. Then every
transit that was granted has to be there, and none twice.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

import yaml

from adon.machine import packages
from examples.testbed.ports import free_ports
from examples.testbed.postgres import Postgres
from network_provisioner.base.errors import BrokerError
from network_provisioner.base.model import TransitRequest, TransitState
from network_provisioner.client.broker import BrokerClient
from tests.bench import Figure, Tell, bench, percentiles

KILLS = 50
_EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "adon.yml"
_LONG_S = 120.0


class TwoBrokers:
    """Processes on one database; of each the number, from 0."""

    def __init__(self, folder: Path, url: str) -> None:
        self._folder = folder
        self._ports = free_ports(2)
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        for number, port in enumerate(self._ports):
            config = yaml.safe_load(_EXAMPLE.read_text())
            config["broker"] = {
                "listen": f"127.0.0.1:{port}", "state": url, "archive": f"{number}.sqlite",
            }  # fmt: skip
            (folder / f"{number}.yml").write_text(yaml.safe_dump(config))
            self.start(number)

    def start(self, number: int) -> None:
        """Returns when it answers and knows who leads."""
        self._running[number] = subprocess.Popen(
            [sys.executable, "-m", "adon.service.serve", "--config", f"{number}.yml",
             "--tied-to", str(os.getpid())],
            cwd=self._folder, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        end = time.monotonic() + _LONG_S
        while not self._knows_leader(number):
            if time.monotonic() > end:
                raise TimeoutError(f"broker {number} does not start")
            time.sleep(0.05)

    def _knows_leader(self, number: int) -> bool:
        try:
            health = self.client(number).health()
        except BrokerError:
            return False
        return bool(health["leader"]) and health["status"] == "ok"

    def client(self, number: int) -> BrokerClient:
        return BrokerClient(f"http://127.0.0.1:{self._ports[number]}", _LONG_S)

    def leader(self) -> int:
        return 0 if self.client(0).health()["leads"] else 1

    def kill(self, number: int) -> None:
        self._running[number].kill()
        self._running.pop(number).wait()

    def stop(self) -> None:
        for number in list(self._running):
            self.kill(number)


def seconds_without_leader(brokers: TwoBrokers, tell: Tell) -> list[float]:
    """How long each takeover took, until a transit was granted."""
    spent, granted = [], set()
    for number in range(KILLS):
        tell(f"kill {number + 1} of {KILLS}")
        old = brokers.leader()
        client, request = brokers.client(1 - old), TransitRequest(f"t{number}", "mu", "tacc", 10**9)
        brokers.kill(old)
        began = time.perf_counter()
        transit = client.request(request)
        spent.append(time.perf_counter() - began)
        if transit.state is TransitState.INSTALLED:
            granted.add(transit.id)
        brokers.start(old)
        if number % 5 == 4:  # or the link is full
            client.release(transit.id)
    states = {t.id: t.state for t in client.list()}
    if lost := granted - states.keys():
        raise AssertionError(f"granted and lost: {lost}")
    return spent


@bench("P3")
def leader(tell: Tell) -> Iterable[Figure]:
    """How long nobody decides when the leader is killed."""
    programs = packages.ensure("postgresql", progress=tell) / "wrap"
    with tempfile.TemporaryDirectory(prefix="adon-bench-") as name:
        folder = Path(name)
        with Postgres(folder / "pg", programs, durable=True) as server:
            brokers = TwoBrokers(folder, server.url)
            try:
                yield from percentiles(
                    "killed leader to the next one's first grant", "s",
                    seconds_without_leader(brokers, tell), {},
                )  # fmt: skip
            finally:
                brokers.stop()
