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
from itertools import accumulate
from typing import Protocol

from monitors.schedule.runs import NOT
from monitors.schedule.work import Domain, Work

FRONT = 3
"""Of the hosts and links that a task needs so many, the busiest, are asked first together. Many
tasks have these in common, and mostly they decide."""

Lists = list[tuple[list[int], list[int]]]
"""Starts and ends of the stretches in which there is no room, by what is in the way."""


class Stretches:
    """Times at which something is taken: disjoint, in order, with gaps between them."""

    def __init__(self, starts: Iterable[int] = (), ends: Iterable[int] = ()) -> None:
        self.starts = list(starts)
        self.ends = list(ends)

    def add(self, start_ms: int, end_ms: int) -> None:
        """That time is taken."""
        starts, ends = self.starts, self.ends
        first = bisect_left(ends, start_ms)  # from here on they end at the start or later ...
        if first == len(starts) or starts[first] > end_ms:
            starts.insert(first, start_ms)
            ends.insert(first, end_ms)
            return
        beyond = bisect_right(starts, end_ms, first)  # ... up to here they begin by the end
        starts[first] = min(starts[first], start_ms)
        ends[beyond - 1] = max(ends[beyond - 1], end_ms)
        if beyond - first > 1:
            del starts[first + 1 : beyond], ends[first : beyond - 1]

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

    def __init__(self, work: Work, stands: Stands | None = None) -> None:
        """Empty, or with everything that ``stands`` already."""
        self.work = work
        self._whole = work.hyperperiod_ms
        self._duration = [task.duration_ms for task in work.tasks]
        self._stands: Stands = stands or _Nothing(work)
        # Made when they are needed first: a run on demand meets few of them.
        self._resources: list[Stretches | None] = [None] * len(work.resources)
        self._levels: list[Levels | None] = [None] * len(work.bounds)
        # What a task asks for room, and how many of that first; tasks that ask the same share it.
        self._same: dict[tuple[object, ...], Lists] = {}
        self._asked: list[tuple[int, int, Lists] | None] = [None] * len(work.tasks)
        # What is asked first has a number, with how long it is needed. For that and a release the
        # first start that may be free there: it only becomes later, until something is released.
        self._fronts: dict[tuple[object, ...], int] = {}
        self._not_before: dict[tuple[int, int], int] = {}

    def earliest(self, task: int, release_ms: int, last_ms: int) -> int:
        """The first start from ``release_ms`` to ``last_ms`` at which the task can run, ``NOT``
        where there is none."""
        duration = self._duration[task]
        if last_ms + duration > self._whole:
            return self._around(task, release_ms, last_ms)
        front, asked_first, lists = self._asked[task] or self._ask(task)
        at = self._not_before.get((front, release_ms), release_ms)
        if at > release_ms and at > last_ms:
            return NOT
        at = _agreed(lists[:asked_first], at, last_ms, duration)
        if at == NOT:
            self._not_before[front, release_ms] = max(release_ms, last_ms + 1)
            return NOT
        self._not_before[front, release_ms] = at
        return _agreed(lists, at, last_ms, duration, asked_first)

    def _around(self, task: int, release_ms: int, last_ms: int) -> int:
        """The same where the run may go on beyond the hyperperiod's end, or begin there."""
        at = release_ms
        lists = self._ask(task)[-1]
        while at <= last_ms:
            until = NOT
            for start, end, ahead in self.parts(task, at):
                for starts, ends in lists:
                    before = bisect_left(starts, end) - 1
                    if before >= 0 and ends[before] > start:
                        until = max(until, ends[before] + ahead)
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
        resources = self._resources
        for start, end, _ in self.parts(task, start_ms):
            for resource in self.work.uses[task]:
                (resources[resource] or self._resource(resource)).add(start, end)
            for domain in self.work.domains[task]:
                self._domain(domain).change(start, end, 1, self.work.load[task])

    def release(self, task: int, start_ms: int) -> None:
        """The task does not run from then on after all."""
        self._not_before.clear()
        for start, end, _ in self.parts(task, start_ms):
            for resource in self.work.uses[task]:
                self._resource(resource).remove(start, end)
            for domain in self.work.domains[task]:
                self._domain(domain).change(start, end, -1, -self.work.load[task])

    def _ask(self, task: int) -> tuple[int, int, Lists]:
        """The number of what the task asks first, how many that are, and all that it asks."""
        uses, domains, load = self.work.uses[task], self.work.domains[task], self.work.load[task]
        first, inside = uses[:FRONT], (domains, load if domains else 0)
        lists = self._same.get((uses, inside))
        if lists is None:
            asked = [self._resource(resource) for resource in first]
            asked += [self._domain(domain).without_room(load) for domain in domains]
            asked += [self._resource(resource) for resource in uses[FRONT:]]
            lists = self._same[uses, inside] = [(one.starts, one.ends) for one in asked]
        front = (first, inside, self._duration[task])
        number = self._fronts.setdefault(front, len(self._fronts))
        found = self._asked[task] = number, len(first) + len(domains), lists
        return found

    def _resource(self, number: int) -> Stretches:
        found = self._resources[number]
        if found is None:
            found = self._resources[number] = self._stands.stretches(number)
        return found

    def _domain(self, number: int) -> Levels:
        found = self._levels[number]
        if found is None:
            found = self._levels[number] = self._stands.levels(number)
        return found


