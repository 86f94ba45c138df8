"""A broker on a network that exists only in memory, with a clock that stands still."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from itertools import pairwise
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import pytest
from network_world import SITES, TEMPLATES, demo_network

from network_provisioner.base.controller import (
    Capabilities,
    Circuit,
    Controller,
    ControllerError,
    LinkCounter,
    Part,
    Queue,
    SwitchStatus,
    Way,
)
from network_provisioner.base.errors import BrokerError
from network_provisioner.base.model import Transit, TransitRequest
from network_provisioner.broker import Broker
from network_provisioner.policies.policy import Differentiator
from network_provisioner.selection.limits import BrokerLimits
from network_provisioner.selection.path_selector import MetricsOf
from network_provisioner.stores.sqlite import SqliteStore
from network_provisioner.stores.store import Store
from network_provisioner.templates.data import templates_from_dict
from network_provisioner.topology.graph import Topology
from network_provisioner.transits.io_aware import DiskRateOf
from network_provisioner.transits.placement import SpaceOf
from network_provisioner.transits.tuning import FiguresOf

__all__ = ["SITES", "demo_network"]  # and all that is below

MBPS = 1e6
BIG = 10**9
L2 = ["mu", "s1", "s2", "tacc"]


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

    def __init__(
        self,
        topology: Topology,
        pinned: bool = True,
        bandwidth: str = "queue",
        **can: bool,
    ) -> None:
        self.topology = topology
        self.pinned = pinned
        self.can = Capabilities("fake", bandwidth=bandwidth, real_packets=True, **can)
        self.circuits: dict[str, Circuit] = {}
        self.queues: list[Queue] = []
        self.applied: list[list[str]] = []
        self.cursed: set[str] = set()  # circuits that the switches do not take
        self.no_redirects = False
        self.broken: Exception | None = None
        self.bytes: dict[str, int] = {}
        self.failed: dict[tuple[str, str], str] = {}  # directed links that carry nothing
        self.statuses: list[SwitchStatus] = []
        self.ways: set[Way] = set()  # of probes
        self.unheard: set[tuple[str, str]] = set()  # directed links that no probe came through

    def fail(self, a: str, b: str, why: str = "port 10 of s1 is down") -> None:
        """A link fails."""
        self.failed |= dict.fromkeys(self.topology.link(a, b).hops, why)

    def failed_links(self) -> dict[tuple[str, str], str]:
        return self.failed

    def known_ways(self) -> set[Way]:
        return self.ways

    def unheard_links(self) -> set[tuple[str, str]]:
        return self.unheard

    def expect_ways(self, ways: Set[Way], failed: Mapping[tuple[str, str], str]) -> None:
        self.ways |= ways
        self.failed |= failed

    def switches(self) -> list[SwitchStatus]:
        return self.statuses

    def clear(self) -> None:
        self.circuits, self.queues = {}, []

    def capabilities(self) -> Capabilities:
        return self.can

    def start(self, timeout_s: float) -> None:
        if self.broken:
            raise self.broken

    def apply(self, circuits: Sequence[Circuit], queues: Sequence[Queue] = ()) -> None:
        if self.broken:
            raise self.broken
        self.check(circuits)
        if self.no_redirects and any(c.redirect for c in circuits):
            raise ControllerError("no eth_dst here")
        if any(c.id in self.cursed for c in circuits):
            raise ControllerError("switch 2 does not take that rule")
        self.circuits = {c.id: c for c in circuits}
        self.queues = list(queues)
        self.applied.append(sorted(self.circuits))

    def check(self, circuits: Sequence[Circuit]) -> None:
        """Raises Impossible for circuits that no network could carry together."""
        load: dict[tuple[str, str], float] = {}
        paths: dict[Any, set[frozenset[str]]] = {}
        for circuit in circuits:
            if not 0 <= circuit.min_bps <= circuit.max_bps:
                raise Impossible(f"rates of {circuit}")
            parts = circuit.parts or (Part(circuit.path, circuit.min_bps, circuit.max_bps),)
            if sum(p.min_bps for p in parts) != circuit.min_bps or parts[0].path != circuit.path:
                raise Impossible(f"parts of {circuit}")
            for part in parts:
                for hop in pairwise(part.path):
                    load[hop] = load.get(hop, 0) + part.min_bps
                ends = frozenset((circuit.path[0], circuit.path[-1]))
                key = (ends, circuit.flows, frozenset(circuit.hosts), len(parts) > 1 and circuit.id)
                paths.setdefault(key, set()).add(frozenset(part.path))
            if (circuit.flows or circuit.hosts) and not self.can.matches:
                raise Impossible(f"flows of {circuit}")
            if len(parts) > 1 and not self.can.multipath:
                raise Impossible(f"parts of {circuit}")
        for hop, bps in load.items():
            relays = {end for end in hop if self.topology.nodes[end].kind == "relay"}
            if bps > self.topology.link(*hop).capacity_bps and not relays:
                raise Impossible(f"{bps} b/s on {hop}")
        if self.pinned and any(len(p) > 1 for (*_, several), p in paths.items() if not several):
            raise Impossible(f"packets with two paths: {paths}")

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


_OPEN: WeakValueDictionary[Path, SqliteStore] = WeakValueDictionary()


def _opened(file: Path) -> SqliteStore:
    """The store of a broker that starts. One that ran on the same file is dead by then, and the
    kernel would have taken the file from it; in these tests it is only forgotten."""
    before = _OPEN.pop(file, None)
    if before is not None:
        before.close()
    store = _OPEN[file] = SqliteStore(file)
    return store


class Rig:
    """A started broker and everything around it."""

    def __init__(
        self,
        file: Path,
        topology: Topology | None = None,
        templates: Mapping[str, Any] | None = None,
        limits: BrokerLimits | None = None,
        clock: Clock | None = None,
        metrics_of: MetricsOf | None = None,
        bandwidth: str = "queue",
        controller: Controller | None = None,
        store: Store | None = None,
        policies: Differentiator | None = None,
        best_effort_of: Callable[[str, str, str], tuple[float, float] | None] | None = None,
        disk_rate_of: DiskRateOf | None = None,
        figures_of: FiguresOf | None = None,
        space_of: SpaceOf | None = None,
        **can: bool,
    ) -> None:
        self.file = file
        self.topology = topology or demo_network()
        self.clock = clock or Clock()
        limits = limits or BrokerLimits()
        self.controller = FakeController(self.topology, limits.pin_pairs, bandwidth, **can)
        self.recorder = Recorder()
        self.store = store or _opened(file)
        self.broker = Broker(
            self.topology,
            templates_from_dict(TEMPLATES | dict(templates or {})),
            controller or self.controller,
            self.store,
            self.recorder,
            metrics_of,
            self.clock,
            limits,
            policies,
            best_effort_of,
            disk_rate_of,
            figures_of,
            space_of,
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
        Broker.sweep(self.broker)  # also where an application may not (api_rig.application)


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
