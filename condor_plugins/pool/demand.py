"""What is wanted of the pool, what there is, and what to start and stop: pure functions of values.

Demands add up: two workflows that want ten slots each get twenty, as far as ``Limits`` go. Slots
that the pool has without us are counted once for each demand, since nobody owns them. A driver of
pool expansion (:class:`Expansion`) says no by raising; silence means that it is done.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from network_provisioner.base.errors import InputError

RUNNING = "running"
ENDING = "ending"
"""A worker that takes no new job and leaves when its jobs have ended."""
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:@+-]{0,199}\Z")


@dataclass(frozen=True, slots=True)
class SlotDemand:
    """``slots`` of ``cores`` and ``memory_mb`` each (0: as many as a worker's slot has anyway) for
    whoever goes by ``id``, until the Unix time ``until``. ``bytes`` is what the jobs read, 0 for
    unknown; ``reason`` is for people.

    Raises InputError for an id that could not be a name, or figures below what they mean.
    """

    id: str
    slots: int
    until: float
    cores: int = 1
    memory_mb: int = 0
    bytes: int = 0
    reason: str = ""

    def __post_init__(self) -> None:
        if not _ID.match(self.id):
            raise InputError(
                f"demand: found id {self.id!r}, expected letters, digits and any of _.:@+-"
            )
        if self.slots < 0 or self.cores < 1 or self.memory_mb < 0 or self.bytes < 0:
            raise InputError(f"demand {self.id}: found {self}, expected no figure below 0")

    def as_dict(self) -> dict[str, Any]:
        """A JSON-ready copy."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class Worker:
    """One machine, or part of one, that joined the pool for a demand. ``until`` is the end of its
    lease in Unix seconds; ``state`` is RUNNING or ENDING."""

    name: str
    demand: str
    slots: int
    until: float
    state: str = RUNNING

    def as_dict(self) -> dict[str, Any]:
        """A JSON-ready copy."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class ExpansionLimits:
    """``most`` slots in all workers together, ``per_worker`` of them in each."""

    most: int = 16
    per_worker: int = 4


@dataclass(frozen=True, slots=True)
class ExpansionPlan:
    """Workers to start, by their numbers of slots; to stop and to keep longer, by their names.
    ``refused``: slots that are wanted, and beyond the limits."""

    start: tuple[int, ...] = ()
    stop: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()
    refused: int = 0


def plan(
    demand: SlotDemand, workers: Sequence[Worker], present: int, limits: ExpansionLimits
) -> ExpansionPlan:
    """What makes the pool fit ``demand``, given all ``workers`` that are there and ``present``
    slots that the pool has without them.

    Doing it twice does it once: what was started for the demand is counted, whoever asks.
    """
    own = [w for w in workers if w.demand == demand.id and w.state == RUNNING]
    wanted = max(0, demand.slots - present)
    keep, stop, kept = [], [], 0
    # The largest first, so that few are left; a worker is of use as long as not all is covered.
    for worker in sorted(own, key=lambda w: (-w.slots, w.name)):
        if kept < wanted:
            keep.append(worker.name)
            kept += worker.slots
        else:
            stop.append(worker.name)
    stopped = set(stop)
    # One that is ending still holds its cores.
    used = sum(w.slots for w in workers if w.name not in stopped)
    missing = max(0, wanted - kept)
    granted = min(missing, max(0, limits.most - used))
    full, rest = divmod(granted, limits.per_worker)
    start = (limits.per_worker,) * full + ((rest,) if rest else ())
    return ExpansionPlan(start, tuple(stop), tuple(keep), missing - granted)


@dataclass(frozen=True, slots=True)
class Expanded:
    """What came of a demand: the workers that serve it, and ``note`` where that is not all that was
    wanted, in words."""

    workers: tuple[Worker, ...]
    note: str = ""


class Expansion(Protocol):
    """Makes a pool larger and smaller. Every method may be called again with the same values, and
    then changes nothing."""

    def enlarge(self, demand: SlotDemand) -> Expanded:
        """Make room for ``demand``, or fit what was made for one of this id to it.

        Returns as soon as the workers are on their way. Raises AdonError where nothing can be done.
        """
        ...

    def shrink(self, demand_id: str) -> int:
        """Let the workers of a demand go when their jobs have ended; returns how many there were.
        Raises AdonError."""
        ...

    def workers(self) -> Sequence[Worker]:
        """Those that are there, as far as this driver knows."""
        ...
