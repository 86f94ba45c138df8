"""The runs of a hyperperiod, in an order in which a scheduler takes them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import NamedTuple

from monitors.schedule.model import Schedule, Slot
from monitors.schedule.work import Work

NOT = -1
"""A start that is not: there is no room."""

LITTLE = 0.001
"""A part of what a domain bears that holds up nobody."""

Run = tuple[int, int]
"""The number of its task, and its own."""

Starts = dict[Run, int]
"""When runs start."""

Key = Callable[[Work, int], tuple[int, ...]]
"""What a task is compared by with others: the lowest is the first."""


class Runs(NamedTuple):
    """An item for each run: of which task, the how many-th, and its window."""

    task: list[int]
    number: list[int]
    release_ms: list[int]
    deadline_ms: list[int]


def by_deadline(work: Work, key: Key) -> Runs:
    """The earliest deadline first, then the shortest window, then the task that ``key`` puts
    first."""
    rank = _ranks(work, key)
    return _runs(sorted((run[0], -run[1], rank[run[2]], run[3], *run) for run in _all(work)))


def fillers_last(work: Work) -> Runs:
    """The earliest deadline first, but for runs that fill what others leave of a domain's load:
    those come last. Before, they would take room from runs with a high load, which fit nowhere
    else. Of those with the same deadline the ones that need the same come together, the longest
    first, so that they leave few gaps."""
    fillers, uses = _fillers(work), work.uses
    lasts = [-task.duration_ms for task in work.tasks]

    def turn(run: tuple[int, ...]) -> tuple[object, ...]:
        deadline, release, task = run[:3]
        fills = task in fillers
        return fills, deadline, -release if fills else 0, uses[task], lasts[task], *run[2:]

    return _runs(sorted(_all(work), key=turn))


def _fillers(work: Work) -> set[int]:
    """The tasks that need a bounded domain with less than the highest load there, unless all with
    that load together need next to nothing of it."""
    found: set[int] = set()
    for number, bound in enumerate(work.bounds):
        inside = [index for index, domains in enumerate(work.domains) if number in domains]
        if not bound.most or not inside:
            continue
        share: defaultdict[int, float] = defaultdict(float)
        for index in inside:
            task, load = work.tasks[index], work.load[index]
            share[load] += load / bound.most * task.duration_ms / task.period_ms
        highest = max(share)
        found |= {i for i in inside if work.load[i] < highest and share[work.load[i]] > LITTLE}
    return found


def by_task(work: Work, key: Key) -> Runs:
    """All runs of the task first that ``key`` puts first."""
    rank = _ranks(work, key)
    return _runs(sorted((rank[run[2]], run[3], *run) for run in _all(work)))


def only(work: Work, task: int) -> Runs:
    """Those of one task, in order."""
    return _runs(sorted(run for run in _all(work) if run[2] == task))


def _all(work: Work) -> list[tuple[int, int, int, int]]:
    """Deadline, release, task, number."""
    return [
        (release + task.deadline_ms, release, index, number)
        for index, task in enumerate(work.tasks)
        for number in range(work.hyperperiod_ms // task.period_ms)
        for release in (task.offset_ms + number * task.period_ms,)
    ]


def _ranks(work: Work, key: Key) -> list[int]:
    ranks = [0] * len(work.tasks)
    for rank, index in enumerate(sorted(range(len(ranks)), key=lambda i: (key(work, i), i))):
        ranks[index] = rank
    return ranks


def _runs(ordered: list[tuple[int, ...]]) -> Runs:
    return Runs(
        [run[-2] for run in ordered],
        [run[-1] for run in ordered],
        [run[-3] for run in ordered],
        [run[-4] for run in ordered],
    )


def tightest(work: Work, task: int) -> tuple[int, ...]:
    """Those first that have the least time, need the fullest resource, take longest."""
    found = work.tasks[task]
    return found.deadline_ms, *work.uses[task][:1], -found.duration_ms


def least_room(work: Work, task: int) -> tuple[int, ...]:
    """Those first that have the least time beside what they take, need the fullest resource."""
    found = work.tasks[task]
    return found.deadline_ms - found.duration_ms, *work.uses[task][:1]


def schedule_of(work: Work, starts: Mapping[tuple[int, int], int]) -> Schedule:
    """The slots of all runs that have a start."""
    slots = []
    for (index, number), at in starts.items():
        task = work.tasks[index]
        release = task.offset_ms + number * task.period_ms
        end, deadline = at + task.duration_ms, release + task.deadline_ms
        slots.append((at, end, task.name, number, release, deadline))
    slots.sort()  # quicker than to sort what they become
    return Schedule(work.hyperperiod_ms, tuple(Slot(*slot) for slot in slots))
