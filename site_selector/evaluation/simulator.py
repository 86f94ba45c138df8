"""Executes a mapping on a platform as it truly is, event by event.

This is what mappings are judged by, and it shares no code with the estimator that makes them
(``site_selector/mapping/estimator.py``). Its rules:

- A job is ready when its parents are done and its files are at its site. It then waits T_q in the
  site's queue, and after that takes one of the site's N workers for its run time; where several
  wait for a worker, the most urgent goes first.
- Inputs of the workflow are sent when it starts, results as soon as their job ends. With staging
  per site a file goes once to each site where a job needs it; with staging per job, to each such
  job. Results that the workflow wants go to the output place (once, if they go there anyway).
- All transfers from one place to another go on at the same time and share the link evenly. A link
  is what one ordered pair of places has between them; different pairs do not disturb each other,
  so that even shares are also the max-min fair ones.
- The makespan is when the last job and the last transfer have ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from site_selector.cost import Array
from site_selector.evaluation.kernel_execute import TRANSFERS, Plan, State, execute
from site_selector.mapping import kernel
from site_selector.problem import Problem


@dataclass(frozen=True, slots=True)
class Move:
    """A file's transfer between two places; ``job`` is for whom where it is not for all."""

    file: int
    src: int
    dst: int
    job: int | None
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Execution:
    """What happened, in seconds from the start."""

    makespan_s: float
    ready_s: list[float]
    start_s: list[float]
    end_s: list[float]
    moves: list[Move]


class Simulator:
    """Executes mappings (one site index per job) of one problem that is taken as the truth.

    ``urgency`` orders jobs that wait for a worker, the greatest first; equal ones go in the
    problem's order of jobs. The default is :func:`urgency_of` the truth.
    """

    def __init__(self, truth: Problem, urgency: Array | None = None) -> None:
        self.truth = truth
        self._plan = _plan(truth, urgency_of(truth) if urgency is None else urgency)
        self._state = _state(self._plan)
        self._steps = 3 * len(truth.jobs) + 2 * len(self._state.move_file)

    def makespan(self, assignment: Sequence[int]) -> float:
        """Seconds from the start to the last job's or transfer's end."""
        site = np.array(assignment, dtype=np.int64)
        return float(kernel.run(self._steps, execute, self._plan, self._state, site))

    def __call__(self, assignment: Sequence[int]) -> Execution:
        """Everything that happens."""
        makespan, state = self.makespan(assignment), self._state
        moves = [
            Move(
                int(state.move_file[i]),
                int(state.move_src[i]),
                int(state.move_dst[i]),
                int(state.move_for[i]) if state.move_for[i] >= 0 else None,
                float(state.move_start[i]),
                float(state.move_end[i]),
            )
            for i in range(int(state.counts[TRANSFERS]))
        ]
        ready, start, end = (
            [float(times[job]) for job in range(len(assignment))]
            for times in (state.ready, state.start, state.end)
        )
        return Execution(makespan, ready, start, end, moves)


def urgency_of(problem: Problem) -> Array:
    """Seconds of computing on the longest chain of jobs from each job on, itself included.

    The mean over sites; nothing of it depends on a mapping or on what moves.
    """
    mean = problem.compute_s.mean(axis=1)
    out = np.zeros(len(problem.jobs))
    for job in range(len(problem.jobs) - 1, -1, -1):
        below = max((out[child] for child in problem.children[job]), default=0.0)
        out[job] = mean[job] + below
    return out


def _plan(p: Problem, urgency: Array) -> Plan:
    n_jobs, n_places = len(p.jobs), len(p.places)
    order = np.lexsort((np.arange(n_jobs), -urgency))
    rank = np.empty(n_jobs)
    rank[order] = np.arange(n_jobs)
    source = np.full((len(p.files), n_places), -1, dtype=np.int64)
    for file, producer in enumerate(p.producer):
        if producer < 0:
            held = p.holders[file]
            for place in range(n_places):
                away = {h: float(p.seconds_per_byte[h, place]) for h in held}
                source[file, place] = place if place in held else min(held, key=away.__getitem__)
    parents_at, _ = _rows(p.parents)
    reads_at, _ = _rows(p.reads)
    wanted = [int(back and made >= 0) for back, made in zip(p.returns, p.producer, strict=True)]
    fields: list[Any] = [
        n_jobs,
        p.n_sites,
        n_places,
        len(p.files),
        p.output,
        p.staging == "per-job",
        parents_at,
        *_rows(p.children),
        reads_at,
        *_rows(p.writes),
        *_rows(p.readers),
        source.ravel(),
        np.array(wanted, dtype=np.int64),
        rank,
        np.ascontiguousarray(p.compute_s, dtype=np.float64).ravel(),
        np.ascontiguousarray(p.queue_s, dtype=np.float64),
        np.array(p.workers, dtype=np.int64),
        np.array(p.size, dtype=np.float64),
        np.ascontiguousarray(p.seconds_per_byte, dtype=np.float64).ravel(),
    ]
    return Plan(*fields)


def _rows(rows: Sequence[Sequence[int]]) -> tuple[Any, Any]:
    """Where each row begins (one entry more than rows), and all rows one after the other."""
    at = np.zeros(len(rows) + 1, dtype=np.int64)
    np.cumsum([len(row) for row in rows], out=at[1:])
    return at, np.array([value for row in rows for value in row], dtype=np.int64)


def _state(plan: Plan) -> State:
    jobs, sites, places = plan.n_jobs, plan.n_sites, plan.n_places
    links, moves = places * places, len(plan.readers) + len(plan.writes)

    def ints(count: int) -> Any:
        return np.zeros(count, dtype=np.int64)

    def floats(count: int) -> Any:
        return np.zeros(count)

    return State(
        *(ints(2), ints(jobs), floats(jobs), floats(jobs), floats(jobs)),
        *(ints(jobs), floats(jobs), ints(jobs), ints(jobs)),
        *(ints(sites), ints(sites), ints(sites), ints(places)),
        *(ints(links), ints(links), floats(links), floats(links), floats(links)),
        *(ints(moves), ints(moves), ints(moves), ints(moves), floats(moves), floats(moves)),
        *(floats(moves), ints(moves), ints(moves)),
    )
