"""Who runs when during a hyperperiod, and where there is still room.

For each resource the times at which it is taken, as stretches in order; what follows without a gap
is one stretch. For each domain how many run with what load from when to when, and from that the
stretches in which it has no room for one more. After its end the hyperperiod begins anew: what goes
on beyond it stands at the beginning.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable

from monitors.schedule.runs import NOT
from monitors.schedule.work import Domain, Work


class Stretches:
    """Times at which something is taken: disjoint, in order, with gaps between them."""

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.ends: list[int] = []

    def blocked(self, start_ms: int, end_ms: int) -> int:
        """The end of the last stretch that overlaps; ``start_ms`` where there is none."""
        before = bisect_left(self.starts, end_ms) - 1
        return max(start_ms, self.ends[before]) if before >= 0 else start_ms

    def add(self, start_ms: int, end_ms: int) -> None:
        """That time is taken."""
        starts, ends = self.starts, self.ends
        first = bisect_left(ends, start_ms)  # from here on they end at the start or later ...
        beyond = bisect_right(starts, end_ms, first)  # ... up to here they begin by the end
        if first < beyond:
            start_ms, end_ms = min(start_ms, starts[first]), max(end_ms, ends[beyond - 1])
        starts[first:beyond] = [start_ms]
        ends[first:beyond] = [end_ms]

    def remove(self, start_ms: int, end_ms: int) -> None:
        """That time, which lies within one stretch, is free again."""
        at = bisect_right(self.starts, start_ms) - 1
        first, last = self.starts[at], self.ends[at]
        pieces = [(a, b) for a, b in ((first, start_ms), (end_ms, last)) if a < b]
        self.starts[at : at + 1] = [a for a, _ in pieces]
        self.ends[at : at + 1] = [b for _, b in pieces]


class Timetable:
    """Of one hyperperiod. Tasks are numbers of ``work.tasks``; a start lies between the run's
    release and its deadline, so it may be beyond the hyperperiod's end."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self._whole = work.hyperperiod_ms
        self._duration = [task.duration_ms for task in work.tasks]
        self._resources = [Stretches() for _ in work.resources]
        inside: list[set[int]] = [set() for _ in work.bounds]
        for load, domains in zip(work.load, work.domains, strict=True):
            for domain in domains:
                inside[domain].add(load)
        self._levels = [
            Levels(bound, work.hyperperiod_ms, sorted(loads))
            for bound, loads in zip(work.bounds, inside, strict=True)
        ]
        # What a task asks for room, the fullest first; tasks that ask the same share a list.
        asked: dict[tuple[object, ...], list[Stretches]] = {}
        self._asked: list[list[Stretches]] = []
        for uses, domains, load in zip(work.uses, work.domains, work.load, strict=True):
            key = uses, domains, load if domains else 0
            if key not in asked:
                asked[key] = [
                    *(self._resources[resource] for resource in uses),
                    *(self._levels[domain].full[load] for domain in domains),
                ]
            self._asked.append(asked[key])
        lists = {id(found): [(s.starts, s.ends) for s in found] for found in asked.values()}
        self._lists = [lists[id(found)] for found in self._asked]

    def earliest(self, task: int, release_ms: int, last_ms: int) -> int:
        """The first start from ``release_ms`` to ``last_ms`` at which the task can run, ``NOT``
        where there is none."""
        duration = self._duration[task]
        if last_ms + duration > self._whole:
            return self._around(task, release_ms, last_ms)
        lists = self._lists[task]
        at, end = release_ms, release_ms + duration
        turn = agreed = 0  # how many in a row have nothing against it
        while agreed < len(lists):
            starts, ends = lists[turn]
            before = bisect_left(starts, end) - 1
            agreed += 1
            while before >= 0 and ends[before] > at:
                at = ends[before]
                if at > last_ms:
                    return NOT
                end = at + duration
                agreed = 1
                before = bisect_left(starts, end, before + 1) - 1
            turn = turn + 1 if turn + 1 < len(lists) else 0
        return at

    def _around(self, task: int, release_ms: int, last_ms: int) -> int:
        """The same where the run may go on beyond the hyperperiod's end, or begin there."""
        at = release_ms
        while at <= last_ms:
            until = NOT
            for start, end, ahead in self.parts(task, at):
                for found in self._asked[task]:
                    blocked = found.blocked(start, end)
                    until = max(until, blocked + ahead if blocked > start else NOT)
            if until == NOT:
                return at
            at = until
        return NOT

    def parts(self, task: int, start_ms: int) -> list[tuple[int, int, int]]:
        """The run's time as one or two stretches of the hyperperiod: start, end, and how much
        earlier that is than the run's own time."""
        duration, whole = self._duration[task], self._whole
        ahead = start_ms // whole * whole
        start = start_ms - ahead
        if start + duration <= whole:
            return [(start, start + duration, ahead)]
        return [(start, whole, ahead), (0, start + duration - whole, ahead + whole)]

    def take(self, task: int, start_ms: int) -> None:
        """The task runs from then on. Where there is no room for it, :meth:`release` does not bring
        back what was."""
        for start, end, _ in self.parts(task, start_ms):
            for resource in self.work.uses[task]:
                self._resources[resource].add(start, end)
            for domain in self.work.domains[task]:
                self._levels[domain].change(start, end, 1, self.work.load[task])

    def release(self, task: int, start_ms: int) -> None:
        """The task does not run from then on after all."""
        for start, end, _ in self.parts(task, start_ms):
            for resource in self.work.uses[task]:
                self._resources[resource].remove(start, end)
            for domain in self.work.domains[task]:
                self._levels[domain].change(start, end, -1, -self.work.load[task])


class Levels:
    """How many run in a domain and with what load, over time. ``full`` are, for each load that one
    more may have, the times at which there is no room for it."""

    def __init__(self, bound: Domain, whole_ms: int, loads: Iterable[int]) -> None:
        self._at_once = math.inf if bound.at_once is None else bound.at_once
        self._most = math.inf if bound.most is None else bound.most
        self._whole = whole_ms
        self._begins = [0]
        self._count = [0]
        self._load = [0]
        self.full = {load: Stretches() for load in loads}

    def change(self, start_ms: int, end_ms: int, count: int, load: int) -> None:
        """So many more run from ``start_ms`` to ``end_ms``, with so much more load."""
        first = self._split(start_ms)
        beyond = self._split(end_ms)
        for at in range(first, beyond):
            before = self._count[at], self._load[at]
            after = before[0] + count, before[1] + load
            self._count[at], self._load[at] = after
            end = self._begins[at + 1] if at + 1 < len(self._begins) else self._whole
            for more, full in self.full.items():
                was, is_now = self._is_full(*before, more), self._is_full(*after, more)
                if is_now and not was:
                    full.add(self._begins[at], end)
                elif was and not is_now:
                    full.remove(self._begins[at], end)
        for at in (beyond, first):  # what became equal to what is before it is one with it
            if 0 < at < len(self._begins) and (
                (self._count[at], self._load[at]) == (self._count[at - 1], self._load[at - 1])
            ):
                del self._begins[at], self._count[at], self._load[at]

    def _is_full(self, count: int, load: int, more: int) -> bool:
        return count >= self._at_once or load + more > self._most

    def _split(self, at_ms: int) -> int:
        """Where the levels from ``at_ms`` on begin."""
        if at_ms >= self._whole:
            return len(self._begins)
        at = bisect_left(self._begins, at_ms)
        if at == len(self._begins) or self._begins[at] != at_ms:
            self._begins.insert(at, at_ms)
            self._count.insert(at, self._count[at - 1])
            self._load.insert(at, self._load[at - 1])
        return at
