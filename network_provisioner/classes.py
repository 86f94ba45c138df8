"""Which of a policy's queues each transit shares, asked of whoever makes the policies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from network_provisioner.controllers.base import Queue
from network_provisioner.model import Transit
from network_provisioner.shares import Shares
from network_provisioner.switchboard import Switchboard


class Differentiator(Protocol):
    """Tells transfers apart by whose they are. Times are Unix seconds."""

    def queue_of(self, transit: Transit, now: float) -> str:
        """The queue a transit shares where its path meets one, "" for none."""
        ...

    def queues(self, live: Sequence[Transit], now: float) -> Sequence[Queue]:
        """The queues that the links shall have now."""
        ...

    def next_change(self, now: float) -> float | None:
        """When to ask again though no transit changes: not after ``now`` where policies have
        changed since :meth:`queues` was asked; None where nothing is to come."""
        ...

    def ended(self, transit: Transit) -> None:
        """A transit has ended, or the report of one that had ended has come. Called once for each
        of the two; whatever it raises is logged and goes no further."""
        ...


class Classes:
    """Keeps transits, shares and switches to what a :class:`Differentiator` says, None for nothing.

    Not thread-safe.
    """

    def __init__(
        self,
        policies: Differentiator | None,
        shares: Shares,
        switches: Switchboard,
        clock: Callable[[], float],
    ) -> None:
        self._policies = policies
        self._shares = shares
        self._switches = switches
        self._clock = clock
        self._queues: tuple[Queue, ...] = ()

    def queue_of(self, transit: Transit) -> str:
        """The queue of a transit that comes on the switches."""
        return "" if self._policies is None else self._policies.queue_of(transit, self._clock())

    def assign(self, now: float, everybody: bool) -> None:
        """Bring queues up to date with the transits that are live; ``everybody``: also where a
        policy has changed since, so that transits may belong to other queues than before."""
        if self._policies is None:
            return
        live = self._shares.transits
        if everybody:
            at = self._policies.next_change(now)
            if at is not None and at <= now:
                for transit in live:
                    queue = self._policies.queue_of(transit, now)
                    if queue != transit.queue:
                        transit.queue = queue
                        self._shares.put(transit)
                        self._switches.want(transit)
            elif not self._shares.behind:
                return
        queues = tuple(self._policies.queues(live, now))
        if queues != self._queues:
            self._queues = queues
            self._shares.limit(queues)
            self._switches.set_queues(queues)
