"""The estimator with links shared evenly by all that moves over them at a time.

What moves between two sites moves at the same time: every stage job opens its own connections, and
TCP gives each about the same. An estimator that lets transfers pass one after the other, the most
urgent first, is right about when the last of them ends and too hopeful about all others; a search
finds those mappings that gain most by its hopes. The other rules are :mod:`simulate`'s.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from site_selector.mapping import kernel
from site_selector.mapping.estimator import Estimator, sites
from site_selector.mapping.kernel_arrays import room_for
from site_selector.mapping.kernel_data import Room, Shape, Sharing
from site_selector.mapping.kernel_share import simulate_sharing
from site_selector.problem import Problem


class SharingEstimator(Estimator):
    """An :class:`Estimator`. A transfer starts when it is asked for, and ends the later the more
    there are on its path; where Γ_a is what single transfers were measured to get, each gets it
    until the link is full."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        room = room_for(self._engine.shape, self._engine.order, transfer_events=True)
        self._shared = (room, _sharing_for(self._engine.shape, room))

    def with_numbers(self, problem: Problem) -> SharingEstimator:
        """See :meth:`Estimator.with_numbers`."""
        plain = super().with_numbers(problem)
        made = object.__new__(SharingEstimator)
        made.__dict__.update(plain.__dict__)
        made._shared = self._shared
        return made

    def _run(self, assignment: Sequence[int], note: bool = False) -> Room:
        self.evaluations += 1
        engine = self._engine
        room, sharing = self._shared
        kernel.run(
            2 * engine.steps, simulate_sharing,
            engine.shape, engine.order, self._numbers, room, sharing, sites(assignment), note,
        )  # fmt: skip
        return room


def _sharing_for(shape: Shape, room: Room) -> Sharing:
    """Work space for one simulation at a time."""
    paths, moves = shape.n_places**2, len(room.move_file)
    lengths = {
        "missing": shape.n_jobs, "number": len(room.there), "first": paths, "under_way": paths,
        "clock": paths, "set_s": paths, "next_s": paths, "active": paths, "n_active": 1,
        "before": shape.n_slots,
    }  # fmt: skip
    times = ("clock", "set_s", "next_s", "due")
    made: dict[str, Any] = {
        name: np.zeros(lengths.get(name, moves), np.float64 if name in times else np.int64)
        for name in Sharing._fields
    }
    return Sharing(**made)
