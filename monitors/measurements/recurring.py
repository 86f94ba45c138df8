"""A schedule that repeats for ever, as instants.

It is anchored at the beginning of Unix time: a hyperperiod begins whenever the time in milliseconds
is a whole multiple of its length. So the same schedule gives the same instants in every process,
whenever that was started.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property

from monitors.measurements.tasks import Schedule, Slot


class Recurring:
    """The slots of a schedule at their instants, milliseconds of Unix time."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        length = schedule.hyperperiod_ms
        self._slots = sorted(moved(s, -(s.start_ms // length) * length) for s in schedule.slots)

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
                yield moved(slot, cycle * length)
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
        return moved(mine[place], cycle * length)

    def of_release(self, task: str, release_ms: int) -> Slot | None:
        """The slot of that release; None where the task is not released then."""
        found = self.next_of(task, release_ms)  # no later release has a slot before it
        return found if found is not None and found.release_ms == release_ms else None

    def has(self, task: str, at_ms: int) -> bool:
        """Whether a slot of the task begins at that instant."""
        found = self.next_of(task, at_ms)
        return found is not None and found.start_ms == at_ms

    @cached_property
    def _starts(self) -> list[int]:
        return [slot.start_ms for slot in self._slots]

    @cached_property
    def _by_task(self) -> dict[str, tuple[list[Slot], list[int]]]:
        found: dict[str, tuple[list[Slot], list[int]]] = {}
        for slot in self._slots:
            slots, starts = found.setdefault(slot.task, ([], []))
            slots.append(slot)
            starts.append(slot.start_ms)
        return found


def moved(slot: Slot, by_ms: int) -> Slot:
    """The slot so much later."""
    return replace(
        slot,
        start_ms=slot.start_ms + by_ms,
        end_ms=slot.end_ms + by_ms,
        release_ms=slot.release_ms + by_ms,
        deadline_ms=slot.deadline_ms + by_ms,
    )
