"""A network without packets, for machines where nobody may make one.

It takes and refuses the same circuits as the real driver, by the same plan; leases end by the
clock. Counters grow by what transfers report to have moved. Nothing is guaranteed, and it says so.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from network_provisioner.controllers.base import (
    Capabilities,
    Circuit,
    ControllerError,
    LinkCounter,
)
from network_provisioner.controllers.plan import default_routes, make_plan
from network_provisioner.errors import InputError
from network_provisioner.topology import Topology


class SimulatedController:
    """A :class:`~network_provisioner.controllers.base.Controller` that moves no packets.

    ``clock`` gives Unix seconds. Thread-safe.
    """

    def __init__(self, topology: Topology, clock: Callable[[], float] = time.time) -> None:
        """Raises InputError for a topology whose best-effort routes could not be laid."""
        default_routes(topology)
        self._topology = topology
        self._clock = clock
        self._lock = threading.Lock()
        self._running = False
        self._circuits: dict[str, Circuit] = {}
        self._bytes: dict[str, int] = {}
        self._sent: dict[tuple[str, str], int] = {}

    def capabilities(self) -> Capabilities:
        """See Controller."""
        return Capabilities(name="simulated", flow_leases=True)

    def start(self, timeout_s: float) -> None:
        """See Controller; there is nothing to wait for."""
        with self._lock:
            if self._running:
                return
            self._running = True
            self._sent = {
                (switch, link.b if switch == link.a else link.a): 0
                for link in self._topology.links
                for switch in link.ports or {}
            }

    def apply(self, circuits: Sequence[Circuit]) -> None:
        """See Controller."""
        with self._lock:
            self._require_running()
            try:
                make_plan(self._topology, circuits, self._clock())
            except InputError as error:
                raise ControllerError(str(error)) from error
            self._circuits = {circuit.id: circuit for circuit in circuits}
            self._bytes = {i: n for i, n in self._bytes.items() if i in self._circuits}

    def report_bytes(self, circuit_id: str, n_bytes: int) -> None:
        """Take in that a transfer has moved ``n_bytes`` over a circuit.

        Nothing happens for a circuit that is not installed. Raises InputError below 0.
        """
        if n_bytes < 0:
            raise InputError(f"circuit {circuit_id!r} moved {n_bytes} bytes, expected 0 or more")
        with self._lock:
            circuit = self._circuits.get(circuit_id)
            if circuit is None or circuit.lease_until <= self._clock():
                return
            self._bytes[circuit_id] = self._bytes.get(circuit_id, 0) + n_bytes
            for hop in self._topology.path(circuit.path).hops:
                if hop in self._sent:
                    self._sent[hop] += n_bytes

    def circuit_bytes(self, circuit_id: str) -> int:
        """See Controller."""
        with self._lock:
            return self._bytes.get(circuit_id, 0)

    def installed(self) -> list[str]:
        """See Controller."""
        with self._lock:
            self._require_running()
            now = self._clock()
            return sorted(i for i, c in self._circuits.items() if c.lease_until > now)

    def counters(self) -> list[LinkCounter]:
        """See Controller."""
        with self._lock:
            at = self._clock()
            return [LinkCounter(a, b, count, at) for (a, b), count in self._sent.items()]

    def stop(self) -> None:
        """See Controller."""
        with self._lock:
            self._running = False
            self._circuits.clear()
            self._bytes.clear()
            self._sent.clear()

    def _require_running(self) -> None:
        if not self._running:
            raise ControllerError("the simulated controller is not started")
