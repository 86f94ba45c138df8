"""A network without packets, for machines where nobody may make one.

It takes and refuses circuits by the rules that hold for all drivers; leases end by the clock.
Counters grow by what transfers report to have moved. Nothing is guaranteed, and it says so.

Ten thousand circuits are told again at every change. Only those that differ are looked at.
"""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Callable, Sequence
from itertools import compress, count, pairwise
from operator import is_not

from network_provisioner.base.controller import (
    Capabilities,
    Circuit,
    ControllerError,
    LinkCounter,
    Queue,
)
from network_provisioner.base.errors import InputError
from network_provisioner.base.flows import Flow
from network_provisioner.base.units import format_rate
from network_provisioner.controllers.groups import check_circuit, check_path, overlap, paths_of
from network_provisioner.controllers.routes import default_paths, switch_hops
from network_provisioner.controllers.shaping.shapes import check_queues
from network_provisioner.topology.graph import Hop, Topology

_PARTS = 1000  # of a bit per second: what rates are added up in, so that sums come back to zero


class SimulatedController:
    """A :class:`~network_provisioner.base.controller.Controller` that moves no packets.

    ``clock`` gives Unix seconds. Thread-safe.
    """

    def __init__(self, topology: Topology, clock: Callable[[], float] = time.time) -> None:
        """Raises InputError for a topology whose best-effort routes could not be laid."""
        for path in default_paths(topology):
            switch_hops(topology, path.nodes)
        self._topology = topology
        self._clock = clock
        self._lock = threading.Lock()
        self._running = False
        self._circuits: dict[str, Circuit] = {}
        self._told: Sequence[Circuit] = ()  # what was listed last, with what has ended since
        self._leases: list[tuple[float, str]] = []  # heap of ends; entries may be outdated
        self._load: dict[Hop, int] = {}
        # Of each ordered pair of sites: who carries which packets, in the order they came.
        self._groups: dict[tuple[str, ...], dict[tuple[Flow, ...], dict[str, Circuit]]] = {}
        self._paths: set[tuple[str, ...]] = set()  # that are known to be possible
        self._queues: tuple[Queue, ...] = ()
        self._bytes: dict[str, int] = {}
        self._sent: dict[Hop, int] = {}

    def capabilities(self) -> Capabilities:
        return Capabilities(
            name="simulated", flow_leases=True, matches=True, multipath=True, queues=True
        )

    def start(self, timeout_s: float) -> None:
        """There is nothing to wait for."""
        with self._lock:
            if self._running:
                return
            self._running = True
            self._sent = {
                (switch, link.other(switch)): 0
                for link in self._topology.links
                for switch in link.ports or {}
            }

    def apply(self, circuits: Sequence[Circuit], queues: Sequence[Queue] = ()) -> None:
        with self._lock:
            self._require_running()
            now = self._clock()
            self._lapse(now)
            was, changed_circuits = _apart(self._told, circuits)
            known, wanted = set(map(id, was)), set(map(id, changed_circuits))
            new = [c for c in changed_circuits if id(c) not in known]
            gone = [c for c in was if id(c) not in wanted and self._circuits.get(c.id) is c]
            try:
                names, left = {c.id for c in new}, {c.id for c in gone}
                twice = any(name in self._circuits and name not in left for name in names)
                if twice or len(wanted) != len(changed_circuits) or len(names) != len(new):
                    raise InputError("a circuit is listed twice, expected one of each id")
                if tuple(queues) != self._queues:
                    check_queues(self._topology, queues)
                for circuit in new:
                    self._check(circuit)
                self._exchange(gone, [c for c in new if c.lease_until > now])
            except InputError as error:
                raise ControllerError(str(error)) from error
            self._queues, self._told = tuple(queues), tuple(circuits)
            for circuit in gone:
                if circuit.id not in names:
                    self._bytes.pop(circuit.id, None)

    def report_bytes(self, circuit_id: str, n_bytes: int) -> None:
        """Take in that a transfer has moved ``n_bytes`` over a circuit.

        Over the paths of one with several parts they go as its rates do. A circuit that is not
        installed moves nothing. Raises InputError for less than 0 bytes.
        """
        if n_bytes < 0:
            raise InputError(f"circuit {circuit_id!r} moved {n_bytes} bytes, expected 0 or more")
        with self._lock:
            circuit = self._circuits.get(circuit_id)
            if circuit is None or circuit.lease_until <= self._clock():
                return
            self._bytes[circuit_id] = self._bytes.get(circuit_id, 0) + n_bytes
            total = sum(part.max_bps for part in circuit.all_parts)
            for part in circuit.all_parts:
                for hop in pairwise(part.path):
                    if hop in self._sent:
                        self._sent[hop] += round(n_bytes * part.max_bps / total)

    def circuit_bytes(self, circuit_id: str) -> int:
        with self._lock:
            return self._bytes.get(circuit_id, 0)

    def installed(self) -> list[str]:
        with self._lock:
            self._require_running()
            now = self._clock()
            return sorted(i for i, c in self._circuits.items() if c.lease_until > now)

    def counters(self) -> list[LinkCounter]:
        with self._lock:
            at = self._clock()
            return [LinkCounter(a, b, count, at) for (a, b), count in self._sent.items()]

    def clear(self) -> None:
        with self._lock:
            self._forget()

    def stop(self) -> None:
        """Its switches end with it."""
        with self._lock:
            self._running = False
            self._forget()
            self._sent.clear()

    # -- within ------------------------------------------------------------------------------

    def _require_running(self) -> None:
        if not self._running:
            raise ControllerError("the simulated controller is not started")

    def _forget(self) -> None:
        self._exchange(list(self._circuits.values()), [])
        self._leases.clear()
        self._queues = self._told = ()
        self._bytes.clear()

    def _lapse(self, now: float) -> None:
        """Forget the circuits whose leases have ended."""
        while self._leases and self._leases[0][0] <= now:
            _, circuit_id = heapq.heappop(self._leases)
            circuit = self._circuits.get(circuit_id)
            if circuit is not None and circuit.lease_until <= now:
                self._take_off(circuit)

    def _exchange(self, gone: Sequence[Circuit], new: Sequence[Circuit]) -> None:
        """Replace circuits, or change nothing and raise InputError."""
        for circuit in gone:
            self._take_off(circuit)
        for number, circuit in enumerate(new):
            try:
                self._put_on(circuit)
            except InputError:
                for other in new[:number]:
                    self._take_off(other)
                for other in gone:
                    self._put_on(other)
                raise
        for circuit in new:
            heapq.heappush(self._leases, (circuit.lease_until, circuit.id))

    def _take_off(self, circuit: Circuit) -> None:
        del self._circuits[circuit.id]
        for hop, rate in _rates(circuit).items():
            self._load[hop] -= rate
        between, flows = _key(circuit)
        groups = self._groups[between]
        del groups[flows][circuit.id]
        if not groups[flows]:
            del groups[flows]

    def _put_on(self, circuit: Circuit) -> None:
        rates = _rates(circuit)
        for hop, rate in rates.items():
            capacity = self._topology.link(*hop).capacity_bps
            load = self._load.get(hop, 0) + rate
            if load > capacity * _PARTS:
                raise InputError(
                    f"link {hop[0]}-{hop[1]} carries {format_rate(capacity)}, but with circuit "
                    f"{circuit.id!r} {format_rate(load / _PARTS)} are guaranteed on it"
                )
        between, flows = _key(circuit)
        groups = self._groups.setdefault(between, {})
        if flows in groups:
            other = next(iter(groups[flows].values()))
            if paths_of(other) != paths_of(circuit):
                raise InputError(
                    f"circuits {other.id!r} and {circuit.id!r} carry the same packets and name "
                    "different paths, expected one way for them"
                )
        elif circuit.redirect is None:
            self._check_apart(circuit, groups)
        groups.setdefault(flows, {})[circuit.id] = circuit
        self._circuits[circuit.id] = circuit
        for hop, rate in rates.items():
            self._load[hop] = self._load.get(hop, 0) + rate

    def _check_apart(
        self, circuit: Circuit, groups: dict[tuple[Flow, ...], dict[str, Circuit]]
    ) -> None:
        for flows, others in groups.items():
            if any(overlap(flow, other) for flow in circuit.flows for other in flows):
                raise InputError(
                    f"circuits {next(iter(others))!r} and {circuit.id!r} both name some packets, "
                    "expected ports of its own for each, or exactly the same"
                )

    def _check(self, circuit: Circuit) -> None:
        check_circuit(circuit)
        for path in paths_of(circuit):
            if path not in self._paths:  # circuits are many, the paths they share are few
                check_path(self._topology, circuit.id, path)
                for way in (path, path[::-1]):
                    switch_hops(self._topology, way)
                self._paths.add(path)


