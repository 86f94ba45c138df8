"""What a schedule takes, to be looked at again and again without being written down anew.

Made once for a schedule, when something is first to be put between its slots; a timetable that
begins with it copies what it needs.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

from monitors.schedule.model import Agreement, Schedule, Task
from monitors.schedule.online import repeated
from monitors.schedule.repair import Taken, taken_by
from monitors.schedule.runs import Run, Starts
from monitors.schedule.timetable import Levels, Stretches
from monitors.schedule.work import MOST_RUNS, numbered


class Standing:
    """A schedule with all its tasks, as numbers; it does not change."""

    def __init__(self, schedule: Schedule, tasks: Iterable[Task], agreement: Agreement) -> None:
        ordered = tuple(sorted(tasks, key=lambda task: task.name))
        self.agreement, self._schedule = agreement, schedule
        self.work = numbered(ordered, agreement, schedule.hyperperiod_ms)
        self.number = {task.name: index for index, task in enumerate(ordered)}
        self.longest_ms = max((task.duration_ms for task in ordered), default=0)
        self._merged: dict[int, Stretches] = {}
        self._longer: dict[int, Standing] = {}

    def for_at_least(self, length_ms: int) -> Standing:
        """The same schedule, repeated until it is so long (or as often as can be)."""
        whole = self._schedule.hyperperiod_ms
        times = -(-length_ms // whole)
        times = max(1, min(times, MOST_RUNS // max(1, len(self._schedule.slots))))
        if times == 1:
            return self
        if times not in self._longer:
            longer = repeated(self._schedule, times * whole)
            self._longer = {times: Standing(longer, self.work.tasks, self.agreement)}
        return self._longer[times]

    @cached_property
    def starts(self) -> Starts:
        """Of all runs."""
        return {(self.number[s.task], s.number): s.start_ms for s in self._schedule.slots}

    def later_ms(self, run: Run, since_ms: int) -> int:
        """By how much a run's slot is later in the hyperperiod that begins at ``since_ms``."""
        whole = self.work.hyperperiod_ms
        return (since_ms - self.starts[run] + whole - 1) // whole * whole

    @cached_property
    def _taken(self) -> dict[int, Taken]:
        return taken_by(self.work, self.starts)

    def on(self, resource: int) -> Taken:
        """Who has a resource, and when; not to be changed. One that the schedule does not have is
        free."""
        return self._taken.get(resource, []) if resource < len(self.work.resources) else []

    def within(self, domain: int) -> Taken:
        """The same of a domain."""
        return self._taken.get(len(self.work.resources) + domain, [])

    def stretches(self, resource: int) -> Stretches:
        """When a resource is taken."""
        found = self._merged.get(resource)
        if found is None:
            found = self._merged[resource] = Stretches()
            for start, end, _ in self.on(resource):
                found.add(start, end)
        return Stretches(found.starts, found.ends)

    def levels(self, domain: int) -> Levels:
        """How many run in a domain, with what load."""
        taken, load = self.within(domain), self.work.load
        there = ((start, end, load[run[0]]) for start, end, run in taken)
        return Levels(self.work.bounds[domain], self.work.hyperperiod_ms, there)
