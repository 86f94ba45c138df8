"""Which jobs of running and planned DAGs will ask for a worker, and when. Pure.

The DAGs are played forward together by believed run times, on the cores there are and on more that
come one boot time from now at the earliest, since that is how long a pool takes to grow. So a job
is ready when its parents are done, also where they have to wait first. The last of many parents
ends later than any one of them is expected to.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush, heapreplace
from statistics import NormalDist
from typing import TypeVar

from monitors.workflows.planned.dag import PlannedDag

LEAST_LEFT = 0.25  # of the time a job has run, where it has run longer than was believed
SPREAD = 0.3  # standard deviation of run times, of their mean: SoyKB's and Montage's 0.1 to 0.5
_SIGMA = math.sqrt(math.log(1 + SPREAD**2))  # of a lognormal distribution with this spread
_NORMAL = NormalDist()
_GOLDEN = (math.sqrt(5) - 1) / 2
_MOST, _DOUBTFUL = 0.9999, 0.98
_MOST_CORES = 4096  # of a machine: a job may ask for any number, and gets none
LAG_S = 3.0  # from a job's end to its children's submission, as DAGMan takes it

K = TypeVar("K")


@dataclass(frozen=True, slots=True)
class DagState:
    """Where a DAG stands: since which Unix second jobs are in the queue (``queued``), when those
    that run are expected to end (``running``), which are ``done``, and which will ``never`` be.

    ``run_s`` is believed of each job by name; ``cores`` where it is not 1.
    """

    dag: PlannedDag
    run_s: Mapping[str, float]
    queued: Mapping[str, float] = field(default_factory=dict)
    running: Mapping[str, float] = field(default_factory=dict)
    done: Collection[str] = ()
    never: Collection[str] = ()
    cores: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ComingJob:
    """A job of the DAG numbered ``dag`` that is in the queue since ``ready_at`` (Unix seconds), or
    will be, give or take ``spread_s``, and is believed to run for ``run_s``."""

    dag: int
    name: str
    ready_at: float
    spread_s: float
    run_s: float
    cores: int


@dataclass(frozen=True, slots=True)
class RunningJob:
    """A job of a transformation that is believed to run for ``run_s``, since a Unix second."""

    transformation: str
    run_s: float
    since: float


def expected_ends(running: Mapping[K, RunningJob], now: float) -> dict[K, float]:
    """When each job will end (Unix seconds). Of a transformation's jobs some take less than is
    believed and some more: their times are spread as lognormal ones are, so that how many will have
    ended by when is right, if not which. A single one takes the median."""
    count: dict[str, int] = {}
    ends = {}
    for key, job in sorted(running.items(), key=lambda item: item[1].since):
        place = count[job.transformation] = count.get(job.transformation, -1) + 1
        part = (0.5 + place * _GOLDEN) % 1.0  # fills the range evenly, however many there are
        ends[key] = now + _time_left(job.run_s, now - job.since, part)
    return ends


def _time_left(run_s: float, ran_s: float, part: float) -> float:
    """Below which this part of the jobs lies that have run so long and not ended."""
    if run_s <= 0:
        return 0.0
    middle = math.log(run_s) - _SIGMA**2 / 2
    before = _NORMAL.cdf((math.log(ran_s) - middle) / _SIGMA) if ran_s > 0 else 0.0
    whole = math.exp(middle + _SIGMA * _NORMAL.inv_cdf(min(_MOST, before + (1 - before) * part)))
    # Where nearly all would have ended, it is the belief that is wrong.
    return max(whole - ran_s, 2 * part * LEAST_LEFT * ran_s if before > _DOUBTFUL else 0.0)


def estimated_run_s(
    prior_s: float, weight: float, ended: int, ended_s: float, running_s: Iterable[float]
) -> float:
    """How long jobs of a transformation run: ``prior_s`` was believed beforehand and counts as
    ``weight`` jobs, ``ended`` jobs took ``ended_s`` together, others run for ``running_s`` so far.
    Those that run longer than this mean count as what they are believed to take now."""
    total, count = weight * prior_s + ended_s, weight + ended
    for ran_s in sorted(running_s, reverse=True):
        if ran_s * count <= total:
            break
        total, count = total + (1 + LEAST_LEFT) * ran_s, count + 1
    return total / count


def forecast(
    dags: Sequence[DagState],
    free_at: Iterable[float],
    boot_s: float,
    now: float,
    until: float,
) -> list[ComingJob]:
    """The jobs that ask for a worker by the Unix second ``until``, in order of ``ready_at``.

    ``free_at``: when each core of the pool is free, those of booting machines when they are up.
    """
    play = _Play(dags, sorted(max(now, at) for at in free_at), now + boot_s)
    for number, state in enumerate(dags):
        play.add(number, state, now)
    return play.run(until)


class _Play:
    """``cores`` has when each is free; more come at ``grown``."""

    def __init__(self, dags: Sequence[DagState], cores: list[float], grown: float) -> None:
        self.dags, self.cores, self.grown = dags, cores, grown
        self.events: list[tuple[float, float, bool, int, str, float]] = []
        self.ends: dict[tuple[int, str], list[float]] = {}  # of each job's parents
        self.left: list[dict[str, int]] = []
        self.children: list[dict[str, list[str]]] = []
        heapify(self.cores)

    def add(self, number: int, state: DagState, now: float) -> None:
        """All that is not over: events are (when, since, whether it ends, DAG, job,
        how sure)."""
        left: dict[str, int] = {}
        children: dict[str, list[str]] = {}
        self.left.append(left)
        self.children.append(children)
        never = set(state.never)
        for name, node in state.dag.nodes.items():
            if name in state.done or name in never:
                continue
            if name in state.running:
                end = max(now, state.running[name])
                spread_s = SPREAD * state.run_s.get(name, 0.0)
                self.events.append((end, end, True, number, name, spread_s))
                continue
            if name in state.queued:
                self.events.append((now, state.queued[name], False, number, name, 0.0))
                continue
            parents = [parent for parent in node.parents if parent not in state.done]
            if any(parent in never for parent in parents):
                never.add(name)
                continue
            left[name] = len(parents)
            for parent in parents:
                children.setdefault(parent, []).append(name)
            if not parents:
                at = now + LAG_S
                self.events.append((at, at, False, number, name, 0.0))

    def run(self, until: float) -> list[ComingJob]:
        events = self.events
        heapify(events)
        coming = []
        while events and events[0][0] <= until:
            at, since, ends, number, name, spread_s = heappop(events)
            if ends:
                self._end(at, number, name, spread_s)
                continue
            state = self.dags[number]
            run_s = state.run_s.get(name, 0.0)
            start = at
            if state.dag.nodes[name].takes_worker:
                cores = state.cores.get(name, 1)
                coming.append(ComingJob(number, name, since, spread_s, run_s, cores))
                for _ in range(min(cores, _MOST_CORES)):
                    start = max(start, self._core(at, run_s))
            spread_s = math.hypot(spread_s, SPREAD * run_s)
            heappush(events, (start + run_s, start, True, number, name, spread_s))
        return coming

    def _core(self, at: float, run_s: float) -> float:
        """When the next core is free for a job that is ready ``at``; it takes it."""
        grown = max(at, self.grown)
        if self.cores and self.cores[0] <= grown:
            start = max(at, self.cores[0])
            heapreplace(self.cores, start + run_s)
            return start
        heappush(self.cores, grown + run_s)
        return grown

    def _end(self, at: float, number: int, name: str, spread_s: float) -> None:
        left = self.left[number]
        for child in self.children[number].get(name, ()):
            ends = self.ends.setdefault((number, child), [])
            ends.append(at)
            left[child] -= 1
            if not left[child]:
                rivals = sum(end >= at - spread_s for end in ends)
                later = _NORMAL.inv_cdf(rivals / (rivals + 1))
                runs = name in self.dags[number].running  # the ends of these are spread already
                ready = at + LAG_S + (0.0 if runs else later * spread_s)
                doubt_s = spread_s / (1 + later)
                heappush(self.events, (ready, ready, False, number, child, doubt_s))