def _apart(
    was: Sequence[Circuit], circuits: Sequence[Circuit]
) -> tuple[Sequence[Circuit], Sequence[Circuit]]:
    """Both without the same objects at their beginnings, and at their ends."""
    first = _alike(was, circuits)
    was, circuits = was[first:], circuits[first:]
    last = _alike(was[::-1], circuits[::-1])
    return was[: len(was) - last], circuits[: len(circuits) - last]


def _alike(some: Sequence[Circuit], others: Sequence[Circuit]) -> int:
    """How many of the first ones are the same objects."""
    differ = compress(count(), map(is_not, some, others))
    return next(differ, min(len(some), len(others)))


def _rates(circuit: Circuit) -> dict[Hop, int]:
    rates: dict[Hop, int] = {}
    for part in circuit.all_parts:
        rate = round(part.min_bps * _PARTS)
        for hop in pairwise(part.path[1:-1] if circuit.redirect else part.path):
            rates[hop] = rates.get(hop, 0) + rate
    return rates


def _key(circuit: Circuit) -> tuple[tuple[str, ...], tuple[Flow, ...]]:
    flows = circuit.flows
    if len(flows) > 1:
        flows = tuple(sorted(set(flows), key=repr))
    return (circuit.path[0], circuit.path[-1], *circuit.hosts), flows
