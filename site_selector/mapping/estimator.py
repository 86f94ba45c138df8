"""When a whole mapping would end, under the model.

A deterministic list-scheduling estimator. Its rules:

- A site runs at most N jobs at once, the most urgent first (upward rank). A job enters the site's
  queue when its parents are done and its files are there, waits T_q, then takes a free worker.
- A file moves once to each site that needs it, from its producer's site or, for an input of the
  workflow, from the replica with the fastest path. Inputs are asked for at the start, the most
  urgent first; results of a job as soon as it ends, those that the workflow wants back too.
- With staging per job, every job has its own inputs moved so, also where others have had the same
  file moved to the same site; only what lies where it was made or held does not move.
- All transfers from one site to another share that path: they pass one after the other at
  min(Γ_t, Γ_a), in the order they are asked for. The last of them ends when it would under fair
  sharing. Where Γ_a is what single transfers were measured to get and the link carries more, they
  overlap until the link is full. Paths between different pairs of sites, and computing, go on at
  the same time.
  (In :class:`SharingEstimator` they share it evenly.)
- A file is there the path's set-up time after its last byte. That does not occupy the path: what
  moves together sets up together.

How to use it::

    run = Estimator(problem)
    run(assignment)            # a Schedule: every start, end and transfer
    run.score(assignment)      # (makespan, work) in seconds, without building lists: for searching
    run.makespan(assignment)

One assignment on many believed worlds of the same structure, as cheaply::

    worlds = [run.with_numbers(p) for p in scenarios]   # once; copies of problem, other numbers
    run.makespans(assignment, worlds)                   # one array, as often as needed

An assignment is a sequence of site indices; a numpy array of 64-bit integers is fastest. The rules
are in ``kernel_simulate.py``.

:class:`SharingEstimator` has links shared evenly by all that moves over them at a time. What moves
between two sites moves at the same time: every stage job opens its own connections, and TCP gives
each about the same. An estimator that lets transfers pass one after the other, the most urgent
first, is right about when the last of them ends and too hopeful about all others; a search finds
those mappings that gain most by its hopes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, cast, overload

import numpy as np

from site_selector.cost import Array
from site_selector.mapping import kernel
from site_selector.mapping.kernel_data import (
    Ints,
    Room,
    Shape,
    Sharing,
    numbers_of,
    order_of,
    prepared,
    room_for,
    shape_of,
)
from site_selector.mapping.kernel_schedule import rank_upward
from site_selector.mapping.kernel_share import simulate_sharing
from site_selector.mapping.kernel_simulate import LAST, MOVES, WORK, simulate
from site_selector.problem import Problem

Assignment = list[int]


class Transfer(NamedTuple):
    """A file's move between two places, in seconds from the start."""

    file: int
    src: int
    dst: int
    start_s: float
    end_s: float


class Transfers(Sequence[Transfer]):
    """All transfers in the order they were asked for, made into objects when looked at."""

    def __init__(self, *columns: list[Any]) -> None:
        self._columns = columns

    def __len__(self) -> int:
        return len(self._columns[0])

    @overload
    def __getitem__(self, at: int) -> Transfer: ...
    @overload
    def __getitem__(self, at: slice) -> list[Transfer]: ...
    def __getitem__(self, at: int | slice) -> Transfer | list[Transfer]:
        if isinstance(at, slice):
            return [Transfer(*row) for row in zip(*(c[at] for c in self._columns), strict=True)]
        return Transfer(*(column[at] for column in self._columns))

    def __iter__(self) -> Iterator[Transfer]:
        return (Transfer(*row) for row in zip(*self._columns, strict=True))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Transfers) and self._columns == other._columns

    def __hash__(self) -> int:
        return hash(tuple(map(tuple, self._columns)))

    def last(self) -> Transfer | None:
        """The one that ends last, the first of them where several do; None where nothing moves."""
        ends = self._columns[-1]
        return self[ends.index(max(ends))] if ends else None


@dataclass(frozen=True, slots=True)
class Schedule:
    """What the estimator found: the makespan, each job's start and end, every transfer.

    ``work_s`` is the sum of all computing and moving, which tells two mappings of equal makespan
    apart. ``ready_s`` is when a job's parents were done and its files there.
    """

    makespan_s: float
    work_s: float
    ready_s: list[float]
    start_s: list[float]
    end_s: list[float]
    transfers: Sequence[Transfer]


