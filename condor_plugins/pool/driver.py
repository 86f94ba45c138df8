"""What a driver of pool expansion can do. It says no by raising; silence means that it is done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from condor_plugins.pool.demand import Demand, Worker


@dataclass(frozen=True, slots=True)
class Grown:
    """What came of a demand: the workers that serve it, and ``note`` where that is not all that was
    wanted, in words."""

    workers: tuple[Worker, ...]
    note: str = ""


class Expansion(Protocol):
    """Makes a pool larger and smaller. Every method may be called again with the same values, and
    then changes nothing."""

    def enlarge(self, demand: Demand) -> Grown:
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
