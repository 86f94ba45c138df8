"""A broker on the testbed's switches with a transit whose promise is watched, and an agent at its
sender."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ovs_rig import OvsRig, in_netns

from examples.testbed.network import Network
from monitors.measurements.agent.host_reports import SS, SocketReporter, parse_ss
from network_provisioner.base.flows import Flow
from network_provisioner.base.model import KeptPromise, Transit, TransitRequest
from network_provisioner.broker import Broker
from network_provisioner.state.connections import SocketPeriod
from network_provisioner.stores.sqlite import SqliteStore
from network_provisioner.templates.data import templates_from_dict
from network_provisioner.topology.graph import Topology
from network_provisioner.topology.link_failures import News

PORT = 5001
_PATIENCE_S = 300.0


class Promised:
    """The transit ``a`` is from mu to tacc, for the packets to port 5001."""

    def __init__(
        self,
        network: Network,
        folder: Path,
        rate_bps: float,
        topology: Topology | None = None,
        template: Mapping[str, Any] | None = None,
    ) -> None:
        self.rig = OvsRig(network, topology)
        self.rig.controller = self.rig.openflow = self.rig.new_controller()
        self._rate_bps = rate_bps
        body = {"qspec": {"min_throughput": "1 Mb/s"}} | dict(template or {})
        templates = templates_from_dict({"default": body})
        store = SqliteStore(folder / "state.sqlite")
        self.broker = Broker(self.rig.topology, templates, self.rig.controller, store)
        self.news: list[News] = []
        self.broker.link_listeners.append(self.news.append)
        self.agent = SocketReporter(lambda: parse_ss(self.ss()))

    @staticmethod
    def ss() -> str:
        """What ss prints at the sender."""
        words = [*in_netns("mu"), *SS]
        return subprocess.run(words, check=True, capture_output=True, text=True).stdout

    def _report(self, body: Any) -> None:
        periods = [SocketPeriod((s[0], s[1]), (s[2], s[3]), *s[4:]) for s in body["sockets"]]
        self.broker.report_sockets("mu", periods)

    def start(self) -> None:
        """The broker, and the transit."""
        self.broker.start(60.0)
        flows, rate = (Flow("tcp", dst_ports=(PORT, PORT)),), self._rate_bps
        self.broker.request(
            TransitRequest(
                "a", "mu", "tacc", min_bps=rate, max_bps=rate, flows=flows, lease_s=3600.0,
                template="default",
            )
        )  # fmt: skip

    def stop(self) -> None:
        """Both."""
        self.rig.controller.clear()
        self.broker.stop()

    @property
    def transit(self) -> Transit:
        """As it is now."""
        return self.broker.get("a")

    @property
    def kept(self) -> KeptPromise:
        """What became of its promise so far."""
        return self.transit.usage.kept or KeptPromise()

    def observe(self) -> None:
        """A second, and what agent and broker do in it."""
        time.sleep(1.0)
        self.agent.observe(self._report)
        self.broker.sweep()

    def until(self, what: str, check: Callable[[], bool]) -> None:
        """Second by second, until something is true."""

        deadline = time.monotonic() + _PATIENCE_S
        self.observe()
        while not check():
            assert time.monotonic() < deadline, f"waited {_PATIENCE_S:g} s for {what}"
            self.observe()
