"""A broker on a network that exists only in memory, with a clock that stands still."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from network_provisioner.admission import Limits
from network_provisioner.broker import Broker
from network_provisioner.controllers.base import (
    Capabilities,
    Circuit,
    Controller,
    ControllerError,
    LinkCounter,
)
from network_provisioner.errors import BrokerError
from network_provisioner.model import Transit, TransitRequest
from network_provisioner.store import SqliteStore
from network_provisioner.template import templates_from_dict
from network_provisioner.topology import Path as NetworkPath
from network_provisioner.topology import Topology, topology_from_dict

SITES = ("mu", "tacc", "iplant", "local")
MBPS = 1e6
BIG = 10**9
L2 = ["mu", "s1", "s2", "tacc"]


def demo_network(l2: str = "200 Mb/s", l3: str = "20 Mb/s") -> Topology:
    """The demo's network: mu and local on s1, tacc and iplant on s2, an L2 and an L3 path."""
    nodes: list[dict[str, Any]] = [
        {
            "name": name,
            "kind": "site",
            "address": f"10.10.0.{number}",
            "mac": f"02:00:00:00:00:0{number}",
        }
        for number, name in enumerate(SITES, 1)
    ]
    nodes += [{"name": "s1", "kind": "switch", "dpid": 1}]
    nodes += [{"name": "s2", "kind": "switch", "dpid": 2}]
    macs = {"s1": "02:00:00:00:0b:01", "s2": "02:00:00:00:0b:02"}
    nodes += [{"name": "r1", "kind": "router", "macs": macs}]
    at = {"mu": ("s1", 1), "local": ("s1", 4), "tacc": ("s2", 2), "iplant": ("s2", 3)}
    links: list[dict[str, Any]] = [
        {"a": site, "b": switch, "capacity": "1 Gb/s", "ports": {switch: port}}
        for site, (switch, port) in at.items()
    ]
    links += [
        {
            "a": "s1",
            "b": "s2",
            "capacity": l2,
            "delay": "26.5 ms",
            "layer": "l2",
            "ports": {"s1": 10, "s2": 10},
            "devices": {"s1": "s1-a", "s2": "s2-a"},
        },
        {
            "a": "s1",
            "b": "r1",
            "capacity": l3,
            "delay": "26.5 ms",
            "layer": "l3",
            "ports": {"s1": 11},
            "devices": {"s1": "s1-b"},
        },
        {
            "a": "r1",
            "b": "s2",
            "capacity": l3,
            "layer": "l3",
            "ports": {"s2": 11},
            "devices": {"s2": "s2-b"},
        },
    ]
    return topology_from_dict({"nodes": nodes, "links": links})


