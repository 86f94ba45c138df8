"""When each measurement is made, so that none disturbs another: EDF-CE with insertion.

EDF-CE (thesis, Algorithm 1) starts, at every release and every finish, the most urgent of the
pending runs that conflicts with none that runs. A run that needs five links at once may wait for
ever there: whenever one of them becomes free, a run that needs fewer takes it. Here runs take their
turns in the same order, the earliest deadline first, but in the whole hyperperiod: each is inserted
at the first instant at which all that it needs is free for long enough, before the next has its
turn. What comes later takes the gaps that are left.

What is promised is kept when a schedule under way changes: every task goes on meeting its
deadlines, and no slot moves as long as what is new fits the gaps.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property

from monitors.measurements.load import bound, hyperperiod, shares
from monitors.measurements.tasks import (
    Agreement,
    Infeasible,
    Resource,
    Schedule,
    Slot,
    Task,
    check,
    check_load,
    seconds,
)
from network_provisioner.base.errors import InputError

SPREAD = 0.4
"""Up to this part of the bound runs are spread over their windows: each task has a place of its own
there, so that its runs come at regular intervals and gaps are left everywhere. Beyond, there is no
room to give away."""
_SCALE = 1 << 32
_GOLDEN = 2654435769  # the golden ratio's part of it: multiples of it fill the scale evenly
_EVER = 1 << 62


def plan(tasks: Iterable[Task], agreement: Agreement) -> Schedule:
    """A schedule in which every measurement meets its deadline, the same in whatever order the
    tasks stand.

    Raises InputError for tasks that cannot be meant and a hyperperiod that is too long, Infeasible
    naming those that find no room.
    """
    ordered = _checked(tasks, agreement)
    whole_ms, most = hyperperiod(ordered), bound(ordered, agreement)
    for spread in (True, False) if most.load <= SPREAD else (False,):
        slots, missed = _inserted(Timetable(agreement), ordered, whole_ms, spread)
        if not missed:
            return Schedule(whole_ms, tuple(sorted(slots)))
    names = tuple(sorted(set(missed)))
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    few = ", ".join(map(repr, names[:5])) + more
    load = f"{most.why}, {most.load:.1%} of"
    if most.load > 1:
        raise Infeasible(f"no schedule exists: {load} what there is; without room: {few}", names)
    raise Infeasible(
        f"no room was found for {few} beside the others; {load} what could be at most", names
    )


def arrive(schedule: Schedule, tasks: Iterable[Task], agreement: Agreement, task: Task) -> Schedule:
    """The schedule with one more task; ``tasks`` are those that it has.

    No slot moves where the new ones fit the gaps, otherwise all may (:func:`moved` names whose
    did). The hyperperiod becomes a multiple of what it was where the new period wants that. Raises
    Infeasible naming ``task`` where it cannot fit, and InputError as :func:`plan`.
    """
    before = tuple(tasks)
    ordered = _checked((*before, task), agreement)
    whole_ms = hyperperiod(ordered, schedule.hyperperiod_ms)
    table, by_name = Timetable(agreement), {placed.name: placed for placed in ordered}
    kept = schedule.repeated(whole_ms).slots
    for slot in kept:
        table.take(by_name[slot.task], slot.start_ms)
    added, missed = _inserted(table, [task], whole_ms, spread=False)
    if not missed:
        return Schedule(whole_ms, tuple(sorted((*kept, *added))))
    try:
        return plan(ordered, agreement)
    except Infeasible as error:
        raise Infeasible(
            f"measurement task {task.name!r} cannot fit beside the others: {error}", (task.name,)
        ) from None


def leave(schedule: Schedule, name: str) -> Schedule:
    """The schedule without a task. Nothing else changes, and the hyperperiod stays."""
    return replace(schedule, slots=tuple(slot for slot in schedule.slots if slot.task != name))


def moved_tasks(before: Schedule, after: Schedule) -> tuple[str, ...]:
    """The tasks of both schedules that moved."""
    whole = math.lcm(before.hyperperiod_ms, after.hyperperiod_ms)
    old, new = (
        {(slot.task, slot.number): slot.start_ms for slot in schedule.repeated(whole).slots}
        for schedule in (before, after)
    )
    return tuple(sorted({key[0] for key, at in old.items() if key in new and new[key] != at}))


def squeeze(
    schedule: Schedule,
    tasks: Iterable[Task],
    agreement: Agreement,
    request: Task,
    now_ms: int,
    until_ms: int,
    taken: Sequence[tuple[Task, Slot]] = (),
) -> Slot:
    """The first time from ``now_ms`` on at which ``request`` can run once, over by ``until_ms``,
    without a conflict with the schedule or with ``taken`` (runs beside it, with their slots), and
    within the agreement.

    Instants are those of the schedule, which began at 0 and repeats for ever. Of ``request`` the
    period and deadline do not count. Raises Infeasible naming the request where there is no such
    time, and InputError for what cannot be meant.
    """
    long_ms = request.duration_ms
    check(replace(request, period_ms=max(1, long_ms), deadline_ms=max(1, long_ms)))
    check_load(request, agreement)
    # One hyperperiod after the last of what is taken, everything looks as it did before.
    beyond = max([now_ms, *(slot.end_ms for _, slot in taken)]) + schedule.hyperperiod_ms
    until = min(until_ms, beyond + long_ms)
    table = Timetable(agreement)
    near = {task.name: task for task in tasks if _meets(task, request, agreement)}
    for slot in _during(schedule, near, now_ms, until):
        table.take(near[slot.task], slot.start_ms)
    for task, slot in taken:
        if slot.start_ms < until and slot.end_ms > now_ms and _meets(task, request, agreement):
            table.take(task, slot.start_ms)
    start = table.earliest(request, now_ms, until - long_ms)
    if start is None:
        raise Infeasible(
            f"measurement {request.name!r} takes {seconds(long_ms)}, and found no room within "
            f"{seconds(until_ms - now_ms)}",
            (request.name,),
        )
    return Slot(start, start + long_ms, request.name, 0, now_ms, until_ms)


class Recurring:
    """The slots of a schedule at their instants, milliseconds of Unix time: a hyperperiod begins
    whenever that is a whole multiple of its length, in every process."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        length = schedule.hyperperiod_ms
        self._slots = sorted(s.later(-(s.start_ms // length) * length) for s in schedule.slots)

    def between(self, since_ms: int, until_ms: int) -> Iterator[Slot]:
        """Those that begin at ``since_ms`` or later and before ``until_ms``, in order; all their
        times are instants, ``number`` stays that in the hyperperiod."""
        length = self.schedule.hyperperiod_ms
        if not self._slots or until_ms <= since_ms:
            return
        cycle = since_ms // length
        place = bisect_left(self._starts, since_ms - cycle * length)
        while True:
            for slot in self._slots[place:]:
                if cycle * length + slot.start_ms >= until_ms:
                    return
                yield slot.later(cycle * length)
            cycle, place = cycle + 1, 0

    def next_of(self, task: str, since_ms: int) -> Slot | None:
        """The first slot of a task that begins at ``since_ms`` or later."""
        mine, starts = self._by_task.get(task, ([], []))
        if not mine:
            return None
        length = self.schedule.hyperperiod_ms
        cycle = since_ms // length
        place = bisect_left(starts, since_ms - cycle * length)
        if place == len(mine):
            cycle, place = cycle + 1, 0
        return mine[place].later(cycle * length)

    def of_release(self, task: str, release_ms: int) -> Slot | None:
        """The slot of that release; None where the task is not released then."""
        slot = self.next_of(task, release_ms)  # no later release has a slot before it
        return slot if slot is not None and slot.release_ms == release_ms else None

    def has(self, task: str, at_ms: int) -> bool:
        """Whether a slot of the task begins at that instant."""
        slot = self.next_of(task, at_ms)
        return slot is not None and slot.start_ms == at_ms

    @cached_property
    def _starts(self) -> list[int]:
        return [slot.start_ms for slot in self._slots]

    @cached_property
    def _by_task(self) -> dict[str, tuple[list[Slot], list[int]]]:
        by_task: dict[str, tuple[list[Slot], list[int]]] = {}
        for slot in self._slots:
            slots, starts = by_task.setdefault(slot.task, ([], []))
            slots.append(slot)
            starts.append(slot.start_ms)
        return by_task


class Timetable:
    """What is taken when, and where there is still room: for each host and link the times at which
    something runs there, for each bounded domain how much does."""

    def __init__(self, agreement: Agreement) -> None:
        self._busy: defaultdict[Resource, _Stretches] = defaultdict(_Stretches)
        self._domains = [
            (agreement.domains[name], _Level(agreement.at_once.get(name, math.inf),
                                             agreement.domain_bps.get(name, math.inf)))
            for name in sorted(agreement.at_once.keys() | agreement.domain_bps.keys())
        ]  # fmt: skip
        self._known: dict[object, tuple[list[_Stretches], list[_Level]]] = {}
        # Nothing that was taken becomes free: the first start that may be only becomes later.
        self._not_before: dict[tuple[object, int, int], int] = {}

    def earliest(self, task: Task, first_ms: int, last_ms: int) -> int | None:
        """The first start from ``first_ms`` to ``last_ms`` at which there is room for the task."""
        resources, levels = self._of(task)
        lists = [*resources, *(level.full_periods(task.load_bps) for level in levels)]
        key = (task.hosts, task.links, task.load_bps), first_ms, task.duration_ms
        at = self._not_before.get(key, first_ms)
        turn = settled = 0
        while settled < len(lists) and at <= last_ms:
            later = lists[turn].free_from(at, task.duration_ms)
            settled = settled + 1 if later == at else 1
            at, turn = later, (turn + 1) % len(lists)
        self._not_before[key] = at
        return at if at <= last_ms else None

    def take(self, task: Task, start_ms: int) -> None:
        """Reserve the time of a run that starts at ``start_ms``."""
        resources, levels = self._of(task)
        for stretches in resources:
            stretches.add(start_ms, start_ms + task.duration_ms)
        for level in levels:
            level.add(start_ms, start_ms + task.duration_ms, task.load_bps)

    def _of(self, task: Task) -> tuple[list[_Stretches], list[_Level]]:
        key = task.hosts, task.links
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = (
                [self._busy[resource] for resource in task.needs],
                [level for links, level in self._domains if links & task.links],
            )
        return known


class _Stretches:
    """Times at which something is taken: disjoint, in order, with gaps between them."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def add(self, start_ms: int, end_ms: int) -> None:
        """Add a time; adjacent times become one stretch."""
        starts, ends = self._starts, self._ends
        first = bisect_left(ends, start_ms)  # from here on they end at the start or later ...
        beyond = bisect_right(starts, end_ms, first)  # ... up to here they begin by the end
        if first < beyond:
            start_ms, end_ms = min(starts[first], start_ms), max(ends[beyond - 1], end_ms)
        starts[first:beyond], ends[first:beyond] = [start_ms], [end_ms]

    def free_from(self, at_ms: int, duration_ms: int) -> int:
        """The first time from ``at_ms`` on that is free for ``duration_ms``."""
        starts, ends = self._starts, self._ends
        before = bisect_left(starts, at_ms + duration_ms) - 1
        while before >= 0 and ends[before] > at_ms:
            at_ms = ends[before]
            before = bisect_left(starts, at_ms + duration_ms, before + 1) - 1
        return at_ms


class _Level:
    """How many run in a domain and with what load, over time; and for each load that one more may
    have, the times at which there is no room for it."""

    def __init__(self, at_once: float, most_bps: float) -> None:
        self._at_once, self._most_bps = at_once, most_bps
        self._begins, self._levels = [-_EVER], [(0, 0.0)]
        self._full: dict[float, _Stretches] = {}

    def full_periods(self, load_bps: float) -> _Stretches:
        """The times without room for so much more load; updated as runs are added."""
        stretches = self._full.get(load_bps)
        if stretches is None:
            stretches = self._full[load_bps] = _Stretches()
            ends = [*self._begins[1:], _EVER]
            for at, end, level in zip(self._begins, ends, self._levels, strict=True):
                if self._is_full(level, load_bps):
                    stretches.add(at, end)
        return stretches

    def add(self, start_ms: int, end_ms: int, load_bps: float) -> None:
        """One more run during this time."""
        first, beyond = self._split(start_ms), self._split(end_ms)
        for at in range(first, beyond):
            count, load = self._levels[at]
            level = self._levels[at] = count + 1, load + load_bps
            for more, full in self._full.items():
                if self._is_full(level, more):
                    full.add(self._begins[at], self._begins[at + 1])

    def _is_full(self, level: tuple[int, float], more_bps: float) -> bool:
        return level[0] >= self._at_once or level[1] + more_bps > self._most_bps

    def _split(self, at_ms: int) -> int:
        """Where the levels from ``at_ms`` on begin."""
        at = bisect_left(self._begins, at_ms)
        if at == len(self._begins) or self._begins[at] != at_ms:
            self._begins.insert(at, at_ms)
            self._levels.insert(at, self._levels[at - 1])
        return at


def _checked(tasks: Iterable[Task], agreement: Agreement) -> list[Task]:
    """In the order of their names. Raises InputError, and Infeasible for one that the agreement
    does not allow at all."""
    ordered = sorted(tasks, key=lambda task: task.name)
    for name, count in Counter(task.name for task in ordered).items():
        if count > 1:
            raise InputError(f"measurement task {name!r} is there twice, expected one of a name")
    for task in ordered:
        check(task)
        check_load(task, agreement)
    return ordered


def _inserted(
    table: Timetable, tasks: Sequence[Task], whole_ms: int, spread: bool
) -> tuple[list[Slot], list[str]]:
    """The slots of all runs, and the names of those that found no room, once for each run."""
    slots, missed = [], []
    for deadline, _, _, number, index in _by_urgency(tasks, whole_ms):
        task = tasks[index]
        release, last = deadline - task.deadline_ms, deadline - task.duration_ms
        start = None
        if spread:
            own = release + (last - release) * (index * _GOLDEN % _SCALE) // _SCALE
            start = table.earliest(task, own, last)
        if start is None:
            start = table.earliest(task, release, last)
        if start is None:
            missed.append(task.name)
            continue
        table.take(task, start)
        end = start + task.duration_ms
        slots.append(Slot(start, end, task.name, number, release, deadline))
    return slots, missed


def _by_urgency(tasks: Sequence[Task], whole_ms: int) -> list[tuple[int, int, int, int, int]]:
    """The earliest deadline first; of those with the same the longest, then the one that needs the
    scarcest host or link. With each the run's number and its task's place."""
    share = shares(tasks)
    scarcest = [max((share[r] for r in task.needs), default=0.0) for task in tasks]
    order = sorted(range(len(tasks)), key=lambda i: (-scarcest[i], i))
    rank = {index: place for place, index in enumerate(order)}
    return sorted(
        (number * task.period_ms + task.deadline_ms, -task.duration_ms, rank[index], number, index)
        for index, task in enumerate(tasks)
        for number in range(whole_ms // task.period_ms)
    )


def _meets(task: Task, request: Task, agreement: Agreement) -> bool:
    """Whether they share a host, a link or a bounded domain."""
    return bool(
        task.hosts & request.hosts
        or task.links & request.links
        or any(links & request.links and links & task.links for links in agreement.domains.values())
    )


def _during(schedule: Schedule, names: Iterable[str], start_ms: int, end_ms: int) -> Iterator[Slot]:
    """The slots of these tasks that overlap with that time."""
    tasks, whole = frozenset(names), schedule.hyperperiod_ms
    for slot in schedule.slots:
        if slot.task in tasks:
            turn = (start_ms - slot.end_ms) // whole + 1  # the first that ends after the start
            while slot.start_ms + turn * whole < end_ms:
                yield slot.later(turn * whole)
                turn += 1
