"""A schedule in which every measurement meets its deadline.

EDF-CE lets no host and no link idle that something pending could use. So a run that needs five
links at once may wait for ever: whenever one of them becomes free, a run that needs fewer takes it.
Here runs take their turns too, in the order of their deadlines, but in the whole hyperperiod: each
is placed at the first instant at which all that it needs is free for long enough, before the next
has its turn. What comes later takes the gaps that are left.

    place in the order of deadlines ─► all placed: done
        └► the bound is exceeded: there is no schedule, and why
        └► repair: place the rest all the same, what is in the way is placed anew
               └► other orders, each repaired

Where there is room enough, runs are not packed but spread, and packed only if that fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from monitors.schedule.bounds import Bound, bound_of
from monitors.schedule.model import Agreement, Infeasible, Schedule, Task
from monitors.schedule.repair import Repair
from monitors.schedule.runs import (
    NOT,
    Runs,
    Starts,
    by_deadline,
    by_task,
    fillers_last,
    least_room,
    schedule_of,
    tightest,
)
from monitors.schedule.timetable import Timetable
from monitors.schedule.work import Work, work_of

ORDERS: tuple[Callable[[Work], Runs], ...] = (
    lambda work: by_deadline(work, tightest),
    lambda work: by_deadline(work, least_room),
    lambda work: by_task(work, tightest),
)


FEW, PLACED = 400, 1500
"""Where a domain bounds the sum of loads, repair is tried for the first order with up to so many
runs without room, and places so many at most: each ejection has to look at everything there."""
FEWER = 60
"""Both, for the other orders."""

SPREAD = 0.4
"""Up to this part of the bound runs are spread over their windows. Beyond, there is no room to give
away."""
_SCALE = 1 << 32
_GOLDEN = 2654435769  # the golden ratio's part of it: multiples of it fill the scale evenly


@dataclass(frozen=True)
class Attempt:
    """The starts that were found, the runs that have none, and the bound."""

    starts: Starts
    missed: list[tuple[int, int]]
    most: Bound


def plan(tasks: Iterable[Task], agreement: Agreement) -> Schedule:
    """A schedule of a hyperperiod that keeps to all deadlines, conflicts and the agreement. The
    same for the same tasks, in whatever order they come.

    Raises Infeasible naming the tasks that cannot fit beside the others, and InputError as
    :func:`monitors.schedule.work.work_of`.
    """
    work = work_of(tasks, agreement)
    found = attempt(work)
    if not found.missed:
        return schedule_of(work, found.starts)
    names = tuple(sorted({work.tasks[task].name for task, _ in found.missed}))
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    few = ", ".join(map(repr, names[:5])) + more
    load = f"{found.most.why}, {found.most.load:.1%} of"
    if found.most.load > 1:
        raise Infeasible(f"no schedule exists: {load} what there is; without room: {few}", names)
    raise Infeasible(
        f"no room was found for {few} beside the others; {load} what could be at most", names
    )


def attempt(work: Work) -> Attempt:
    """As many runs as can be placed: all of them, or of several tries the one that misses least."""
    most = bound_of(work)
    if most.load <= SPREAD:
        starts, missed = place(Timetable(work), ORDERS[0](work), spread=True)
        if not missed:
            return Attempt(starts, [], most)
    best: Attempt | None = None
    sums = any(bound.most is not None for bound in work.bounds)
    for order in (fillers_last, *ORDERS) if sums else ORDERS:
        table = Timetable(work)
        starts, missed = place(table, order(work))
        if missed and most.load <= 1:  # above, there is no schedule
            if not sums:
                missed = Repair(table, starts).place(missed)
            elif len(missed) <= (FEW if order is fillers_last else FEWER):
                placed = PLACED if order is fillers_last else FEWER
                missed = Repair(table, starts).place(missed, placed)
        if best is None or len(missed) < len(best.missed):
            best = Attempt(starts, missed, most)
        if not missed or most.load > 1:
            break
    assert best is not None  # there is an order
    return best


def place(
    table: Timetable, runs: Runs, spread: bool = False
) -> tuple[Starts, list[tuple[int, int]]]:
    """Each run in its turn at the first instant at which there is room; and those for which there
    is none. ``spread``: at the first instant from a place in its window on that each task has for
    itself, so that gaps are left everywhere and a task's runs come at regular intervals."""
    starts: Starts = {}
    missed = []
    earliest, take = table.earliest, table.take
    durations = [task.duration_ms for task in table.work.tasks]
    for task, number, release, deadline in zip(*runs, strict=True):
        last = deadline - durations[task]
        at = NOT
        if spread:
            own = release + ((last - release) * (task * _GOLDEN % _SCALE)) // _SCALE
            at = earliest(task, own, last)
        if at == NOT:
            at = earliest(task, release, last)
        if at == NOT:
            missed.append((task, number))
        else:
            take(task, at)
            starts[task, number] = at
    return starts, missed
