"""The coming schedule of a pool, played forward: which job begins when, on which machine. Pure.

As HTCondor matches: the oldest job first, on the machine with the fewest free cores that has room,
and of those the one that was in use last; a job that fits nowhere lets others pass. Cores that a
user's job leaves go to the next job of the same user, for claims are used again. Jobs of one user
and size share a *shape*: how many cores of each flavour such a job takes (0: it does not fit), its
memory included.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import NamedTuple


class Job(NamedTuple):
    """Ready in this many seconds (0: it waits), to run so long."""

    ready_s: float
    run_s: float
    shape: int


class Supply(NamedTuple):
    """A machine of a flavour (by its number) that is up in this many seconds; ``busy`` has the
    cores that are taken, for how long, and by a job of which shape (-1: of none that is known)."""

    flavour: int
    cores: int
    up_s: float
    busy: Sequence[tuple[int, float, int]] = ()


@dataclass(frozen=True, slots=True)
class Played:
    """When each job begins (infinite: never); of each machine, when its first job begins (infinite:
    none), when its last one ends, and the core-seconds that they take."""

    start_s: list[float]
    first_s: list[float]
    last_s: list[float]
    used_s: list[float]


def play(
    jobs: Sequence[Job],
    shapes: Sequence[Sequence[int]],
    users: Sequence[str],
    supply: Iterable[Supply],
) -> Played:
    """``jobs`` in order, the oldest first; ``users`` has each shape's; of machines that are free
    now, the last is taken first."""
    return _Play(jobs, shapes, users, list(supply)).run()


class _Play:
    def __init__(
        self,
        jobs: Sequence[Job],
        shapes: Sequence[Sequence[int]],
        users: Sequence[str],
        supply: list[Supply],
    ) -> None:
        self.jobs, self.shapes, self.users = jobs, shapes, users
        flavours = 1 + max((machine.flavour for machine in supply), default=-1)
        most = [0] * flavours
        for machine in supply:
            most[machine.flavour] = max(most[machine.flavour], machine.cores)
        # Machines by flavour and free cores, those in use last at the end.
        self.open: list[list[dict[int, None]]] = [[{} for _ in range(n + 1)] for n in most]
        self.free = [0] * len(supply)
        self.flavour = [machine.flavour for machine in supply]
        self.waiting: list[deque[int]] = [deque() for _ in shapes]
        self.late: set[int] = set()  # shapes of which jobs wait
        count, inf = len(supply), math.inf
        self.played = Played([inf] * len(jobs), [inf] * count, [0.0] * count, [0.0] * count)
        # (when, order, machine, cores, shape): cores that become free, and whose they were.
        self.events: list[tuple[float, int, int, int, int]] = []
        for number, machine in enumerate(supply):
            rest = machine.cores - sum(cores for cores, _, _ in machine.busy)
            self.events += [(end, number, number, n, shape) for n, end, shape in machine.busy]
            if rest > 0:
                self.events.append((machine.up_s, number, number, rest, -1))
        heapify(self.events)

    def run(self) -> Played:
        events, waiting = self.events, self.waiting
        for number, (ready_s, _, shape) in enumerate(self.jobs):
            while events and events[0][0] <= ready_s:
                self._release()
            if waiting[shape] or not self._place(number, ready_s):
                waiting[shape].append(number)
                self.late.add(shape)
        while events and self.late:
            self._release()
        return self.played

    def _release(self) -> None:
        at, _, machine, cores, shape = heappop(self.events)
        user = self.users[shape] if shape >= 0 else None
        flavour = self.flavour[machine]
        free = self.free[machine]
        rows = self.open[flavour]
        if free:
            del rows[free][machine]
        free += cores
        while True:
            # The oldest that fits, of those of the same user if there are any.
            best, oldest, own = -1, 0, False
            for waits in self.late:
                if 0 < self.shapes[waits][flavour] <= free:
                    first, same = self.waiting[waits][0], self.users[waits] == user
                    if best < 0 or (same, -first) > (own, -oldest):
                        best, oldest, own = waits, first, same
            if best < 0:
                break
            self.waiting[best].popleft()
            if not self.waiting[best]:
                self.late.remove(best)
            free -= self._begin(oldest, machine, at)
        if free:
            rows[free][machine] = None
        self.free[machine] = free

    def _place(self, number: int, at: float) -> bool:
        """On a machine that has room now."""
        chosen: dict[int, None] | None = None
        fewest = math.inf
        for rows, width in zip(self.open, self.shapes[self.jobs[number].shape], strict=False):
            if not width:
                continue
            for free in range(width, len(rows)):
                if rows[free]:
                    if free < fewest:
                        fewest, chosen = free, rows[free]
                    break
        if chosen is None:
            return False
        machine, _ = chosen.popitem()
        free = self.free[machine] - self._begin(number, machine, at)
        if free:
            self.open[self.flavour[machine]][free][machine] = None
        self.free[machine] = free
        return True

    def _begin(self, number: int, machine: int, at: float) -> int:
        _, run_s, shape = self.jobs[number]
        cores = self.shapes[shape][self.flavour[machine]]
        end = at + run_s
        played = self.played
        played.start_s[number] = at
        played.first_s[machine] = min(played.first_s[machine], at)
        played.last_s[machine] = max(played.last_s[machine], end)
        played.used_s[machine] += cores * run_s
        heappush(self.events, (end, number + len(self.flavour), machine, cores, shape))
        return cores
