"""When each transfer of a planned DAG will begin and end. Pure.

The executable workflow is played through by site selection's own estimator
(:mod:`site_selector.mapping.estimator`): workers of a site, T_q, and paths that are shared
evenly. What the planner added is told to it in its own words:

    a job that computes     a job at its site, which has N workers and T_q
    a job that transfers    for each pair of sites, a job at the source's door that sends one file,
                            and one at the destination's door that receives it
    what runs already       a job of what is left, for those who wait for it; and one that keeps
                            its worker for as long

A door is a place beside a site where no job waits for a worker.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from monitors.workflows.planned.dag import Moving, Node, PlannedDag
from network_provisioner.base.units import bits, transfer_time
from pegasus_hooks.advance.job_estimates import JobEstimates
from pegasus_hooks.advance.progress import NOT_BEGUN, JobPhase, JobProgress, Progress
from site_selector.catalogs.entries import SUBMIT_SITE
from site_selector.catalogs.workflow import children_of
from site_selector.cost import Array
from site_selector.estimates.estimating import DEFAULT_WORKERS
from site_selector.mapping.estimator import Estimator, Schedule
from site_selector.problem import NEVER_S, Problem

SitePlace = tuple[str, bool]
"""A site, and whether its door is meant, where no job waits for a worker."""
LEAST_LEFT = 0.25  # of the time a job has run, where it has run longer than was estimated
LEAST_MOVED = 0.05  # of a transfer is still to come as long as its job has not ended
_FIRST = 1e15  # more urgent than any priority of DAGMan
Pair = tuple[str, str]


@dataclass(slots=True)
class SimulatedJobs:
    """Jobs in topological order, each with its place, seconds and parents; and files, each with the
    job that sends it, the job that receives it, and its bytes."""

    places: dict[SitePlace, int] = field(default_factory=dict)
    at: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    parents: list[tuple[int, ...]] = field(default_factory=list)
    files: list[tuple[int, int, float]] = field(default_factory=list)

    def add(self, place: SitePlace, seconds: float, after: Sequence[int]) -> int:
        """One more job; its number."""
        self.at.append(self.places.setdefault(place, len(self.places)))
        self.seconds.append(seconds)
        self.parents.append(tuple(after))
        return len(self.at) - 1


def problem_of(parts: SimulatedJobs, estimates: JobEstimates, lag_s: float) -> Problem:
    """The problem in which every job has one place to be; ``lag_s`` comes before every T_q."""
    places, jobs, files = len(parts.places), len(parts.at), len(parts.files)
    writes: list[tuple[int, ...]] = [()] * jobs
    reads: list[tuple[int, ...]] = [()] * jobs
    for file, (send, got, _) in enumerate(parts.files):
        writes[send], reads[got] = (file,), (file,)
    per_byte = _seconds_per_byte([site for site, _ in parts.places], estimates)
    return Problem(
        jobs=tuple(map(str, range(jobs))),
        places=tuple(site for site, _ in parts.places),
        n_sites=places,
        files=tuple(map(str, range(files))),
        parents=tuple(parts.parents),
        children=tuple(children_of(dict(enumerate(parts.parents))).values()),
        reads=tuple(reads),
        writes=tuple(writes),
        readers=tuple((got,) for _, got, _ in parts.files),
        producer=tuple(send for send, _, _ in parts.files),
        holders=((),) * files,
        returns=(False,) * files,
        size=tuple(size for _, _, size in parts.files),
        guessed=(False,) * files,
        allowed=tuple((place,) for place in parts.at),
        level=(0,) * jobs,
        input_bytes=np.zeros(jobs),
        compute_s=np.repeat(np.array(parts.seconds)[:, None], places, axis=1),
        queue_s=np.array(
            [
                0.0 if door else estimates.queue_s.get(site, 0.0) + lag_s
                for site, door in parts.places
            ]
        ),
        workers=tuple(
            jobs if door else estimates.workers.get(site, DEFAULT_WORKERS)
            for site, door in parts.places
        ),
        seconds_per_byte=per_byte,
        occupied_per_byte=per_byte,
        setup_s=np.zeros((places, places)),
        output=-1,
        compute=(),
    )


def _seconds_per_byte(names: list[str], estimates: JobEstimates) -> Array:
    out = np.zeros((len(names), len(names)))
    for a, src in enumerate(names):
        for b, dst in enumerate(names):
            if src != dst:
                out[a, b] = transfer_time(1, estimates.rate((src, dst)))
    return out


@dataclass(frozen=True, slots=True)
class Window:
    """What one job will move from one site to another, and when.

    ``start`` is when its PRE will ask; ``end`` when its last byte will be there if the path is
    shared as it is assumed to be, in Unix seconds. ``setup_s`` of that nothing moves.
    """

    job: str
    pair: Pair
    start: float
    end: float
    size_bytes: float
    setup_s: float = 0.0

    def until(self, min_bps: float) -> float:
        """When it will be over if it gets no more than ``min_bps``."""
        if min_bps <= 0:
            return self.end
        return max(self.end, self.start + self.setup_s + transfer_time(self.size_bytes, min_bps))


@dataclass(frozen=True, slots=True)
class Prediction:
    """The windows of all transfers that have yet to begin, in order of their starts, and from when
    to when each job that is not done will take (Unix seconds)."""

    windows: tuple[Window, ...]
    jobs: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    @property
    def end(self) -> float:
        """When the last job ends; 0 if all are done."""
        return max((end for _, end in self.jobs.values()), default=0.0)


def predict(
    dag: PlannedDag,
    estimates: JobEstimates,
    progress: Progress,
    now: float,
    lag_s: float = 0.0,
) -> Prediction:
    """Play the rest of the DAG through from Unix second ``now``.

    ``lag_s`` is what DAGMan takes to notice that a job has ended and to begin the next. A file of
    unknown size is taken to move in no time, and has no window.
    """
    cast = _ProblemBuilder(estimates, now, lag_s)
    for node in dag.nodes.values():
        cast.add(node, progress.get(node.name, NOT_BEGUN))
    return cast.play()


class _ProblemBuilder:
    """The jobs of a :class:`Problem`, as they are put together."""

    def __init__(self, estimates: JobEstimates, now: float, lag_s: float) -> None:
        self.estimates = estimates
        self.now = now
        self.lag_s = lag_s
        self.parts = SimulatedJobs()
        self.urgency: list[float] = []
        self.ends: dict[str, tuple[int, ...]] = {}  # the jobs whose end is a node's end
        self.begins: dict[str, int] = {}
        self.never: set[str] = set()
        self.sends: list[tuple[Node, Moving, int, float | None]] = []
        self.lites: list[tuple[Node, Moving, int, float]] = []

    # -- who plays -------------------------------------------------------------------------------

    def add(self, node: Node, stand: JobProgress) -> None:
        """A node, after all its parents."""
        if stand.phase is JobPhase.DONE:
            self.ends[node.name] = ()
            return
        if stand.phase is JobPhase.NEVER or not self.never.isdisjoint(node.parents):
            self.never.add(node.name)
            return
        after = tuple(dict.fromkeys(j for parent in node.parents for j in self.ends[parent]))
        ran_s = self.now - stand.since if stand.phase is JobPhase.RUNNING else None
        if node.takes_worker:
            self._compute(node, after, ran_s, stand.phase is JobPhase.WAITING)
        elif node.first:
            self._transfer(node, after, stand)
        else:
            left = _left(self.estimates.run_s.get(node.name, 0.0), ran_s)
            lag_s = self.lag_s if ran_s is None else 0.0
            self._ends(node, self._job(SUBMIT_SITE, True, left + lag_s, after))

    def _compute(
        self, node: Node, after: tuple[int, ...], ran_s: float | None, waits: bool
    ) -> None:
        seconds = self.estimates.run_s.get(node.name, 0.0)
        brings = [self._alone(moving) for moving in node.first]
        seconds += max(brings, default=0.0)
        urgency = float(node.priority)
        if ran_s is not None:
            left = _left(seconds, ran_s)
            self._ends(node, self._job(node.site, True, left, after))
            keeps = max(0.0, left - self.estimates.queue_s.get(node.site, 0.0) - self.lag_s)
            self._job(node.site, False, keeps, after, _FIRST)
            return
        job = self._job(node.site, False, seconds, after, urgency)
        self._ends(node, job)
        if waits:
            known = zip(node.first, brings, strict=True)
            self.lites += [(node, moving, job, taken) for moving, taken in known]

    def _transfer(self, node: Node, after: tuple[int, ...], stand: JobProgress) -> None:
        begun = stand.phase is not JobPhase.WAITING
        ran_s = self.now - stand.since if begun else 0.0
        ends = []
        for moving in node.first:
            setup = self.estimates.setup_s.get(moving.pair, 0.0)
            size = moving.size_bytes(self.estimates.sizes)
            moved = self.estimates.rate(moving.pair) / bits(1) * max(0.0, ran_s - setup)
            left = max((size or 0.0) - moved, LEAST_MOVED * (size or 0.0))
            wait = max(0.0, setup - ran_s) + (0.0 if begun else self.lag_s)
            send = self._job(moving.src, True, wait, after)
            got = self._job(moving.dst, True, 0.0, (send,))
            self.parts.files.append((send, got, left))
            ends.append(got)
            if not begun:
                self.sends.append((node, moving, len(self.parts.files) - 1, size))
            self.begins.setdefault(node.name, send)
        self.ends[node.name] = tuple(ends)

    def _job(
        self, site: str, door: bool, seconds: float, after: Sequence[int], urgency: float = 0.0
    ) -> int:
        self.urgency.append(urgency)
        return self.parts.add((site, door), min(seconds, NEVER_S), after)

    def _ends(self, node: Node, job: int) -> None:
        self.ends[node.name] = (job,)
        self.begins[node.name] = job

    def _alone(self, moving: Moving) -> float:
        size = moving.size_bytes(self.estimates.sizes) or 0.0
        setup = self.estimates.setup_s.get(moving.pair, 0.0)
        return setup + transfer_time(size, self.estimates.rate(moving.pair))

    # -- the play --------------------------------------------------------------------------------

    def play(self) -> Prediction:
        """Let it run, and read off when what happened."""
        if not self.parts.at:
            return Prediction(())
        urgency = np.array(self.urgency)
        problem = problem_of(self.parts, self.estimates, self.lag_s)
        ran = Estimator(problem, urgency)(self.parts.at)
        jobs = {}
        for name, parts in self.ends.items():
            if parts:
                begin = ran.ready_s[self.begins[name]]
                end = max(ran.end_s[part] for part in parts)
                jobs[name] = (self.now + begin, self.now + end)
        return Prediction(self._windows(ran), jobs)

    def _windows(self, ran: Schedule) -> tuple[Window, ...]:
        arrived = {move.file: move.end_s for move in ran.transfers}
        windows = []
        for node, moving, file, size in self.sends:
            send, got, _ = self.parts.files[file]
            end = arrived.get(file, ran.end_s[got])
            windows.append(self._window(node, moving, ran.ready_s[send], end, size))
        for node, moving, job, taken in self.lites:
            size = moving.size_bytes(self.estimates.sizes)
            end = ran.start_s[job] + taken
            windows.append(self._window(node, moving, ran.ready_s[job], end, size))
        known = [window for window in windows if window is not None]
        return tuple(sorted(known, key=lambda w: (w.start, w.job, w.pair)))

    def _window(
        self, node: Node, moving: Moving, ready_s: float, end_s: float, size: float | None
    ) -> Window | None:
        if not size or end_s >= NEVER_S:
            return None
        start = self.now + ready_s + self.lag_s
        setup = self.estimates.setup_s.get(moving.pair, 0.0)
        return Window(node.name, moving.pair, start, self.now + end_s, size, setup)


def _left(seconds: float, ran_s: float | None) -> float:
    """How much longer a job takes that has run so long (None: not yet)."""
    if ran_s is None:
        return seconds
    return max(seconds - ran_s, LEAST_LEFT * ran_s if ran_s > seconds else 0.0)


@dataclass(frozen=True, slots=True)
class RateInterval:
    """From ``start`` to ``end`` (Unix seconds) the same ``transfers`` run between two sites and
    move this many bytes; ``rate_bps`` is what they need to end when they are assumed to."""

    pair: Pair
    start: float
    end: float
    transfers: int
    size_bytes: float

    @property
    def rate_bps(self) -> float:
        """Bits per second on average."""
        return bits(self.size_bytes) / (self.end - self.start)


def demand(windows: Iterable[Window]) -> list[RateInterval]:
    """The demand as steps, pair by pair, each in order of time. Bytes are spread evenly over a
    transfer's time."""
    of: dict[Pair, list[Window]] = {}
    for window in windows:
        if window.end > window.start:
            of.setdefault(window.pair, []).append(window)
    return [interval for pair in sorted(of) for interval in _steps(pair, of[pair])]


def _steps(pair: Pair, windows: list[Window]) -> list[RateInterval]:
    instants = sorted({at for w in windows for at in (w.start, w.end)})
    rate_intervals = []
    for start, end in pairwise(instants):
        there = [w for w in windows if w.start <= start and end <= w.end]
        if there:
            size = sum(w.size_bytes * (end - start) / (w.end - w.start) for w in there)
            rate_intervals.append(RateInterval(pair, start, end, len(there), size))
    return rate_intervals