def _agreed(lists: Lists, at: int, last_ms: int, duration: int, agreed: int = 0) -> int:
    """The first instant from ``at`` to ``last_ms`` from which on nothing is in the way for so long,
    ``NOT`` where there is none. The first ``agreed`` have nothing against ``at``."""
    end = at + duration
    turn = agreed if agreed < len(lists) else 0
    while agreed < len(lists):  # so many in a row have nothing against it
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


class Stands(Protocol):
    """What is in a timetable to begin with; the timetable changes what it is given."""

    def stretches(self, resource: int) -> Stretches:
        """When a resource is taken."""
        ...

    def levels(self, domain: int) -> Levels:
        """How many run in a domain."""
        ...


class _Nothing:
    def __init__(self, work: Work) -> None:
        self._work = work

    def stretches(self, resource: int) -> Stretches:
        return Stretches()

    def levels(self, domain: int) -> Levels:
        return Levels(self._work.bounds[domain], self._work.hyperperiod_ms)


class Levels:
    """How many run in a domain and with what load, over time; and for each load that one more may
    have, the times at which there is no room for it."""

    def __init__(
        self, bound: Domain, whole_ms: int, there: Iterable[tuple[int, int, int]] = ()
    ) -> None:
        """``there``: start, end and load of what is there from the beginning."""
        self._at_once = math.inf if bound.at_once is None else bound.at_once
        self._most = math.inf if bound.most is None else bound.most
        self._whole = whole_ms
        changes: dict[int, tuple[int, int]] = {0: (0, 0)}
        for start, end, load in there:
            for at, sign in ((start, 1), (end, -1)):
                count, sum_ = changes.get(at, (0, 0))
                changes[at] = count + sign, sum_ + sign * load
        self._begins = sorted(at for at in changes if at < whole_ms)
        self._count = list(accumulate(changes[at][0] for at in self._begins))
        self._load = list(accumulate(changes[at][1] for at in self._begins))
        self._full: dict[int, Stretches] = {}

    def without_room(self, load: int) -> Stretches:
        """When there is none for so much more load; it goes on changing with what runs."""
        found = self._full.get(load)
        if found is None:
            found = self._full[load] = Stretches()
            ends = [*self._begins[1:], self._whole]
            for at, end, count, now in zip(
                self._begins, ends, self._count, self._load, strict=True
            ):
                if self._is_full(count, now, load):
                    found.add(at, end)
        return found

    def change(self, start_ms: int, end_ms: int, count: int, load: int) -> None:
        """So many more run from ``start_ms`` to ``end_ms``, with so much more load."""
        first = self._split(start_ms)
        beyond = self._split(end_ms)
        for at in range(first, beyond):
            before = self._count[at], self._load[at]
            after = before[0] + count, before[1] + load
            self._count[at], self._load[at] = after
            end = self._begins[at + 1] if at + 1 < len(self._begins) else self._whole
            for more, full in self._full.items():
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
