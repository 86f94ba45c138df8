"""EDF-CE as the thesis has it (Algorithm 1), as a peer: earliest deadline first among runs that do
not conflict.

    at every release and every finish: of the pending runs, the most urgent first, start each that
    conflicts with none that runs

The algorithm looks at all pending runs at each of these instants. Here a run that cannot start
waits for one of the things that it lacks. When that becomes free, those that wait for it are looked
at, the most urgent first, until one takes it: the others could not start in any case. So the result
is the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush

from monitors.measurements.load import hyperperiod
from monitors.measurements.tasks import Resource, Task

Starts = dict[tuple[int, int], int]
"""When runs start: by the place of their task, and their number."""


def sweep(tasks: Sequence[Task]) -> tuple[Starts, int]:
    """The starts of all runs that meet their deadlines, and how many do not. Where the algorithm
    ends at the first run that misses its deadline, this leaves it out and goes on."""
    whole_ms = hyperperiod(tasks)
    runs = sorted(
        (number * task.period_ms + task.deadline_ms, task.deadline_ms, index, number)
        for index, task in enumerate(tasks)
        for number in range(whole_ms // task.period_ms)
    )
    release = [deadline - window for deadline, window, _, _ in runs]
    released = sorted(range(len(runs)), key=lambda run: (-release[run], -run))
    needs = [task.needs for task in tasks]
    waiting: dict[Resource, list[int]] = {}  # heaps of runs
    busy: set[Resource] = set()
    ends: list[tuple[int, int]] = []
    starts: Starts = {}
    front: list[tuple[int, Resource | None]] = []  # runs to look at now, and what they waited for

    def wake(resource: Resource) -> None:
        if waiting.get(resource) and resource not in busy:
            heappush(front, (heappop(waiting[resource]), resource))

    while released or ends:
        now = min([end for end, _ in ends[:1]] + ([release[released[-1]]] if released else []))
        while ends and ends[0][0] == now:
            free = needs[runs[heappop(ends)[1]][2]]
            busy.difference_update(free)
            for resource in free:
                wake(resource)
        while released and release[released[-1]] == now:
            heappush(front, (released.pop(), None))
        while front:
            run, awaited = heappop(front)
            deadline, _, index, number = runs[run]
            end = now + tasks[index].duration_ms
            lacks = next((resource for resource in needs[index] if resource in busy), None)
            if end > deadline:
                pass
            elif lacks is not None:
                heappush(waiting.setdefault(lacks, []), run)
            else:
                starts[index, number] = now
                busy.update(needs[index])
                heappush(ends, (end, run))
            if awaited is not None:
                wake(awaited)
    return starts, len(runs) - len(starts)
