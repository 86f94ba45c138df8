"""Links and switches that are taken out of service for a while, for maintenance. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from network_provisioner.base.errors import BrokerError, did_you_mean
from network_provisioner.base.instants import iso
from network_provisioner.topology.graph import Hop, Topology

LEAD_S = 60.0  # transits leave so long before the work begins


@dataclass(frozen=True, slots=True)
class Drain:
    """``element``, a switch or the label of a link, is out of service from Unix second ``at`` until
    ``until`` (0: until the drain is cancelled). ``user`` has ordered it, for the reason ``note``.
    """

    element: str
    at: float
    until: float = 0.0
    note: str = ""
    user: str = ""

    def overlaps(self, start: float, end: float) -> bool:
        """Whether the element is out of service between two Unix seconds, or at one."""
        return self.at - LEAD_S <= end and start < (self.until or math.inf)

    def __str__(self) -> str:
        until = f" until {iso(self.until)}" if self.until else ""
        note = f": {self.note}" if self.note else ""
        return f"is out of service from {iso(self.at)}{until}{note}"


@dataclass(eq=False)
class Drains:
    """The drains of a network, one for each element. Not thread-safe."""

    _topology: Topology
    _drains: dict[str, Drain] = field(default_factory=dict)
    active: dict[str, Drain] = field(default_factory=dict)
    """Those that the last :meth:`advance` came to, by their elements."""
    closed_now: dict[Hop, str] = field(default_factory=dict)
    """The directed links that they take out of service, and why."""

    def __len__(self) -> int:
        return len(self._drains)

    def __iter__(self) -> Iterator[Drain]:
        return iter(sorted(self._drains.values(), key=lambda d: (d.at, d.element)))

    def get(self, element: str) -> Drain | None:
        """The drain of an element."""
        return self._drains.get(element)

    def replace(self, drains: Iterable[Drain]) -> None:
        """Have these instead. Those of elements that the topology does not have are kept, and do
        nothing."""
        self._drains = {drain.element: drain for drain in drains}

    def check(self, element: str) -> str:
        """The name of a switch, router or link. Raises BrokerError ``bad_request``."""
        names = {n.name for n in self._topology.nodes.values() if n.kind in ("switch", "router")}
        labels = {link.label for link in self._topology.whole_links}
        backwards = {f"{x.b}-{x.a}": x.label for x in self._topology.whole_links if not x.name}
        name = backwards.get(element, element)
        if name not in names | labels:
            raise BrokerError(
                f"unknown link or switch {element!r}, expected one of the topology"
                + did_you_mean(element, sorted(names | labels)),
                "bad_request",
            )
        return name

    def hops(self, element: str) -> frozenset[Hop]:
        """The directed links that an element takes with it."""
        links = (x for x in self._topology.whole_links if element in (x.label, x.a, x.b))
        return frozenset(hop for link in links for hop in link.hops)

    def closed(self, start: float, end: float) -> dict[Hop, str]:
        """The directed links that are out of service between two Unix seconds, and why."""
        return {
            hop: f"{drain.element} {drain}"
            for drain in self._drains.values()
            if drain.overlaps(start, end)
            for hop in self.hops(drain.element)
        }

    def advance(self, now: float) -> bool:
        """Go on to Unix second ``now``, and forget the drains that have ended; whether other ones
        are active."""
        before = self.active
        if self._drains or before:
            self.replace([drain for drain in self if not 0 < drain.until <= now])
            self.active = {d.element: d for d in self if d.overlaps(now, now)}
            self.closed_now = self.closed(now, now)
        return before != self.active
