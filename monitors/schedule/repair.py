"""Room for runs that found none: what is in the way is taken out and placed anew.

A chain of ejections (Glover, Discrete Applied Mathematics 65, 1996): of all the starts that a run
could have, the one is taken whose disturbance is least; who was disturbed is the next to look for
room. A run that was ejected often is harder to eject, so that the chain goes elsewhere instead of
in circles. No chance is involved: the same input gives the same schedule.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict, deque
from collections.abc import Collection, Iterator, Sequence

from monitors.schedule.runs import NOT, Starts
from monitors.schedule.timetable import Timetable

Run = tuple[int, int]
"""The number of its task, and its own."""

CANDIDATES = 64
"""Starts that are looked at for a run."""
PATIENCE = 20
"""Ejections for each run that is to be placed."""
LEAST, MOST = 500, 3_000
"""Ejections in all; for more runs than ``MOST`` nothing is tried."""

_Taken = list[tuple[int, int, Run]]
"""Who has something from when to when, in order, within the hyperperiod."""


class Repair:
    """Changes a timetable and the starts that stand in it."""

    def __init__(self, table: Timetable, starts: Starts, pinned: Collection[Run] = ()) -> None:
        """``pinned`` runs stay where they are."""
        self._table, self._starts = table, starts
        self._work = table.work
        self._pinned = frozenset(pinned)
        self._longest = max((task.duration_ms for task in self._work.tasks), default=0)
        # Resources first, then domains.
        self._taken: defaultdict[int, _Taken] = defaultdict(list)
        for run, at in starts.items():
            for place, start, end in self._places(run, at):
                self._taken[place].append((start, end, run))
        for taken in self._taken.values():
            taken.sort()
        self._ejected: defaultdict[Run, int] = defaultdict(int)

    def place(self, missed: Sequence[Run]) -> list[Run]:
        """Place these runs; those that are left without room in the end."""
        waiting = deque(sorted(missed, key=self._slack))
        patience = min(MOST, max(LEAST, PATIENCE * len(missed)))
        for _ in range(patience if len(missed) <= MOST else 0):
            if not waiting:
                break
            run = waiting.popleft()
            release, last = self._window(run)
            at = self._table.earliest(run[0], release, last)
            if at != NOT:
                self._put(run, at)
                continue
            at, others = self._least_disturbance(run)
            if at == NOT:
                waiting.append(run)
                if all(self._least_disturbance(other)[0] == NOT for other in waiting):
                    break
                continue
            for other in others:
                self._take_out(other)
            self._put(run, at)
            self._ejected[run] += 1
            waiting.extend(sorted(others, key=self._slack))
        return list(waiting)

    def _window(self, run: Run) -> tuple[int, int]:
        """The first and the last instant at which it may start."""
        task = self._work.tasks[run[0]]
        release = task.offset_ms + run[1] * task.period_ms
        return release, release + task.deadline_ms - task.duration_ms

    def _slack(self, run: Run) -> tuple[int, Run]:
        release, last = self._window(run)
        return last - release, run

    def _places(self, run: Run, at: int) -> Iterator[tuple[int, int, int]]:
        """What a run has, and from when to when within the hyperperiod."""
        n_resources = len(self._work.resources)
        for start, end, _ in self._table.parts(run[0], at):
            for resource in self._work.uses[run[0]]:
                yield resource, start, end
            for domain in self._work.domains[run[0]]:
                yield n_resources + domain, start, end

    def _put(self, run: Run, at: int) -> None:
        self._table.take(run[0], at)
        self._starts[run] = at
        for place, start, end in self._places(run, at):
            insort(self._taken[place], (start, end, run))

    def _take_out(self, run: Run) -> None:
        at = self._starts.pop(run)
        self._table.release(run[0], at)
        for place, start, end in self._places(run, at):
            del self._taken[place][bisect_left(self._taken[place], (start, end, run))]

    def _least_disturbance(self, run: Run) -> tuple[int, list[Run]]:
        """The best start of those that are looked at, and who is in the way of it."""
        best: tuple[float, int] = (float("inf"), NOT)
        found: list[Run] = []
        for at in self._candidates(run):
            others = self._in_the_way(run, at)
            if others is None:
                continue
            cost = sum(
                self._work.tasks[other[0]].duration_ms * (1 + self._ejected[other]) ** 2
                / (1 + self._slack(other)[0])
                for other in others
            )  # fmt: skip
            if (cost, at) < best:
                best, found = (cost, at), others
        return best[1], found

    def _candidates(self, run: Run) -> list[int]:
        """Starts right after, and right before, something that is in the window."""
        release, last = self._window(run)
        duration = self._work.tasks[run[0]].duration_ms
        whole = self._work.hyperperiod_ms
        found = {release, last}
        for resource in self._work.uses[run[0]]:
            taken = self._taken[resource]
            for ahead in (0, whole) if last + duration > whole else (0,):
                since = bisect_left(taken, (release - ahead,))
                until = bisect_left(taken, (last + duration - ahead,))
                for start, end, _ in taken[max(0, since - 1) : until]:
                    found.update((end + ahead, start + ahead - duration))
        ordered = sorted(at for at in found if release <= at <= last)
        step = max(1.0, (len(ordered) - 1) / (CANDIDATES - 1))
        return [ordered[round(n * step)] for n in range(min(len(ordered), CANDIDATES))]

    def _in_the_way(self, run: Run, at: int) -> list[Run] | None:
        """Those that must go for the run to start then; None where one of them is pinned."""
        found: set[Run] = set()
        task = run[0]
        n_resources = len(self._work.resources)
        for place, start, end in self._places(run, at):
            if place < n_resources:
                found.update(self._overlapping(place, start, end))
        for place, start, end in self._places(run, at):
            if place >= n_resources:
                bound = self._work.bounds[place - n_resources]
                there = [r for r in self._overlapping(place, start, end) if r not in found]
                # Cautious: as if all of them ran at the same time.
                there.sort(key=lambda r: (self._ejected[r], self._work.load[r[0]]))
                load = sum(self._work.load[r[0]] for r in there) + self._work.load[task]
                while there and (
                    (bound.at_once is not None and len(there) >= bound.at_once)
                    or (bound.most is not None and load > bound.most)
                ):
                    gone = there.pop(0)
                    load -= self._work.load[gone[0]]
                    found.add(gone)
        return None if found & self._pinned else sorted(found)

    def _overlapping(self, place: int, start: int, end: int) -> list[Run]:
        taken = self._taken[place]
        since = bisect_left(taken, (start - self._longest,))
        until = bisect_left(taken, (end,), since)
        return [run for _, stop, run in taken[since:until] if stop > start]
