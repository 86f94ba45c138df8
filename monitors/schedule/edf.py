"""EDF-CE: earliest deadline first, extended by conflicts (thesis, Algorithm 1).

    at every release and every finish: of the pending runs, the most urgent first, start each that
    conflicts with none that runs and keeps to the agreement

The algorithm looks at all pending runs at each of these instants. Here a run that cannot start
waits at one of the things that it lacks, and is looked at again when that becomes free: before, it
could not start in any case. So the result is the same, and a run is looked at a few times instead
of thousands of times.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop, heappush

from monitors.schedule.model import Agreement, Infeasible, Schedule, Task
from monitors.schedule.runs import NOT, Starts, by_deadline, schedule_of, tightest
from monitors.schedule.work import Work, work_of


def edf_ce(tasks: Iterable[Task], agreement: Agreement) -> Schedule:
    """The schedule of Algorithm 1. Of runs with the same deadline, about which it says nothing,
    the one with the shorter window is the more urgent.

    Raises Infeasible naming the tasks that miss a deadline, and InputError as
    :func:`monitors.schedule.work.work_of`.
    """
    work = work_of(tasks, agreement)
    starts, missed = sweep(work)
    if missed:
        names = tuple(sorted({work.tasks[task].name for task, _ in missed}))
        raise Infeasible(
            f"in the order of deadlines, measurements miss {len(missed)} of them: "
            f"{', '.join(names[:5])}{' ...' if len(names) > 5 else ''}",
            names,
        )
    return schedule_of(work, starts)


def sweep(work: Work) -> tuple[Starts, list[tuple[int, int]]]:
    """The starts of all runs that meet their deadlines, and the runs that do not: task and number.

    Where the algorithm ends at the first run that misses its deadline, this leaves it out and goes
    on. So it does with a run that is still pending at the end of the hyperperiod, or would go on
    beyond it into something that it conflicts with.
    """
    found = _Sweep(work)
    found.run()
    starts, missed = {}, []
    for run, at in zip(zip(found.of, found.runs.number, strict=True), found.starts, strict=True):
        if at == NOT:
            missed.append(run)
        else:
            starts[run] = at
    return starts, missed


class _Sweep:
    """Once through the hyperperiod. A run is its place in the order of urgency."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self.runs = by_deadline(work, tightest)
        self.of = self.runs.task
        self.starts = [NOT] * len(self.of)
        self._duration = [task.duration_ms for task in work.tasks]
        n_resources = len(work.resources)
        # Resources first, then domains.
        self._waiting: list[list[int]] = [[] for _ in range(n_resources + len(work.bounds))]
        self._count = [0] * len(work.bounds)
        self._load = [0] * len(work.bounds)
        self._first = [work.hyperperiod_ms] * n_resources  # when each is needed first
        self._ends: list[tuple[int, int]] = []
        self._busy = 0

    def run(self) -> None:
        """Give each run its start."""
        releases = self.runs.release_ms
        released = sorted(range(len(self.of)), key=lambda run: (-releases[run], -run))
        while released or self._ends:
            instants = [releases[released[-1]]] if released else []
            now = min(instants + [end for end, _ in self._ends[:1]])
            if now >= self._work.hyperperiod_ms:
                return
            front = self._freed(now)
            while released and releases[released[-1]] == now:
                front.append((released.pop(), NOT))
            self._start_some(now, front)

    def _freed(self, now: int) -> list[tuple[int, int]]:
        """End what ends now. The most urgent that wait at each resource which became free, with
        the resource, and all that wait at domains which have more room."""
        front: list[tuple[int, int]] = []
        while self._ends and self._ends[0][0] == now:
            task = self.of[heappop(self._ends)[1]]
            self._busy ^= self._work.mask[task]
            for resource in self._work.uses[task]:
                if self._waiting[resource]:
                    front.append((heappop(self._waiting[resource]), resource))
            for domain in self._work.domains[task]:
                self._count[domain] -= 1
                self._load[domain] -= self._work.load[task]
                queue = self._waiting[len(self._work.resources) + domain]
                front.extend((run, NOT) for run in queue)
                queue.clear()
        return front

    def _start_some(self, now: int, front: list[tuple[int, int]]) -> None:
        """Look at runs, the most urgent first, and start those that can."""
        heapify(front)
        while front:
            run, origin = heappop(front)
            if origin != NOT:
                queue = self._waiting[origin]
                if self._busy >> origin & 1:  # taken by a more urgent one: those behind stay
                    heappush(queue, run)
                    continue
                if queue:
                    heappush(front, (heappop(queue), origin))
            task = self.of[run]
            if now + self._duration[task] > self.runs.deadline_ms[run]:
                continue
            lacks = self._busy & self._work.mask[task]
            if lacks:
                heappush(self._waiting[(lacks & -lacks).bit_length() - 1], run)
                continue
            full = self._full(task)
            if full is not None:
                heappush(self._waiting[len(self._work.resources) + full], run)
            elif self._clear(task, now + self._duration[task]):
                self._start(run, task, now)

    def _start(self, run: int, task: int, now: int) -> None:
        self.starts[run] = now
        self._busy |= self._work.mask[task]
        heappush(self._ends, (now + self._duration[task], run))
        for resource in self._work.uses[task]:
            self._first[resource] = min(self._first[resource], now)
        for domain in self._work.domains[task]:
            self._count[domain] += 1
            self._load[domain] += self._work.load[task]

    def _full(self, task: int) -> int | None:
        """A domain without room for the task."""
        for domain in self._work.domains[task]:
            bound = self._work.bounds[domain]
            if bound.at_once is not None and self._count[domain] >= bound.at_once:
                return domain
            if bound.most is not None and (self._load[domain] + self._work.load[task] > bound.most):
                return domain
        return None

    def _clear(self, task: int, end: int) -> bool:
        """Whether a run that ends then is over before the next hyperperiod begins anything that it
        conflicts with."""
        beyond = end - self._work.hyperperiod_ms
        if beyond <= 0:
            return True
        uses = self._work.uses[task]
        return not self._work.domains[task] and all(self._first[r] >= beyond for r in uses)
