"""EDF-CE as the thesis has it (Algorithm 1), as a peer: earliest deadline first among runs that do
not conflict.

    at every release and every finish: of the pending runs, the most urgent first, start each that
    conflicts with none that runs

The algorithm looks at all pending runs at each of these instants. Here a run that cannot start
waits at one of the things that it lacks, and is looked at again when that becomes free: before, it
could not start in any case. So the result is the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush

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
    waiting: dict[Resource, list[int]] = {}
    busy: set[Resource] = set()
    ends: list[tuple[int, int]] = []
    starts: Starts = {}
    while released or ends:
        now = min([end for end, _ in ends[:1]] + ([release[released[-1]]] if released else []))
        front = []
        while ends and ends[0][0] == now:
            free = tasks[runs[heappop(ends)[1]][2]].needs
            busy.difference_update(free)
            for resource in free:
                front += waiting.pop(resource, [])
        while released and release[released[-1]] == now:
            front.append(released.pop())
        heapify(front)
        while front:
            run = heappop(front)
            deadline, _, index, number = runs[run]
            task = tasks[index]
            if now + task.duration_ms > deadline:
                continue
            lacks = next((resource for resource in task.needs if resource in busy), None)
            if lacks is not None:
                waiting.setdefault(lacks, []).append(run)
                continue
            starts[index, number] = now
            busy.update(task.needs)
            heappush(ends, (now + task.duration_ms, run))
    return starts, len(runs) - len(starts)
