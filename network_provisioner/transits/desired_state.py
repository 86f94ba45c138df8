"""What the switches should carry, at which rates and in which queues, and whether they do.

The controller is always told the whole desired state in one ``apply``, so that one mends whatever
was cut short. Here that state is kept, and told only where something of it has changed.
"""

from __future__ import annotations

import logging
from typing import Protocol, runtime_checkable

from network_provisioner.base.controller import Circuit, Controller, ControllerError, Queue
from network_provisioner.base.model import Transit
from network_provisioner.policies.differentiator import Differentiator
from network_provisioner.state.circuits import circuit
from network_provisioner.transits.relaying import Relaying
from network_provisioner.transits.shares import Shares

log = logging.getLogger(__name__)

AGAIN_S = 5.0  # between attempts to mend switches that did not take the last change


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
        controller: Controller,
        shares: Shares,
        policies: Differentiator | None,
        relays: Relaying,
    ) -> None:
        self._controller = controller
        self._shares = shares
        self._policies = policies
        self._relays = relays
        # Asked once: what a protocol wants is looked up attribute by attribute.
        self._reported = controller if isinstance(controller, CountsReports) else None
        self.matches = False  # whether it looks at the flows of circuits
        self.counts = False  # whether it counts their packets
        # Whether to guarantee minima alone: what is held free by dropping is idle for nobody.
        self.minima = False
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
        wanted = circuit(transit, self.matches, self.minima)
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

    def share(self, now: float, everything: bool) -> None:
        """Share anew what the links have. ``everything``: also what may wait while many are live
        (:mod:`~.transits.shares`), and where a policy has changed."""
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
            log.exception("the controller failed in a way of its own")
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

    def bytes_of(self, transit_id: str) -> int:
        """What the switches have forwarded for a transit, 0 where they cannot say."""
        try:
            return self._controller.circuit_bytes(transit_id)
        except Exception as error:  # a counter that cannot be read must not keep a path from ending
            log.warning("transit %s: its byte counter cannot be read: %s", transit_id, error)
            return 0
