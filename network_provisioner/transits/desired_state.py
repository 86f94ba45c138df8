"""What the switches should carry, at which rates and in which queues, and whether they do.

The controller is always told the whole desired state in one ``apply``, so that one mends whatever
was cut short. Here that state is kept, and told only where something of it has changed.

What every transit is given now is kept current while they come and go. Rates are those of
:mod:`~.state.elastic`: minima for certain, the rest max-min fair by priority, within what the
policy's queues are sure of. With up to :data:`EAGER` paths in use everything is shared anew at each
change. Beyond, a newcomer is given its minimum and what happens to be free, out of what its
neighbours have above their minima; everything is shared anew when the broker's sweep next comes by,
about once a second. At no time is a link promised to more than it carries.

Minima come from the ledger, so there is always room for them.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from network_provisioner.base.controller import (
    Circuit,
    Controller,
    ControllerError,
    MayMissBytes,
    Queue,
)
from network_provisioner.base.model import Transit
from network_provisioner.policies.accounting import meter
from network_provisioner.policies.policy import Differentiator
from network_provisioner.policies.strategies import sure_bps
from network_provisioner.state import circuits
from network_provisioner.state.circuits import circuit, queue_link
from network_provisioner.state.elastic import MaxMinShares, RateDemand
from network_provisioner.state.network_state import NetworkState
from network_provisioner.topology.graph import Hop, Topology
from network_provisioner.transits.relaying import Relaying

log = logging.getLogger(__name__)

AGAIN_S = 5.0  # between attempts to mend switches that did not take the last change
EAGER = 256


class Shares:
    """The rates of transits, which it writes into them (``granted_bps``, also of their parts)."""

    def __init__(self, topology: Topology, capacity: Mapping[Hop, float]) -> None:
        """``capacity``: bits per second to be shared on each directed link."""
        self._topology = topology
        self._links = dict(capacity)
        self._queues: dict[Hop, float] = {}  # what queues are sure of, each like a link of its own
        self._sharing = MaxMinShares(self._links)
        self._transits: dict[str, Transit] = {}
        self._demands: dict[str, RateDemand] = {}
        self._on: dict[Hop, dict[str, RateDemand]] = {}
        self._rates: dict[str, float] = {}
        self._used: dict[Hop, float] = {}
        self._new: dict[str, RateDemand] = {}  # since everything was shared last
        self.behind = False  # whether rates are not yet what they should be

    def put(self, transit: Transit) -> None:
        """Take in a transit that comes on the switches, or that changed its paths or its queue."""
        self.drop(transit.id)
        self._transits[transit.id] = transit
        ways = circuits.ways(transit, self._topology)
        demands = circuits.demands(transit, ways, self._queues)
        self._sharing.update(demands)
        for demand in demands:
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
            self._sharing.update((), [name])
            self.behind = True
            number += 1

    def limit(self, queues: Sequence[Queue]) -> None:
        """The queues that there are from now on; transits name theirs. Shares all anew."""
        there: dict[Hop, list[Queue]] = {}
        for queue in queues:
            there.setdefault(queue.hop, []).append(queue)
        # What a queue is sure of is shared among its own; beyond it they borrow, up to its ceiling.
        self._queues = {queue_link(q.name, q.hop): sure_bps(q, there[q.hop]) for q in queues}
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
            rates = self._fair()
            changed = {name for name, rate in rates.items() if rate != self._rates.get(name)}
            for name in changed:
                self._set(self._demands[name], rates[name])
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

    def _anew(self) -> None:
        self._sharing = MaxMinShares(self._links | self._queues)
        for transit in self.transits:
            self.put(transit)
        self.behind = True

    def _fair(self) -> Mapping[str, float]:
        if self._queues and self._raise_ceilings():
            self._anew()
        self._new, self.behind = {}, False
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


@runtime_checkable
class CountsReports(Protocol):
    """A controller that sees no packets, and counts what transfers report instead."""

    def report_bytes(self, circuit_id: str, n_bytes: int) -> None:
        """Take in that a transfer has moved ``n_bytes`` over a circuit."""
        ...


class DesiredState:
    """The circuits and queues that one controller is to keep. Not thread-safe.

    ``policies`` say which transits share queues, None for none; ``relays`` carry some.
    """

    def __init__(
        self,
        state: NetworkState,
        controller: Controller,
        policies: Differentiator | None,
        relays: Relaying,
    ) -> None:
        self._state = state
        self._controller = controller
        self._shares = Shares(state.topology, state.ledger.capacities)
        self._policies = policies
        self._relays = relays
        # Asked once: what a protocol wants is looked up attribute by attribute.
        self._reported = controller if isinstance(controller, CountsReports) else None
        self._circuits: dict[str, Circuit] = {}
        self._queues: tuple[Queue, ...] = ()
        self.dirty = True  # whether what is wanted was changed since it was told
        self._again: float | None = None  # when to try again what the switches did not take

    # -- what is wanted ----------------------------------------------------------------------

    def put(self, transit: Transit, now: float) -> None:
        """A transit comes on the switches, or on other paths there."""
        queue = "" if self._policies is None else self._policies.queue_of(transit, now)
        transit.grant.queue = queue
        self._relays.choose(transit)
        self._shares.put(transit)
        self.update(transit)

    def update(self, transit: Transit) -> bool:
        """Carry a transit as it stands now; whether that is something else than before. Nothing is
        carried of one whose packets nobody knows yet."""
        if transit.awaits_flows:
            known = self._circuits.pop(transit.id, None) is not None
            self.dirty = self.dirty or known
            return known
        self._relays.check(transit)
        can = self._state.can
        # Of what is held free by dropping nobody has more: there minima alone are guaranteed.
        wanted = circuit(transit, can.matches, minima=can.bandwidth == "meter")
        changed = self._circuits.get(transit.id) != wanted
        if changed:
            self._circuits[transit.id] = wanted
            self.dirty = True
        return changed

    def drop(self, transit_id: str) -> None:
        """A transit is not to be carried any more."""
        self._shares.drop(transit_id)
        if self._circuits.pop(transit_id, None) is not None:
            self.dirty = True

    def drain(self, transit: Transit, now: float) -> None:
        """A transit ends. Of one that is relayed something stays, without a rate."""
        if transit.relayed and transit.id in self._circuits:
            self.update(self._relays.drain(transit, now))

    def follow_relays(self, now: float) -> None:
        """Carry directly what relays lost, and no longer what they have drained."""
        changed, drained = self._relays.follow(now)
        for transit in changed:
            self.update(transit)
        for name in drained:
            self.drop(name)

    def share(self, now: float, everything: bool) -> None:
        """Share anew what the links have. ``everything``: also what may wait while many are live
        (:mod:`~.transits.desired_state`), and where a policy has changed."""
        if everything or (self._shares.behind and self._shares.few):
            self._assign_queues(now, everything)
        for transit in self._shares.settle(now, everything):
            self.update(transit)

    def _assign_queues(self, now: float, everything: bool) -> None:
        if self._policies is None:
            return
        live = self._shares.transits
        if everything:
            at = self._policies.next_change(now)
            if at is not None and at <= now:
                for transit in live:
                    if self._policies.queue_of(transit, now) != transit.grant.queue:
                        self.put(transit, now)
            elif not self._shares.behind:
                return
        queues = tuple(self._policies.queues(live, now))
        if queues != self._queues:
            self._queues = queues
            self._shares.limit(queues)
            self.dirty = True

    # -- the switches ------------------------------------------------------------------------

    def apply(self, now: float) -> None:
        """Have the switches carry what is wanted. Raises ControllerError: they do not, and
        :meth:`waits` until it is time to try again."""
        self._relays.tell(self._circuits)
        try:
            self._controller.apply(list(self._circuits.values()), self._queues)
        except Exception as error:
            self._again = now + AGAIN_S
            self.dirty = True
            if isinstance(error, ControllerError):
                raise
            # A driver's own fault must end like a refusal, not half-way.
            log.exception("the controller failed unexpectedly")
            raise ControllerError(f"the controller failed: {error}") from error
        self._again, self.dirty = None, False

    @property
    def out_of_step(self) -> bool:
        """Whether the switches did not take the last change."""
        return self._again is not None

    def waits(self, now: float) -> bool:
        """Whether it is too early to try again what they did not take."""
        return self._again is not None and self._again > now

    def move_time(self, by_s: float) -> None:
        """The clock was set by so many seconds."""
        if self._again is not None:
            self._again += by_s

    def report(self, transit_id: str, n_bytes: int) -> bool:
        """Tell a controller that sees no packets what a transfer has moved; False for others."""
        if self._reported is None:
            return False
        self._reported.report_bytes(transit_id, n_bytes)
        return True

    def guaranteed_bps(self, transit_id: str) -> float:
        """What the switches are to guarantee a transit now, 0 for one they do not carry."""
        known = self._circuits.get(transit_id)
        return 0.0 if known is None else known.min_bps

    def may_carry(self, transit_id: str) -> bool:
        """Whether the switches have forwarded anything for a transit, or cannot say."""
        can_miss = self._controller if isinstance(self._controller, MayMissBytes) else None
        return bool(self.bytes_of(transit_id) or (can_miss and can_miss.is_uncounted(transit_id)))

    def bytes_of(self, transit_id: str) -> int:
        """What the switches have forwarded for a transit, 0 where they cannot say."""
        try:
            return self._controller.circuit_bytes(transit_id)
        except Exception as error:  # a counter that cannot be read must not keep a path from ending
            log.warning("transit %s: its byte counter cannot be read: %s", transit_id, error)
            return 0
