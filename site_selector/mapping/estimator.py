"""When a whole mapping would end, under the model: what mappings are made and judged by.

A deterministic list-scheduling simulation. Its rules:

- A site runs at most N jobs at once, by their priorities (:func:`start_priorities`), among equals
  first come, first served. A job enters the site's queue when its parents are done and its files
  are there, waits T_q, then takes a free worker.
- A file moves once to each site that needs it, from its producer's site or, for an input of the
  workflow, from the replica with the fastest path. It moves by a stage job, as Pegasus plans them,
  and what a stage job moves over one path is one transfer, all of it there at its end: that is
  what measured rates and set-up times are of.
- Inputs that the jobs of a level need at a site come by one stage job for every ten jobs of the
  level, from the start. What else a job needs from other sites comes by one of its own, once all
  its writers have ended. What the workflow wants back goes by one for every ten jobs of the level,
  once those of them that ran at the same site have ended; also what a reader at the output site has
  had moved there, for that is in scratch space.
- A file that is at a site stays until its last reader there, as what cleans up waits for them all.
- Where a job's files are staged at another place (Pegasus's ``condorio``, and ``nonsharedfs`` with
  a staging site), that place stands for the job's site in all of this. With its worker the job
  first brings all that it reads from there, as one transfer, and at last takes all that it wrote
  there. Neither waits for a stage job. Inputs of the workflow that bypass staging it brings from
  where they lie, at any site.
- A job that fetches its files has its own inputs moved, each file by itself and as soon as it is
  written, also where others have had it moved to the same site; only what lies where it was made
  or held does not move. Of one site jobs may share their files, at another fetch them.
- Transfers from one site to another run at the same time and share that path evenly, as TCP does:
  alone each gets min(Γ_t, Γ_a). Where Γ_a is what single transfers were measured to get and the
  link carries more, each gets it until the link is full. Paths that one link bounds share it;
  others do not disturb each other, nor computing.
- A mapping whose files do not fit on a site's disk (``kernels/room.py``) never ends, but the
  schedule tells when it would if they did.
- A transfer is there the path's set-up time after its last byte, and what each further file of it
  takes. That does not occupy the path.

How to use it::

    run = Estimator(problem)
    run(assignment)            # a Schedule: every start, end and transfer
    run.score(assignment)      # (makespan, work) in seconds, without building lists: for searching
    run.makespan(assignment)

One assignment on many drawn worlds of the same structure, as cheaply::

    worlds = [run.with_numbers(p) for p in scenarios]   # once; copies of problem, other numbers
    run.makespans(assignment, worlds)                   # one array, as often as needed

An assignment is a sequence of site indices; a numpy array of 64-bit integers is fastest. The rules
are in :mod:`site_selector.mapping.kernels.simulate`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, cast

import numpy as np

from site_selector.cost import Array
from site_selector.mapping.kernels import compiled
from site_selector.mapping.kernels.data import (
    IntArray,
    Ints,
    State,
    allowed_mask,
    by_urgency,
    kernel_arguments,
    numbers_of,
    order_of,
    shape_of,
    state_for,
)
from site_selector.mapping.kernels.room import room_of
from site_selector.mapping.kernels.schedule import rank_upward
from site_selector.mapping.kernels.simulate import LAST, MOVES, WORK, simulate
from site_selector.problem import Problem

Assignment = list[int]

#: The highest that is handed over; Pegasus's stage-in jobs have 700.
MOST_PRIORITY = 690
_SPAN = 1200  # of all that is handed over; in a larger workflow, neighbours share a number


class Transfer(NamedTuple):
    """A file's move between two places, in seconds from the start: as all that moves with it."""

    file: int
    src: int
    dst: int
    start_s: float
    end_s: float


@dataclass(frozen=True)
class Schedule:
    """What the estimator found: the makespan, each job's start and end, every transfer.

    ``work_s`` is the sum of all computing and moving, which tells two mappings of equal makespan
    apart. ``ready_s`` is when a job's parents were done and its files there. ``moves`` are the
    columns of ``transfers``.
    """

    makespan_s: float
    work_s: float
    ready_s: list[float]
    start_s: list[float]
    end_s: list[float]
    moves: tuple[list[Any], ...]

    @cached_property
    def transfers(self) -> list[Transfer]:
        """In the order they were asked for; made when first looked at."""
        return [Transfer(*row) for row in zip(*self.moves, strict=True)]

    def last_transfer(self) -> Transfer | None:
        """The one that ends last, the first of them where several do; None if nothing moves."""
        ends = self.moves[-1]
        return Transfer(*(column[ends.index(max(ends))] for column in self.moves)) if ends else None


def mean_compute(problem: Problem) -> Array:
    """How long each job has a worker (S_c/Γ_c where nothing is staged elsewhere) in seconds, the
    mean over the sites that may run it."""
    shape, numbers = kernel_arguments(problem)
    allowed = allowed_mask(shape)
    mean: Array = (np.asarray(numbers.busy).reshape(allowed.shape) * allowed).sum(
        axis=1
    ) / allowed.sum(axis=1)
    return mean


def upward_rank(problem: Problem) -> Array:
    """HEFT's upward rank in seconds, means taken over the sites that may run a job.

    Topcuoglu, Hariri, Wu 2002, equation 7.
    """
    n_jobs, sites = len(problem.jobs), problem.n_sites
    between = np.arange(sites)
    for site, at in Counter(problem.staged).most_common(1)[0][0] if problem.staged else ():
        between[site] = at
    mean_byte = float(problem.seconds_per_byte[np.ix_(between, between)].sum()) / (sites * sites)
    shape, numbers = kernel_arguments(problem)
    rank, steps = np.zeros(n_jobs), n_jobs + len(problem.files)
    compiled.run(steps, rank_upward, shape, mean_compute(problem), numbers.size, mean_byte, rank)
    return rank