def mean_compute(problem: Problem) -> Array:
    """S_c/Γ_c of each job in seconds, the mean over the sites that may run it."""
    allowed = np.asarray(shape_of(problem).allowed).reshape(problem.compute_s.shape) > 0
    mean: Array = (problem.compute_s * allowed).sum(axis=1) / allowed.sum(axis=1)
    return mean


def upward_rank(problem: Problem) -> Array:
    """HEFT's upward rank in seconds, means taken over the sites that may run a job.

    Topcuoglu, Hariri, Wu 2002, equation 7.
    """
    n_jobs, sites = len(problem.jobs), problem.n_sites
    mean_byte = float(problem.seconds_per_byte[:sites, :sites].sum()) / (sites * sites)
    shape, numbers = prepared(problem)
    rank, steps = np.zeros(n_jobs), n_jobs + len(problem.files)
    kernel.run(steps, rank_upward, shape, mean_compute(problem), numbers.size, mean_byte, rank)
    return rank


class _Engine:
    """What all estimators of one structure share: shape, order and work space."""

    def __init__(self, problem: Problem, rank: Array) -> None:
        self.shape = shape_of(problem)
        self.order = order_of(self.shape, rank, problem.seconds_per_byte)
        self.steps = self.shape.n_jobs + self.shape.n_slots + self.shape.n_files

    @cached_property
    def room(self) -> Room:
        return room_for(self.shape, self.order)


class Estimator:
    """Evaluates assignments (one site index per job) of one problem.

    What does not depend on the assignment is prepared once; a call costs time in proportion to jobs
    and the files they use. ``evaluations`` counts them. Not for several threads at once.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.rank = upward_rank(problem)
        self.evaluations = 0
        self._engine = _Engine(problem, self.rank)
        self._numbers = numbers_of(problem)

    def with_numbers(self, problem: Problem) -> Estimator:
        """An estimator of a problem of the same structure with other sizes, times and rates.

        Who goes first and which replica is taken stay as they are here: both are settled before it
        turns out which numbers were right. Raises ValueError where the structure differs.
        """
        shape = shape_of(problem)
        mine = self._engine.shape
        if shape.slot_file is not mine.slot_file or shape.per_job != mine.per_job:
            raise ValueError("found a problem of another structure, expected a copy of this one")
        made = object.__new__(Estimator)
        made.problem, made.rank, made.evaluations = problem, self.rank, 0
        made._engine = self._engine
        made._numbers = numbers_of(problem)
        return made

    def __call__(self, assignment: Sequence[int]) -> Schedule:
        """Simulate. Costs one evaluation."""
        room = self._run(assignment, True)
        moves = int(room.counts[MOVES])
        log = (room.move_file, room.move_src, room.move_dst, room.move_start, room.move_end)
        times = np.empty((3, len(assignment)))
        by_position = np.asarray(self._engine.order.by_position)
        for row, column in zip(times, (room.ready, room.start, room.end), strict=True):
            row[by_position] = np.asarray(column)
        ready, start, end = times.tolist()
        return Schedule(
            float(room.total[LAST]),
            float(room.total[WORK]),
            ready,
            start,
            end,
            Transfers(*(np.asarray(column)[:moves].tolist() for column in log)),
        )

    def score(self, assignment: Sequence[int]) -> tuple[float, float]:
        """Makespan and the sum of all computing and moving, in seconds. Costs one evaluation."""
        total = self._run(assignment).total
        return float(total[LAST]), float(total[WORK])

    def makespan(self, assignment: Sequence[int]) -> float:
        """Seconds from the start until all is done. Costs one evaluation."""
        return float(self._run(assignment).total[LAST])

    def makespans(self, assignment: Sequence[int], worlds: Sequence[Estimator]) -> Array:
        """The makespan in each of ``worlds`` (see :meth:`with_numbers`), one evaluation each."""
        if not isinstance(assignment, np.ndarray):
            assignment = cast("Sequence[int]", np.array(assignment, dtype=np.int64))
        return np.array([world.makespan(assignment) for world in worlds])

    def _run(self, assignment: Sequence[int], note: bool = False) -> Room:
        self.evaluations += 1
        engine = self._engine
        room, site = engine.room, sites(assignment)
        kernel.run(
            engine.steps, simulate, engine.shape, engine.order, self._numbers, room, site, note
        )
        return room


def sites(assignment: Sequence[int]) -> Ints:
    """The assignment as the kernels take it."""
    return cast(Ints, np.ascontiguousarray(assignment, dtype=np.int64))


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
