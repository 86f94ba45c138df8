"""A transfer between two sites of a network in memory, second by second, with what its switches
count and an agent reports."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

from broker_rig import FakeController, Rig, demo_network

from network_provisioner.base.flows import Flow
from network_provisioner.base.model import KeptPromise, Transit
from network_provisioner.state.connections import SocketPeriod
from network_provisioner.topology.link_failures import News

MB = 10**6


class Counting(FakeController):
    """Counts what the first and the last switch of the circuit's path have seen."""

    def __init__(self) -> None:
        super().__init__(demo_network(), matches=True, multipath=True)
        self.first = self.last = 0
        self.silent = False

    def hop_bytes(self, circuit_ids: Collection[str]) -> dict[str, list[tuple[str, int]]]:
        if self.silent:
            return {}
        return {
            name: [("s1", self.first), ("s2", self.last)] if name == "a" else [("s1", 0)]
            for name in circuit_ids
        }


class Day:
    """A transfer of so many Mb/s from mu to tacc."""

    def __init__(self, file: Path, rate: float = 25, **rig: Any) -> None:
        self.controller = Counting()
        self.rig = Rig(file, self.controller.topology, controller=self.controller, **rig)
        self.news: list[News] = []
        self.rig.broker.link_listeners.append(self.news.append)
        self.rig.ask(
            "a", "mu", "tacc", min_bps=rate * MB, max_bps=rate * MB, user="ada",
            flows=(Flow(dst_ports=(5001, 5001)),),
        )  # fmt: skip

    def second(self, at_s1: float, at_s2: float, acked: float | None = None, **socket: Any) -> None:
        """One, with rates in Mb/s; and what an agent reports of its connection, if anything."""
        self.controller.first += round(at_s1 * MB / 8)
        self.controller.last += round(at_s2 * MB / 8)
        self.controller.bytes["a"] = self.controller.first
        if socket:
            seen = {"busy": 1.0, "window": 0.0, "buffer": 0.0, "waiting": True} | socket
            ends = ("10.10.0.1", 40001), ("10.10.0.2", 5001)
            arrived = round((at_s2 if acked is None else acked) * MB / 8)
            self.rig.broker.report_sockets("mu", [SocketPeriod(*ends, 1.0, arrived, **seen)])
        self.rig.let_pass(1)

    def seconds(self, number: int, rate: float) -> None:
        """Several, of a sender that wants more than that many Mb/s."""
        for _ in range(number):
            self.second(rate, rate, waiting=True)

    @property
    def transit(self) -> Transit:
        return self.rig.broker.get("a")

    @property
    def kept(self) -> KeptPromise:
        kept = self.transit.usage.kept
        assert kept is not None
        return kept
