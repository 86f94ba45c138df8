"""Changes to a schedule under way: a task arrives or leaves, a run on demand is squeezed in.

What is promised is kept: every task goes on meeting its deadlines, and no slot moves as long as
what is new fits the gaps.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from monitors.schedule.model import Agreement, Infeasible, Schedule, Slot, Task
from monitors.schedule.planning import place, plan
from monitors.schedule.repair import Repair
from monitors.schedule.runs import NOT, Starts, only, schedule_of
from monitors.schedule.timetable import Timetable
from monitors.schedule.work import numbered, seconds, work_of
from network_provisioner.errors import InputError


def arrive(schedule: Schedule, tasks: Iterable[Task], agreement: Agreement, task: Task) -> Schedule:
    """The schedule with one more task; ``tasks`` are those that it has.

    No slot moves where the new ones fit the gaps; otherwise as few as can be move within their
    windows, and all only where that is not enough (:func:`moved` names whose did). The hyperperiod
    becomes a multiple of what it was where the new period wants that. Raises Infeasible naming
    ``task`` where it cannot fit, and InputError as :func:`monitors.schedule.work.work_of`; then the
    schedule stays as it is.
    """
    before = tuple(tasks)
    work = work_of((*before, task), agreement, schedule.hyperperiod_ms)
    number = {found.name: index for index, found in enumerate(work.tasks)}
    table = Timetable(work)
    starts: Starts = {}
    for slot in repeated(schedule, work.hyperperiod_ms).slots:
        starts[number[slot.task], slot.number] = slot.start_ms
        table.take(number[slot.task], slot.start_ms)
    added, missed = place(table, only(work, number[task.name]))
    starts |= added
    if not missed or not Repair(table, starts).place(missed):
        return schedule_of(work, starts)
    try:
        return plan((*before, task), agreement)
    except Infeasible as error:
        raise Infeasible(
            f"measurement task {task.name!r} cannot fit beside the others: {error}", (task.name,)
        ) from None


def leave(schedule: Schedule, name: str) -> Schedule:
    """The schedule without a task. Nothing else changes, and the hyperperiod stays."""
    return replace(schedule, slots=tuple(slot for slot in schedule.slots if slot.task != name))


def moved(before: Schedule, after: Schedule) -> tuple[str, ...]:
    """The tasks of both schedules that have other instants in the second."""
    whole = math.lcm(before.hyperperiod_ms, after.hyperperiod_ms)
    old, new = (
        {(slot.task, slot.number): slot.start_ms for slot in repeated(schedule, whole).slots}
        for schedule in (before, after)
    )
    return tuple(sorted({key[0] for key, at in old.items() if key in new and new[key] != at}))


def repeated(schedule: Schedule, whole_ms: int) -> Schedule:
    """The same schedule, written down for a multiple of its hyperperiod."""
    times = whole_ms // schedule.hyperperiod_ms
    if times == 1:
        return schedule
    per_task: dict[str, int] = {}
    for slot in schedule.slots:
        per_task[slot.task] = per_task.get(slot.task, 0) + 1
    slots = tuple(
        later(slot, turn * schedule.hyperperiod_ms, slot.number + turn * per_task[slot.task])
        for turn in range(times)
        for slot in schedule.slots
    )
    return Schedule(whole_ms, slots)


def later(slot: Slot, by_ms: int, number: int) -> Slot:
    """The slot so much later, as the run of that number."""
    return Slot(
        slot.start_ms + by_ms,
        slot.end_ms + by_ms,
        slot.task,
        number,
        slot.release_ms + by_ms,
        slot.deadline_ms + by_ms,
    )


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
    without a conflict with the schedule or with ``taken`` (requests that were squeezed in before,
    with their slots), and within the agreement.

    Instants are those of the schedule, which began at 0 and repeats for ever. Of ``request`` the
    period, deadline and offset do not count. Raises Infeasible naming the request where there is no
    such time, and InputError for what cannot be meant.
    """
    if request.duration_ms < 1:
        raise InputError(
            f"measurement {request.name!r} takes {request.duration_ms} ms, expected at least 1 ms"
        )
    # One hyperperiod after the last of what was squeezed in, everything looks as it did before.
    beyond = max([now_ms, *(slot.end_ms for _, slot in taken)]) + schedule.hyperperiod_ms
    until = min(until_ms, beyond + request.duration_ms)
    near = [task for task in tasks if _meets(task, request, agreement)]
    extra = [(task, slot) for task, slot in taken if _meets(task, request, agreement)]
    # Names that tasks can have do not begin with a blank, and order does not matter here.
    alone = [_once(task, f" {n}") for n, task in enumerate([request, *(t for t, _ in extra)])]
    longest = max(task.duration_ms for task in (*near, *alone))
    begin, end = now_ms - longest, max(until, now_ms) + longest
    ordered = tuple(sorted((*near, *alone), key=lambda task: task.name))
    table = Timetable(numbered(ordered, agreement, end - begin))
    number = {task.name: index for index, task in enumerate(ordered)}
    for slot in _during(schedule, {task.name for task in near}, now_ms, until):
        table.take(number[slot.task], slot.start_ms - begin)
    for task, (_, slot) in zip(alone[1:], extra, strict=True):
        if slot.start_ms < until and slot.end_ms > now_ms:
            table.take(number[task.name], slot.start_ms - begin)
    last_ms = until - request.duration_ms
    at = table.earliest(number[alone[0].name], now_ms - begin, last_ms - begin)
    if now_ms > last_ms or at == NOT:
        raise Infeasible(
            f"measurement {request.name!r} takes {seconds(request.duration_ms)}, and found no room "
            f"within {seconds(until_ms - now_ms)}",
            (request.name,),
        )
    start = begin + at
    return Slot(start, start + request.duration_ms, request.name, 0, now_ms, until_ms)


def _once(task: Task, name: str) -> Task:
    long = task.duration_ms
    return replace(task, name=name, period_ms=long, deadline_ms=long, offset_ms=0)


def _meets(task: Task, request: Task, agreement: Agreement) -> bool:
    """Whether the two matter to each other."""
    return bool(
        task.hosts & request.hosts
        or task.links & request.links
        or any(links & request.links and links & task.links for links in agreement.domains.values())
    )


def _during(schedule: Schedule, names: set[str], start_ms: int, end_ms: int) -> Iterator[Slot]:
    """The slots of these tasks that overlap with that time."""
    whole = schedule.hyperperiod_ms
    for slot in schedule.slots:
        if slot.task in names:
            turn = (start_ms - slot.end_ms) // whole + 1  # the first that ends after the start
            while slot.start_ms + turn * whole < end_ms:
                yield later(slot, turn * whole, slot.number)
                turn += 1
