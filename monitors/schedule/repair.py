"""Room for runs that found none: what is in the way is taken out and placed anew.

A chain of ejections (Glover, Discrete Applied Mathematics 65, 1996): of all the starts that a run
could have, the one is taken whose disturbance is least; who was disturbed is the next to look for
room. A run that was ejected often is harder to eject, so that the chain goes elsewhere instead of
in circles. No chance is involved: the same input gives the same schedule.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush

from monitors.schedule.runs import NOT, Run, Starts
from monitors.schedule.timetable import Timetable
from monitors.schedule.work import Domain, Work

CANDIDATES = 64
"""Starts that are looked at for a run."""
PATIENCE = 20
"""Ejections for each run that is to be placed."""
LEAST, MOST = 500, 3_000
"""Ejections in all; for more runs than ``MOST`` nothing is tried."""

Taken = list[tuple[int, int, Run]]
"""Who has something from when to when, in order, within the hyperperiod."""


class Windows:
    """When runs may start. This one: from their release to their deadline."""

    def __init__(self, work: Work) -> None:
        self.work = work

    def of(self, run: Run) -> tuple[int, int]:
        """The first and the last instant at which it may start."""
        task = self.work.tasks[run[0]]
        release = task.offset_ms + run[1] * task.period_ms
        return release, release + task.deadline_ms - task.duration_ms

    def may_move(self, run: Run) -> bool:
        """Whether it need not stay where it is."""
        return True


class Repair:
    """Changes a timetable and the starts that stand in it."""

    def __init__(
        self,
        table: Timetable,
        starts: Starts,
        windows: Windows | None = None,
        taken: Callable[[int], Taken] | None = None,
        some: int = CANDIDATES,
    ) -> None:
        """``taken`` gives who has a resource, or (numbered after all resources) is in a domain,
        where that is known already. ``some``: starts that are looked at for a run."""
        self._some = some
        self._table, self._starts = table, starts
        self._work = table.work
        self._windows = windows or Windows(self._work)
        self._longest = max((task.duration_ms for task in self._work.tasks), default=0)
        self._taken = _Copies(taken or taken_by(self._work, starts).__getitem__)
        self._ejected: defaultdict[Run, int] = defaultdict(int)
        self._slacks: dict[Run, int] = {}
        self._journal: list[tuple[bool, Run, int]] = []

    def place(self, missed: Sequence[Run], most: int | None = None) -> list[Run]:
        """Place these runs; those that are left without room in the end. ``most``: how many are
        placed in all, those that were ejected included; then it ends at the first without hope."""
        waiting = deque(sorted(missed, key=self._slack))
        patience = min(MOST, max(LEAST, PATIENCE * len(missed))) if most is None else most
        for _ in range(patience if len(missed) <= MOST else 0):
            if not waiting:
                break
            run = waiting.popleft()
            release, last = self._windows.of(run)
            at = self._table.earliest(run[0], release, last)
            if at != NOT:
                self.put(run, at)
                continue
            at, others = self._least_disturbance(run)
            if at == NOT:
                waiting.append(run)
                if most is not None or all(
                    self._least_disturbance(other)[0] == NOT for other in waiting
                ):
                    break
                continue
            for other in others:
                self.take_out(other)
            self.put(run, at)
            self._ejected[run] += 1
            waiting.extend(sorted(others, key=self._slack))
        return list(waiting)

    def _slack(self, run: Run) -> tuple[int, Run]:
        slack = self._slacks.get(run)
        if slack is None:
            release, last = self._windows.of(run)
            slack = self._slacks[run] = last - release
        return slack, run

    def _places(self, run: Run, at: int) -> Iterator[tuple[int, int, int]]:
        """What a run has, and from when to when within the hyperperiod."""
        return places(self._work, run[0], at)

    def put(self, run: Run, at: int) -> None:
        """It runs from then on, whether there is room or not."""
        self._journal.append((True, run, at))
        self._table.take(run[0], at)
        self._starts[run] = at
        for place, start, end in self._places(run, at):
            insort(self._taken[place], (start, end, run))

    def take_out(self, run: Run) -> None:
        """It has no start any more."""
        at = self._starts.pop(run)
        self._journal.append((False, run, at))
        self._table.release(run[0], at)
        for place, start, end in self._places(run, at):
            del self._taken[place][bisect_left(self._taken[place], (start, end, run))]

    def changes(self) -> int:
        """How many there were, for :meth:`undo`."""
        return len(self._journal)

    def undo(self, changes: int) -> None:
        """As it was after so many changes."""
        while len(self._journal) > changes:
            was_put, run, at = self._journal[-1]
            self.take_out(run) if was_put else self.put(run, at)
            del self._journal[-2:]

    def touched(self, changes: int) -> set[Run]:
        """Whose start was changed since."""
        return {run for _, run, _ in self._journal[changes:]}

    def _least_disturbance(self, run: Run) -> tuple[int, list[Run]]:
        """The best start of those that are looked at, and who is in the way of it."""
        ordered = self.candidates(run, *self._windows.of(run), self._some)
        step = max(1.0, (len(ordered) - 1) / (self._some - 1))
        some = [ordered[round(n * step)] for n in range(min(len(ordered), self._some))]
        best: tuple[float, int, list[Run]] = math.inf, NOT, []
        # Domains are looked at last, and not where hosts and links alone are too much.
        for harm, at, there in sorted(self._on_hosts_and_links(run, some)):
            if harm > best[0]:
                break
            others = sorted({*there, *self._in_domains(run, at, there)})
            if all(map(self._windows.may_move, others)):
                best = min(best, (self._harm(others), at, others))
        return best[1:]

    def disturbances(
        self, run: Run, starts: Iterable[int]
    ) -> Iterator[tuple[float, int, list[Run]]]:
        """Of each start that disturbs nobody who has to stay: how much, and whom."""
        for _, at, there in self._on_hosts_and_links(run, starts):
            others = sorted({*there, *self._in_domains(run, at, there)})
            if all(map(self._windows.may_move, others)):
                yield self._harm(others), at, others

    def _on_hosts_and_links(
        self, run: Run, starts: Iterable[int]
    ) -> Iterator[tuple[float, int, list[Run]]]:
        """The same without a look at domains."""
        for at in starts:
            there = sorted(self.on_the_same(run, at))
            if all(map(self._windows.may_move, there)):
                yield self._harm(there), at, there

    def _harm(self, others: Iterable[Run]) -> float:
        """Of ejecting them: most of the long ones, those with little room and those that were
        ejected before."""
        return sum(
            self._work.tasks[other[0]].duration_ms * (1 + self._ejected[other]) ** 2
            / (1 + self._slack(other)[0])
            for other in others
        )  # fmt: skip

    def candidates(self, run: Run, first: int, last: int, most: int = MOST) -> list[int]:
        """Starts right after, and right before, something that is in the window, and its ends; of
        each thing that the run needs ``most`` are looked at, evenly."""
        duration = self._work.tasks[run[0]].duration_ms
        whole, n_resources = self._work.hyperperiod_ms, len(self._work.resources)
        found = {first, last}
        domains = (n_resources + domain for domain in self._work.domains[run[0]])
        for place in (*self._work.uses[run[0]], *domains):
            taken = self._taken[place]
            for ahead in (0, whole) if last + duration > whole else (0,):
                since = max(0, bisect_left(taken, (first - ahead,)) - 1)
                until = bisect_left(taken, (last + duration - ahead,))
                for start, end, _ in taken[since : until : -(-(until - since) // most) or 1]:
                    found.update((end + ahead, start + ahead - duration))
        return sorted(at for at in found if first <= at <= last)

    def on_the_same(self, run: Run, at: int) -> set[Run]:
        """Who has a resource that the run would have then."""
        n_resources = len(self._work.resources)
        found: set[Run] = set()
        for place, start, end in self._places(run, at):
            if place < n_resources:
                there = self._overlapping(place, start, end)
                if there:
                    found.update([other for _, _, other in there])
        return found

    def _in_domains(self, run: Run, at: int, gone: Collection[Run]) -> set[Run]:
        """Those that must go from domains for the run to start then, if these are gone."""
        found: set[Run] = set()
        for place, start, end in self._places(run, at):
            number = place - len(self._work.resources)
            if number >= 0:
                there = [
                    part
                    for part in self._overlapping(place, start, end)
                    if part[2] not in gone and part[2] not in found
                ]
                found.update(self._too_many(self._work.bounds[number], there, run[0]))
        return found

    def _too_many(self, bound: Domain, there: Taken, task: int) -> Iterator[Run]:
        """Of those in a domain while a run of the task is, the ones that must go: few with a high
        load rather than many with a low one."""
        loads = self._work.load
        most = math.inf if bound.most is None else bound.most
        at_once = math.inf if bound.at_once is None else bound.at_once
        load = loads[task]
        if len(there) < at_once and load + sum(loads[run[0]] for _, _, run in there) <= most:
            return  # not even if all were there at the same time
        under_way: list[tuple[int, Run]] = []  # a heap: who ends first
        for start, end, run in there:
            while under_way and under_way[0][0] <= start:
                load -= loads[heappop(under_way)[1][0]]
            heappush(under_way, (end, run))
            load += loads[run[0]]
            while under_way and (len(under_way) >= at_once or load > most):
                excess = 0 if bound.most is None else load - bound.most
                gone = min(under_way, key=lambda other: self._least_missed(other[1], excess))
                under_way.remove(gone)
                heapify(under_way)
                load -= loads[gone[1][0]]
                yield gone[1]

    def _least_missed(self, run: Run, excess: int) -> tuple[int, bool, int, Run]:
        """Whom to eject for so much load: the lowest load that is enough, else the highest."""
        load = self._work.load[run[0]]
        return self._ejected[run], load < excess, load if load >= excess else -load, run

    def _overlapping(self, place: int, start: int, end: int) -> Taken:
        taken = self._taken[place]
        since = bisect_left(taken, (start - self._longest,))
        until = bisect_left(taken, (end,), since)
        return [part for part in taken[since:until] if part[1] > start]


class _Copies(dict[int, Taken]):
    """Lists that may be changed, made when they are needed first."""

    def __init__(self, of: Callable[[int], Taken]) -> None:
        super().__init__()
        self._of = of

    def __missing__(self, place: int) -> Taken:
        self[place] = list(self._of(place))
        return self[place]


def places(work: Work, task: int, start_ms: int) -> Iterator[tuple[int, int, int]]:
    """What a run of a task has, and from when to when within the hyperperiod: resources by their
    numbers, then domains."""
    whole, uses = work.hyperperiod_ms, work.uses[task]
    start = start_ms % whole
    end = start + work.tasks[task].duration_ms
    for first, last in [(start, end)] if end <= whole else [(start, whole), (0, end - whole)]:
        for resource in uses:
            yield resource, first, last
        for domain in work.domains[task]:
            yield len(work.resources) + domain, first, last


def taken_by(work: Work, starts: Starts) -> defaultdict[int, Taken]:
    """Who has which place, and when."""
    whole, n_resources = work.hyperperiod_ms, len(work.resources)
    durations = [task.duration_ms for task in work.tasks]
    needed = [
        (*uses, *(n_resources + domain for domain in domains))
        for uses, domains in zip(work.uses, work.domains, strict=True)
    ]
    parts = []
    for run, at in starts.items():
        start = at % whole
        end = start + durations[run[0]]
        parts.append((start, min(end, whole), run))
        if end > whole:
            parts.append((0, end - whole, run))
    parts.sort()
    found: defaultdict[int, Taken] = defaultdict(list)
    for part in parts:  # one object for all lists, and sorted once
        for place in needed[part[2][0]]:
            found[place].append(part)
    return found
