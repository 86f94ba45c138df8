"""What every transit on the switches is given now, kept current while they come and go.

Rates are those of :mod:`~.state.elastic`: minima for certain, the rest max-min fair by
priority, within what the policy's queues are sure of. With up to :data:`EAGER` paths in use
everything is shared anew at each change. Beyond, a newcomer is given its minimum and what happens
to be free, out of what its neighbours have above their minima; everything is shared anew when the
broker's sweep next comes by, about once a second. At no time is a link promised to more than it
carries.

Minima come from the ledger, so there is always room for them. Not thread-safe.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from network_provisioner.base.controller import Queue
from network_provisioner.base.model import Transit
from network_provisioner.policies.accounting import meter
from network_provisioner.policies.strategies import sure_bps
from network_provisioner.state import circuits
from network_provisioner.state.elastic import MaxMinShares, RateDemand
from network_provisioner.topology.graph import Hop, Topology

EAGER = 256


class Shares:
    """The rates of transits, which it writes into them (``granted_bps``, also of their parts)."""

    def __init__(self, topology: Topology, capacity: Mapping[Hop, float]) -> None:
        """``capacity``: bits per second to be shared on each directed link."""
        self._topology = topology
        self._links = dict(capacity)
        self._queues: dict[Hop, float] = {}  # what queues are sure of, each like a link of its own
        self._within: dict[tuple[str, Hop], tuple[Hop, ...]] = {}  # of a queue on a link
        self._sharing = MaxMinShares(self._links)
        self._transits: dict[str, Transit] = {}
        self._demands: dict[str, RateDemand] = {}
        self._on: dict[Hop, dict[str, RateDemand]] = {}
        self._rates: dict[str, float] = {}
        self._used: dict[Hop, float] = {}
        self._new: dict[str, RateDemand] = {}  # since everything was shared last
        self._gone: set[str] = set()
        self.behind = False  # whether rates are not yet what they should be

    def put(self, transit: Transit) -> None:
        """Take in a transit that comes on the switches, or that changed its paths or its queue."""
        self.drop(transit.id)
        self._transits[transit.id] = transit
        for demand in self._wants(transit):
            self._demands[demand.id] = self._new[demand.id] = demand
            for hop in demand.hops:
                self._on.setdefault(hop, {})[demand.id] = demand
            self.behind = True

    def drop(self, transit_id: str) -> None:
        """Forget a transit, if it is known."""
        transit = self._transits.pop(transit_id, None)
        number = 0
        while transit is not None:
            name = circuits.part_name(transit_id, number)
            demand = self._demands.pop(name, None)
            if demand is None:
                return
            rate = self._rates.pop(name, 0.0)
            for hop in demand.hops:
                del self._on[hop][name]
                self._used[hop] = self._used.get(hop, 0.0) - rate
            self._new.pop(name, None)
            self._gone.add(name)
            self.behind = True
            number += 1

    def limit(self, queues: Sequence[Queue]) -> None:
        """The queues that there are from now on; transits name theirs. Shares all anew."""
        there: dict[Hop, list[Queue]] = {}
        for queue in queues:
            there.setdefault(queue.hop, []).append(queue)
        # What a queue is sure of is shared among its own; beyond it they borrow, up to its ceiling.
        self._queues = {_as_link(q.name, q.hop): sure_bps(q, there[q.hop]) for q in queues}
        self._within = {(q.name, q.hop): (_as_link(q.name, q.hop),) for q in queues}
        self._anew()

    @property
    def few(self) -> bool:
        """Whether so few paths are in use that all is shared anew at each change."""
        return len(self._demands) <= EAGER

    @property
    def transits(self) -> list[Transit]:
        """All that were taken in and not forgotten."""
        return list(self._transits.values())

    def settle(self, now: float, everything: bool) -> list[Transit]:
        """Bring rates up to date at Unix second ``now``; returns the transits whose rates changed.

        ``everything``: also where many are to be shared with.
        """
        if not self.behind:
            return []
        if everything or self.few:
            found = self._fair()
            changed = {name for name, rate in found.items() if rate != self._rates.get(name)}
            for name in changed:
                self._set(self._demands[name], found[name])
        else:
            changed = set()
            for demand in self._new.values():
                if demand.id not in self._rates:
                    changed |= self._squeeze_in(demand)
        transits = {i: self._transits[i] for i in map(circuits.owner, changed)}
        for transit in transits.values():
            meter(transit, now)  # what it had until now
            circuits.give(transit, self._rates)
        return list(transits.values())

    # -- within ------------------------------------------------------------------------------

    def _wants(self, transit: Transit) -> list[RateDemand]:
        has = circuits.ways(transit, self._topology)
        return circuits.demands(transit, has, self._within)

    def _anew(self) -> None:
        transits = list(self._transits.values())
        for transit in transits:
            self.drop(transit.id)
        self._sharing, self._gone = MaxMinShares({**self._links, **self._queues}), set()
        for transit in transits:
            self.put(transit)
        self.behind = True

    def _fair(self) -> dict[str, float]:
        if self._queues and self._raise_ceilings():
            self._anew()
        self._sharing.update(self._new.values(), self._gone)
        self._new, self._gone, self.behind = {}, set(), False
        return self._sharing.rates()

    def _raise_ceilings(self) -> bool:
        """A guarantee holds also where the policy's queue is too small for it."""
        raised = False
        for queue, ceiling in self._queues.items():
            least = sum(demand.min_bps for demand in self._on.get(queue, {}).values())
            if least > ceiling:
                self._queues[queue] = least
                raised = True
        return raised

    def _squeeze_in(self, demand: RateDemand) -> set[str]:
        """Give a newcomer its minimum and what is free, out of what others have above theirs.
        Returns whose rates changed."""
        changed = {demand.id}
        for hop in demand.hops:
            lacking = self._used.get(hop, 0.0) + demand.min_bps - self._capacity(hop)
            if lacking <= 0:
                continue
            others = [d for d in self._on[hop].values() if self._rates.get(d.id, 0.0) > d.min_bps]
            for other in sorted(others, key=lambda d: (d.priority, d.id)):
                spare = min(lacking, self._rates[other.id] - other.min_bps)
                self._set(other, self._rates[other.id] - spare)
                changed.add(other.id)
                lacking -= spare
                if lacking <= 0:
                    break
        free = min(self._capacity(hop) - self._used.get(hop, 0.0) for hop in demand.hops)
        self._set(demand, max(demand.min_bps, min(demand.max_bps, free)))
        return changed

    def _capacity(self, hop: Hop) -> float:
        return self._links[hop] if hop in self._links else self._queues[hop]

    def _set(self, demand: RateDemand, rate: float) -> None:
        more = rate - self._rates.get(demand.id, 0.0)
        self._rates[demand.id] = rate
        for hop in demand.hops:
            self._used[hop] = self._used.get(hop, 0.0) + more


def _as_link(queue: str, hop: Hop) -> Hop:
    # No node's name has a line break, so this is no link of the network.
    return f"{queue}\n{hop[0]}", hop[1]