class Clock:
    """Unix seconds that pass only when told to."""

    def __init__(self, now: float = 1_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class Impossible(BaseException):
    """What a broker must never ask for. No Exception, so that no broker takes it for a refusal."""


class FakeController:
    """Remembers what it was told, and checks that it could be done by any network."""

    def __init__(self, topology: Topology, pinned: bool = True, bandwidth: str = "queue") -> None:
        self.topology = topology
        self.pinned = pinned
        self.bandwidth = bandwidth
        self.circuits: dict[str, Circuit] = {}
        self.applied: list[list[str]] = []
        self.broken: Exception | None = None
        self.bytes: dict[str, int] = {}

    def capabilities(self) -> Capabilities:
        return Capabilities("fake", bandwidth=self.bandwidth, real_packets=True)

    def start(self, timeout_s: float) -> None:
        if self.broken:
            raise self.broken

    def apply(self, circuits: Sequence[Circuit]) -> None:
        if self.broken:
            raise self.broken
        self.check(circuits)
        self.circuits = {c.id: c for c in circuits}
        self.applied.append(sorted(self.circuits))

    def check(self, circuits: Sequence[Circuit]) -> None:
        """Raises Impossible for circuits that no network could carry together."""
        load: dict[tuple[str, str], float] = {}
        paths: dict[frozenset[str], set[frozenset[str]]] = {}
        for circuit in circuits:
            if not 0 < circuit.min_bps <= circuit.max_bps:
                raise Impossible(f"rates of {circuit}")
            for hop in pairwise(circuit.path):
                load[hop] = load.get(hop, 0) + circuit.min_bps
            ends = frozenset((circuit.path[0], circuit.path[-1]))
            paths.setdefault(ends, set()).add(frozenset(circuit.path))
        for hop, bps in load.items():
            if bps > self.topology.link(*hop).capacity_bps:
                raise Impossible(f"{bps} b/s on {hop}")
        if self.pinned and any(len(found) > 1 for found in paths.values()):
            raise Impossible(f"a pair of sites with two paths: {paths}")

    def circuit_bytes(self, circuit_id: str) -> int:
        if self.broken:
            raise self.broken
        return self.bytes.get(circuit_id, 0)

    def installed(self) -> list[str]:
        return sorted(self.circuits)

    def counters(self) -> list[LinkCounter]:
        if self.broken:
            raise self.broken
        return [LinkCounter("s1", "s2", 7, 1_000_000.0)]

    def stop(self) -> None:
        self.circuits = {}


class Recorder:
    """Remembers what it was given, or raises."""

    def __init__(self) -> None:
        self.transits: list[Transit] = []
        self.broken: Exception | None = None

    def record(self, transit: Transit) -> None:
        if self.broken:
            raise self.broken
        self.transits.append(transit)


class Rig:
    """A started broker and everything around it."""

    def __init__(
        self,
        file: Path,
        topology: Topology | None = None,
        templates: Mapping[str, Any] | None = None,
        limits: Limits | None = None,
        clock: Clock | None = None,
        throughput_of: Callable[[NetworkPath], tuple[float, float] | None] | None = None,
        bandwidth: str = "queue",
        controller: Controller | None = None,
    ) -> None:
        self.file = file
        self.topology = topology or demo_network()
        self.clock = clock or Clock()
        limits = limits or Limits()
        self.controller = FakeController(self.topology, limits.pin_pairs, bandwidth)
        self.recorder = Recorder()
        self.store = SqliteStore(file)
        self.broker = Broker(
            self.topology,
            templates_from_dict(templates),
            controller or self.controller,
            self.store,
            self.recorder,
            throughput_of,
            self.clock,
            limits,
        )
        self.broker.start()

    def ask(self, transit_id: str, src: str, dst: str, **more: Any) -> Transit:
        return self.broker.request(TransitRequest(transit_id, src, dst, **more))

    def reserved(self) -> dict[str, float]:
        """Directed link -> bits per second reserved now, only where that is any."""
        links = self.broker.describe_topology()["links"]
        loads = [load for link in links for load in link["load"]]
        return {f"{d['from']}>{d['to']}": d["reserved_bps"] for d in loads if d["reserved_bps"]}

    def let_pass(self, seconds: float) -> None:
        self.clock.now += seconds
        self.broker.sweep()


def refusing(words: str = "switch 1 did not answer") -> ControllerError:
    return ControllerError(words)


def code_of(call: Callable[..., object], *args: Any, **named: Any) -> str:
    """The code of the BrokerError that a call raises."""
    with pytest.raises(BrokerError) as caught:
        call(*args, **named)
    return caught.value.code


def fill(rig: Rig) -> None:
    """Two transits that leave nothing useful on L2 nor on L3."""
    rig.ask("l2", "mu", "tacc", template="soykb", min_bps=150e6, lease_s=100)
    rig.ask("l2b", "mu", "iplant", min_bps=30e6, max_bps=30e6, lease_s=50)
    rig.ask("l3", "local", "iplant", min_bps=18e6, max_bps=18e6, lease_s=200)
    assert rig.reserved()["s1>s2"] == 180e6 and rig.reserved()["s1>r1"] == 18e6
