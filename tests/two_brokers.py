"""Two broker processes on one PostgreSQL, with simulated switches."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from examples.testbed.ports import free_ports
from network_provisioner.base.errors import BrokerError
from network_provisioner.client.broker import BrokerClient

_EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "adon.yml"
_READY_S = 300.0  # nothing here takes nearly as long


class TwoBrokers:
    """They have different ports and one database; each is named by its number, 0 or 1."""

    def __init__(self, folder: Path, url: str, templates: Mapping[str, Any] | None = None) -> None:
        """``templates`` are more than those of ``examples/adon.yml``."""
        self.folder, self.url = folder, url
        self.ports = free_ports(2)
        self.running: dict[int, subprocess.Popen[bytes]] = {}
        self.config = yaml.safe_load(_EXAMPLE.read_text())
        self.config["templates"] |= templates or {}
        for number, port in enumerate(self.ports):
            broker = {
                "listen": f"127.0.0.1:{port}",
                "state": url,
                "archive": str(folder / f"archive{number}.sqlite"),
            }
            text = yaml.safe_dump(self.config | {"broker": broker})
            (folder / f"{number}.yml").write_text(text)

    def client(self, number: int, timeout_s: float = 60.0) -> BrokerClient:
        return BrokerClient(f"http://127.0.0.1:{self.ports[number]}", timeout_s)

    def start(self, *numbers: int) -> None:
        """These, at the same time; returns when each is ready."""
        for number in numbers:
            self._start(number)
        deadline = time.monotonic() + _READY_S
        for number in numbers:
            while not self._is_ready(number):
                log = (self.folder / f"{number}.log").read_text()
                if time.monotonic() > deadline:
                    raise RuntimeError(f"broker {number} does not start: {log}")
                if self.running[number].poll() is not None:
                    # It waits seconds for a database; a service manager starts it again then.
                    last = log.rstrip().rpartition("\n")[2]
                    assert last.startswith("adon broker: database "), log
                    self._start(number)
                time.sleep(0.05)

    def _start(self, number: int) -> None:
        with (self.folder / f"{number}.log").open("ab") as log:
            self.running[number] = subprocess.Popen(
                [sys.executable, "-m", "adon.service.serve", "--config", f"{number}.yml",
                 "--tied-to", str(os.getpid())],
                cwd=self.folder, stdout=log, stderr=log,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            )  # fmt: skip

    def _is_ready(self, number: int) -> bool:
        try:
            health = self.client(number).health()
        except BrokerError:
            return False
        return bool(health["leader"]) and health["status"] == "ok"

    def leader(self) -> int:
        """The number of the one that leads, once both know it."""
        deadline = time.monotonic() + _READY_S
        while time.monotonic() < deadline:
            try:
                healths = [self.client(number).health() for number in (0, 1)]
            except BrokerError:
                healths = []
            leads = [number for number, health in enumerate(healths) if health["leads"]]
            if len(leads) == len({health["leader"] for health in healths}) == 1:
                return leads[0]
            time.sleep(0.1)
        raise RuntimeError("the brokers do not agree on a leader")

    def kill(self, number: int) -> None:
        """-9."""
        self.running[number].kill()
        self.running.pop(number).wait()

    def freeze(self, number: int) -> None:
        """Have it stand still, wherever it is."""
        self.running[number].send_signal(signal.SIGSTOP)

    def thaw(self, number: int) -> None:
        self.running[number].send_signal(signal.SIGCONT)

    def stop(self) -> None:
        for process in self.running.values():
            process.terminate()
        for process in self.running.values():
            process.wait(_READY_S)