class Estimator:
    """Evaluates assignments (one site index per job) of one problem.

    What does not depend on the assignment is prepared once; a call costs time in proportion to jobs
    and the files they use. ``evaluations`` counts them. ``rank`` is the urgency of jobs, the upward
    rank by default, ``priority`` the order in which they start that comes of it; ``room`` tells
    what fits on disks, None if all does. Not for several threads at once.
    """

    def __init__(self, problem: Problem, rank: Array | None = None) -> None:
        self.problem = problem
        self.rank = upward_rank(problem) if rank is None else rank
        self.priority = start_priorities(problem, self.rank)
        self.evaluations = 0
        self._shape = shape_of(problem)
        self._order = order_of(self._shape, self.priority, problem.seconds_per_byte)
        self._state = state_for(self._shape, self._order, len(problem.planned))
        self._numbers = numbers_of(problem, True)
        self.room = room_of(self._shape, problem)

    def with_numbers(self, problem: Problem) -> Estimator:
        """An estimator of a problem of the same structure with other sizes, times and rates.

        Who goes first and which replica is taken stay as they are here: both are settled before it
        turns out which numbers were right. Raises ValueError if the structure differs.
        """
        shape, mine = shape_of(problem), self._shape
        if shape.slot_file is not mine.slot_file:
            raise ValueError("found a problem of another structure, expected a copy of this one")
        made = copy(self)
        made.problem, made.evaluations, made._numbers = problem, 0, numbers_of(problem, True)
        made.room = room_of(shape, problem)
        return made

    def __call__(self, assignment: Sequence[int]) -> Schedule:
        """Simulate. Costs one evaluation."""
        state = self._run(assignment, True)
        moves = int(state.counts[MOVES])
        number = np.asarray(state.move_number)[:moves]
        src, dst = np.divmod(np.asarray(state.path)[number], self._shape.n_places)
        times_of = (np.asarray(column)[number] for column in (state.sent, state.arrived))
        columns = (np.asarray(state.move_file)[:moves], src, dst, *times_of)
        times = np.empty((3, len(assignment)))
        by_position = np.asarray(self._order.by_position)
        for row, column in zip(times, (state.ready, state.start, state.end), strict=True):
            row[by_position] = np.asarray(column)
        ready, start, end = times.tolist()
        return Schedule(
            float(state.total[LAST]),
            float(state.total[WORK]),
            *(ready, start, end),
            tuple(column.tolist() for column in columns),
        )

    def score(self, assignment: Sequence[int]) -> tuple[float, float]:
        """Makespan and the sum of all computing and moving, in seconds. Costs one evaluation."""
        total = self._run(assignment).total
        return float(total[LAST]) + self._lack_s(assignment), float(total[WORK])

    def makespan(self, assignment: Sequence[int]) -> float:
        """Seconds from the start until all is done. Costs one evaluation."""
        return float(self._run(assignment).total[LAST]) + self._lack_s(assignment)

    def makespans(self, assignment: Sequence[int], worlds: Sequence[Estimator]) -> Array:
        """The makespan in each of ``worlds`` (see :meth:`with_numbers`), one evaluation each."""
        if not isinstance(assignment, np.ndarray):
            assignment = cast("Sequence[int]", np.array(assignment, dtype=np.int64))
        return np.array([world.makespan(assignment) for world in worlds])

    def _lack_s(self, assignment: Sequence[int]) -> float:
        return 0.0 if self.room is None else self.room.lack_s(assignment)

    def _run(self, assignment: Sequence[int], note: bool = False) -> State:
        self.evaluations += 1
        shape, site = self._shape, cast(Ints, np.ascontiguousarray(assignment, dtype=np.int64))
        steps = 2 * (shape.n_jobs + shape.n_slots + shape.n_files)
        compiled.run(steps, simulate, shape, self._order, self._numbers, self._state, site, note)
        self._state.total[LAST] += self.problem.overhead_s
        return self._state


def start_priorities(problem: Problem, rank: Array) -> IntArray:
    """The priority of each job, the highest first: by ``rank`` or, where no priority can be handed
    over, Pegasus's own by level; the user's own in either case.

    HTCondor starts the waiting jobs of a user by ``condor: priority``, among equals first come,
    first served; DAGMan's ``PRIORITY`` of the node is the same number. Pegasus gives all jobs of a
    level one priority, so that a level runs as it arrives. ADON's numbers lie about the mean of
    Pegasus's own, one less for each job by upward rank: beside other workflows of the user none is
    preferred on the whole, and stage jobs, at 700 and more, still go first.
    """
    by_level = 10 * (np.asarray(problem.level, dtype=np.int64) + 2)
    priority, jobs = by_level, len(problem.jobs)
    if not problem.by_level:
        place = np.empty(jobs, dtype=np.int64)
        place[by_urgency(rank)] = np.arange(jobs)
        span = min(jobs - 1, _SPAN)
        top = min(MOST_PRIORITY, int(by_level.mean()) + span // 2)
        priority = top - place * span // max(1, jobs - 1)
    if problem.own_priority:
        given = [value is not None for value in problem.own_priority]
        own = np.array([value or 0 for value in problem.own_priority], dtype=np.int64)
        priority = np.where(given, own, priority)
    return priority
