"""A storm of clients on one scarce link, in a time that passes as fast as it is reckoned.

Each client asks for a transfer with a minimum of its own, waits for its path, moves its bytes at
0.9 to 2.5 times that, gives the path back, and asks for the next. Far more is asked for than the
link carries. The broker is the real one; its switches are simulated.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

from network_provisioner.base.model import LIVE, Transit, TransitRequest
from network_provisioner.base.units import transfer_time
from network_provisioner.broker import Broker
from network_provisioner.controllers.simulated import SimulatedController
from network_provisioner.selection.admission import Admission
from network_provisioner.selection.limits import BrokerLimits
from network_provisioner.selection.outcomes import Wait
from network_provisioner.state.waitlist import Claim, Claims
from network_provisioner.stores.sqlite import SqliteStore
from network_provisioner.templates.data import templates_from_dict
from network_provisioner.topology.graph import Hop, Link, Node, Topology

SITES = 6  # on each side
SCARCE: Hop = ("w0", "w1")
MINIMA_BPS = (10e6, 25e6, 50e6, 100e6, 165e6, 400e6)
TEMPLATES: dict[str, Any] = {
    "bulk": {
        "qspec": {"min_throughput": "10 Mb/s"},
        "rspec": {"max_throughput": "1 Gb/s"},
        "patience": "100 h",
        "break_even": 0,
    }
}


class Clock:
    """Unix seconds that pass only when told to."""

    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def network() -> Topology:
    """Two switches, a link of 1 Gb/s between them, and sites with ten times that on each side."""
    sides = [(f"{side}{i}", f"w{w}") for w, side in enumerate("ab") for i in range(SITES)]
    nodes = [Node(site, "site", address=f"10.{n}.0.1") for n, (site, _) in enumerate(sides, 1)]
    nodes += [Node("w0", "switch", dpid=1), Node("w1", "switch", dpid=2)]
    links = [
        Link(site, switch, 10e9, ports={switch: n}) for n, (site, switch) in enumerate(sides, 1)
    ]
    return Topology(nodes, [*links, Link(*SCARCE, 1e9, 0.01, ports={"w0": 99, "w1": 99})])


@contextmanager
def without_backfilling() -> Iterator[None]:
    """Nobody behind one that waits has any of the links that it lacks room on."""

    def claims(wait: Wait) -> dict[Hop, Claim]:
        whole = replace(wait.claim, start=0.0, rate_bps=float("inf"))
        return dict.fromkeys(sorted(wait.links), whole)

    def shut_out(admission: Admission, transit: Transit, before: Claims, *_: object) -> bool:
        waits = admission._state.active.waitlist.claims_of(transit)
        return bool(waits) and all(before.get(hop) for hop in waits)

    outside = patch.object(Admission, "shut_out", shut_out)
    with patch.object(Wait, "claims", claims), outside:
        yield


@contextmanager
def first_fit() -> Iterator[None]:
    """What fits begins, whatever waits before it."""

    def claims(wait: Wait) -> dict[Hop, Claim]:
        return dict.fromkeys(sorted(wait.links), replace(wait.claim, rate_bps=0.0))

    with patch.object(Wait, "claims", claims):
        yield


@dataclass
class Storm:
    """What ``clients`` found between ``warm_s`` and ``warm_s + measured_s``.

    ``reserved``  the part of what can be reserved on the scarce link that was, in the mean
    ``waits``     minimum in b/s and seconds waited of each transfer that began then
    ``unserved``  the same of those that wait in the end, so far
    ``late``      transfers that began after their first ``earliest``, in seconds after it
    """

    file: Path
    clients: int
    warm_s: float = 60.0
    measured_s: float = 600.0
    most_bytes: int = 2 * 10**9
    reserved: float = 0.0
    waits: list[tuple[float, float]] = field(default_factory=list)
    unserved: list[tuple[float, float]] = field(default_factory=list)
    late: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._rng = Random(7)
        self._clock = Clock()
        topology = network()
        self._broker = Broker(
            topology,
            templates_from_dict(TEMPLATES),
            SimulatedController(topology, clock=self._clock),
            SqliteStore(self.file),
            clock=self._clock,
            limits=BrokerLimits(pin_pairs=False, max_paths=1),
        )
        self._events: list[tuple[float, int, str]] = []  # when who gives what back, "": asks
        self._waiting: dict[int, Transit] = {}  # as it was when it was asked for
        self._count = 0

    def run(self) -> Storm:
        """The whole of it."""
        start = self._clock.now
        begin, end = start + self.warm_s, start + self.warm_s + self.measured_s
        self._events = [(start + self._rng.uniform(0, 5), n, "") for n in range(self.clients)]
        heapq.heapify(self._events)
        held, sweep = 0.0, start
        self._broker.start()
        try:
            while self._clock.now < end:
                at = min(sweep + 1.0, self._events[0][0] if self._events else end, end)
                if at > begin:
                    held += self._reserved() * (at - max(begin, self._clock.now))
                self._clock.now = max(at, self._clock.now)
                if at == sweep + 1.0:
                    sweep = at
                    self._broker.sweep()
                else:
                    self._next(at)
                self._begun(begin)
        finally:
            self._broker.stop()
        self.reserved = held / self.measured_s
        self.unserved = [
            (t.request.min_bps, end - t.request.requested_at) for t in self._waiting.values()
        ]
        return self

    def _reserved(self) -> float:
        ledger, now = self._broker._ledger, self._clock.now
        most = ledger.capacity(SCARCE)
        return 1 - ledger.residual(SCARCE, now, now + 1e-6) / most

    def _next(self, at: float) -> None:
        while self._events and self._events[0][0] <= at:
            _, client, name = heapq.heappop(self._events)
            if name:
                self._broker.release(name, 10**6, 1.0, "success")
                heapq.heappush(self._events, (at + self._rng.uniform(0, 2), client, ""))
            else:
                self._ask(client)

    def _ask(self, client: int) -> None:
        self._count += 1
        rng = self._rng
        low, size = rng.choice(MINIMA_BPS), round(10 ** rng.uniform(7, 9.3))
        request = TransitRequest(
            f"{client}.{self._count}", f"a{rng.randrange(SITES)}", f"b{rng.randrange(SITES)}",
            size_bytes=min(size, self.most_bytes), min_bps=low, template="bulk",
        )  # fmt: skip
        self._waiting[client] = self._broker.request(request)

    def _begun(self, begin: float) -> None:
        """Who has a path by now moves its bytes."""
        active, now = self._broker._active.all, self._clock.now
        for client, transit in list(self._waiting.items()):
            current = active.get(transit.id)
            if current is not None and current.state not in LIVE:
                continue
            del self._waiting[client]
            if current is None:
                raise AssertionError(f"{transit.id} is gone: {self._broker.get(transit.id).reason}")
            if now >= begin:
                self.waits.append((transit.request.min_bps, now - transit.request.requested_at))
            if transit.grant.earliest and now > transit.grant.earliest + 1.0:
                self.late.append(now - transit.grant.earliest)
            rate = transit.request.min_bps * self._rng.uniform(0.9, 2.5)
            took = transfer_time(transit.request.size_bytes or 0, rate)
            heapq.heappush(self._events, (now + took, client, transit.id))
