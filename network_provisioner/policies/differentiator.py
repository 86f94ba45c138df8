"""What the broker asks of policies: whose packets share a queue, and what a class may reserve."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from network_provisioner.base.controller import Queue
from network_provisioner.base.model import Transit
from network_provisioner.topology.graph import Hop


@dataclass(frozen=True, slots=True)
class ClassLimit:
    """What the class of a request may reserve at most on a directed link, in bits per second, and
    for others ``of`` it, by id. ``explanation`` names the policy."""

    bps: int
    of: Callable[[str], bool]
    explanation: str


LimitOf = Callable[[Hop], ClassLimit | None]
"""The limit on each directed link, None where no policy sets one."""


def no_limit(_: Hop) -> None:
    """Where there are no policies."""


class Differentiator(Protocol):
    """Tells transfers apart by whose they are. Times are Unix seconds."""

    def queue_of(self, transit: Transit, now: float) -> str:
        """The queue a transit shares where its path meets one, "" for none."""
        ...

    def queues(self, live: Sequence[Transit], now: float) -> Sequence[Queue]:
        """The queues that the links shall have now."""
        ...

    def bound(
        self,
        transit: Transit,
        hop: Hop,
        capacity_bps: float,
        at: float,
        known: Mapping[str, Transit],
    ) -> ClassLimit | None:
        """How much of what can be reserved on a link direction those of a transit's class may
        reserve together from ``at`` on, None for all of it."""
        ...

    def next_change(self, now: float) -> float | None:
        """When to ask again though no transit changes: not after ``now`` where policies have
        changed since :meth:`queues` was asked; None where nothing is to come."""
        ...

    def ended(self, transit: Transit) -> None:
        """A transit has ended, or the report of one that had ended has come. Called once for each
        of the two; whatever it raises is logged and goes no further."""
        ...
